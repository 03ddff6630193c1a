// triremed: the coordinator daemon.
//
// Threads:
//   main           waits for the signals that end it
//   reconciler     owns the truth: every decision, the store
//   planner        plans attempts: one for each file system that run folders are on
//   checks         looks at the files that jobs name: four for each set of file systems
//   submissions    look for repeats in the store, and make run folders
//   checker        plans what is submitted
//   disk           looks into folders of jobs: four for each file system
//   store reads    read what the store alone has, for callers
//   folders        finds out the real names of --allow-folder and the daemon's own folders
//   watchers       sends events to those who watch
//   log followers  wakes readers of logs
//   exports        writes checkpoints as Hugging Face folders: one for each set of file systems
//   backups        copies the store while it goes on
//   store check    reads all of the store once, after the start
//   retention      removes run folders by age or size, if that is asked for
//   local agent    keeps an agent alive on this machine
//   http           has all connections of browsers and scrapers; `http handler` answer them
//   socket door    takes in connections at the unix socket, asks who has opened them
//   socket gate    waits until they speak, bounds those of each user
//   user names     asks the machine's user database: four threads
//   gRPC's own     take calls in, never block
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "coordinator/client/default_socket.h"
#include "coordinator/client/grpc_log.h"
#include "coordinator/config_file/config_file.h"
#include "coordinator/daemon/daemon.h"
#include "coordinator/process/log_format.h"
#include "coordinator/process/systemd_notice.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/own_program.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

// Seconds' worth of calls that may come at once.
constexpr double kSubmitBurst = 10;
constexpr double kCallBurst = 4;
constexpr uint64_t kUserQueuedJobs = 1000;
constexpr uint64_t kUserSpecBytes = uint64_t{64} << 20;
constexpr uint64_t kMostTextBytes = uint64_t{16} << 30;
constexpr std::string_view kUnix = "unix:";

struct Arguments {
  DaemonOptions daemon;
  std::string node;
  std::string launcher = "mpirun";
  std::vector<std::pair<std::string, std::string>> slurm;  // options of the agent
  bool no_agent = false;
  bool no_socket = false;
  std::string log_format = "text";
};

void DescribeLimits(CLI::App& app, Limits& limits) {
  const CLI::Range streams(1, 100000);
  app.add_option("--max-streams", limits.most_streams,
                 "watchers, readers of logs and readers of files, each")
      ->check(streams)
      ->capture_default_str();
  app.add_option("--max-streams-of-user", limits.most_streams_of_user,
                 "likewise, of one user; at most as many as in all")
      ->check(streams)
      ->capture_default_str();
  app.add_option("--max-connections-of-user", limits.connections.of_user,
                 "at the unix socket, of each user but root and the daemon's own")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  // Not CLI::Range, which takes nan.
  const auto rates = [](const std::string& text) {
    double rate = -1;
    const bool whole = absl::SimpleAtod(text, &rate) && rate >= 0 && rate <= 1e6;
    return whole ? std::string() : "expected 0 to 1000000, got " + text;
  };
  app.add_option("--submits-per-second", limits.submits.per_second,
                 "of each user, after the first ten seconds' worth; 0: any number")
      ->check(rates)
      ->capture_default_str();
  app.add_option("--calls-per-second", limits.calls.per_second,
                 "other calls of each user, after the first four seconds' worth; 0: any number")
      ->check(rates)
      ->capture_default_str();
}

void DescribeCaps(CLI::App& app, DaemonOptions& daemon) {
  daemon.user_caps = {kUserQueuedJobs, kUserSpecBytes};
  const CLI::Range any(uint64_t{0}, uint64_t{1} << 40);
  app.add_option("--user-queued-jobs", daemon.user_caps.queued_jobs,
                 "jobs of one user with the role submit that wait or are paused; 0: any number")
      ->check(any)
      ->capture_default_str();
  app.add_option("--user-spec-bytes", daemon.user_caps.spec_bytes,
                 "likewise, bytes of the specs of all his jobs that have not ended; 0: any number")
      ->check(any)
      ->capture_default_str();
  app.add_option("--user-running-ranks", daemon.user_running_ranks,
                 "likewise, ranks that run at a time; further jobs wait; 0: any number")
      ->check(any)
      ->capture_default_str();
}

void DescribeChecks(CLI::App& app, SubmissionRules& rules) {
  rules.most_text_bytes = kMostTextBytes;
  app.add_option("--max-text-bytes", rules.most_text_bytes,
                 "of the text of one job, if its tokenizer is char: all of it is read when it is "
                 "submitted or planned; 0: any number")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 60))
      ->capture_default_str();
  // Not CLI::Range, which takes nan.
  const auto seconds = [](const std::string& text) {
    double number = -1;
    const bool whole = absl::SimpleAtod(text, &number) && number >= 0 && number <= 1e9;
    return whole ? std::string() : "expected seconds, 0 to 1000000000, got " + text;
  };
  app.add_option("--default-time-limit", rules.default_time_limit_seconds,
                 "SECONDS: resources.time_limit_seconds of jobs that are submitted without one, so "
                 "that waiting jobs can pass each other; 0: they have none")
      ->check(seconds)
      ->capture_default_str();
}

