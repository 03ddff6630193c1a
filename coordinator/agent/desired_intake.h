// The daemon's desired state reaches the keeper here, or not: docs/adr/0018.
#pragma once

#include <optional>

#include "coordinator/agent/coordinator_link.h"
#include "coordinator/agent/served_store.h"
#include "coordinator/keeper/keeper.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::agent {

// One thread. All outlive it.
class DesiredIntake {
 public:
  DesiredIntake(CoordinatorLink& link, keeper::Keeper& keeper, ServedStore& store)
      : link_(link), keeper_(keeper), store_(store) {}

  // Takes what came over the line, and passes it on if it is to be acted on. `anew`: a line has
  // been made.
  void Act(bool anew);
  // No desired state of the daemon at the other end is acted on.
  bool refuses() const { return refuses_; }

 private:
  void TellRefusal();

  CoordinatorLink& link_;
  keeper::Keeper& keeper_;
  ServedStore& store_;
  std::optional<v1::DesiredAttempts> waiting_;
  bool met_ = false;  // there has been a line
  bool refuses_ = false;
  bool refusal_told_ = false;
};

}  // namespace trireme::agent
