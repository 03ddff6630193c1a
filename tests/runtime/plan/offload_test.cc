// What is moved out of the arena and back: every move, wait, slot and place of the plan is needed,
// and the verifier names what lacks.
#include "runtime/plan/offload.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "runtime/plan/planner.h"
#include "runtime/plan/verifier.h"
#include "tests/runtime/plan/sample_jobs.h"

namespace trireme::plan {
namespace {

using Catch::Contains;

std::string FaultOf(const v1::Plan& plan) { return std::string(VerifyPlan(plan).message()); }

struct OffloadShape {
  const char* schedule = "gpipe";
  const char* place = "file";
  int64_t zero = 0;
  int64_t micro_batches = 8;
};

v1::Plan OffloadedPlan(const OffloadShape& shape) {
  v1::JobSpec job = SmallJob();
  job.mutable_training()->set_global_batch_size(2 * shape.micro_batches);
  job.mutable_parallelism()->set_schedule(shape.schedule);
  job.mutable_parallelism()->set_zero_stage(shape.zero);
  job.mutable_offload()->set_optimizer_state(shape.place);
  job.mutable_offload()->set_activations(shape.place);
  job.mutable_offload()->set_piece_bytes(1024);
  auto plan = MakePlan(job, 4);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *std::move(plan);
}

bool IsMove(const v1::Instruction& instruction) {
  return instruction.kind() == v1::SWAP_OUT || instruction.kind() == v1::SWAP_IN;
}

// Positions of swaps and of their WAITs.
std::vector<int> MovesOf(const v1::Program& program) {
  std::set<uint32_t> tickets;
  std::vector<int> moves;
  for (int at = 0; at < program.instructions_size(); ++at) {
    const v1::Instruction& each = program.instructions(at);
    if (IsMove(each)) tickets.insert(each.ticket());
    if (IsMove(each) || (each.kind() == v1::WAIT && tickets.contains(each.ticket()))) {
      moves.push_back(at);
    }
  }
  return moves;
}

v1::Pool& FirstPool(v1::StagePlan& stage, v1::PoolKind kind) {
  for (v1::Pool& pool : *stage.mutable_pools()) {
    if (pool.kind() == kind) return pool;
  }
  FAIL("no such pool");
  return *stage.mutable_pools(0);
}

}  // namespace

TEST_CASE("offload: no move can be left out, and no wait for one left to the end") {
  for (const char* schedule : {"gpipe", "zb-h1"}) {
    const v1::Plan good = OffloadedPlan({.schedule = schedule, .zero = 1});
    REQUIRE(FaultOf(good) == "");
    for (int stage = 0; stage < 2; ++stage) {
      const v1::Program& step = good.stages(stage).step();
      for (const int at : MovesOf(step)) {
        INFO(schedule << ", stage " << stage << ", instruction " << at << ": "
                      << step.instructions(at).ShortDebugString());
        v1::Plan without = good;
        without.mutable_stages(stage)->mutable_step()->mutable_instructions()->DeleteSubrange(at,
                                                                                              1);
        CHECK(FaultOf(without) != "");
        // The last pieces' WAITs stand at the end already.
        const v1::Instruction& move = step.instructions(at);
        const bool ends = at + 20 > step.instructions_size();
        if (move.kind() != v1::WAIT || ends) continue;
        v1::Plan late = good;
        auto& list = *late.mutable_stages(stage)->mutable_step()->mutable_instructions();
        for (int i = at; i + 1 < list.size(); ++i) list.SwapElements(i, i + 1);
        CHECK(FaultOf(late) != "");
      }
    }
  }
}

TEST_CASE("offload: every slot, piece and bucket is meant") {
  const v1::Plan good = OffloadedPlan({.zero = 1});
  const v1::Program& step = good.stages(0).step();
  for (int at = 0; at < step.instructions_size(); ++at) {
    const v1::Instruction& each = step.instructions(at);
    if (!IsMove(each) && each.kind() != v1::STEP) continue;
    const auto spoilt = [&](const auto& spoil) {
      v1::Plan plan = good;
      spoil(*plan.mutable_stages(0)->mutable_step()->mutable_instructions(at));
      return FaultOf(plan);
    };
    INFO(each.ShortDebugString());
    using In = v1::Instruction;
    if (each.kind() == v1::STEP || each.pool() == v1::UPDATE) {
      CHECK(spoilt([](In& in) { in.set_update((in.update() + 1) % kUpdateSlots); }) != "");
      CHECK(spoilt([](In& in) { in.set_update(kUpdateSlots); }) != "");
      CHECK(spoilt([](In& in) { in.set_piece(in.piece() + 1); }) != "");
      CHECK(spoilt([](In& in) { in.set_bucket(in.bucket() + 1); }) != "");
    } else {
      CHECK(spoilt([](In& in) { in.set_stored(in.stored() + 1); }) != "");
      CHECK(spoilt([](In& in) { in.set_activation(in.activation() + 1); }) != "");
      CHECK(spoilt([](In& in) { in.set_micro_batch((in.micro_batch() + 1) % 8); }) != "");
      CHECK(spoilt([](In& in) { in.set_pool(v1::OUTPUT); }) != "");
    }
  }
}

TEST_CASE("offload: pools lie where the job wants them, and have the room") {
  for (const char* place : {"host", "file"}) {
    const v1::Plan good = OffloadedPlan({.place = place});
    const auto spoilt = [&](const auto& spoil) {
      v1::Plan plan = good;
      spoil(*plan.mutable_stages(0));
      return FaultOf(plan);
    };
    CHECK_THAT(spoilt([](v1::StagePlan& s) { FirstPool(s, v1::MOMENT1).set_place(v1::ARENA); }),
               Contains("MOMENT1") && Contains("the job wants it in"));
    CHECK_THAT(spoilt([](v1::StagePlan& s) { FirstPool(s, v1::GRADIENT).set_place(v1::FILE); }),
               Contains("GRADIENT") && Contains("the job wants it in"));
    CHECK_THAT(spoilt([](v1::StagePlan& s) { FirstPool(s, v1::MOMENT2).set_offset_bytes(64); }),
               Contains("inside"));
    CHECK_THAT(spoilt([](v1::StagePlan& s) { s.set_file_bytes(s.file_bytes() + 1); }),
               Contains("file_bytes"));
    CHECK_THAT(spoilt([](v1::StagePlan& s) { s.set_host_bytes(s.host_bytes() + 1); }),
               Contains("host_bytes"));
    const auto narrow = [](v1::PoolKind kind) {
      return [kind](v1::StagePlan& s) {
        FirstPool(s, kind).set_slot_bytes(FirstPool(s, kind).slot_bytes() / 2);
      };
    };
    CHECK_THAT(spoilt(narrow(v1::UPDATE)), Contains("UPDATE") && Contains("bytes, but pieces"));
    CHECK(spoilt(narrow(v1::STORED)) != "");
  }
}

// In as many pieces as it has, which is all that the program tells of their size.
TEST_CASE("offload: slots of state are as large as its pieces, not larger") {
  v1::JobSpec job = SmallJob();
  job.mutable_offload()->set_optimizer_state("file");
  auto plan = MakePlan(job, 4);
  REQUIRE(plan.ok());
  v1::StagePlan& stage = *plan->mutable_stages(0);
  v1::Pool& update = FirstPool(stage, v1::UPDATE);
  constexpr uint64_t kMore = 4096;
  update.set_slot_bytes(update.slot_bytes() + kMore);
  for (v1::Pool& pool : *stage.mutable_pools()) {
    if (pool.place() != v1::ARENA || pool.offset_bytes() <= update.offset_bytes()) continue;
    pool.set_offset_bytes(pool.offset_bytes() + kMore * update.slots());
  }
  stage.set_arena_bytes(stage.arena_bytes() + kMore * update.slots());
  CHECK_THAT(FaultOf(*plan), Contains("stage 0: slots of the pool UPDATE are of"));
}

TEST_CASE("offload: memory of the machine beside the arena is memory too") {
  for (const char* place : {"none", "host", "file"}) {
    const v1::Plan plan = OffloadedPlan({.place = place});
    for (const v1::StagePlan& stage : plan.stages()) {
      uint64_t bytes = 0;
      for (const v1::Pool& pool : stage.pools()) {
        if (pool.place() != v1::FILE) bytes += pool.slot_bytes() * pool.slots();
      }
      INFO(place);
      // Pools begin on pages.
      CHECK(MemoryBytes(stage) >= bytes);
      CHECK(MemoryBytes(stage) < bytes + 4096 * static_cast<uint64_t>(stage.pools_size()));
    }
  }
}

// Recomputed from what was received, a stage in the middle keeps nothing.
TEST_CASE("offload: no move is of nothing") {
  v1::JobSpec job = SmallJob();
  job.mutable_model()->mutable_config()->set_num_hidden_layers(4);
  job.mutable_training()->set_global_batch_size(8);
  v1::ParallelismSpec& parallelism = *job.mutable_parallelism();
  parallelism.set_pipeline_parallel_size(4);
  parallelism.set_schedule("gpipe");
  parallelism.add_recompute("full");
  job.mutable_offload()->set_activations("file");
  const auto plan = MakePlan(job, 4);
  REQUIRE(plan.ok());
  std::set<bool> keeps;
  for (v1::StagePlan stage : plan->stages()) {
    const uint64_t kept =
        FirstPool(stage, v1::ACTIVATION).slot_bytes() + FirstPool(stage, v1::STASH).slot_bytes();
    CHECK((MovesOf(stage.step()).empty() || kept > 0));
    keeps.insert(kept > 0);
  }
  CHECK(keeps.contains(false));
}

// Where backward is near, a move would be waited for.
TEST_CASE("offload: activations go where their backward is far, and only there") {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    const v1::Plan plan = OffloadedPlan({.schedule = schedule});
    for (const v1::StagePlan& stage : plan.stages()) {
      std::map<uint32_t, int> forward, backward;
      std::set<uint32_t> moved;
      int computes = 0;
      for (const v1::Instruction& each : stage.step().instructions()) {
        if (each.kind() == v1::SWAP_OUT && each.pool() == v1::ACTIVATION) {
          moved.insert(each.micro_batch());
        }
        const bool back = each.kind() == v1::I || each.kind() == v1::B;
        if (each.kind() != v1::F && each.kind() != v1::W && !back) continue;
        ++computes;
        if (each.kind() == v1::F) forward[each.micro_batch()] = computes;
        if (back) backward.emplace(each.micro_batch(), computes);
      }
      REQUIRE(forward.size() == 8);
      for (const auto& [micro_batch, at] : forward) {
        INFO(schedule << ", micro-batch " << micro_batch);
        CHECK(moved.contains(micro_batch) == (backward.at(micro_batch) > at + 3));
      }
    }
  }
}

