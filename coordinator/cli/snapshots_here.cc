#include "coordinator/cli/snapshots_here.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "checkpoint/client/snapshot_file.h"
#include "checkpoint/client/snapshot_key.h"
#include "checkpoint/format/snapshot.h"
#include "runtime/base/folder_names.h"

namespace trireme::cli {
namespace {

using checkpoint::kSnapshotPageBytes;

// The newest step in a file, as its records say; 0: none.
uint64_t StepIn(const std::string& path, uint64_t bytes) {
  std::ifstream file(path, std::ios::binary);
  alignas(8) std::array<std::byte, kSnapshotPageBytes> page;
  const auto read = [&] {
    return static_cast<bool>(file.read(reinterpret_cast<char*>(page.data()), page.size()));
  };
  if (!read()) return 0;
  const auto shape = checkpoint::ParseSnapshotHeader(page, bytes);
  if (!shape.ok()) return 0;
  uint64_t step = 0;
  for (uint32_t slot = 0; slot < shape->slots && read(); ++slot) {
    const auto record = checkpoint::SnapshotSlotView(page).Staged();
    if (record) step = std::max(step, record->step);
  }
  return step;
}

}  // namespace

std::optional<SnapshotsHere> FindSnapshotsHere(const std::string& run_folder) {
  const auto key = checkpoint::ReadSnapshotKey(run_folder);
  if (!key.ok()) return std::nullopt;
  SnapshotsHere here{.folder =
                         checkpoint::SnapshotFolder(checkpoint::SnapshotFileOptions{}.root, *key)};
  base::VisitNames(here.folder, [&](const std::string& name) {
    std::error_code error;
    const std::string path = here.folder + "/" + name;
    const uint64_t bytes = std::filesystem::file_size(path, error);
    if (error) return;
    here.bytes += bytes;
    here.step = std::max(here.step, StepIn(path, bytes));
  }).IgnoreError();
  return here.step > 0 ? std::optional(here) : std::nullopt;
}

}  // namespace trireme::cli
