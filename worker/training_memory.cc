// TrainingRun and its snapshots: going on from a version in memory, and what the next ones are
// told.
#include <spdlog/spdlog.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/fnv1a.h"
#include "runtime/base/status_macros.h"
#include "runtime/spec/job_spec.h"
#include "worker/shared_checkpoints.h"
#include "worker/snapshots.h"
#include "worker/training_run.h"

namespace trireme::worker {

absl::StatusOr<std::optional<HeldVersion>> TrainingRun::FindInMemory(Choice& choice) {
  struct {
    bool automatic = false;
    uint32_t since = 0;
    uint64_t before = 0;
  } asked{options_.resume == "auto", options_.snapshots_since, options_.snapshots_before};
  RETURN_IF_ERROR(
      ranks_.Broadcast(std::as_writable_bytes(std::span(&asked, 1)), 0, comm::kDiskDeadline));
  if (!asked.automatic && asked.since == 0) return std::optional<HeldVersion>();
  ASSIGN_OR_RETURN(const std::optional<HeldVersion> held,
                   snapshots_.Choose({.hash = RunHash(),
                                      .most_steps = static_cast<uint64_t>(job_.training().steps()),
                                      .first_attempt = asked.since,
                                      .before = asked.before},
                                     session_.threads()));
  // What lies on the disk is then of others, or where this run was told to begin.
  if (!held || !asked.automatic) return held;
  ASSIGN_OR_RETURN(choice, ChooseNotBefore(ranks_, Root(), held->record.step));
  if (!choice.checkpoint) return held;
  if (leader()) {
    spdlog::info("step {} in memory is not newer than {}", held->record.step,
                 choice.checkpoint->folder());
  }
  return std::optional<HeldVersion>();
}

uint64_t TrainingRun::RunHash() const {
  return base::Fnv1a(absl::StrCat(spec::SpecHash(job_), "\n", data_digest_, "\n",
                                  dataset_.tokenizer().Description()));
}

void TrainingRun::TellSnapshots() {
  snapshots_.set_run(
      {.hash = RunHash(),
       .samples_per_step = static_cast<uint64_t>(job_.training().global_batch_size()),
       .validation_loss = progress_.validation_loss,
       .validation_step = progress_.validation_step});
}

absl::StatusOr<bool> TrainingRun::TakeFromMemory(Choice& choice) {
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<HeldVersion> held, FindInMemory(choice));
    if (!held) return false;
    // What lies on the disk of the very step that memory has is damaged.
    RETURN_IF_ERROR(BeginBehind(held->record.step - 1, choice));
    ASSIGN_OR_RETURN(const bool resumed, ResumeInMemory(*held));
    if (!resumed) continue;
    saved_step_ = choice.older_step;
    return true;
  }
}

// A bit that has flipped before it was summed is in the sums as well: then replicas differ, and a
// step would find that again and again.
absl::StatusOr<bool> TrainingRun::ResumeInMemory(const HeldVersion& version) {
  const checkpoint::SnapshotRecord& record = version.record;
  absl::Status taken;
  if (version.elsewhere != nullptr) {
    taken = session_.Restore(*version.elsewhere);
    if (taken.ok()) taken = version.elsewhere->CheckUnchanged();
  } else {
    RETURN_IF_ERROR(session_.engine().ResumeFrom(version.slot));
    taken = session_.engine().CheckReplicas();
  }
  ASSIGN_OR_RETURN(const bool good, ranks_.AllAgree(taken.ok(), comm::kDiskDeadline));
  if (!good) {
    if (!taken.ok()) {
      spdlog::warn("rank {}: passed over step {} in memory: {}", ranks_.rank(), record.step,
                   base::MessageOf(taken));
    }
    snapshots_.PassOver(version);
    return false;
  }
  RETURN_IF_ERROR(snapshots_.KeepOnly(version));
  session_.engine().state().set_skipped_steps(static_cast<int64_t>(record.skipped_steps));
  progress_.loss = record.loss;
  progress_.validation_loss = record.validation_loss;
  progress_.validation_step = record.validation_step;
  step_ = progress_.memory_step = record.step;
  if (leader()) {
    spdlog::info("resumed in memory at step {}{}", step_,
                 version.elsewhere == nullptr ? "" : ", which ranks of another layout have left");
  }
  return true;
}

absl::Status TrainingRun::ShareKeptValidation() {
  struct {
    double loss = 0;
    uint64_t step = 0;
  } kept{progress_.validation_loss, progress_.validation_step};
  if (metrics_ && metrics_->last_kept().validation) {
    kept = {*metrics_->last_kept().validation, step_};
  }
  RETURN_IF_ERROR(
      ranks_.Broadcast(std::as_writable_bytes(std::span(&kept, 1)), 0, comm::kDiskDeadline));
  progress_.validation_loss = kept.loss;
  progress_.validation_step = kept.step;
  return absl::OkStatus();
}

}  // namespace trireme::worker
