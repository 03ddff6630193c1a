// RankAgreement by the engine's own collectives.
#pragma once

#include <string>

#include "runtime/base/status_macros.h"
#include "runtime/engine/engine.h"
#include "runtime/plan/planner.h"
#include "worker/session.h"
#include "worker/shared_checkpoints.h"

namespace trireme::worker {

// `session` must outlive it.
class EngineAgreement final : public RankAgreement {
 public:
  explicit EngineAgreement(Session& session)
      : engine_(session.engine()), ranks_(plan::RankCount(session.plan().mesh())) {}
  int rank() const override { return engine_.rank(); }
  int ranks() const override { return ranks_; }
  absl::StatusOr<bool> AllAgree(bool yes) override { return engine_.AllAgree(yes, kDiskDeadline); }
  // After what rank 0 alone does at its disk or terminal: the others wait for it so long, and it
  // waits for them as within a step, so that a silent one is given up in time.
  absl::StatusOr<bool> AllAgreeAfterRankZero(bool yes) {
    return rank() == 0 ? engine_.AllAgree(yes) : AllAgree(yes);
  }
  absl::Status AllOk(const absl::Status& own) override { return engine_.AllOk(own, kDiskDeadline); }
  absl::Status Share(std::string& text) override {
    // Sharing itself has only the patience of a step.
    RETURN_IF_ERROR(AllAgree(true).status());
    return engine_.Share(text);
  }

 private:
  engine::Engine& engine_;
  const int ranks_;
};

}  // namespace trireme::worker
