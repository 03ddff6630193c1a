// The C functions: arguments checked, statuses as codes, no exception leaves.
#include "compress/c/trireme_codec.h"

#include <exception>
#include <limits>
#include <string>

#include "compress/codec.h"

namespace trireme::compress {
namespace {

thread_local std::string last_error;

trireme_codec_result Fail(trireme_codec_result result, std::string_view message) {
  last_error = message;
  return result;
}

trireme_codec_result ResultOf(const absl::Status& status) {
  if (status.ok()) return TRIREME_CODEC_OK;
  const std::string message(status.message());
  if (absl::IsResourceExhausted(status)) return Fail(TRIREME_CODEC_NO_ROOM, message);
  if (absl::IsDataLoss(status)) return Fail(TRIREME_CODEC_DAMAGED, message);
  return Fail(TRIREME_CODEC_BAD_ARGUMENT, message);
}

bool KnownType(trireme_codec_type type) { return static_cast<unsigned>(type) <= TRIREME_CODEC_F64; }
ElementType TypeOf(trireme_codec_type type) { return static_cast<ElementType>(type); }

std::span<const std::byte> BytesOf(trireme_codec_bytes bytes) {
  return {static_cast<const std::byte*>(bytes.data), bytes.size};
}

// Calls work(), which returns a status; memory that there is not becomes a code.
template <typename Work>
trireme_codec_result Guard(Work work) {
  try {
    return ResultOf(work());
  } catch (const std::exception&) {
    // Without a message of its own making, which would need memory.
    last_error.clear();
    return TRIREME_CODEC_NO_MEMORY;
  }
}

}  // namespace
}  // namespace trireme::compress

using namespace trireme::compress;  // NOLINT: the functions below have no namespace

size_t trireme_codec_max_bytes(trireme_codec_type type, size_t count) {
  if (!KnownType(type) || count > std::numeric_limits<size_t>::max() / 64) return 0;
  return MaxCompressedBytes(TypeOf(type), count);
}

trireme_codec_result trireme_codec_compress(trireme_codec_values values, trireme_codec_bound bound,
                                            int threads, void* out, size_t capacity,
                                            size_t* bytes) {
  return Guard([&]() -> absl::Status {
    if (trireme_codec_max_bytes(values.type, values.count) == 0 ||
        static_cast<unsigned>(bound.mode) > TRIREME_CODEC_RMS || threads < 1) {
      return absl::InvalidArgumentError("unknown type or mode, too many values, or no threads");
    }
    if ((values.data == nullptr && values.count > 0) || out == nullptr || bytes == nullptr) {
      return absl::InvalidArgumentError("a null pointer");
    }
    const Values input{TypeOf(values.type), values.data, values.count};
    const CodecOptions options{.threads = threads};
    const auto quantiser =
        Resolve(input, {static_cast<BoundMode>(bound.mode), bound.value}, options);
    if (!quantiser.ok()) return quantiser.status();
    const auto written =
        Compress(input, *quantiser, {static_cast<std::byte*>(out), capacity}, options);
    if (!written.ok()) return written.status();
    *bytes = *written;
    return absl::OkStatus();
  });
}

trireme_codec_result trireme_codec_read_info(trireme_codec_bytes stream, trireme_codec_info* info) {
  return Guard([&]() -> absl::Status {
    if ((stream.data == nullptr && stream.size > 0) || info == nullptr) {
      return absl::InvalidArgumentError("a null pointer");
    }
    const auto read = ReadInfo(BytesOf(stream));
    if (!read.ok()) return read.status();
    info->type = static_cast<trireme_codec_type>(read->type);
    info->requested = {static_cast<trireme_codec_mode>(read->quantiser.requested.mode),
                       read->quantiser.requested.value};
    info->absolute = read->quantiser.absolute;
    info->count = read->count;
    info->bytes = read->bytes;
    return absl::OkStatus();
  });
}

trireme_codec_result trireme_codec_decompress(trireme_codec_bytes stream, uint64_t first,
                                              int threads, trireme_codec_output out) {
  return Guard([&]() -> absl::Status {
    if (!KnownType(out.type) || threads < 1) {
      return absl::InvalidArgumentError("unknown type, or no threads");
    }
    if ((stream.data == nullptr && stream.size > 0) || (out.data == nullptr && out.count > 0)) {
      return absl::InvalidArgumentError("a null pointer");
    }
    return DecompressRange(BytesOf(stream), first, {TypeOf(out.type), out.data, out.count},
                           {.threads = threads});
  });
}

const char* trireme_codec_last_error() {
  return last_error.empty() ? "out of memory" : last_error.c_str();
}
