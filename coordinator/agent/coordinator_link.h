// The line to the coordinator: dials, says hello, sends reports, hears the desired state; dials
// again for ever when it is cut.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "coordinator/client/client.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::agent {

// One thread; nothing here blocks but the destructor, for moments.
class CoordinatorLink {
 public:
  // Does not dial yet. Errors: those of client::Client::Open.
  static absl::StatusOr<std::unique_ptr<CoordinatorLink>> Open(const client::ClientOptions& options,
                                                               const v1::AgentHello& hello);
  virtual ~CoordinatorLink() = default;

  // Dials if it is time to. True: a line has been made anew since the last call, so that the
  // coordinator knows nothing of us yet.
  virtual bool Poll(std::chrono::steady_clock::time_point now) = 0;
  // Of the line that Poll has told of.
  virtual v1::AgentWelcome welcome() const = 0;
  // The newest, if one came since the last call on the line that Poll has told of.
  virtual std::optional<v1::DesiredAttempts> TakeDesired() = 0;
  // Likewise.
  virtual std::optional<v1::Adopt> TakeAdopt() = 0;
  // When the newest report was sent that the coordinator has since taken (base::BoottimeNs); 0:
  // none on the line that Poll has told of.
  virtual int64_t TakenNs() const = 0;
  // Of the hello of lines from now on.
  virtual void SetServed(const v1::StorePosition& served) = 0;
  // Takes the place of one that is not under way yet; lost while there is no line.
  virtual void Send(v1::NodeReport report) = 0;
  virtual std::chrono::milliseconds report_interval() const = 0;
  // Why there is no line; OK: there is one.
  virtual absl::Status state() const = 0;
  // Lines that were refused, could not be made or were cut.
  virtual uint64_t failures() const = 0;
};

}  // namespace trireme::agent
