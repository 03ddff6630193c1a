// Error-bounded lossy coding of floating-point values, fast enough to sit before a network link:
// uniform quantisation, integer prediction where it pays, blocks of 256 packed bit by bit. Pure: no
// files, no MPI. The bytes are docs/formats/codec_stream.md; they do not depend on the processor or
// on the number of threads. All functions are thread-safe and block until done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace trireme::compress {

struct Kernels;

enum class ElementType : uint8_t { kF32 = 0, kBF16 = 1, kF16 = 2, kF64 = 3 };

size_t SizeOf(ElementType type);
std::string_view NameOf(ElementType type);
// "f32", "bf16", "f16" or "f64"; InvalidArgument otherwise.
absl::StatusOr<ElementType> ParseElementType(std::string_view name);

enum class BoundMode : uint8_t {
  kAbsolute = 0,
  kRange = 1,  // times (largest - smallest finite value)
  kRms = 2,    // times the root mean square of the finite values
};

// What a user asks for.
struct Bound {
  BoundMode mode = BoundMode::kAbsolute;
  double value = 0;  // finite, >= 0; 0 keeps every value as it is
};

// "abs:E", "range:E" or "rms:E"; InvalidArgument otherwise.
absl::StatusOr<Bound> ParseBound(std::string_view text);
std::string_view NameOf(BoundMode mode);

// What a stream is coded with. step is 0 where the bound is too small for coding.
struct Quantiser {
  Bound requested;
  double absolute = 0;  // |x - decoded x| <= absolute for every finite x
  double step = 0;      // distance of neighbouring decoded values
};

// Values in memory, not owned, with any alignment that the element type allows.
struct Values {
  ElementType type = ElementType::kF32;
  const void* data = nullptr;
  size_t count = 0;
};
struct MutableValues {
  ElementType type = ElementType::kF32;
  void* data = nullptr;
  size_t count = 0;
};
inline Values ValuesOf(std::span<const float> values) {
  return {ElementType::kF32, values.data(), values.size()};
}
inline MutableValues ValuesOf(std::span<float> values) {
  return {ElementType::kF32, values.data(), values.size()};
}

struct CodecOptions {
  int threads = 1;                   // the caller's thread and threads - 1 more
  const Kernels* kernels = nullptr;  // null: the best for this processor (compress/kernels.h)
};

// The quantiser of a bound; relative ones read all values once. The same for every number of
// threads. InvalidArgument for a bound that is negative or not finite.
absl::StatusOr<Quantiser> Resolve(Values values, Bound bound, const CodecOptions& options = {});
// Likewise for an absolute bound, without looking at any values.
absl::StatusOr<Quantiser> ResolveAbsolute(ElementType type, double bound);

// No stream of `count` values is longer: the values and 64 + 16 bytes per 65,536 of them.
size_t MaxCompressedBytes(ElementType type, size_t count);

// Writes a stream to the front of `out` and returns its bytes. ResourceExhausted, with nothing
// promised of what `out` then holds, where it does not fit; never writes beyond `out`.
absl::StatusOr<size_t> Compress(Values values, const Quantiser& quantiser, std::span<std::byte> out,
                                const CodecOptions& options = {});
// Resolves the bound, compresses, and returns a vector of just the right size.
absl::StatusOr<std::vector<std::byte>> Compress(Values values, Bound bound,
                                                const CodecOptions& options = {});

// What a stream says of itself.
struct StreamInfo {
  ElementType type = ElementType::kF32;
  uint64_t count = 0;
  uint64_t bytes = 0;
  uint64_t pieces = 0;
  Quantiser quantiser;
};

// Checks header, lengths and the checksum of the header. DataLoss or InvalidArgument names the
// field. `stream` must be a whole stream, no more and no less.
absl::StatusOr<StreamInfo> ReadInfo(std::span<const std::byte> stream);

// Decodes a whole stream into `out`, whose type and count must be the stream's. DataLoss for any
// damage; `out` then holds unspecified values.
absl::Status Decompress(std::span<const std::byte> stream, MutableValues out,
                        const CodecOptions& options = {});
// Likewise for the out.count values from value `first` on; touches no other pieces.
absl::Status DecompressRange(std::span<const std::byte> stream, uint64_t first, MutableValues out,
                             const CodecOptions& options = {});

// Where the bytes of a stream go, for people.
struct StreamStatistics {
  uint64_t verbatim_pieces = 0, quantised_pieces = 0, ordered_pieces = 0;
  uint64_t predicted_pieces = 0;  // by differences
  uint64_t blocks = 0;            // of the pieces that are not verbatim
  uint64_t empty_blocks = 0;      // of width byte 0
  uint64_t constant_blocks = 0, verbatim_blocks = 0;
  uint64_t packed_bytes = 0;
  uint64_t patches = 0, patch_bytes = 0;
  uint64_t exceptions = 0, exception_bytes = 0;
};

// Walks a whole stream, checking all but the values.
absl::StatusOr<StreamStatistics> Inspect(std::span<const std::byte> stream);

}  // namespace trireme::compress
