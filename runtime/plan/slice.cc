#include "runtime/plan/slice.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <string>

#include "runtime/base/check.h"
#include "runtime/base/philox.h"
#include "runtime/plan/planner.h"

namespace trireme::plan {

namespace {

namespace io = google::protobuf::io;

int StageOf(const v1::Plan& plan, int rank) {
  const int stage = static_cast<int>(CoordinatesOf(plan.mesh(), rank).pipeline);
  TRIREME_CHECK(rank >= 0 && stage < plan.stages_size());
  return stage;
}

// Without programs, pools and buckets.
v1::StagePlan FactsOf(const v1::StagePlan& stage) {
  v1::StagePlan facts;
  *facts.mutable_first_block() = stage.first_block();
  *facts.mutable_end_block() = stage.end_block();
  *facts.mutable_fingerprint() = stage.fingerprint();
  facts.set_arena_bytes(stage.arena_bytes());
  facts.set_host_bytes(stage.host_bytes());
  facts.set_file_bytes(stage.file_bytes());
  facts.set_snapshot_bytes(stage.snapshot_bytes());
  return facts;
}

// The plan with the programs of stage `kept` alone; -1: with none.
v1::Plan Reduced(const v1::Plan& plan, int kept) {
  v1::Plan slice;
  slice.set_version(plan.version());
  *slice.mutable_job() = plan.job();
  *slice.mutable_mesh() = plan.mesh();
  slice.set_micro_batches(plan.micro_batches());
  slice.set_evaluation_micro_batches(plan.evaluation_micro_batches());
  slice.set_schedule(plan.schedule());
  slice.set_bubble(plan.bubble());
  slice.set_snapshot_slots(plan.snapshot_slots());
  for (int index = 0; index < plan.stages_size(); ++index) {
    const v1::StagePlan& stage = plan.stages(index);
    *slice.add_stages() = index == kept ? stage : FactsOf(stage);
  }
  return slice;
}

uint64_t Hash(const google::protobuf::Message& message) {
  std::string bytes;
  {
    io::StringOutputStream out(&bytes);
    io::CodedOutputStream coded(&out);
    coded.SetSerializationDeterministic(true);
    TRIREME_CHECK(message.SerializeToCodedStream(&coded));
  }
  return base::SiteOf(bytes);
}

}  // namespace

v1::Plan SliceOf(const v1::Plan& plan, int rank) { return Reduced(plan, StageOf(plan, rank)); }

SliceHash HashOf(const v1::Plan& plan, int rank) {
  return {.common = Hash(Reduced(plan, -1)), .stage = Hash(plan.stages(StageOf(plan, rank)))};
}

}  // namespace trireme::plan
