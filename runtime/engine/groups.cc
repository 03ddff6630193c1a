#include "runtime/engine/groups.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/comm/channels.h"
#include "runtime/comm/coded.h"
#include "runtime/comm/message_fabric.h"
#include "runtime/plan/job_checks.h"
#include "runtime/tensor/stream.h"

namespace trireme::engine {

namespace {

static_assert(2 * plan::kMostCuts <= comm::kCallerChannels);

absl::StatusOr<std::unique_ptr<comm::Communicator>> MakeGroup(comm::Fabric& fabric,
                                                              const std::vector<int>& ranks,
                                                              std::string_view name,
                                                              const comm::CodingRoom& coding = {}) {
  if (ranks.size() < 2) return std::unique_ptr<comm::Communicator>();
  return fabric.Group(ranks, name, coding);
}

// Programs of stages differ, but a group's ranks have the same room, and what coding did is told by
// all ranks or by none.
absl::StatusOr<plan::CodedPeaks> LargestOf(const plan::CodedPeaks& own,
                                           comm::Agreement& agreement) {
  double peaks[] = {own.sums ? 1.0 : 0.0, static_cast<double>(own.messages)};
  RETURN_IF_ERROR(agreement.Reduce(peaks, comm::ReduceOp::kMax));
  return plan::CodedPeaks{.sums = peaks[0] > 0, .messages = static_cast<size_t>(peaks[1])};
}

// The ranks of `others` hold copies of the same parameters, each summed in its own group of the
// kind of `sums`. A group with a window adds in another order than one without, and copies must
// stay equal to the bit: if one of them has none, none uses it.
absl::Status SumAlike(comm::Communicator& sums, comm::Communicator& others,
                      std::chrono::milliseconds deadline) {
  const std::unique_ptr<tensor::Stream> stream = tensor::MakeInlineStream();
  double without = sums.SumsInWindow() ? 0 : 1;
  RETURN_IF_ERROR(others.WaitHost(
      others.AllReduce(&without, 1, tensor::DType::kF64, comm::ReduceOp::kMax, *stream), deadline));
  if (without > 0) sums.LeaveWindow();
  return absl::OkStatus();
}

// Whether each replica sums whole buckets over its own tensor group too. Under ZeRO one replica
// alone sums a share, and the others get it from there.
bool ReplicasSumOverTensor(const v1::Plan& plan, const v1::StagePlan& stage) {
  return plan.job().parallelism().zero_stage() == 0 &&
         std::any_of(stage.buckets().begin(), stage.buckets().end(), [](const v1::Bucket& bucket) {
           return plan::IsPartialOver(bucket, v1::AXIS_TENSOR);
         });
}

comm::CodingRoom RoomForSums(const plan::CodedPeaks& own, const v1::Mesh& mesh) {
  if (!own.sums) return {};
  const int replicas = static_cast<int>(mesh.data());
  return {.collective_bytes = std::max(comm::kCodingBytes, comm::LeastCodedBytes(replicas))};
}

}  // namespace

absl::StatusOr<Groups> Groups::Make(const v1::Plan& plan, comm::Fabric& fabric,
                                    comm::Agreement& agreement, const Options& options) {
  const v1::Mesh& mesh = plan.mesh();
  if (fabric.size() != plan::RankCount(mesh)) {
    return absl::InvalidArgumentError(absl::StrCat("the plan is for ",
                                                   base::Counted(plan::RankCount(mesh), "rank"),
                                                   ", but there are ", fabric.size()));
  }
  Groups groups;
  groups.at = plan::CoordinatesOf(mesh, fabric.rank());
  const plan::Coordinates at = groups.at;
  std::vector<int> tensor, data, pipeline, tied;
  for (int rank = 0; rank < fabric.size(); ++rank) {
    const plan::Coordinates other = plan::CoordinatesOf(mesh, rank);
    const bool same_pipeline = other.pipeline == at.pipeline;
    const bool same_data = other.data == at.data;
    const bool same_tensor = other.tensor == at.tensor;
    if (same_pipeline && same_data) tensor.push_back(rank);
    if (same_pipeline && same_tensor) data.push_back(rank);
    if (same_data && same_tensor) pipeline.push_back(rank);
  }
  const bool edge = at.pipeline == 0 || at.pipeline + 1 == mesh.pipeline();
  if (options.tied_stages && edge && pipeline.size() > 1)
    tied = {pipeline.front(), pipeline.back()};
  groups.world = &agreement.group();
  ASSIGN_OR_RETURN(groups.tensor, MakeGroup(fabric, tensor, "tensor"));
  const v1::StagePlan& stage = plan.stages(static_cast<int>(at.pipeline));
  const plan::CodedPeaks own = plan::CodedPeaksOf(stage.step());
  ASSIGN_OR_RETURN(groups.coded, LargestOf(own, agreement));
  ASSIGN_OR_RETURN(groups.data, MakeGroup(fabric, data, "data", RoomForSums(own, mesh)));
  ASSIGN_OR_RETURN(groups.pipeline,
                   MakeGroup(fabric, pipeline, "pipeline", {.messages = groups.coded.messages}));
  ASSIGN_OR_RETURN(groups.tied, MakeGroup(fabric, tied, "tied"));
  if (groups.data != nullptr && groups.tensor != nullptr) {
    RETURN_IF_ERROR(SumAlike(*groups.data, *groups.tensor, options.deadline));
    if (ReplicasSumOverTensor(plan, stage)) {
      RETURN_IF_ERROR(SumAlike(*groups.tensor, *groups.data, options.deadline));
    }
  }
  return groups;
}

comm::Communicator* Groups::named(GroupName name) const {
  switch (name) {
    case GroupName::kWorld:
      return world;
    case GroupName::kTensor:
      return tensor.get();
    case GroupName::kData:
      return data.get();
    case GroupName::kPipeline:
      return pipeline.get();
    case GroupName::kTied:
      return tied.get();
  }
  return nullptr;
}

absl::Status Groups::status() const {
  for (int name = 0; name < kGroupNames; ++name) {
    const comm::Communicator* group = named(static_cast<GroupName>(name));
    if (group != nullptr && !group->status().ok()) return group->status();
  }
  return absl::OkStatus();
}

void Groups::Abort(const absl::Status& cause) {
  for (int name = 0; name < kGroupNames; ++name) {
    comm::Communicator* group = named(static_cast<GroupName>(name));
    if (group != nullptr) group->Abort(cause);
  }
}

// Groups share their rank's fabric, so driving one drives what is in flight on all.
void Groups::Progress() { world->Progress(); }

}  // namespace trireme::engine
