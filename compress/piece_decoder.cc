// DecodePiece and InspectPiece. Every byte may be hostile: lengths are compared before they are
// used.
#include <algorithm>
#include <cstring>

#include "compress/block_numbers.h"
#include "compress/element.h"
#include "compress/lane_quantiser.h"
#include "compress/piece.h"

namespace trireme::compress {
namespace {

bool WidthByteAllowed(ElementType type, PieceKind kind, uint8_t width_byte) {
  if (width_byte == kConstantBlock || width_byte == kVerbatimBlock) return true;
  if (type == ElementType::kF64 && kind == PieceKind::kOrdered) return false;
  if ((width_byte & kWidthMask) > kLargestWidth) return false;
  return (width_byte & kExceptionFlag) == 0 || kind == PieceKind::kQuantised;
}

struct ExceptionSections {
  const std::byte* positions = nullptr;
  const std::byte* values = nullptr;
  const std::byte* zeros = nullptr;
  size_t count = 0;
  size_t zero_count = 0;  // kBitmapMark: a bitmap
};

const char* ReadExceptionSections(size_t value_bytes, size_t values, ByteSource* source,
                                  ExceptionSections* sections) {
  constexpr const char* kCut = "ends inside the exceptions of a block";
  if (source->left() < 2) return kCut;
  sections->count = std::to_integer<size_t>(source->at[0]);
  sections->zero_count = std::to_integer<size_t>(source->at[1]);
  if (sections->count + sections->zero_count == 0) {
    return "a block announces exceptions and has none";
  }
  if (sections->zero_count > kBitmapMark) return "a block has an impossible count of -0";
  const size_t bytes = 2 + sections->count * (1 + value_bytes) + sections->zero_count;
  if (source->left() < bytes) return kCut;
  sections->positions = source->at + 2;
  sections->values = sections->positions + sections->count;
  sections->zeros = sections->values + sections->count * value_bytes;
  source->at += bytes;
  if (!PositionsAscend(sections->positions, sections->count, values)) {
    return "positions of exceptions do not ascend inside the block";
  }
  if (sections->zero_count < kBitmapMark) {
    if (!PositionsAscend(sections->zeros, sections->zero_count, values)) {
      return "positions of -0 do not ascend inside the block";
    }
    return nullptr;
  }
  for (size_t i = values; i < kBlockValues; ++i) {
    if ((std::to_integer<uint32_t>(sections->zeros[i / 8]) >> (i % 8) & 1) != 0) {
      return "the bitmap of -0 goes beyond the block";
    }
  }
  return nullptr;
}

template <typename E>
void ApplyExceptions(const ExceptionSections& sections, typename E::Bits* out) {
  for (size_t k = 0; k < sections.count; ++k) {
    std::memcpy(out + std::to_integer<size_t>(sections.positions[k]),
                sections.values + k * sizeof(*out), sizeof(*out));
  }
  if (sections.zero_count < kBitmapMark) {
    for (size_t k = 0; k < sections.zero_count; ++k) {
      out[std::to_integer<size_t>(sections.zeros[k])] = E::kSign;
    }
    return;
  }
  for (size_t i = 0; i < kBlockValues; ++i) {
    if ((std::to_integer<uint32_t>(sections.zeros[i / 8]) >> (i % 8) & 1) != 0) out[i] = E::kSign;
  }
}

template <typename E>
class PieceDecoder {
 public:
  using Bits = typename E::Bits;

  PieceDecoder(const PieceContext& context, const PieceHead& head)
      : context_(context),
        head_(head),
        source_{head.payload.data(), head.payload.data() + head.payload.size()},
        chain_{head.base, head.base} {
    const auto base = static_cast<typename E::Ordered>(head.base);
    base_value_ = head.kind == PieceKind::kOrdered
                      ? static_cast<Bits>(ToOrdered<E>(static_cast<Bits>(base)))
                      : Reconstruct<E>(head.base, context.constants.step);
  }

  // Decodes the next block of `count` values to `out`, which has room for 256.
  const char* Decode(uint8_t width_byte, size_t count, Bits* out) {
    if (width_byte == kConstantBlock || width_byte == kVerbatimBlock) {
      return DecodeKept(width_byte == kConstantBlock, count, out);
    }
    if (width_byte == 0 && head_.predictor == Predictor::kBase) {
      if constexpr (E::kType == ElementType::kF32) {
        context_.kernels->fill_f32(std::bit_cast<float>(base_value_),
                                   reinterpret_cast<float*>(out));
      } else {
        std::fill_n(out, kBlockValues, base_value_);
      }
      return nullptr;
    }
    const char* fault = DecodeCoded(width_byte, count, out);
    if (fault != nullptr) return fault;
    if ((width_byte & kExceptionFlag) == 0) return nullptr;
    ExceptionSections sections;
    fault = ReadExceptionSections(sizeof(Bits), count, &source_, &sections);
    if (fault == nullptr) ApplyExceptions<E>(sections, out);
    return fault;
  }

