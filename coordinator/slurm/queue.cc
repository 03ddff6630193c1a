// Each call is one task of the thread; squeue is called between them.
#include "coordinator/slurm/queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "coordinator/process/command.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::slurm {
namespace {

using base::kNsPerSecond;

constexpr std::chrono::seconds kQueueDeadline(30);
constexpr int64_t kLookEveryNs = 2 * kNsPerSecond;
constexpr int64_t kIdleNs = kNsPerSecond / 2;
constexpr int64_t kWantedForNs = 10 * kNsPerSecond;
constexpr size_t kMostOutput = size_t{16} << 20;  // 100,000 jobs
constexpr int kUnknown = -1;

process::Command QueueCommand(std::vector<std::string> argv) {
  process::Command command;
  command.argv = std::move(argv);
  command.deadline = kQueueDeadline;
  command.most_output_bytes = kMostOutput;
  return command;
}

bool Holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Its controller does not answer, or a limit will pass. All else it has judged.
bool MayAnswerLater(const std::string& errors) {
  return Holds(errors, "Unable to contact") || Holds(errors, "temporarily") ||
         Holds(errors, "Socket timed out") || Holds(errors, "SubmitJob");  // a limit of the site
}

// What it says of its errors on one line; sites have it say more.
std::string ErrorsOf(const std::string& said) {
  std::string errors;
  for (size_t begin = 0; begin < said.size();) {
    const size_t end = std::min(said.find('\n', begin), said.size());
    const std::string line = process::FirstLine(said.substr(begin, end - begin));
    if (Holds(line, "error") || Holds(line, "fatal")) errors += (errors.empty() ? "" : "; ") + line;
    begin = end + 1;
  }
  return errors.empty() ? process::FirstLine(said) : errors;
}

Submission SubmitNow(const std::string& script) {
  Submission made;
  auto result = process::RunCommand(QueueCommand({"sbatch", "--parsable", script}));
  if (!result.ok()) {
    made.status = result.status();
  } else if (const auto id = ParseSubmitted(result->output); result->exit_code == 0 && id) {
    made.id = *id;
  } else {
    const std::string errors = ErrorsOf(result->errors.empty() ? result->output : result->errors);
    made.status = absl::Status(MayAnswerLater(errors) ? absl::StatusCode::kUnavailable
                                                      : absl::StatusCode::kInvalidArgument,
                               fmt::format("sbatch does not take it (exit code {}): {}",
                                           result->exit_code, process::FirstLine(errors)));
  }
  made.answered_ns = base::MonotonicNs();
  return made;
}

}  // namespace

absl::StatusOr<Capacity> CapacityOf(const std::string& partition) {
  ASSIGN_OR_RETURN(const std::string text,
                   process::OutputOf(QueueCommand({"sinfo", "--noheader", "--Node",
                                                   std::string("--format=") + kPartitionFormat})));
  return ParsePartition(text, partition);
}

Queue::Queue()
    : view_(std::make_shared<View>()),
      thread_({.name = "slurm", .between = [this](int64_t now) { return Look(now); }}) {}

std::shared_ptr<const View> Queue::view() {
  const absl::MutexLock lock(&mutex_);
  wanted_ns_ = base::MonotonicNs();
  return view_;
}

int64_t Queue::Look(int64_t now_unix_ns) {
  const int64_t now_ns = base::MonotonicNs();
  {
    const absl::MutexLock lock(&mutex_);
    if (wanted_ns_ == 0 || now_ns - wanted_ns_ > kWantedForNs) return now_unix_ns + kIdleNs;
    if (view_->asked_ns != 0 && now_ns - view_->asked_ns < kLookEveryNs) {
      return now_unix_ns + kIdleNs;
    }
  }
  const auto text = process::OutputOf(QueueCommand(
      {"squeue", "--noheader", "--me", "--states=all", std::string("--format=") + kQueueFormat}));
  const absl::MutexLock lock(&mutex_);
  if (!text.ok()) return now_unix_ns + kLookEveryNs;
  auto view = std::make_shared<View>();
  view->asked_ns = now_ns;
  view->jobs = ParseQueue(*text);
  view_ = std::move(view);
  return now_unix_ns + kIdleNs;
}

void Queue::Submit(const std::string& name, const std::string& script) {
  {
    const absl::MutexLock lock(&mutex_);
    Submission& submission = submissions_[name];
    if (submission.under_way || submission.id != 0) return;
    submission = Submission();
    submission.under_way = true;
  }
  thread_.PostAnswer([this, name, script] {
    const Submission made = SubmitNow(script);
    const absl::MutexLock lock(&mutex_);
    const auto found = submissions_.find(name);
    if (found == submissions_.end()) return;
    if (!found->second.withdrawn) {
      found->second = made;
      return;
    }
    submissions_.erase(found);
    if (made.id != 0) Cancel(made.id);
  });
}

std::optional<Submission> Queue::Find(const std::string& name) const {
  const absl::MutexLock lock(&mutex_);
  const auto found = submissions_.find(name);
  return found == submissions_.end() ? std::nullopt : std::optional(found->second);
}

void Queue::Withdraw(const std::string& name) {
  const absl::MutexLock lock(&mutex_);
  const auto found = submissions_.find(name);
  if (found == submissions_.end()) return;
  found->second.withdrawn = true;
  if (found->second.under_way) return;
  if (found->second.id != 0) Cancel(found->second.id);
  submissions_.erase(found);
}

void Queue::Forget(const std::string& name) {
  const absl::MutexLock lock(&mutex_);
  const auto found = submissions_.find(name);
  if (found == submissions_.end()) return;
  // Its answer brings the id that is to be cancelled.
  if (found->second.under_way && found->second.withdrawn) return;
  submissions_.erase(found);
}

void Queue::Call(std::vector<std::string> argv) {
  // If it fails, whoever asked sees that nothing follows, and asks again.
  thread_.Post([argv = std::move(argv)] { process::RunCommand(QueueCommand(argv)).IgnoreError(); })
      .IgnoreError();
}

void Queue::AskToStop(uint64_t id) { Call({"scancel", "--signal=USR1", base::Text(id)}); }

void Queue::Cancel(uint64_t id) { Call({"scancel", base::Text(id)}); }

std::optional<int> Queue::TakeExitCode(uint64_t id) {
  {
    const absl::MutexLock lock(&mutex_);
    const auto [known, anew] = exit_codes_.emplace(id, std::nullopt);
    const std::optional<int> code = known->second;
    if (code) exit_codes_.erase(known);
    if (code || !anew) return code;
  }
  thread_.PostAnswer([this, id] {
    const auto text =
        process::OutputOf(QueueCommand({"scontrol", "--oneliner", "show", "job", base::Text(id)}));
    const auto code = text.ok() ? ParseExitCode(*text) : std::nullopt;
    const absl::MutexLock lock(&mutex_);
    exit_codes_[id] = code.value_or(kUnknown);
  });
  return std::nullopt;
}

}  // namespace trireme::slurm
