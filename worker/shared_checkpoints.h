// What the ranks of a run do together with its checkpoints: choose one to go on from, each having
// read its part, and save, each having read back what another wrote. Rank 0 alone names and
// removes. Every call waits for ranks that are at a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer_claim.h"
#include "checkpoint/format/state.h"
#include "runtime/base/real_path.h"
#include "runtime/comm/agreement.h"

namespace trireme::worker {

struct CheckpointRoot {
  std::string folder;
  base::Links links = base::Links::kFollow;
};

struct Choice {
  std::optional<checkpoint::Checkpoint> checkpoint;  // none: from the start
  std::vector<checkpoint::Skipped> damaged;          // newer ones, on rank 0
  uint64_t bytes_read = 0;                           // of tensors and headers, by this rank
  uint64_t older_step = 0;                           // of ChooseNotBefore
};

// `resume`: "auto" takes the newest checkpoint of `root` that is intact, the start if there is none
// at all; else a checkpoint's folder. Only rank 0's counts. Before anybody loads a byte all of it
// has been compared with its checksums, by each rank a part, and all have agreed on the verdict.
// Errors are the same on all ranks: DataLoss if none is intact, or not the one that is named;
// InvalidArgument if ranks see different checkpoints under one name; others if one cannot be
// judged, since it may be good.
absl::StatusOr<Choice> ChooseCheckpoint(comm::Agreement& ranks, const CheckpointRoot& root,
                                        const std::string& resume);

// For a run that can go on from `step` without the disk: as ChooseCheckpoint of "auto", but none
// where no intact one is of that step or a later one. `older_step` is then that of the newest one,
// as its manifest says, 0 where there is none.
absl::StatusOr<Choice> ChooseNotBefore(comm::Agreement& ranks, const CheckpointRoot& root,
                                       uint64_t step);

// For a run that begins after `step`: adds to `choice.damaged` what is damaged of the checkpoints
// of later steps, newest first up to the first good one, each read by all ranks together. With it
// WriterClaim::BeginAfter needs no more than headers. Errors are the same on all ranks: of one that
// cannot be judged.
absl::Status JudgeLater(comm::Agreement& ranks, const CheckpointRoot& root, uint64_t step,
                        Choice& choice);

struct SaveOrder {
  uint64_t step = 0;
  int keep = 0;  // 0: all
  checkpoint::Epoch epoch = checkpoint::Epoch::kNone;
  // Collective, before anything is written: whether all of the state is there, and alike where
  // ranks hold it alike. Its error is the save's.
  std::function<absl::Status()> check_state;
  // Of this rank, before it writes: whether it may.
  std::function<absl::Status()> check_root = nullptr;
  // Writes this rank's shards into the partial folder.
  std::function<absl::Status(const std::string& partial_folder)> write = nullptr;
  std::function<checkpoint::CheckpointInfo()> describe = nullptr;  // on rank 0
  // On rank 0, if given: right before the folder gets its name.
  std::function<void(const std::string& name)> committing = nullptr;
  // On every rank, if given: what was not written, and why, in the words of the lowest rank that
  // failed.
  std::function<void(const absl::Status& why)> failed = nullptr;
};

// True on all ranks: the checkpoint is there. Else older ones are as they were, and every rank has
// logged its own fault. Where something is removed for the new one, its every byte has been read
// back from the disk first, by a rank that is half of them away from its writer. Errors are
// those of check_state, with nothing written, and of the ranks' agreement.
absl::StatusOr<bool> SaveCheckpoint(comm::Agreement& ranks, const CheckpointRoot& root,
                                    const SaveOrder& order);

}  // namespace trireme::worker
