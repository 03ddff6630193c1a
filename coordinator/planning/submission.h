// A job that came over the wire: checked whole, and planned once so that its needs are known before
// it is stored.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/planning/real_folders.h"
#include "runtime/spec/job_spec.h"
#include "trireme/v1/job.pb.h"
#include "trireme/v1/job_spec.pb.h"
#include "trireme/v1/plan.pb.h"

namespace trireme::coordinator {

struct SubmissionRules {
  // Absolute folders below which jobs may name files and folders; empty: anywhere.
  std::vector<std::string> allowed_folders;
  // Where there are any: who may write there must not lead a job elsewhere later on, by a link.
  bool real_paths() const { return !allowed_folders.empty(); }
  // The daemon's own folders and files, which hold what belongs to others: jobs may name nothing
  // at or below them, wherever they lie.
  std::vector<std::string> own_paths;
  // Of both kinds. Null: looked at in each check, as suits who has none whose disk may hang.
  std::shared_ptr<const RealFolders> real_folders = nullptr;
  // Of one check, of what is read for it: see TextBounds; 0: any number.
  uint64_t most_text_bytes = 0;
  std::chrono::milliseconds most_time{60000};
  // Of a job that names no resources.time_limit_seconds; 0: none.
  double default_time_limit_seconds = 0;
};

struct CheckedJob {
  v1::JobSpec job;  // resolved
  v1::Plan plan;
  v1::ResourceRequest resources;  // nothing in it is left to defaults
};

struct SubmissionCheck {
  absl::Status status;              // all faults in its message
  std::vector<spec::Fault> faults;  // what is wrong with the job; without a path: the whole
  CheckedJob checked;               // if status is ok
  // Of the first part of a check for the second.
  uint64_t text_bytes = 0;
  std::chrono::nanoseconds spent{0};
};

// InvalidArgument unless `path` is absolute and, by the real folders it leads through, below one
// that jobs may use. `field` begins the message. Blocks on the disk.
absl::Status CheckAllowed(const std::string& field, const std::string& path,
                          const SubmissionRules& rules);

// True: nobody waits for the answer any more. Called again and again while a check is under way.
using CallerLeft = std::function<bool()>;

// Fills what is absent, applies every rule, reads the text for the vocabulary; PlanChecked plans.
// Two parts, so that each has its thread: the first reads what the job names, which may hang, and
// leaves plan and resources to the second, which touches no disk and wants a processor. Under
// rules.real_paths() files and folders get their real names, to be opened without links. A job that
// leaves model.config_path to be read is refused, since the client's files are not ours: clients
// send the content in model.config. Both take rules.most_time at most where disks answer: then
// DeadlineExceeded. Cancelled: the caller has left meanwhile. `looks_at` is told which path is
// asked for next, and may say that nobody waits for the answer any more (false): then it is not,
// nor any other.
using LooksAt = std::function<bool(const std::string& path)>;
SubmissionCheck CheckFiles(v1::JobSpec job, const SubmissionRules& rules,
                           const CallerLeft& caller_left = nullptr,
                           const LooksAt& looks_at = nullptr);
// Of what CheckFiles has found to be good.
void PlanChecked(SubmissionCheck& check, const SubmissionRules& rules,
                 const CallerLeft& caller_left = nullptr);

// The files and folders that the job names by absolute paths.
std::vector<std::string> PathsOf(v1::JobSpec job);

// A message that begins with a field ("grace_seconds: expected 0 to 86400") is a fault of that
// field, any other one of `field`.
spec::Fault FaultOf(const absl::Status& status, const std::string& field);

// InvalidArgument: larger than any job is. Before anything else is done with it.
absl::Status CheckJobSize(const v1::JobSpec& job);

// Of a resolved job with this plan: what it takes per rank. Memory is the arena of the largest
// stage, the text (ResolveVocabulary) and what a process needs beside them.
v1::ResourceRequest ResourcesOf(const v1::JobSpec& job, const v1::Plan& plan, uint64_t text_bytes);

}  // namespace trireme::coordinator
