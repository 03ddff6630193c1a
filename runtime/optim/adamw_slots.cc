// Cuts a step from slot to slot into runs: at the shares of threads, at the pieces that sums are
// made of, and at the first cache line. Where the cuts fall never changes a bit.
#include "runtime/optim/adamw_slots.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "runtime/base/check.h"
#include "runtime/checksum/lane_sums.h"
#include "runtime/optim/adamw_spans.h"

namespace trireme::optim {
namespace {

using checksum::LaneSums;

template <typename T>
constexpr size_t kSummedElements = checksum::kSummedBytes / sizeof(T);

template <typename T>
StateSpans<T> PartOf(const StateSpans<T>& spans, size_t begin, size_t count) {
  return {spans.parameter.subspan(begin, count), spans.moment1.subspan(begin, count),
          spans.moment2.subspan(begin, count)};
}

// Elements [begin, end) of the arrays, all of one piece.
template <typename T, typename Weight>
void StepAndSum(const SlotStep<T, Weight>& step, const AdamWConstants<T>& constants, size_t begin,
                size_t end) {
  const size_t offset = begin - step.first, count = end - begin;
  RunSums sums;
  StepRun({PartOf(step.from, offset, count), step.gradient.subspan(offset, count),
           PartOf(step.to, offset, count), step.weight.subspan(offset, count)},
          constants, sums);
  const size_t piece = begin / kSummedElements<T>;
  constexpr size_t kRow = kRowElements<T>;
  const checksum::RunPlace place{
      .first_word = begin % kSummedElements<T> * (sizeof(T) / sizeof(uint32_t)),
      .rows = (count + kRow - 1) / kRow,
      .piece_rows = checksum::kSummedBytes / LaneSums::kRowBytes};
  // Of a part of a piece, another thread may have the next one.
  const auto add = count == kSummedElements<T> ? checksum::AddRun : checksum::AddRunBesideOthers;
  add(sums[0], place, step.sums.parameter[piece]);
  add(sums[1], place, step.sums.moment1[piece]);
  add(sums[2], place, step.sums.moment2[piece]);
}

template <typename T, typename Weight>
void StepShare(const SlotStep<T, Weight>& step, const AdamWConstants<T>& constants, size_t begin,
               size_t end) {
  constexpr size_t kRow = kRowElements<T>;
  while (begin < end) {
    const size_t stop = std::min(end, (begin / kSummedElements<T> + 1) * kSummedElements<T>);
    const size_t line = std::min(stop, (begin + kRow - 1) / kRow * kRow);
    if (line > begin) StepAndSum(step, constants, begin, line);
    if (stop > line) StepAndSum(step, constants, line, stop);
    begin = stop;
  }
  hwy::FlushStream();
}

template <typename T, typename Weight>
void CheckSpans(const SlotStep<T, Weight>& step) {
  const size_t count = step.gradient.size();
  const size_t pieces = (step.first + count + kSummedElements<T> - 1) / kSummedElements<T>;
  const auto check = [&](std::span<const T> from, std::span<T> to, std::span<LaneSums> sums) {
    TRIREME_CHECK(from.size() == count && to.size() == count && sums.size() >= pieces);
    // Of the array's first element.
    const auto array = reinterpret_cast<uintptr_t>(to.data()) - step.first * sizeof(T);
    TRIREME_CHECK(count == 0 || array % LaneSums::kRowBytes == 0);
  };
  check(step.from.parameter, step.to.parameter, step.sums.parameter);
  check(step.from.moment1, step.to.moment1, step.sums.moment1);
  check(step.from.moment2, step.to.moment2, step.sums.moment2);
  TRIREME_CHECK(step.weight.size() == count);
}

}  // namespace

template <typename T, typename Weight>
void AdamW(const SlotStep<T, Weight>& step, const AdamWOptions& options) {
  CheckSpans(step);
  TRIREME_CHECK(options.step >= 1);
  const AdamWConstants<T> constants(options);
  const size_t begin = step.first, end = begin + step.gradient.size();
  // Shares end on pages of the arrays.
  const size_t first_page = begin / kPieceElements;
  const size_t pages = (end + kPieceElements - 1) / kPieceElements - first_page;
  const auto threads = std::min<size_t>(static_cast<size_t>(std::max(options.threads, 1)), pages);
  if (threads <= 1) {
    StepShare(step, constants, begin, end);
    return;
  }
  const size_t share = (pages + threads - 1) / threads;
#pragma omp parallel for num_threads(static_cast <int>(threads)) schedule(static)
  for (size_t t = 0; t < threads; ++t) {
    const auto cut = [&](size_t page) {
      return std::clamp((first_page + page) * kPieceElements, begin, end);
    };
    StepShare(step, constants, cut(t * share), cut((t + 1) * share));
  }
}

template void AdamW(const SlotStep<float, float>&, const AdamWOptions&);
template void AdamW(const SlotStep<float, tensor::BFloat16>&, const AdamWOptions&);
template void AdamW(const SlotStep<double, double>&, const AdamWOptions&);

}  // namespace trireme::optim
