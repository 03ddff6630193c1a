// Plain loops that the compiler vectorises, and Highway's for bf16; one dispatch per call, not per
// element.
#include "runtime/comm/sum.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/base/check.h"
#include "runtime/tensor/bf16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/comm/sum_loops.inc"
#include "hwy/foreach_target.h"
// foreach_target.h has compiled the loops for every other instruction set; this is the baseline.
#include "runtime/comm/sum_loops.inc"

namespace trireme::comm {
namespace {

using tensor::BFloat16;

HWY_EXPORT(Begin);
HWY_EXPORT(Continue);
HWY_EXPORT(End);
HWY_EXPORT(Pair);
HWY_EXPORT(Round);
HWY_EXPORT(Widen);

// Of ApplyAll: stays in the first cache between the additions, and between the sum and its copies.
// A copy by memcpy writes whole lines without fetching them first; the loop's own stores to lines
// that another core has just read are much slower.
constexpr size_t kBlockBytes = 8 << 10;

struct Sum {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      // Two's complement, without the undefined overflow of signed numbers.
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                            static_cast<std::make_unsigned_t<T>>(b));
    } else {
      return a + b;
    }
  }
};

struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return (a > b || a != a) ? a : b;  // a NaN in b fails the comparison and is taken
  }
};

// Three cases, so that the compiler knows what may overlap and needs no test of it in each loop.
template <typename T, typename Op>
void Loop(const Combine& combine, Op op) {
  const int64_t count = combine.count;
  T* __restrict to = static_cast<T*>(combine.to);
  if (combine.to == combine.a) {
    const T* __restrict b = static_cast<const T*>(combine.b);
    for (int64_t i = 0; i < count; ++i) to[i] = op(to[i], b[i]);
  } else if (combine.to == combine.b) {
    const T* __restrict a = static_cast<const T*>(combine.a);
    for (int64_t i = 0; i < count; ++i) to[i] = op(a[i], to[i]);
  } else {
    const T* __restrict a = static_cast<const T*>(combine.a);
    const T* __restrict b = static_cast<const T*>(combine.b);
    for (int64_t i = 0; i < count; ++i) to[i] = op(a[i], b[i]);
  }
}

// Calls `function` with a value of the dtype's C++ type and the operator.
template <typename Function>
void Dispatch(const Combine& combine, Function function) {
  const auto with_op = [&](auto zero) {
    if (combine.op == ReduceOp::kSum) {
      function(zero, Sum{});
    } else {
      function(zero, Max{});
    }
  };
  switch (combine.dtype) {
    case tensor::DType::kF64:
      return with_op(double{0});
    case tensor::DType::kF32:
      return with_op(float{0});
    case tensor::DType::kI32:
      return with_op(int32_t{0});
    default:
      break;
  }
  TRIREME_CHECK(!"a collective reduces f64, f32, bf16 or i32");
}

// The terms' block at `offset` to the first target.
void ApplyBlock(const CombineAll& all, size_t offset, int64_t count, std::byte* accumulator) {
  const size_t last = all.terms.size() - 1;
  const auto term = [&](size_t k) { return all.terms[k] + offset; };
  const void* sum = term(0);
  for (size_t k = 1; k <= last; ++k) {
    void* const to = k == last ? all.targets[0] + offset : accumulator;
    Apply({to, sum, term(k), count, all.dtype, all.op});
    sum = accumulator;
  }
}

// The same of bf16, with an accumulator of f32.
void ApplyBlockOfBf16(const CombineAll& all, size_t offset, int64_t count, std::byte* accumulator) {
  const size_t last = all.terms.size() - 1;
  if (last == 1) return ApplyBlock(all, offset, count, accumulator);
  const auto term = [&](size_t k) {
    return reinterpret_cast<const BFloat16*>(all.terms[k] + offset);
  };
  const auto n = static_cast<size_t>(count);
  auto* const sum = reinterpret_cast<float*>(accumulator);
  HWY_DYNAMIC_DISPATCH(Begin)(all.op, sum, term(0), term(1), n);
  for (size_t k = 2; k < last; ++k) HWY_DYNAMIC_DISPATCH(Continue)(all.op, sum, term(k), n);
  HWY_DYNAMIC_DISPATCH(End)
  (all.op, reinterpret_cast<BFloat16*>(all.targets[0] + offset), sum, term(last), n);
}

}  // namespace

void Apply(const Combine& combine) {
  if (combine.count == 0) return;
  if (combine.dtype == tensor::DType::kBf16) {
    HWY_DYNAMIC_DISPATCH(Pair)
    (combine.op, static_cast<BFloat16*>(combine.to), static_cast<const BFloat16*>(combine.a),
     static_cast<const BFloat16*>(combine.b), static_cast<size_t>(combine.count));
    return;
  }
  Dispatch(combine, [&](auto zero, auto op) { Loop<decltype(zero)>(combine, op); });
}

void ApplyAll(const CombineAll& all) {
  TRIREME_CHECK(all.terms.size() > 1 && !all.targets.empty());
  alignas(64) std::byte accumulator[kBlockBytes];
  const bool bf16 = all.dtype == tensor::DType::kBf16;
  const int64_t block =
      static_cast<int64_t>(kBlockBytes / (bf16 ? sizeof(float) : tensor::SizeOf(all.dtype)));
  for (int64_t begin = 0; begin < all.count; begin += block) {
    const int64_t count = std::min(block, all.count - begin);
    const size_t offset = static_cast<size_t>(begin) * tensor::SizeOf(all.dtype);
    (bf16 ? ApplyBlockOfBf16 : ApplyBlock)(all, offset, count, accumulator);
    for (std::byte* const copy : all.targets.subspan(1)) {
      std::memcpy(copy + offset, all.targets[0] + offset,
                  static_cast<size_t>(count) * tensor::SizeOf(all.dtype));
    }
  }
}

void SumBf16(std::span<const std::span<const std::byte>> terms, std::span<float> to) {
  TRIREME_CHECK(terms.size() > 1);
  constexpr size_t kBlock = kBlockBytes / sizeof(float);
  for (size_t begin = 0; begin < to.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, to.size() - begin);
    float* const sum = to.data() + begin;
    const auto term = [&](size_t k) {
      return reinterpret_cast<const BFloat16*>(terms[k].data()) + begin;
    };
    HWY_DYNAMIC_DISPATCH(Begin)(ReduceOp::kSum, sum, term(0), term(1), count);
    for (size_t k = 2; k < terms.size(); ++k) {
      HWY_DYNAMIC_DISPATCH(Continue)(ReduceOp::kSum, sum, term(k), count);
    }
  }
}

void RoundToBf16(std::span<const float> from, std::byte* to) {
  HWY_DYNAMIC_DISPATCH(Round)(reinterpret_cast<BFloat16*>(to), from.data(), from.size());
}

void WidenBf16(const std::byte* from, std::span<float> to) {
  HWY_DYNAMIC_DISPATCH(Widen)(to.data(), reinterpret_cast<const BFloat16*>(from), to.size());
}

}  // namespace trireme::comm
