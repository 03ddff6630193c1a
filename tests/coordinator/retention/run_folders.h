// Run folders as daemons leave them, of any age.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "coordinator/retention/retention.h"
#include "tests/temporary_folder.h"

namespace trireme::coordinator {

namespace fs = std::filesystem;
inline constexpr int64_t kDayNs = int64_t{86400} * 1000000000;
inline constexpr const char* kVerdict = R"({"exit_code": 0})";
inline constexpr int64_t kNowNs = int64_t{20000} * kDayNs;

// Everything written is as old as kNowNs - `days` says.
class House {
 public:
  void Write(const std::string& path, double days, const std::string& text = "text") const {
    const fs::path whole = folder_ / path;
    fs::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
    Age(whole, days);
  }
  // That which lies at `path` and all above it, since a write there has changed them.
  void Age(fs::path path, double days) const {
    const int64_t ns = kNowNs - static_cast<int64_t>(days * static_cast<double>(kDayNs));
    const timespec time{ns / 1000000000, ns % 1000000000};
    const timespec times[2] = {time, time};
    for (; path != folder_.path(); path = path.parent_path()) {
      REQUIRE(utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
    }
  }
  // A run folder of this store, of that age, with one attempt that is over.
  std::string Run(uint64_t id, double days, const std::string& store = "ours") const {
    const std::string run = std::to_string(id);
    Write(run + "/metrics.jsonl", days);
    Write(run + "/job.yaml", days);
    Write(run + "/checkpoints/step-1/weights", days);
    Write(run + "/attempts/1/exit", days, kVerdict);
    Write(run + "/attempts/1/logs/rank-0.log", days);
    Write(run + "/attempts/1/recorder/rank-0.rec", days);
    Write(run + "/timeline/rank-0.steps", days);
    Write(run + "/run.json", days, "{\"job\": " + run + ", \"store\": \"" + store + "\"}");
    return folder_ / run;
  }
  // What is known of it.
  v1::Job& Know(uint64_t id, v1::JobState state, double days) {
    v1::Job& job = jobs_[id];
    job.set_id(id);
    job.set_run_folder(folder_ / std::to_string(id));
    job.mutable_status()->set_state(state);
    job.mutable_status()->set_attempt(1);
    job.mutable_status()->set_changed_unix_ns(
        kNowNs - static_cast<int64_t>(days * static_cast<double>(kDayNs)));
    return job;
  }
  void Forget(uint64_t id) { jobs_.erase(id); }
  RetentionOptions Options() const {
    RetentionOptions options;
    options.jobs_folder = folder_.path();
    options.store = "ours";
    options.run_days = 30;
    return options;
  }
  Retention Of(const RetentionOptions& options) {
    using Found = absl::StatusOr<std::optional<v1::Job>>;
    return Retention(options, [this](uint64_t id) -> Found {
      const auto found = jobs_.find(id);
      if (fails) return absl::UnavailableError("the disk");
      return found == jobs_.end() ? std::nullopt : std::optional<v1::Job>(found->second);
    });
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  bool fails = false;  // the store, when it is asked for a job

 private:
  tests::TemporaryFolder folder_;
  std::map<uint64_t, v1::Job> jobs_;
};

inline std::set<std::string> In(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& one : fs::directory_iterator(folder)) names.insert(one.path().filename());
  return names;
}

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

// A hundred KiB of small files beside `bytes` that lie on the disk, as of a job that has ended.
inline std::string Large(House& house, uint64_t id, double days, uint64_t bytes) {
  const std::string run = house.Run(id, days);
  house.Write(std::to_string(id) + "/attempts/1/logs/large.log", days, std::string(bytes, 'x'));
  house.Know(id, v1::JOB_COMPLETED, days);
  return run;
}

inline RetentionOptions AtMost(const House& house, uint64_t bytes) {
  RetentionOptions options = house.Options();
  options.run_days = 0;
  options.run_bytes = bytes;
  return options;
}

inline bool IsWhole(const std::string& run) { return fs::exists(run + "/metrics.jsonl"); }

// Of an attempt of that run: a verdict, and so much that was written to last then.
inline std::string Attempt(const House& house, const std::string& run, const std::string& number,
                           double days, uint64_t bytes) {
  const std::string attempt = run + "/attempts/" + number;
  house.Write(attempt + "/logs/rank-0.log", days, std::string(bytes / 2, 'x'));
  house.Write(attempt + "/recorder/rank-0.rec", days, std::string(bytes / 2, 'x'));
  house.Write(attempt + "/exit", days, kVerdict);
  return house.path(attempt);
}

inline bool HasLogs(const std::string& attempt) {
  return fs::exists(attempt + "/logs/rank-0.log") && fs::exists(attempt + "/recorder/rank-0.rec");
}

}  // namespace trireme::coordinator
