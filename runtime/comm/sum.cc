// Plain loops that the compiler vectorises; one dispatch per call, not per element.
#include "runtime/comm/sum.h"

#include <type_traits>

#include "runtime/base/check.h"

namespace trireme::comm {
namespace {

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

template <typename T, typename Op>
void Loop(const Combine& combine, Op op) {
  const T* a = static_cast<const T*>(combine.a);
  const T* b = static_cast<const T*>(combine.b);
  T* to = static_cast<T*>(combine.to);
  const int64_t count = combine.count;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) to[i] = op(a[i], b[i]);
}

template <typename T, typename Op>
void LoopTwice(const Combine& combine, void* copy, Op op) {
  const T* a = static_cast<const T*>(combine.a);
  const T* b = static_cast<const T*>(combine.b);
  T* to = static_cast<T*>(combine.to);
  T* second = static_cast<T*>(copy);
  const int64_t count = combine.count;
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) {
    const T value = op(a[i], b[i]);
    to[i] = value;
    second[i] = value;
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
  if (combine.count == 0) return;
  Dispatch(combine, [&](auto zero, auto op) { LoopTwice<decltype(zero)>(combine, copy, op); });
}

}  // namespace trireme::comm
