#include "checkpoint/client/writer.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <system_error>

#include "checkpoint/client/disk.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/format/crc32c.h"
#include "checkpoint/format/manifest.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/safetensors/safetensors.h"

namespace trireme::checkpoint {

namespace fs = std::filesystem;
using base::Text;

namespace {

// A shard's key inside its rank's file: kind and name, and a number where a rank holds several pieces.
std::vector<std::string> KeysOf(std::span<const StateShard> shards) {
  std::map<std::string, int> seen;
  std::vector<std::string> keys;
  for (const StateShard& shard : shards) {
    const std::string key = shard.kind + "/" + shard.name;
    const int count = seen[key]++;
    keys.push_back(count == 0 ? key : Text(key, "#", count));
  }
  return keys;
}

absl::Status CheckShards(std::span<const StateShard> shards) {
  for (const StateShard& shard : shards) {
    const std::string where = Text(shard.kind, " ", shard.name);
    if (absl::Status status = layout::CheckShard(shard.shape, shard.shard); !status.ok()) {
      return absl::InvalidArgumentError(Text(where, ": ", base::MessageOf(status)));
    }
    const size_t expected = static_cast<size_t>(shard.shard.elements()) * tensor::SizeOf(shard.dtype);
    if (shard.data.size() != expected) {
      return absl::InvalidArgumentError(
          Text(where, ": holds ", shard.data.size(), " bytes, its layout says ", expected));
    }
  }
  return absl::OkStatus();
}

// Writes the tensors in the order of the file, so that the checksums follow along.
absl::StatusOr<FileEntry> WriteTensors(const std::string& folder, int rank,
                                       std::span<const StateShard> shards,
                                       const std::vector<std::string>& keys) {
  const std::string path = folder + "/" + RankFileName(rank);
  std::vector<safetensors::TensorSpec> specs;
  std::map<std::string, const StateShard*> by_key;
  for (size_t index = 0; index < shards.size(); ++index) {
    specs.push_back({.name = keys[index],
                     .element = safetensors::FromDType(shards[index].dtype),
                     .shape = {shards[index].shard.elements()}});
    by_key[keys[index]] = &shards[index];
  }
  ASSIGN_OR_RETURN(safetensors::Writer writer, safetensors::Writer::Create(path, std::move(specs)));
  PieceTable table;
  table.Append(std::as_bytes(std::span(writer.plan().prefix)));
  for (const safetensors::TensorInfo& tensor : writer.plan().header.tensors) {
    const StateShard& shard = *by_key.at(tensor.name);
    RETURN_IF_ERROR(writer.Append(tensor.name, shard.data));
    table.Append(shard.data);
  }
  const uint64_t bytes = writer.plan().file_bytes;
  RETURN_IF_ERROR(writer.Finish());
  return FileEntry{.name = RankFileName(rank), .bytes = bytes, .crc32c = table.Finish()};
}

// Gives `from` the name `to`; if `to` exists both change places in one step, so one of them is always complete.
absl::Status RenameOver(const std::string& from, const std::string& to) {
  const bool exists = fs::exists(to);
  const unsigned flags = exists ? RENAME_EXCHANGE : 0;
  if (syscall(SYS_renameat2, AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) != 0) {
    return DiskError(to, "cannot be put in place", errno);
  }
  if (!exists) return absl::OkStatus();
  std::error_code error;
  fs::remove_all(from, error);
  return error ? DiskError(from, "cannot be removed", error.value()) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> CheckpointWriter::Prepare(const std::string& root, uint64_t step) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) return DiskError(root, "cannot be made", error.value());
  const std::string folder = PartialFolder(root, step);
  fs::remove_all(folder, error);
  if (error) return DiskError(folder, "cannot be emptied", error.value());
  fs::create_directory(folder, error);
  if (error) return DiskError(folder, "cannot be made", error.value());
  return folder;
}

absl::Status CheckpointWriter::WriteRank(const std::string& partial_folder, int rank,
                                         std::span<const StateShard> shards) {
  RETURN_IF_ERROR(CheckShards(shards));
  const std::vector<std::string> keys = KeysOf(shards);
  absl::StatusOr<FileEntry> file = WriteTensors(partial_folder, rank, shards, keys);
  absl::Status status = file.status();
  if (status.ok()) {
    Fragment fragment{.rank = rank, .file = *std::move(file), .shards = {}};
    for (size_t index = 0; index < shards.size(); ++index) {
      fragment.shards.push_back({.name = shards[index].name,
                                 .kind = shards[index].kind,
                                 .dtype = shards[index].dtype,
                                 .shape = shards[index].shape,
                                 .shard = shards[index].shard,
                                 .file = 0,
                                 .key = keys[index]});
    }
    status = WriteDurably(partial_folder + "/" + FragmentFileName(rank), FormatFragment(fragment));
  }
  if (!status.ok()) {
    std::error_code ignored;
    fs::remove(partial_folder + "/" + RankFileName(rank), ignored);
    fs::remove(partial_folder + "/" + FragmentFileName(rank), ignored);
  }
  return status;
}

absl::StatusOr<std::string> CheckpointWriter::Commit(const std::string& root, uint64_t step,
                                                     const CheckpointInfo& info) {
  const std::string partial = PartialFolder(root, step);
  const std::string final_folder = root + "/" + StepFolderName(step);
  if (info.step != step || info.ranks < 1) {
    return absl::InvalidArgumentError(Text("the checkpoint of step ", step, " is described as step ",
                                           info.step, " of ", info.ranks, " ranks"));
  }
  if (!fs::exists(partial)) {
    if (fs::exists(final_folder)) return absl::AlreadyExistsError(Text(final_folder, ": is committed"));
    return absl::FailedPreconditionError(Text(partial, ": was not prepared"));
  }
  Manifest manifest{.info = info, .files = {}, .shards = {}};
  for (int rank = 0; rank < info.ranks; ++rank) {
    const std::string path = partial + "/" + FragmentFileName(rank);
    ASSIGN_OR_RETURN(const std::string text, ReadText(path));
    ASSIGN_OR_RETURN(Fragment fragment, ParseFragment(text, path));
    for (ShardEntry& shard : fragment.shards) {
      shard.file = static_cast<uint32_t>(rank);
      manifest.shards.push_back(std::move(shard));
    }
    manifest.files.push_back(std::move(fragment.file));
  }
  if (absl::Status status = CheckManifest(manifest); !status.ok()) {
    return absl::InvalidArgumentError(
        Text("what the ranks wrote makes no checkpoint: ", base::MessageOf(status)));
  }
  RETURN_IF_ERROR(WriteDurably(partial + "/" + std::string(kManifestName), FormatManifest(manifest)));
  for (int rank = 0; rank < info.ranks; ++rank) {
    std::error_code ignored;
    fs::remove(partial + "/" + FragmentFileName(rank), ignored);
  }
  RETURN_IF_ERROR(SyncFolder(partial));
  RETURN_IF_ERROR(RenameOver(partial, final_folder));
  RETURN_IF_ERROR(SyncFolder(root));
  return final_folder;
}

absl::Status CheckpointWriter::Abandon(const std::string& root, uint64_t step) {
  std::error_code error;
  fs::remove_all(PartialFolder(root, step), error);
  return error ? DiskError(root, "cannot be tidied", error.value()) : absl::OkStatus();
}

absl::Status CheckpointWriter::Prune(const std::string& root, int keep) {
  std::vector<uint64_t> steps, partial;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, error)) {
    uint64_t step = 0;
    const std::string name = entry.path().filename().string();
    if (ParseStepFolderName(name, &step)) steps.push_back(step);
    if (ParsePartialFolderName(name, &step)) partial.push_back(step);
  }
  if (error) return DiskError(root, "cannot be listed", error.value());
  std::sort(steps.rbegin(), steps.rend());
  int good = 0;
  uint64_t newest = 0;
  for (uint64_t step : steps) {
    const std::string folder = root + "/" + StepFolderName(step);
    if (good < std::max(1, keep)) {
      if (!Open(folder).ok()) continue;
      if (good++ == 0) newest = step;
      continue;
    }
    fs::remove_all(folder, error);
    if (error) return DiskError(folder, "cannot be removed", error.value());
  }
  for (uint64_t step : partial) {
    if (good > 0 && step <= newest) RETURN_IF_ERROR(Abandon(root, step));
  }
  return absl::OkStatus();
}

}  // namespace trireme::checkpoint
