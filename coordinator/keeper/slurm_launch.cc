// An attempt as a Slurm job. Whether it has begun, and with what it ended, stands in its folder, as
// under a guard: of several submissions one batch script claims it (coordinator/slurm/
// batch_script.h). squeue says what a folder cannot: that a job waits, and that one is gone. The
// comment of the job is the attempt's own name, so that a keeper that was cut off finds it again.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "coordinator/keeper/launch.h"
#include "coordinator/slurm/batch_script.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/base/whole_file.h"
#include "runtime/json/json_text.h"

namespace trireme::keeper {
namespace {

using base::kNsPerSecond;

// The nodes' files are seen here after a while, on a file system of a network.
constexpr int64_t kFilesComeNs = 10 * kNsPerSecond;
constexpr int64_t kSubmitAgainNs = 5 * kNsPerSecond;
// A rank that does not listen yet loses the request.
constexpr int64_t kAskAgainNs = 3 * kNsPerSecond;
constexpr int64_t kKillAgainNs = 10 * kNsPerSecond;

Seen At(Sight sight, int exit_code = 0, std::string words = "") {
  Seen seen;
  seen.sight = sight;
  seen.exit_code = exit_code;
  seen.words = std::move(words);
  return seen;
}

Seen Queued(std::string words) { return At(Sight::kQueued, 0, std::move(words)); }

std::string NextAction(const std::string& state) {
  if (state == "TIMEOUT" || state == "DEADLINE") {
    return "the ranks had no time to save before the limit: start the agent with a longer --time";
  }
  if (state == "OUT_OF_MEMORY") return "ask for more: resources.memory_mib_per_rank";
  if (state == "NODE_FAIL" || state == "BOOT_FAIL") return "look at the node: sinfo -R";
  if (state == "CANCELLED") return "somebody ended it by scancel; trireme cancel keeps it ended";
  return "look at the logs of the attempt";
}

class SlurmLaunch : public Launch {
 public:
  SlurmLaunch(const KeeperOptions& options, const AttemptRecord& record,
              const AttemptFolder& folder, slurm::Queue& queue)
      : options_(options),
        record_(record),
        folder_(folder),
        queue_(queue),
        name_(folder.unique_name()) {}

  Seen Look(int64_t now_ns) override {
    Seen seen = folder_.Look();
    if (seen.sight == Sight::kVanished) return LookClaimed(now_ns);
    if (seen.sight == Sight::kNothing && record_.begun) return LookUnclaimed(now_ns);
    return seen;
  }
  bool Ready() override { return true; }
  absl::Status Start(const std::function<bool()>& called_off) override;
  void AskToStop(int64_t now_ns) override {
    if (!Due(asked_ns_, now_ns, kAskAgainNs)) return;
    if (claimed_by_ != 0) queue_.AskToStop(claimed_by_);
  }
  void Kill(int64_t now_ns) override {
    killed_ = true;
    if (!Due(killed_ns_, now_ns, kKillAgainNs)) return;
    if (claimed_by_ != 0) {
      queue_.Cancel(claimed_by_);
    } else {
      CancelAll();
    }
  }
  absl::Status Seal() override {
    RETURN_IF_ERROR(folder_.Seal());
    // One that comes all the same finds the seal.
    queue_.Withdraw(name_);
    CancelAll();
    return absl::OkStatus();
  }
  // A job that Slurm calls ended has no processes.
  bool SweptClean() override { return CancelAll() == 0; }
  bool RunnerGone() override {
    if (gone_asked_ns_ == 0) gone_asked_ns_ = base::MonotonicNs();
    const std::optional<slurm::Submission> made = queue_.Find(name_);
    if (made && made->under_way) return false;
    const auto view = queue_.view();
    if (view->asked_ns <= std::max(gone_asked_ns_, made ? made->answered_ns : 0)) return false;
    return std::none_of(view->jobs.begin(), view->jobs.end(), [&](const slurm::SlurmJob& job) {
      return job.comment == name_ && job.phase != slurm::JobPhase::kEnded;
    });
  }
  void CleanUp() override { queue_.Forget(name_); }

