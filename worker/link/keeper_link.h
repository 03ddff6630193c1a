// A rank's line to the keeper of its node: it is let in and gets its slice of the plan; then a
// thread tells once a second how the rank fares. A keeper that is away holds up nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trireme/v1/worker.pb.h"

namespace trireme::worker {

struct KeeperLinkOptions {
  std::string address;  // unix:PATH
  v1::JoinRequest who;
};

struct JoinPatience {
  std::chrono::milliseconds appear{1500};   // for the socket to be there
  std::chrono::milliseconds answer{10000};  // from then on
};

// One thread but for what is said otherwise.
class KeeperLink {
 public:
  // InvalidArgument: not unix:PATH. Does not dial yet.
  static absl::StatusOr<std::unique_ptr<KeeperLink>> Open(const KeeperLinkOptions& options);
  // Hangs up and waits for nobody.
  virtual ~KeeperLink() = default;

  // The slice of the plan. NotFound: no keeper on this node, or it has no plan for the attempt.
  // FailedPrecondition: the attempt is not wanted any more, or the rank is none of it. Unavailable:
  // there is a socket, but nobody answers; or the folder is not this user's alone, and is not
  // dialled.
  virtual absl::StatusOr<v1::Plan> Join(const JoinPatience& patience) = 0;
  // At most once. `status` is called on the reporting thread.
  virtual void StartReports(std::function<v1::RankStatus()> status) = 0;
};

}  // namespace trireme::worker
