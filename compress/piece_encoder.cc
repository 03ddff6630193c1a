// EncodePiece: quantise, predict, choose a width, pack, block by block.
#include <algorithm>
#include <cstring>

#include "compress/block_numbers.h"
#include "compress/piece.h"
#include "compress/piece_plan.h"

namespace trireme::compress {
namespace {

// After a block that the fast loop could not do, this many are quantised lane by lane at once.
constexpr int kBlocksWithoutTrying = 7;

template <typename E>
class PieceEncoder {
 public:
  using Bits = typename E::Bits;

  PieceEncoder(const PieceContext& context, const PiecePlan& plan)
      : context_(context),
        plan_(plan),
        chain_{plan.base, plan.base},
        plain_(E::kType == ElementType::kF32 && plan.kind == PieceKind::kQuantised &&
               plan.predictor == Predictor::kBase && plan.base == 0) {}

  // Codes up to 256 values; returns their width byte. At most sizeof(Bits) * values bytes come to
  // the front of `out`, which has room for a whole block; others may then be changed too.
  uint8_t Encode(const Bits* values, size_t count, std::span<std::byte> room, size_t* bytes) {
    std::byte* const out = room.data();
    if (plain_ && count == kBlockValues) {
      if (const int width_byte = EncodeSmall(values, room, bytes); width_byte >= 0) {
        return static_cast<uint8_t>(width_byte);
      }
    }
    // Bits of f64 are no codes: its blocks that are not quantised are kept.
    if (E::kType == ElementType::kF64 && plan_.kind == PieceKind::kOrdered) {
      return Keep(values, count, IsConstant(values, count), out, bytes);
    }
    Bits filled[kBlockValues];
    const Bits* whole = values;
    if (count < kBlockValues) {
      std::copy_n(values, count, filled);
      std::fill(filled + count, filled + kBlockValues, values[count - 1]);
      whole = filled;
    }
    Exceptions exceptions;
    Chain chain = chain_;
    uint32_t largest = 0;
    if (!plain_ || !MakePlain(whole, &largest)) {
      MakeCodes(whole, &exceptions);
      largest = context_.kernels->residuals(plan_.predictor, codes_, plan_.base, &chain, u_);
    }
    if (count < kBlockValues) largest = DropFrom(count, &exceptions);
    const Shape shape = context_.kernels->choose_shape(u_, largest);
    const size_t exception_bytes = exceptions.any ? ExceptionBytes(exceptions) : 0;
    const size_t total = shape.bytes + exception_bytes;
    // Only a block that costs more than one value is searched for equal ones.
    const bool constant = total > sizeof(Bits) && IsConstant(values, count);
    small_blocks_.Saw(largest);
    if (constant || total >= count * sizeof(Bits)) {
      return Keep(values, count, constant, out, bytes);
    }
    chain_ = chain;
    *bytes = total;
    WriteNumbers(*context_.kernels, shape, u_, room);
    uint8_t width_byte = WidthByte(shape);
    if (exception_bytes > 0) {
      WriteExceptions(exceptions, values, out + shape.bytes);
      width_byte |= kExceptionFlag;
    }
    wide_ |= farthest_ > kLargestExactCode;
    return width_byte;
  }

  bool wide() const { return wide_; }

 private:
  // A block in one go, where the piece has base 0: its width byte, or less than 0.
  int EncodeSmall(const Bits* values, std::span<std::byte> room, size_t* bytes) {
    if constexpr (E::kType == ElementType::kF32) {
      const auto* x = reinterpret_cast<const float*>(values);
      Shape shape;
      if (blocks_without_trying_ > 0 ||
          !small_blocks_.Encode(*context_.kernels, x, context_.constants, room, &shape)) {
        return -1;
      }
      *bytes = shape.bytes;
      if (shape.bytes > sizeof(Bits) && IsConstant(values, kBlockValues)) {
        return Keep(values, kBlockValues, true, room.data(), bytes);
      }
      return WidthByte(shape);
    }
    return -1;
  }

  // Residuals in one go, where the piece has base 0 and the fast loop can do the block.
  bool MakePlain(const Bits* values, uint32_t* largest) {
    if constexpr (E::kType == ElementType::kF32) {
      if (blocks_without_trying_ > 0) return false;
      farthest_ = 0;
      const auto* x = reinterpret_cast<const float*>(values);
      if (context_.kernels->quantise_plain_f32(x, context_.constants, u_, largest)) return true;
      blocks_without_trying_ = kBlocksWithoutTrying + 1;
    }
    return false;
  }

  void MakeCodes(const Bits* values, Exceptions* exceptions) {
    farthest_ = 0;
    if (plan_.kind == PieceKind::kOrdered) {
      OrderedCodes<E>(values, codes_);
      return;
    }
    if (blocks_without_trying_ == 0) {
      if (QuantiseFast<E>(values, context_, codes_)) return;
      blocks_without_trying_ = kBlocksWithoutTrying;
    } else {
      --blocks_without_trying_;
    }
    farthest_ = QuantiseAny<E>(values, context_, codes_, exceptions);
  }

  // Forgets what fills up a short block; returns the largest residual left.
  uint32_t DropFrom(size_t count, Exceptions* exceptions) {
    std::fill(u_ + count, u_ + kBlockValues, 0);
    for (size_t i = count; i < kBlockValues; ++i) {
      const uint64_t others = ~(uint64_t{1} << (i % 64));
      exceptions->raw[i / 64] &= others;
      exceptions->negative_zero[i / 64] &= others;
    }
    exceptions->any = exceptions->raw != Bits256{} || exceptions->negative_zero != Bits256{};
    return *std::max_element(u_, u_ + count);
  }

