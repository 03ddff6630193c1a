#include "coordinator/cli/compression_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <random>
#include <vector>

#include "compress/codec.h"
#include "compress/stream_sum.h"
#include "runtime/plan/coded_transfers.h"
#include "runtime/plan/compression_forecast.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/state_layout.h"
#include "runtime/report/plan_view.h"

namespace trireme::cli {
namespace {

constexpr double kBytesPerGbit = 1e9 / 8;

// Values like those to be sent, of scale 1: activations are normal for the most part; gradients
// scaled by row and column are normal with a spread of scales about them (nanoGPT's at bounds of
// 0.14, 0.35 and 0.7: 6.0, 8.0 and 10.3 times fewer bytes; these: 6.2, 8.4 and 11).
enum class Spread : uint8_t { kNone, kOctave };

std::vector<float> ValuesWith(Spread spread) {
  std::vector<float> values(size_t{1} << 20);
  std::mt19937 bits(1);
  std::normal_distribution<float> normal;
  for (float& value : values) {
    value = normal(bits) * (spread == Spread::kNone ? 1 : std::exp2(normal(bits)));
  }
  return values;
}

// Best of a few rounds over coded segments, as the communicators use them.
std::optional<plan::CodecFigures> MeasureCodec(double bound, Spread spread) {
  const auto quantiser = compress::ResolveAbsolute(compress::ElementType::kF32, bound);
  if (!quantiser.ok() || quantiser->step == 0) return std::nullopt;
  const std::vector<float> values = ValuesWith(spread);
  constexpr size_t kPiece = compress::kMostSegmentValues;
  std::vector<float> decoded(values.size());
  std::vector<std::byte> segment(compress::MaxSegmentBytes(kPiece));
  plan::CodecFigures figures;
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    std::chrono::nanoseconds compress_time{1}, decompress_time{1};
    size_t bytes = 0;
    for (size_t at = 0; at < values.size(); at += kPiece) {
      const auto start = std::chrono::steady_clock::now();
      const size_t coded = compress::EncodeSegment({&values[at], kPiece}, *quantiser, segment);
      const auto middle = std::chrono::steady_clock::now();
      if (!compress::DecodeSegment(std::span(segment).first(coded), *quantiser,
                                   {&decoded[at], kPiece})
               .ok()) {
        return std::nullopt;
      }
      compress_time += middle - start;
      decompress_time += std::chrono::steady_clock::now() - middle;
      bytes += coded;
    }
    const double plain = static_cast<double>(values.size() * sizeof(float));
    const auto speed = [&](std::chrono::nanoseconds time) {
      return plain / std::chrono::duration<double>(time).count();
    };
    figures.ratio = plain / static_cast<double>(bytes);
    figures.compress_bytes_per_s = std::max(figures.compress_bytes_per_s, speed(compress_time));
    figures.decompress_bytes_per_s =
        std::max(figures.decompress_bytes_per_s, speed(decompress_time));
  }
  return figures;
}

struct Axis {
  std::string name, mode, bound;
  plan::TransferBytes bytes;  // as if it were on
  double replicas = 1;        // that share the bound of a sum
  Spread spread = Spread::kNone;
};

// A bound relative to the values of one rank. Gradients of n replicas differ mostly by chance: each
// is then sqrt(n) times as large as 1/n of their sum's, and may be wrong by 1/n of its bound.
std::optional<double> RelativeBound(const Axis& axis) {
  const auto bound = compress::ParseBound(axis.bound);
  if (!bound.ok() || bound->mode != compress::BoundMode::kRms) return std::nullopt;
  return bound->value / std::sqrt(axis.replicas);
}

std::string TimesOn(double gbits, const plan::CompressionForecast& forecast) {
  const bool pays = forecast.coded_s < forecast.plain_s;
  return fmt::format("\n              on {:g} Gb/s a rank: {:.1f} ms plain, {:.1f} ms coded: {}",
                     gbits, forecast.plain_s * 1e3, forecast.coded_s * 1e3,
                     pays ? "pays" : "does not pay");
}

std::string Readable(double bytes) { return report::ReadableBytes(static_cast<uint64_t>(bytes)); }

std::string LinesOf(const Axis& axis, double link_gbits) {
  std::string text =
      fmt::format("  {:<12}{}, {}: {} of {} transfers, {} of {} that a rank sends in a step",
                  axis.name, axis.mode == "off" ? "off; if on" : axis.mode, axis.bound,
                  axis.bytes.coded_transfers, axis.bytes.transfers, Readable(axis.bytes.coded),
                  Readable(axis.bytes.coded + axis.bytes.plain));
  if (axis.bytes.coded_transfers == 0) return text + "\n";
  const auto relative = RelativeBound(axis);
  const auto codec = relative ? MeasureCodec(*relative, axis.spread) : std::nullopt;
  if (!codec) return text + "\n              no forecast: it needs a bound rms:E\n";
  const plan::CompressionForecast forecast =
      plan::Forecast(axis.bytes, *codec, link_gbits * kBytesPerGbit);
  text += fmt::format(
      "\n              about {:.1f} times fewer bytes; codec {:.1f} and {:.1f} GB/s a core",
      codec->ratio, codec->compress_bytes_per_s * 1e-9, codec->decompress_bytes_per_s * 1e-9);
  if (link_gbits > 0) text += TimesOn(link_gbits, forecast);
  text +=
      fmt::format("\n              pays below {:.0f} Gb/s a rank, beside computation below {:.0f}",
                  forecast.pays_below_bytes_per_s / kBytesPerGbit,
                  forecast.pays_overlapped_below_bytes_per_s / kBytesPerGbit);
  return text + "\n";
}

}  // namespace

