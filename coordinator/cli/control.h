// The subcommands of `trireme` that speak to the coordinator daemon: what the command line gives
// each, and its function. Each prints its own errors, once, to stderr, and returns the exit code
// (runtime/base/exit_code.h): 69 where no coordinator answers, 77 where it refuses.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/client/client.h"

namespace trireme::cli {

// What all of them take.
struct ControlOptions {
  client::ClientOptions connection;
  double timeout_seconds = 10;
  bool json = false;  // the messages of the API, one a line, instead of text
};
absl::StatusOr<std::unique_ptr<client::Client>> Connect(const ControlOptions& options);

// Those that watch something look at keys, signals and their stream in turn, this long at each.
inline constexpr std::chrono::milliseconds kLook{100};

struct SubmitOptions {
  std::string job;
  std::vector<std::string> overrides;
  std::string request_id;  // empty: a new one
  bool watch = false;
};
int RunSubmit(const ControlOptions& control, const SubmitOptions& options);

// What the daemon would say to a submission of it; out and svg are not looked at.
struct PlanOptions;
int RunRemotePlan(const ControlOptions& control, const PlanOptions& options);

struct ListOptions {
  std::vector<std::string> states;
  bool all = false;
  std::string owner;
  std::string name;
};
int RunList(const ControlOptions& control, const ListOptions& options);

// `job`: a number, or a name, of which the newest is meant.
int RunShow(const ControlOptions& control, const std::string& job);
int RunExplain(const ControlOptions& control, const std::string& job);

// Until the job has ended or is paused: 0, 4 failed, 5 cancelled, 75 paused. Ctrl-C only leaves:
// kLeft.
int RunWatch(const ControlOptions& control, const std::string& job);
constexpr int kLeft = 130;

struct TopOptions {
  double delay_seconds = 2;  // between two looks
  bool once = false;         // one picture, also on a terminal
};
int RunTop(const ControlOptions& control, const TopOptions& options);

struct LogsOptions {
  std::string job;
  int rank = 0;
  bool launcher = false;
  uint32_t attempt = 0;  // 0: the newest
  bool follow = false;
  std::optional<int64_t> tail_bytes;
};
int RunLogs(const ControlOptions& control, const LogsOptions& options);

int RunCancel(const ControlOptions& control, const std::string& job, double grace_seconds);
int RunPause(const ControlOptions& control, const std::string& job);
int RunResume(const ControlOptions& control, const std::string& job);
int RunCheckpoints(const ControlOptions& control, const std::string& job);

struct ExportOptions {
  std::string job;
  uint64_t step = 0;  // 0: the newest
  std::string to;     // empty: below the run folder
};
// Ctrl-C ends the export: 5.
int RunExport(const ControlOptions& control, const ExportOptions& options);

struct FilesOptions {
  std::string job;
  std::string name;  // empty: list them
  std::string out;   // "-": stdout; empty: under its own name in the current folder
  bool force = false;
};
int RunFiles(const ControlOptions& control, const FilesOptions& options);

// Of the daemon's store, into a folder of its machine. Ctrl-C ends it: 5.
int RunBackup(const ControlOptions& control, const std::string& folder);

int RunDashboard(const ControlOptions& control);

struct CheckOptions {
  std::vector<std::string> folders;  // empty: the current one and the default state folder
  std::string listen;                // HOST:PORT that should be free; empty: not asked
  double seconds = 60;               // that two ranks may take
};
// 0; 1: something must be mended.
int RunCheck(const ControlOptions& control, const CheckOptions& options);

int RunNodes(const ControlOptions& control);
int RunDrain(const ControlOptions& control, const v1::DrainRequest& request);
int RunUndrain(const ControlOptions& control, const std::string& node);
int RunAdopt(const ControlOptions& control, const std::string& node);

}  // namespace trireme::cli
