// A daemon, the program itself, with ten jobs that run on one node whose agent is played here, each
// with data and a run folder of its own, and with a mount that hangs under one of them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/client/client.h"
#include "tests/coordinator/run_files/hung_mount.h"
#include "trireme/v1/agent.grpc.pb.h"

namespace trireme::coordinator {

// Of each call and wait here.
constexpr std::chrono::seconds kTenJobsDeadline(30);

// The agent of the node "n1": what it is to run, it says runs.
class PlayedAgent {
 public:
  explicit PlayedAgent(const std::string& address);
  ~PlayedAgent();

  // One report, of all attempts; true: the daemon has taken it. Those of `stopped` have ended by a
  // stop that nobody has asked for.
  bool Report(const std::set<uint64_t>& stopped = {});
  // Reports until the daemon wants this attempt of the job, or a later one, to run.
  bool AwaitAttempt(uint64_t job_id, uint32_t attempt);

 private:
  void Read();

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::AgentLink::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::FromAgent, v1::ToAgent>> stream_;
  absl::Mutex mutex_;
  v1::DesiredAttempts desired_ ABSL_GUARDED_BY(mutex_);
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t number_ = 0;
  std::thread reader_;
};

class TenJobs {
 public:
  static constexpr uint64_t kJobs = 10;

  // `program`: triremed. All jobs run when it returns.
  explicit TenJobs(const std::string& program);
  ~TenJobs();
  TenJobs(const TenJobs&) = delete;
  TenJobs& operator=(const TenJobs&) = delete;

  // From now on whoever asks for what the last job reads or writes hangs.
  void Hang();
  // The daemon is ended, and started where whoever asks for the folder of run folders hangs.
  void RestartWithHungJobsFolder();
  // Until now: who hangs fails.
  void Answer() { hung_.clear(); }
  bool hangs() const;

  std::unique_ptr<client::Client> Connect() const;
  PlayedAgent& agent() { return *agent_; }
  std::string jobs_folder() const { return folder_ + "/state/jobs"; }
  std::string run_folder(uint64_t job_id) const;
  std::string data_folder(uint64_t job_id) const;
  // Of a job that trains on the data of `job_id`.
  absl::StatusOr<uint64_t> Submit(client::Client& client, uint64_t job_id);
  absl::Status Preview(client::Client& client, uint64_t job_id) const;
  // "GET" of a page by a browser that has logged in: its status; 0: no answer in time.
  int Page(const std::string& path) const;

 private:
  void Start();
  void LogIn();
  v1::JobSpec JobOn(uint64_t job_id) const;
  std::string Http(const std::string& path) const;

  const std::string program_;
  std::string folder_ = "/tmp/trireme-ten-jobs-XXXXXX";
  pid_t pid_ = -1;
  int http_port_ = 0;
  std::string cookie_;
  int submitted_ = 0;
  std::unique_ptr<PlayedAgent> agent_;
  std::vector<std::unique_ptr<HungMount>> hung_;
};

}  // namespace trireme::coordinator
