#include "compress/piece_plan.h"

#include <algorithm>
#include <cstring>

#include "hwy/cache_control.h"

namespace trireme::compress {
namespace {

constexpr size_t kSamples = 4;

// Codes of the sampled blocks, one after another.
struct Sample {
  int32_t codes[kSamples * kBlockValues];
  size_t blocks = 0;
  size_t exceptions = 0;
};

struct Choice {
  Predictor predictor = Predictor::kBase;
  int32_t base = 0;
  uint64_t bits = 0;
};

// Bits of the residuals of the sampled block k.
uint64_t BitsOfBlock(const Kernels& kernels, const Sample& sample, size_t k, Predictor predictor,
                     int32_t base) {
  uint32_t u[kBlockValues];
  const int32_t* codes = sample.codes + k * kBlockValues;
  Chain chain{codes[0], codes[0]};
  kernels.residuals(predictor, codes, base, &chain, u);
  return kernels.bit_lengths(u);
}

// Bits of all sampled residuals.
uint64_t BitsOf(const Kernels& kernels, const Sample& sample, Predictor predictor, int32_t base) {
  uint64_t bits = 0;
  for (size_t k = 0; k < sample.blocks; ++k) {
    bits += BitsOfBlock(kernels, sample, k, predictor, base);
  }
  return bits;
}

// Anything but base 0 must save a sixteenth, since it costs time.
void Consider(Choice candidate, Choice* best) {
  if (candidate.bits * 16 < best->bits * 15) *best = candidate;
}

// Codes nobody is far from; exceptions, of code 0, do not pull it to them.
int32_t MiddleCode(const Sample& sample) {
  constexpr size_t kEvery = 16;
  int32_t some[kSamples * kBlockValues / kEvery];
  const size_t count = sample.blocks * kBlockValues / kEvery;
  for (size_t k = 0; k < count; ++k) some[k] = sample.codes[k * kEvery + k % kEvery];
  std::nth_element(some, some + count / 2, some + count);
  return some[count / 2];
}

Choice BestPredictor(const Kernels& kernels, const Sample& sample) {
  Choice best{Predictor::kBase, 0, 0};
  size_t fullest = 0;
  uint64_t most = 0;
  for (size_t k = 0; k < sample.blocks; ++k) {
    const uint64_t bits = BitsOfBlock(kernels, sample, k, Predictor::kBase, 0);
    best.bits += bits;
    if (bits > most) fullest = k;
    most = std::max(most, bits);
  }
  // Up to a bit a value there is nothing to win but the time of looking.
  if (best.bits <= sample.blocks * kBlockValues) return best;
  const int32_t middle = MiddleCode(sample);
  if (middle != 0) {
    Consider({Predictor::kBase, middle, BitsOf(kernels, sample, Predictor::kBase, middle)}, &best);
  }
  const int32_t first = sample.codes[0];
  for (const Predictor predictor : {Predictor::kFirst, Predictor::kSecond}) {
    // What does not help the block with most bits is not asked about the others.
    if (BitsOfBlock(kernels, sample, fullest, predictor, first) >= most) continue;
    Consider({predictor, first, BitsOf(kernels, sample, predictor, first)}, &best);
  }
  return best;
}

// The sampled block k, filled up with its last value if it is short.
template <typename E>
const typename E::Bits* SampledBlock(const typename E::Bits* values, size_t count, size_t k,
                                     size_t samples, typename E::Bits* filled) {
  const size_t whole = count / kBlockValues;
  if (whole > 0) return values + k * whole / samples * kBlockValues;
  std::copy_n(values, count, filled);
  std::fill(filled + count, filled + kBlockValues, values[count - 1]);
  return filled;
}

// The sampled blocks lie far apart: asks for all of them before the first is waited for.
template <typename E>
void FetchSamples(const typename E::Bits* values, size_t count, size_t samples) {
  constexpr size_t kLineValues = 64 / sizeof(typename E::Bits);
  const size_t whole = count / kBlockValues;
  for (size_t k = 0; k < samples && whole > 0; ++k) {
    const auto* block = values + k * whole / samples * kBlockValues;
    for (size_t i = 0; i < kBlockValues; i += kLineValues) hwy::Prefetch(block + i);
  }
}

template <typename E>
size_t CodesOfBlock(const typename E::Bits* values, const PieceContext& context, int32_t* codes) {
  if (QuantiseFast<E>(values, context, codes)) return 0;
  Exceptions exceptions;
  QuantiseAny<E>(values, context, codes, &exceptions);
  size_t count = 0;
  for (const uint64_t word : exceptions.raw) count += static_cast<size_t>(std::popcount(word));
  return count;
}

}  // namespace

template <typename E>
PiecePlan PlanPiece(const typename E::Bits* values, size_t count, const PieceContext& context) {
  constexpr bool kCanOrder = E::kType != ElementType::kF64;
  constexpr uint64_t kBitsOfValue = sizeof(typename E::Bits) * 8;
  const bool quantise = context.constants.step > 0;
  if (!quantise && !kCanOrder) return {PieceKind::kOrdered, Predictor::kBase, 0};
  Sample sample;
  sample.blocks = std::clamp<size_t>(count / kBlockValues, 1, kSamples);
  FetchSamples<E>(values, count, sample.blocks);
  typename E::Bits filled[kBlockValues];
  Choice best{Predictor::kBase, 0, UINT64_MAX / 32};
  if (quantise) {
    for (size_t k = 0; k < sample.blocks; ++k) {
      sample.exceptions += CodesOfBlock<E>(SampledBlock<E>(values, count, k, sample.blocks, filled),
                                           context, sample.codes + k * kBlockValues);
    }
    best = BestPredictor(*context.kernels, sample);
    best.bits += sample.exceptions * (8 + kBitsOfValue);
    // Loose enough that keeping all bits cannot be better.
    const uint64_t all = sample.blocks * kBlockValues * kBitsOfValue;
    if (!kCanOrder || best.bits * 4 < all) {
      return {PieceKind::kQuantised, best.predictor, best.base};
    }
  }
  for (size_t k = 0; k < sample.blocks; ++k) {
    OrderedCodes<E>(SampledBlock<E>(values, count, k, sample.blocks, filled),
                    sample.codes + k * kBlockValues);
  }
  const Choice ordered = BestPredictor(*context.kernels, sample);
  if (ordered.bits < best.bits) return {PieceKind::kOrdered, ordered.predictor, ordered.base};
  return {PieceKind::kQuantised, best.predictor, best.base};
}

template PiecePlan PlanPiece<F32>(const F32::Bits*, size_t, const PieceContext&);
template PiecePlan PlanPiece<BF16>(const BF16::Bits*, size_t, const PieceContext&);
template PiecePlan PlanPiece<F16>(const F16::Bits*, size_t, const PieceContext&);
template PiecePlan PlanPiece<F64>(const F64::Bits*, size_t, const PieceContext&);

}  // namespace trireme::compress
