#include "worker/coding_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace trireme::worker {

namespace {

using engine::AxisCoding;
using engine::RankCoding;
using AxisOf = AxisCoding RankCoding::*;

AxisCoding SumOver(const std::vector<RankCoding>& ranks, AxisOf axis) {
  AxisCoding all;
  for (const RankCoding& rank : ranks) {
    const AxisCoding& one = rank.*axis;
    all.errors.measured += one.errors.measured;
    all.errors.large += one.errors.large;
    all.sum.plain_bytes += one.sum.plain_bytes;
    all.sum.coded_bytes += one.sum.coded_bytes;
    all.sum.codec_ns += one.sum.codec_ns;
    all.sum.total_ns += one.sum.total_ns;
    all.sum.largest_error = std::max(all.sum.largest_error, one.sum.largest_error);
    all.sum.error_squares += one.sum.error_squares;
    all.sum.value_squares += one.sum.value_squares;
  }
  return all;
}

nlohmann::ordered_json JsonOf(const comm::CodingReport& sum) {
  return {{"ratio", sum.ratio()},
          {"plain_bytes", sum.plain_bytes},
          {"sent_bytes", sum.coded_bytes},
          {"codec_seconds", static_cast<double>(sum.codec_ns) * 1e-9},
          {"wire_seconds", static_cast<double>(sum.wire_ns()) * 1e-9},
          {"largest_error", sum.largest_error},
          {"relative_error", sum.relative_error()}};
}

nlohmann::ordered_json JsonOf(const std::vector<RankCoding>& ranks, AxisOf axis) {
  const AxisCoding all = SumOver(ranks, axis);
  nlohmann::ordered_json json = JsonOf(all.sum);
  json["measured"] = all.errors.measured;
  json["with_large_error"] = all.errors.large;
  json["ranks"] = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    nlohmann::ordered_json line{{"rank", rank}};
    line.update(JsonOf((ranks[rank].*axis).sum));
    json["ranks"].push_back(std::move(line));
  }
  return json;
}

void AppendLoose(const engine::CodingErrors& errors, const char* what, const char* field,
                 const std::string& bound, std::string& text) {
  // A gradient that shrinks in one step is small beside its second moment: one transfer says
  // little.
  if (errors.large == 0 || 2 * errors.large < errors.measured) return;
  absl::StrAppend(&text, text.empty() ? "" : "; ", "compression.", field, ".bound ", bound,
                  " is too loose for this model: in ", errors.large, " of ", errors.measured,
                  " measured ", what, " the error is too large a part of the values; lower it");
}

}  // namespace

CodingRatios RatiosOf(const std::vector<RankCoding>& ranks) {
  return {.gradients = SumOver(ranks, &RankCoding::data).sum.ratio(),
          .messages = SumOver(ranks, &RankCoding::pipeline).sum.ratio()};
}

nlohmann::ordered_json CodingJson(const std::vector<RankCoding>& ranks) {
  return {{"gradients", JsonOf(ranks, &RankCoding::data)},
          {"messages", JsonOf(ranks, &RankCoding::pipeline)}};
}

std::string LooseBound(const engine::StepReport& report, const v1::CompressionSpec& spec) {
  std::string text;
  AppendLoose(report.gradient_sums, "gradient sums", "data_parallel", spec.data_parallel().bound(),
              text);
  AppendLoose(report.messages, "messages", "pipeline", spec.pipeline().bound(), text);
  return text;
}

}  // namespace trireme::worker