  static uint8_t Keep(const Bits* values, size_t count, bool constant, std::byte* out,
                      size_t* bytes) {
    *bytes = (constant ? 1 : count) * sizeof(Bits);
    std::memcpy(out, values, *bytes);
    return constant ? kConstantBlock : kVerbatimBlock;
  }

  static bool IsConstant(const Bits* values, size_t count) {
    return values[0] == values[count - 1] &&
           std::memcmp(values, values + 1, (count - 1) * sizeof(Bits)) == 0;
  }

  static size_t CountOf(const Bits256& lanes) {
    size_t count = 0;
    for (const uint64_t word : lanes) count += static_cast<size_t>(std::popcount(word));
    return count;
  }

  static size_t ExceptionBytes(const Exceptions& exceptions) {
    const size_t raw = CountOf(exceptions.raw);
    if (raw > 255) return kBlockValues * sizeof(Bits);  // Verbatim costs no more.
    return 2 + raw * (1 + sizeof(Bits)) + std::min(CountOf(exceptions.negative_zero), kBitmapMark);
  }

  static void WriteExceptions(const Exceptions& exceptions, const Bits* values, std::byte* out) {
    const size_t zeros = CountOf(exceptions.negative_zero);
    std::byte* const counts = out;
    out += 2;
    const size_t raw = WritePositions(exceptions.raw, out);
    const std::byte* positions = out;
    out += raw;
    for (size_t k = 0; k < raw; ++k, out += sizeof(Bits)) {
      std::memcpy(out, values + std::to_integer<size_t>(positions[k]), sizeof(Bits));
    }
    counts[0] = static_cast<std::byte>(raw);
    counts[1] = static_cast<std::byte>(std::min(zeros, kBitmapMark));
    if (zeros < kBitmapMark) {
      WritePositions(exceptions.negative_zero, out);
    } else {
      std::memcpy(out, exceptions.negative_zero.data(), kBitmapMark);
    }
  }

  const PieceContext& context_;
  const PiecePlan& plan_;
  Chain chain_;
  const bool plain_;
  bool wide_ = false;
  int32_t farthest_ = 0;  // no |code| of the block is above, if it may be wide
  SmallBlocks small_blocks_;
  int blocks_without_trying_ = 0;
  alignas(64) int32_t codes_[kBlockValues];
  alignas(64) uint32_t u_[kBlockValues];
};

template <typename E>
size_t EncodeVerbatim(const typename E::Bits* values, size_t count, std::span<std::byte> out) {
  const size_t bytes = count * sizeof(typename E::Bits);
  if (out.size() < kPieceHeaderBytes + bytes) return 0;
  std::memset(out.data(), 0, kPieceHeaderBytes);
  std::memcpy(out.data() + kPieceHeaderBytes, values, bytes);
  return kPieceHeaderBytes + bytes;
}

void WritePieceHead(const PiecePlan& plan, uint8_t flags, std::byte* out) {
  out[0] = static_cast<std::byte>(plan.kind);
  out[1] = static_cast<std::byte>(plan.predictor);
  out[2] = static_cast<std::byte>(flags);
  out[3] = std::byte{0};
  std::memcpy(out + 4, &plan.base, 4);
}

}  // namespace

template <typename E>
size_t EncodePiece(const typename E::Bits* values, size_t count, const PieceContext& context,
                   std::span<std::byte> out) {
  constexpr size_t kBlockBytes = kBlockValues * sizeof(typename E::Bits);
  const PiecePlan plan = PlanPiece<E>(values, count, context);
  const size_t blocks = BlocksOf(count);
  const size_t most = std::min(out.size(), MaxPieceBytes(count, sizeof(typename E::Bits)));
  // Width bytes wait here until it is known whether any is not 0; the blocks are written as if
  // none were needed, and move only then.
  uint8_t widths[kMostPieceBlocks];
  uint8_t any_width = 0;
  size_t at = kPieceHeaderBytes + blocks;
  PieceEncoder<E> encoder(context, plan);
  std::byte last[kBlockBytes];
  for (size_t block = 0; block < blocks; ++block) {
    const size_t first = block * kBlockValues;
    const size_t here = std::min(kBlockValues, count - first);
    const bool direct = at + kBlockBytes <= most;
    size_t bytes = 0;
    widths[block] = encoder.Encode(values + first, here,
                                   direct ? out.subspan(at, most - at) : std::span(last), &bytes);
    any_width |= widths[block];
    if (at + bytes > most && any_width != 0) return EncodeVerbatim<E>(values, count, out);
    if (!direct && bytes > 0) std::memcpy(out.data() + at, last, bytes);
    at += bytes;
  }
  const bool flat = any_width == 0;
  if (flat) at = kPieceHeaderBytes;
  if (at > most) return EncodeVerbatim<E>(values, count, out);
  WritePieceHead(plan,
                 static_cast<uint8_t>((encoder.wide() ? kWideFlag : 0) | (flat ? kFlatFlag : 0)),
                 out.data());
  if (!flat) std::memcpy(out.data() + kPieceHeaderBytes, widths, blocks);
  return at;
}

template size_t EncodePiece<F32>(const F32::Bits*, size_t, const PieceContext&,
                                 std::span<std::byte>);
template size_t EncodePiece<BF16>(const BF16::Bits*, size_t, const PieceContext&,
                                  std::span<std::byte>);
template size_t EncodePiece<F16>(const F16::Bits*, size_t, const PieceContext&,
                                 std::span<std::byte>);
template size_t EncodePiece<F64>(const F64::Bits*, size_t, const PieceContext&,
                                 std::span<std::byte>);

}  // namespace trireme::compress