  bool AtEnd() const { return source_.left() == 0; }

 private:
  const char* DecodeKept(bool constant, size_t count, Bits* out) {
    const size_t bytes = constant ? sizeof(Bits) : count * sizeof(Bits);
    if (source_.left() < bytes) return "ends inside the values of a block";
    std::memcpy(out, source_.at, bytes);
    if (constant) std::fill_n(out + 1, kBlockValues - 1, out[0]);
    source_.at += bytes;
    return nullptr;
  }

  const char* DecodeCoded(uint8_t width_byte, size_t count, Bits* out) {
    const Kernels& kernels = *context_.kernels;
    const double step = context_.constants.step;
    const bool quantised = head_.kind == PieceKind::kQuantised;
    if constexpr (E::kType == ElementType::kF32) {
      if (quantised && head_.predictor == Predictor::kBase && !head_.wide) {
        return DecodeNumbers(kernels, width_byte, count, head_.base, static_cast<float>(step),
                             &source_, reinterpret_cast<float*>(out));
      }
    }
    const char* fault = ReadNumbers(kernels, width_byte, count, &source_, u_);
    if (fault != nullptr) return fault;
    kernels.codes(head_.predictor, u_, head_.base, &chain_, codes_);
    if (!quantised) {
      for (size_t i = 0; i < kBlockValues; ++i) {
        const auto ordered = static_cast<typename E::Ordered>(codes_[i]);
        out[i] = static_cast<Bits>(ToOrdered<E>(static_cast<Bits>(ordered)));
      }
    } else if constexpr (E::kType == ElementType::kF32) {
      kernels.dequantise_f32(codes_, step, head_.wide, reinterpret_cast<float*>(out));
    } else {
      for (size_t i = 0; i < kBlockValues; ++i) out[i] = Reconstruct<E>(codes_[i], step);
    }
    return nullptr;
  }