void DescribeRetention(CLI::App& app, RetentionOptions& retention) {
  // Not CLI::Range, which takes nan.
  const auto days = [](const std::string& text) {
    double number = -1;
    const bool whole = absl::SimpleAtod(text, &number) && number >= 0 && number <= 36500;
    return whole ? std::string() : "expected days, 0 to 36500, got " + text;
  };
  app.add_option("--keep-run-folders", retention.run_days,
                 "DAYS: run folders of jobs that ended longer ago are removed, but for their "
                 "checkpoints; 0: kept for ever")
      ->check(days)
      ->capture_default_str();
  app.add_option("--keep-run-bytes", retention.run_bytes,
                 "BYTES: when run folders of ended jobs take more on the disk, but for their "
                 "checkpoints, those that ended first are removed likewise; 0: any number")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 60))
      ->capture_default_str();
  app.add_flag("--remove-checkpoints", retention.checkpoints,
               "with --keep-run-folders or --keep-run-bytes: checkpoints in run folders as well");
  app.add_option("--keep-attempt-logs", retention.log_days,
                 "DAYS: logs and recorders of attempts that later ones have followed are removed "
                 "when nothing was written there for longer; 0: kept for ever")
      ->check(days)
      ->capture_default_str();
  app.add_option("--keep-attempt-log-bytes", retention.log_bytes,
                 "BYTES: when such logs and recorders take more on the disk, of all jobs, those "
                 "that were written to last longest ago are removed; 0: any number")
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 60))
      ->capture_default_str();
}

void DescribeLostNodes(CLI::App& app, std::chrono::milliseconds& after) {
  app.add_option_function<std::string>(
         "--lost-node-after",
         [&after](const std::string& text) {
           int64_t seconds = 0;
           (void)absl::SimpleAtoi(text, &seconds);
           after = std::chrono::seconds(seconds);
         },
         "SECONDS from the last word of a node until its jobs go on elsewhere, after their ranks "
         "there have ended themselves; 0: not before somebody says trireme drain NODE --gone")
      ->check([](const std::string& text) {
        int64_t seconds = -1;
        const bool whole = absl::SimpleAtoi(text, &seconds) &&
                           (seconds == 0 || (seconds >= 50 && seconds <= 86400));
        return whole ? std::string() : "expected seconds, 0 or 50 to 86400, got " + text;
      })
      ->default_str("60");
}

void DescribeHttp(CLI::App& app, HttpOptions& http) {
  app.add_option("--http", http.address,
                 "serve metrics, health and the dashboard at HOST:PORT, as 127.0.0.1:8470; port 0: "
                 "any; none without it");
  app.add_flag("--http-anywhere", http.anywhere,
               "--http may be at an address that others reach, without TLS");
  app.add_option("--http-name", http.names,
                 "a further name by which browsers may call --http, as a proxy's (again for more)");
}

