#include "runtime/engine/groups.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::engine {

namespace {

absl::StatusOr<std::unique_ptr<comm::Communicator>> MakeGroup(comm::Fabric& fabric,
                                                              const std::vector<int>& ranks,
                                                              std::string_view name,
                                                              const comm::CodingRoom& coding = {}) {
  if (ranks.size() < 2) return std::unique_ptr<comm::Communicator>();
  return fabric.Group(ranks, name, coding);
}

}  // namespace

absl::StatusOr<Groups> Groups::Make(const v1::Mesh& mesh, comm::Fabric& fabric,
                                    const Options& options) {
  if (fabric.size() != plan::RankCount(mesh)) {
    return absl::InvalidArgumentError(absl::StrCat("the plan is for ",
                                                   base::Counted(plan::RankCount(mesh), "rank"),
                                                   ", but there are ", fabric.size()));
  }
  Groups groups;
  groups.at = plan::CoordinatesOf(mesh, fabric.rank());
  const plan::Coordinates at = groups.at;
  std::vector<int> all, tensor, data, pipeline, tied;
  for (int rank = 0; rank < fabric.size(); ++rank) {
    const plan::Coordinates other = plan::CoordinatesOf(mesh, rank);
    all.push_back(rank);
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
  ASSIGN_OR_RETURN(groups.world, fabric.Group(all, "world"));
  ASSIGN_OR_RETURN(groups.tensor, MakeGroup(fabric, tensor, "tensor"));
  ASSIGN_OR_RETURN(groups.data, MakeGroup(fabric, data, "data", options.data_coding));
  ASSIGN_OR_RETURN(groups.pipeline,
                   MakeGroup(fabric, pipeline, "pipeline", options.pipeline_coding));
  ASSIGN_OR_RETURN(groups.tied, MakeGroup(fabric, tied, "tied"));
  return groups;
}

comm::Communicator* Groups::named(GroupName name) const {
  switch (name) {
    case GroupName::kWorld:
      return world.get();
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
  for (const auto* group : {&world, &tensor, &data, &pipeline, &tied}) {
    if (*group != nullptr && !(*group)->status().ok()) return (*group)->status();
  }
  return absl::OkStatus();
}

// Groups share their rank's fabric, so driving one drives what is in flight on all.
void Groups::Progress() { world->Progress(); }

}  // namespace trireme::engine
