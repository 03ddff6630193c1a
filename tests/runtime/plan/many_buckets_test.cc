// Models of thousands of parameters: stages have few buckets, none of which is waited for before
// backward is over, and the verifier holds programs to the number in flight.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "runtime/plan/planner.h"
#include "runtime/plan/verifier.h"
#include "runtime/spec/job_spec.h"
#include "tests/sanitizer.h"

namespace trireme::plan {
namespace {

using Catch::Contains;

v1::Plan PlanOf(int64_t layers, int64_t pipeline, int64_t zero, int64_t bucket_bytes) {
  v1::JobSpec job;
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_model_type("gpt2");
  config.set_num_hidden_layers(layers);
  config.set_hidden_size(32);
  config.set_num_attention_heads(4);
  config.set_vocab_size(50);
  config.set_max_position_embeddings(8);
  job.mutable_data()->set_sequence_length(8);
  job.mutable_training()->set_global_batch_size(8);
  job.mutable_training()->set_micro_batch_size(1);
  job.mutable_parallelism()->set_pipeline_parallel_size(pipeline);
  job.mutable_parallelism()->set_zero_stage(zero);
  job.mutable_parallelism()->set_bucket_bytes(bucket_bytes);
  spec::ApplyDefaults(job);
  const auto plan = MakePlan(job, static_cast<int>(2 * pipeline));
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *plan;
}

// Largest number in flight at once.
size_t MostInFlight(const v1::Program& program) {
  size_t most = 0;
  std::set<uint32_t> in_flight;  // tickets
  for (const v1::Instruction& each : program.instructions()) {
    if (each.kind() == v1::REDUCE || each.kind() == v1::GATHER) in_flight.insert(each.ticket());
    if (each.kind() == v1::WAIT) in_flight.erase(each.ticket());
    most = std::max(most, in_flight.size());
  }
  return most;
}

// REDUCEs waited for before the rank's last operator or message: neighbours would wait with it, and
// the rest of backward would hide no sum.
int EarlyWaits(const v1::Program& program) {
  int last = 0;
  for (int at = 0; at < program.instructions_size(); ++at) {
    const v1::InstructionKind kind = program.instructions(at).kind();
    if (kind != v1::WAIT && kind != v1::REDUCE && kind != v1::NORM && kind != v1::STEP &&
        kind != v1::GATHER) {
      last = at;
    }
  }
  int waits = 0;
  std::set<uint32_t> reduces;
  for (int at = 0; at < last; ++at) {
    const v1::Instruction& each = program.instructions(at);
    if (each.kind() == v1::REDUCE) reduces.insert(each.ticket());
    if (each.kind() == v1::WAIT) waits += reduces.contains(each.ticket()) ? 1 : 0;
  }
  return waits;
}

TEST_CASE("many buckets: a stage has at most a stated number, none of them waited for early") {
  for (const int64_t layers : {8, 96, 192}) {
    if (tests::kSanitizer && layers == 192) continue;
    for (const int64_t pipeline : {1, 2, 4}) {  // from 2 on a bucket is tied over the ends
      for (const int64_t zero : {0, 1}) {
        const v1::Plan plan = PlanOf(layers, pipeline, zero, 1024);
        INFO(layers << " layers, pipeline " << pipeline << ", zero " << zero);
        for (const v1::StagePlan& stage : plan.stages()) {
          const size_t buckets = static_cast<size_t>(stage.buckets_size());
          CHECK(buckets <= kMostBuckets);
          // No larger than that asks for. A layer has 12 parameters of 1024 bytes or more.
          CHECK(buckets > (layers == 8 ? 6u : kMostBuckets / 2));
          CHECK(MostInFlight(stage.step()) == buckets);
          CHECK(EarlyWaits(stage.step()) == 0);
        }
        CHECK(VerifyPlan(plan).ok());
      }
    }
  }
}

TEST_CASE("many buckets: where they are few, they have the size asked for") {
  const v1::Plan plan = PlanOf(8, 2, 1, 16384);
  for (const v1::StagePlan& stage : plan.stages()) {
    CHECK(stage.buckets_size() > 10);
    for (const v1::Bucket& bucket : stage.buckets()) CHECK(bucket.count() <= 16384 / 4);
  }
}

// What travels while the next bucket's STEP runs, and how much of it is waited for between STEPs.
TEST_CASE("many buckets: each GATHER follows its STEP at once and is waited for at the end") {
  for (const int64_t layers : {8, 96}) {
    for (const int64_t pipeline : {1, 2}) {
      const v1::Plan plan = PlanOf(layers, pipeline, 1, 4096);
      INFO("layers " << layers << ", pipeline " << pipeline);
      for (const v1::StagePlan& stage : plan.stages()) {
        const auto& program = stage.step().instructions();
        int norm = 0;
        while (program[norm].kind() != v1::NORM) ++norm;
        int gathers = 0;
        for (int at = norm + 1; at < program.size(); ++at) {
          const bool all = gathers == stage.buckets_size();
          INFO("instruction " << at);
          REQUIRE(program[at].kind() == (all ? v1::WAIT : v1::STEP));
          if (all) continue;
          const v1::Instruction& gather = program[++at];
          REQUIRE(gather.kind() == v1::GATHER);
          CHECK(gather.bucket() == program[at - 1].bucket());
          ++gathers;
        }
        CHECK(gathers == stage.buckets_size());
      }
    }
  }
}

TEST_CASE("many buckets: the verifier refuses one more in flight than may be") {
  v1::Plan plan = PlanOf(96, 1, 1, 4096);
  v1::Program& program = *plan.mutable_stages(0)->mutable_step();
  REQUIRE(2 * plan.stages(0).buckets_size() > static_cast<int>(kMostBuckets));
  // Sums that nobody waits for before the updated parameters travel.
  v1::Program late;
  std::set<uint32_t> reduces;
  std::vector<v1::Instruction> waits;
  for (const v1::Instruction& each : program.instructions()) {
    if (each.kind() == v1::REDUCE) reduces.insert(each.ticket());
    if (each.kind() == v1::WAIT && reduces.contains(each.ticket())) {
      waits.push_back(each);
    } else {
      *late.add_instructions() = each;
    }
  }
  for (const v1::Instruction& wait : waits) *late.add_instructions() = wait;
  program = late;
  CHECK_THAT(std::string(VerifyPlan(plan).message()),
             Contains("64 buckets are in flight already") && Contains("GATHER"));
}

}  // namespace
}  // namespace trireme::plan
