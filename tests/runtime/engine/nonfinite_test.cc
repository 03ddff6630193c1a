// A NaN in the weights: the policy `stop` names tensor, rank and samples and updates nothing;
// `skip` leaves no trace in weights and moments, counts, and the next good step trains on.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/local/local_fabric.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"

namespace trireme::engine {

namespace {

constexpr const char* kPlanted = "h.2.mlp.c_fc.weight";
constexpr uint64_t kBadStep = 1;

// Every byte of weights and moments this rank holds.
std::string Bytes(Engine& engine) {
  std::string bytes;
  for (const char* kind : {"parameter", "moment1", "moment2"}) {
    for (const StateView& view : engine.state().Held(kind)) {
      const size_t before = bytes.size();
      bytes.resize(before + view.size_bytes());
      engine.Read(view.data, std::as_writable_bytes(std::span(bytes).subspan(before)));
    }
  }
  return bytes;
}

// What is planted where: the first element of that tensor or, with a row, of that row of it.
struct Planted {
  double value = 0;  // 0: nothing is planted
  std::string tensor = kPlanted;
  int64_t row = -1;  // -1: the first that a rank holds
};

// On every rank that holds it; the element that was there.
double Plant(Engine& engine, const Planted& planted) {
  double before = 0;
  for (const StateView& view : engine.state().Held("parameter")) {
    if (view.name != planted.tensor || view.shard.elements() == 0) continue;
    tensor::DevicePointer element = view.data;
    if (planted.row >= 0) {
      const layout::Interval& rows = view.shard.box.dims[0];
      if (planted.row < rows.begin || planted.row >= rows.end) continue;
      element = element +
                static_cast<size_t>((planted.row - rows.begin) * view.shard.box.dims[1].size()) *
                    sizeof(double);
    }
    engine.OnDevice([&] { before = std::exchange(*element.as<double>(), planted.value); });
  }
  return before;
}

struct Outcome {
  absl::Status bad_step;
  std::string named;  // by the message, or by the report of a step that was left out
  bool skipped = false;
  bool unchanged = false;
  bool own_gradient_is_bad = false;  // of the tensor that the message names
  std::string end;                   // all bytes after the steps that followed
};

// One good step, one with something planted, two good ones; per rank what came of it.
std::vector<Outcome> RunWith(const Layout& layout, const std::string& policy, Planted planted,
                             const TinyJobOptions& model = {}) {
  v1::JobSpec job = JobFor(layout, model);
  job.mutable_training()->set_nonfinite_policy(policy);
  const auto plan = plan::MakePlan(job, layout.ranks());
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  std::vector<Outcome> outcomes(static_cast<size_t>(layout.ranks()));
  const auto statuses = comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) -> absl::Status {
    Outcome& outcome = outcomes[static_cast<size_t>(fabric.rank())];
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, OptionsOf(job)));
    engine->InitializeState();
    RETURN_IF_ERROR(engine->RunStep(0).status());
    if (planted.value != 0) {
      const double good = Plant(*engine, planted);
      const std::string before = Bytes(*engine);
      const auto report = engine->RunStep(kBadStep);
      outcome.bad_step = report.status();
      outcome.skipped = report.ok() && report->skipped;
      outcome.named = report.ok() ? report->nonfinite : std::string(report.status().message());
      outcome.unchanged = Bytes(*engine) == before;
      for (const StateView& view : engine->state().Owned("gradient")) {
        std::vector<double> gradient(static_cast<size_t>(view.shard.elements()));
        engine->Read(view.data, std::as_writable_bytes(std::span(gradient)));
        const bool bad = std::any_of(gradient.begin(), gradient.end(),
                                     [](double each) { return !std::isfinite(each); });
        if (bad &&
            absl::StrContains(outcome.named, absl::StrCat("the gradient of ", view.name,
                                                          " on rank ", fabric.rank(), " "))) {
          outcome.own_gradient_is_bad = true;
        }
      }
      if (!report.ok()) return engine->agreement().AllAgree(true).status();
      Planted back = planted;
      back.value = good;
      Plant(*engine, back);
    }
    // As after a resume from a checkpoint that was saved here.
    if (planted.value == 0) engine->state().set_skipped_steps(1);
    for (uint64_t step : {kBadStep + 1, kBadStep + 2}) {
      ASSIGN_OR_RETURN(const StepReport next, engine->RunStep(step));
      if (next.skipped) return absl::InternalError("a good step was left out");
    }
    outcome.end = Bytes(*engine);
    return engine->agreement().AllAgree(true).status();
  });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    REQUIRE(status.ok());
  }
  return outcomes;
}

