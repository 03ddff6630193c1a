// `trireme checkpoint list|verify`, and the folder that people mean.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/client/reader.h"
#include "checkpoint/format/manifest.h"
#include "coordinator/cli/checkpoint_folder.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/json_line.h"
#include "coordinator/cli/print_error.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/report/plan_view.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

bool IsCheckpoint(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / checkpoint::kManifestName, error);
}

// A run folder keeps its checkpoints one level down.
std::string RootOf(const std::string& folder) {
  std::error_code error;
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

// One that cannot be opened is told of, and the others are listed. The exit code.
template <typename Take>
int ForEach(const std::vector<std::string>& folders, const Take& take) {
  int code = kOk;
  for (const std::string& folder : folders) {
    const auto opened = checkpoint::Open(folder);
    if (!opened.ok()) {
      if (checkpoint::IsGone(folder)) continue;
      code = PrintError(opened.status());
      continue;
    }
    uint64_t bytes = 0;
    for (const auto& file : opened->manifest().files) bytes += file.bytes;
    take(folder, opened->info(), bytes);
  }
  return code;
}

int PrintTable(const std::vector<std::string>& folders) {
  std::printf("%10s %14s %6s %12s  %s\n", "step", "samples", "ranks", "bytes", "folder");
  return ForEach(folders, [](const std::string& folder, const auto& info, uint64_t bytes) {
    std::printf("%10llu %14llu %6d %12s  %s\n", static_cast<unsigned long long>(info.step),
                static_cast<unsigned long long>(info.samples), info.ranks,
                report::ReadableBytes(bytes).c_str(), folder.c_str());
  });
}

int PrintList(const std::vector<std::string>& folders) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  const int code =
      ForEach(folders, [&](const std::string& folder, const auto& info, uint64_t bytes) {
        list.push_back({{"step", info.step},
                        {"samples", info.samples},
                        {"ranks", info.ranks},
                        {"bytes", bytes},
                        {"folder", folder}});
      });
  PrintJsonObject({{"checkpoints", list}});
  return code;
}

}  // namespace

absl::StatusOr<FoundCheckpoint> FindCheckpoint(const std::string& folder) {
  FoundCheckpoint found{folder, {}};
  if (IsCheckpoint(folder)) return found;
  if (const auto status = CheckFolder(folder); !status.ok()) return status;
  auto newest = checkpoint::FindNewestUndamaged(RootOf(folder), &found.passed_over);
  if (absl::IsNotFound(newest.status())) {
    return absl::NotFoundError(fmt::format("{} is no checkpoint and holds none: {}", folder,
                                           std::string(newest.status().message())));
  }
  if (!newest.ok()) return newest.status();
  found.folder = *std::move(newest);
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

int RunCheckpointList(const CheckpointOptions& options) {
  if (const auto status = CheckFolder(options.folder); !status.ok()) return PrintError(status);
  std::vector<std::string> folders;
  if (IsCheckpoint(options.folder)) {
    folders.push_back(options.folder);
  } else {
    const fs::path root = RootOf(options.folder);
    base::VisitNames(root.string(), [&](const std::string& name) {
      uint64_t step = 0;
      if (checkpoint::ParseStepFolderName(name, &step)) folders.push_back((root / name).string());
    }).IgnoreError();
  }
  if (folders.empty()) {
    return PrintError(absl::NotFoundError(fmt::format("{}: no checkpoints there", options.folder)));
  }
  std::sort(folders.begin(), folders.end());
  return options.json ? PrintList(folders) : PrintTable(folders);
}

// Damage is a result, by --json too; what cannot be judged is an error.
int RunCheckpointVerify(const CheckpointOptions& options) {
  const auto found = FindCheckpoint(options.folder);
  const absl::Status status = found.ok() ? checkpoint::Verify(found->folder) : found.status();
  if (!status.ok() && found.ok() && checkpoint::IsGone(found->folder)) {
    return PrintError(absl::UnavailableError(
        fmt::format("{}: was removed by its run while it was read; verify again", found->folder)));
  }
  if (!status.ok() && !absl::IsDataLoss(status)) return PrintError(status);
  int code = kOk;
  nlohmann::ordered_json damaged = nlohmann::ordered_json::array();
  const auto tell = [&](const std::string& folder, const absl::Status& reason,
                        const std::string& text) {
    code = PrintError(absl::DataLossError(text));
    damaged.push_back({{"folder", folder}, {"reason", base::MessageOf(reason)}});
  };
  // What was asked about is the newest; that an older one is intact is told besides.
  if (found.ok()) {
    for (const checkpoint::Skipped& each : found->passed_over) {
      tell(each.folder, each.reason,
           fmt::format("{} is damaged: {}", each.folder, base::MessageOf(each.reason)));
    }
  }
  if (!status.ok()) {
    tell(found.ok() ? found->folder : options.folder, status, base::MessageOf(status));
  }
  if (options.json) {
    nlohmann::ordered_json newest_intact;
    if (status.ok()) newest_intact = found->folder;
    PrintJsonObject({{"folder", options.folder},
                     {"intact", damaged.empty()},
                     {"newest_intact", newest_intact},
                     {"damaged", damaged}});
  } else if (status.ok()) {
    std::printf("%s: every byte matches its checksum\n", found->folder.c_str());
  }
  return code;
}

}  // namespace trireme::cli