TEST_CASE("offload: a job that offloads nothing has no moves") {
  const v1::Plan plan = OffloadedPlan({.place = "none"});
  for (const v1::StagePlan& stage : plan.stages()) {
    CHECK(MovesOf(stage.step()).empty());
    CHECK(stage.host_bytes() + stage.file_bytes() == 0);
  }
  v1::Plan with = plan;
  v1::Instruction& swap = *with.mutable_stages(0)->mutable_step()->add_instructions();
  swap.set_kind(v1::SWAP_IN);
  swap.set_pool(v1::UPDATE);
  swap.set_ticket(static_cast<uint32_t>(with.stages(0).step().instructions_size()));
  v1::Instruction& wait = *with.mutable_stages(0)->mutable_step()->add_instructions();
  wait.set_kind(v1::WAIT);
  wait.set_ticket(swap.ticket());
  CHECK_THAT(FaultOf(with), Contains("moves what the job does not offload"));
}

TEST_CASE("offload: pieces cover each bucket's share once, in order") {
  for (const int64_t zero : {0, 1, 2, 3}) {
    const v1::Plan plan = OffloadedPlan({.zero = zero});
    for (const v1::StagePlan& stage : plan.stages()) {
      const std::vector<v1::Bucket> buckets(stage.buckets().begin(), stage.buckets().end());
      const int64_t parts = zero > 0 ? 2 : 1;
      int64_t covered = 0;
      uint32_t bucket = 0;
      for (const StatePiece& piece : PiecesOf(plan, buckets)) {
        if (piece.bucket != bucket) CHECK(piece.bucket == bucket + 1);
        if (piece.bucket != bucket) CHECK(piece.piece == 0);
        bucket = piece.bucket;
        CHECK(piece.begin == covered);
        CHECK(piece.count * static_cast<int64_t>(UpdateBytes(plan.job())) <= 1024);
        covered += piece.count;
      }
      CHECK(bucket + 1 == buckets.size());
      CHECK(covered ==
            static_cast<int64_t>(buckets.back().offset() + buckets.back().count()) / parts);
    }
  }
}