 private:
  // Of this attempt, as last seen; how many there were.
  int CancelAll() {
    int found = 0;
    for (const slurm::SlurmJob& job : queue_.view()->jobs) {
      if (job.comment != name_ || job.phase == slurm::JobPhase::kEnded) continue;
      if (cancelled_.insert(job.id).second) queue_.Cancel(job.id);
      ++found;
    }
    return found;
  }
  static bool Due(int64_t& last_ns, int64_t now_ns, int64_t every_ns) {
    if (last_ns != 0 && now_ns - last_ns < every_ns) return false;
    last_ns = now_ns;
    return true;
  }
  Seen LookUnclaimed(int64_t now_ns);
  Seen LookClaimed(int64_t now_ns);
  Seen Gone(const std::string& state, int64_t now_ns);
  uint64_t ClaimedBy() const;
  std::optional<slurm::SlurmJob> Mine(const slurm::View& view, uint64_t id);

  const KeeperOptions& options_;
  const AttemptRecord& record_;
  const AttemptFolder& folder_;
  slurm::Queue& queue_;
  const std::string name_;
  uint64_t claimed_by_ = 0;       // Slurm's number
  std::set<uint64_t> cancelled_;  // that are not the one
  int64_t first_view_ns_ = 0;     // of the claim
  int64_t gone_ns_ = 0;           // since when it is gone
  int64_t gone_asked_ns_ = 0;     // RunnerGone, first
  int64_t asked_ns_ = 0;
  int64_t killed_ns_ = 0;
  bool killed_ = false;
};

absl::Status SlurmLaunch::Start(const std::function<bool()>& called_off) {
  const v1::LaunchSpec& launch = record_.desired.launch();
  if (launch.allocation_size() != 1) {
    return absl::InvalidArgumentError(
        "a Slurm partition shares no attempt with other nodes: name one node in resources.nodes");
  }
  slurm::BatchJob job =
      slurm::BatchJobOf(launch.job(), static_cast<int>(launch.allocation(0).ranks()));
  job.name = fmt::format("{}-{}-{}", launch.job().name(), record_.desired.job_id(),
                         record_.desired.attempt());
  job.comment = name_;
  job.time_limit = slurm::AttemptTimeLimit(launch);
  job.worker = {options_.worker};
  for (std::string& argument : WorkerArguments(options_, record_.desired, folder_)) {
    job.worker.push_back(std::move(argument));
  }
  ASSIGN_OR_RETURN(const std::string script,
                   slurm::AttemptScript(job, *options_.slurm, folder_.path()));
  const std::string path = folder_.path() + "/batch.sh";
  RETURN_IF_ERROR(base::WriteWholeFile(path, script, 0700));
  if (called_off()) return absl::CancelledError("the start was called off");
  queue_.Submit(name_, path);
  return absl::OkStatus();
}

// In guard.json; 0: it cannot be read.
uint64_t SlurmLaunch::ClaimedBy() const {
  std::ifstream in(folder_.path() + "/guard.json", std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  const auto claim = json_text::Parse(text.str());
  if (!claim.is_object() || !claim.contains("slurm_job")) return 0;
  const nlohmann::json& id = claim["slurm_job"];
  return id.is_number_unsigned() ? id.get<uint64_t>() : 0;
}

// The job of this number, or if that is 0 the first by its comment. Others of the comment are
// cancelled.
std::optional<slurm::SlurmJob> SlurmLaunch::Mine(const slurm::View& view, uint64_t id) {
  std::optional<slurm::SlurmJob> mine;
  for (const slurm::SlurmJob& job : view.jobs) {
    if (id != 0 ? job.id != id : job.comment != name_) continue;
    const bool better = !mine || (job.phase != slurm::JobPhase::kEnded &&
                                  (mine->phase == slurm::JobPhase::kEnded || job.id < mine->id));
    if (better) mine = job;
  }
  for (const slurm::SlurmJob& job : view.jobs) {
    const bool doubled =
        mine && job.comment == name_ && job.id != mine->id && job.phase != slurm::JobPhase::kEnded;
    if (doubled && cancelled_.insert(job.id).second) queue_.Cancel(job.id);
  }
  return mine;
}

Seen SlurmLaunch::LookUnclaimed(int64_t now_ns) {
  const std::optional<slurm::Submission> made = queue_.Find(name_);
  if (made && made->under_way) return Queued("is being submitted to Slurm");
  if (made && absl::IsInvalidArgument(made->status)) {
    return At(Sight::kRefused, base::kBadInput, base::MessageOf(made->status));
  }
  if (made && !made->status.ok() && now_ns - made->answered_ns < kSubmitAgainNs) {
    return Queued("waits for Slurm to answer: " + base::MessageOf(made->status));
  }
  const auto view = queue_.view();
  if (view->asked_ns <= (made ? made->answered_ns : 0)) {
    return Queued("waits for Slurm to answer squeue");
  }
  const std::optional<slurm::SlurmJob> job = Mine(*view, made ? made->id : 0);
  if (!job && (!made || made->id == 0)) return {};  // never submitted, or not taken
  if (job && job->phase != slurm::JobPhase::kEnded) {
    gone_ns_ = 0;
    return Queued(job->reason.empty()
                      ? fmt::format("is being started by Slurm as job {}", job->id)
                      : fmt::format("waits in Slurm's queue as job {}: {}", job->id, job->reason));
  }
  if (gone_ns_ == 0) gone_ns_ = now_ns;
  if (now_ns - gone_ns_ < kFilesComeNs) return Queued("");
  return At(Sight::kRefused, base::kJobFailed,
            fmt::format("Slurm job {} has ended before it began: {}", job ? job->id : made->id,
                        job ? job->state : "Slurm knows no more of it"));
}

Seen SlurmLaunch::LookClaimed(int64_t now_ns) {
  if (claimed_by_ == 0) claimed_by_ = ClaimedBy();
  const Seen live = At(Sight::kLive);
  if (claimed_by_ == 0) return live;  // the file will say
  const auto view = queue_.view();
  // A view from before the claim may not know the job.
  if (first_view_ns_ == 0) first_view_ns_ = now_ns;
  if (view->asked_ns <= first_view_ns_) return live;
  const std::optional<slurm::SlurmJob> job = Mine(*view, claimed_by_);
  if (!job || job->phase == slurm::JobPhase::kEnded) {
    return Gone(job ? job->state : "Slurm knows no more of it", now_ns);
  }
  gone_ns_ = 0;
  return live;
}

// Slurm's job has ended, and its script has not come to say how.
Seen SlurmLaunch::Gone(const std::string& state, int64_t now_ns) {
  if (gone_ns_ == 0) gone_ns_ = now_ns;
  const Seen wait = At(Sight::kLive);
  if (!killed_ && now_ns - gone_ns_ < kFilesComeNs) return wait;
  const std::optional<int> code = killed_ ? base::kKilledCode : queue_.TakeExitCode(claimed_by_);
  if (!code) return wait;
  Seen seen = At(Sight::kVanished, *code > 0 ? *code : base::kKilledCode,
                 fmt::format("Slurm ended job {}: {}", claimed_by_, state));
  seen.next_action = NextAction(state);
  // No fault of the job: it goes on from its checkpoint.
  if (state == "PREEMPTED") seen.exit_code = base::kCheckpointed;
  return seen;
}

}  // namespace

std::unique_ptr<Launch> MakeSlurmLaunch(const KeeperOptions& options, const AttemptRecord& record,
                                        const AttemptFolder& folder, slurm::Queue& queue) {
  return std::make_unique<SlurmLaunch>(options, record, folder, queue);
}

}  // namespace trireme::keeper
