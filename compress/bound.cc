// Bounds: their text, and what a relative one comes to for given values.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "compress/codec.h"
#include "compress/element.h"
#include "compress/parallel.h"
#include "compress/piece.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::compress {
namespace {

// A little less than twice the bound: room for the rounding of the f32 arithmetic that finds codes
// and that gives values back, so that codes up to some thousands never fail by it.
constexpr double kStepToBound = 2 - 0x1p-9;

double FloorToF32(double value) {
  const auto rounded = static_cast<float>(value);
  if (static_cast<double>(rounded) <= value) return static_cast<double>(rounded);
  return static_cast<double>(std::nextafterf(rounded, -HUGE_VALF));
}

template <typename E>
Moments MomentsOf(const typename E::Bits* values, size_t count, const Kernels& kernels) {
  if constexpr (E::kType == ElementType::kF32) {
    return kernels.moments_f32(reinterpret_cast<const float*>(values), count);
  }
  Moments moments{0, HUGE_VAL, -HUGE_VAL, 0};
  for (size_t i = 0; i < count; ++i) {
    if (!IsFinite<E>(values[i])) continue;
    const double value = E::Value(values[i]);
    moments.sum_of_squares += value * value;
    moments.smallest = std::min(moments.smallest, value);
    moments.largest = std::max(moments.largest, value);
    ++moments.finite;
  }
  return moments;
}

// Per piece, then added up in order: the same for every number of threads.
template <typename E>
Moments AllMoments(Values values, const CodecOptions& options) {
  const auto* data = static_cast<const typename E::Bits*>(values.data);
  const Kernels& kernels = options.kernels != nullptr ? *options.kernels : BestKernels();
  const size_t pieces = (values.count + kPieceValues - 1) / kPieceValues;
  std::vector<Moments> parts(pieces);
  ForEachPiece(pieces, options.threads, [&](size_t piece, size_t) {
    const size_t first = piece * kPieceValues;
    parts[piece] =
        MomentsOf<E>(data + first, std::min(kPieceValues, values.count - first), kernels);
  });
  Moments total{0, HUGE_VAL, -HUGE_VAL, 0};
  for (const Moments& part : parts) {
    if (part.finite == 0) continue;
    total.sum_of_squares += part.sum_of_squares;
    total.smallest = std::min(total.smallest, part.smallest);
    total.largest = std::max(total.largest, part.largest);
    total.finite += part.finite;
  }
  return total;
}

absl::Status CheckBound(double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      base::Text("bound ", value, " is not a finite number from 0 up"));
}

}  // namespace

absl::StatusOr<Bound> ParseBound(std::string_view text) {
  Bound bound;
  const size_t colon = text.find(':');
  const std::string_view mode = text.substr(0, colon);
  const std::string number(colon == std::string_view::npos ? "" : text.substr(colon + 1));
  char* end = nullptr;
  bound.value = std::strtod(number.c_str(), &end);
  const bool is_number = !number.empty() && *end == '\0' && std::isfinite(bound.value);
  bool is_mode = false;
  for (const BoundMode known : {BoundMode::kAbsolute, BoundMode::kRange, BoundMode::kRms}) {
    if (mode != NameOf(known)) continue;
    bound.mode = known;
    is_mode = true;
  }
  if (!is_mode || !is_number || bound.value < 0) {
    return absl::InvalidArgumentError(base::Text(
        "bound '", text, "': expected abs:E, range:E or rms:E with a number E from 0 up"));
  }
  return bound;
}

std::string_view NameOf(BoundMode mode) {
  switch (mode) {
    case BoundMode::kAbsolute:
      break;
    case BoundMode::kRange:
      return "range";
    case BoundMode::kRms:
      return "rms";
  }
  return "abs";
}

absl::StatusOr<Quantiser> ResolveAbsolute(ElementType type, double bound) {
  RETURN_IF_ERROR(CheckBound(bound));
  Quantiser quantiser{{BoundMode::kAbsolute, bound}, bound, 0};
  const bool f64 = type == ElementType::kF64;
  const double largest = f64 ? 0x1p1000 : 0x1p100;
  const double smallest = f64 ? 0x1p-1000 : 0x1p-100;
  quantiser.absolute = std::min(bound, largest);
  if (!f64) quantiser.absolute = FloorToF32(quantiser.absolute);
  if (quantiser.absolute < smallest) {
    quantiser.absolute = 0;
    return quantiser;
  }
  quantiser.step = quantiser.absolute * kStepToBound;
  if (!f64) quantiser.step = FloorToF32(quantiser.step);
  return quantiser;
}

absl::StatusOr<Quantiser> Resolve(Values values, Bound bound, const CodecOptions& options) {
  RETURN_IF_ERROR(CheckBound(bound.value));
  double absolute = bound.value;
  if (bound.mode != BoundMode::kAbsolute && bound.value > 0) {
    const Moments moments =
        WithElement(values.type, [&]<typename E>(E) { return AllMoments<E>(values, options); });
    double scale = 0;
    if (moments.finite > 0) {
      scale = bound.mode == BoundMode::kRange
                  ? moments.largest - moments.smallest
                  : std::sqrt(moments.sum_of_squares / static_cast<double>(moments.finite));
    }
    // f64 values may be farther apart, or have larger squares, than f64 can say.
    absolute = std::min(bound.value * scale, std::numeric_limits<double>::max());
  }
  ASSIGN_OR_RETURN(Quantiser quantiser, ResolveAbsolute(values.type, absolute));
  quantiser.requested = bound;
  return quantiser;
}

StepConstants ConstantsOf(ElementType type, const Quantiser& quantiser, int32_t limit) {
  StepConstants constants;
  constants.step = quantiser.step;
  constants.inverse = quantiser.step > 0 ? 1 / quantiser.step : 0;
  constants.bound = type == ElementType::kF64 ? quantiser.absolute : FloorToF32(quantiser.absolute);
  constants.limit = limit;
  return constants;
}

}  // namespace trireme::compress
