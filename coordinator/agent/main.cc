// trireme-agent: the keeper of one node.
//
// Threads:
//   main           the loop: desired state in, ranks looked after, reports out; no run folder
//   attempt turns  some for each file system: what attempts do in their run folders, and looks at
//                  /proc for ranks that are ended without these; left behind where a disk holds one
//   plans of ranks read plan.pb for ranks that join; left behind likewise
//   gRPC's own     the stream to the coordinator, and what the ranks ask and say
//   rank logs      bounds the logs of ranks that run
//   snapshots      frees what runs that nobody goes on with have left in /dev/shm
//   slurm          with --launcher slurm: sbatch, squeue, scancel
//   one for each run folder of a live attempt, which reads its claim.json once a second
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <ratio>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "coordinator/agent/agent_identity.h"
#include "coordinator/agent/complaints.h"
#include "coordinator/agent/control_groups.h"
#include "coordinator/agent/coordinator_link.h"
#include "coordinator/agent/desired_intake.h"
#include "coordinator/agent/inventory.h"
#include "coordinator/agent/left_snapshots.h"
#include "coordinator/agent/rank_logs.h"
#include "coordinator/agent/served_store.h"
#include "coordinator/client/grpc_log.h"
#include "coordinator/config_file/config_file.h"
#include "coordinator/keeper/join_doors.h"
#include "coordinator/keeper/keeper.h"
#include "coordinator/keeper/worker_links.h"
#include "coordinator/launcher/join_attempt.h"
#include "coordinator/process/log_file.h"
#include "coordinator/process/log_format.h"
#include "coordinator/process/systemd_notice.h"
#include "coordinator/slurm/batch_script.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::agent {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook(100);

struct Arguments {
  client::ClientOptions coordinator;
  std::string node;
  std::string state_folder;
  std::string worker;
  std::string launcher = "mpirun";
  std::string control_groups = kGroupsAuto;
  slurm::BatchOptions slurm;
  std::string log_format = "text";
  coordinator::LogFileOptions log;  // path empty: stderr as it is
  int64_t rank_log_bytes = int64_t{256} << 20;
  double snapshot_hours = 24;
};

// Set by the handler; read by the loop.
volatile std::sig_atomic_t stop_signal = 0;
void OnSignal(int number) { stop_signal = number; }

// Phases and failures; what only tells of progress may wait for its turn.
std::string Urgent(const v1::NodeReport& report) {
  std::string text = report.refuses_for().store();
  for (const v1::AttemptReport& attempt : report.attempts()) {
    text += base::Text(attempt.job_id(), '.', attempt.attempt(), ':',
                       static_cast<int>(attempt.phase()), ',', attempt.saved_step());
    for (const v1::RankReport& rank : attempt.ranks()) {
      text += base::Text(' ', static_cast<int>(rank.life()));
    }
    text += '\n';
  }
  return text;
}

