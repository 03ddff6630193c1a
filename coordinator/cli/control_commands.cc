#include "coordinator/cli/control_commands.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>

#include "coordinator/cli/control.h"

namespace trireme::cli {
namespace {

constexpr const char* kGroup = "With a coordinator (triremed)";

// Lives as long as the parsing's callbacks do.
struct Given {
  ControlOptions control;
  SubmitOptions submit;
  ListOptions list;
  LogsOptions logs;
  TopOptions top;
  CheckOptions check;
  ExportOptions export_options;
  FilesOptions files;
  std::string job;
  std::string node;
  std::string folder;
  std::string reason;
  bool gone = false;
  double grace_seconds = 0;
};
using Shared = std::shared_ptr<Given>;

// NaN is in no range.
CLI::Validator Seconds(double least, double most, const std::string& expected) {
  return CLI::Validator(
      [=](const std::string& text) {
        char* end = nullptr;
        const double seconds = std::strtod(text.c_str(), &end);
        const bool whole = end != text.c_str() && *end == '\0';
        return whole && seconds >= least && seconds <= most ? "" : "expected " + expected;
      },
      "");
}

CLI::App* Add(CLI::App& app, const Shared& given, const std::string& name,
              const std::string& what) {
  CLI::App* command = app.add_subcommand(name, what);
  command->group(kGroup);
  command->add_flag("--json", given->control.json, "the answer as JSON, one message a line");
  AddReach(*command, given->control);
  return command;
}

void AddJobName(CLI::App& command, std::string& job) {
  command.add_option("job", job, "number, or name (the newest of it)")
      ->required()
      ->type_name("JOB");
}

CLI::App* AddOnJob(CLI::App& app, const Shared& given, const std::string& name,
                   const std::string& what) {
  CLI::App* command = Add(app, given, name, what);
  AddJobName(*command, given->job);
  return command;
}

CLI::App* AddOnNode(CLI::App& app, const Shared& given, const std::string& name,
                    const std::string& what) {
  CLI::App* command = Add(app, given, name, what);
  command->add_option("node", given->node, "as `trireme nodes` shows it")
      ->required()
      ->type_name("NODE");
  return command;
}

void AddSubmit(CLI::App& app, const Shared& given, int* code) {
  CLI::App* submit = Add(app, given, "submit", "queue a job");
  SubmitOptions& options = given->submit;
  submit->add_option("job", options.job, "job file (YAML; docs/job_spec.md)")
      ->required()
      ->type_name("JOB.yaml");
  submit->add_option("--set", options.overrides, "override a field, as in training.steps=100")
      ->type_name("a.b=c")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  submit
      ->add_option("--request-id", options.request_id,
                   "the same id never makes a second job, however often it is sent")
      ->check([](const std::string& id) {
        return id.empty() ? std::string("it is empty: each submission would be another job")
                          : std::string();
      })
      ->type_name("ID");
  submit->add_flag("--watch", options.watch, "stay and watch it");
  submit->footer(
      "Prints the job's number, and nothing else, to stdout. Its MPI ranks are resources.ranks of\n"
      "the job, or the product of its sizes.\n\n"
      "Examples:\n"
      "  trireme submit job.yaml --set resources.ranks=4\n"
      "  trireme submit job.yaml --set training.steps=5000\n"
      "  id=$(trireme submit job.yaml) && trireme watch $id");
  submit->callback([=] { *code = RunSubmit(given->control, given->submit); });
}

void AddList(CLI::App& app, const Shared& given, int* code) {
  CLI::App* list = Add(app, given, "list", "jobs that have not ended, newest first");
  list->add_option("--state", given->list.states, "only these; may be repeated")
      ->type_name("STATE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  list->add_flag("--all", given->list.all, "those that have ended as well");
  list->add_option("--owner", given->list.owner, "only jobs of this person")->type_name("NAME");
  list->add_option("--name", given->list.name, "only jobs of this name")->type_name("NAME");
  list->footer(
      "States: pending, planning, launching, running, recovering, pausing, paused, completed,\n"
      "failed, cancelled.\n\n"
      "Examples:\n"
      "  trireme list\n"
      "  trireme list --state failed --owner ada --json");
  list->callback([=] { *code = RunList(given->control, given->list); });
}

void AddLooking(CLI::App& app, const Shared& given, int* code) {
  AddOnJob(app, given, "show", "a job: state, allocation, progress, checkpoint, failure")
      ->callback([=] { *code = RunShow(given->control, given->job); });
  AddOnJob(app, given, "explain", "why a job waits, runs slowly or failed, and what to do next")
      ->callback([=] { *code = RunExplain(given->control, given->job); });
  CLI::App* watch = AddOnJob(app, given, "watch", "a job as it goes, until it ends");
  watch->footer(
      "Ctrl-C leaves; the job runs on. A restart of the coordinator is waited for.\n\n"
      "Exit codes: those of the job: 0 completed, 4 failed, 5 cancelled, 75 paused; 130 left by\n"
      "Ctrl-C; 69 no coordinator answers, 77 it refuses.");
  watch->callback([=] { *code = RunWatch(given->control, given->job); });
}

void AddTop(CLI::App& app, const Shared& given, int* code) {
  CLI::App* top = Add(app, given, "top", "jobs and nodes at a glance, redrawn as they go");
  top->add_option("-d,--delay", given->top.delay_seconds, "between two looks; default: 2")
      ->check(Seconds(0.1, 3600, "0.1 to 3600 seconds"))
      ->type_name("SECONDS");
  top->add_flag("--once", given->top.once, "one picture, as where the output is no terminal");
  top->footer(
      "q or Ctrl-C ends it. ETA is at the speed of the last step.\n\n"
      "Examples:\n"
      "  trireme top\n"
      "  trireme top --json | jq '.list.jobs[] | {id, name}'");
  top->callback([=] { *code = RunTop(given->control, given->top); });
}

void AddLogs(CLI::App& app, const Shared& given, int* code) {
  CLI::App* logs = Add(app, given, "logs", "what a rank of a job wrote");
  LogsOptions& options = given->logs;
  AddJobName(*logs, options.job);
  CLI::Option* rank = logs->add_option("--rank", options.rank, "whose; default: 0")
                          ->check(CLI::Range(0, 1 << 20))
                          ->type_name("N");
  logs->add_flag("--launcher", options.launcher, "what mpirun wrote")->excludes(rank);
  logs->add_option("--attempt", options.attempt, "of which start of the job; default: the newest")
      ->check(CLI::Range(1, 1 << 30))
      ->type_name("N");
  logs->add_flag("-f,--follow", options.follow,
                 "go on as it grows, from one attempt to the next, until the job ends");
  logs->add_option("--tail", options.tail_bytes, "only the last bytes, and what follows them")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 50))
      ->type_name("BYTES");
  logs->footer(
      "Examples:\n"
      "  trireme logs 12 --rank 3 -f\n"
      "  trireme logs demo --launcher --attempt 1");
  logs->callback([=] { *code = RunLogs(given->control, given->logs); });
}

void AddChanging(CLI::App& app, const Shared& given, int* code) {
  CLI::App* cancel = AddOnJob(app, given, "cancel", "end a job; it never starts again");
  cancel
      ->add_option("--grace", given->grace_seconds,
                   "time for a checkpoint, then it is killed; default: 30")
      ->check(Seconds(0.001, 86400, "0.001 to 86400 seconds"))
      ->type_name("SECONDS");
  cancel->callback([=] { *code = RunCancel(given->control, given->job, given->grace_seconds); });
  AddOnJob(app, given, "pause",
           "stop a job at the next step, with a checkpoint; it gives its "
           "allocation back")
      ->callback([=] { *code = RunPause(given->control, given->job); });
  AddOnJob(app, given, "resume", "queue a paused job again; it goes on from its checkpoint")
      ->callback([=] { *code = RunResume(given->control, given->job); });
  AddOnJob(app, given, "checkpoints", "the checkpoints of a job")->callback([=] {
    *code = RunCheckpoints(given->control, given->job);
  });
}

void AddFetching(CLI::App& app, const Shared& given, int* code) {
  CLI::App* out = Add(app, given, "export", "a checkpoint of a job as a Hugging Face folder");
  AddJobName(*out, given->export_options.job);
  out->add_option("--step", given->export_options.step, "of which step; default: the newest")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 62))
      ->type_name("N");
  out->add_option("--to", given->export_options.to,
                  "must not exist, and mean the same to the coordinator; default: exports/step-N "
                  "in the run folder")
      ->type_name("DIR");
  out->footer(
      "Prints the folder's name, and nothing else, to stdout. Ctrl-C gives it up (exit code 5).\n\n"
      "Examples:\n"
      "  trireme export 12\n"
      "  trireme export demo --step 600 --to /shared/models/demo-600");
  out->callback([=] { *code = RunExport(given->control, given->export_options); });

  FilesOptions& options = given->files;
  CLI::App* files = Add(app, given, "files", "what a job has left: metrics, trace, report, plan");
  AddJobName(*files, options.job);
  files->add_option("name", options.name, "fetch this one of them; without it they are listed")
      ->type_name("NAME");
  files
      ->add_option("-o,--out", options.out,
                   "where to, a folder as well; - for stdout; default: its name, here")
      ->type_name("FILE");
  files->add_flag("--force", options.force, "replace FILE if it exists");
  files->footer(
      "Examples:\n"
      "  trireme files 12\n"
      "  trireme files 12 metrics.jsonl\n"
      "  trireme files demo trace.json -o - | gzip > trace.json.gz");
  files->callback([=] { *code = RunFiles(given->control, given->files); });
}

