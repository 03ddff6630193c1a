// The keeper's lines to the ranks of its node: a unix socket for each attempt that has ranks here.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "coordinator/keeper/seat.h"
#include "trireme/v1/agent.pb.h"

namespace trireme::keeper {

class Listener;

// One thread; gRPC's own answer the ranks, and those that have read a plan.
class WorkerLinks {
 public:
  WorkerLinks();
  // Hangs up; ranks dial again whoever comes next. A plan whose disk hangs is left behind.
  ~WorkerLinks();

  // Listens for the ranks of these attempts and of no others; to be called after each look of the
  // keeper, it costs nothing while nothing changes. A socket that an earlier keeper left is taken
  // over. One that cannot be made is tried again by the next call: the ranks do without meanwhile,
  // and the first failure of an attempt is returned once, for a log.
  absl::Status Serve(const std::vector<Seat>& seats);
  // Puts in what ranks have said, where it is newer than what the keeper has seen.
  void Freshen(v1::NodeReport& report) const;
  // What they have said of their steps.
  std::vector<StepNews> steps() const;

 private:
  coordinator::DiskCalls disks_{{.name = "plans of ranks"}};
  std::map<std::string, std::unique_ptr<Listener>> listeners_;  // by their socket
};

}  // namespace trireme::keeper
