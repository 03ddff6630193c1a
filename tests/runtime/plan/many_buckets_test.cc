// Stages of hundreds of buckets: the programs keep few in flight, and the verifier holds them to
// it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/plan/planner.h"
#include "runtime/plan/verifier.h"
#include "runtime/spec/job_spec.h"

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

struct Counts {
  size_t most = 0;  // in flight at once
  int early = 0;    // REDUCEs waited for before the last one is issued
};

Counts CountBuckets(const v1::Program& program) {
  Counts counts;
  std::map<uint32_t, v1::InstructionKind> in_flight;  // by ticket
  int since_reduce = 0;
  for (const v1::Instruction& each : program.instructions()) {
    if (each.kind() == v1::REDUCE || each.kind() == v1::GATHER) {
      in_flight[each.ticket()] = each.kind();
      counts.most = std::max(counts.most, in_flight.size());
    }
    if (each.kind() == v1::REDUCE) counts.early += std::exchange(since_reduce, 0);
    if (each.kind() == v1::WAIT) {
      const auto found = in_flight.find(each.ticket());
      if (found == in_flight.end()) continue;
      since_reduce += found->second == v1::REDUCE;
      in_flight.erase(found);
    }
  }
  return counts;
}

bool IsMessage(v1::InstructionKind kind) {
  return kind == v1::SEND_ACT || kind == v1::SEND_GRAD || kind == v1::RECV_ACT ||
         kind == v1::RECV_GRAD;
}

// REDUCEs waited for before the rank's last message is issued: neighbours would wait with it.
int WaitsBeforeMessages(const v1::Program& program) {
  int last_message = -1;
  for (int at = 0; at < program.instructions_size(); ++at) {
    if (IsMessage(program.instructions(at).kind())) last_message = at;
  }
  int waits = 0;
  std::set<uint32_t> reduces;
  for (int at = 0; at < last_message; ++at) {
    const v1::Instruction& each = program.instructions(at);
    if (each.kind() == v1::REDUCE) reduces.insert(each.ticket());
    if (each.kind() == v1::WAIT) waits += reduces.contains(each.ticket()) ? 1 : 0;
  }
  return waits;
}

TEST_CASE("many buckets: at most a stated number is in flight") {
  for (const int64_t pipeline : {1, 2}) {  // with 2, a bucket is tied over the ends
    for (const int64_t zero : {0, 1}) {
      const v1::Plan plan = PlanOf(96, pipeline, zero, 4096);
      INFO("pipeline " << pipeline << ", zero " << zero);
      for (const v1::StagePlan& stage : plan.stages()) {
        CHECK(stage.buckets_size() > 3 * static_cast<int>(kMostBucketsInFlight));
        const Counts counts = CountBuckets(stage.step());
        CHECK(counts.most == kMostBucketsInFlight);
        // No more is waited for early than must be.
        CHECK(counts.early == stage.buckets_size() - static_cast<int>(kMostBucketsInFlight));
        CHECK(WaitsBeforeMessages(stage.step()) == 0);
      }
      CHECK(VerifyPlan(plan).ok());
    }
  }
}

TEST_CASE("many buckets: few of them are waited for only when backward is over") {
  const v1::Plan plan = PlanOf(8, 2, 1, 4096);
  for (const v1::StagePlan& stage : plan.stages()) {
    CHECK(stage.buckets_size() > 10);
    const Counts counts = CountBuckets(stage.step());
    CHECK(counts.most == static_cast<size_t>(stage.buckets_size()));
    CHECK(counts.early == 0);
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
        std::vector<uint32_t> tickets;
        int early = 0;  // waits between the STEPs
        for (int at = norm + 1; at < program.size(); ++at) {
          const bool all = static_cast<int>(tickets.size()) == stage.buckets_size();
          if (program[at].kind() == v1::WAIT) {
            early += all ? 0 : 1;
            continue;
          }
          INFO("instruction " << at);
          REQUIRE(!all);
          REQUIRE(program[at].kind() == v1::STEP);
          const v1::Instruction& gather = program[++at];
          REQUIRE(gather.kind() == v1::GATHER);
          CHECK(gather.bucket() == program[at - 1].bucket());
          tickets.push_back(gather.ticket());
        }
        CHECK(static_cast<int>(tickets.size()) == stage.buckets_size());
        CHECK(early == std::max(0, stage.buckets_size() - static_cast<int>(kMostBucketsInFlight)));
      }
    }
  }
}

TEST_CASE("many buckets: the verifier refuses one more in flight than may be") {
  for (const v1::InstructionKind kind : {v1::REDUCE, v1::GATHER}) {
    v1::Plan plan = PlanOf(96, 1, 1, 4096);
    v1::Program& program = *plan.mutable_stages(0)->mutable_step();
    std::set<uint32_t> tickets;
    int wait = 0;
    for (;; ++wait) {
      const v1::Instruction& each = program.instructions(wait);
      if (each.kind() == kind) tickets.insert(each.ticket());
      if (each.kind() == v1::WAIT && tickets.contains(each.ticket())) break;
    }
    // It comes only after the operation that it makes room for.
    int next = wait + 1;
    while (program.instructions(next).kind() != kind) ++next;
    for (int at = wait; at < next; ++at) program.mutable_instructions()->SwapElements(at, at + 1);
    CHECK_THAT(
        std::string(VerifyPlan(plan).message()),
        Contains("64 buckets are in flight already") && Contains(v1::InstructionKind_Name(kind)));
  }
}

}  // namespace
}  // namespace trireme::plan
