#include "coordinator/cli/exit_codes.h"

#include <fmt/format.h>

#include "coordinator/cli/control.h"
#include "coordinator/cli/print_error.h"

namespace trireme::cli {

const std::vector<ExitMeaning>& ExitMeanings() {
  static const std::vector<ExitMeaning> meanings = {
      {kOk, "done"},
      {kInternal, "internal error; of trireme check: something must be mended"},
      {kBadInput, "bad input: the message says what was expected"},
      {kDoesNotFit, "the plan does not fit: memory or ranks"},
      {kJobFailed,
       "the job failed, a checkpoint is damaged, a disk is full, or another process holds the "
       "folder"},
      {kCancelled, "cancelled"},
      {kUnreachable, "no coordinator answers in time, or it takes nothing more at present"},
      {kCheckpointed, "stopped or paused with a checkpoint: run or resume it to go on"},
      {kDenied, "the coordinator refuses it to you"},
      {kLeft, "left by Ctrl-C; the job runs on"}};
  return meanings;
}

std::string ExitCodeText() {
  std::string text = "Exit codes:";
  for (const ExitMeaning& one : ExitMeanings()) {
    text += fmt::format("\n  {:>3}  {}", one.code, one.meaning);
  }
  return text;
}

}  // namespace trireme::cli