void AddBackup(CLI::App& app, const Shared& given, int* code) {
  CLI::App* backup = Add(app, given, "backup",
                         "the coordinator's jobs, events and nodes as a file, while it runs");
  backup
      ->add_option("folder", given->folder,
                   "where to, on the coordinator's machine; made if only it is missing")
      ->required()
      ->check([](const std::string& folder) {
        return folder.empty() ? std::string("it is empty; name a folder") : std::string();
      })
      ->type_name("FOLDER");
  backup->footer(
      "Writes FOLDER/jobs-2026-11-26T101530Z.db (UTC), flushed and checked, or nothing. Jobs run "
      "on.\n"
      "Prints that name, and nothing else, to stdout. Ctrl-C gives it up (exit code 5). Only for\n"
      "admins. To restore: stop the daemon, put the file in the place of jobs.db in its state\n"
      "folder, move jobs.db-wal away, start it.\n\n"
      "Examples:\n"
      "  trireme backup /var/lib/trireme/backups\n"
      "  trireme backup /backup --json | tail -n 1 | jq -r .file");
  backup->callback([=] { *code = RunBackup(given->control, given->folder); });
}

void AddDashboard(CLI::App& app, const Shared& given, int* code) {
  CLI::App* dashboard =
      Add(app, given, "dashboard", "a link into the dashboard of the coordinator");
  dashboard->footer(
      "The link opens once, within five minutes; the browser then has your rights. Needs a\n"
      "triremed with --http. From another machine: ssh -L 8470:127.0.0.1:8470 HOST.");
  dashboard->callback([=] { *code = RunDashboard(given->control); });
}

