// `trireme checkpoint list|verify`, and the folder that people mean.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "checkpoint/client/reader.h"
#include "checkpoint/format/manifest.h"
#include "coordinator/cli/checkpoint_folder.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "coordinator/cli/resume_point.h"
#include "coordinator/cli/run_folder.h"
#include "coordinator/cli/snapshots_here.h"
#include "runtime/base/status_macros.h"
#include "runtime/report/plan_view.h"
#include "runtime/spec/job_spec.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

// Also where its manifest is missing.
bool IsCheckpoint(const fs::path& folder) {
  std::error_code error;
  uint64_t step = 0;
  if (fs::exists(folder / checkpoint::kManifestName, error)) return true;
  if (!fs::is_directory(folder, error) || fs::exists(folder / "checkpoints", error)) return false;
  const fs::path whole = fs::absolute(folder, error) / "";  // one slash at the end, or more
  const std::string name = whole.lexically_normal().parent_path().filename().string();
  return checkpoint::ParseStepFolderName(name, &step);
}

// A run folder keeps its checkpoints one level down, or where its job says.
std::string RootOf(const std::string& folder) {
  std::error_code error;
  const std::string job_file = folder + "/job.yaml";
  if (fs::is_regular_file(job_file, error)) {
    // One that a newer program wrote may not be readable.
    const auto job = spec::ParseEcho(ReadFile(job_file), job_file);
    if (job.ok() && job->checkpoint().has_directory()) return CheckpointRoot(folder, *job);
  }
  return fs::is_directory(folder + "/checkpoints", error) ? folder + "/checkpoints" : folder;
}

absl::Status CheckFolder(const std::string& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) {
    return absl::NotFoundError(
        fmt::format("{}: no such folder, expected a checkpoint or run folder", folder));
  }
  if (fs::is_directory(folder, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} is a file, expected a checkpoint or run folder", folder));
}

// What of `newest` is said to whoever named `folder`.
absl::StatusOr<std::string> FoundIn(const std::string& folder, absl::StatusOr<std::string> newest) {
  if (!absl::IsNotFound(newest.status())) return newest;
  return absl::NotFoundError(fmt::format("{} is no checkpoint and holds none: {}", folder,
                                         base::MessageOf(newest.status())));
}

struct Listed {
  std::string folder;
  uint64_t step = 0;
  uint64_t samples = 0;
  int ranks = 0;
  uint64_t bytes = 0;
};

// What the run has in this machine's memory, beside its checkpoints.
Listed ListedOf(const SnapshotsHere& here) {
  const std::string part =
      here.files == here.ranks ? "" : fmt::format(" ({} of {} ranks)", here.files, here.ranks);
  return {.folder = "in memory: " + here.folder + part,
          .step = here.step,
          .samples = here.samples,
          .ranks = static_cast<int>(here.ranks),
          .bytes = here.bytes};
}

Listed ListedOf(const checkpoint::Checkpoint& checkpoint) {
  const checkpoint::CheckpointInfo& info = checkpoint.info();
  Listed listed{checkpoint.folder(), info.step, info.samples, info.ranks};
  for (const auto& file : checkpoint.manifest().files) listed.bytes += file.bytes;
  return listed;
}

void PrintTable(const std::vector<Listed>& checkpoints) {
  std::printf("%10s %14s %6s %12s  %s\n", "step", "samples", "ranks", "bytes", "folder");
  for (const Listed& each : checkpoints) {
    std::printf("%10llu %14llu %6d %12s  %s\n", static_cast<unsigned long long>(each.step),
                static_cast<unsigned long long>(each.samples), each.ranks,
                report::ReadableBytes(each.bytes).c_str(), each.folder.c_str());
  }
}

nlohmann::ordered_json MemoryJson(const SnapshotsHere& here) {
  return {{"step", here.step},   {"samples", here.samples}, {"ranks", here.ranks},
          {"files", here.files}, {"bytes", here.bytes},     {"folder", here.folder}};
}

void PrintList(const std::vector<Listed>& checkpoints, const std::optional<SnapshotsHere>& memory) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Listed& each : checkpoints) {
    list.push_back({{"step", each.step},
                    {"samples", each.samples},
                    {"ranks", each.ranks},
                    {"bytes", each.bytes},
                    {"folder", each.folder}});
  }
  nlohmann::ordered_json all{{"checkpoints", list}};
  if (memory) all["memory"] = MemoryJson(*memory);
  PrintJsonObject(all);
}