std::vector<Layout> PoisonedLayouts() {
  return {{},
          {.data = 2, .zero = 1},
          {.data = 2, .zero = 2, .recompute = "full"},
          {.tensor = 2, .sequence_parallel = true},
          {.pipeline = 2, .schedule = "zb-h1"},
          {.data = 2, .tensor = 2, .pipeline = 2, .zero = 1}};
}

}  // namespace

TEST_CASE("non-finite: stop names tensor and rank and samples and updates nothing") {
  for (const Layout& layout : PoisonedLayouts()) {
    for (const double value : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      INFO(layout.Name() << ", " << value);
      int confirmed = 0;
      std::string message;
      for (const Outcome& outcome : RunWith(layout, "stop", {.value = value})) {
        CHECK(outcome.bad_step.code() == absl::StatusCode::kAborted);
        const std::string text(outcome.bad_step.message());
        if (message.empty()) message = text;
        CHECK(text == message);  // all ranks say the same
        CHECK(outcome.unchanged);
        confirmed += outcome.own_gradient_is_bad ? 1 : 0;
      }
      INFO(message);
      // The rank that is named holds that tensor, and its gradient is bad.
      CHECK(confirmed == 1);
      CHECK(absl::StrContains(
          message, "at step 2, sample 8, the first with a bad loss of samples 8 to 15;"));
      CHECK(absl::StrContains(message, "nonfinite_policy: skip"));
    }
  }
}

TEST_CASE("non-finite: skip leaves no trace and trains on") {
  for (const Layout& layout : PoisonedLayouts()) {
    INFO(layout.Name());
    const std::vector<Outcome> skipped = RunWith(layout, "skip", {.value = std::nan("")});
    const std::vector<Outcome> clean = RunWith(layout, "skip", {});
    for (size_t rank = 0; rank < skipped.size(); ++rank) {
      CHECK(skipped[rank].bad_step.ok());
      CHECK(skipped[rank].skipped);
      CHECK(skipped[rank].unchanged);
      // As if the step had never been; only its number has passed.
      CHECK(skipped[rank].end == clean[rank].end);
    }
  }
}

TEST_CASE("non-finite: both policies name tensor and rank and the first bad sample") {
  const auto dataset = MakeRandomDataset(29, 5);
  // The first sample of the step whose loss hears of a token; a causal model does from its place
  // on.
  const auto first_with = [&](int64_t token) {
    for (int64_t sample = 8; sample < 16; ++sample) {
      std::vector<int32_t> tokens(5), targets(5);
      dataset->Fill(data::Split::kTrain, sample, tokens, targets);
      const auto at = std::find(tokens.begin(), tokens.end(), token) - tokens.begin();
      if (std::any_of(targets.begin() + at, targets.end(),
                      [](int32_t each) { return each >= 0; })) {
        return sample;
      }
    }
    return int64_t{-1};
  };
  // Neither in the first sample nor in the first micro-batch, and not the last either.
  Planted planted{.value = std::nan(""), .tensor = "model.embed_tokens.weight"};
  int64_t first = -1;
  for (int64_t token = 0; token < 29; ++token) {
    if (first_with(token) < 11 || first_with(token) > 14) continue;
    planted.row = token;
    first = first_with(token);
  }
  REQUIRE(first > 0);
  for (const Layout& layout : PoisonedLayouts()) {
    for (const char* policy : {"stop", "skip"}) {
      int confirmed = 0;
      for (const Outcome& outcome : RunWith(layout, policy, planted, {.family = "llama"})) {
        INFO(layout.Name() << ", " << policy << ": " << outcome.named);
        CHECK(outcome.skipped == (std::string_view(policy) == "skip"));
        CHECK(absl::StrContains(outcome.named, "NaN or Inf in the gradient of "));
        CHECK(absl::StrContains(outcome.named,
                                absl::StrCat("at step 2, sample ", first,
                                             ", the first with a bad loss of samples 8 to 15")));
        confirmed += outcome.own_gradient_is_bad ? 1 : 0;
      }
      CHECK(confirmed == 1);
    }
  }
}

