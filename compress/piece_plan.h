// How a piece is best coded, judged by four of its blocks.
#pragma once

#include <cstdint>

#include "compress/lane_quantiser.h"
#include "compress/piece.h"

namespace trireme::compress {

struct PiecePlan {
  PieceKind kind = PieceKind::kQuantised;
  Predictor predictor = Predictor::kBase;
  int32_t base = 0;
};

// The same for every table of kernels.
template <typename E>
PiecePlan PlanPiece(const typename E::Bits* values, size_t count, const PieceContext& context);

// Codes of 256 values by the fast loop where there is one and it can; false: by lane.
template <typename E>
bool QuantiseFast(const typename E::Bits* values, const PieceContext& context, int32_t* codes) {
  if constexpr (E::kType == ElementType::kF32) {
    return context.kernels->quantise_f32(reinterpret_cast<const float*>(values), context.constants,
                                         codes);
  }
  return false;
}

// Codes of 256 values, whatever they are; returns their largest reach.
template <typename E>
int32_t QuantiseAny(const typename E::Bits* values, const PieceContext& context, int32_t* codes,
                    Exceptions* exceptions) {
  if constexpr (E::kType == ElementType::kF32) {
    return context.kernels->quantise_lanes_f32(reinterpret_cast<const float*>(values),
                                               context.constants, codes, exceptions);
  }
  return QuantiseLanes<E>(values, context.constants, codes, exceptions);
}

// Codes of a piece of kind kOrdered: the values' bits in the order of the numbers.
template <typename E>
void OrderedCodes(const typename E::Bits* values, int32_t* codes) {
  for (size_t i = 0; i < kBlockValues; ++i) {
    codes[i] = static_cast<int32_t>(ToOrdered<E>(values[i]));
  }
}

}  // namespace trireme::compress
