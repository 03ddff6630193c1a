// The kernels in plain C++: what compress/kernels.h means.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compress/lane_quantiser.h"

namespace trireme::compress {
namespace {

#include "compress/width_search.inc"

bool QuantiseF32(const float* x, const StepConstants& c, int32_t* q) {
  constexpr float kRounder = 0x1.8p23F;
  const auto inverse = static_cast<float>(c.inverse);
  const auto step = static_cast<float>(c.step);
  const auto bound = static_cast<float>(c.bound);
  const auto limit = static_cast<uint32_t>(std::min(c.limit, 1 << 22));
  const uint32_t first_kept = c.keep_zeros ? 1 : 0;
  bool all = true;
  for (size_t i = 0; i < kBlockValues; ++i) {
    const float rounded = x[i] * inverse + kRounder;
    const uint32_t code = std::bit_cast<uint32_t>(rounded) - std::bit_cast<uint32_t>(kRounder);
    q[i] = static_cast<int32_t>(code);
    const float error = std::fabs(x[i] - (rounded - kRounder) * step);
    const uint32_t rotated = std::rotl(std::bit_cast<uint32_t>(x[i]), 1);
    const bool kept_as_is = rotated - 1 < 0x00ffffffU * first_kept;
    const uint32_t distance = code ^ (0 - (code >> 31));  // q or -q - 1
    all &= error <= bound && distance < limit && !kept_as_is;
  }
  return all;
}

bool AllZeroF32(const float* x, const StepConstants& c) {
  const auto limit = std::bit_cast<uint32_t>(static_cast<float>(c.step * kCertainlyZero));
  const uint32_t first_kept = c.keep_zeros ? 1 : 0;
  bool all = true;
  for (size_t i = 0; i < kBlockValues; ++i) {
    const auto bits = std::bit_cast<uint32_t>(x[i]);
    all &= (bits & 0x7fffffff) <= limit && std::rotl(bits, 1) - 1 >= 0x00ffffffU * first_kept;
  }
  return all;
}

int32_t QuantiseLanesF32(const float* x, const StepConstants& c, int32_t* q,
                         Exceptions* exceptions) {
  return QuantiseLanes<F32>(reinterpret_cast<const uint32_t*>(x), c, q, exceptions);
}

int32_t Difference(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
}
int32_t Sum(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

uint32_t Residuals(Predictor predictor, const int32_t* q, int32_t base, Chain* chain, uint32_t* u) {
  uint32_t largest = 0;
  for (size_t i = 0; i < kBlockValues; ++i) {
    int32_t d = Difference(q[i], base);
    if (predictor != Predictor::kBase) {
      d = Difference(q[i], chain->last);
      if (predictor == Predictor::kSecond) {
        d = Difference(d, Difference(chain->last, chain->before_last));
      }
      *chain = {q[i], chain->last};
    }
    u[i] = ZigZag(d);
    largest = std::max(largest, u[i]);
  }
  return largest;
}

bool QuantisePlainF32(const float* x, const StepConstants& c, uint32_t* u, uint32_t* largest) {
  int32_t q[kBlockValues];
  if (!QuantiseF32(x, c, q)) return false;
  Chain unused;
  *largest = Residuals(Predictor::kBase, q, 0, &unused, u);
  return true;
}

Shape ChooseShape(const uint32_t* u, uint32_t largest) {
  uint32_t wider[kLargestWidth + 2] = {};  // numbers of exactly that many bits, then of more
  for (size_t i = 0; i < kBlockValues; ++i) ++wider[std::bit_width(u[i])];
  uint32_t count = 0;
  for (size_t width = kLargestWidth + 1; width-- > 0;) {
    const uint32_t here = wider[width];
    wider[width] = count;
    count += here;
  }
  return SearchWidth(largest, [&](uint32_t width) { return wider[width]; });
}

uint32_t BitLengths(const uint32_t* u) {
  uint32_t sum = 0;
  for (size_t i = 0; i < kBlockValues; ++i) sum += static_cast<uint32_t>(std::bit_width(u[i]));
  return sum;
}

void Pack(uint32_t width, const uint32_t* u, std::byte* packed) {
  const uint64_t mask = (uint64_t{1} << width) - 1;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    uint64_t bits = 0;
    uint32_t held = 0;
    size_t word = 0;
    for (size_t row = 0; row < kRows; ++row) {
      bits |= (u[row * kLanes + lane] & mask) << held;
      held += width;
      if (held < 32) continue;
      const auto low = static_cast<uint32_t>(bits);
      std::memcpy(packed + word++ * 64 + lane * 4, &low, 4);
      bits >>= 32;
      held -= 32;
    }
    const auto half = static_cast<uint16_t>(bits);
    if (held != 0) std::memcpy(packed + word * 64 + lane * 2, &half, 2);
  }
}

void WriteNumbers(const Shape& shape, const uint32_t* u, std::byte* out) {
  if (shape.width > 0) Pack(shape.width, u, out);
  if (shape.patches == 0) return;
  uint32_t list[kListRoom];
  size_t count = 0;
  for (size_t i = 0; i < kBlockValues; ++i) {
    list[count] = static_cast<uint32_t>(i);
    count += u[i] >> shape.width != 0 ? 1 : 0;
  }
  out += PackedBytes(shape.width);
  out[0] = static_cast<std::byte>(shape.patches);
  out[1] = static_cast<std::byte>(shape.high_bits);
  WritePatches(shape, u, list, out + 2);
}

bool EncodeSmallF32(const float* x, const StepConstants& c, Shape* shape, std::byte* out) {
  uint32_t u[kBlockValues];
  uint32_t largest = 0;
  if (!QuantisePlainF32(x, c, u, &largest) || largest > 255) return false;
  *shape = ChooseShape(u, largest);
  WriteNumbers(*shape, u, out);
  return true;
}

void Unpack(uint32_t width, const std::byte* packed, uint32_t* u) {
  const uint64_t mask = (uint64_t{1} << width) - 1;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    uint64_t bits = 0;
    uint32_t held = 0;
    size_t word = 0;
    for (size_t row = 0; row < kRows; ++row) {
      if (held < width) {
        uint32_t low = 0;
        const bool half = word == width / 2;
        std::memcpy(&low, packed + word * 64 + lane * (half ? 2 : 4), half ? 2 : 4);
        bits |= uint64_t{low} << held;
        held += 32;
        ++word;
      }
      u[row * kLanes + lane] = static_cast<uint32_t>(bits & mask);
      bits >>= width;
      held -= width;
    }
  }
}

void Codes(Predictor predictor, const uint32_t* u, int32_t base, Chain* chain, int32_t* q) {
  for (size_t i = 0; i < kBlockValues; ++i) {
    int32_t d = FromZigZag(u[i]);
    if (predictor == Predictor::kBase) {
      q[i] = Sum(d, base);
      continue;
    }
    if (predictor == Predictor::kSecond) d = Sum(d, Difference(chain->last, chain->before_last));
    q[i] = Sum(chain->last, d);
    *chain = {q[i], chain->last};
  }
}

void DequantiseF32(const int32_t* q, double step, bool wide, float* x) {
  for (size_t i = 0; i < kBlockValues; ++i) {
    x[i] = static_cast<float>(static_cast<double>(q[i]) * step);
  }
}

bool DecodeF32(uint32_t width, const std::byte* packed, const Patches& patches, int32_t base,
               float step, float* x) {
  uint32_t u[kBlockValues] = {};
  if (width > 0) Unpack(width, packed, u);
  const bool ascend =
      ForEachPatch(patches, width, [&u](size_t position, uint32_t high) { u[position] += high; });
  for (size_t i = 0; i < kBlockValues; ++i) {
    x[i] = static_cast<float>(Sum(FromZigZag(u[i]), base)) * step;
  }
  return ascend;
}

void FillF32(float value, float* x) { std::fill_n(x, kBlockValues, value); }

uint32_t Add(const float* a, const float* b, uint32_t* u) {
  uint32_t largest = 0;
  for (size_t i = 0; i < kBlockValues; ++i) {
    u[i] = ZigZag(static_cast<int32_t>(a[i] + b[i]));
    largest = std::max(largest, u[i]);
  }
  return largest;
}

bool AddSmall(const PackedNumbers& a, const PackedNumbers& b, Shape* shape, std::byte* out) {
  float x[kBlockValues], y[kBlockValues];
  if (!DecodeF32(a.width, a.packed, a.patches, 0, 1, x) ||
      !DecodeF32(b.width, b.packed, b.patches, 0, 1, y)) {
    return false;
  }
  uint32_t u[kBlockValues];
  *shape = ChooseShape(u, Add(x, y, u));
  WriteNumbers(*shape, u, out);
  return true;
}

Moments MomentsF32(const float* x, size_t count) {
  double sums[kLanes] = {};
  Moments moments{0, HUGE_VAL, -HUGE_VAL, 0};
  for (size_t i = 0; i < count; ++i) {
    if (!IsFinite<F32>(std::bit_cast<uint32_t>(x[i]))) continue;
    const auto value = static_cast<double>(x[i]);
    sums[i % kLanes] += value * value;
    moments.smallest = std::min(moments.smallest, value);
    moments.largest = std::max(moments.largest, value);
    ++moments.finite;
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  }
  moments.sum_of_squares = sums[0];
  return moments;
}

}  // namespace

const Kernels& ReferenceKernels() {
  static const Kernels kernels{"reference",
                               QuantiseF32,
                               QuantisePlainF32,
                               AllZeroF32,
                               EncodeSmallF32,
                               QuantiseLanesF32,
                               Residuals,
                               ChooseShape,
                               BitLengths,
                               WriteNumbers,
                               Pack,
                               Unpack,
                               Codes,
                               DequantiseF32,
                               DecodeF32,
                               FillF32,
                               Add,
                               AddSmall,
                               MomentsF32};
  return kernels;
}

}  // namespace trireme::compress
