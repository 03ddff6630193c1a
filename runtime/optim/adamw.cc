// AdamW and SumOfSquares: cuts a span into contiguous pieces, one for each thread, and runs the
// vector loops of adamw_loops.inc (the best instruction set is chosen at run time). Where the cuts
// fall never changes a bit.
#include "runtime/optim/adamw.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/base/check.h"
#include "runtime/optim/adamw_spans.h"

namespace trireme::optim {

// Equally long; without a bf16 copy of the parameters, `weight` is empty.
template <typename T>
struct StepSpans {
  std::span<T> p;
  std::span<const T> g;
  std::span<T> m;
  std::span<T> v;
  std::span<tensor::BFloat16> weight;

  StepSpans Part(size_t begin, size_t count) const {
    return {p.subspan(begin, count), g.subspan(begin, count), m.subspan(begin, count),
            v.subspan(begin, count), weight.empty() ? weight : weight.subspan(begin, count)};
  }
};

inline constexpr size_t kSumLanes = 16;

}  // namespace trireme::optim

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/optim/adamw_loops.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the loops for every other instruction set; this is the baseline.
#include "runtime/optim/adamw_loops.inc"

namespace trireme::optim {
namespace {

HWY_EXPORT(StepSpanF32);
HWY_EXPORT(StepSpanF64);
HWY_EXPORT(StepSpanBf16);
HWY_EXPORT(StepRunF32);
HWY_EXPORT(StepRunF64);
HWY_EXPORT(StepRunBf16);
HWY_EXPORT(SumOfSquaresF32);
HWY_EXPORT(SumOfSquaresF64);
HWY_EXPORT(AddRowF32);

// A sum is always the sum of this many parts in order, whoever computes them.
constexpr size_t kSumParts = 64;

void StepPiece(const StepSpans<float>& spans, const AdamWConstants<float>& c) {
  if (spans.weight.empty()) {
    HWY_DYNAMIC_DISPATCH(StepSpanF32)(spans, c);
  } else {
    HWY_DYNAMIC_DISPATCH(StepSpanBf16)(spans, c);
  }
}
void StepPiece(const StepSpans<double>& spans, const AdamWConstants<double>& c) {
  HWY_DYNAMIC_DISPATCH(StepSpanF64)(spans, c);
}

double SumPiece(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquaresF32)(values, count);
}
double SumPiece(const double* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquaresF64)(values, count);
}

template <typename T>
void StepAll(const StepSpans<T>& spans, const AdamWOptions& options) {
  const size_t count = spans.p.size();
  TRIREME_CHECK(spans.g.size() == count && spans.m.size() == count && spans.v.size() == count);
  TRIREME_CHECK(options.step >= 1);
  const AdamWConstants<T> constants(options);
  const size_t units = (count + kPieceElements - 1) / kPieceElements;
  const int threads =
      static_cast<int>(std::min<size_t>(static_cast<size_t>(std::max(options.threads, 1)), units));
  if (threads <= 1) {
    StepPiece(spans, constants);
    return;
  }
  const size_t piece =
      (units + static_cast<size_t>(threads) - 1) / static_cast<size_t>(threads) * kPieceElements;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int t = 0; t < threads; ++t) {
    const size_t begin = std::min(count, static_cast<size_t>(t) * piece);
    StepPiece(spans.Part(begin, std::min(count - begin, piece)), constants);
  }
}

}  // namespace

void StepRun(const RunSpans<float, float>& run, const AdamWConstants<float>& constants,
             RunSums& sums) {
  HWY_DYNAMIC_DISPATCH(StepRunF32)(run, constants, sums);
}
void StepRun(const RunSpans<float, tensor::BFloat16>& run, const AdamWConstants<float>& constants,
             RunSums& sums) {
  HWY_DYNAMIC_DISPATCH(StepRunBf16)(run, constants, sums);
}
void StepRun(const RunSpans<double, double>& run, const AdamWConstants<double>& constants,
             RunSums& sums) {
  HWY_DYNAMIC_DISPATCH(StepRunF64)(run, constants, sums);
}

template <typename T>
void AdamW(std::span<T> parameter, std::span<const T> gradient, std::span<T> moment1,
           std::span<T> moment2, const AdamWOptions& options) {
  StepAll<T>({parameter, gradient, moment1, moment2, {}}, options);
}

void AdamW(std::span<float> parameter, std::span<const float> gradient, std::span<float> moment1,
           std::span<float> moment2, std::span<tensor::BFloat16> weight,
           const AdamWOptions& options) {
  TRIREME_CHECK(weight.size() == parameter.size());
  StepAll<float>({parameter, gradient, moment1, moment2, weight}, options);
}

template <typename T>
double SumOfSquares(std::span<const T> values, int threads) {
  const size_t count = values.size();
  const size_t lanes = (count + kSumLanes - 1) / kSumLanes;
  const size_t part = (lanes + kSumParts - 1) / kSumParts * kSumLanes;
  double sums[kSumParts];
  const auto sum_part = [&](size_t k) {
    const size_t begin = std::min(count, k * part);
    sums[k] = SumPiece(values.data() + begin, std::min(count - begin, part));
  };
  if (threads <= 1 || count < kSumParts * kSumLanes) {
    for (size_t k = 0; k < kSumParts; ++k) sum_part(k);
  } else {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t k = 0; k < kSumParts; ++k) sum_part(k);
  }
  double total = 0;
  for (double sum : sums) total += sum;
  return total;
}

double AddRow(std::span<const float> row, std::span<double> columns) {
  TRIREME_CHECK(columns.size() == row.size());
  return HWY_DYNAMIC_DISPATCH(AddRowF32)(row.data(), row.size(), columns.data());
}

template void AdamW<float>(std::span<float>, std::span<const float>, std::span<float>,
                           std::span<float>, const AdamWOptions&);
template void AdamW<double>(std::span<double>, std::span<const double>, std::span<double>,
                            std::span<double>, const AdamWOptions&);
template double SumOfSquares<float>(std::span<const float>, int);
template double SumOfSquares<double>(std::span<const double>, int);

}  // namespace trireme::optim