void DescribeLauncher(CLI::App& app, Arguments& arguments) {
  app.add_option("--launcher", arguments.launcher,
                 "how this machine's agent starts jobs: mpirun, or slurm, for a partition of it")
      ->check(CLI::IsMember({"mpirun", "slurm"}))
      ->capture_default_str();
  for (const char* name : {"--partition", "--account", "--time", "--sbatch"}) {
    app.add_option_function<std::vector<std::string>>(
           name,
           [&arguments, name](const std::vector<std::string>& values) {
             for (const std::string& value : values) arguments.slurm.emplace_back(name, value);
           },
           "as of trireme-agent, with --launcher slurm")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
}

void Describe(CLI::App& app, Arguments& arguments) {
  DaemonOptions& daemon = arguments.daemon;
  ListenOptions& listen = daemon.listen;
  app.add_option("--state-dir", daemon.state_folder,
                 "the store, and the run folders of jobs without --jobs-dir")
      ->capture_default_str();
  app.add_option("--jobs-dir", daemon.jobs_folder,
                 "run folders of new jobs, the same folder on all nodes (default: jobs in "
                 "--state-dir, which then may be on a disk of this machine)");
  app.add_option("--socket", listen.socket.path,
                 "path of the unix socket, or unix:PATH; root and the daemon's own user are admins")
      ->capture_default_str();
  app.add_option("--socket-group", listen.socket.group,
                 "members of this group may open the socket too, each as a user of his own name "
                 "with the role submit (without it nobody else may)");
  app.add_flag("--no-socket", arguments.no_socket, "no unix socket (needs --listen)");
  app.add_option("--listen", listen.address,
                 "also at HOST:PORT, with tokens; port 0: any. TLS is needed unless HOST is "
                 "loopback");
  app.add_option("--token-file", daemon.token_file,
                 "lines 'ROLE USER TOKEN', ROLE submit, operator, admin or agent; mode 600");
  app.add_option("--certificate", listen.certificate_file, "PEM file of the server's certificate");
  app.add_option("--key", listen.key_file, "PEM file of its key");
  app.add_option("--client-ca", listen.client_ca_file,
                 "clients need a certificate signed by this one (mutual TLS)");
  app.add_option(
      "--allow-folder", daemon.rules.allowed_folders,
      "jobs may name files and folders only below this one (again for more); needed with "
      "--listen and --socket-group, without them the default is anywhere");
  DescribeLimits(app, daemon.limits);
  DescribeCaps(app, daemon);
  DescribeChecks(app, daemon.rules);
  DescribeHttp(app, daemon.http);
  app.add_option("--max-events", daemon.most_events,
                 "events kept for watchers, about 100 bytes each; older ones are dropped")
      ->check(CLI::Range(uint64_t{1000}, uint64_t{1000000000}))
      ->capture_default_str();
  app.add_option("--max-ended-jobs", daemon.most_ended_jobs,
                 "ended jobs that are kept and listed, a few KiB each; those that ended first are "
                 "forgotten, their run folders stay")
      ->check(CLI::Range(uint64_t{100}, uint64_t{100000000}))
      ->capture_default_str();
  DescribeLostNodes(app, daemon.lost_node_after);
  DescribeRetention(app, daemon.retention);
  app.add_flag("--no-agent", arguments.no_agent, "start no agent on this machine");
  app.add_option("--log-format", arguments.log_format, "of the log on stderr: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  app.add_option("--node", arguments.node, "name of this machine as a node")->capture_default_str();
  DescribeLauncher(app, arguments);
}

// Ranks run as the daemon's user: where others submit, somebody has to say which files are for
// them.
absl::Status CheckFoldersForUsers(const DaemonOptions& daemon) {
  const bool listens = !daemon.listen.address.empty();
  if (!daemon.rules.allowed_folders.empty() || (!listens && daemon.listen.socket.group.empty())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(base::Text(
      listens ? "--listen" : "--socket-group",
      " lets others submit, whose jobs may read and write what the daemon's user may: name the "
      "folders that are for jobs by --allow-folder FOLDER (again for more); --allow-folder / is "
      "all of them, but for the daemon's own"));
}

absl::Status Complete(Arguments& arguments) {
  DaemonOptions& daemon = arguments.daemon;
  std::error_code error;
  daemon.state_folder = std::filesystem::absolute(daemon.state_folder, error).lexically_normal();
  if (daemon.jobs_folder.empty()) daemon.jobs_folder = daemon.state_folder + "/jobs";
  daemon.jobs_folder = std::filesystem::absolute(daemon.jobs_folder, error).lexically_normal();
  for (std::string& folder : daemon.rules.allowed_folders) {
    const std::string given = folder;
    folder = std::filesystem::absolute(folder, error).lexically_normal();
    // An empty one would allow all.
    if (given.empty() || error || folder.empty()) {
      return absl::InvalidArgumentError("--allow-folder '" + given + "': no such folder can be");
    }
  }
  Limits& limits = daemon.limits;
  limits.submits.burst = kSubmitBurst * limits.submits.per_second;
  limits.calls.burst = kCallBurst * limits.calls.per_second;
  // As clients name it, by --coordinator.
  std::string& socket = daemon.listen.socket.path;
  if (socket.starts_with(kUnix)) socket.erase(0, kUnix.size());
  if (arguments.no_socket) socket.clear();
  if (socket.empty() && daemon.listen.address.empty()) {
    return absl::InvalidArgumentError("nothing to listen at: --no-socket needs --listen");
  }
  if (socket.empty() && !daemon.listen.socket.group.empty()) {
    return absl::InvalidArgumentError(
        "--socket-group opens the unix socket: leave --no-socket out");
  }
  if (!daemon.listen.address.empty() && daemon.token_file.empty()) {
    return absl::InvalidArgumentError(
        "--listen needs --token-file: without tokens nobody could be let in there");
  }
  RETURN_IF_ERROR(CheckFoldersForUsers(daemon));
  if (daemon.retention.checkpoints && daemon.retention.run_days <= 0 &&
      daemon.retention.run_bytes == 0) {
    return absl::InvalidArgumentError(
        "--remove-checkpoints needs --keep-run-folders or --keep-run-bytes");
  }
  if (!arguments.slurm.empty() && arguments.launcher != "slurm") {
    return absl::InvalidArgumentError(arguments.slurm[0].first + " needs --launcher slurm");
  }
  if (arguments.no_agent) return absl::OkStatus();
  if (daemon.listen.socket.path.empty()) {
    return absl::InvalidArgumentError(
        "the agent of this machine speaks over the unix socket: --no-socket needs --no-agent");
  }
  daemon.agent.program = base::ProgramBesideUs("trireme-agent");
  daemon.agent.arguments = {"--coordinator", "unix:" + daemon.listen.socket.path,
                            "--node",        arguments.node,
                            "--state-dir",   daemon.state_folder + "/agent",
                            "--log-format",  arguments.log_format,
                            "--launcher",    arguments.launcher,
                            "--log-file",    daemon.state_folder + "/agent.log"};
  for (const auto& [name, value] : arguments.slurm) {
    daemon.agent.arguments.push_back(name + "=" + value);
  }
  daemon.agent.log_file = daemon.state_folder + "/agent.log";
  daemon.agent.lock_file = daemon.state_folder + "/agent/lock";  // coordinator/keeper/keeper.h
  return absl::OkStatus();
}

// Blocked before any thread is made, so that all inherit it and main alone takes them.
sigset_t BlockSignals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&wanted, number);
  pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file too large is an error of its write
  return wanted;
}

// Whose end HUP then is.
bool OfTerminal() { return isatty(STDIN_FILENO) == 1; }

int Run(const Arguments& arguments) {
  const sigset_t wanted = BlockSignals();
  DaemonOptions options = arguments.daemon;
  options.end = [] { kill(getpid(), SIGTERM); };
  auto daemon = Daemon::Start(options);
  if (!daemon.ok()) {
    LogEnd(base::MessageOf(daemon.status()));
    return base::ExitCodeOf(daemon.status());
  }
  const ListenOptions& listen = arguments.daemon.listen;
  const std::string http = (*daemon)->http_address();
  spdlog::info("ready: {}{}{}{}, state in {}",
               listen.socket.path.empty() ? "" : "unix:" + listen.socket.path,
               listen.socket.path.empty() || listen.address.empty() ? "" : " and ",
               listen.address.empty() ? "" : base::Text("port ", (*daemon)->port()),
               http.empty() ? "" : ", http://" + http, arguments.daemon.state_folder);
  TellSystemd("READY=1");
  int number = 0;
  for (sigwait(&wanted, &number); number == SIGHUP && !OfTerminal(); sigwait(&wanted, &number)) {
    const absl::Status read = (*daemon)->ReloadTokens();
    if (read.ok()) {
      spdlog::info("signal HUP: {}", arguments.daemon.token_file.empty()
                                         ? "there is no token file to be read again"
                                         : "the token file is read again");
    } else {
      spdlog::error("signal HUP: the tokens are those of before: {}", base::MessageOf(read));
    }
  }
  if (const absl::Status fault = (*daemon)->fault(); !fault.ok()) {
    TellSystemd("STOPPING=1");
    LogEnd(base::MessageOf(fault));
    return base::ExitCodeOf(fault);
  }
  spdlog::info("signal {}: ending; jobs and agents run on", number);
  TellSystemd("STOPPING=1");
  return base::kOk;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "The coordinator daemon of Trireme: takes jobs over gRPC, allocates nodes to them, has them "
      "started, and starts them again when something breaks. Jobs run on while it is away.");
  Arguments arguments;
  arguments.daemon.version = TRIREME_VERSION;
  arguments.daemon.state_folder = client::DefaultStateFolder();
  arguments.daemon.listen.socket.path = client::DefaultSocketPath();
  arguments.node = base::HostName();
  Describe(app, arguments);
  app.set_version_flag("--version", "triremed " TRIREME_VERSION, "print the version");
  const ConfigFile config(app);
  app.failure_message([&config](const CLI::App*, const CLI::Error& error) {
    return "triremed: " + config.Explain(error) + "\nRun with --help for more information.\n";
  });
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? base::kOk : base::kBadInput;
  }
  StartLog({.program = "triremed",
            .format = arguments.log_format == "json" ? LogFormat::kJson : LogFormat::kText});
  client::HearGrpc([](const std::string& line) { spdlog::warn("{}", line); });
  if (const absl::Status complete = Complete(arguments); !complete.ok()) {
    LogEnd(base::MessageOf(complete));
    return base::kBadInput;
  }
  const int code = Run(arguments);
  client::HearGrpc(nullptr);  // before the log is taken down
  return code;
}

}  // namespace
}  // namespace trireme::coordinator

int main(int argc, char** argv) { return trireme::coordinator::Main(argc, argv); }
