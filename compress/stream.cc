// Streams: header and piece table, and the pieces' way to and from threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "compress/codec.h"
#include "compress/element.h"
#include "compress/parallel.h"
#include "compress/piece.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/checksum/crc32c.h"

namespace trireme::compress {
namespace {

static_assert(std::endian::native == std::endian::little, "streams are little-endian");

constexpr char kMagic[8] = {'T', 'R', 'I', 'R', 'C', 'O', 'D', 'E'};
constexpr uint16_t kVersion = 1;
constexpr uint8_t kPieceLog2 = 16;
static_assert(kPieceValues == size_t{1} << kPieceLog2);

// As it lies in the stream; every member is at its natural alignment, so there is no padding.
struct RawHeader {
  char magic[8];
  uint16_t version;
  uint8_t type;
  uint8_t mode;
  uint8_t piece_log2;
  uint8_t zero[3];
  uint64_t count;
  double requested;
  double absolute;
  double step;
  uint64_t bytes;
  uint32_t pieces;
  uint32_t crc32c;
};
constexpr size_t kHeaderBytes = 64;
static_assert(sizeof(RawHeader) == kHeaderBytes);

struct PieceEntry {
  uint32_t bytes;
  uint32_t crc32c;
};
constexpr size_t kEntryBytes = sizeof(PieceEntry);
static_assert(kEntryBytes == 8);

size_t PiecesOf(uint64_t count) {
  return static_cast<size_t>((count + kPieceValues - 1) / kPieceValues);
}

absl::Status Bad(std::string_view what) {
  return absl::DataLossError(base::Text("codec stream: ", what));
}

absl::Status BadPiece(size_t piece, std::string_view what) {
  return Bad(base::Text("piece ", piece, " ", what));
}

uint32_t HeaderCrc(std::span<const std::byte> stream, size_t pieces) {
  const uint32_t crc = checksum::Crc32c(stream.first(kHeaderBytes - 4));
  return checksum::Crc32c(stream.subspan(kHeaderBytes, pieces * kEntryBytes), crc);
}

const Kernels* KernelsOf(const CodecOptions& options) {
  return options.kernels != nullptr ? options.kernels : &BestKernels();
}

PieceContext ContextOf(ElementType type, const Quantiser& quantiser, const CodecOptions& options) {
  return {KernelsOf(options), ConstantsOf(type, quantiser, kStreamCodeLimit)};
}

absl::Status CheckNumbers(const RawHeader& raw) {
  const bool f64 = raw.type == static_cast<uint8_t>(ElementType::kF64);
  if (!std::isfinite(raw.requested) || raw.requested < 0) {
    return Bad(base::Text("the bound asked for, ", raw.requested, ", is not a number from 0 up"));
  }
  if (!std::isfinite(raw.absolute) || raw.absolute < 0) {
    return Bad(base::Text("the absolute bound, ", raw.absolute, ", is not a number from 0 up"));
  }
  if (raw.step == 0) return absl::OkStatus();
  if (!(raw.step >= (f64 ? 0x1p-1000 : 0x1p-100) && raw.step <= (f64 ? 0x1p1001 : 0x1p101) &&
        raw.step <= 2 * raw.absolute)) {
    return Bad(base::Text("step ", raw.step, " does not fit the bound ", raw.absolute));
  }
  if (!f64 && static_cast<double>(static_cast<float>(raw.step)) != raw.step) {
    return Bad(base::Text("step ", raw.step, " is not an f32 number"));
  }
  return absl::OkStatus();
}

// Header and piece table, checked; `offsets` holds where each piece begins, and the end.
struct Opened {
  StreamInfo info;
  std::vector<uint64_t> offsets;
  std::vector<PieceEntry> entries;
};

absl::Status CheckHeader(std::span<const std::byte> stream, RawHeader* raw) {
  if (stream.size() < kHeaderBytes) {
    return Bad(base::Text("has ", stream.size(), " bytes, fewer than its header of 64: cut off?"));
  }
  std::memcpy(raw, stream.data(), kHeaderBytes);
  if (std::memcmp(raw->magic, kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError("codec stream: does not begin with TRIRCODE");
  }
  if (raw->version != kVersion) {
    return absl::InvalidArgumentError(
        base::Text("codec stream: version ", raw->version, "; this program reads version 1"));
  }
  if (raw->type > static_cast<uint8_t>(ElementType::kF64)) {
    return Bad(base::Text("element type ", int{raw->type}, " is unknown"));
  }
  if (raw->mode > static_cast<uint8_t>(BoundMode::kRms)) {
    return Bad(base::Text("mode ", int{raw->mode}, " of the bound is unknown"));
  }
  if (raw->piece_log2 != kPieceLog2) {
    return Bad(base::Text("pieces of 2^", int{raw->piece_log2}, " values; expected 2^16"));
  }
  if (raw->zero[0] != 0 || raw->zero[1] != 0 || raw->zero[2] != 0) {
    return Bad("bytes 13 to 15 are not zero");
  }
  if (raw->bytes != stream.size()) {
    return Bad(base::Text("says it has ", raw->bytes, " bytes, and ", stream.size(),
                          " are there: cut off?"));
  }
  // Without overflow: a stream has more bytes than an eighth of its number of pieces.
  if (raw->count > UINT64_MAX / 2 || PiecesOf(raw->count) != raw->pieces) {
    return Bad(base::Text(raw->pieces, " pieces do not hold ", raw->count, " values"));
  }
  if ((stream.size() - kHeaderBytes) / kEntryBytes < raw->pieces) {
    return Bad("ends inside its piece table");
  }
  if (HeaderCrc(stream, raw->pieces) != raw->crc32c) {
    return Bad("the checksum of the header is wrong");
  }
  return CheckNumbers(*raw);
}

absl::StatusOr<Opened> Open(std::span<const std::byte> stream) {
  RawHeader raw;
  RETURN_IF_ERROR(CheckHeader(stream, &raw));
  Opened opened;
  opened.info = {static_cast<ElementType>(raw.type),
                 raw.count,
                 raw.bytes,
                 raw.pieces,
                 {{static_cast<BoundMode>(raw.mode), raw.requested}, raw.absolute, raw.step}};
  opened.entries.resize(raw.pieces);
  if (raw.pieces > 0) {
    std::memcpy(opened.entries.data(), stream.data() + kHeaderBytes, raw.pieces * kEntryBytes);
  }
  uint64_t at = kHeaderBytes + raw.pieces * kEntryBytes;
  opened.offsets.reserve(raw.pieces + size_t{1});
  opened.offsets.push_back(at);
  for (const PieceEntry& entry : opened.entries) {
    at += entry.bytes;
    opened.offsets.push_back(at);
  }
  if (at != stream.size()) {
    return Bad(base::Text("its pieces end at byte ", at, ", and the stream at ", stream.size()));
  }
  return opened;
}

absl::Status CheckPieceCrc(std::span<const std::byte> piece, const Opened& opened, size_t index) {
  if (checksum::Crc32c(piece) == opened.entries[index].crc32c) return absl::OkStatus();
  return BadPiece(index, "has a wrong checksum");
}

template <typename E>
absl::Status DecodePieces(std::span<const std::byte> stream, const Opened& opened, uint64_t first,
                          MutableValues out, const CodecOptions& options) {
  const uint64_t end = first + out.count;
  const size_t first_piece = static_cast<size_t>(first / kPieceValues);
  const size_t pieces = PiecesOf(end) - first_piece;
  const PieceContext context = ContextOf(E::kType, opened.info.quantiser, options);
  std::vector<absl::Status> faults(static_cast<size_t>(std::max(options.threads, 1)));
  ForEachPiece(pieces, options.threads, [&](size_t k, size_t thread) {
    if (!faults[thread].ok()) return;
    const size_t piece = first_piece + k;
    const uint64_t begins = static_cast<uint64_t>(piece) * kPieceValues;
    const auto count =
        static_cast<size_t>(std::min<uint64_t>(kPieceValues, opened.info.count - begins));
    const uint64_t from = std::max(first, begins);
    const uint64_t to = std::min(end, begins + count);
    const auto bytes = stream.subspan(opened.offsets[piece], opened.entries[piece].bytes);
    faults[thread] = CheckPieceCrc(bytes, opened, piece);
    if (!faults[thread].ok()) return;
    auto* target = static_cast<typename E::Bits*>(out.data) + (from - first);
    const char* fault = DecodePiece<E>(bytes, count, static_cast<size_t>(from - begins),
                                       static_cast<size_t>(to - begins), context, target);
    if (fault != nullptr) faults[thread] = BadPiece(piece, fault);
  });
  for (const absl::Status& fault : faults) RETURN_IF_ERROR(fault);
  return absl::OkStatus();
}

absl::Status TooSmall(size_t capacity) {
  return absl::ResourceExhaustedError(
      base::Text("codec stream: does not fit the ", capacity,
                 " bytes given; MaxCompressedBytes says how many always suffice"));
}

// Bytes of all pieces, one after another at the front of `out`; 0 if they do not fit. Every thread
// but the first writes its run of pieces to memory of its own, which is then moved.
template <typename E>
size_t EncodePieces(Values values, const PieceContext& context, const CodecOptions& options,
                    std::span<std::byte> out, std::vector<PieceEntry>* entries) {
  const auto* data = static_cast<const typename E::Bits*>(values.data);
  const size_t pieces = entries->size();
  const size_t threads = std::min(pieces, static_cast<size_t>(std::max(options.threads, 1)));
  struct Run {
    std::unique_ptr<std::byte[]> own;
    std::span<std::byte> to;
    size_t bytes = 0;
    bool started = false;
    bool fits = true;
  };
  std::vector<Run> runs(threads);
  ForEachPiece(pieces, options.threads, [&](size_t piece, size_t thread) {
    Run& run = runs[thread];
    if (!run.started) {
      run.started = true;
      run.to = out;
      if (thread > 0) {
        const size_t most = (pieces / threads + 1) * MaxPieceBytes(kPieceValues, sizeof(*data));
        run.own.reset(new std::byte[most]);  // Not cleared: pages never written cost nothing.
        run.to = {run.own.get(), most};
      }
    }
    if (!run.fits) return;
    const size_t first = piece * kPieceValues;
    const size_t count = std::min(kPieceValues, values.count - first);
    const size_t bytes = EncodePiece<E>(data + first, count, context, run.to.subspan(run.bytes));
    const auto written = run.to.subspan(run.bytes, bytes);
    (*entries)[piece] = {static_cast<uint32_t>(bytes), checksum::Crc32c(written)};
    run.bytes += bytes;
    run.fits = bytes > 0;
  });
  size_t total = 0;
  for (const Run& run : runs) {
    if (!run.fits || run.bytes > out.size() - total) return 0;
    if (run.own != nullptr) std::memcpy(out.data() + total, run.own.get(), run.bytes);
    total += run.bytes;
  }
  return total;
}

}  // namespace

size_t SizeOf(ElementType type) {
  return WithElement(type, []<typename E>(E) { return sizeof(typename E::Bits); });
}

std::string_view NameOf(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      break;
    case ElementType::kBF16:
      return "bf16";
    case ElementType::kF16:
      return "f16";
    case ElementType::kF64:
      return "f64";
  }
  return "f32";
}

absl::StatusOr<ElementType> ParseElementType(std::string_view name) {
  for (const ElementType type :
       {ElementType::kF32, ElementType::kBF16, ElementType::kF16, ElementType::kF64}) {
    if (name == NameOf(type)) return type;
  }
  return absl::InvalidArgumentError(
      base::Text("element type '", name, "' is unknown; expected f32, bf16, f16 or f64"));
}

size_t MaxCompressedBytes(ElementType type, size_t count) {
  return kHeaderBytes + PiecesOf(count) * (kEntryBytes + kPieceHeaderBytes) + count * SizeOf(type);
}

absl::StatusOr<size_t> Compress(Values values, const Quantiser& quantiser, std::span<std::byte> out,
                                const CodecOptions& options) {
  const size_t pieces = PiecesOf(values.count);
  TRIREME_CHECK(pieces <= UINT32_MAX);
  const size_t front = kHeaderBytes + pieces * kEntryBytes;
  if (out.size() < front) return TooSmall(out.size());
  std::vector<PieceEntry> entries(pieces);
  const PieceContext context = ContextOf(values.type, quantiser, options);
  size_t bytes = 0;
  if (pieces > 0) {
    bytes = WithElement(values.type, [&]<typename E>(E) {
      return EncodePieces<E>(values, context, options, out.subspan(front), &entries);
    });
    if (bytes == 0) return TooSmall(out.size());
    std::memcpy(out.data() + kHeaderBytes, entries.data(), pieces * kEntryBytes);
  }
  RawHeader raw = {};
  std::memcpy(raw.magic, kMagic, sizeof(kMagic));
  raw.version = kVersion;
  raw.type = static_cast<uint8_t>(values.type);
  raw.mode = static_cast<uint8_t>(quantiser.requested.mode);
  raw.piece_log2 = kPieceLog2;
  raw.count = values.count;
  raw.requested = quantiser.requested.value;
  raw.absolute = quantiser.absolute;
  raw.step = quantiser.step;
  raw.bytes = front + bytes;
  raw.pieces = static_cast<uint32_t>(pieces);
  std::memcpy(out.data(), &raw, kHeaderBytes);
  raw.crc32c = HeaderCrc(out.first(front), pieces);
  std::memcpy(out.data() + kHeaderBytes - 4, &raw.crc32c, 4);
  return front + bytes;
}

absl::StatusOr<std::vector<std::byte>> Compress(Values values, Bound bound,
                                                const CodecOptions& options) {
  ASSIGN_OR_RETURN(const Quantiser quantiser, Resolve(values, bound, options));
  const size_t most = MaxCompressedBytes(values.type, values.count);
  const std::unique_ptr<std::byte[]> buffer(new std::byte[most]);
  ASSIGN_OR_RETURN(const size_t bytes, Compress(values, quantiser, {buffer.get(), most}, options));
  return std::vector<std::byte>(buffer.get(), buffer.get() + bytes);
}

absl::StatusOr<StreamInfo> ReadInfo(std::span<const std::byte> stream) {
  ASSIGN_OR_RETURN(const Opened opened, Open(stream));
  return opened.info;
}

absl::Status DecompressRange(std::span<const std::byte> stream, uint64_t first, MutableValues out,
                             const CodecOptions& options) {
  ASSIGN_OR_RETURN(const Opened opened, Open(stream));
  if (out.type != opened.info.type) {
    return absl::InvalidArgumentError(
        base::Text("codec stream: holds ", NameOf(opened.info.type), ", not ", NameOf(out.type)));
  }
  if (first > opened.info.count || out.count > opened.info.count - first) {
    return absl::OutOfRangeError(base::Text("codec stream: values ", first, " to ", first, " + ",
                                            out.count, " of ", opened.info.count));
  }
  if (out.count == 0) return absl::OkStatus();
  return WithElement(out.type, [&]<typename E>(E) {
    return DecodePieces<E>(stream, opened, first, out, options);
  });
}

absl::Status Decompress(std::span<const std::byte> stream, MutableValues out,
                        const CodecOptions& options) {
  ASSIGN_OR_RETURN(const StreamInfo info, ReadInfo(stream));
  if (out.count != info.count) {
    return absl::InvalidArgumentError(base::Text("codec stream: holds ", info.count,
                                                 " values, and there is room for ", out.count));
  }
  return DecompressRange(stream, 0, out, options);
}

absl::StatusOr<StreamStatistics> Inspect(std::span<const std::byte> stream) {
  ASSIGN_OR_RETURN(const Opened opened, Open(stream));
  StreamStatistics statistics;
  for (size_t piece = 0; piece < opened.entries.size(); ++piece) {
    const auto bytes = stream.subspan(opened.offsets[piece], opened.entries[piece].bytes);
    RETURN_IF_ERROR(CheckPieceCrc(bytes, opened, piece));
    const auto count = static_cast<size_t>(
        std::min<uint64_t>(kPieceValues, opened.info.count - piece * kPieceValues));
    if (const char* fault = InspectPiece(opened.info.type, bytes, count, &statistics)) {
      return BadPiece(piece, fault);
    }
  }
  return statistics;
}

}  // namespace trireme::compress
