// trireme-worker: one MPI rank. Reads the resolved job, gets its slice of the plan, interprets it.
//
// Threads:
//   main        engine loop: instructions, transfers, evaluation, checkpoints
//   stop        waits for the signals that ask for a stop; they are blocked in all others
//   timeline    writes the picture of a step, about once a second
//   reporter    tells the keeper of the node how the rank fares (--link); with it gRPC's own
//   OpenMP team kernels, `runtime.threads` in all (main is one of them)
//   stream      only with runtime.asynchronous_streams: runs the operators
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>

#include "runtime/base/exit_code.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/mpi/mpi_fabric.h"
#include "worker/benchmark.h"
#include "worker/generation.h"
#include "worker/hello.h"
#include "worker/stop_signal.h"
#include "worker/training.h"

namespace trireme::worker {

namespace {

base::ExitCode Greet(comm::Fabric& fabric) {
  const absl::Status greeted = SayHello(fabric);
  if (!greeted.ok()) spdlog::error("rank {}: {}", fabric.rank(), base::MessageOf(greeted));
  return base::ExitCodeOf(greeted);
}

// `training` must outlive the parsing.
void AddTrainingOptions(CLI::App& app, TrainingOptions& training) {
  app.add_option("--job", training.job, "job file");
  app.add_option("--set", training.overrides, "override a field of the job, as in seed=7")
      ->type_name("a.b=c")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  // A batch script gives its own first, its caller may give others.
  app.add_option("--run-dir", training.run.run_directory, "run folder")->take_last();
  app.add_option("--recorder-dir", training.recorder_directory,
                 "folder of the flight recorders (default: recorder in the run folder)")
      ->take_last();
  app.add_option("--save-log", training.run.save_log,
                 "file in which rank 0 notes each checkpoint before it gives it its name (default: "
                 "saves in the folder of the flight recorders)")
      ->take_last();
  app.add_option("--link", training.link.address,
                 "unix:/PATH of the keeper of this node, which has the plan and receives progress")
      ->take_last();
  app.add_option_function<uint64_t>(
         "--job-id", [&training](uint64_t id) { training.link.who.set_job_id(id); },
         "of the keeper")
      ->take_last();
  app.add_option_function<uint32_t>(
         "--attempt", [&training](uint32_t number) { training.link.who.set_attempt(number); },
         "of the keeper")
      ->take_last();
  app.add_option("--plan", training.plan_file,
                 "the plan, where no keeper is on the node (default: rank 0 plans)")
      ->take_last();
  app.add_flag("--real-paths", training.run.real_paths,
               "follow no link on the way to files and folders that the job names");
  app.add_option("--resume", training.run.resume, "checkpoint folder, or auto")->take_last();
  app.add_option("--snapshots-since", training.run.snapshots_since,
                 "go on from a step that this attempt of the run folder or a later one has left in "
                 "memory, whatever --resume says (default: from any, with --resume auto)")
      ->take_last();
  app.add_option("--snapshots-before", training.run.snapshots_before,
                 "go on in memory from steps before this one alone (default: from any)")
      ->take_last();
}

int Main(int argc, char** argv) {
  CLI::App app("One rank of a Trireme job; started by mpirun, srun or `trireme run`.");
  TrainingOptions training;
  GenerationOptions generation;
  AddTrainingOptions(app, training);
  CLI::App* generate = app.add_subcommand("generate", "continue a text from a checkpoint");
  AddGenerationOptions(*generate, generation);
  BenchmarkOptions benchmark;
  CLI::App* bench = app.add_subcommand("bench", "the operators beside the limits of this machine");
  AddBenchmarkOptions(*bench, benchmark);
  CLI::App* hello = app.add_subcommand("hello", "see whether the ranks find each other");
  try {
    app.parse(argc, argv);
    if (app.get_subcommands().empty() &&
        (training.job.empty() || training.run.run_directory.empty())) {
      throw CLI::ValidationError("training needs --job and --run-dir");
    }
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? base::kOk : base::kBadInput;
  }
  training.link.who.set_version(TRIREME_VERSION);
  spdlog::set_default_logger(spdlog::stderr_logger_mt("worker"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S %l %v");
  if (bench->parsed()) return RunBenchmark(benchmark);
  ListenForStop();
  // MPI's write to a lost peer must fail, so that the wait for it names the peer, not end this rank
  // unheard.
  std::signal(SIGPIPE, SIG_IGN);
  auto fabric = comm::ConnectMpi(&argc, &argv);
  if (!fabric.ok()) {
    spdlog::error("{}", base::MessageOf(fabric.status()));
    return base::kInternal;
  }
  // No peers: a reader who leaves (| head) ends it.
  if (generate->parsed() && (*fabric)->size() == 1) std::signal(SIGPIPE, SIG_DFL);
  // A rank alone keeps nobody waiting, and leaves without MPI's words on top of ours.
  const auto abort = [&](base::ExitCode code) {
    if ((*fabric)->size() == 1) return;
    std::fflush(nullptr);
    comm::AbortJob(code);
  };
  const base::ExitCode code = hello->parsed()      ? Greet(**fabric)
                              : generate->parsed() ? RunGeneration(generation, **fabric)
                                                   : RunTraining(training, **fabric, abort);
  const bool agreed = code == base::kOk || code == base::kCheckpointed || code == base::kCancelled;
  if (!agreed) abort(code);
  const absl::Status closed = (*fabric)->Close();
  if (!closed.ok()) spdlog::warn("{}", base::MessageOf(closed));
  // mpirun ends the job at the first exit that is not 0, so one rank brings the news after
  // everybody has closed.
  return agreed && (*fabric)->rank() != 0 ? base::kOk : code;
}

}  // namespace

}  // namespace trireme::worker

int main(int argc, char** argv) { return trireme::worker::Main(argc, argv); }
