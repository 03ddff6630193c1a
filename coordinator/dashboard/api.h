// The dashboard's JSON: each answer is what a caller may see, read from the JobTable, the store and
// run folders. Threads: any. Reads of files and of the store are bounded, hold no lock, and are
// waited for a moment.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/calls/access.h"
#include "coordinator/calls/store_reads.h"
#include "coordinator/dashboard/job_requests.h"
#include "coordinator/dashboard/json_text.h"
#include "coordinator/dashboard/plan_json.h"
#include "coordinator/dashboard/stall_board.h"
#include "coordinator/disk_calls/disk_calls.h"
#include "coordinator/http/http_server.h"

namespace trireme::dashboard {

// They outlive the dashboard.
struct DashboardRooms {
  coordinator::StoreReads& reads;
  AskJob ask;
  coordinator::DiskCalls& disks;  // of run folders
  std::string store;              // whose jobs they are; of another's folder nothing is read
};

class Api {
 public:
  explicit Api(DashboardRooms rooms)
      : rooms_(std::move(rooms)), table_(rooms_.reads.table()), stalls_(rooms_.reads) {}

  // Errors: those of the control API.
  using Answer = absl::StatusOr<std::string>;
  using Call = coordinator::HttpRequest;
  using Who = coordinator::Caller;
  Answer Cluster(const Call& call, const Who& who) const;
  // In the order of `trireme top`. ?page=TOKEN&size=N&state=running,failed
  Answer Jobs(const Call& call, const Who& who) const;
  // ?after=SEQUENCE; without it the newest.
  Answer Events(const Call& call, const Who& who) const;
  // One of "", curve, plan, timeline, events, log.
  Answer Job(const Call& call, const Who& who);
  // pause, resume or cancel.
  Answer Ask(const Call& call, const Who& who) const;

 private:
  absl::StatusOr<v1::Job> Find(const Call& call, const Who& who) const;
  StallBoard::Texts StalledOf(const v1::Job& job) const { return stalls_.Of({&job, 1}).front(); }
  // What `read` gives of the job's run folder. It owns all that it touches, as of DiskCalls::Begin.
  Answer FromDisk(const v1::Job& job, std::function<Answer()> read) const;
  Answer Curve(const v1::Job& job, const Call& call) const;
  Answer Plan(const v1::Job& job);
  // Of a job that has not been launched: it has no plan.pb yet.
  absl::StatusOr<v1::Plan> PlanAhead(const v1::Job& job);
  Answer Timeline(const v1::Job& job) const;
  Answer JobEvents(const v1::Job& job, const Call& call) const;
  Answer Log(const v1::Job& job, const Call& call) const;

  const DashboardRooms rooms_;
  const coordinator::JobTable& table_;
  std::mutex planning_;
  PlanCache plans_;
  mutable StallBoard stalls_;  // remembers what it has read
};

}  // namespace trireme::dashboard
