#include "worker/shared_checkpoints.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/writer.h"
#include "checkpoint/client/writer_claim.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace trireme::worker {

using checkpoint::CheckpointWriter;

namespace {

// Rank 0's next candidate for "auto": the newest below `below` that opens; empty: none is left.
absl::StatusOr<std::string> NextBelow(const CheckpointRoot& root, uint64_t below,
                                      std::vector<checkpoint::Skipped>& damaged) {
  const size_t known = damaged.size();
  const auto newest = checkpoint::FindNewestUndamaged(root.folder, &damaged, below, root.links);
  for (size_t at = known; at < damaged.size(); ++at) {
    spdlog::warn("passed over {}: {}", damaged[at].folder, base::MessageOf(damaged[at].reason));
  }
  if (absl::IsNotFound(newest.status())) return std::string();
  return newest;
}

// The candidate as this rank sees it, its own part read.
absl::StatusOr<checkpoint::Checkpoint> Judge(comm::Agreement& ranks, const CheckpointRoot& root,
                                             const std::string& folder, uint64_t* bytes_read) {
  absl::StatusOr<checkpoint::Checkpoint> own = checkpoint::OpenManifest(folder, root.links);
  std::string guard = own.ok() ? own->guard() : "";
  RETURN_IF_ERROR(ranks.Share(guard, comm::kDiskDeadline));
  // Damage is what all see. Where rank 0 has read a manifest and this rank none, or another one,
  // they look at different disks.
  const bool alike = guard.empty() || (own.ok() && own->guard() == guard);
  absl::Status status = own.status();
  if (!alike && (own.ok() || absl::IsNotFound(status))) {
    status = absl::InvalidArgumentError(
        absl::StrCat(folder, ": rank 0 sees another checkpoint there than this rank",
                     own.ok() ? absl::StrCat(", of step ", own->info().step, " here") : "",
                     "; give a folder that all nodes share"));
  }
  if (status.ok()) {
    status = checkpoint::VerifyPart(*own, {ranks.rank(), ranks.size()}, bytes_read);
  }
  // Its own words in its own log: of all the faults only one reaches the others.
  if (!status.ok()) spdlog::warn("rank {}: {}", ranks.rank(), base::MessageOf(status));
  RETURN_IF_ERROR(ranks.AllOk(status, comm::kDiskDeadline));
  return own;
}

}  // namespace

absl::StatusOr<Choice> ChooseCheckpoint(comm::Agreement& ranks, const CheckpointRoot& root,
                                        const std::string& resume) {
  const bool leader = ranks.rank() == 0;
  std::string folder = resume;
  RETURN_IF_ERROR(ranks.Share(folder, comm::kDiskDeadline));
  const bool automatic = folder == "auto";
  Choice choice;
  for (uint64_t below = UINT64_MAX;;) {
    absl::Status found;
    if (automatic && leader) {
      absl::StatusOr<std::string> next = NextBelow(root, below, choice.damaged);
      found = next.status();
      folder = next.ok() ? *std::move(next) : "";
    }
    RETURN_IF_ERROR(ranks.AllOk(found, comm::kDiskDeadline));
    RETURN_IF_ERROR(ranks.Share(folder, comm::kDiskDeadline));
    if (folder.empty()) return choice;
    absl::StatusOr<checkpoint::Checkpoint> judged = Judge(ranks, root, folder, &choice.bytes_read);
    if (judged.ok()) {
      choice.checkpoint = *std::move(judged);
      return choice;
    }
    // The ranks' own verdict, the same on all; a lost peer is none and ends the run.
    if (!automatic || !checkpoint::IsDamage(judged.status())) return judged.status();
    TRIREME_CHECK(
        checkpoint::ParseStepFolderName(std::filesystem::path(folder).filename().string(), &below));
    if (!leader) continue;
    spdlog::warn("passed over {}: {}", folder, base::MessageOf(judged.status()));
    choice.damaged.push_back({folder, judged.status()});
  }
}

absl::StatusOr<Choice> ChooseNotBefore(comm::Agreement& ranks, const CheckpointRoot& root,
                                       uint64_t step) {
  Choice choice;
  absl::Status found;
  if (ranks.rank() == 0) {
    const auto newest =
        checkpoint::FindNewestUndamaged(root.folder, &choice.damaged, UINT64_MAX, root.links);
    const bool none = absl::IsNotFound(newest.status()) || absl::IsDataLoss(newest.status());
    if (!none) found = newest.status();
    if (newest.ok()) {
      TRIREME_CHECK(checkpoint::ParseStepFolderName(
          std::filesystem::path(*newest).filename().string(), &choice.older_step));
    }
  }
  RETURN_IF_ERROR(ranks.AllOk(found, comm::kDiskDeadline));
  RETURN_IF_ERROR(ranks.Broadcast(std::as_writable_bytes(std::span(&choice.older_step, 1)), 0,
                                  comm::kDiskDeadline));
  if (choice.older_step < step) return choice;
  absl::StatusOr<Choice> intact = ChooseCheckpoint(ranks, root, "auto");
  if (absl::IsDataLoss(intact.status()) && comm::IsVerdict(intact.status())) {
    choice.older_step = 0;  // none is intact
    return choice;
  }
  RETURN_IF_ERROR(intact.status());
  intact->older_step = intact->checkpoint ? intact->checkpoint->info().step : 0;
  if (intact->older_step < step) intact->checkpoint.reset();
  return intact;
}

