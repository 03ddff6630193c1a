#include "worker/training_run.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer.h"
#include "runtime/base/check.h"
#include "runtime/base/monotonic.h"
#include "runtime/base/status_macros.h"
#include "runtime/data/digest.h"
#include "runtime/model/model.h"
#include "runtime/plan/plan_file.h"
#include "runtime/recorder/save_log.h"
#include "runtime/run_claim/run_claim.h"
#include "runtime/spec/job_spec.h"
#include "worker/compared_job.h"
#include "worker/engine_state.h"
#include "worker/run_files.h"
#include "worker/stop_signal.h"

namespace trireme::worker {

namespace {

// Of a checkpoint's scalars; older ones lack them.
constexpr const char* kSkippedSteps = "skipped_steps";
constexpr const char* kLoss = "loss";
constexpr const char* kValidationLoss = "validation_loss";
constexpr const char* kValidationStep = "validation_step";

double ScalarOf(const checkpoint::CheckpointInfo& info, const char* name) {
  const auto found = info.scalars.find(name);
  return found == info.scalars.end() ? 0 : found->second;
}

// A file may hold any number there; no count is negative or beyond what a double counts.
int64_t CountOf(const checkpoint::CheckpointInfo& info, const char* name) {
  constexpr double kMost = 0x1p53;
  const double value = ScalarOf(info, name);
  return value >= 0 && value <= kMost ? static_cast<int64_t>(value) : 0;
}

std::string CheckpointFolder(const v1::JobSpec& job, const std::string& run_directory) {
  return job.checkpoint().directory().empty() ? run_directory + "/checkpoints"
                                              : job.checkpoint().directory();
}

}  // namespace

TrainingRun::TrainingRun(const v1::JobSpec& job, const TrainingRunOptions& options,
                         Session& session, const data::Dataset& dataset,
                         recorder::FlightRecorder& recorder, Snapshots& snapshots)
    : job_(job),
      options_(options),
      session_(session),
      ranks_(session.engine().agreement()),
      dataset_(dataset),
      recorder_(recorder),
      snapshots_(snapshots),
      checkpoint_root_(CheckpointFolder(job, options.run_directory)),
      traced_(job),
      timeline_(std::in_place, options.run_directory, session.engine().rank()),
      throughput_(engine::NowNs) {}

absl::StatusOr<base::ExitCode> TrainingRun::Run() {
  const absl::Status started = Start();
  if (absl::IsCancelled(started)) {
    spdlog::info("{}", base::MessageOf(started));
    return base::kCheckpointed;  // all that there was is there
  }
  RETURN_IF_ERROR(started);
  bool stopped = false;
  // What the attempt before was to do after that step, and may not have done.
  if (from_memory_) {
    ASSIGN_OR_RETURN(stopped, FollowStep(false));
  }
  while (!stopped && step_ < progress_.steps_total) {
    ASSIGN_OR_RETURN(const bool stop, Step());
    ASSIGN_OR_RETURN(stopped, FollowStep(stop));
  }
  if (stopped) {
    // With the checkpoint safe; the steps after it are traced by whoever goes on.
    RETURN_IF_ERROR(WriteTrace());
    RETURN_IF_ERROR(Leave(absl::OkStatus()));
  } else {
    RETURN_IF_ERROR(Finish());
    recorder_.SetState(recorder::RankState::kStopped);
  }
  // Where the disk took no checkpoint they are all there is.
  if (saved_step_ == step_) snapshots_.Remove();
  return stopped ? base::kCheckpointed : base::kOk;
}

absl::StatusOr<bool> TrainingRun::FollowStep(bool stop) {
  const auto is_due = [this](int64_t every) {
    return every > 0 && step_ % static_cast<uint64_t>(every) == 0;
  };
  const bool last = step_ == progress_.steps_total;
  bool evaluated = true;
  // Whoever stops has no time for it.
  const bool evaluate = (is_due(job_.evaluation().every_steps()) && !stop) || last;
  if (evaluate && progress_.validation_step != step_) {
    ASSIGN_OR_RETURN(evaluated, Evaluate());
  }
  if (last) return false;
  if (evaluated && !stop) {
    if (is_due(job_.checkpoint().every_steps())) RETURN_IF_ERROR(Save().status());
    return false;
  }
  ASSIGN_OR_RETURN(const bool saved, Save());
  recorder_.SetState(recorder::RankState::kStopped);
  if (saved) return true;
  return absl::DataLossError(
      absl::StrCat("stopped as asked, but the checkpoint could not be written", LostWithoutSave()));
}

absl::Status TrainingRun::Start() {
  ASSIGN_OR_RETURN(const graph::ModelGraph graph, model::BuildModel(job_.model().config()));
  flops_per_token_ =
      model::TrainingFlopsPerToken(graph, job_.model().config(), job_.data().sequence_length());
  session_.engine().set_stop_poll([] { return StopRequested(); });
  RETURN_IF_ERROR(AgreeOnJob());
  RETURN_IF_ERROR(TakeState());
  ASSIGN_OR_RETURN(peak_flops_, session_.MeasurePeakFlops());
  // Whoever goes on to the first step has no patience for a rank 0 that is at the disk.
  RETURN_IF_ERROR(ranks_.AllOk(leader() ? OpenLogs() : absl::OkStatus(), comm::kDiskDeadline));
  if (from_memory_) RETURN_IF_ERROR(ShareKeptValidation());
  TellSnapshots();
  progress_.steps_total = static_cast<uint64_t>(job_.training().steps());
  progress_.steps_done = step_;
  recorder_.Report(progress_);
  recorder_.SetState(recorder::RankState::kRunning);
  throughput_.Start();
  return absl::OkStatus();
}

absl::Status TrainingRun::OpenLogs() {
  RETURN_IF_ERROR(CheckAttempt());
  if (session_.planned_here()) RETURN_IF_ERROR(WriteJob());
  ASSIGN_OR_RETURN(MetricsLog metrics, MetricsLog::Open(options_.run_directory, step_));
  metrics_.emplace(std::move(metrics));
  if (from_memory_ && IsLogged(step_) && !metrics_->last_kept().step) {
    metrics_->Restored(step_, progress_.loss);
  }
  RemoveTimelines(options_.run_directory);
  return absl::OkStatus();
}

absl::Status TrainingRun::WriteJob() const {
  const std::string& folder = options_.run_directory;
  RETURN_IF_ERROR(WriteRunFile(folder + "/job.yaml", spec::ToYaml(job_)));
  return WriteRunFile(folder + "/plan.pb", plan::SerializePlan(session_.plan()));
}

absl::Status TrainingRun::CheckAttempt() const {
  if (options_.attempt > 0) {
    RETURN_IF_ERROR(OfDisk(run_claim::CheckRunClaim(options_.run_directory, options_.attempt)));
  }
  const absl::Status current = checkpoint::CheckEpoch(checkpoint_root_, epoch_);
  // A newer attempt would have made the folder again.
  return absl::IsNotFound(current) ? absl::OkStatus() : OfDisk(current);
}

// What the disk does not say is no reason to end.
bool TrainingRun::IsReplaced() {
  constexpr int64_t kEveryNs = base::kNsPerSecond;
  const int64_t now_ns = base::MonotonicNs();
  if (replaced_ || options_.attempt == 0 || now_ns - claim_read_ns_ < kEveryNs) return replaced_;
  claim_read_ns_ = now_ns;
  const absl::Status counts = run_claim::CheckRunClaim(options_.run_directory, options_.attempt);
  replaced_ = absl::IsFailedPrecondition(counts);
  if (replaced_) spdlog::error("{}", base::MessageOf(counts));
  return replaced_;
}

base::Links TrainingRun::LinksInRoot() const {
  const bool of_others = options_.real_paths && job_.checkpoint().has_directory();
  return of_others ? base::Links::kRefuse : base::Links::kFollow;
}

absl::Status TrainingRun::CheckRoot() const {
  return LinksInRoot() == base::Links::kFollow ? absl::OkStatus()
                                               : base::CheckWithoutLinks(checkpoint_root_);
}

absl::Status TrainingRun::TakeState() {
  RETURN_IF_ERROR(ranks_.AllOk(leader() ? TakeClaim() : absl::OkStatus(), comm::kDiskDeadline));
  RETURN_IF_ERROR(ShareEpoch());
  Choice choice;
  ASSIGN_OR_RETURN(from_memory_, TakeFromMemory(choice));
  if (from_memory_) return absl::OkStatus();
  if (!options_.resume.empty() && !choice.checkpoint) {
    ASSIGN_OR_RETURN(choice, ChooseCheckpoint(ranks_, Root(), options_.resume));
  }
  if (!choice.checkpoint) {
    RETURN_IF_ERROR(BeginBehind(0, choice));
    session_.engine().InitializeState();
    return absl::OkStatus();
  }
  const checkpoint::Checkpoint& checkpoint = *choice.checkpoint;
  RETURN_IF_ERROR(ranks_.AllOk(CheckResumable(checkpoint), comm::kDiskDeadline));
  RETURN_IF_ERROR(BeginBehind(checkpoint.info().step, choice));
  return ranks_.AllOk(Resume(checkpoint), comm::kDiskDeadline);
}

absl::Status TrainingRun::BeginBehind(uint64_t step, Choice& choice) {
  RETURN_IF_ERROR(JudgeLater(ranks_, Root(), step, choice));
  return ranks_.AllOk(leader() ? BeginAfter(step, choice.damaged) : absl::OkStatus(),
                      comm::kDiskDeadline);
}

CheckpointRoot TrainingRun::Root() const { return {checkpoint_root_, LinksInRoot()}; }

absl::Status TrainingRun::TakeClaim() {
  RETURN_IF_ERROR(CheckRoot());
  checkpoint::ClaimWait wait{.longest = options_.claim_wait};
  wait.go_on = [this, told = false](const absl::Status& held) mutable {
    if (!std::exchange(told, true)) {
      spdlog::warn("{}. This one waits for up to {} s", base::MessageOf(held),
                   std::chrono::ceil<std::chrono::seconds>(options_.claim_wait).count());
    }
    return !StopRequested();
  };
  auto claim = checkpoint::WriterClaim::Take(checkpoint_root_, LinksInRoot(), wait);
  if (absl::IsAborted(claim.status()) && StopRequested()) {
    return absl::CancelledError("stopped while another run held the folder of the checkpoints");
  }
  RETURN_IF_ERROR(OfDisk(claim.status()));
  claim_.emplace(*std::move(claim));
  const absl::Status forgotten = recorder::ForgetSaves(options_.save_log);
  if (!forgotten.ok()) spdlog::warn("{}", base::MessageOf(forgotten));
  return absl::OkStatus();
}

absl::Status TrainingRun::ShareEpoch() {
  uint64_t epoch = claim_ ? static_cast<uint64_t>(claim_->epoch()) : 0;
  std::string text = absl::StrCat(epoch);
  RETURN_IF_ERROR(ranks_.Share(text));
  TRIREME_CHECK(absl::SimpleAtoi(text, &epoch));
  epoch_ = checkpoint::Epoch{epoch};
  return absl::OkStatus();
}

absl::Status TrainingRun::BeginAfter(uint64_t step,
                                     const std::vector<checkpoint::Skipped>& damaged) {
  ASSIGN_OR_RETURN(const auto aside, claim_->BeginAfter(step, damaged));
  for (const checkpoint::SetAside& each : aside) {
    spdlog::warn("a damaged checkpoint is now named {}; look at it, then remove it: {}",
                 each.folder, base::MessageOf(each.reason));
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::AgreeOnJob() {
  std::string job = ComparedJob(job_);
  // Of the whole text, which one node may have to read anew.
  data_digest_ = data::DigestOf(dataset_);
  const std::string own_data = absl::StrCat(data_digest_);
  std::string data = own_data;
  RETURN_IF_ERROR(ranks_.Share(job, comm::kDiskDeadline));
  RETURN_IF_ERROR(ranks_.Share(data, comm::kDiskDeadline));
  const absl::Status alike = CheckAlike(job, data == own_data);
  if (!alike.ok()) spdlog::error("rank {}: {}", ranks_.rank(), base::MessageOf(alike));
  return ranks_.AllOk(alike, comm::kDiskDeadline);
}

absl::Status TrainingRun::CheckAlike(const std::string& job_of_rank_0, bool same_text) const {
  const std::string text = DifferencesOf(ComparedJob(job_), job_of_rank_0, "on rank 0");
  if (!text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the job is not rank 0's; give all nodes the same file", text));
  }
  if (same_text) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the text is not rank 0's (",
                                                 absl::StrJoin(job_.data().text_files(), ", "),
                                                 "); copy the same files to all nodes"));
}

// For a checkpoint whose job differs: says how, and refuses what cannot be gone on with.
absl::Status TrainingRun::CheckMadeBy(const checkpoint::CheckpointInfo& info,
                                      const std::string& folder) const {
  const auto made_by = spec::ParseEcho(info.job_yaml, folder);
  const spec::ResumeDifferences differences =
      made_by.ok() ? spec::CompareForResume(*made_by, job_) : spec::ResumeDifferences{};
  for (const std::string& each : differences.changed) {
    if (leader()) spdlog::warn("changed since {}: {}", folder, each);
  }
  if (made_by.ok() && differences.forbidden.empty()) return absl::OkStatus();
  std::string text = absl::StrCat(
      folder, ": was made by another job. Set these back (--set), or start anew without --resume");
  for (const std::string& each : differences.forbidden) absl::StrAppend(&text, "\n  ", each);
  return absl::InvalidArgumentError(text);
}

absl::Status TrainingRun::CheckResumable(const checkpoint::Checkpoint& checkpoint) const {
  const checkpoint::CheckpointInfo& info = checkpoint.info();
  const std::string& folder = checkpoint.folder();
  if (info.spec_hash != spec::SpecHash(job_)) RETURN_IF_ERROR(CheckMadeBy(info, folder));
  if (info.tokenizer != dataset_.tokenizer().Description()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, ": was trained with another vocabulary; have the text files changed?"));
  }
  if (info.data_digest.value_or(data_digest_) != data_digest_) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": was trained on another text than is now in ",
                     absl::StrJoin(job_.data().text_files(), ", "),
                     "; put the old text back to go on, or start anew without --resume"));
  }
  if (info.step > static_cast<uint64_t>(job_.training().steps())) {
    return absl::InvalidArgumentError(
        absl::StrCat("training.steps: ", job_.training().steps(), " steps end before step ",
                     info.step, ", which ", folder,
                     " is of; give more, name an earlier checkpoint, or start anew without "
                     "--resume"));
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::Resume(const checkpoint::Checkpoint& checkpoint) {
  const checkpoint::CheckpointInfo& info = checkpoint.info();
  RETURN_IF_ERROR(session_.Restore(checkpoint, /*with_moments=*/true));
  session_.engine().state().set_skipped_steps(CountOf(info, kSkippedSteps));
  // For what this attempt does not measure anew: it may have only the end to write.
  progress_.loss = ScalarOf(info, kLoss);
  progress_.validation_loss = ScalarOf(info, kValidationLoss);
  progress_.validation_step = static_cast<uint64_t>(CountOf(info, kValidationStep));
  step_ = saved_step_ = info.step;
  if (leader()) spdlog::info("resumed from {} at step {}", checkpoint.folder(), step_);
  return absl::OkStatus();
}

double TrainingRun::SkippedSteps() const {
  return static_cast<double>(session_.engine().state().skipped_steps());
}

absl::StatusOr<bool> TrainingRun::Step() {
  ASSIGN_OR_RETURN(const engine::StepReport report, session_.engine().RunStep(step_));
  ++step_;
  if (traced_.Contains(step_)) trace_.Keep(step_, session_.engine().last_trace());
  RETURN_IF_ERROR(Report(report));
  const engine::Engine& engine = session_.engine();
  const bool last = report.stop_requested || step_ == progress_.steps_total;
  if (last || timeline_->IsDue(report.shared_time_s)) {
    timeline_->Keep(step_, engine.last_trace(), engine.clock());
  }
  // Where the run ends or stops, the checkpoint comes first.
  if (traced_.Ends(step_) && !last) RETURN_IF_ERROR(WriteTrace());
  return report.stop_requested;
}

bool TrainingRun::IsLogged(uint64_t step) const {
  const uint64_t every = static_cast<uint64_t>(job_.runtime().log_every_steps());
  return step % std::max<uint64_t>(1, every) == 0 ||
         step == static_cast<uint64_t>(job_.training().steps());
}

absl::Status TrainingRun::Report(const engine::StepReport& report) {
  throughput_.AddStep(report.tokens, report.duration_s);
  if (report.skipped) {
    if (leader()) spdlog::warn("step {} was left out: {}", step_, report.nonfinite);
  }
  if (const std::string loose = LooseBound(report, job_.compression()); !loose.empty()) {
    if (leader() && loose_bound_.empty()) spdlog::warn("step {}: {}", step_, loose);
    loose_bound_ = loose;
  }
  progress_.steps_done = step_;
  progress_.loss = report.loss;
  progress_.tokens_per_second = static_cast<double>(report.tokens) / report.duration_s;
  progress_.overall_tokens_per_second = throughput_.overall();
  progress_.utilisation = flops_per_token_ * progress_.tokens_per_second / peak_flops_;
  recorder_.Report(progress_);
  const bool logged = IsLogged(step_);
  // Of the first step too: with it the ranks set their clocks.
  if (!logged && clock_set_) return absl::OkStatus();
  // Collective: every rank logs the same steps, rank 0 writes them down.
  ASSIGN_OR_RETURN(const engine::ExposureReport exposure, session_.engine().MeasureExposure());
  clock_set_ = true;
  if (!logged) return absl::OkStatus();
  exposure_.Add(exposure, report.duration_s);
  ASSIGN_OR_RETURN(coding_, session_.engine().GatherCoding());
  const bool replaced = leader() && IsReplaced();
  if (metrics_ && !replaced) {
    metrics_->Step({.step = step_,
                    .loss = report.loss,
                    .learning_rate = report.learning_rate,
                    .gradient_norm = report.gradient_norm,
                    .tokens_per_second = progress_.tokens_per_second,
                    .overall_tokens_per_second = progress_.overall_tokens_per_second,
                    .step_time_ms = report.duration_s * 1e3,
                    .utilisation = progress_.utilisation,
                    .exposure = exposure,
                    .skipped = report.skipped,
                    .coding = coding_.empty() ? std::nullopt : std::optional(RatiosOf(coding_))});
  }
  (void)NoteUnnoted();  // told of when it was to be noted
  ASSIGN_OR_RETURN(const bool counts, AllAgreeAfterRankZero(ranks_, !replaced));
  if (counts) return absl::OkStatus();
  return absl::FailedPreconditionError("a newer attempt of the job has replaced this one");
}

absl::StatusOr<bool> TrainingRun::Evaluate() {
  if (dataset_.samples(data::Split::kValidation) == 0) return true;
  const absl::StatusOr<double> measured = session_.engine().Evaluate(job_.evaluation().samples());
  if (absl::IsCancelled(measured.status())) return false;
  RETURN_IF_ERROR(measured.status());
  const double loss = *measured;
  progress_.validation_loss = loss;
  progress_.validation_step = step_;
  progress_.overall_tokens_per_second = throughput_.overall();
  recorder_.Report(progress_);
  TellSnapshots();
  if (metrics_ && !IsReplaced()) metrics_->Validation(step_, loss);
  return AllAgreeAfterRankZero(ranks_, true);
}

absl::Status TrainingRun::WriteShards(const std::string& partial_folder) {
  const EngineState state(session_.engine());
  std::vector<checkpoint::StateShard> shards;
  for (const char* kind : {"parameter", "moment1", "moment2"}) {
    state.Add(session_.engine().state().Owned(kind), shards);
  }
  return checkpoint::CheckpointWriter::WriteRank(partial_folder, session_.engine().rank(), shards);
}

checkpoint::CheckpointInfo TrainingRun::Describe() const {
  return {.step = step_,
          .samples = step_ * static_cast<uint64_t>(job_.training().global_batch_size()),
          .spec_hash = spec::SpecHash(job_),
          .job_yaml = spec::ToYaml(job_),
          .tokenizer = dataset_.tokenizer().Description(),
          .data_digest = data_digest_,
          .ranks = ranks_.size(),
          .scalars = {{kSkippedSteps, SkippedSteps()},
                      {kLoss, progress_.loss},
                      {kValidationLoss, progress_.validation_loss},
                      {kValidationStep, static_cast<double>(progress_.validation_step)}}};
}

// What is not noted counts as no progress of this attempt; that is no reason not to save.
void TrainingRun::NoteSave(const std::string& name) {
  unnoted_ = name;
  const absl::Status noted = NoteUnnoted();
  if (!noted.ok()) spdlog::warn("{} is not yet known as saved: {}", name, base::MessageOf(noted));
}

void TrainingRun::NoteFailedSave(const absl::Status& why) {
  if (!leader()) return;
  // Steps and free bytes are other ones each time.
  const auto kind = [](std::string text) {
    std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
    return text;
  };
  std::string failure = kind(base::MessageOf(why));
  if (noted_failures_.count(failure) != 0) return;
  const absl::Status noted = recorder::NoteFailedSave(
      options_.save_log,
      absl::StrCat("the checkpoint of step ", step_, " was not written: ", base::MessageOf(why)));
  if (noted.ok()) return void(noted_failures_.insert(std::move(failure)));
  spdlog::warn("that a save failed is told nowhere else yet: {}", base::MessageOf(noted));
}

std::string TrainingRun::LostWithoutSave() const {
  if (saved_step_ == 0) return "; this run has no older one, and its steps are lost";
  return absl::StrCat("; the run can only go on from that of step ", saved_step_);
}

absl::Status TrainingRun::NoteUnnoted() {
  if (unnoted_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(recorder::NoteSave(options_.save_log, unnoted_));
  unnoted_.clear();
  return absl::OkStatus();
}

absl::Status TrainingRun::CheckState() {
  // First: what a disk has lost must not be taken for a replica that differs.
  RETURN_IF_ERROR(session_.engine().SyncState());
  return session_.engine().CheckReplicas();
}

absl::StatusOr<bool> TrainingRun::Save() {
  ASSIGN_OR_RETURN(
      const bool saved,
      SaveCheckpoint(ranks_, Root(),
                     {.step = step_,
                      .keep = static_cast<int>(job_.checkpoint().keep()),
                      .epoch = epoch_,
                      .check_state = [this] { return CheckState(); },
                      .check_root =
                          [this] {
                            RETURN_IF_ERROR(CheckRoot());
                            return leader() ? CheckAttempt() : absl::OkStatus();
                          },
                      .write = [this](const std::string& folder) { return WriteShards(folder); },
                      .describe = [this] { return Describe(); },
                      .committing = [this](const std::string& name) { NoteSave(name); },
                      .failed = [this](const absl::Status& why) { NoteFailedSave(why); }}));
  if (saved) {
    saved_step_ = step_;
    noted_failures_.clear();
  } else {
    ++failed_saves_;
  }
  return saved;
}

}  // namespace trireme::worker
