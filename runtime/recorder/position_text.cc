// Instruction kinds by their names in the plan.
#include "runtime/recorder/position_text.h"

#include <fmt/format.h>

#include "trireme/v1/plan.pb.h"

namespace trireme::recorder {

std::string DescribePosition(const Position& position) {
  const bool known = v1::InstructionKind_IsValid(static_cast<int>(position.kind));
  const auto kind = static_cast<v1::InstructionKind>(position.kind);
  std::string text = known && kind != v1::INSTRUCTION_UNSPECIFIED
                         ? v1::InstructionKind_Name(kind)
                         : fmt::format("instruction {}", position.instruction);
  switch (kind) {
    case v1::F:
    case v1::I:
    case v1::W:
    case v1::B:
    case v1::SEND_ACT:
    case v1::RECV_ACT:
    case v1::SEND_GRAD:
    case v1::RECV_GRAD:
      text += fmt::format(" of micro-batch {}, virtual stage {}", position.micro_batch,
                          position.virtual_stage);
      break;
    default:
      break;
  }
  if (position.peer >= 0) text += fmt::format(" (peer rank {})", position.peer);
  return text;
}

std::string DescribeWait(const Wait& wait) {
  if (wait.since_ns == 0) return "";
  std::string text = "waiting";
  if (wait.peer >= 0) text += fmt::format(" for rank {}", wait.peer);
  if (wait.peer >= 0 && wait.awaited > 1) text += fmt::format(" and {} more", wait.awaited - 1);
  return text +
         fmt::format(" {} group '{}'", wait.collective ? "in a collective of" : "over", wait.group);
}

std::string StateName(RankState state) {
  switch (state) {
    case RankState::kStarting:
      return "starting";
    case RankState::kRunning:
      return "running";
    case RankState::kStopped:
      return "stopped";
    case RankState::kFailed:
      return "failed";
  }
  return "unknown";
}

}  // namespace trireme::recorder
