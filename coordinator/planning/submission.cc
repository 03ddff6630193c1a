// Rules for jobs of others: names and paths first, then those that every job has.
#include "coordinator/planning/submission.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "coordinator/planning/job_planning.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/plan/offload.h"
#include "runtime/plan/planner.h"

namespace trireme::coordinator {
namespace {

namespace fs = std::filesystem;

// Code, libraries and buffers of a rank beside its arena: measured on small jobs, rounded up.
constexpr uint64_t kProcessBytes = uint64_t{200} << 20;
constexpr uint64_t kMiB = uint64_t{1} << 20;
// Jobs are kept in memory and for good; one with a thousand text files has a tenth of it.
constexpr size_t kLargestJob = size_t{256} << 10;

// Links are followed, so that none leads out; what does not exist is taken as written. Nothing
// where that cannot be known: a folder on the way may not be looked into.
std::optional<fs::path> RealName(const std::string& path) {
  std::error_code error;
  fs::path real = fs::weakly_canonical(path, error);
  return error ? std::nullopt : std::optional<fs::path>(std::move(real));
}

std::optional<fs::path> RealFolder(const std::string& folder, const SubmissionRules& rules) {
  return rules.real_folders ? rules.real_folders->Of(folder) : RealName(folder);
}

bool IsBelow(const fs::path& real, const fs::path& base) {
  const auto [end, at] = std::mismatch(base.begin(), base.end(), real.begin(), real.end());
  return end == base.end() || (std::next(end) == base.end() && end->empty());
}

// Of one that cannot be looked at what is written counts: what lies there by another name cannot be
// looked at either.
bool IsOwn(const fs::path& real, const SubmissionRules& rules) {
  return std::any_of(rules.own_paths.begin(), rules.own_paths.end(), [&](const std::string& own) {
    return IsBelow(real, RealFolder(own, rules).value_or(fs::path(own).lexically_normal()));
  });
}

// Why a path may not be used; empty: it may.
std::string PathFault(const std::string& path, const SubmissionRules& rules) {
  if (path.empty() || path[0] != '/') {
    return fmt::format(
        "'{}' is not an absolute path; the daemon has another current folder than you (trireme "
        "makes it one)",
        path);
  }
  if (path.find('\0') != std::string::npos) return "holds a zero byte";
  const std::optional<fs::path> real = RealName(path);
  if (!real || IsOwn(*real, rules)) {
    return fmt::format("{} is the daemon's own, or cannot be looked at; choose another", path);
  }
  if (rules.allowed_folders.empty()) return "";
  std::string unknown;
  for (const std::string& folder : rules.allowed_folders) {
    const std::optional<fs::path> base = RealFolder(folder, rules);
    if (base && IsBelow(*real, *base)) return "";
    if (!base) unknown += fmt::format("; {} cannot be looked at now: try again later", folder);
  }
  return fmt::format("{} is outside the folders that this daemon lets jobs use: {}{}", path,
                     fmt::join(rules.allowed_folders, ", "), unknown);
}

// Calls visit(field, path) for each that a job names.
template <typename Visit>
void ForEachPath(v1::JobSpec& job, const Visit& visit) {
  for (std::string& file : *job.mutable_data()->mutable_text_files()) {
    visit("data.text_files", file);
  }
  if (job.checkpoint().has_directory()) {
    visit("checkpoint.directory", *job.mutable_checkpoint()->mutable_directory());
  }
  if (job.offload().has_directory()) {
    visit("offload.directory", *job.mutable_offload()->mutable_directory());
  }
}

std::vector<spec::Fault> CheckNames(v1::JobSpec& job, const SubmissionRules& rules,
                                    const LooksAt& looks_at) {
  std::vector<spec::Fault> faults;
  if (!job.has_name()) faults.push_back({"name", "absent; a submitted job needs one"});
  if (job.model().has_config_path()) {
    faults.push_back({"model.config_path",
                      "cannot be read by the daemon; send its content in model.config (trireme "
                      "submit does)"});
  }
  ForEachPath(job, [&](const char* field, const std::string& path) {
    if (!looks_at(path)) return;
    std::string fault = PathFault(path, rules);
    if (!fault.empty()) faults.push_back({field, std::move(fault)});
  });
  return faults;
}

// Where links lead now.
void TakeRealPaths(v1::JobSpec& job, const LooksAt& looks_at) {
  ForEachPath(job, [&](const char*, std::string& path) {
    if (!looks_at(path)) return;
    std::error_code error;
    const fs::path found = fs::weakly_canonical(path, error);
    if (!error) path = found.string();
  });
}

// Asked between the pieces of a check.
class Bounds {
 public:
  // What was spent before counts.
  Bounds(const SubmissionRules& rules, const CallerLeft& caller_left, SubmissionCheck& check)
      : most_(rules.most_time),
        caller_left_(caller_left),
        check_(check),
        begin_(std::chrono::steady_clock::now() - check.spent) {}
  ~Bounds() { check_.spent = std::chrono::steady_clock::now() - begin_; }
  Bounds(const Bounds&) = delete;
  Bounds& operator=(const Bounds&) = delete;

  // `late`: what was not done in time, and what to do.
  std::function<absl::Status()> GoOn(const char* late) const {
    return [this, late]() -> absl::Status {
      if (caller_left_ && caller_left_()) return absl::CancelledError("the caller has left");
      if (std::chrono::steady_clock::now() - begin_ < most_) return absl::OkStatus();
      return absl::DeadlineExceededError(fmt::format(
          "{} within the {} s that the daemon has for one check; make the job smaller, or "
          "ask who runs the daemon",
          late, std::chrono::duration<double>(most_).count()));
    };
  }

