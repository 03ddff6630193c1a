// squeue and scancel on a thread of their own. What squeue does not answer is not gone.
#include "coordinator/slurm/steps.h"

#include <chrono>
#include <utility>
#include <vector>

#include "coordinator/process/command.h"
#include "coordinator/slurm/answers.h"
#include "runtime/base/monotonic.h"

namespace trireme::slurm {
namespace {

constexpr int64_t kAgainNs = 500000000;
constexpr std::chrono::seconds kStepDeadline(10);

process::Command StepCommand(std::vector<std::string> argv) {
  process::Command command;
  command.argv = std::move(argv);
  command.deadline = kStepDeadline;
  return command;
}

}  // namespace

Steps::Steps(std::string job) : job_(std::move(job)), thread_({.name = "slurm steps"}) {}

bool Steps::AreGone(const std::set<std::string>& names) {
  if (names.empty()) return true;
  const absl::MutexLock lock(&mutex_);
  if (names != names_) {
    names_ = names;
    gone_ = false;
    swept_ns_ = 0;
  }
  if (gone_ || under_way_) return gone_;
  if (swept_ns_ != 0 && base::MonotonicNs() - swept_ns_ < kAgainNs) return false;
  under_way_ = true;
  thread_.PostAnswer([this, names] { Sweep(names); });
  return false;
}

void Steps::Sweep(const std::set<std::string>& names) {
  const auto said =
      process::OutputOf(StepCommand({"squeue", "--noheader", "--steps", "--jobs=" + job_,
                                     std::string("--format=") + kStepFormat}));
  std::vector<std::string> kill{"scancel", "--signal=KILL"};
  if (said.ok()) {
    for (const Step& step : ParseSteps(*said)) {
      if (names.count(step.name) != 0) kill.push_back(step.id);
    }
  }
  const bool none = said.ok() && kill.size() == 2;
  // If it fails, squeue names them once more.
  if (kill.size() > 2) process::RunCommand(StepCommand(std::move(kill))).IgnoreError();
  const absl::MutexLock lock(&mutex_);
  under_way_ = false;
  swept_ns_ = base::MonotonicNs();
  gone_ = none && names == names_;
}

}  // namespace trireme::slurm
