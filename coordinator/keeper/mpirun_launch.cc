// mpirun or srun under a guard (coordinator/launcher/process_guard.h), on this machine or from it.
#include <signal.h>

#include <cstdlib>
#include <set>
#include <sstream>
#include <utility>

#include "coordinator/keeper/attempt.h"
#include "coordinator/keeper/attempt_group.h"
#include "coordinator/keeper/launch.h"
#include "coordinator/keeper/marked_processes.h"
#include "coordinator/launcher/guard_search.h"
#include "coordinator/launcher/launch_command.h"
#include "coordinator/launcher/process_guard.h"
#include "coordinator/slurm/steps.h"
#include "runtime/base/status_macros.h"
#include "runtime/run_claim/run_claim.h"

namespace trireme::keeper {
namespace {

// The guard itself needs two seconds from TERM to KILL; one that does not obey is killed.
constexpr int64_t kObeyNs = 10 * int64_t{1000000000};
// A process may be forked behind the back of one pass over /proc.
constexpr int kCleanSweeps = 2;
constexpr size_t kMostChildrenBytes = 1 << 16;
// How long the end of a step is waited for; that of others is, for ever, before the next starts.
constexpr int64_t kStepEndsNs = 60 * int64_t{1000000000};

// Of the steps of the attempts before this one.
std::set<std::string> OlderSteps(v1::DesiredAttempt attempt) {
  std::set<std::string> names;
  const uint32_t newest = attempt.attempt();
  for (uint32_t number = 1; number < newest; ++number) {
    attempt.set_attempt(number);
    names.insert(AttemptFolder(attempt).unique_name());
  }
  return names;
}

launcher::LaunchOptions LaunchOptionsOf(const KeeperOptions& keeper,
                                        const v1::DesiredAttempt& attempt,
                                        const AttemptFolder& folder) {
  const v1::LaunchSpec& launch = attempt.launch();
  launcher::LaunchOptions options;
  options.worker = keeper.worker;
  options.arguments = WorkerArguments(keeper, attempt, folder);
  const auto add = [&](const char* name, const std::string& value) {
    options.arguments.insert(options.arguments.end(), {name, value});
  };
  add("--link", "unix:" + folder.link_socket());
  add("--job-id", std::to_string(attempt.job_id()));
  add("--attempt", std::to_string(attempt.attempt()));
  options.ranks = 0;
  for (const v1::NodeAllocation& part : launch.allocation()) {
    options.ranks += static_cast<int>(part.ranks());
    if (keeper.in_allocation) continue;
    options.hosts.push_back({part.node(), static_cast<int>(part.ranks())});
  }
  options.in_allocation = keeper.in_allocation;
  options.step_name = folder.unique_name();
  options.log_folder = folder.path() + "/logs";
  options.environment = MarkOf(attempt).Environment();
  options.threads = static_cast<int>(launch.threads_per_rank());
  options.bind_to_cores = keeper.bind_to_cores;
  if (!keeper.ranks_end_with_us && !keeper.in_allocation) {
    options.join_program = keeper.join_program;
  }
  return options;
}

// Of a guard whose name does not tell its folder: by the marks of what it has started. One that has
// started nothing may be anybody's.
bool IsOthers(const launcher::ProcessIdentity& guard, const Mark& mark) {
  const std::string file = "task/" + std::to_string(guard.pid) + "/children";
  std::istringstream children(
      launcher::ProcessFile(guard.pid, file.c_str(), kMostChildrenBytes).value_or(""));
  bool others = false;
  for (int child = 0; children >> child;) {
    // The run of a rank has a guard of its own, and leaves its processes to this one.
    if (CarriesMark(child, mark)) return false;
    others = others ||
             (CarriesOtherMark(child, mark) && launcher::LookAtProcess(child).parent == guard.pid);
  }
  return others;
}

class MpirunLaunch : public Launch {
 public:
  MpirunLaunch(const KeeperOptions& options, const AttemptRecord& record,
               const AttemptFolder& folder)
      : options_(options), record_(record), folder_(folder), group_(options, record.desired) {
    const char* job = std::getenv("SLURM_JOB_ID");
    if (options.in_allocation && job != nullptr) steps_ = std::make_unique<slurm::Steps>(job);
  }

