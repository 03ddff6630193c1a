// Proof that a plan can run, without running it: shapes, memory, every instruction once, every
// ticket waited for, no buffer reused while live, and no deadlock between the pipeline coordinates.
// Linear in the number of instructions.
#pragma once

#include "absl/status/status.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::plan {

// Checks the step, evaluation and generation programs of all pipeline coordinates against each
// other. The model of execution: SEND, RECV, REDUCE and GATHER issue and go on; WAIT blocks until
// the other side has issued too (rendezvous, first-in first-out per (sender, receiver, channel); a
// REDUCE of a tied bucket waits for the same one on the first and last coordinate); LOAD and NORM
// wait for every coordinate. Data and tensor groups run the same list on all members and so always
// match. An empty evaluation or generation program is skipped if it is empty everywhere.
// FailedPrecondition for the first fault found, naming program, stage (pipeline coordinate) and
// instruction.
absl::Status VerifyPlan(const v1::Plan& plan);

}  // namespace trireme::plan