void AddCheck(CLI::App& app, const Shared& given, int* code) {
  CLI::App* check =
      Add(app, given, "check", "is this machine fit to train, or to be a coordinator?");
  CheckOptions& options = given->check;
  check
      ->add_option("--folder", options.folders,
                   "look at the disk behind it; may be repeated; default: the current folder and "
                   "that of a daemon's state")
      ->type_name("DIR")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  check->add_option("--listen", options.listen, "could a daemon listen at HOST:PORT?")
      ->type_name("ADDRESS");
  check->add_option("--deadline", options.seconds, "for two ranks under mpirun; default: 60")
      ->check(Seconds(1, 3600, "1 to 3600 seconds"))
      ->type_name("SECONDS");
  check->footer(
      "Looks at limits, /dev/shm, disks, ports, the clock, MPI (two ranks greet each other), "
      "Slurm\n"
      "if it is there, and the coordinator. A line each: ok, warn, fail or skip, with what to "
      "do.\n\n"
      "Exit codes: 0 fit, warnings or not; 1 something fails.\n\n"
      "Examples:\n"
      "  trireme check\n"
      "  trireme check --folder /shared/runs --coordinator head:7000 --ca-file ca.pem\n"
      "  trireme check --json | jq '.findings[] | select(.verdict == \"fail\")'");
  check->callback([=] { *code = RunCheck(given->control, given->check); });
}

