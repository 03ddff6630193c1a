// Plans with snapshot slots: where the state lies, what is taken, and what the verifier refuses.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/plan/fit.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/planner.h"
#include "runtime/plan/slice.h"
#include "tests/runtime/plan/sample_jobs.h"

namespace trireme::plan {
namespace {

using Catch::Contains;

v1::Plan PlanOf(const std::string& dtype, int64_t zero, uint32_t slots) {
  v1::JobSpec job = SmallJob();
  job.mutable_training()->set_dtype(dtype);
  job.mutable_parallelism()->set_zero_stage(zero);
  job.mutable_parallelism()->set_pipeline_parallel_size(2);
  const auto plan = MakePlan(job, 4, {}, slots);
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  return *plan;
}

v1::Pool& PoolNamed(v1::StagePlan& stage, v1::PoolKind kind) {
  for (v1::Pool& pool : *stage.mutable_pools()) {
    if (pool.kind() == kind) return pool;
  }
  FAIL("no such pool");
  return *stage.mutable_pools(0);
}

constexpr v1::PoolKind kSlotPools[] = {v1::MASTER, v1::MOMENT1, v1::MOMENT2};

}  // namespace

TEST_CASE("snapshot slots: masters and moments of every dtype lie in each slot, on pieces") {
  for (const char* dtype : {"f64", "f32", "bf16"}) {
    for (const int64_t zero : {0, 1, 3}) {
      for (const uint32_t slots : {2u, 3u}) {
        v1::Plan plan = PlanOf(dtype, zero, slots), plain = PlanOf(dtype, zero, 0);
        CHECK(plan.snapshot_slots() == slots);
        CHECK(VerifyGiven(plan).ok());
        CHECK(SliceOf(plan, 3).snapshot_slots() == slots);
        for (int p = 0; p < 2; ++p) {
          INFO(dtype << ", zero " << zero << ", " << slots << " slots, stage " << p);
          v1::StagePlan& stage = *plan.mutable_stages(p);
          v1::StagePlan& before = *plain.mutable_stages(p);
          const uint64_t slot = SnapshotSlotBytes(plan, stage);
          CHECK(slot * slots == stage.snapshot_bytes());
          CHECK(slot % (2 << 20) == 0);
          uint64_t end = 0;
          for (const v1::PoolKind kind : kSlotPools) {
            const v1::Pool& pool = PoolNamed(stage, kind);
            CHECK(pool.place() == v1::SNAPSHOT);
            CHECK(pool.slots() == slots);
            CHECK(pool.slot_bytes() == PoolNamed(before, v1::MOMENT1).slot_bytes());
            CHECK(pool.offset_bytes() == (end + 65535) / 65536 * 65536);
            end = pool.offset_bytes() + pool.slot_bytes();
          }
          CHECK(end <= slot);
          CHECK(slot < end + (2 << 20));
          // The rest is what it was, but for what the arena has lost.
          uint64_t lost = 0;
          for (const v1::PoolKind kind : kSlotPools) {
            lost += (PoolNamed(before, kind).slot_bytes() + 4095) / 4096 * 4096;
          }
          CHECK(stage.arena_bytes() + lost == before.arena_bytes());
          CHECK(MemoryBytes(stage) == stage.arena_bytes() + stage.snapshot_bytes());
          CHECK(SliceOf(plan, 0).stages(p).snapshot_bytes() == stage.snapshot_bytes());
          CHECK(stage.step().SerializeAsString() == before.step().SerializeAsString());
        }
      }
    }
  }
}

TEST_CASE("snapshot slots: without them no byte of a plan tells of them") {
  const v1::Plan plain = PlanOf("f32", 1, 0);
  for (const v1::StagePlan& stage : plain.stages()) {
    CHECK(stage.snapshot_bytes() == 0);
    for (const v1::Pool& pool : stage.pools()) {
      CHECK(pool.place() != v1::SNAPSHOT);
      if (pool.kind() == v1::MASTER) CHECK(pool.slot_bytes() == 0);
    }
  }
  const auto same = MakePlan(plain.job(), 4);
  REQUIRE(same.ok());
  CHECK(same->SerializeAsString() == plain.SerializeAsString());
}

TEST_CASE("snapshot slots: a job that asks for snapshots gets two, in a version of its own") {
  v1::JobSpec job = PlanOf("bf16", 1, 0).job();
  const auto plain = MakePlan(job, 4);
  job.mutable_snapshots()->set_every_step(true);
  auto plan = MakePlan(job, 4);
  REQUIRE(plain.ok());
  REQUIRE(plan.ok());
  CHECK(plain->snapshot_slots() == 0);
  CHECK(plain->version() == 2);  // as all programs have read it
  CHECK(plan->snapshot_slots() == 2);
  CHECK(plan->version() == 3);  // which those before slots refuse
  CHECK(SliceOf(*plan, 3).version() == 3);
  CHECK(ParsePlan(SerializePlan(*plan)).ok());
  // The job's own number is only a default.
  CHECK(MakePlan(job, 4, {}, 3)->snapshot_slots() == 3);
  plan->set_version(2);
  CHECK_THAT(VerifyGiven(*plan).ToString(), Contains("version 2 and 2 snapshot slots"));
  v1::Plan without = *plain;
  without.set_version(3);
  CHECK_THAT(VerifyGiven(without).ToString(), Contains("version 3 and 0 snapshot slots"));
}

TEST_CASE("snapshot slots: where memory is short, --fit proposes to do without") {
  v1::JobSpec job = PlanOf("bf16", 1, 0).job();
  job.mutable_snapshots()->set_every_step(true);
  const auto plan = MakePlan(job, 4);
  REQUIRE(plan.ok());
  const FitLimit limit{.rank_bytes = MemoryBytes(plan->stages(0)) - 1};
  const auto report = FindFit(job, 4, limit);
  REQUIRE(report.ok());
  const auto without =
      std::find_if(report->choices.begin(), report->choices.end(), [](const FitChoice& choice) {
        return AsOptions(choice.changes) == "--set snapshots.every_step=false";
      });
  REQUIRE(without != report->choices.end());
  CHECK(without->largest.snapshot_bytes() == 0);
  CHECK(without->rank_bytes() < MemoryBytes(plan->stages(0)));
  // A job that asks for none is told nothing of them.
  const auto plain = FindFit(PlanOf("bf16", 1, 0).job(), 4, limit);
  REQUIRE(plain.ok());
  for (const FitChoice& choice : plain->choices) {
    CHECK(AsOptions(choice.changes).find("snapshots") == std::string::npos);
  }
}

TEST_CASE("snapshot slots: the verifier refuses places, numbers and sizes that are not meant") {
  const v1::Plan good = PlanOf("bf16", 1, 2);
  REQUIRE(VerifyGiven(good).ok());
  const auto spoilt = [&](const auto& spoil) {
    v1::Plan plan = good;
    spoil(plan, *plan.mutable_stages(1));
    return VerifyGiven(plan).ToString();
  };
  using P = v1::Plan;
  using S = v1::StagePlan;
  CHECK_THAT(spoilt([](P& plan, S&) { plan.set_snapshot_slots(0); }),
             Contains("SNAPSHOT") || Contains("snapshot"));
  CHECK_THAT(spoilt([](P& plan, S&) { plan.set_snapshot_slots(3); }), Contains("snapshot"));
  CHECK_THAT(spoilt([](P& plan, S&) { plan.set_snapshot_slots(1); }), Contains("from 2 to 8"));
  CHECK_THAT(spoilt([](P& plan, S&) { plan.set_snapshot_slots(9); }), Contains("from 2 to 8"));
  CHECK_THAT(spoilt([](P&, S& s) { PoolNamed(s, v1::MOMENT1).set_place(v1::ARENA); }),
             Contains("MOMENT1") && Contains("the job wants it in SNAPSHOT"));
  CHECK_THAT(spoilt([](P&, S& s) { PoolNamed(s, v1::GRADIENT).set_place(v1::SNAPSHOT); }),
             Contains("GRADIENT") && Contains("the job wants it in ARENA"));
  CHECK_THAT(spoilt([](P&, S& s) { PoolNamed(s, v1::MASTER).set_slots(1); }),
             Contains("has 1 slots, of snapshots the plan has 2"));
  CHECK_THAT(spoilt([](P&, S& s) { PoolNamed(s, v1::MASTER).set_slots(3); }),
             Contains("has 3 slots, of snapshots the plan has 2"));
  CHECK_THAT(spoilt([](P&, S& s) {
               v1::Pool& pool = PoolNamed(s, v1::MOMENT2);
               pool.set_offset_bytes(pool.offset_bytes() + 4096);
             }),
             Contains("expected a multiple of 65536"));
  CHECK_THAT(spoilt([](P&, S& s) { PoolNamed(s, v1::MOMENT2).set_offset_bytes(0); }),
             Contains("inside"));
  for (const uint64_t more :
       {uint64_t{1}, uint64_t{2}, uint64_t{4096}, uint64_t{2} << 20, uint64_t{4} << 20}) {
    CHECK_THAT(spoilt([&](P&, S& s) { s.set_snapshot_bytes(s.snapshot_bytes() + more); }),
               Contains("snapshot_bytes"));
    CHECK_THAT(spoilt([&](P&, S& s) { s.set_snapshot_bytes(s.snapshot_bytes() - more); }),
               Contains("snapshot_bytes"));
  }
  v1::Plan no_masters = PlanOf("f32", 1, 2);
  REQUIRE(VerifyGiven(no_masters).ok());
  PoolNamed(*no_masters.mutable_stages(1), v1::MASTER).set_slot_bytes(0);
  CHECK_THAT(VerifyGiven(no_masters).ToString(), Contains("MASTER"));
  v1::JobSpec job = SmallJob();
  job.mutable_offload()->set_optimizer_state("host");
  CHECK_THAT(MakePlan(job, 2, {}, 2).status().ToString(),
             Contains("offload.optimizer_state: host, but the plan has snapshot slots"));
}

}  // namespace trireme::plan