TEST_CASE("offload: pieces too small for a plan are refused with the size that is enough") {
  v1::JobSpec job = LargeJob();
  job.mutable_parallelism()->set_pipeline_parallel_size(1);
  job.mutable_parallelism()->set_schedule("1f1b");
  job.mutable_model()->mutable_config()->set_num_hidden_layers(4);
  job.mutable_training()->set_global_batch_size(4);
  job.mutable_offload()->set_optimizer_state("file");
  job.mutable_offload()->set_piece_bytes(1024);
  const auto refused = MakePlan(job, 8);
  CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string text(refused.status().message());
  CHECK_THAT(text, Contains("offload.piece_bytes: 1024"));
  job.mutable_offload()->set_piece_bytes(std::stoll(text.substr(text.rfind("use ") + 4)));
  CHECK(MakePlan(job, 8).ok());
}

// Its pieces are as large as `piece_bytes` says, or as the planner finds good if that is 0.
v1::Plan PlanOfPieces(v1::JobSpec job, const char* place, int64_t piece_bytes, int ranks) {
  job.mutable_offload()->set_optimizer_state(place);
  job.mutable_offload()->set_piece_bytes(piece_bytes);
  auto plan = MakePlan(job, ranks);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *std::move(plan);
}

TEST_CASE("offload: the arena is never larger with it than without") {
  v1::JobSpec job = SmallJob();
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  const int64_t hidden = GENERATE(2, 4, 16, 60, 192);
  config.set_hidden_size(hidden);
  config.set_intermediate_size(4 * hidden);
  config.set_head_dim(hidden / 2);
  config.set_num_hidden_layers(5);
  job.mutable_training()->set_dtype(GENERATE("f32", "bf16"));
  job.mutable_parallelism()->set_pipeline_parallel_size(GENERATE(1, 4));
  job.mutable_parallelism()->set_bucket_bytes(GENERATE(1024, 4 << 20));
  job.mutable_parallelism()->set_zero_stage(1);
  const v1::Plan without = PlanOfPieces(job, "none", 0, 4);
  for (const int64_t piece_bytes : {int64_t{0}, int64_t{1024}, int64_t{32} << 20}) {
    CAPTURE(hidden, piece_bytes, job.parallelism().ShortDebugString());
    const v1::Plan with = PlanOfPieces(job, "file", piece_bytes, 4);
    for (int stage = 0; stage < with.stages_size(); ++stage) {
      CHECK(with.stages(stage).arena_bytes() <= without.stages(stage).arena_bytes());
    }
  }
}

