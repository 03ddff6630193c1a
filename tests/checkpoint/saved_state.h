// Whole checkpoints of three ranks, for the tests of their folder.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer.h"
#include "checkpoint/client/writer_claim.h"
#include "checkpoint/format/manifest.h"
#include "runtime/base/folder_names.h"
#include "tests/checkpoint/sample_state.h"

namespace trireme::checkpoint {

// Three ranks' state; `salt` is also what Holds tells versions apart by.
inline std::vector<RankState> ThreeRanks(uint64_t salt) {
  Random random(31);
  auto states = RandomLayout(random, SampleTensors(), 3);
  for (RankState& state : states) state.Fill(salt);
  return states;
}

inline absl::Status Save(const std::string& root, uint64_t step,
                         const std::vector<RankState>& states, Epoch epoch = Epoch::kNone) {
  const auto folder = CheckpointWriter::Prepare(root, step, epoch);
  if (!folder.ok()) return folder.status();
  for (size_t rank = 0; rank < states.size(); ++rank) {
    const absl::Status status =
        CheckpointWriter::WriteRank(*folder, static_cast<int>(rank), states[rank].shards());
    if (!status.ok()) return status;
  }
  return CheckpointWriter::Commit(root, step, InfoOf(step, static_cast<int>(states.size())), epoch)
      .status();
}

inline bool NewestHolds(const std::string& root, uint64_t step, uint64_t salt) {
  const auto newest = FindNewest(root);
  if (!newest.ok() || *newest != root + "/" + StepFolderName(step)) return false;
  RankState state = WholeState(SampleTensors());
  const auto opened = Open(*newest);
  return opened.ok() && opened->Restore(state.shards()).ok() && state.Holds(salt) &&
         Verify(*newest).ok();
}

// What the ranks of a run that begins after `step` find damaged, read here by one.
inline std::vector<Skipped> DamagedAfter(const std::string& root, uint64_t step) {
  std::vector<Skipped> damaged;
  const std::vector<std::string> folders = FoldersAfter(root, step).value();
  for (const std::string& folder : folders) {
    const absl::Status status = Verify(folder);
    if (IsDamage(status)) damaged.push_back({folder, status});
  }
  return damaged;
}

inline std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names = base::FolderNames(folder).value();
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace trireme::checkpoint
