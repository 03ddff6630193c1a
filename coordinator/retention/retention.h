// Run folders of ended jobs, and logs of attempts that others have followed, that are older than
// somebody wants to keep, or take more room than somebody wants to give. What is to go is named in
// the log first, and goes at the next look, if it is still to go.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/retention/removal.h"
#include "coordinator/retention/stuck.h"
#include "trireme/v1/job.pb.h"

namespace trireme::coordinator {

struct RetentionOptions {
  std::string jobs_folder;
  std::string store;         // folders that are another's (run.json), or nobody's, are let be
  double run_days = 0;       // since a job's end; 0: for ever
  double log_days = 0;       // since the last byte of an attempt that is not the newest; likewise
  uint64_t run_bytes = 0;    // on the disk, of all that could go of ended jobs' folders; 0: any
  uint64_t log_bytes = 0;    // likewise, of logs as of log_days, of all jobs
  bool checkpoints = false;  // go with their run folder; else they stay, with job.yaml
  // Of one look; so many files are measured, too, and of one attempt's logs, or of the rest of a
  // run folder, where these begin within them.
  size_t most_folders = 1000;
  size_t most_files = 200000;
  size_t most_failed = 100;             // tries, of one that goes: the rest of it is left
  Removal::Unlink unlink = ::unlinkat;  // a test's may refuse what root may do
};

// Of one thread, which blocks on the disk; Stop from any.
class Retention {
 public:
  // What is known of a job, if it is. An error: that cannot be said, and its folder is let be.
  using Find = std::function<absl::StatusOr<std::optional<v1::Job>>(uint64_t id)>;
  // `find`: any thread's.
  Retention(RetentionOptions options, Find find);

  // Removes what was named at the last look, names what goes at the next one: an hour later by a
  // clock that nobody sets, or sooner where less than a day is kept. Gives the time of that.
  int64_t Look(int64_t now_unix_ns);
  // Look, if it is time.
  int64_t Turn(int64_t now_unix_ns);
  // No file is removed, and `find` not called, from now on.
  void Stop();

 private:
  // By path: what of it goes.
  enum class Part { kRun, kRunButCheckpoints, kLogs };
  using Victims = std::map<std::string, Part>;

  // What could go of one, and since when it could.
  struct Sized {
    int64_t since_unix_ns = 0;
    uint64_t id = 0;
    uint64_t attempt = 0;  // of Part::kLogs
    Part part = Part::kRun;
    uint64_t bytes = 0;
  };
  // What all of a kind may take.
  struct Bound {
    uint64_t most_bytes = 0;  // 0: any
    const char* option = "";
    const char* why = "";           // something goes
    std::vector<Sized> sized{};     // of the last time that all were measured; first to go first
    std::vector<Sized> measured{};  // of this time, so far
    std::set<std::string> later{};  // too much as well, but not named at this look
    // Of this time: files of several names, by device and number.
    std::set<std::pair<uint64_t, uint64_t>> linked{};
    Victims announced{};
  };

  std::vector<uint64_t> Runs() const;
  std::string RunOf(uint64_t id) const;
  std::string PathOf(const Sized& one) const;
  // A folder below the jobs folder, or that itself; less than 0, and errno, also where a part of
  // its path is a link.
  int OpenBelow(const std::string& path) const;
  absl::StatusOr<std::optional<v1::Job>> Known(uint64_t id);
  bool IsOurs(const std::string& run, uint64_t id) const;
  // Of a job that nothing is known of: when something was last written, if it is over.
  static std::optional<int64_t> SilentSince(const std::string& run);
  // Nothing: there are only checkpoints left.
  std::optional<Part> PartOf(const std::string& run, uint64_t id);
  void MeasureOn();
  // Of those that were measured, as they are now. What goes anyhow takes no room of the others.
  Victims FindTooMuch(Bound& bound, const Victims& goes);
  // By job: the bytes of its logs that go, whatever becomes of its run folder.
  std::map<uint64_t, uint64_t> LogsThatGo(const Victims& goes) const;
  // Nothing: that cannot be said. False: it is none any more.
  std::optional<bool> IsStill(const Sized& one);
  // False: next_attempt_ and what follows is for the next look.
  bool Measure(uint64_t id);
  // But for attempts.
  void MeasureRun(const v1::Job& job);
  // `logs_since_unix_ns`: 0: without its logs.
  void MeasureAttempt(const v1::Job& job, uint64_t number, bool whole, int64_t logs_since_unix_ns);
  void WarnIfCut(const std::string& path);
  uint64_t BytesBelow(Bound& bound, const std::string& path, const std::set<std::string>& kept);
  uint64_t BytesIn(Bound& bound, int folder, const std::set<std::string>& kept, int depth);
  // What is gone, or stuck, is no victim any more.
  void RemoveOf(const Victims& announced, Victims& victims, const char* why, int64_t now_unix_ns);
  // It takes no room any more.
  void TakeOff(const std::string& path);
  Victims FindOld(int64_t now_unix_ns);
  void FindIn(uint64_t id, int64_t now_unix_ns, Victims& victims);
  void FindLogs(const v1::Job& job, int64_t before_unix_ns, Victims& victims) const;
  // `log_option`: of what goes of attempts.
  static void Announce(const Victims& victims, const char* option, const char* log_option);
  // False: something is left of it.
  bool Remove(Removal& removal, const std::string& path, Part part) const;

  const RetentionOptions options_;
  const Find find_;
  std::atomic<bool> stopping_{false};
  absl::Mutex find_mutex_;  // held for a call of find_
  Victims announced_;       // by age
  Stuck stuck_;
  Bound runs_;
  Bound logs_;
  // All run folders are measured in as many looks as it takes: these are still to be. Of the last
  // of them measuring goes on at that attempt; 0: it has not begun.
  std::optional<std::vector<uint64_t>> unmeasured_;
  uint64_t next_attempt_ = 0;
  size_t measured_ = 0;          // files, of this look
  size_t most_measured_ = 0;     // of what is being measured: then it is cut
  bool cut_ = false;             // it was, since the last word of it
  int64_t old_log_unix_ns_ = 0;  // of this look: logs of before go by their age
  std::set<uint64_t> done_;      // of which only checkpoints are left
  size_t files_left_ = 0;        // of this look
  std::chrono::steady_clock::time_point due_{};
};

}  // namespace trireme::coordinator
