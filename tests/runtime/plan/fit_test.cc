// What a job could change to take less memory: the bytes are those of the changed job's own plan,
// and the change that is named is the cheapest that fits.
#include "runtime/plan/fit.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/plan/fit_time.h"
#include "runtime/plan/planner.h"
#include "runtime/spec/job_spec.h"
#include "tests/runtime/plan/sample_jobs.h"

namespace trireme::plan {
namespace {

// Two stages of two replicas; the activations of four samples outweigh the state.
v1::JobSpec JobOfFour() {
  v1::JobSpec job = SmallJob();
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_num_hidden_layers(6);
  config.set_hidden_size(32);
  config.set_intermediate_size(128);
  config.set_head_dim(16);
  config.set_max_position_embeddings(64);
  job.mutable_data()->set_sequence_length(64);
  job.mutable_training()->set_global_batch_size(16);
  job.mutable_training()->set_micro_batch_size(4);
  job.mutable_runtime()->set_kernels("reference");
  return job;
}
constexpr int kRanks = 4;

v1::JobSpec Changed(v1::JobSpec job, const std::vector<FieldChange>& changes) {
  for (const auto& [path, value] : changes) {
    if (path == "parallelism.zero_stage") {
      job.mutable_parallelism()->set_zero_stage(std::stoi(value));
    } else if (path == "parallelism.recompute") {
      job.mutable_parallelism()->clear_recompute();
      job.mutable_parallelism()->add_recompute(value);
    } else if (path == "training.micro_batch_size") {
      job.mutable_training()->set_micro_batch_size(std::stoi(value));
    } else if (path == "parallelism.schedule") {
      job.mutable_parallelism()->set_schedule(value);
    } else if (path == "training.loss_tile_rows") {
      job.mutable_training()->set_loss_tile_rows(std::stoi(value));
    } else if (path == "offload.optimizer_state") {
      job.mutable_offload()->set_optimizer_state(value);
    } else if (path == "offload.activations") {
      job.mutable_offload()->set_activations(value);
    } else {
      REQUIRE(path == "training.dtype");
      job.mutable_training()->set_dtype(value);
    }
  }
  return job;
}

struct Bytes {
  uint64_t rank = 0, all = 0;
};
Bytes BytesOf(const v1::JobSpec& job, int ranks) {
  const auto plan = MakePlan(job, ranks);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  Bytes bytes;
  for (const v1::StagePlan& stage : plan->stages()) {
    bytes.rank = std::max(bytes.rank, MemoryBytes(stage));
    bytes.all += MemoryBytes(stage) * plan->mesh().data() * plan->mesh().tensor();
  }
  return bytes;
}

// What the ranks of its plan hold and do.
std::string StagesOf(const v1::JobSpec& job, int ranks) {
  const auto plan = MakePlan(job, ranks);
  REQUIRE(plan.ok());
  std::string text;
  for (const v1::StagePlan& stage : plan->stages()) text += stage.SerializeAsString();
  return text;
}

FitReport Fit(const v1::JobSpec& job, uint64_t rank_bytes, int ranks = kRanks) {
  auto report = FindFit(job, ranks, {.rank_bytes = rank_bytes});
  INFO(report.status().ToString());
  REQUIRE(report.ok());
  return *std::move(report);
}

bool Names(const FitChoice& choice, const std::string& path) {
  return std::any_of(choice.changes.begin(), choice.changes.end(),
                     [&](const FieldChange& change) { return change.path == path; });
}

// By its options.
std::optional<FitChoice> ChoiceNamed(const FitReport& report, const std::string& options) {
  for (const FitChoice& choice : report.choices) {
    if (AsOptions(choice.changes) == options) return choice;
  }
  return std::nullopt;
}

TEST_CASE("fit: every choice takes the bytes of the changed job's plan") {
  v1::JobSpec job = JobOfFour();
  const uint32_t largest = GENERATE(0u, 1u);
  // The head's scores outweigh what the first stage keeps.
  if (largest == 1) job.mutable_model()->mutable_config()->set_vocab_size(5000);
  const FitReport report = Fit(job, 1);
  CHECK(report.choices.size() > 20);
  CHECK(report.not_planned == 0);
  CHECK((report.choices[0].largest.first_block(0) > 0) == (largest == 1));
  for (const FitChoice& choice : report.choices) {
    CAPTURE(AsOptions(choice.changes));
    const Bytes bytes = BytesOf(Changed(job, choice.changes), kRanks);
    CHECK(choice.rank_bytes() == bytes.rank);
    CHECK(choice.all_ranks_bytes == bytes.all);
    CHECK(choice.largest.pools_size() > 0);
    CHECK(choice.largest.step().instructions().empty());
  }
}

TEST_CASE("fit: a job that fits is left as it is") {
  const v1::JobSpec job = JobOfFour();
  const FitReport report = Fit(job, BytesOf(job, kRanks).rank);
  REQUIRE(report.fitting.has_value());
  CHECK(*report.fitting == 0);
  CHECK(report.choices[0].changes.empty());
  CHECK(report.choices[0].is_job);
  CHECK(report.choices[0].slowdown == 0);
  // The table has each change alone all the same, and no combination.
  CHECK(report.choices.size() > 4);
  for (const FitChoice& choice : report.choices) CHECK(choice.changes.size() <= 1);
}

// What comes first of two that fit.
auto OrderOf(const FitChoice& choice) {
  return std::tuple(choice.other_numerics, TimeClass(choice.slowdown), choice.changes.size(),
                    choice.slowdown);
}

// For limits between all the bytes that there are, so that each becomes the answer that can be one.
TEST_CASE("fit: nothing that the model finds cheaper, or as cheap with fewer changes, fits") {
  const v1::JobSpec job = JobOfFour();
  const FitReport all = Fit(job, 1);
  size_t answers = 0, combinations = 0;
  for (const FitChoice& limit : all.choices) {
    const FitReport report = Fit(job, limit.rank_bytes());
    REQUIRE(report.fitting.has_value());
    const FitChoice& found = report.choices[*report.fitting];
    CAPTURE(AsOptions(limit.changes), AsOptions(found.changes));
    CHECK(found.rank_bytes() <= limit.rank_bytes());
    for (const FitChoice& other : all.choices) {
      if (OrderOf(other) < OrderOf(found)) CHECK(other.rank_bytes() > limit.rank_bytes());
    }
    // No change of it could be left out, or the rest would be slower.
    for (size_t i = 0; i < found.changes.size(); ++i) {
      std::vector<FieldChange> fewer = found.changes;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
      const auto rest = ChoiceNamed(all, AsOptions(fewer));
      if (rest.has_value() && OrderOf(*rest) > OrderOf(found)) continue;
      CHECK(BytesOf(Changed(job, fewer), kRanks).rank > limit.rank_bytes());
    }
    answers += found.changes == limit.changes ? 1 : 0;
    combinations += found.changes.size() > 1 ? 1 : 0;
  }
  CHECK(answers > 4);
  CHECK(combinations > 2);
}

TEST_CASE("fit: cheap changes first, other numerics last") {
  const FitReport report = Fit(JobOfFour(), 1);
  const auto at = [&](const std::string& options) {
    for (size_t i = 0; i < report.choices.size(); ++i) {
      if (AsOptions(report.choices[i].changes) == options) return i;
    }
    FAIL("not there: " << options);
    return size_t{0};
  };
  CHECK(at("") == 0);
  CHECK(at("--set parallelism.zero_stage=1") < at("--set parallelism.recompute=selective"));
  CHECK(at("--set parallelism.recompute=selective") < at("--set parallelism.recompute=full"));
  CHECK(at("--set training.micro_batch_size=2") < at("--set training.micro_batch_size=1"));
  CHECK(at("--set parallelism.recompute=selective") <
        at("--set parallelism.zero_stage=1 --set parallelism.recompute=selective"));
  const size_t first_bf16 = at("--set training.dtype=bf16");
  for (size_t i = 0; i < report.choices.size(); ++i) {
    const FitChoice& choice = report.choices[i];
    CHECK(choice.other_numerics == Names(choice, "training.dtype"));
    CHECK(choice.other_numerics == (i >= first_bf16));
    if (i == 0 || i == first_bf16) continue;
    CHECK(OrderOf(choice) >= OrderOf(report.choices[i - 1]));
    CHECK(choice.slowdown > 0);
  }
}

// Of a micro-batch of 256 tokens, two in a step, of one unit of products each; 32 hidden units.
TEST_CASE("fit: slowdowns are those of the model that fit_time.h writes down") {
  v1::JobSpec job = JobOfFour();
  const bool sharded = GENERATE(false, true);
  if (sharded) job.mutable_parallelism()->set_zero_stage(1);
  constexpr double kPass = 54.0 / 256;
  const double now = 1 + kPass + (sharded ? 0.01 : 0);
  const double selective = 0.01 + 64.0 / (64 + 12 * 32) / 3;
  const std::map<std::string, double> longer = {
      {"--set parallelism.zero_stage=1", 0.01},
      {"--set parallelism.zero_stage=2", 0.02 + kPass / 2},
      {"--set parallelism.zero_stage=3", 0.03 + 2 * kPass},
      {"--set parallelism.recompute=selective", selective * (1 + kPass)},
      {"--set parallelism.recompute=full", (1 + kPass) / 3},
      {"--set offload.optimizer_state=file", 80 * 16.0 / (6 * 512) / (sharded ? 2 : 1)},
      {"--set training.micro_batch_size=2", 54.0 / 128 - kPass},
      {"--set training.dtype=bf16", 0}};
  size_t found = 0;
  for (const FitChoice& choice : Fit(job, 1).choices) {
    const auto expected = longer.find(AsOptions(choice.changes));
    if (expected == longer.end()) continue;
    ++found;
    CAPTURE(expected->first);
    const double replaced = sharded && Names(choice, "parallelism.zero_stage") ? 0.01 : 0;
    CHECK(choice.slowdown == Approx((expected->second - replaced) / now).margin(1e-12));
  }
  CHECK(found == longer.size() - (sharded ? 1 : 0));
}

// Two stages of two replicas and 32 hidden units, eight micro-batches that all go forward first.
v1::JobSpec JobOfFarBackwards() {
  v1::JobSpec job = JobOfFour();
  job.mutable_training()->set_micro_batch_size(1);
  job.mutable_parallelism()->set_schedule("gpipe");
  return job;
}

TEST_CASE("fit: offloaded activations cost what moves of them, and that is nothing if none do") {
  v1::JobSpec far = JobOfFarBackwards(), near = JobOfFour();
  const auto names = [](const FitReport& report) {
    return std::any_of(report.choices.begin(), report.choices.end(), [](const FitChoice& choice) {
      return Names(choice, "offload.activations");
    });
  };
  CHECK_FALSE(names(Fit(near, 1)));
  const FitReport report = Fit(far, 1);
  REQUIRE(names(report));
  constexpr double kProducts = 1 + 54.0 / 64;
  for (const FitChoice& choice : report.choices) {
    if (AsOptions(choice.changes) != "--set offload.activations=file") continue;
    CHECK(choice.slowdown == Approx(80 * 136.0 / (72 * 32) / kProducts));
  }
  // A job that asks for what does not happen has the choices of one that does not ask.
  const FitReport plain = Fit(near, 1);
  near.mutable_offload()->set_activations("file");
  const FitReport asks = Fit(near, 1);
  REQUIRE(asks.choices.size() == plain.choices.size());
  for (size_t i = 0; i < plain.choices.size(); ++i) {
    CAPTURE(i, AsOptions(plain.choices[i].changes));
    CHECK(asks.choices[i].changes == plain.choices[i].changes);
    CHECK(asks.choices[i].slowdown == plain.choices[i].slowdown);
  }
  // However slow the model finds a job, it comes first.
  far.mutable_offload()->set_activations("file");
  CHECK(Fit(far, 1).choices[0].changes.empty());
}

TEST_CASE("fit: a schedule of fewer micro-batches in flight costs nothing, and is found") {
  const v1::JobSpec job = JobOfFarBackwards();
  const FitReport all = Fit(job, 1);
  const auto choice = ChoiceNamed(all, "--set parallelism.schedule=1f1b");
  REQUIRE(choice.has_value());
  CHECK(choice->slowdown == 0);
  CHECK(choice->rank_bytes() < all.choices[0].rank_bytes());
  const FitReport report = Fit(job, all.choices[0].rank_bytes() - 1);
  REQUIRE(report.fitting.has_value());
  CHECK(report.choices[*report.fitting].changes == choice->changes);
  CHECK_FALSE(ChoiceNamed(Fit(JobOfFour(), 1), "--set parallelism.schedule=1f1b").has_value());
}

TEST_CASE("fit: what lies in the host's memory may stay in the arena for less") {
  v1::JobSpec job = JobOfFarBackwards();
  job.mutable_offload()->set_optimizer_state("host");
  job.mutable_offload()->set_activations("host");
  const FitReport report = Fit(job, 1);
  for (const char* path : {"offload.optimizer_state", "offload.activations"}) {
    const auto choice = ChoiceNamed(report, std::string("--set ") + path + "=none");
    REQUIRE(choice.has_value());
    CHECK(choice->rank_bytes() < report.choices[0].rank_bytes());
    CHECK(choice->slowdown < 0);
  }
}

TEST_CASE("fit: micro-batches may be of any size that the samples are a multiple of") {
  v1::JobSpec job = JobOfFour();
  const auto sizes = [&](int64_t samples, int64_t now) {
    job.mutable_training()->set_global_batch_size(2 * samples);
    job.mutable_training()->set_micro_batch_size(now);
    std::vector<int64_t> found;
    for (const FitChoice& choice : Fit(job, 1).choices) {
      if (choice.changes.size() == 1 && Names(choice, "training.micro_batch_size")) {
        found.push_back(std::stoll(choice.changes[0].value));
      }
    }
    std::sort(found.begin(), found.end());
    return found;
  };
  CHECK(sizes(6, 3) == std::vector<int64_t>{1, 2});
  CHECK(sizes(12, 5) == std::vector<int64_t>{1, 2, 3, 4});
  CHECK(sizes(7, 4) == std::vector<int64_t>{1, 2});
  const std::vector<int64_t> many = sizes(360, 360);
  CHECK(many.size() == 8);
  CHECK(many.front() == 1);
  CHECK(many.back() == 180);
}

TEST_CASE("fit: tiles of the loss of fewer rows take less, and the time that was measured") {
  v1::JobSpec job = SmallJob();
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_num_hidden_layers(12);
  config.set_hidden_size(768);
  config.set_intermediate_size(3072);
  config.set_num_attention_heads(12);
  config.set_num_key_value_heads(12);
  config.set_head_dim(64);
  config.set_vocab_size(50257);
  config.set_max_position_embeddings(256);
  job.mutable_data()->set_sequence_length(256);
  job.mutable_training()->set_micro_batch_size(4);
  job.mutable_parallelism()->set_pipeline_parallel_size(1);
  const bool narrow = GENERATE(false, true);
  if (narrow) job.mutable_training()->set_dtype("bf16");
  const FitReport report = Fit(job, 1, 1);
  const auto choice = ChoiceNamed(report, "--set training.loss_tile_rows=256");
  REQUIRE(choice.has_value());
  CHECK(choice->rank_bytes() < report.choices[0].rank_bytes());
  CHECK(choice->slowdown >= (narrow ? 0.18 : 0.015));
  CHECK(choice->slowdown <= (narrow ? 0.24 : 0.025));
  // As few already.
  CHECK_FALSE(ChoiceNamed(Fit(JobOfFour(), 1), "--set training.loss_tile_rows=256").has_value());
}

TEST_CASE("fit: what changes nothing is no choice") {
  v1::JobSpec job = JobOfFour();
  job.mutable_offload()->set_activations(GENERATE("none", "file"));
  const auto plan = MakePlan(job, kRanks);
  REQUIRE(plan.ok());
  const FitReport report = Fit(job, 1);
  std::vector<FitChoice> choices = BytesPerChoice(*plan);
  choices.insert(choices.end(), report.choices.begin(), report.choices.end());
  for (const FitChoice& choice : choices) {
    if (choice.is_job) continue;
    CAPTURE(AsOptions(choice.changes));
    CHECK(StagesOf(Changed(job, choice.changes), kRanks) != StagesOf(job, kRanks));
    CHECK_FALSE(Names(choice, "offload.activations"));
  }
}

// Sums may be equal, as of one piece that is all of the state, and layouts may differ.
TEST_CASE("fit: a value has a row where the plan is another with it, and only there") {
  v1::JobSpec job = JobOfFour();
  job.mutable_parallelism()->set_pipeline_parallel_size(1);
  job.mutable_parallelism()->set_zero_stage(GENERATE(1, 2));
  job.mutable_training()->set_dtype(GENERATE("f32", "bf16"));
  job.mutable_offload()->set_optimizer_state(GENERATE("none", "host", "file"));
  job.mutable_offload()->set_piece_bytes(10'000'000);
  const auto plan = MakePlan(job, 2);
  REQUIRE(plan.ok());
  std::vector<std::string> shown, expected;
  for (const FitChoice& choice : BytesPerChoice(*plan)) {
    shown.push_back(AsOptions(choice.changes) + (choice.is_job ? " (the job's)" : ""));
  }
  const std::pair<const char*, std::vector<std::string>> fields[] = {
      {"parallelism.zero_stage", {"0", "1", "2", "3"}},
      {"parallelism.recompute", {"none", "selective", "full"}},
      {"offload.optimizer_state", {"none", "host", "file"}},
      {"offload.activations", {"none", "host", "file"}}};
  for (const auto& [path, values] : fields) {
    for (const std::string& value : values) {
      const v1::JobSpec other = Changed(job, {{path, value}});
      const bool own = other.parallelism().zero_stage() == job.parallelism().zero_stage() &&
                       value != "selective" && value != "full" &&
                       other.offload().SerializeAsString() == job.offload().SerializeAsString();
      if (!own && StagesOf(other, 2) == StagesOf(job, 2)) continue;
      expected.push_back(AsOptions({{path, value}}) + (own ? " (the job's)" : ""));
    }
  }
  CHECK(shown == expected);
}

TEST_CASE("fit: layers that keep different amounts are a row too, the job's") {
  v1::JobSpec job = JobOfFour();
  for (const char* mode : {"full", "none", "full", "full", "none", "none"}) {
    job.mutable_parallelism()->add_recompute(mode);
  }
  const auto plan = MakePlan(job, kRanks);
  REQUIRE(plan.ok());
  std::vector<std::string> values;
  for (const FitChoice& choice : BytesPerChoice(*plan)) {
    if (!Names(choice, "parallelism.recompute")) continue;
    values.push_back(choice.changes[0].value);
    CHECK(choice.is_job == (values.back() == "by layer"));
    if (choice.is_job) CHECK(choice.rank_bytes() == BytesOf(job, kRanks).rank);
  }
  CHECK(values == std::vector<std::string>{"none", "selective", "full", "by layer"});
}

TEST_CASE("fit: where nothing fits, the closest is named") {
  const FitReport report = Fit(JobOfFour(), 1000);
  CHECK_FALSE(report.fitting.has_value());
  const FitChoice& closest = report.choices[report.closest];
  for (const FitChoice& choice : report.choices) {
    CHECK(choice.rank_bytes() >= closest.rank_bytes());
  }
  CHECK(FitLimit{.rank_bytes = 1000}.MissedBy(closest) == closest.rank_bytes() - 1000);
}

TEST_CASE("fit: all ranks of a machine together") {
  const v1::JobSpec job = JobOfFour();
  const FitReport all = Fit(job, 1);
  const uint64_t limit = all.choices[0].all_ranks_bytes - 1;
  const auto report = FindFit(job, kRanks, {.all_ranks_bytes = limit});
  REQUIRE(report.ok());
  REQUIRE(report->fitting.has_value());
  const FitChoice& found = report->choices[*report->fitting];
  CHECK_FALSE(found.changes.empty());
  CHECK(BytesOf(Changed(job, found.changes), kRanks).all <= limit);
}

TEST_CASE("fit: only what saves, and what the rules allow") {
  v1::JobSpec job = JobOfFour();
  // One replica has nothing to shard over.
  for (const FitChoice& choice : Fit(job, 1, 2).choices) {
    CHECK_FALSE(Names(choice, "parallelism.zero_stage"));
  }
  // Layers that keep more than others are not brought down to selective.
  for (const char* mode : {"full", "none", "full", "full", "none", "none"}) {
    job.mutable_parallelism()->add_recompute(mode);
  }
  for (const FitChoice& choice : Fit(job, 1).choices) {
    for (const FieldChange& change : choice.changes) CHECK(change.value != "selective");
  }
  // No data, as here, is no fault of a change; codings that bf16 has not are.
  job.mutable_compression()->mutable_pipeline()->set_mode("on");
  for (const FitChoice& choice : Fit(job, 1).choices) CHECK_FALSE(choice.other_numerics);
  job.mutable_parallelism()->set_tensor_parallel_size(3);
  CHECK(FindFit(job, kRanks, {}).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("fit: planning is bounded, and what was not planned is counted") {
  const v1::JobSpec job = JobOfFour();
  const size_t all = Fit(job, 1).choices.size();
  const auto report = FindFit(job, kRanks, {.rank_bytes = 1}, /*effort=*/400);
  REQUIRE(report.ok());
  CHECK(report->choices[0].changes.empty());
  CHECK(report->choices.size() > 1);
  CHECK(report->choices.size() < all);
  CHECK(report->choices.size() + report->not_planned >= all);
}

TEST_CASE("fit: with little effort, changes alone come first, and then combinations that may fit") {
  const v1::JobSpec job = JobOfFour();
  const FitReport all = Fit(job, 1);
  // The least that two changes reach, of which one alone is dear.
  const auto best =
      ChoiceNamed(all, "--set parallelism.zero_stage=1 --set parallelism.recompute=full");
  REQUIRE(best.has_value());
  size_t singles = 0, before = 0;
  for (const FitChoice& choice : all.choices) {
    singles += choice.changes.size() <= 1 ? 1 : 0;
    before += choice.slowdown < best->slowdown ? 1 : 0;
  }
  REQUIRE(before > 2 * singles);
  const auto report =
      FindFit(job, kRanks, {.rank_bytes = best->rank_bytes()}, /*effort=*/100 * (singles + 8));
  REQUIRE(report.ok());
  size_t planned = 0;
  for (const FitChoice& choice : report->choices) planned += choice.changes.size() <= 1 ? 1 : 0;
  CHECK(planned == singles);
  CHECK(report->fitting.has_value());
  CHECK(report->not_planned > 0);
}

TEST_CASE("fit: bytes per choice, also of those that take more") {
  v1::JobSpec job = JobOfFour();
  job.mutable_parallelism()->set_zero_stage(1);
  job.mutable_parallelism()->add_recompute("selective");
  const auto plan = MakePlan(job, kRanks);
  REQUIRE(plan.ok());
  std::vector<std::string> shown, own;
  for (const FitChoice& choice : BytesPerChoice(*plan)) {
    CAPTURE(AsOptions(choice.changes));
    REQUIRE(choice.changes.size() == 1);
    shown.push_back(choice.changes[0].value);
    if (choice.is_job) own.push_back(choice.changes[0].value);
    CHECK(choice.rank_bytes() == BytesOf(Changed(job, choice.changes), kRanks).rank);
  }
  for (const char* value : {"0", "1", "selective", "full"}) {
    CHECK(std::count(shown.begin(), shown.end(), value) == 1);
  }
  // Of recompute, and of two kinds of state, of which the second moves nothing here.
  CHECK(std::count(shown.begin(), shown.end(), "none") == 3);
  CHECK(std::count(shown.begin(), shown.end(), "file") == 1);
  CHECK(own == std::vector<std::string>{"1", "selective", "none", "none"});
}

}  // namespace
}  // namespace trireme::plan
