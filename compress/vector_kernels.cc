// The tables of vector_kernels.inc, one for each instruction set, and the choice among them.
// The newer AVX-512, which moves bytes to the front of a vector in one instruction.
#define HWY_WANT_AVX3_DL 1
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "compress/kernels.h"
#include "compress/lane_quantiser.h"
#include "hwy/cache_control.h"

namespace trireme::compress {

// Codes that the fast quantiser's rounding gives exactly.
inline constexpr int32_t kFastLimit = 1 << 22;

}  // namespace trireme::compress

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/vector_kernels.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the loops for every other instruction set; this is the baseline.
#include "compress/vector_kernels.inc"

namespace trireme::compress {
namespace {

HWY_EXPORT(TargetKernels);

std::vector<const Kernels*> FindAllKernels() {
  std::vector<const Kernels*> all;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    all.push_back(HWY_DYNAMIC_DISPATCH(TargetKernels)());
  }
  hwy::SetSupportedTargetsForTest(0);
  all.push_back(&ReferenceKernels());
  return all;
}

}  // namespace

const Kernels& BestKernels() { return *HWY_DYNAMIC_DISPATCH(TargetKernels)(); }

std::span<const Kernels* const> AllKernels() {
  static const std::vector<const Kernels*> all = FindAllKernels();
  return all;
}

}  // namespace trireme::compress
