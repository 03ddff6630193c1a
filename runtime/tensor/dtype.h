// Element types of buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme::tensor {

enum class DType : uint8_t { kF64 = 1, kF32 = 2, kI32 = 3, kU8 = 4, kBf16 = 5 };

// What values of a compute dtype are summed and kept in: statistics, losses, gradients of
// parameters.
constexpr DType AccumulatorOf(DType dtype) { return dtype == DType::kBf16 ? DType::kF32 : dtype; }

constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 8;
    case DType::kF32:
      return 4;
    case DType::kI32:
      return 4;
    case DType::kU8:
      return 1;
    case DType::kBf16:
      return 2;
  }
  return 0;
}

constexpr std::string_view NameOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "f64";
    case DType::kF32:
      return "f32";
    case DType::kI32:
      return "i32";
    case DType::kU8:
      return "u8";
    case DType::kBf16:
      return "bf16";
  }
  return "?";
}

}  // namespace trireme::tensor
