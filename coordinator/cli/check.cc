// `trireme check`: is this machine fit, and does its coordinator answer? A line for each thing, as
// it is found out.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "coordinator/checkup/probes.h"
#include "coordinator/checkup/programs.h"
#include "coordinator/checkup/rules.h"
#include "coordinator/cli/control.h"
#include "coordinator/cli/job_text.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/client/default_socket.h"
#include "runtime/base/own_program.h"
#include "runtime/base/text.h"
#include "runtime/report/progress.h"

namespace trireme::cli {
namespace {

using checkup::Finding, checkup::Verdict;

const char* PaintOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "\x1b[32m";
    case Verdict::kWarn:
      return "\x1b[33m";
    case Verdict::kFail:
      return "\x1b[31m";
    default:
      return "\x1b[2m";
  }
}

// Tells of each finding at once, or keeps them for JSON.
class Told {
 public:
  explicit Told(bool json) : json_(json), color_(report::StyleOf(stdout).color) {}

  void Add(const Finding& finding) {
    findings_.push_back(finding);
    if (json_) return;
    const std::string word = checkup::WordOf(finding.verdict);
    std::printf("%s%-4s%s  %-14s %s\n", color_ ? PaintOf(finding.verdict) : "", word.c_str(),
                color_ ? "\x1b[0m" : "", finding.name.c_str(), Shown(finding.seen).c_str());
    if (!finding.fix.empty()) std::printf("%22s-> %s\n", "", finding.fix.c_str());
    std::fflush(stdout);
  }
  void Add(const std::vector<Finding>& findings) {
    for (const Finding& finding : findings) Add(finding);
  }

  int Conclude() const {
    const int code = checkup::ExitCodeOf(findings_);
    json_ ? PrintJson(code) : PrintSum();
    return code;
  }

 private:
  size_t Count(Verdict verdict) const {
    return static_cast<size_t>(
        std::count_if(findings_.begin(), findings_.end(),
                      [&](const Finding& one) { return one.verdict == verdict; }));
  }

  void PrintSum() const {
    std::printf("%zu ok, %s, %s\n", Count(Verdict::kOk),
                base::Counted(Count(Verdict::kWarn), "warning").c_str(),
                base::Counted(Count(Verdict::kFail), "failure").c_str());
  }

  void PrintJson(int code) const {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Finding& one : findings_) {
      list.push_back({{"name", one.name},
                      {"verdict", checkup::WordOf(one.verdict)},
                      {"seen", one.seen},
                      {"fix", one.fix}});
    }
    PrintJsonObject({{"fit", code == 0}, {"findings", list}});
  }

  const bool json_;
  const bool color_;
  std::vector<Finding> findings_;
};

// Times that it has told of are not ahead of its clock.
double AheadSeconds(const v1::Cluster& cluster, int64_t now_unix_ns) {
  int64_t newest = cluster.started_unix_ns();
  for (const v1::Node& node : cluster.nodes()) {
    newest = std::max<int64_t>(newest, node.last_report_unix_ns());
  }
  return static_cast<double>(newest - now_unix_ns) / 1e9;
}

void CheckCoordinator(const ControlOptions& control, Told& told) {
  const bool meant = !control.connection.address.empty();
  const std::string address =
      meant ? control.connection.address : "unix:" + client::DefaultSocketPath();
  const auto client = Connect(control);
  const auto cluster = client.ok() ? (*client)->Call(v1::GetClusterRequest())
                                   : absl::StatusOr<v1::Cluster>(client.status());
  checkup::Clock clock{checkup::ClockInStep(), {}};
  if (!meant && absl::IsUnavailable(cluster.status())) {
    told.Add({"coordinator", Verdict::kSkip, "none at " + address,
              "triremed starts one; --coordinator ADDRESS names another"});
  } else {
    const std::string version = cluster.ok() ? cluster->version() : "";
    told.Add(checkup::JudgeCoordinator(cluster.status(), address, version, TRIREME_VERSION));
  }
  if (cluster.ok()) clock.coordinator_ahead_seconds = AheadSeconds(*cluster, NowUnixNs());
  told.Add(checkup::JudgeClock(clock));
}

}  // namespace

int RunCheck(const ControlOptions& control, const CheckOptions& options) {
  Told told(control.json);
  told.Add(checkup::JudgeLimits(checkup::MeasureLimits()));
  told.Add(checkup::JudgeSharedMemory(checkup::MeasureSpace("/dev/shm")));
  told.Add(checkup::JudgeLogout(checkup::LookAtLogout()));
  told.Add(checkup::JudgeHugePages(checkup::HugePageSetting()));
  told.Add(checkup::JudgeControlGroups(checkup::LookAtControlGroups()));
  told.Add(checkup::JudgeNetwork(checkup::MeasureNetwork()));
  if (!options.listen.empty()) {
    told.Add(checkup::JudgeListening(options.listen, checkup::TryListening(options.listen)));
  }
  std::vector<std::string> folders = options.folders;
  std::error_code error;
  if (folders.empty()) {
    folders = {std::filesystem::current_path(error).string(), client::DefaultStateFolder()};
    // Made by the first daemon.
    if (!std::filesystem::exists(folders[1], error)) folders.pop_back();
  }
  for (const std::string& folder : folders) {
    told.Add(checkup::JudgeDisk("disk", checkup::MeasureSpace(folder)));
  }
  const auto deadline = std::chrono::milliseconds(static_cast<int64_t>(options.seconds * 1000));
  told.Add(checkup::JudgeMpi(checkup::AskMpi(base::ProgramBesideUs("trireme-worker"), deadline)));
  told.Add(checkup::JudgeSlurm(checkup::AskSlurm()));
  CheckCoordinator(control, told);
  return told.Conclude();
}

}  // namespace trireme::cli