void AddNodes(CLI::App& app, const Shared& given, int* code) {
  CLI::App* nodes = Add(app, given, "nodes", "the nodes, and what is free on them");
  nodes->callback([=] {
    if (nodes->get_subcommands().empty()) *code = RunNodes(given->control);
  });
  CLI::App* adopt = AddOnNode(*nodes, given, "adopt",
                              "have a node serve this daemon that runs ranks of another store");
  adopt->footer(
      "An agent whose ranks run for one job store does not obey a daemon with another one, or "
      "with\n"
      "an older state of it, as after a backup was put back: the ranks run on, and `trireme "
      "nodes`\n"
      "shows what the agent holds. This says that it is to serve the daemon that answers here.\n"
      "Attempts of jobs that this store knows go on; all others on the node are ended.");
  adopt->callback([=] { *code = RunAdopt(given->control, given->node); });
  CLI::App* drain = AddOnNode(app, given, "drain", "start nothing new on a node");
  drain->add_option("--reason", given->reason, "for those who ask why")
      ->required()
      ->check([](const std::string& reason) {
        const bool blank = reason.find_first_not_of(" \t\n") == std::string::npos;
        return blank ? std::string("it is empty; say why, for those who ask") : std::string();
      })
      ->type_name("TEXT");
  drain->add_flag("--gone", given->gone,
                  "it is switched off for good: what ran there counts as ended, and its jobs go on "
                  "elsewhere");
  drain->callback([=] {
    v1::DrainRequest request;
    request.set_node(given->node);
    request.set_reason(given->reason);
    request.set_gone(given->gone);
    *code = RunDrain(given->control, request);
  });
  AddOnNode(app, given, "undrain", "use a node again")->callback([=] {
    *code = RunUndrain(given->control, given->node);
  });
}

}  // namespace

void AddReach(CLI::App& command, ControlOptions& control) {
  const auto reach = [&](const char* option, std::string& value, const char* help,
                         const char* type) {
    command.add_option(option, value, help)->type_name(type)->group("Coordinator");
  };
  client::ClientOptions& connection = control.connection;
  reach(
      "--coordinator", connection.address,
      "HOST:PORT or unix:/PATH; default: the socket of this user's triremed, as root the machine's",
      "ADDRESS");
  reach("--token-file", connection.token_file, "who you are, where TCP is used", "FILE");
  reach("--ca-file", connection.ca_file, "TLS: who signed the coordinator's certificate (PEM)",
        "FILE");
  reach("--certificate", connection.certificate_file, "mutual TLS: your certificate (PEM)", "FILE");
  reach("--key", connection.key_file, "mutual TLS: its key (PEM)", "FILE");
  command.add_option("--timeout", control.timeout_seconds, "of each call; default: 10")
      ->check(Seconds(0.01, 3600, "0.01 to 3600 seconds"))
      ->type_name("SECONDS")
      ->group("Coordinator");
}

void AddControlCommands(CLI::App& app, int* code) {
  const auto given = std::make_shared<Given>();
  AddSubmit(app, given, code);
  AddList(app, given, code);
  AddLooking(app, given, code);
  AddTop(app, given, code);
  AddLogs(app, given, code);
  AddChanging(app, given, code);
  AddFetching(app, given, code);
  AddNodes(app, given, code);
  AddBackup(app, given, code);
  AddDashboard(app, given, code);
  AddCheck(app, given, code);
}

}  // namespace trireme::cli
