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
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/exit_code.h"
#include "runtime/base/status_macros.h"
#include "runtime/comm/mpi/mpi_fabric.h"
#include "runtime/plan/plan_file.h"
#include "runtime/recorder/rank_message.h"
#include "runtime/recorder/save_log.h"
#include "runtime/spec/job_spec.h"
#include "worker/generation.h"
#include "worker/hello.h"
#include "worker/link/keeper_link.h"
#include "worker/run_files.h"
#include "worker/session.h"
#include "worker/stop_signal.h"
#include "worker/training_run.h"

namespace trireme::worker {

namespace {

struct Arguments {
  std::string job;
  std::vector<std::string> overrides;
  std::string recorder_directory;
  KeeperLinkOptions link;  // no address: none is named
  std::string plan_file;
  TrainingRunOptions training;
  GenerationOptions generation;
};

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

// As in the run folder of `trireme run`: the job stands alone, whatever folder it is read in.
absl::StatusOr<v1::JobSpec> LoadAbsoluteJob(const Arguments& arguments) {
  ASSIGN_OR_RETURN(v1::JobSpec job, spec::LoadJob(Absolute(arguments.job), arguments.overrides));
  for (std::string& file : *job.mutable_data()->mutable_text_files()) file = Absolute(file);
  if (job.checkpoint().has_directory()) {
    job.mutable_checkpoint()->set_directory(Absolute(job.checkpoint().directory()));
  }
  return job;
}

absl::Status ResolveVocabulary(v1::JobSpec& job, int64_t tokens) {
  const int64_t given = job.model().config().vocab_size();
  if (given == 0) job.mutable_model()->mutable_config()->set_vocab_size(tokens);
  if (given == 0 || given >= tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model.config.vocab_size: ", given, " is less than the ", tokens,
                   " tokens of the text by the ", job.data().tokenizer(),
                   " tokenizer; leave it out to take theirs"));
}

// Before a long run, not at its end. The default, a line feed, is no fault of the job: where the
// text has none, any token begins the sample.
absl::Status CheckPrompt(const v1::GenerationSpec& generation, const data::Tokenizer& tokenizer) {
  if (generation.max_new_tokens() == 0 || generation.prompt() == "\n") return absl::OkStatus();
  const auto tokens = tokenizer.Encode(generation.prompt());
  if (tokens.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("generation.prompt: ", base::MessageOf(tokens.status())));
}

// As the flight recorder says, which is written by the step loop.
v1::RankStatus StatusOf(const std::string& recording_path, const v1::JoinRequest& who) {
  v1::RankStatus status;
  status.set_job_id(who.job_id());
  status.set_attempt(who.attempt());
  const auto recording = recorder::ReadRecording(recording_path);
  if (!recording.ok()) return status;
  *status.mutable_rank() = recorder::RankMessage(*recording, engine::NowNs());
  if (recording->rank == 0) *status.mutable_progress() = recorder::ProgressMessage(*recording);
  return status;
}

// Null: no keeper is named.
absl::StatusOr<std::unique_ptr<KeeperLink>> OpenLink(const Arguments& arguments,
                                                     const comm::Fabric& fabric) {
  if (arguments.link.address.empty()) return std::unique_ptr<KeeperLink>();
  KeeperLinkOptions options = arguments.link;
  options.who.set_rank(static_cast<uint32_t>(fabric.rank()));
  options.who.set_ranks(static_cast<uint32_t>(fabric.size()));
  options.who.set_pid(static_cast<uint32_t>(getpid()));
  options.who.set_version(TRIREME_VERSION);
  return KeeperLink::Open(options);
}

absl::StatusOr<base::ExitCode> Train(const Arguments& arguments, comm::Fabric& fabric,
                                     KeeperLink* link, recorder::FlightRecorder& recorder) {
  ASSIGN_OR_RETURN(auto everyone, GroupOfAll(fabric));
  ASSIGN_OR_RETURN(v1::JobSpec job, LoadAbsoluteJob(arguments));
  ASSIGN_OR_RETURN(const auto dataset,
                   OpenJobData(job, arguments.training.real_paths ? base::Links::kRefuse
                                                                  : base::Links::kFollow));
  RETURN_IF_ERROR(ResolveVocabulary(job, dataset->tokenizer().vocab_size()));
  RETURN_IF_ERROR(CheckPrompt(job.generation(), dataset->tokenizer()));
  ASSIGN_OR_RETURN(const auto session, Session::Open(job, fabric, std::move(everyone), *dataset,
                                                     &recorder, {link, arguments.plan_file}));
  // Else the coordinator has written both.
  if (fabric.rank() == 0 && session->planned_here()) {
    const std::string& folder = arguments.training.run_directory;
    RETURN_IF_ERROR(WriteFile(folder + "/job.yaml", spec::ToYaml(job)));
    RETURN_IF_ERROR(WriteFile(folder + "/plan.pb", plan::SerializePlan(session->plan())));
  }
  return TrainingRun(job, arguments.training, *session, *dataset, recorder).Run();
}

// The communicators alone wait for peers, and say so by these codes.
recorder::Blame BlameOf(const absl::Status& failure) {
  return absl::IsDeadlineExceeded(failure) || absl::IsUnavailable(failure)
             ? recorder::Blame::kPeer
             : recorder::Blame::kItself;
}

base::ExitCode RunTraining(const Arguments& arguments, comm::Fabric& fabric) {
  const std::string& folder = arguments.recorder_directory;
  const std::string path = absl::StrFormat("%s/rank-%03d.rec", folder, fabric.rank());
  // srun makes no run folder; what goes wrong here, the recorder says.
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  auto recorder = recorder::FlightRecorder::Create(path, fabric.rank(), fabric.size());
  if (!recorder.ok()) {
    spdlog::error("rank {}: {}", fabric.rank(), base::MessageOf(recorder.status()));
    return base::kBadInput;
  }
  absl::StatusOr<std::unique_ptr<KeeperLink>> link = OpenLink(arguments, fabric);
  if (link.ok() && *link) {
    (*link)->StartReports([path, &who = arguments.link.who] { return StatusOf(path, who); });
  }
  const absl::StatusOr<base::ExitCode> code =
      link.ok() ? Train(arguments, fabric, link->get(), **recorder) : link.status();
  if (code.ok()) return *code;
  const absl::Status& failure = code.status();
  spdlog::error("rank {}: {}", fabric.rank(), base::MessageOf(failure));
  (*recorder)->Fail(base::MessageOf(failure), BlameOf(failure));
  return base::ExitCodeOf(failure);
}

base::ExitCode Greet(comm::Fabric& fabric) {
  const absl::Status greeted = SayHello(fabric);
  if (!greeted.ok()) spdlog::error("rank {}: {}", fabric.rank(), base::MessageOf(greeted));
  return base::ExitCodeOf(greeted);
}

// What the command line has left open.
void FillIn(Arguments& arguments) {
  arguments.training.run_directory = Absolute(arguments.training.run_directory);
  if (arguments.recorder_directory.empty()) {
    arguments.recorder_directory = arguments.training.run_directory + "/recorder";
  }
  arguments.training.save_log = recorder::SaveLogPath(arguments.recorder_directory);
}

int Main(int argc, char** argv) {
  CLI::App app("One rank of a Trireme job; started by mpirun, srun or `trireme run`.");
  Arguments arguments;
  app.add_option("--job", arguments.job, "job file");
  app.add_option("--set", arguments.overrides, "override a field of the job, as in seed=7")
      ->type_name("a.b=c")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  // A batch script gives its own first, its caller may give others.
  app.add_option("--run-dir", arguments.training.run_directory, "run folder")->take_last();
  app.add_option("--recorder-dir", arguments.recorder_directory,
                 "folder of the flight recorders (default: recorder in the run folder)")
      ->take_last();
  app.add_option("--link", arguments.link.address,
                 "unix:/PATH of the keeper of this node, which has the plan and hears how it goes")
      ->take_last();
  app.add_option_function<uint64_t>(
         "--job-id", [&](uint64_t id) { arguments.link.who.set_job_id(id); }, "of the keeper")
      ->take_last();
  app.add_option_function<uint32_t>(
         "--attempt", [&](uint32_t number) { arguments.link.who.set_attempt(number); },
         "of the keeper")
      ->take_last();
  app.add_option("--plan", arguments.plan_file,
                 "the plan, where no keeper is on the node (default: rank 0 plans)")
      ->take_last();
  app.add_flag("--real-paths", arguments.training.real_paths,
               "follow no link on the way to files and folders that the job names");
  app.add_option("--resume", arguments.training.resume, "checkpoint folder, or auto")->take_last();
  CLI::App* generate = app.add_subcommand("generate", "continue a text from a checkpoint");
  AddGenerationOptions(*generate, arguments.generation);
  CLI::App* hello = app.add_subcommand("hello", "see whether the ranks find each other");
  try {
    app.parse(argc, argv);
    if (!generate->parsed() && !hello->parsed() &&
        (arguments.job.empty() || arguments.training.run_directory.empty())) {
      throw CLI::ValidationError("training needs --job and --run-dir");
    }
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? base::kOk : base::kBadInput;
  }
  FillIn(arguments);
  spdlog::set_default_logger(spdlog::stderr_logger_mt("worker"));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S %l %v");
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
  const base::ExitCode code = hello->parsed()      ? Greet(**fabric)
                              : generate->parsed() ? RunGeneration(arguments.generation, **fabric)
                                                   : RunTraining(arguments, **fabric);
  const bool agreed = code == base::kOk || code == base::kCheckpointed || code == base::kCancelled;
  // A rank alone keeps nobody waiting, and leaves without MPI's words on top of ours.
  if (!agreed && (*fabric)->size() > 1) {
    std::fflush(nullptr);
    comm::AbortJob(code);
  }
  const absl::Status closed = (*fabric)->Close();
  if (!closed.ok()) spdlog::warn("{}", base::MessageOf(closed));
  // mpirun ends the job at the first exit that is not 0, so one rank brings the news after
  // everybody has closed.
  return agreed && (*fabric)->rank() != 0 ? base::kOk : code;
}

}  // namespace

}  // namespace trireme::worker

int main(int argc, char** argv) { return trireme::worker::Main(argc, argv); }
