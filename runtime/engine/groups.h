// The communicators of one rank of the mesh.
#pragma once

#include <chrono>
#include <memory>

#include "absl/status/statusor.h"
#include "runtime/comm/agreement.h"
#include "runtime/comm/communicator.h"
#include "runtime/engine/step_trace.h"
#include "runtime/plan/coded_transfers.h"
#include "runtime/plan/planner.h"

namespace trireme::engine {

// Groups of one rank are null where they would hold it alone (world excepted).
struct Groups {
  plan::Coordinates at;
  comm::Communicator* world = nullptr;         // of the agreement
  std::unique_ptr<comm::Communicator> tensor;  // same pipeline and data coordinate
  std::unique_ptr<comm::Communicator> data;    // same pipeline and tensor coordinate
  std::unique_ptr<comm::Communicator>
      pipeline;  // same data and tensor coordinate; group rank = pipeline coordinate
  std::unique_ptr<comm::Communicator> tied;  // first and last stage of this (data, tensor)
  plan::CodedPeaks coded;                    // the largest of all ranks

  struct Options {
    bool tied_stages = false;
    std::chrono::milliseconds deadline{60000};
  };
  // Collective over all ranks of the fabric, which are those of `agreement`. Of the stages only
  // this rank's own is read.
  static absl::StatusOr<Groups> Make(const v1::Plan& plan, comm::Fabric& fabric,
                                     comm::Agreement& agreement, const Options& options);
  // Null where the rank is not in such a group, or alone in it.
  comm::Communicator* named(GroupName name) const;
  // The first failure among the groups.
  absl::Status status() const;
  void Progress();
  // All of them: whatever is under way ends, and the other ranks hear of it.
  void Abort(const absl::Status& cause);
};

}  // namespace trireme::engine
