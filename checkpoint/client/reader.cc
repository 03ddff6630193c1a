// Opening, finding and verifying checkpoints; restore.cc reads their tensors.
#include "checkpoint/client/reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "checkpoint/client/disk.h"
#include "checkpoint/client/piece_reader.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/check.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::Text;

// The first faults of one file are told; a disk that is gone has thousands.
constexpr size_t kFaultsTold = 4;

void Tell(const absl::Status& status, std::vector<std::string>* faults) {
  if (!status.ok()) faults->push_back(base::MessageOf(status));
}

// Which tensors lie in the piece, for the message.
std::string HeldBy(const safetensors::Header& header, uint64_t piece) {
  const uint64_t begin = piece * kPieceBytes;
  std::string names;
  size_t more = 0;
  for (const safetensors::TensorInfo& tensor : header.tensors) {
    if (tensor.bytes == 0 || tensor.offset >= begin + kPieceBytes) continue;
    if (tensor.offset + tensor.bytes <= begin) continue;
    if (names.empty()) {
      names = Text("tensor '", tensor.name, "'");
    } else {
      ++more;
    }
  }
  if (names.empty()) return "the header";
  return more == 0 ? names : Text(names, " and ", more, " more");
}

absl::Status CheckSize(const std::string& path, uint64_t bytes, base::Links links) {
  struct stat about {};
  const bool follow = links == base::Links::kFollow;
  if ((follow ? stat(path.c_str(), &about) : lstat(path.c_str(), &about)) != 0) {
    return absl::DataLossError(Text(path, ": is missing: ", std::strerror(errno)));
  }
  if (!S_ISREG(about.st_mode)) return absl::DataLossError(Text(path, ": is no regular file"));
  if (static_cast<uint64_t>(about.st_size) == bytes) return absl::OkStatus();
  return absl::DataLossError(Text(path, ": has ", about.st_size, " bytes, the manifest says ",
                                  bytes, "; use an older checkpoint"));
}

void VerifyFile(const Checkpoint& checkpoint, uint32_t file, std::vector<std::string>* faults) {
  auto reader =
      PieceReader::Open(checkpoint.folder(), checkpoint.manifest().files[file], checkpoint.links());
  if (!reader.ok()) return Tell(reader.status(), faults);
  const auto header = (*reader)->ReadHeader();
  Tell(header.status(), faults);
  const safetensors::Header none;
  for (const ShardEntry& entry : checkpoint.manifest().shards) {
    if (entry.file != file || !header.ok() || faults->size() >= kFaultsTold) continue;
    Tell(CheckStored(*header, entry, (*reader)->path()), faults);
  }
  const uint64_t pieces = checkpoint.manifest().files[file].crc32c.size();
  // A broken header was told already; its first piece would only repeat it.
  for (uint64_t piece = header.ok() ? 0 : 1; piece < pieces; ++piece) {
    if (faults->size() >= kFaultsTold) return;
    Tell((*reader)->Check(piece, header.ok() ? HeldBy(*header, piece) : "unknown tensors"), faults);
  }
}

}  // namespace

absl::StatusOr<Checkpoint> Open(const std::string& folder, base::Links links) {
  const std::string path = folder + "/" + std::string(kManifestName);
  ASSIGN_OR_RETURN(const std::string text, ReadText(path, links));
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.links_ = links;
  ASSIGN_OR_RETURN(checkpoint.manifest_, ParseManifest(text, path));
  for (const FileEntry& file : checkpoint.manifest_.files) {
    RETURN_IF_ERROR(CheckSize(folder + "/" + file.name, file.bytes, links));
  }
  return checkpoint;
}

absl::StatusOr<std::string> FindNewest(const std::string& root, std::vector<Skipped>* skipped,
                                       uint64_t below, base::Links links) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, base::FolderNames(root));
  std::vector<uint64_t> steps;
  for (const std::string& name : names) {
    uint64_t step = 0;
    if (ParseStepFolderName(name, &step) && step < below) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  for (uint64_t step : steps) {
    const std::string folder = root + "/" + StepFolderName(step);
    const absl::StatusOr<Checkpoint> checkpoint = Open(folder, links);
    if (checkpoint.ok()) return folder;
    if (skipped != nullptr) skipped->push_back({folder, checkpoint.status()});
  }
  return absl::NotFoundError(Text(root, ": holds no checkpoint that opens"));
}

absl::StatusOr<std::string> FindNewestIntact(const std::string& root, std::vector<Skipped>* skipped,
                                             base::Links links) {
  std::vector<Skipped> damaged;
  absl::StatusOr<std::string> found = absl::NotFoundError(root);
  for (uint64_t below = UINT64_MAX;;) {
    std::vector<Skipped> passed_over;
    found = FindNewest(root, &passed_over, below, links);
    damaged.insert(damaged.end(), passed_over.begin(), passed_over.end());
    if (!found.ok()) break;
    absl::Status status = Verify(*found, links);
    if (status.ok()) break;
    damaged.push_back({*found, std::move(status)});
    TRIREME_CHECK(ParseStepFolderName(fs::path(*found).filename().string(), &below));
  }
  if (!found.ok() && !damaged.empty()) {
    std::string told = Text(root, ": no checkpoint here is intact");
    for (const Skipped& each : damaged) told += Text("\n  ", base::MessageOf(each.reason));
    found = absl::DataLossError(told);
  }
  if (skipped != nullptr) *skipped = std::move(damaged);
  return found;
}

absl::Status Verify(const std::string& folder, base::Links links) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Open(folder, links));
  std::string told;
  for (uint32_t file = 0; file < checkpoint.manifest().files.size(); ++file) {
    std::vector<std::string> faults;
    VerifyFile(checkpoint, file, &faults);
    for (const std::string& fault : faults) told += (told.empty() ? "" : "\n") + fault;
  }
  return told.empty() ? absl::OkStatus() : absl::DataLossError(told);
}

}  // namespace trireme::checkpoint
