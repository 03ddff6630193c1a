// trireme-worker: one MPI rank. Reads the resolved job, gets the plan from rank 0, interprets it.
//
// Threads:
//   main        engine loop: instructions, transfers, evaluation, checkpoints
//   OpenMP team kernels, `runtime.threads` in all (main is one of them)
//   stream      only with runtime.asynchronous_streams: runs the operators
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/mpi/mpi_fabric.h"
#include "runtime/spec/job_spec.h"
#include "worker/generation.h"
#include "worker/session.h"
#include "worker/stop_signal.h"
#include "worker/training_run.h"

namespace trireme::worker {

namespace {

struct Arguments {
  std::string job;
  TrainingRunOptions training;
  GenerationOptions generation;
};

absl::StatusOr<base::ExitCode> Train(const Arguments& arguments, comm::Fabric& fabric,
                                     recorder::FlightRecorder& recorder) {
  ASSIGN_OR_RETURN(v1::JobSpec job, spec::LoadJob(arguments.job, {}));
  ASSIGN_OR_RETURN(const auto dataset, OpenJobData(job));
  if (job.model().config().vocab_size() == 0) {
    job.mutable_model()->mutable_config()->set_vocab_size(dataset->tokenizer().vocab_size());
  }
  ASSIGN_OR_RETURN(const auto session, Session::Open(job, fabric, *dataset, &recorder));
  return TrainingRun(job, arguments.training, *session, *dataset, recorder).Run();
}

// The communicators alone wait for peers, and say so by these codes.
recorder::Blame BlameOf(const absl::Status& failure) {
  return absl::IsDeadlineExceeded(failure) || absl::IsUnavailable(failure)
             ? recorder::Blame::kPeer
             : recorder::Blame::kItself;
}

base::ExitCode RunTraining(const Arguments& arguments, comm::Fabric& fabric) {
  const std::string path =
      absl::StrFormat("%s/recorder/rank-%03d.rec", arguments.training.run_directory, fabric.rank());
  auto recorder = recorder::FlightRecorder::Create(path, fabric.rank(), fabric.size());
  if (!recorder.ok()) {
    spdlog::error("rank {}: {}", fabric.rank(), base::MessageOf(recorder.status()));
    return base::kBadInput;
  }
  const absl::StatusOr<base::ExitCode> code = Train(arguments, fabric, **recorder);
  if (code.ok()) return *code;
  const absl::Status& failure = code.status();
  spdlog::error("rank {}: {}", fabric.rank(), base::MessageOf(failure));
  (*recorder)->Fail(base::MessageOf(failure), BlameOf(failure));
  return base::ExitCodeOf(failure);
}

int Main(int argc, char** argv) {
  CLI::App app("One rank of a Trireme job; started by mpirun, srun or `trireme run`.");
  Arguments arguments;
  app.add_option("--job", arguments.job, "resolved job file");
  app.add_option("--run-dir", arguments.training.run_directory, "run folder");
  app.add_option("--resume", arguments.training.resume, "checkpoint folder, or auto");
  CLI::App* generate = app.add_subcommand("generate", "continue a text from a checkpoint");
  AddGenerationOptions(*generate, arguments.generation);
  CLI11_PARSE(app, argc, argv);
  spdlog::set_default_logger(spdlog::stderr_logger_mt("worker"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S %l %v");
  ListenForStop();
  auto fabric = comm::ConnectMpi(&argc, &argv);
  if (!fabric.ok()) {
    spdlog::error("{}", base::MessageOf(fabric.status()));
    return base::kInternal;
  }
  const base::ExitCode code = generate->parsed() ? RunGeneration(arguments.generation, **fabric)
                                                 : RunTraining(arguments, **fabric);
  if (code != base::kOk && code != base::kCheckpointed) {
    std::fflush(nullptr);
    comm::AbortJob(code);
  }
  const absl::Status closed = (*fabric)->Close();
  if (!closed.ok()) spdlog::warn("{}", base::MessageOf(closed));
  // mpirun ends the job at the first exit that is not 0, so one rank brings the news after
  // everybody has closed.
  return code == base::kCheckpointed && (*fabric)->rank() != 0 ? base::kOk : code;
}

}  // namespace

}  // namespace trireme::worker

int main(int argc, char** argv) { return trireme::worker::Main(argc, argv); }
