// What a planted bug changes, and the job that it is planted in. Whatever a Plant does not name is
// the product as it is, so the healthy twin of a case is the same job with an empty Plant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/format/state.h"
#include "runtime/data/sample_order.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/mutation.h"
#include "runtime/kernels/kernel.h"
#include "runtime/plan/planner.h"
#include "tests/runtime/engine/layout_run.h"
#include "trireme/v1/job_spec.pb.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::silent_bugs {

struct Job {
  engine::TinyJobOptions model = {.layers = 2};
  engine::Layout layout;
  std::function<void(v1::JobSpec&)> tweak;
  // A run that is saved half-way and goes on from the checkpoint; the bug is in the save, or in
  // what follows.
  bool resumes = false;
};

// A rank of a job that is saved or restored.
struct Place {
  int rank = 0;
  plan::Coordinates at;
};

using Shards = std::vector<checkpoint::StateShard>;
using Memory = std::deque<std::vector<std::byte>>;

struct Plant {
  // In runtime/engine, where the bug lived.
  engine::Mutation mutation = engine::Mutation::kCount;
  // In the job that the ranks run, behind whoever asked for another.
  std::function<void(v1::JobSpec&)> job;
  // In the plan, behind the planner. `runs_plan`: what the plan check refuses can be run in spite
  // of it, and gives the same numbers each time; else `mutation` stands for it.
  std::function<void(v1::Plan&)> plan;
  bool runs_plan = true;
  // Kernels before those of the job.
  std::function<void(kernels::KernelRegistry&, const v1::JobSpec&)> kernels;
  // In a rank's memory before a step.
  std::function<void(engine::Engine&, uint64_t step)> before_step;
  // Which window of the text a replica reads for a sample; `first`: of this part of the run.
  std::function<int64_t(const data::SampleOrder&, uint32_t replica, int64_t sample, int64_t first)>
      start;
  // What a rank hands over to be saved, `memory` outliving it; false: it dies before it writes.
  std::function<bool(const Place&, Shards&, Memory& memory)> save;
  // All ranks but the first write one step later than that.
  bool torn = false;
  // On the disk, in a checkpoint that is committed.
  std::function<void(const std::string& folder)> disk;
  // What a rank asks of the checkpoint.
  std::function<void(const Place&, Shards&)> restore;
};

}  // namespace trireme::silent_bugs