std::string GradientTransferLines(const v1::Plan& plan) {
  if (!plan::SumsTravelAsBf16(plan.job()) || plan.mesh().data() < 2) return "";
  const plan::TransferBytes bytes = plan::DataBytes(plan);
  std::string text = fmt::format(
      "\ngradients as bf16: {} of {} transfers between replicas, which are sums\n"
      "  of these a rank sends {} in a step, as f32 {}\n",
      bytes.coded_transfers, bytes.transfers, Readable(bytes.coded / 2), Readable(bytes.coded));
  if (bytes.plain > 0) {
    text += fmt::format(
        "  with {} {}, as f32 {}\n",
        plan::ZeroStage(plan) > 0 ? "the gathers of weights and small sums" : "the small sums",
        Readable(bytes.coded / 2 + bytes.plain), Readable(bytes.coded + bytes.plain));
  }
  return text;
}

std::string CompressionLines(const v1::Plan& plan, int ranks) {
  const v1::CompressionSpec& spec = plan.job().compression();
  const bool data_on = spec.data_parallel().mode() != "off";
  const bool pipeline_on = spec.pipeline().mode() != "off";
  const bool codes_messages = plan.job().training().dtype() == "f32";
  const bool possible = plan.mesh().data() > 1 || plan.mesh().pipeline() > 1;
  if (!possible || plan.job().training().dtype() == "f64" ||
      (!data_on && !pipeline_on && spec.link_gbits() == 0)) {
    return "";
  }
  v1::JobSpec all_on = plan.job();
  all_on.mutable_compression()->mutable_data_parallel()->set_mode("on");
  all_on.mutable_training()->set_gradient_transfer("f32");
  if (codes_messages) all_on.mutable_compression()->mutable_pipeline()->set_mode("on");
  const auto planned = plan::MakePlan(all_on, ranks);
  if (!planned.ok()) return "";
  std::string text = "\ncompression\n";
  if (plan.mesh().data() > 1) {
    text += LinesOf({.name = "gradients",
                     .mode = spec.data_parallel().mode(),
                     .bound = spec.data_parallel().bound(),
                     .bytes = plan::DataBytes(*planned),
                     .replicas = static_cast<double>(plan.mesh().data()),
                     .spread = Spread::kOctave},
                    spec.link_gbits());
  }
  if (plan.mesh().pipeline() > 1 && codes_messages) {
    text += LinesOf({.name = "messages",
                     .mode = spec.pipeline().mode(),
                     .bound = spec.pipeline().bound(),
                     .bytes = plan::PipelineBytes(*planned)},
                    spec.link_gbits());
  }
  return text;
}

}  // namespace trireme::cli
