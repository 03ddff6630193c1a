// Run folders, and logs of attempts that others have followed, that are older than somebody wants
// to keep. What is to go is named in the log first, and goes at the next look, if it is still to
// go.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

struct RetentionOptions {
  std::string jobs_folder;
  std::string store;         // folders that are another's (run.json), or nobody's, are let be
  double run_days = 0;       // since a job's end; 0: for ever
  double log_days = 0;       // since the last byte of an attempt that is not the newest; likewise
  bool checkpoints = false;  // go with their run folder; else they stay, with job.yaml
  // Of one look.
  size_t most_folders = 1000;
  size_t most_files = 200000;
};

// Of one thread, which blocks on the disk; Stop from any.
class Retention {
 public:
  // `find`: what is known of a job, if it is; any thread's.
  Retention(RetentionOptions options, std::function<std::optional<v1::Job>(uint64_t id)> find);

  // Removes what was named at the last look, names what goes at the next one: an hour later by a
  // clock that nobody sets, or sooner where less than a day is kept. Gives the time of that.
  int64_t Look(int64_t now_unix_ns);
  // Look, if it is time.
  int64_t Turn(int64_t now_unix_ns);
  // No file is removed from now on.
  void Stop() { stopping_ = true; }

 private:
  // By path: what of it goes.
  enum class Part { kRun, kRunButCheckpoints, kLogs };
  using Victims = std::map<std::string, Part>;

  Victims Find(int64_t now_unix_ns);
  void FindIn(uint64_t id, int64_t now_unix_ns, Victims& victims);
  void FindLogs(const v1::Job& job, int64_t before_unix_ns, Victims& victims) const;
  void Announce(const Victims& victims) const;
  // These: false: something is left of it.
  bool Remove(const std::string& path, Part part);
  bool RemoveTree(int folder, const std::string& name, int depth = 1);
  bool RemoveEntries(int folder, const std::set<std::string>& kept, int depth = 0);

  const RetentionOptions options_;
  const std::function<std::optional<v1::Job>(uint64_t id)> find_;
  std::atomic<bool> stopping_{false};
  Victims announced_;
  std::set<uint64_t> done_;  // of which only checkpoints are left
  size_t files_left_ = 0;    // of this look
  std::chrono::steady_clock::time_point due_{};
};

}  // namespace trireme::coordinator
