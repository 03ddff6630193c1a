// Backups of the job store: one at a time on a thread of its own, few waiting; a caller who leaves
// ends his.
//
// The daemon writes them on its machine, into a folder that the caller names: what is written is
// flushed and opened there before anybody is told that it exists, and no client has to be trusted
// to do so. Whoever may ask is an admin, and all that he gets there is one more private file of a
// name that we choose. So --allow-folder, which bounds what jobs may name, does not bound it: jobs
// could read the backups there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "coordinator/calls/call_progress.h"
#include "coordinator/job_store/job_store.h"
#include "coordinator/process/task_thread.h"
#include "trireme/v1/control.pb.h"

namespace trireme::coordinator {

using BackupCall = CallProgress<v1::BackupResponse>;

// "jobs-2026-11-26T101530Z.db": sorted by name they are sorted by time, in UTC.
std::string BackupName(int64_t now_unix_ns);

// InvalidArgument: not absolute.
absl::Status CheckBackupFolder(const std::string& folder);

class Backups {
 public:
  explicit Backups(JobStore& store)
      : store_(store), thread_({.name = "backups", .most_tasks = kMostWaiting, .between = {}}) {}

  // ResourceExhausted: too many wait.
  absl::Status Begin(const v1::BackupRequest& request, const std::shared_ptr<BackupCall>& call);

 private:
  static constexpr size_t kMostWaiting = 4;
  absl::Status Run(const v1::BackupRequest& request, BackupCall& call) const;

  JobStore& store_;
  TaskThread thread_;
};

}  // namespace trireme::coordinator
