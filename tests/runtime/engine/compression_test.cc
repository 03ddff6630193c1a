// Training with coded transfers, rank by rank: sums of gradients within the bound that the second
// moment gives, the same bits on all replicas and in every run, messages within theirs, and a bound
// too loose for the model heard of.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/model/model.h"
#include "tests/runtime/engine/layout_run.h"
#include "tests/runtime/engine/trained.h"
#include "tests/sanitizer.h"

namespace trireme::engine {

namespace {

v1::JobSpec JobOf(const Layout& layout, const std::string& mode) {
  v1::JobSpec job = JobFor(layout, {.dtype = "f32", .dropout = 0.1, .compression = mode});
  // So that the second moment is that of the gradients themselves.
  job.mutable_optimizer()->set_gradient_clip_norm(0);
  job.mutable_compression()->mutable_pipeline()->set_bound("rms:0.01");
  return job;
}

double RmsOf(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares / static_cast<double>(values.size()));
}

std::vector<Layout> ReplicatedLayouts() {
  return {{.data = 2},
          {.data = 4, .zero = 1},
          {.data = 2, .zero = 2},
          {.data = 3, .zero = 3, .recompute = "full"},
          {.data = 2, .schedule = "zb-h1", .zero = 2},
          {.data = 3, .zero = 1, .micro_batch = 1},
          {.data = 2, .pipeline = 2, .schedule = "zb-h1"},
          {.data = 2, .pipeline = 2, .zero = 1}};
}

double NearestPowerOfTwo(double value) { return std::exp2(std::round(std::log2(value))); }

// The scale that each element's bound has after a first update with the gradient `first`, row-major
// of `columns` (0: a vector), by the formula of docs/adr/0006.
std::vector<double> ScalesAfter(const std::vector<double>& first, size_t columns) {
  const double rms = RmsOf(first);
  if (columns == 0) return std::vector<double>(first.size(), NearestPowerOfTwo(rms / 4));
  const size_t rows = first.size() / columns;
  std::vector<double> row(rows), column(columns), scales;
  for (size_t i = 0; i < first.size(); ++i) {
    row[i / columns] += first[i] * first[i] / static_cast<double>(columns);
    column[i % columns] += first[i] * first[i] / static_cast<double>(rows);
  }
  for (size_t i = 0; i < first.size(); ++i) {
    const double of_row = std::max(std::sqrt(row[i / columns]), rms / 64);
    const double of_column = std::max(std::sqrt(column[i % columns]) / rms, 1.0 / 64);
    scales.push_back(NearestPowerOfTwo(of_row) * NearestPowerOfTwo(of_column));
  }
  return scales;
}

// Whether `parameter` is held whole by each tensor rank of `layout`, or there is but one: of a
// matrix whose halves lie on different ranks each half has scales of its own, as have its bounds.
bool HasScalesOfWhole(const Layout& layout, const graph::Parameter& parameter) {
  if (layout.tensor == 1) return true;
  return parameter.shard_dim == graph::kNone && parameter.shape.size() < 2;
}

TEST_CASE("compression: summed gradients keep the bound that the second moment gives") {
  const v1::ModelConfig config = JobOf({}, "on").model().config();
  const auto graph = model::BuildModel(config);
  REQUIRE(graph.ok());
  std::vector<Layout> layouts = ReplicatedLayouts();
  // Norms and row biases are summed over the tensor ranks too, with the errors of each.
  layouts.push_back({.data = 2, .tensor = 2, .sequence_parallel = true});
  for (const Layout& layout : layouts) {
    v1::JobSpec job = JobOf(layout, "on");
    job.mutable_compression()->mutable_pipeline()->set_mode("off");
    const double asked = 0.25;
    job.mutable_compression()->mutable_data_parallel()->set_bound("rms:0.25");
    const Trained coded = Train(job, layout.ranks(), 2);
    const Trained plain = Train(JobOf(layout, "off"), layout.ranks(), 2);
    INFO(layout.Name());
    // The first update knows no second moment: nothing is coded.
    CHECK(coded.gradients[0] == plain.gradients[0]);
    double largest = 0;
    for (const graph::Parameter& parameter : graph->parameters) {
      if (!HasScalesOfWhole(layout, parameter)) continue;
      const std::vector<double>& expected = plain.gradients[1].at(parameter.name);
      const std::vector<double>& got = coded.gradients[1].at(parameter.name);
      const size_t columns =
          parameter.shape.size() < 2 ? 0 : static_cast<size_t>(parameter.shape.back());
      const std::vector<double> scales =
          ScalesAfter(plain.gradients[0].at(parameter.name), columns);
      // Each copy of a tied matrix has the moment of the whole and brings an error of its own.
      const bool tied = layout.pipeline > 1 && graph->tied != graph::kNone &&
                        parameter.name == graph->parameters[graph->tied].name;
      const double rounding = 1e-5 * RmsOf(expected);
      double worst = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        const double bound = asked * scales[i] * (tied ? 2 : 1);
        const double error = std::abs(got[i] - expected[i]);
        worst = std::max(worst, (error - rounding) / bound);
      }
      INFO(parameter.name);
      CHECK(worst <= 1 + 1e-5);
      largest = std::max(largest, worst);
    }
    CHECK(largest > 0.3);
  }
}