TEST_CASE("non-finite: no token is drawn from logits that are not numbers") {
  for (const Layout& layout : PoisonedLayouts()) {
    v1::JobSpec job = JobFor(layout, {});
    const auto plan = plan::MakePlan(job, layout.ranks());
    REQUIRE(plan.ok());
    const auto dataset = MakeRandomDataset(29, 5);
    const auto statuses = comm::RunRanks(layout.ranks(), [&](comm::Fabric& fabric) -> absl::Status {
      ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, OptionsOf(job)));
      engine->InitializeState();
      const std::vector<int32_t> context = {3, 1, 4};
      RETURN_IF_ERROR(engine->NextToken(context, {}).status());
      Plant(*engine, {.value = std::nan("")});
      for (const double temperature : {0.0, 0.8}) {
        const auto token = engine->NextToken(context, {.temperature = temperature});
        if (token.status().code() != absl::StatusCode::kDataLoss) {
          return absl::InternalError(absl::StrCat("got ", token.status().ToString()));
        }
      }
      return engine->agreement().AllAgree(true).status();
    });
    for (const absl::Status& status : statuses) {
      INFO(layout.Name() << " " << status.ToString());
      CHECK(status.ok());
    }
  }
}

TEST_CASE("non-finite: bias correction counts the updates that were applied") {
  v1::JobSpec job = JobFor({}, {});
  job.mutable_training()->set_nonfinite_policy("skip");
  job.mutable_optimizer()->set_warmup_steps(0);
  job.mutable_optimizer()->set_weight_decay(0);
  // Not those of a job that says nothing.
  job.mutable_optimizer()->set_beta1(0.8);
  job.mutable_optimizer()->set_beta2(0.7);
  const auto plan = plan::MakePlan(job, 1);
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  const auto statuses = comm::RunRanks(1, [&](comm::Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, OptionsOf(job)));
    engine->InitializeState();
    const double good = Plant(*engine, {.value = std::nan("")});
    ASSIGN_OR_RETURN(const StepReport left_out, engine->RunStep(0));
    if (!left_out.skipped) return absl::InternalError("the bad step was not left out");
    Plant(*engine, {.value = good});
    Tensors before, after, moment1, moment2;
    std::mutex mutex;
    GatherTensors(*engine, "parameter", before, mutex);
    ASSIGN_OR_RETURN(const StepReport report, engine->RunStep(1));
    GatherTensors(*engine, "parameter", after, mutex);
    GatherTensors(*engine, "moment1", moment1, mutex);
    GatherTensors(*engine, "moment2", moment2, mutex);
    const v1::OptimizerSpec& spec = job.optimizer();
    double largest = 0;
    for (const auto& [name, weights] : before) {
      for (size_t i = 0; i < weights.size(); ++i) {
        // The first update: t is 1.
        const double mean = moment1.at(name)[i] / (1 - spec.beta1());
        const double square = moment2.at(name)[i] / (1 - spec.beta2());
        const double expected =
            weights[i] - report.learning_rate * mean / (std::sqrt(square) + spec.epsilon());
        largest = std::max(largest, std::abs(after.at(name)[i] - expected));
      }
    }
    return largest < 1e-14 ? absl::OkStatus() : absl::InternalError(absl::StrCat("off ", largest));
  });
  INFO(statuses[0].ToString());
  CHECK(statuses[0].ok());
}

TEST_CASE("generation: ids beyond the tokenizer's are never drawn") {
  v1::JobSpec job = JobFor({.tensor = 2, .micro_batch = 1}, {});
  const auto plan = plan::MakePlan(job, 2);
  REQUIRE(plan.ok());
  const auto dataset = MakeRandomDataset(29, 5);
  const auto statuses = comm::RunRanks(2, [&](comm::Fabric& fabric) -> absl::Status {
    ASSIGN_OR_RETURN(auto engine, Engine::Create(*plan, fabric, *dataset, OptionsOf(job)));
    engine->InitializeState();
    std::vector<int32_t> tokens = {3};
    int32_t largest = 0;
    while (tokens.size() < 60) {
      ASSIGN_OR_RETURN(const int32_t next, engine->NextToken(tokens, {.temperature = 5}));
      largest = std::max(largest, next);
      tokens.push_back(next);
    }
    if (largest < 4) return absl::InternalError("nothing to leave out was drawn");
    for (const double temperature : {0.0, 5.0}) {
      for (size_t length = 1; length < tokens.size(); ++length) {
        ASSIGN_OR_RETURN(const int32_t next,
                         engine->NextToken(std::span(tokens).first(length),
                                           {.temperature = temperature, .vocabulary = 4}));
        if (next < 0 || next >= 4) return absl::InternalError(absl::StrCat("drew ", next));
      }
    }
    return engine->agreement().AllAgree(true).status();
  });
  for (const absl::Status& status : statuses) {
    INFO(status.ToString());
    CHECK(status.ok());
  }
}

}  // namespace trireme::engine
