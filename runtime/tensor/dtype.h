// Element types of buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme::tensor {

enum class DType : uint8_t { kF64 = 1, kF32 = 2, kI32 = 3, kU8 = 4 };

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
  }
  return "?";
}

}  // namespace trireme::tensor
