#include "worker/training.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status_macros.h"
#include "runtime/recorder/rank_message.h"
#include "runtime/recorder/save_log.h"
#include "runtime/spec/job_spec.h"
#include "worker/run_files.h"
#include "worker/session.h"
#include "worker/snapshots.h"

namespace trireme::worker {

namespace {

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

// As in the run folder of `trireme run`: the job stands alone, whatever folder it is read in.
absl::StatusOr<v1::JobSpec> LoadAbsoluteJob(const TrainingOptions& options) {
  ASSIGN_OR_RETURN(v1::JobSpec job, spec::LoadJob(Absolute(options.job), options.overrides));
  for (std::string& file : *job.mutable_data()->mutable_text_files()) file = Absolute(file);
  if (job.checkpoint().has_directory()) {
    job.mutable_checkpoint()->set_directory(Absolute(job.checkpoint().directory()));
  }
  if (job.offload().has_directory()) {
    job.mutable_offload()->set_directory(Absolute(job.offload().directory()));
  }
  return job;
}

base::Links LinksOf(const TrainingRunOptions& run) {
  return run.real_paths ? base::Links::kRefuse : base::Links::kFollow;
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
absl::StatusOr<std::unique_ptr<KeeperLink>> OpenLink(const TrainingOptions& options,
                                                     const comm::Fabric& fabric) {
  if (options.link.address.empty()) return std::unique_ptr<KeeperLink>();
  KeeperLinkOptions link = options.link;
  link.who.set_rank(static_cast<uint32_t>(fabric.rank()));
  link.who.set_ranks(static_cast<uint32_t>(fabric.size()));
  link.who.set_pid(static_cast<uint32_t>(getpid()));
  return KeeperLink::Open(link);
}

// A folder that the job names is of others, the run folder is not.
tensor::SwapFolder OffloadFolder(const v1::JobSpec& job, const TrainingRunOptions& run) {
  if (!job.offload().has_directory()) return {.path = run.run_directory};
  return {.path = job.offload().directory(), .links = LinksOf(run)};
}

// What a run is made of, each part in terms of those before it. Outlives the telling of a failure:
// the end of a run may be held by its disk.
struct Training {
  v1::JobSpec job;
  std::unique_ptr<data::Dataset> dataset;
  std::optional<Snapshots> snapshots;
  std::unique_ptr<Session> session;
  std::optional<TrainingRun> run;
};

absl::StatusOr<base::ExitCode> Train(const TrainingOptions& options, comm::Fabric& fabric,
                                     comm::Agreement& agreement, KeeperLink* link,
                                     recorder::FlightRecorder& recorder, Training& training) {
  auto& [job, dataset, snapshots, session, run] = training;
  ASSIGN_OR_RETURN(job, LoadAbsoluteJob(options));
  ASSIGN_OR_RETURN(dataset, OpenJobData(job, LinksOf(options.run)));
  RETURN_IF_ERROR(ResolveVocabulary(job, dataset->tokenizer().vocab_size()));
  RETURN_IF_ERROR(CheckPrompt(job.generation(), dataset->tokenizer()));
  snapshots.emplace(agreement, SnapshotOptions{.run_folder = options.run.run_directory,
                                               .attempt = options.run.attempt});
  auto opened =
      Session::Open(job, fabric, agreement, *dataset, &recorder, OffloadFolder(job, options.run),
                    {link, options.plan_file}, &*snapshots);
  if (!opened.ok()) snapshots->RemoveIfUnused();
  ASSIGN_OR_RETURN(session, std::move(opened));
  run.emplace(job, options.run, *session, *dataset, recorder, *snapshots);
  absl::StatusOr<base::ExitCode> code = run->Run();
  snapshots->RemoveIfUnused();
  return code;
}

// Where `recorder` is a link it leads to those of an attempt of `trireme run`, which may be at
// work.
std::string OwnRecorderFolder(const std::string& run_directory) {
  std::error_code ignored;
  const std::string folder = run_directory + "/recorder";
  return std::filesystem::is_symlink(folder, ignored) ? folder + "-by-hand" : folder;
}

// The communicators wait for peers, and say so by these codes. Room is another machine's where it
// is the rank there that lacks it: which node has none is known by its rank.
recorder::Blame BlameOf(const absl::Status& failure, int rank) {
  const bool no_room = base::ExitCodeOf(failure) == base::kNoRoomHere;
  if (no_room && comm::RankOfVerdict(failure) != rank) return recorder::Blame::kPeer;
  const bool of_peer = absl::IsDeadlineExceeded(failure) || absl::IsUnavailable(failure);
  return of_peer && !comm::IsVerdict(failure) ? recorder::Blame::kPeer : recorder::Blame::kItself;
}

}  // namespace

base::ExitCode RunTraining(TrainingOptions options, comm::Fabric& fabric,
                           const std::function<void(base::ExitCode)>& on_failure) {
  options.run.run_directory = Absolute(options.run.run_directory);
  if (options.recorder_directory.empty()) {
    options.recorder_directory = OwnRecorderFolder(options.run.run_directory);
  }
  options.run.attempt = options.link.who.attempt();
  if (options.run.save_log.empty()) {
    options.run.save_log = recorder::SaveLogPath(options.recorder_directory);
  }
  // While ranks are level; of a failure the recorder is to tell.
  const absl::StatusOr<std::unique_ptr<comm::Agreement>> agreement = MakeAgreement(fabric);
  const std::string& folder = options.recorder_directory;
  const std::string path = absl::StrFormat("%s/rank-%03d.rec", folder, fabric.rank());
  // srun makes no run folder; what goes wrong here, the recorder says.
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  auto recorder = recorder::FlightRecorder::Create(path, fabric.rank(), fabric.size());
  if (!recorder.ok()) {
    spdlog::error("rank {}: {}", fabric.rank(), base::MessageOf(recorder.status()));
    return base::ExitCodeOf(OfDisk(recorder.status()));
  }
  absl::StatusOr<std::unique_ptr<KeeperLink>> link = OpenLink(options, fabric);
  if (link.ok() && *link) {
    (*link)->StartReports([path, &who = options.link.who] { return StatusOf(path, who); });
  }
  Training training;
  const absl::StatusOr<base::ExitCode> code =
      !agreement.ok() ? agreement.status()
      : !link.ok()    ? link.status()
                      : Train(options, fabric, **agreement, link->get(), **recorder, training);
  if (code.ok()) return *code;
  const absl::Status& failure = code.status();
  spdlog::error("rank {}: {}", fabric.rank(), base::MessageOf(failure));
  (*recorder)->Fail(base::MessageOf(failure), BlameOf(failure, fabric.rank()));
  if (on_failure) on_failure(base::ExitCodeOf(failure));
  return base::ExitCodeOf(failure);
}

}  // namespace trireme::worker
