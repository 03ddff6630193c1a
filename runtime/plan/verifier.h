// Proof that a plan can run, without running it: shapes, memory, every operator and instruction
// once, every ticket waited for, no buffer reused while live, no bucket summed while it is written,
// and no deadlock between the pipeline coordinates. Linear in the number of instructions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/plan/stage_facts.h"
#include "runtime/plan/state_layout.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// Operations that a program may have issued and not yet waited for: REDUCEs and GATHERs, which a
// rank's data group holds, and transfers, which its pipeline group holds. A group of
// runtime/comm takes 2,048 (FabricOptions::operations), so that asynchronous streams may be behind.
constexpr uint32_t kMostBucketsInFlight = kMostBuckets;
constexpr uint32_t kMostTransfersInFlight = 384;

// Checks the step, evaluation and generation programs of all pipeline coordinates against each
// other. The model of execution: SEND, RECV, REDUCE and GATHER issue and go on; WAIT blocks until
// the other side has issued too (rendezvous, first-in first-out per (sender, receiver, channel));
// the WAIT of a tied bucket's REDUCE, or its SUM, in which the first and the last coordinate add
// up, blocks until the other one stands at its own; LOAD and NORM wait for every coordinate. Data
// and tensor groups run the same list on all members and so always match. An empty evaluation or
// generation program is skipped if it is empty everywhere. FailedPrecondition for the first fault
// found, naming program, stage (pipeline coordinate) and instruction. The operators are lowered
// anew from the plan's model, mesh and blocks.
absl::Status VerifyPlan(const v1::Plan& plan);
// With the operators' facts, by pipeline coordinate, at hand.
absl::Status VerifyPlan(const v1::Plan& plan, const std::vector<StageFacts>& facts);

}  // namespace trireme::plan
