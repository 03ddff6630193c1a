/* The C header compiles as C99 and its functions keep their promises. Exit 0, or the line. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/c/trireme_codec.h"

#define EXPECT(what)                                                                      \
  do {                                                                                    \
    if (!(what)) {                                                                        \
      fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, trireme_codec_last_error()); \
      return 1;                                                                           \
    }                                                                                     \
  } while (0)

enum { kCount = 100000 };

static int round_trip(const float *values, float *back) {
  const struct trireme_codec_values in = {TRIREME_CODEC_F32, values, kCount};
  const struct trireme_codec_bound bound = {TRIREME_CODEC_RMS, 0.1};
  const size_t capacity = trireme_codec_max_bytes(TRIREME_CODEC_F32, kCount);
  unsigned char *out = malloc(capacity);
  struct trireme_codec_bytes stream = {out, 0};
  struct trireme_codec_info info;
  const struct trireme_codec_output whole = {TRIREME_CODEC_F32, back, kCount};
  const struct trireme_codec_output part = {TRIREME_CODEC_F32, back, 10};
  int i;
  EXPECT(out != NULL && capacity > 4 * kCount);
  EXPECT(trireme_codec_compress(in, bound, 2, out, capacity, &stream.size) == TRIREME_CODEC_OK);
  EXPECT(stream.size < kCount);
  EXPECT(trireme_codec_read_info(stream, &info) == TRIREME_CODEC_OK);
  EXPECT(info.count == kCount && info.type == TRIREME_CODEC_F32 && info.bytes == stream.size);
  EXPECT(info.requested.mode == TRIREME_CODEC_RMS && info.requested.value == 0.1);
  EXPECT(trireme_codec_decompress(stream, 0, 2, whole) == TRIREME_CODEC_OK);
  for (i = 0; i < kCount; ++i) {
    EXPECT(fabs((double)values[i] - (double)back[i]) <= info.absolute);
  }
  EXPECT(trireme_codec_decompress(stream, kCount - 10, 1, part) == TRIREME_CODEC_OK);
  EXPECT(fabs((double)values[kCount - 1] - (double)back[9]) <= info.absolute);
  EXPECT(trireme_codec_decompress(stream, kCount - 9, 1, part) == TRIREME_CODEC_BAD_ARGUMENT);
  out[stream.size - 1] ^= 1;
  EXPECT(trireme_codec_decompress(stream, 0, 1, whole) == TRIREME_CODEC_DAMAGED);
  EXPECT(strstr(trireme_codec_last_error(), "checksum") != NULL);
  free(out);
  return 0;
}

static int refusals(const float *values) {
  const struct trireme_codec_values in = {TRIREME_CODEC_F32, values, kCount};
  const struct trireme_codec_values none = {TRIREME_CODEC_F32, NULL, kCount};
  const struct trireme_codec_bound bound = {TRIREME_CODEC_ABSOLUTE, 1e-3};
  const struct trireme_codec_bound bad = {TRIREME_CODEC_ABSOLUTE, -1};
  const struct trireme_codec_bytes nothing = {NULL, 0};
  struct trireme_codec_info info;
  unsigned char out[200];
  size_t bytes = 0;
  EXPECT(trireme_codec_compress(in, bound, 1, out, sizeof(out), &bytes) == TRIREME_CODEC_NO_ROOM);
  EXPECT(trireme_codec_compress(none, bound, 1, out, sizeof(out), &bytes) ==
         TRIREME_CODEC_BAD_ARGUMENT);
  EXPECT(trireme_codec_compress(in, bad, 1, out, sizeof(out), &bytes) ==
         TRIREME_CODEC_BAD_ARGUMENT);
  EXPECT(strstr(trireme_codec_last_error(), "-1") != NULL);
  EXPECT(trireme_codec_read_info(nothing, &info) == TRIREME_CODEC_DAMAGED);
  EXPECT(trireme_codec_max_bytes((enum trireme_codec_type)7, 1) == 0);
  return 0;
}

int main(void) {
  float *values = malloc(kCount * sizeof(float));
  float *back = malloc(kCount * sizeof(float));
  int i;
  if (values == NULL || back == NULL) return 1;
  for (i = 0; i < kCount; ++i) values[i] = (float)sin(i * 0.7) * 1e-3f;
  if (round_trip(values, back) != 0 || refusals(values) != 0) return 1;
  free(values);
  free(back);
  printf("the C functions keep their promises\n");
  return 0;
}