 private:
  const std::chrono::milliseconds most_;
  const CallerLeft& caller_left_;
  SubmissionCheck& check_;
  const std::chrono::steady_clock::time_point begin_;
};

absl::Status GivenUp() { return absl::CancelledError("nobody waits for this check any more"); }

absl::Status StatusOf(const std::vector<spec::Fault>& faults) {
  std::string text;
  for (const spec::Fault& fault : faults) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "\n",
                        fault.path.empty() ? "the job" : fault.path, fault.message);
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace

v1::ResourceRequest ResourcesOf(const v1::JobSpec& job, const v1::Plan& plan, uint64_t text_bytes) {
  v1::ResourceRequest request;
  const v1::ResourceSpec& asked = job.resources();
  request.set_ranks(static_cast<uint32_t>(plan::RankCount(plan.mesh())));
  const int64_t cpus = asked.cpus_per_rank() > 0 ? asked.cpus_per_rank() : job.runtime().threads();
  request.set_cpus_per_rank(static_cast<uint32_t>(std::max<int64_t>(1, cpus)));
  uint64_t planned = 0;
  for (const v1::StagePlan& stage : plan.stages())
    planned = std::max(planned, plan::MemoryBytes(stage));
  // Each rank keeps all of the text.
  planned += text_bytes + kProcessBytes;
  request.set_planned_bytes_per_rank(planned);
  const uint64_t bytes = static_cast<uint64_t>(asked.memory_mib_per_rank()) * kMiB;
  request.set_memory_bytes_per_rank(bytes == 0 ? planned : bytes);
  request.set_gpus_per_rank(static_cast<uint32_t>(asked.gpus_per_rank()));
  *request.mutable_nodes() = asked.nodes();
  return request;
}

spec::Fault FaultOf(const absl::Status& status, const std::string& field) {
  const std::string message = base::MessageOf(status);
  const size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.[]");
  const bool named = end != std::string::npos && end > 0 && message.compare(end, 2, ": ") == 0;
  return named ? spec::Fault{message.substr(0, end), message.substr(end + 2)}
               : spec::Fault{field, message};
}

absl::Status CheckAllowed(const std::string& field, const std::string& path,
                          const SubmissionRules& rules) {
  const std::string fault = PathFault(path, rules);
  if (fault.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{}: {}", field, fault));
}

absl::Status CheckJobSize(const v1::JobSpec& job) {
  if (job.ByteSizeLong() <= kLargestJob) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("the job: has {} bytes, at most {} are taken", job.ByteSizeLong(), kLargestJob));
}

std::vector<std::string> PathsOf(v1::JobSpec job) {
  std::vector<std::string> paths;
  ForEachPath(job, [&](const char*, std::string& path) {
    if (path.starts_with('/')) paths.push_back(std::move(path));
  });
  return paths;
}

SubmissionCheck CheckFiles(v1::JobSpec job, const SubmissionRules& rules,
                           const CallerLeft& caller_left, const LooksAt& looks_at) {
  SubmissionCheck check;
  check.status = CheckJobSize(job);
  if (!check.status.ok()) return check;
  bool given_up = false;
  const LooksAt look = [&](const std::string& path) {
    given_up = given_up || (looks_at && !looks_at(path));
    return !given_up;
  };
  check.faults = CheckNames(job, rules, look);
  if (check.faults.empty() && rules.real_paths()) {
    TakeRealPaths(job, look);
    check.faults = CheckNames(job, rules, look);  // of a link that was swapped meanwhile
  }
  if (given_up) {
    check.status = GivenUp();
    return check;
  }
  // Run folders are the daemon's to choose.
  job.mutable_runtime()->clear_runs_directory();
  spec::ApplyDefaults(job);
  // Clients send jobs whose defaults are applied: 0 is of whoever has named none.
  if (job.resources().time_limit_seconds() == 0) {
    job.mutable_resources()->set_time_limit_seconds(rules.default_time_limit_seconds);
  }
  for (spec::Fault& fault : spec::Validate(job)) check.faults.push_back(std::move(fault));
  if (!check.faults.empty()) {
    check.status = StatusOf(check.faults);
    return check;
  }
  {
    const Bounds bounds(rules, caller_left, check);
    const auto go_on =
        bounds.GoOn("data.text_files: not read whole (data.tokenizer byte needs no reading)");
    const TextBounds text{
        rules.real_paths() ? base::Links::kRefuse : base::Links::kFollow, rules.most_text_bytes,
        [&](const std::string& file) { return look(file) ? go_on() : GivenUp(); }};
    check.status = ResolveVocabulary(job, text, &check.text_bytes);
  }
  if (!check.status.ok()) check.faults.push_back(FaultOf(check.status, "data.text_files"));
  check.checked.job = std::move(job);
  return check;
}

void PlanChecked(SubmissionCheck& check, const SubmissionRules& rules,
                 const CallerLeft& caller_left) {
  const Bounds bounds(rules, caller_left, check);
  const v1::JobSpec& job = check.checked.job;
  auto plan = plan::MakePlan(job, RanksOf(job, 0), bounds.GoOn("the job: not planned"));
  if (!plan.ok()) {
    check.status = plan.status();
    check.faults.push_back(FaultOf(plan.status(), ""));
    return;
  }
  check.checked.resources = ResourcesOf(job, *plan, check.text_bytes);
  check.checked.plan = std::move(*plan);
}

}  // namespace trireme::coordinator