// Of the agent that keeps the folder alone, so that one moves the files.
class AgentLog {
 public:
  absl::Status Open(const coordinator::LogFileOptions& options) {
    if (options.path.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(file_, coordinator::LogFile::Open(options));
    return absl::OkStatus();
  }
  void Turn(Clock::time_point now) {
    if (!file_ || now < due_) return;
    const absl::Status turned = file_->Turn();
    due_ = now + (turned.ok() ? std::chrono::seconds(1) : std::chrono::seconds(60));
    if (!turned.ok()) spdlog::warn("the log grows on: {}", base::MessageOf(turned));
  }

 private:
  std::optional<coordinator::LogFile> file_;
  Clock::time_point due_{};
};

// Of the ranks of this node; that of a launcher is on the node of the first one.
std::set<std::string> LogsOf(const std::vector<keeper::Seat>& seats) {
  std::set<std::string> logs;
  for (const keeper::Seat& seat : seats) {
    const std::filesystem::path run = std::filesystem::path(seat.plan_file).parent_path();
    const std::string folder = base::Text(run.string(), "/attempts/", seat.attempt, "/logs");
    if (seat.first_rank == 0) logs.insert(folder + "/mpirun.log");
    for (uint32_t rank = 0; rank < seat.ranks_here; ++rank) {
      logs.insert(base::Text(folder, "/rank-", seat.first_rank + rank, ".log"));
    }
  }
  return logs;
}

void Loop(CoordinatorLink& link, keeper::Keeper& keeper, ServedStore& store, AgentLog& log,
          RankLogs& rank_logs) {
  keeper::WorkerLinks links;
  keeper::JoinDoors doors;
  DesiredIntake intake(link, keeper, store);
  Clock::time_point sent{};
  Complaints complaints(Clock::now());
  std::string urgent;
  coordinator::Watchdog watchdog;
  while (stop_signal == 0) {
    watchdog.Turn();
    const auto now = Clock::now();
    log.Turn(now);
    const bool anew = link.Poll(now);
    if (anew) spdlog::info("the coordinator has us");
    if (complaints.Due(link.state(), link.failures(), now)) {
      spdlog::warn("no line to the coordinator: {}", base::MessageOf(link.state()));
    }
    intake.Act(anew);
    // A daemon that is not obeyed says nothing of what counts.
    if (!intake.refuses()) keeper.ReportTaken(link.TakenNs());
    v1::NodeReport report = keeper.Poll();
    if (intake.refuses()) {
      *report.mutable_refuses_for() = store.served();
      keeper.AddAllocations(report);
    }
    rank_logs.Watch(LogsOf(keeper.seats()));
    if (const absl::Status served = links.Serve(keeper.seats()); !served.ok()) {
      spdlog::warn("ranks do without us: {}", base::MessageOf(served));
    }
    if (const absl::Status served = doors.Serve(keeper.seats()); !served.ok()) {
      spdlog::warn("ranks of other nodes' mpirun are in no control group: {}",
                   base::MessageOf(served));
    }
    keeper.StepsSaid(links.steps());
    links.Freshen(report);
    std::string words = Urgent(report);
    if (anew || words != urgent || now - sent >= link.report_interval()) {
      sent = now;
      urgent = std::move(words);
      link.Send(std::move(report));
    }
    std::this_thread::sleep_for(kLook);
  }
}

absl::StatusOr<v1::AgentHello> Hello(const Arguments& arguments) {
  if (arguments.launcher != "slurm") return TakeInventory(arguments.node, TRIREME_VERSION);
  return TakeSlurmInventory(arguments.node, TRIREME_VERSION, arguments.slurm.partition);
}

absl::Status Run(const Arguments& arguments) {
  keeper::KeeperOptions options;
  options.node = arguments.node;
  options.state_folder = arguments.state_folder;
  options.worker = arguments.worker;
  options.warn = [](const std::string& words) { spdlog::warn("{}", words); };
  if (arguments.launcher == "slurm") {
    RETURN_IF_ERROR(slurm::CheckBatchOptions(arguments.slurm));
    options.slurm = arguments.slurm;
  } else {
    options.join_program = base::ProgramBesideUs("trireme-agent");
    options.control_groups = OpenControlGroups(arguments.control_groups, arguments.state_folder);
  }
  auto keeper = keeper::Keeper::Open(options);
  if (absl::IsAlreadyExists(keeper.status())) {
    spdlog::info("another agent keeps {}; this one is not needed", arguments.state_folder);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(keeper.status());
  AgentLog log;
  RETURN_IF_ERROR(log.Open(arguments.log));
  // Slurm is asked only by the one that is needed.
  ASSIGN_OR_RETURN(v1::AgentHello hello, Hello(arguments));
  std::error_code error;
  hello.set_state_folder(std::filesystem::canonical(arguments.state_folder, error).string());
  if (error) {
    return absl::UnavailableError(
        base::Text("cannot find ", arguments.state_folder, ": ", error.message()));
  }
  ASSIGN_OR_RETURN(*hello.mutable_agent_id(), AgentIdOf(arguments.state_folder));
  ASSIGN_OR_RETURN(ServedStore store, ServedStore::Load(arguments.state_folder));
  if (!store.served().store().empty()) *hello.mutable_served() = store.served();
  ASSIGN_OR_RETURN(const auto link, CoordinatorLink::Open(arguments.coordinator, hello));
  spdlog::info("agent of node {}, state in {}", arguments.node, arguments.state_folder);
  coordinator::TellSystemd("READY=1");
  RankLogs rank_logs(arguments.rank_log_bytes);
  const std::chrono::duration<double, std::ratio<3600>> keep(arguments.snapshot_hours);
  const LeftSnapshots snapshots({.keep = std::chrono::ceil<std::chrono::milliseconds>(keep)});
  Loop(*link, **keeper, store, log, rank_logs);
  coordinator::TellSystemd("STOPPING=1");
  spdlog::info("signal {}: ending; ranks run on", static_cast<int>(stop_signal));
  return absl::OkStatus();
}

void DescribeLaunchers(CLI::App& app, Arguments& arguments) {
  app.add_option(
         "--launcher", arguments.launcher,
         "mpirun, or slurm: jobs are handed to sbatch, and this node stands for a partition")
      ->check(CLI::IsMember({"mpirun", "slurm"}))
      ->capture_default_str();
  app.add_option(
         "--control-groups", arguments.control_groups,
         "auto: an attempt is a control group (v2), limited and ended as one by the kernel, "
         "where ours is delegated to us, with CPUs of its own; no-cpuset: attempts share the CPUs; "
         "off: never")
      ->check(CLI::IsMember({kGroupsAuto, kGroupsNoCpuset, kGroupsOff}))
      ->capture_default_str();
  app.add_option("--partition", arguments.slurm.partition, "Slurm's partition (default: its own)");
  app.add_option("--account", arguments.slurm.account, "account of Slurm that pays");
  app.add_option("--time", arguments.slurm.time_limit,
                 "Slurm's time limit of an attempt; the job goes on in the next one");
  app.add_option("--sbatch", arguments.slurm.more,
                 "more options of sbatch as they are, as in '--qos=high' (again for more)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

int Main(int argc, char** argv) {
  CLI::App app(
      "The keeper of one node: starts and watches the ranks of Trireme's jobs here as the "
      "coordinator desires. Ranks run on when it ends; the next one takes them up.");
  Arguments arguments;
  arguments.node = base::HostName();
  arguments.worker = base::ProgramBesideUs("trireme-worker");
  app.add_option("--coordinator", arguments.coordinator.address,
                 "unix:/PATH or HOST:PORT of triremed (default: its unix socket on this machine)");
  app.add_option("--token-file", arguments.coordinator.token_file, "a token of the role agent");
  app.add_option("--ca-file", arguments.coordinator.ca_file, "who signed the daemon's certificate");
  app.add_option("--certificate", arguments.coordinator.certificate_file, "ours (mutual TLS)");
  app.add_option("--key", arguments.coordinator.key_file, "its key");
  app.add_option("--node", arguments.node, "name of this node")->capture_default_str();
  app.add_option("--state-dir", arguments.state_folder, "what is remembered of attempts")
      ->required();
  app.add_option("--log-format", arguments.log_format, "of the log on stderr: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--log-file", arguments.log.path,
                 "the log, and all else that it says, goes to the end of this file instead");
  app.add_option("--max-log-bytes", arguments.log.most_bytes,
                 "of --log-file: one that has as many becomes FILE.1, that FILE.2, and that goes")
      ->check(CLI::Range(int64_t{4096}, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--max-rank-log-bytes", arguments.rank_log_bytes,
                 "kept of the end of each log of a rank that runs, beside its first MiB; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 50))
      ->capture_default_str();
  app.add_option(
         "--keep-snapshots-hours", arguments.snapshot_hours,
         "snapshots.every_step: what a run has left in this node's memory goes when no rank "
         "has come back to it for so long; 0: never")
      ->check(CLI::Range(0.0, 24.0 * 366))
      ->capture_default_str();
  app.add_option("--worker", arguments.worker, "program of a rank")->capture_default_str();
  DescribeLaunchers(app, arguments);
  app.set_version_flag("--version", "trireme-agent " TRIREME_VERSION, "print the version");
  const coordinator::ConfigFile config(app);
  app.failure_message([&config](const CLI::App*, const CLI::Error& error) {
    return "trireme-agent: " + config.Explain(error) + "\nRun with --help for more information.\n";
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? base::kOk : base::kBadInput;
  }
  coordinator::StartLog({.program = "trireme-agent",
                         .format = arguments.log_format == "json" ? coordinator::LogFormat::kJson
                                                                  : coordinator::LogFormat::kText,
                         .node = arguments.node});
  client::HearGrpc([](const std::string& line) { spdlog::warn("{}", line); });
  for (const int number : {SIGINT, SIGTERM}) std::signal(number, OnSignal);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  const absl::Status status = Run(arguments);
  client::HearGrpc(nullptr);  // before the log is taken down
  if (status.ok()) return base::kOk;
  coordinator::LogEnd(base::MessageOf(status));
  return base::ExitCodeOf(status);
}

}  // namespace
}  // namespace trireme::agent

int main(int argc, char** argv) {
  // What follows is a command line of somebody else.
  if (argc > 1 && std::string_view(argv[1]) == trireme::launcher::kJoinAttempt) {
    return trireme::launcher::JoinAttempt(argv[0], {argv + 2, argv + argc});
  }
  return trireme::agent::Main(argc, argv);
}
