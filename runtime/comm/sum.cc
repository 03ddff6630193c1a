// Plain loops that the compiler vectorises; one dispatch per call, not per element.
#include "runtime/comm/sum.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/base/check.h"

namespace trireme::comm {
namespace {

// Of ApplyTwice: stays in the first cache between the sum and its copy. A copy by memcpy writes
// whole lines without fetching them first; the loop's own stores to lines that another core has
// just read are much slower.
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
  TRIREME_CHECK(!"a collective reduces f64, f32 or i32");
}

}  // namespace

void Apply(const Combine& combine) {
  if (combine.count == 0) return;
  Dispatch(combine, [&](auto zero, auto op) { Loop<decltype(zero)>(combine, op); });
}

void ApplyTwice(const Combine& combine, void* copy) {
  const size_t element_bytes = tensor::SizeOf(combine.dtype);
  const int64_t block = static_cast<int64_t>(kBlockBytes / element_bytes);
  for (int64_t begin = 0; begin < combine.count; begin += block) {
    const size_t offset = static_cast<size_t>(begin) * element_bytes;
    Combine part = combine;
    part.to = static_cast<std::byte*>(combine.to) + offset;
    part.a = static_cast<const std::byte*>(combine.a) + offset;
    part.b = static_cast<const std::byte*>(combine.b) + offset;
    part.count = std::min(block, combine.count - begin);
    Apply(part);
    std::memcpy(static_cast<std::byte*>(copy) + offset, part.to,
                static_cast<size_t>(part.count) * element_bytes);
  }
}

}  // namespace trireme::comm
