// One piece of a stream: up to 65,536 values that are coded and decoded alone
// (docs/formats/codec_stream.md, Piece). `E` is an element type of compress/element.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.h"
#include "compress/kernels.h"

namespace trireme::compress {

inline constexpr size_t kPieceValues = 65536;
inline constexpr size_t kPieceHeaderBytes = 8;
inline constexpr size_t kMostPieceBlocks = kPieceValues / kBlockValues;

enum class PieceKind : uint8_t { kVerbatim = 0, kQuantised = 1, kOrdered = 2 };
inline constexpr uint8_t kWideFlag = 1;
inline constexpr uint8_t kFlatFlag = 2;
inline constexpr uint8_t kConstantBlock = 62;
inline constexpr uint8_t kVerbatimBlock = 63;
inline constexpr int32_t kLargestExactCode = 1 << 24;  // as f32
inline constexpr int32_t kStreamCodeLimit = 1 << 29;
inline constexpr size_t kBitmapMark = 32;  // in the place of a count of -0

inline size_t BlocksOf(size_t values) { return (values + kBlockValues - 1) / kBlockValues; }

struct PieceContext {
  const Kernels* kernels = nullptr;
  StepConstants constants;  // step 0: nothing is quantised
};

// StepConstants of a quantiser for codes below `limit`.
StepConstants ConstantsOf(ElementType type, const Quantiser& quantiser, int32_t limit);

// Most bytes of a piece.
inline size_t MaxPieceBytes(size_t values, size_t value_bytes) {
  return kPieceHeaderBytes + values * value_bytes;
}

// Codes `count` values (1 to kPieceValues) to the front of `out`; 0 if they do not fit.
template <typename E>
size_t EncodePiece(const typename E::Bits* values, size_t count, const PieceContext& context,
                   std::span<std::byte> out);

// Decodes values [begin, end) of a piece of `count` values. Null, or what is wrong.
template <typename E>
const char* DecodePiece(std::span<const std::byte> piece, size_t count, size_t begin, size_t end,
                        const PieceContext& context, typename E::Bits* out);

// Adds the piece to the statistics. Null, or what is wrong.
const char* InspectPiece(ElementType type, std::span<const std::byte> piece, size_t count,
                         StreamStatistics* statistics);

// What the piece begins with, checked.
struct PieceHead {
  PieceKind kind = PieceKind::kVerbatim;
  Predictor predictor = Predictor::kBase;
  bool wide = false;
  bool flat = false;
  int32_t base = 0;
  const std::byte* widths = nullptr;  // null where flat
  std::span<const std::byte> payload;
};
const char* ReadPieceHead(ElementType type, std::span<const std::byte> piece, size_t count,
                          bool quantised, PieceHead* head);

}  // namespace trireme::compress