// The newest in `folder` whose every byte is right, or itself. `damaged`: those that are not.
absl::StatusOr<std::string> FindIntact(const std::string& folder,
                                       std::vector<checkpoint::Skipped>* damaged) {
  if (!IsCheckpoint(folder)) {
    RETURN_IF_ERROR(CheckFolder(folder));
    return FoundIn(folder, checkpoint::FindNewestIntact(RootOf(folder), damaged));
  }
  const absl::Status status = checkpoint::Verify(folder);
  if (status.ok()) return folder;
  if (checkpoint::IsGone(folder)) {
    return absl::UnavailableError(
        fmt::format("{}: was removed by its run while it was read; verify again", folder));
  }
  if (!checkpoint::IsDamage(status)) return status;
  damaged->push_back({folder, status});
  return checkpoint::NoneIntact(folder, *damaged);
}

}  // namespace

absl::StatusOr<FoundCheckpoint> FindCheckpoint(const std::string& folder) {
  FoundCheckpoint found{folder, {}};
  if (IsCheckpoint(folder)) return found;
  RETURN_IF_ERROR(CheckFolder(folder));
  ASSIGN_OR_RETURN(found.folder, FoundIn(folder, checkpoint::FindNewestUndamaged(
                                                     RootOf(folder), &found.passed_over)));
  return found;
}

std::vector<std::string> PassedOverTexts(const FoundCheckpoint& found) {
  std::vector<std::string> texts;
  for (const checkpoint::Skipped& each : found.passed_over) {
    texts.push_back(fmt::format("{} is damaged and passed over: {}; {} is used instead",
                                each.folder, std::string(each.reason.message()), found.folder));
  }
  return texts;
}

// One that cannot be opened is told of, and the others are listed, the oldest first.
int RunCheckpointList(const CheckpointOptions& options) {
  if (const auto status = CheckFolder(options.folder); !status.ok()) return PrintError(status);
  int code = kOk;
  std::vector<Listed> listed;
  const auto take = [&](const std::string&, const absl::StatusOr<checkpoint::Checkpoint>& opened) {
    if (opened.ok()) {
      listed.push_back(ListedOf(*opened));
    } else {
      code = PrintError(opened.status());
    }
  };
  absl::Status looked;
  std::optional<SnapshotsHere> memory;
  if (IsCheckpoint(options.folder)) {
    take(options.folder, checkpoint::Open(options.folder));
  } else {
    memory = FindSnapshotsHere(options.folder);
    looked =
        checkpoint::VisitCheckpoints(RootOf(options.folder), SIZE_MAX, base::Links::kFollow, take);
    if (memory && absl::IsNotFound(looked)) looked = absl::OkStatus();
  }
  if (!looked.ok()) return PrintError(looked);
  if (listed.empty() && !memory && code == kOk) {
    return PrintError(
        absl::NotFoundError(fmt::format("{}: no checkpoints there", RootOf(options.folder))));
  }
  std::reverse(listed.begin(), listed.end());
  if (options.json) {
    PrintList(listed, memory);
    return code;
  }
  if (memory) listed.push_back(ListedOf(*memory));
  PrintTable(listed);
  return code;
}

// Damage is a result, by --json too; what cannot be judged is an error.
int RunCheckpointVerify(const CheckpointOptions& options) {
  std::vector<checkpoint::Skipped> damaged;
  const absl::StatusOr<std::string> intact = FindIntact(options.folder, &damaged);
  int code = kOk;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [folder, reason] : damaged) {
    const std::string why = base::MessageOf(reason);
    code = PrintError(absl::DataLossError(fmt::format("{} is damaged: {}", folder, why)));
    list.push_back({{"folder", folder}, {"reason", why}});
  }
  // DataLoss says of all what was said of each.
  if (!intact.ok() && !absl::IsDataLoss(intact.status())) return PrintError(intact.status());
  if (options.json) {
    nlohmann::ordered_json newest_intact;
    if (intact.ok()) newest_intact = *intact;
    PrintJsonObject({{"folder", options.folder},
                     {"intact", damaged.empty()},
                     {"newest_intact", newest_intact},
                     {"damaged", list}});
  } else if (intact.ok()) {
    std::printf("%s: every byte matches its checksum\n", intact->c_str());
  }
  return code;
}

}  // namespace trireme::cli