  const PieceContext& context_;
  const PieceHead& head_;
  ByteSource source_;
  Chain chain_;
  Bits base_value_ = 0;
  alignas(64) uint32_t u_[kBlockValues];
  alignas(64) int32_t codes_[kBlockValues];
};

template <typename E>
const char* DecodeVerbatim(const PieceHead& head, size_t begin, size_t end, typename E::Bits* out) {
  constexpr size_t kBytes = sizeof(typename E::Bits);
  std::memcpy(out, head.payload.data() + begin * kBytes, (end - begin) * kBytes);
  return nullptr;
}

}  // namespace

const char* ReadPieceHead(ElementType type, std::span<const std::byte> piece, size_t count,
                          bool quantised, PieceHead* head) {
  if (piece.size() < kPieceHeaderBytes) return "is shorter than its 8-byte header";
  const auto kind = std::to_integer<uint8_t>(piece[0]);
  const auto predictor = std::to_integer<uint8_t>(piece[1]);
  const auto flags = std::to_integer<uint8_t>(piece[2]);
  if (kind > static_cast<uint8_t>(PieceKind::kOrdered)) return "has an unknown kind";
  if (predictor > static_cast<uint8_t>(Predictor::kSecond)) return "has an unknown predictor";
  if (flags > (kWideFlag | kFlatFlag)) return "has unknown flags";
  if (piece[3] != std::byte{0}) return "has a byte that must be zero and is not";
  head->kind = static_cast<PieceKind>(kind);
  head->predictor = static_cast<Predictor>(predictor);
  head->wide = (flags & kWideFlag) != 0;
  head->flat = (flags & kFlatFlag) != 0;
  std::memcpy(&head->base, piece.data() + 4, 4);
  head->payload = piece.subspan(kPieceHeaderBytes);
  if (head->kind == PieceKind::kVerbatim) {
    if (predictor != 0 || flags != 0 || head->base != 0) {
      return "is verbatim and has a predictor, flags or a base";
    }
    return head->payload.size() == count * SizeOf(type) ? nullptr
                                                        : "is verbatim and of another length";
  }
  if (head->kind == PieceKind::kOrdered &&
      (head->wide || (head->flat && type == ElementType::kF64))) {
    return "of kind ordered cannot be wide, nor flat for f64";
  }
  if (head->kind == PieceKind::kQuantised && !quantised) {
    return "is quantised in a stream without a step";
  }
  if (head->flat) return nullptr;
  const size_t blocks = BlocksOf(count);
  if (head->payload.size() < blocks) return "ends inside its width bytes";
  head->widths = head->payload.data();
  head->payload = head->payload.subspan(blocks);
  for (size_t block = 0; block < blocks; ++block) {
    if (!WidthByteAllowed(type, head->kind, std::to_integer<uint8_t>(head->widths[block]))) {
      return "has an impossible width byte";
    }
  }
  return nullptr;
}

template <typename E>
const char* DecodePiece(std::span<const std::byte> piece, size_t count, size_t begin, size_t end,
                        const PieceContext& context, typename E::Bits* out) {
  PieceHead head;
  const char* fault = ReadPieceHead(E::kType, piece, count, context.constants.step > 0, &head);
  if (fault != nullptr) return fault;
  if (head.kind == PieceKind::kVerbatim) return DecodeVerbatim<E>(head, begin, end, out);
  PieceDecoder<E> decoder(context, head);
  typename E::Bits partial[kBlockValues];
  for (size_t first = 0; first < end; first += kBlockValues) {
    const size_t here = std::min(kBlockValues, count - first);
    const uint8_t width_byte =
        head.flat ? 0 : std::to_integer<uint8_t>(head.widths[first / kBlockValues]);
    if (first >= begin && first + kBlockValues <= end) {
      fault = decoder.Decode(width_byte, here, out + (first - begin));
    } else {
      fault = decoder.Decode(width_byte, here, partial);
      const size_t from = std::max(first, begin);
      const size_t to = std::min(first + here, end);
      if (fault == nullptr && from < to) {
        std::copy(partial + (from - first), partial + (to - first), out + (from - begin));
      }
    }
    if (fault != nullptr) return fault;
  }
  if (end == count && !decoder.AtEnd()) return "has bytes after its last block";
  return nullptr;
}

const char* InspectPiece(ElementType type, std::span<const std::byte> piece, size_t count,
                         StreamStatistics* statistics) {
  PieceHead head;
  if (const char* fault = ReadPieceHead(type, piece, count, true, &head)) return fault;
  if (head.kind == PieceKind::kVerbatim) {
    ++statistics->verbatim_pieces;
    return nullptr;
  }
  ++(head.kind == PieceKind::kOrdered ? statistics->ordered_pieces : statistics->quantised_pieces);
  if (head.predictor != Predictor::kBase) ++statistics->predicted_pieces;
  ByteSource source{head.payload.data(), head.payload.data() + head.payload.size()};
  for (size_t first = 0; first < count; first += kBlockValues) {
    const size_t here = std::min(kBlockValues, count - first);
    const uint8_t width_byte =
        head.flat ? 0 : std::to_integer<uint8_t>(head.widths[first / kBlockValues]);
    ++statistics->blocks;
    if (width_byte == 0) ++statistics->empty_blocks;
    if (width_byte == kConstantBlock || width_byte == kVerbatimBlock) {
      const bool constant = width_byte == kConstantBlock;
      ++(constant ? statistics->constant_blocks : statistics->verbatim_blocks);
      const size_t bytes = (constant ? 1 : here) * SizeOf(type);
      if (source.left() < bytes) return "ends inside the values of a block";
      source.at += bytes;
      continue;
    }
    NumberSizes sizes;
    if (const char* fault = SkipNumbers(width_byte, &source, &sizes)) return fault;
    statistics->packed_bytes += sizes.packed_bytes;
    statistics->patches += sizes.patches;
    statistics->patch_bytes += sizes.patch_bytes;
    if ((width_byte & kExceptionFlag) == 0) continue;
    ExceptionSections sections;
    const std::byte* const before = source.at;
    if (const char* fault = ReadExceptionSections(SizeOf(type), here, &source, &sections)) {
      return fault;
    }
    statistics->exceptions += sections.count;
    statistics->exception_bytes += static_cast<uint64_t>(source.at - before);
  }
  return source.left() == 0 ? nullptr : "has bytes after its last block";
}

template const char* DecodePiece<F32>(std::span<const std::byte>, size_t, size_t, size_t,
                                      const PieceContext&, F32::Bits*);
template const char* DecodePiece<BF16>(std::span<const std::byte>, size_t, size_t, size_t,
                                       const PieceContext&, BF16::Bits*);
template const char* DecodePiece<F16>(std::span<const std::byte>, size_t, size_t, size_t,
                                      const PieceContext&, F16::Bits*);
template const char* DecodePiece<F64>(std::span<const std::byte>, size_t, size_t, size_t,
                                      const PieceContext&, F64::Bits*);

}  // namespace trireme::compress