TEST_CASE("offload: pieces are a 64th of the state, of sizes that disks read well") {
  const auto slot_bytes = [](v1::JobSpec job, int64_t piece_bytes, int ranks) {
    v1::Plan plan = PlanOfPieces(std::move(job), "file", piece_bytes, ranks);
    return FirstPool(*plan.mutable_stages(0), v1::UPDATE).slot_bytes();
  };
  // 12 C^2 weights of a layer, with 8 bytes of moments each.
  v1::JobSpec job = SmallJob();
  v1::ModelConfig& config = *job.mutable_model()->mutable_config();
  config.set_hidden_size(768);
  config.set_intermediate_size(3072);
  config.set_head_dim(384);
  config.set_num_hidden_layers(8);
  const double weights = 4 * 12 * 768.0 * 768;
  CHECK(static_cast<double>(slot_bytes(job, 0, 4)) == Approx(8 * weights / 64).epsilon(0.01));
  CHECK(slot_bytes(job, 1 << 20, 4) == 1 << 20);
  // A quarter of little state, 32 MiB of much.
  CHECK(slot_bytes(SmallJob(), 0, 4) < 32 << 10);
  v1::JobSpec large = LargeJob();
  large.mutable_parallelism()->set_zero_stage(0);
  large.mutable_parallelism()->set_pipeline_parallel_size(12);
  CHECK(slot_bytes(large, 0, 96) == 32 << 20);
}

TEST_CASE("offload: pieces of all stages together are bounded") {
  v1::JobSpec job = LargeJob();
  job.mutable_parallelism()->set_zero_stage(0);
  job.mutable_training()->set_global_batch_size(4);
  job.mutable_offload()->set_optimizer_state("file");
  job.mutable_offload()->set_piece_bytes(256 << 10);  // 7,000 a stage, of 96
  const auto refused = MakePlan(job, 768);
  CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
  const std::string text(refused.status().message());
  CHECK_THAT(text, Contains("offload.piece_bytes: 262144") && Contains("all stages"));
  job.mutable_offload()->set_piece_bytes(std::stoll(text.substr(text.rfind("use ") + 4)));
  const auto plan = MakePlan(job, 768);
  INFO(plan.status().ToString());
  CHECK(plan.ok());
}

}  // namespace trireme::plan
