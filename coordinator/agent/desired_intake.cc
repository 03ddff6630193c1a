#include "coordinator/agent/desired_intake.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "runtime/base/status_macros.h"

namespace trireme::agent {

void DesiredIntake::Act(bool anew) {
  if (anew) {
    store_.Meet(link_.welcome());
    waiting_.reset();  // of another line
    met_ = true;
    refusal_told_ = false;
  }
  if (const auto adopt = link_.TakeAdopt()) store_.Adopt(adopt->revision());
  if (auto desired = link_.TakeDesired()) waiting_ = std::move(desired);
  refuses_ = met_ && !store_.Serves(keeper_.HoldsLive(), waiting_ ? waiting_->revision() : 0);
  if (refuses_) TellRefusal();
  if (refuses_ || !waiting_) return;
  keeper_.SetDesired(*waiting_);
  const absl::Status noted = store_.Note(waiting_->store());
  if (!noted.ok()) spdlog::warn("{}", base::MessageOf(noted));  // with the next one
  link_.SetServed(store_.served());
  waiting_.reset();
}

void DesiredIntake::TellRefusal() {
  if (std::exchange(refusal_told_, true)) return;
  const std::string theirs = link_.welcome().store().store();
  const std::string& served = store_.served().store();
  const std::string what =
      theirs == served ? "an older state of the one whose attempts run here, or another copy"
                       : (theirs.empty() ? "without a name" : theirs) +
                             ", not the one whose attempts run here (" + served + ")";
  spdlog::warn(
      "the daemon's store is {}: they run on, and nothing it says is acted on until: trireme nodes "
      "adopt",
      what);
}

}  // namespace trireme::agent
