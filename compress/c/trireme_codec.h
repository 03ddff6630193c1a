// Error-bounded coding of floating-point values, for C99 and C++: the streams of
// docs/formats/codec_stream.md. All functions are thread-safe, block until done and own nothing
// that they are given. Link with -ltrireme_codec (pkg-config trireme-codec).
#pragma once

#include <stddef.h>
#include <stdint.h>

/* As C has it: an int, which may hold what is no name of it; C++ would let the compiler take for
 * granted that it does not. */
#ifdef __cplusplus
#define TRIREME_CODEC_INT : int
extern "C" {
#else
#define TRIREME_CODEC_INT
#endif

enum trireme_codec_type TRIREME_CODEC_INT {
  TRIREME_CODEC_F32 = 0,
  TRIREME_CODEC_BF16 = 1,
  TRIREME_CODEC_F16 = 2,
  TRIREME_CODEC_F64 = 3
};

/* What the bound is a multiple of. Relative bounds look at finite values only. */
enum trireme_codec_mode TRIREME_CODEC_INT {
  TRIREME_CODEC_ABSOLUTE = 0, /* 1 */
  TRIREME_CODEC_RANGE = 1,    /* largest - smallest value */
  TRIREME_CODEC_RMS = 2       /* root mean square */
};

enum trireme_codec_result TRIREME_CODEC_INT {
  TRIREME_CODEC_OK = 0,
  TRIREME_CODEC_BAD_ARGUMENT = 1, /* or not a stream at all */
  TRIREME_CODEC_NO_ROOM = 2,      /* the output does not fit */
  TRIREME_CODEC_DAMAGED = 3,      /* cut off or changed */
  TRIREME_CODEC_NO_MEMORY = 4
};

/* `count` values at `data`, aligned as their type. */
struct trireme_codec_values {
  enum trireme_codec_type type;
  const void *data;
  size_t count;
};
struct trireme_codec_output {
  enum trireme_codec_type type;
  void *data;
  size_t count;
};
struct trireme_codec_bytes {
  const void *data;
  size_t size;
};
struct trireme_codec_bound {
  enum trireme_codec_mode mode;
  double value; /* finite, >= 0; 0 keeps every bit */
};

struct trireme_codec_info {
  enum trireme_codec_type type;
  struct trireme_codec_bound requested;
  double absolute; /* |x - decoded x| <= absolute for every finite x */
  uint64_t count;
  uint64_t bytes; /* of the stream */
};

/* No stream of `count` values is longer; 0 for an unknown type or a count beyond memory. */
size_t trireme_codec_max_bytes(enum trireme_codec_type type, size_t count);

/* Writes a stream to `out`, never beyond `capacity`, and its length to `bytes`. `threads` >= 1; the
 * stream does not depend on it. */
enum trireme_codec_result trireme_codec_compress(struct trireme_codec_values values,
                                                 struct trireme_codec_bound bound, int threads,
                                                 void *out, size_t capacity, size_t *bytes);

/* Checks all of a stream but its pieces. */
enum trireme_codec_result trireme_codec_read_info(struct trireme_codec_bytes stream,
                                                  struct trireme_codec_info *info);

/* Decodes the out.count values from value `first` on. After an error `out` holds anything. */
enum trireme_codec_result trireme_codec_decompress(struct trireme_codec_bytes stream,
                                                   uint64_t first, int threads,
                                                   struct trireme_codec_output out);

/* What the last function of this thread that did not return TRIREME_CODEC_OK had to say; valid
 * until the next such one. */
const char *trireme_codec_last_error(void);

#ifdef __cplusplus
}
#endif
