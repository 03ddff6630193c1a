// TrainingRun: what it leaves at its end: the last checkpoint, traces, a sample, the report.
#include <spdlog/spdlog.h>

#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status_macros.h"
#include "worker/coding_report.h"
#include "worker/run_files.h"
#include "worker/training_run.h"

namespace trireme::worker {

absl::Status TrainingRun::Finish() {
  std::string checkpoint;
  if (saved_step_ == step_) {
    checkpoint = checkpoint_root_ + "/" + checkpoint::StepFolderName(step_);
  } else {
    ASSIGN_OR_RETURN(const bool saved, Save());
    if (saved) checkpoint = checkpoint_root_ + "/" + checkpoint::StepFolderName(step_);
  }
  RETURN_IF_ERROR(WriteTrace());
  const absl::StatusOr<std::string> sample = Sample();
  // Weights that give no text are the same news on every rank, and no reason to lose the report.
  if (!sample.ok() && !absl::IsDataLoss(sample.status())) return sample.status();
  return Leave(leader() ? WriteEnd(checkpoint, sample) : absl::OkStatus());
}

absl::Status TrainingRun::WriteEnd(const std::string& checkpoint,
                                   const absl::StatusOr<std::string>& sample) {
  RETURN_IF_ERROR(CheckAttempt());
  if (!sample.ok()) spdlog::warn("no sample: {}", base::MessageOf(sample.status()));
  if (sample.ok() && !sample->empty()) {
    RETURN_IF_ERROR(WriteRunFile(options_.run_directory + "/sample.txt", *sample));
  }
  return WriteRunFile(options_.run_directory + "/report.json", ReportJson(checkpoint));
}

absl::Status TrainingRun::Leave(const absl::Status& own) {
  // Both may be at the disk, and all close together soon after.
  timeline_.reset();
  metrics_.reset();
  (void)NoteUnnoted();  // the last time that it can be
  if (claim_) EmptyHidden();
  return ranks_.AllOk(own, comm::kDiskDeadline);
}

// All ranks have ended their saves.
void TrainingRun::EmptyHidden() const {
  if (!CheckAttempt().ok()) return;
  absl::Status emptied = CheckRoot();
  if (emptied.ok()) emptied = claim_->EmptyHidden();
  // Where the folder is gone there is nothing; what is a newer attempt's is not ours.
  if (emptied.ok() || absl::IsNotFound(emptied) || absl::IsFailedPrecondition(emptied)) return;
  spdlog::warn("what was removed is not all gone yet: {}", base::MessageOf(emptied));
}

absl::Status TrainingRun::WriteTrace() {
  // Alike on all ranks: they trace the same steps.
  if (trace_.first_step() == 0) return absl::OkStatus();
  engine::Engine& engine = session_.engine();
  const TraceKeeper trace = std::exchange(trace_, {});
  absl::Status status = trace.WriteRank(options_.run_directory, engine.rank(), engine.clock());
  ASSIGN_OR_RETURN(const bool all, ranks_.AllAgree(status.ok(), comm::kDiskDeadline));
  const std::string name = traced_.FileName(trace.first_step());
  if (all && leader()) {
    status = CheckAttempt();
    if (status.ok()) status = MergeTraces(options_.run_directory, ranks_.size(), name);
  }
  if (!status.ok()) spdlog::warn("no {}: {}", name, base::MessageOf(status));
  // Whoever goes on to the next step has no patience for a rank that is at the disk.
  return ranks_.AllAgree(status.ok(), comm::kDiskDeadline).status();
}

absl::StatusOr<std::string> TrainingRun::Sample() {
  const v1::GenerationSpec& spec = job_.generation();
  if (spec.max_new_tokens() == 0) return std::string();
  absl::StatusOr<std::vector<int32_t>> context = dataset_.tokenizer().Encode(spec.prompt());
  // A prompt that the vocabulary does not have must not end a finished run: any token starts a
  // text.
  std::vector<int32_t> tokens =
      context.ok() && !context->empty() ? *context : std::vector<int32_t>{0};
  const int64_t known = dataset_.tokenizer().vocab_size();
  for (int64_t count = 0; count < spec.max_new_tokens(); ++count) {
    ASSIGN_OR_RETURN(const int32_t next,
                     session_.engine().NextToken(tokens, {.temperature = spec.temperature(),
                                                          .top_k = spec.top_k(),
                                                          .vocabulary = known,
                                                          .seed = job_.seed()}));
    tokens.push_back(next);
  }
  return dataset_.tokenizer().Decode(tokens);
}

std::string TrainingRun::ReportJson(const std::string& checkpoint) const {
  nlohmann::ordered_json json{
      {"steps", step_},
      {"loss", progress_.loss},
      {"validation_loss", progress_.validation_loss},
      {"tokens", throughput_.tokens()},
      {"training_seconds", throughput_.step_seconds()},
      {"wall_seconds", throughput_.wall_seconds()},
      {"tokens_per_second", throughput_.in_steps()},
      {"overall_tokens_per_second", throughput_.overall()},
      {"utilisation", flops_per_token_ * throughput_.in_steps() / peak_flops_},
      {"peak_flops", peak_flops_},
      {"exposed_communication_share", exposure_.Share(exposure_.exposed.mean_s)},
      {"exposed_communication_max_share", exposure_.Share(exposure_.exposed.max_s)},
      {"exposed_transfer_share", exposure_.Share(exposure_.transfer.mean_s)},
      {"exposed_bubble_share", exposure_.Share(exposure_.bubble.mean_s)},
      {"exposed_offload_share", exposure_.Share(exposure_.offload.mean_s)},
      {"skipped_steps", static_cast<int64_t>(SkippedSteps())},
      {"arena_bytes", session_.engine().arena().AllocatedBytes(v1::ARENA)},
      {"host_bytes", session_.engine().arena().AllocatedBytes(v1::HOST)},
      {"file_bytes", session_.engine().arena().AllocatedBytes(v1::FILE)},
      {"snapshot_bytes", session_.engine().arena().AllocatedBytes(v1::SNAPSHOT)},
      {"checkpoint", checkpoint},
      {"failed_saves", failed_saves_}};
  if (!coding_.empty()) json["compression"] = CodingJson(coding_);
  if (!loose_bound_.empty()) json["warning"] = loose_bound_;
  return JsonLine(json);
}

}  // namespace trireme::worker