TEST_CASE("compression: replicas and runs hold the same bits") {
  std::vector<Layout> layouts;
  if (!tests::kSanitizer) layouts = ReplicatedLayouts();
  layouts.push_back({.data = 2, .tensor = 2, .sequence_parallel = true});
  layouts.push_back({.data = 2, .tensor = 2, .zero = 1});
  layouts.push_back({.tensor = 2, .pipeline = 2, .schedule = "interleaved"});
  layouts.push_back({.data = 2, .tensor = 2, .pipeline = 2, .sequence_parallel = true, .zero = 1});
  for (const Layout& layout : layouts) {
    v1::JobSpec job = JobOf(layout, "on");
    const Trained trained = Train(job, layout.ranks(), 4);
    INFO(layout.Name());
    // Under ZeRO-3 each has its own share alone.
    CHECK((layout.zero == 3 || ReplicasHoldTheSame(trained, job)));
    const Trained again = Train(job, layout.ranks(), 4);
    CHECK(trained.weights == again.weights);
    job.mutable_runtime()->set_asynchronous_streams(true);
    CHECK(trained.weights == Train(job, layout.ranks(), 4).weights);
    for (const RankCoding& rank : trained.coding) {
      if (layout.data > 1) CHECK(rank.data.sum.coded_bytes < rank.data.sum.plain_bytes);
    }
  }
}

TEST_CASE("compression: messages change training a little and evaluation not at all") {
  const Layout layout{.pipeline = 2, .micro_batch = 2};
  v1::JobSpec still = JobOf(layout, "on");
  still.mutable_optimizer()->set_learning_rate(0);
  still.mutable_optimizer()->set_min_learning_rate(0);
  v1::JobSpec still_plain = JobOf(layout, "off");
  *still_plain.mutable_optimizer() = still.optimizer();
  const Trained coded = Train(still, 2, 2), plain = Train(still_plain, 2, 2);
  CHECK(coded.validation_loss == plain.validation_loss);
  for (size_t step = 0; step < 2; ++step) {
    const double error = std::abs(coded.reports[step].loss - plain.reports[step].loss);
    CHECK(error > 0);
    CHECK(error < 0.01 * plain.reports[step].loss);
    const double difference = NormOf(coded.gradients[step]) / NormOf(plain.gradients[step]) - 1;
    CHECK(std::abs(difference) < 0.03);
  }
  CHECK(plain.coding.empty());
  REQUIRE(coded.coding.size() == 2);
  for (const RankCoding& rank : coded.coding) {
    CHECK(rank.data.sum.plain_bytes == 0);
    CHECK(rank.pipeline.sum.plain_bytes > 0);
    CHECK(rank.pipeline.sum.largest_error > 0);
    CHECK(rank.pipeline.errors.measured > 0);
    // Root mean square 1, bound 0.01: errors are even over the bin, so bound / sqrt(3) at most.
    CHECK(rank.pipeline.sum.relative_error() < 0.011);
    CHECK(rank.pipeline.sum.relative_error() > 0.002);
  }
}

