// The verifier accepts good plans and names the fault of each kind of broken one.
#include "runtime/plan/verifier.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "tests/runtime/plan/forget_axis.h"
#include "tests/runtime/plan/sample_plan.h"

namespace trireme::plan {
namespace {

using Catch::Contains;

std::string Verdict(const v1::Plan& plan) {
  const absl::Status status = VerifyPlan(plan, SampleFacts(plan));
  if (status.ok()) return "";
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  return std::string(status.message());
}

using Match = std::function<bool(const v1::Instruction&)>;

Match Of(v1::InstructionKind kind, uint32_t micro_batch) {
  return
      [=](const v1::Instruction& i) { return i.kind() == kind && i.micro_batch() == micro_batch; };
}
Match Of(v1::InstructionKind kind) {
  return [=](const v1::Instruction& i) { return i.kind() == kind; };
}

int Find(const v1::Program& program, const Match& match) {
  for (int i = 0; i < program.instructions_size(); ++i) {
    if (match(program.instructions(i))) return i;
  }
  FAIL("no such instruction");
  return -1;
}

void Drop(v1::Program& program, int at) { program.mutable_instructions()->DeleteSubrange(at, 1); }

void Move(v1::Program& program, int from, int to) {
  auto& list = *program.mutable_instructions();
  for (; from < to; ++from) list.SwapElements(from, from + 1);
  for (; from > to; --from) list.SwapElements(from, from - 1);
}

// 1F1B of 3 coordinates and 4 micro-batches, changed on one coordinate.
std::string Broken(uint32_t rank, const std::function<void(v1::StagePlan&)>& change,
                   const char* schedule = "1f1b") {
  v1::Plan plan = SamplePlan(schedule, {3, 4, 1});
  change(*plan.mutable_stages(static_cast<int>(rank)));
  return Verdict(plan);
}

TEST_CASE("good plans of every schedule pass") {
  for (uint32_t ranks = 1; ranks <= 5; ++ranks) {
    for (uint32_t count = 1; count <= 9; ++count) {
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
        CHECK(Verdict(SamplePlan(schedule, {ranks, count, 1})) == "");
      }
      for (uint32_t stages : {2u, 3u}) {
        CHECK(Verdict(SamplePlan("interleaved", {ranks, count, stages})) == "");
      }
    }
  }
}

TEST_CASE("any single instruction left out, doubled or moved to the front is noticed") {
  for (const char* schedule : {"1f1b", "zb-h1", "interleaved"}) {
    const v1::Plan good =
        SamplePlan(schedule, {2, 2, std::string(schedule) == "interleaved" ? 2u : 1u});
    for (int rank = 0; rank < 2; ++rank) {
      const int size = good.stages(rank).step().instructions_size();
      for (int at = 0; at < size; ++at) {
        INFO(schedule << ", stage " << rank << ", instruction " << at << ": "
                      << good.stages(rank).step().instructions(at).ShortDebugString());
        v1::Plan dropped = good;
        Drop(*dropped.mutable_stages(rank)->mutable_step(), at);
        CHECK(Verdict(dropped) != "");
        v1::Plan doubled = good;
        v1::Program& program = *doubled.mutable_stages(rank)->mutable_step();
        *program.add_instructions() = good.stages(rank).step().instructions(at);
        CHECK(Verdict(doubled) != "");
        const v1::InstructionKind kind = good.stages(rank).step().instructions(at).kind();
        if (at == 0 || kind == v1::RECV_ACT || kind == v1::RECV_GRAD) continue;  // early is fine
        v1::Plan moved = good;
        Move(*moved.mutable_stages(rank)->mutable_step(), at, 0);
        CHECK(Verdict(moved) != "");
      }
    }
  }
}

TEST_CASE("a missing or doubled compute instruction is named") {
  CHECK_THAT(Broken(1,
                    [](v1::StagePlan& stage) {
                      Drop(*stage.mutable_step(), Find(stage.step(), Of(v1::B, 2)) + 1);
                    }),
             Contains("stage 1, step, instruction") &&
                 Contains("B, virtual stage 0, micro-batch 2") &&
                 Contains("but the stage has 2 operators"));
  CHECK_THAT(Broken(1,
                    [](v1::StagePlan& stage) {
                      const int at = Find(stage.step(), Of(v1::F, 2));
                      stage.mutable_step()->mutable_instructions(at + 1)->set_op_begin(0);
                    }),
             Contains("covers operators [0, 2), but [0, 1) are done"));
  CHECK_THAT(Broken(
                 1,
                 [](v1::StagePlan& stage) {
                   const int at = Find(stage.step(), Of(v1::W, 3));
                   Drop(*stage.mutable_step(), at);
                   Drop(*stage.mutable_step(), at);
                 },
                 "zb-h1"),
             Contains("W of virtual stage 0, micro-batch 3 is missing"));
  CHECK_THAT(Broken(0,
                    [](v1::StagePlan& stage) {
                      Drop(*stage.mutable_evaluate(), Find(stage.evaluate(), Of(v1::SEND_ACT, 3)));
                    }),
             Contains("evaluate"));
}

TEST_CASE("tickets are issued once and waited for once") {
  CHECK_THAT(
      Broken(1,
             [](v1::StagePlan& stage) {
               const uint32_t ticket =
                   stage.step().instructions(Find(stage.step(), Of(v1::SEND_ACT, 1))).ticket();
               Drop(*stage.mutable_step(), Find(stage.step(), [=](const v1::Instruction& i) {
                 return i.kind() == v1::WAIT && i.ticket() == ticket;
               }));
             }),
      Contains("SEND_ACT, virtual stage 0, micro-batch 1") && Contains("no WAIT for its ticket"));
  CHECK_THAT(Broken(1,
                    [](v1::StagePlan& stage) {
                      *stage.mutable_step()->add_instructions() =
                          stage.step().instructions(Find(stage.step(), Of(v1::WAIT)));
                    }),
             Contains("was waited for already"));
  CHECK_THAT(Broken(1,
                    [](v1::StagePlan& stage) {
                      stage.mutable_step()->mutable_instructions(0)->set_ticket(3);
                    }),
             Contains("issues nothing"));
}

TEST_CASE("an input is waited for before it is read, and computed before it is sent") {
  CHECK_THAT(Broken(1,
                    [](v1::StagePlan& stage) {
                      const int receive = Find(stage.step(), Of(v1::RECV_GRAD, 1));
                      Move(*stage.mutable_step(), receive + 1, receive + 2);  // WAIT behind B
                    }),
             Contains("reads what RECV_GRAD") && Contains("before the WAIT"));
  CHECK_THAT(Broken(0,
                    [](v1::StagePlan& stage) {
                      const int send = Find(stage.step(), Of(v1::SEND_ACT, 1));
                      Move(*stage.mutable_step(), send, send - 1);
                    }),
             Contains("sends what is computed only at instruction"));
}

TEST_CASE("a circle of waits is reported with every stage in it") {
  v1::Plan plan = SamplePlan("1f1b", {2, 2, 1});
  // The first stage waits for its send of micro-batch 0 only after the second one's gradient of it
  // ... and the second wants micro-batch 1 before it gives that gradient, which the first computes
  // later.
  v1::Program& second = *plan.mutable_stages(1)->mutable_step();
  const int receive = Find(second, Of(v1::RECV_ACT, 1));
  const int backward = Find(second, Of(v1::B, 0));
  for (int i = 0; i < 4; ++i) Move(second, receive + i, backward + i);
  v1::Program& first = *plan.mutable_stages(0)->mutable_step();
  const int gradient = Find(first, Of(v1::RECV_GRAD, 0));
  const int forward = Find(first, Of(v1::F, 1));
  for (int i = 0; i < 4; ++i) Move(first, gradient + i, forward + i);
  CHECK_THAT(Verdict(plan),
             Contains("deadlock in step: stage 0 waits at instruction 5 (WAIT of "
                      "RECV_GRAD, virtual stage 0, micro-batch 0) for stage 1, which "
                      "waits at instruction 6 (WAIT of RECV_ACT, virtual stage 0, "
                      "micro-batch 1) for stage 0 (a circle)"));
}

TEST_CASE("sends waited for at once deadlock where both neighbours send first") {
  v1::Plan plan = SamplePlan("1f1b", {2, 2, 1});
  for (int rank = 0; rank < 2; ++rank) {
    v1::Program& program = *plan.mutable_stages(rank)->mutable_step();
    for (int at = 0; at < program.instructions_size(); ++at) {
      const v1::Instruction& send = program.instructions(at);
      if (send.kind() != v1::SEND_ACT && send.kind() != v1::SEND_GRAD) continue;
      const uint32_t ticket = send.ticket();
      Move(program,
           Find(program,
                [=](const v1::Instruction& i) {
                  return i.kind() == v1::WAIT && i.ticket() == ticket;
                }),
           at + 1);
    }
  }
  CHECK_THAT(Verdict(plan),
             Contains("deadlock") && Contains("WAIT of SEND_ACT") && Contains("WAIT of SEND_GRAD"));
}

TEST_CASE("transfers go to the right neighbour, in the order of the queue") {
  CHECK_THAT(Broken(1,
                    [](v1::StagePlan& stage) {
                      const int at = Find(stage.step(), Of(v1::SEND_ACT, 1));
                      stage.mutable_step()->mutable_instructions(at)->set_peer(-1);
                    }),
             Contains("peer -1, expected 1"));
  CHECK_THAT(Broken(0,
                    [](v1::StagePlan& stage) {
                      const int at = Find(stage.step(), Of(v1::SEND_ACT, 1));
                      stage.mutable_step()->mutable_instructions(at)->set_channel(77);
                    }),
             Contains("channel 77 has no matching receive") || Contains("meets another message"));
  CHECK_THAT(Broken(0,
                    [](v1::StagePlan& stage) {
                      const int a = Find(stage.step(), Of(v1::SEND_ACT, 2));
                      const int b = Find(stage.step(), Of(v1::SEND_ACT, 3));
                      Move(*stage.mutable_step(), a, b);
                    }),
             Contains("meets another message") && Contains("RECV_ACT"));
  CHECK_THAT(Broken(0,
                    [](v1::StagePlan& stage) {
                      *stage.mutable_step()->add_instructions() =
                          stage.step().instructions(Find(stage.step(), Of(v1::RECV_GRAD, 0)));
                      auto& last = *stage.mutable_step()->mutable_instructions()->rbegin();
                      last.set_kind(v1::RECV_ACT);
                      last.set_ticket(30);
                    }),
             Contains("first stage of the model and has no neighbour"));
}

TEST_CASE("a slot is not given away while it is live") {
  const auto reuse = [](void (v1::Instruction::*set)(uint32_t), uint32_t from, uint32_t slot) {
    return [=](v1::StagePlan& stage) {
      for (v1::Instruction& i : *stage.mutable_step()->mutable_instructions()) {
        if (i.kind() >= v1::F && i.kind() <= v1::RECV_GRAD && i.micro_batch() == from)
          (i.*set)(slot);
      }
    };
  };
  CHECK_THAT(
      Broken(1, reuse(&v1::Instruction::set_activation, 1, 0)),
      Contains("slot 0 of the pool ACTIVATION of virtual stage 0 while micro-batch 0 still"));
  CHECK_THAT(Broken(1, reuse(&v1::Instruction::set_input, 1, 0)), Contains("pool INPUT"));
  CHECK_THAT(Broken(1, reuse(&v1::Instruction::set_output, 1, 0)),
             Contains("pool OUTPUT") && Contains("until stage 1, step, instruction") &&
                 Contains("WAIT of SEND_ACT, virtual stage 0, micro-batch 0"));
  CHECK_THAT(Broken(1, reuse(&v1::Instruction::set_gradient_out, 1, 0)),
             Contains("pool GRADIENT_OUT"));
  CHECK_THAT(Broken(1, reuse(&v1::Instruction::set_stash, 1, 0), "zb-h1"), Contains("pool STASH"));
  CHECK_THAT(Broken(1, reuse(&v1::Instruction::set_gradient_stash, 1, 0), "zb-h1"),
             Contains("pool GRADIENT_STASH"));
  CHECK_THAT(Broken(1, reuse(&v1::Instruction::set_gradient_in, 1, 0), "zb-h1"),
             Contains("pool GRADIENT_IN"));
  CHECK_THAT(Broken(1, reuse(&v1::Instruction::set_activation, 1, 4)), Contains("which has 4"));
  // Far enough apart, reuse is right: the last rank of 1F1B needs one activation.
  CHECK(Broken(2, reuse(&v1::Instruction::set_activation, 1, 0)) == "");
  CHECK_THAT(Broken(1,
                    [](v1::StagePlan& stage) {
                      const int at = Find(stage.step(), Of(v1::B, 1));
                      stage.mutable_step()->mutable_instructions(at)->set_activation(3);
                    }),
             Contains("uses slot 3 of the pool activation, but earlier"));
}

TEST_CASE("pools lie apart and fill the arena exactly") {
  CHECK_THAT(
      Broken(1, [](v1::StagePlan& stage) { stage.set_arena_bytes(stage.arena_bytes() + 1); }),
      Contains("but the last pool ends at"));
  CHECK_THAT(
      Broken(1, [](v1::StagePlan& stage) { stage.mutable_pools(1)->set_offset_bytes(4000); }),
      Contains("pool GRADIENT begins at byte 4000, inside stage 1: pool PARAMETER"));
  CHECK_THAT(
      Broken(1, [](v1::StagePlan& stage) { stage.mutable_pools(1)->set_kind(v1::PARAMETER); }),
      Contains("stands twice"));
  CHECK_THAT(Broken(1, [](v1::StagePlan& stage) { stage.mutable_pools(1)->set_slot_bytes(~0ull); }),
             Contains("does not fit 64 bits"));
}

TEST_CASE("pools begin on pages, and their slots on cache lines") {
  const auto last = [](v1::StagePlan& stage) {
    return stage.mutable_pools(stage.pools_size() - 1);
  };
  CHECK_THAT(Broken(1,
                    [&](v1::StagePlan& stage) {
                      last(stage)->set_offset_bytes(last(stage)->offset_bytes() + 64);
                      stage.set_arena_bytes(stage.arena_bytes() + 64);
                    }),
             Contains("pool GRADIENT_OUT of virtual stage 0 begins at byte") &&
                 Contains("expected a multiple of 4096"));
  CHECK_THAT(Broken(1,
                    [&](v1::StagePlan& stage) {
                      last(stage)->set_slot_bytes(last(stage)->slot_bytes() + 4);
                      stage.set_arena_bytes(stage.arena_bytes() + 4 * last(stage)->slots());
                    }),
             Contains("has slots of 260 bytes, expected a multiple of 64"));
}

TEST_CASE("a pool that virtual stages share is of the first") {
  for (const uint32_t virtual_stage : {1u, 7u, ~0u}) {
    const std::string fault = Broken(1, [&](v1::StagePlan& stage) {
      v1::Pool& pool = *stage.add_pools();
      pool.set_kind(v1::SCRATCH);
      pool.set_virtual_stage(virtual_stage);
      pool.set_offset_bytes((stage.arena_bytes() + 4095) / 4096 * 4096);
      pool.set_slot_bytes(64);
      pool.set_slots(1);
      stage.set_arena_bytes(pool.offset_bytes() + 64);
    });
    CHECK_THAT(fault,
               Contains("pool SCRATCH is of virtual stage " + std::to_string(virtual_stage)));
  }
}

TEST_CASE("no program may be missing on all stages") {
  const auto without = [](auto clear) {
    v1::Plan plan = SamplePlan("1f1b", {3, 4, 1});
    for (v1::StagePlan& stage : *plan.mutable_stages()) clear(stage);
    return Verdict(plan);
  };
  CHECK(without([](v1::StagePlan&) {}) == "");
  CHECK_THAT(without([](v1::StagePlan& stage) { stage.clear_step(); }), Contains("program step"));
  CHECK_THAT(without([](v1::StagePlan& stage) { stage.clear_evaluate(); }),
             Contains("no program evaluate"));
  CHECK_THAT(without([](v1::StagePlan& stage) { stage.clear_generate(); }),
             Contains("no program generate"));
}

TEST_CASE("buckets are reduced, waited for, stepped and gathered in this order") {
  const auto move = [](v1::InstructionKind kind, v1::InstructionKind before) {
    return [=](v1::StagePlan& stage) {
      Move(*stage.mutable_step(), Find(stage.step(), Of(kind)), Find(stage.step(), Of(before)));
    };
  };
  CHECK_THAT(Broken(1, move(v1::STEP, v1::NORM)), Contains("stands before NORM"));
  CHECK_THAT(Broken(1, move(v1::GATHER, v1::STEP)), Contains("stands before the STEP"));
  CHECK_THAT(Broken(1, move(v1::NORM, v1::REDUCE)), Contains("not waited for before NORM"));
  CHECK_THAT(Broken(1, move(v1::REDUCE, v1::B)), Contains("which writes its bucket"));
  CHECK_THAT(Broken(0, move(v1::F, v1::LOAD)), Contains("computes before LOAD"));
  CHECK_THAT(
      Broken(1, [](v1::StagePlan& stage) { stage.mutable_buckets(0)->add_axes(v1::AXIS_TIED); }),
      Contains("only the first and last coordinate can be"));
  CHECK_THAT(Broken(2, [](v1::StagePlan& stage) { stage.mutable_buckets(0)->set_count(512); }),
             Contains("has another size"));
  CHECK_THAT(
      Broken(2, [](v1::StagePlan& stage) { Forget(v1::AXIS_TIED, *stage.mutable_buckets(0)); }),
      Contains("has no matching tied REDUCE"));
  CHECK_THAT(Broken(2, [](v1::StagePlan& stage) { stage.mutable_buckets(0)->set_count(1023); }),
             Contains("positive multiple of 2 replicas"));
}

// Of a program: its REDUCE, or the WAIT for it.
int FindReduce(const v1::Program& program, bool wait) {
  const int reduce = Find(program, Of(v1::REDUCE));
  if (!wait) return reduce;
  const uint32_t ticket = program.instructions(reduce).ticket();
  return Find(program, [ticket](const v1::Instruction& each) {
    return each.kind() == v1::WAIT && each.ticket() == ticket;
  });
}

TEST_CASE("tied buckets are added up where both ends wait, not where they issue") {
  v1::Plan plan = SamplePlan("1f1b", {3, 4, 1});
  // Nothing writes the bucket, so its REDUCE may stand anywhere.
  std::vector<StageFacts> facts = SampleFacts(plan);
  for (StageFacts& stage : facts) stage.virtual_stages[0].writes.clear();
  for (const int stage : {0, 2}) {
    v1::Program& program = *plan.mutable_stages(stage)->mutable_step();
    Move(program, FindReduce(program, /*wait=*/false), 1);
  }
  CHECK(VerifyPlan(plan, facts).ok());
  // The last coordinate waits before it computes: the first one has issued its REDUCE, but gets to
  // its WAIT only after the backward that the last one has still to run.
  v1::Program& last = *plan.mutable_stages(2)->mutable_step();
  Move(last, FindReduce(last, /*wait=*/true), 2);
  CHECK_THAT(std::string(VerifyPlan(plan, facts).message()),
             Contains("deadlock in step") && Contains("WAIT of REDUCE of bucket 0") &&
                 Contains("a circle"));
  // Both early: they meet.
  v1::Program& first = *plan.mutable_stages(0)->mutable_step();
  Move(first, FindReduce(first, /*wait=*/true), 2);
  CHECK(VerifyPlan(plan, facts).ok());
}

TEST_CASE("transfers in flight are bounded") {
  v1::Plan plan = SamplePlan("gpipe", {2, 400, 1});
  CHECK(Verdict(plan) == "");
  // All sends are waited for at the end.
  v1::Program& program = *plan.mutable_stages(0)->mutable_step();
  for (int moved = 0, at = 0; moved < 144; ++at) {
    const v1::Instruction& each = program.instructions(at);
    if (each.kind() != v1::WAIT || each.ticket() > 400) continue;
    Move(program, at--, Find(program, Of(v1::REDUCE)) - 1);
    ++moved;
  }
  CHECK_THAT(Verdict(plan), Contains("384 transfers are in flight already"));
}

TEST_CASE("stages hold consecutive blocks of the whole model") {
  CHECK_THAT(Broken(1, [](v1::StagePlan& stage) { stage.set_first_block(0, 3); }),
             Contains("expected it to begin at 2"));
  CHECK_THAT(Broken(2, [](v1::StagePlan& stage) { stage.set_end_block(0, 5); }),
             Contains("the model has 6"));
}

TEST_CASE("a plan of 96 stages and 512 micro-batches is proven") {
  CHECK(Verdict(SamplePlan("zb-h1", {96, 512, 1})) == "");
}

}  // namespace
}  // namespace trireme::plan