absl::Status JudgeLater(comm::Agreement& ranks, const CheckpointRoot& root, uint64_t step,
                        Choice& choice) {
  std::vector<std::string> folders;
  absl::Status listed;
  if (ranks.rank() == 0) {
    auto found = checkpoint::FoldersAfter(root.folder, step);
    listed = found.status();
    if (found.ok()) folders = *std::move(found);
    std::erase_if(folders, [&](const std::string& folder) {
      return std::any_of(choice.damaged.begin(), choice.damaged.end(),
                         [&](const checkpoint::Skipped& known) { return known.folder == folder; });
    });
  }
  RETURN_IF_ERROR(ranks.AllOk(listed, comm::kDiskDeadline));
  for (size_t at = 0;; ++at) {
    std::string folder = at < folders.size() ? folders[at] : "";
    RETURN_IF_ERROR(ranks.Share(folder, comm::kDiskDeadline));
    if (folder.empty()) return absl::OkStatus();
    const absl::Status judged = Judge(ranks, root, folder, &choice.bytes_read).status();
    if (judged.ok() || !checkpoint::IsDamage(judged)) return judged;
    if (ranks.rank() == 0) choice.damaged.push_back({folder, judged});
  }
}

absl::StatusOr<bool> SaveCheckpoint(comm::Agreement& ranks, const CheckpointRoot& root,
                                    const SaveOrder& order) {
  // What is corrupt on one rank must not become what the run goes on from.
  RETURN_IF_ERROR(order.check_state());
  const bool leader = ranks.rank() == 0;
  const std::string partial = checkpoint::PartialFolder(root.folder, order.step, order.epoch);
  const auto allowed = [&] { return order.check_root ? order.check_root() : absl::OkStatus(); };
  absl::Status status;
  if (leader) status = allowed();
  if (leader && status.ok()) {
    status = CheckpointWriter::Prepare(root.folder, order.step, order.epoch).status();
  }
  ASSIGN_OR_RETURN(bool good, ranks.AllAgree(status.ok(), comm::kDiskDeadline));
  if (good) {
    status = allowed();
    if (status.ok()) status = order.write(partial);
    ASSIGN_OR_RETURN(good, ranks.AllAgree(status.ok(), comm::kDiskDeadline));
  }
  if (good) {
    // Mostly of another node: this one's memory has nothing of it, so the disk must answer.
    const int other = (ranks.rank() + ranks.size() / 2) % ranks.size();
    status = CheckpointWriter::ReadBack(partial, other);
    ASSIGN_OR_RETURN(good, ranks.AllAgree(status.ok(), comm::kDiskDeadline));
  }
  if (good && leader) status = allowed();
  if (good && leader && status.ok()) {
    if (order.committing) order.committing(checkpoint::StepFolderName(order.step));
    status =
        CheckpointWriter::Commit(root.folder, order.step, order.describe(), order.epoch).status();
    if (status.ok() && order.keep > 0) {
      const absl::Status pruned = CheckpointWriter::Prune(
          root.folder,
          {.keep = order.keep, .newest = order.step, .links = root.links, .epoch = order.epoch});
      if (!pruned.ok()) spdlog::warn("old checkpoints stay: {}", base::MessageOf(pruned));
    }
  }
  // Before the last vote: whoever is in the next step has no patience for a rank 0 at the disk.
  if (leader && !(good && status.ok())) {
    (void)CheckpointWriter::Abandon(root.folder, order.step, order.epoch);
  }
  ASSIGN_OR_RETURN(good, ranks.AllAgree(good && status.ok(), comm::kDiskDeadline));
  if (!status.ok()) {
    spdlog::warn("the checkpoint of step {} was not written: {}", order.step,
                 base::MessageOf(status));
  }
  if (good) return true;
  const absl::Status verdict = ranks.AllOk(status, comm::kDiskDeadline);
  if (!verdict.ok() && !comm::IsVerdict(verdict)) return verdict;
  if (order.failed) order.failed(verdict);
  // Rank 0 has been at a disk again.
  RETURN_IF_ERROR(ranks.AllAgree(true, comm::kDiskDeadline).status());
  return false;
}

}  // namespace trireme::worker
