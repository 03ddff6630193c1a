// An attempt of four ranks, two stages of two replicas, for a keeper's server and ranks in one
// process. Everything waited for has a limit.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "coordinator/keeper/worker_links.h"
#include "worker/link/keeper_link.h"

namespace trireme::keeper {

class LinkBench {
 public:
  // With a plan in its run folder; nobody listens yet.
  LinkBench();
  LinkBench(const LinkBench&) = delete;
  LinkBench& operator=(const LinkBench&) = delete;
  ~LinkBench();

  void Listen();
  // As a keeper that is killed: its socket stays, if `killed`.
  void HangUp(bool killed = false);

  // Of rank `rank` of this attempt.
  v1::JoinRequest Who(uint32_t rank) const;
  std::unique_ptr<worker::KeeperLink> Dial(const v1::JoinRequest& who) const;
  absl::StatusOr<v1::Plan> Join(const v1::JoinRequest& who) const;
  v1::RankStatus Status(uint32_t rank, uint64_t step) const;
  // What the keeper would report, having seen nothing itself.
  v1::AttemptReport Heard() const;
  // Until `done` of that, 60 s at most; whether it came.
  bool Await(const std::function<bool(const v1::AttemptReport&)>& done) const;

  std::string folder;
  keeper::Seat seat;
  v1::Plan plan;
  std::unique_ptr<WorkerLinks> links;
};

}  // namespace trireme::keeper