// Bounds are of moments that lie outside of the arena; messages of layers that are made again.
TEST_CASE("compression: the same bits with state outside of the arena, and recomputing") {
  const auto check = [](const Layout& changed, const Layout& plain) {
    const Trained there = Train(JobOf(changed, "on"), changed.ranks(), 4);
    const Trained here = Train(JobOf(plain, "on"), plain.ranks(), 4);
    INFO(changed.Name());
    CHECK(there.weights == here.weights);
    CHECK(there.gradients == here.gradients);
    for (size_t rank = 0; rank < there.coding.size(); ++rank) {
      const AxisCoding &data = there.coding[rank].data, &pipeline = there.coding[rank].pipeline;
      CHECK((data.sum.coded_bytes > 0) == (changed.data > 1));
      CHECK((pipeline.sum.coded_bytes > 0) == (changed.pipeline > 1));
    }
  };
  const Layout offloaded[] = {{.data = 2, .offload_state = "file"},
                              {.data = 3, .zero = 1, .offload_state = "host"},
                              {.data = 2, .zero = 3, .offload_state = "file"},
                              {.data = 2, .pipeline = 2, .zero = 2, .offload_state = "file"}};
  for (const Layout& layout : offloaded) {
    Layout plain = layout;
    plain.offload_state = "none";
    check(layout, plain);
  }
  const Layout recomputed[] = {{.pipeline = 2, .recompute = "full", .micro_batch = 1},
                               {.pipeline = 2, .schedule = "zb-h1", .recompute = "selective"}};
  for (const Layout& layout : recomputed) {
    Layout plain = layout;
    plain.recompute = "none";
    check(layout, plain);
  }
}

TEST_CASE("compression: a bound too loose for the model is heard of and a sound one is not") {
  const Layout layout{.data = 2, .pipeline = 2};
  for (const bool loose : {false, true}) {
    v1::JobSpec job = JobOf(layout, "on");
    v1::CompressionSpec& spec = *job.mutable_compression();
    spec.mutable_data_parallel()->set_bound(loose ? "rms:30" : "rms:0.02");
    spec.mutable_pipeline()->set_bound(loose ? "rms:3" : "rms:0.02");
    const Trained trained = Train(job, layout.ranks(), 2);
    const StepReport& report = trained.reports[1];
    CHECK(report.gradient_sums.measured > 0);
    CHECK(report.messages.measured > 0);
    CHECK((report.gradient_sums.large > 0) == loose);
    CHECK((report.messages.large > 0) == loose);
  }
}

TEST_CASE("compression: the ways that timing chooses train as well") {
  for (const Layout& layout :
       {Layout{.data = 2}, Layout{.data = 2, .zero = 1}, Layout{.data = 2, .zero = 2},
        Layout{.data = 2, .pipeline = 2}, Layout{.pipeline = 3}}) {
    const Trained chosen = Train(JobOf(layout, "auto"), layout.ranks(), 12);
    const Trained plain = Train(JobOf(layout, "off"), layout.ranks(), 12);
    INFO(layout.Name());
    for (size_t step = 0; step < 12; ++step) {
      CHECK(std::abs(chosen.reports[step].loss - plain.reports[step].loss) < 0.1);
    }
    for (size_t rank = 1; rank < chosen.weights.size() && layout.pipeline == 1; ++rank) {
      CHECK(chosen.weights[rank] == chosen.weights[0]);
    }
    // Of the first steps with bounds one goes plain and the next is coded, all its micro-batches.
    const Trained begun = Train(JobOf(layout, "auto"), layout.ranks(), 3);
    for (const RankCoding& rank : begun.coding) {
      if (layout.data > 1) CHECK(rank.data.sum.coded_bytes < rank.data.sum.plain_bytes);
    }
  }
}

TEST_CASE("compression: an absolute bound holds from the first update on") {
  // In sequence parallel the tensor ranks' parts of some gradients are added up as well.
  for (const Layout& layout :
       {Layout{.data = 2}, Layout{.data = 2, .tensor = 2, .sequence_parallel = true}}) {
    v1::JobSpec job = JobOf(layout, "on");
    job.mutable_compression()->mutable_data_parallel()->set_bound("abs:0.001");
    const Trained coded = Train(job, layout.ranks(), 1);
    const Trained plain = Train(JobOf(layout, "off"), layout.ranks(), 1);
    INFO(layout.Name());
    double worst = 0;
    for (const auto& [name, values] : plain.gradients[0]) {
      const std::vector<double>& got = coded.gradients[0].at(name);
      for (size_t i = 0; i < values.size(); ++i) {
        worst = std::max(worst, std::abs(values[i] - got[i]));
      }
    }
    CHECK(worst <= 0.00101);
    CHECK(worst > 0.0003);
  }
}

}  // namespace

}  // namespace trireme::engine
