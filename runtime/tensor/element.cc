#include "runtime/tensor/element.h"

#include "runtime/base/check.h"
#include "runtime/tensor/bf16.h"

namespace trireme::tensor {

double ElementAt(DType dtype, const std::byte* data, int64_t index) {
  switch (dtype) {
    case DType::kF64:
      return reinterpret_cast<const double*>(data)[index];
    case DType::kF32:
      return reinterpret_cast<const float*>(data)[index];
    case DType::kBf16:
      return static_cast<float>(reinterpret_cast<const BFloat16*>(data)[index]);
    default:
      TRIREME_CHECK(false);  // no real
  }
}

void SetElement(DType dtype, std::byte* data, int64_t index, double value) {
  switch (dtype) {
    case DType::kF64:
      reinterpret_cast<double*>(data)[index] = value;
      return;
    case DType::kF32:
      reinterpret_cast<float*>(data)[index] = static_cast<float>(value);
      return;
    case DType::kBf16:
      reinterpret_cast<BFloat16*>(data)[index] = BFloat16(static_cast<float>(value));
      return;
    default:
      TRIREME_CHECK(false);  // no real
  }
}

}  // namespace trireme::tensor