  Seen Look(int64_t now_ns) override {
    Seen seen = folder_.Look();
    if (seen.sight == Sight::kLive) {
      guard_ = seen.guard;
      group_.BoundAdopted(record_.desired.launch(), folder_.path());
    }
    // The guard has seen the end of srun, which may have been killed: its ranks then run on.
    if (seen.sight == Sight::kExited && !StepGone(now_ns)) seen.sight = Sight::kLive;
    return seen;
  }
  // Of attempts that no record speaks of. Not of this one: its guard may claim it this moment.
  bool Ready() override {
    const Mark mark = MarkOf(record_.desired);
    const int left = KillMarked(mark, [&](uint32_t attempt) { return attempt != mark.attempt; });
    if (left > 0) return false;
    return !steps_ || steps_->AreGone(OlderSteps(record_.desired));
  }
  absl::Status Start(const std::function<bool()>& called_off) override {
    ASSIGN_OR_RETURN(const launcher::TemporaryFolders temporary, folder_.MakeTemporaryFolders());
    ASSIGN_OR_RETURN(
        launcher::GuardedCommand command,
        launcher::CommandFor(LaunchOptionsOf(options_, record_.desired, folder_), temporary));
    command.ends_with_starter = options_.ranks_end_with_us;
    command.control_group = group_.Make(record_.desired.launch(), folder_.path());
    command.called_off = called_off;
    command.replaced = [&] {
      const v1::DesiredAttempt& mine = record_.desired;
      return absl::IsFailedPrecondition(
          run_claim::CheckRunClaim(mine.launch().run_folder(), mine.attempt()));
    };
    return launcher::StartGuarded(command, folder_.path());
  }
  // Again after a restart: the guard takes it for the same.
  void AskToStop(int64_t) override {
    if (!stop_asked_) stop_asked_ = folder_.Ask(launcher::kGuardStop);
  }
  void Kill(int64_t now_ns) override {
    const bool first = kill_asked_ns_ == 0;
    if (first) kill_asked_ns_ = now_ns;
    if (guard_.pid <= 0) FindGuard();
    const bool deaf =
        first ? !folder_.Ask(launcher::kGuardKill) : now_ns - kill_asked_ns_ > kObeyNs;
    // Its children die with it or are swept.
    if (deaf) launcher::SendSignal(guard_, SIGKILL);
  }
  void AwaitRanks() override {
    if (!group_made_) group_.Make(record_.desired.launch(), "");
    group_made_ = true;
    group_.TellMemoryKills();
  }
  absl::Status Seal() override { return folder_.Seal(); }
  bool SweptClean() override {
    // Of a guard that is gone; before we kill, which is no want of memory. The folder is of who
    // launches.
    const bool launches = Launches(record_.desired.launch(), options_.node);
    if (launches && folder_.whose() == Whose::kOurs) group_.KeepMemoryEvents(folder_.path());
    if (!launches) group_.TellMemoryKills();
    const Mark mark = MarkOf(record_.desired);
    const int left = KillMarked(mark, [&](uint32_t found) { return found == mark.attempt; });
    clean_sweeps_ = group_.Swept() && left == 0 ? clean_sweeps_ + 1 : 0;
    const bool gone = !steps_ || steps_->AreGone({folder_.unique_name()});
    return gone && clean_sweeps_ >= kCleanSweeps;
  }
  std::optional<v1::Failure> MemoryKill() const override { return group_.memory_kill(); }
  bool RunnerGone() override { return !launcher::IsAlive(guard_) && !FindGuard(); }
  bool HasRanks() override {
    const Mark mark = MarkOf(record_.desired);
    bool marked = false;
    const auto spare = [&](uint32_t found) {
      marked = marked || found == mark.attempt;
      return false;
    };
    return KillMarked(mark, spare) > 0 || marked || group_.IsPopulated();
  }
  void CleanUp() override {
    group_.Remove();
    folder_.RemoveTemporaryFolders();
  }

 private:
  // One that its folder does not name: by its own name. Whether there may be one.
  bool FindGuard() {
    const Mark mark = MarkOf(record_.desired);
    bool any = false;
    for (const launcher::FoundGuard& found : launcher::GuardsOf(folder_.path())) {
      if (found.certain) guard_ = found.process;
      any = any || found.certain || !IsOthers(found.process, mark);
    }
    return any;
  }
  bool StepGone(int64_t now_ns) {
    if (!steps_) return true;
    if (exited_ns_ == 0) exited_ns_ = now_ns;
    return steps_->AreGone({folder_.unique_name()}) || now_ns - exited_ns_ > kStepEndsNs;
  }

  const KeeperOptions& options_;
  const AttemptRecord& record_;
  const AttemptFolder& folder_;
  AttemptGroup group_;
  launcher::ProcessIdentity guard_;      // as last seen
  std::unique_ptr<slurm::Steps> steps_;  // where ranks are steps of an allocation
  int64_t exited_ns_ = 0;                // since when srun is
  bool stop_asked_ = false;
  int64_t kill_asked_ns_ = 0;
  int clean_sweeps_ = 0;
  bool group_made_ = false;  // of another node's launch
};

}  // namespace

std::unique_ptr<Launch> MakeMpirunLaunch(const KeeperOptions& options, const AttemptRecord& record,
                                         const AttemptFolder& folder) {
  return std::make_unique<MpirunLaunch>(options, record, folder);
}

std::string PlanFileOf(const v1::LaunchSpec& launch) { return launch.run_folder() + "/plan.pb"; }

std::vector<std::string> WorkerArguments(const KeeperOptions& options,
                                         const v1::DesiredAttempt& attempt,
                                         const AttemptFolder& folder) {
  std::vector<std::string> arguments = options.worker_arguments;
  const v1::LaunchSpec& launch = attempt.launch();
  const auto add = [&](const char* name, const std::string& value) {
    arguments.insert(arguments.end(), {name, value});
  };
  add("--job", launch.run_folder() + "/job.yaml");
  add("--run-dir", launch.run_folder());
  if (launch.resume() != kResumeNone) {
    add("--resume", launch.resume().empty() ? "auto" : launch.resume());
  }
  if (launch.snapshots_since() > 0) {
    add("--snapshots-since", std::to_string(launch.snapshots_since()));
  }
  if (launch.snapshots_before() > 0) {
    add("--snapshots-before", std::to_string(launch.snapshots_before()));
  }
  add("--recorder-dir", folder.path() + "/recorder");
  add("--plan", PlanFileOf(launch));
  if (launch.real_paths()) arguments.push_back("--real-paths");
  // Else each rank would take all cores of its node, also those of other jobs; of a run of our own
  // there are none.
  if (!options.ranks_end_with_us && launch.threads_per_rank() > 0 &&
      launch.job().runtime().threads() == 0) {
    add("--set", "runtime.threads=" + std::to_string(launch.threads_per_rank()));
  }
  return arguments;
}

}  // namespace trireme::keeper
