#include "coordinator/cli/snapshots_here.h"

#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <tuple>

#include "checkpoint/client/snapshot_file.h"
#include "checkpoint/client/snapshot_key.h"
#include "checkpoint/format/snapshot.h"
#include "runtime/base/folder_names.h"

namespace trireme::cli {
namespace {

using checkpoint::kSnapshotPageBytes;

// Of one file, as it says: which steps it holds whole, with their samples.
struct HeldSteps {
  uint32_t ranks = 0;
  std::map<uint64_t, uint64_t> samples;
};

std::optional<HeldSteps> StepsIn(const std::string& path, uint64_t bytes) {
  std::ifstream file(path, std::ios::binary);
  alignas(8) std::array<std::byte, kSnapshotPageBytes> page;
  const auto read = [&] {
    return static_cast<bool>(file.read(reinterpret_cast<char*>(page.data()), page.size()));
  };
  if (!read()) return std::nullopt;
  const auto shape = checkpoint::ParseSnapshotHeader(page, bytes);
  if (!shape.ok()) return std::nullopt;
  HeldSteps held{.ranks = shape->ranks, .samples = {}};
  for (uint32_t slot = 0; slot < shape->slots && read(); ++slot) {
    const auto record = checkpoint::SnapshotSlotView(page).Staged();
    if (record) held.samples[record->step] = record->samples;
  }
  return held;
}

}  // namespace

std::optional<SnapshotsHere> FindSnapshotsHere(const std::string& run_folder) {
  const auto key = checkpoint::ReadSnapshotKey(run_folder);
  if (!key.ok()) return std::nullopt;
  SnapshotsHere here{.folder =
                         checkpoint::SnapshotFolder(checkpoint::SnapshotFileOptions{}.root, *key)};
  std::map<uint64_t, uint64_t> common;
  base::VisitNames(here.folder, [&](const std::string& name) {
    std::error_code error;
    const std::string path = here.folder + "/" + name;
    const uint64_t bytes = std::filesystem::file_size(path, error);
    const auto held = error ? std::nullopt : StepsIn(path, bytes);
    if (!held) return;
    here.bytes += bytes;
    here.ranks = held->ranks;
    if (here.files++ == 0) common = held->samples;
    std::erase_if(common, [&](const auto& step) { return !held->samples.contains(step.first); });
  }).IgnoreError();
  if (common.empty()) return std::nullopt;
  std::tie(here.step, here.samples) = *common.rbegin();
  return here;
}

}  // namespace trireme::cli
