// Saving. The checksums are taken from memory, not read back, so a bad write is found on reading.
#include "checkpoint/client/writer.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "checkpoint/client/disk.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/safetensors/safetensors.h"

namespace trireme::checkpoint {

namespace fs = std::filesystem;
using base::Text;

namespace {

constexpr std::string_view kAsideEnd = ".old";

// Where a checkpoint waits to be removed.
std::string Aside(const std::string& root, uint64_t step) {
  return Text(root, "/.", StepFolderName(step), kAsideEnd);
}

bool ParseAside(std::string_view name, uint64_t* step) {
  return name.starts_with(".") && name.ends_with(kAsideEnd) &&
         ParseStepFolderName(name.substr(1, name.size() - 1 - kAsideEnd.size()), step);
}

// A shard's key inside its rank's file: kind and name, and a number where a rank holds several
// pieces.
std::vector<std::string> KeysOf(std::span<const StateShard> shards) {
  std::set<std::string> used;
  std::map<std::string, int> seen;
  std::vector<std::string> keys;
  for (const StateShard& shard : shards) {
    const std::string base = shard.kind + "/" + shard.name;
    std::string key = base;
    // A tensor may itself be named like a numbered key.
    while (!used.insert(key).second) key = Text(base, "#", ++seen[base]);
    keys.push_back(std::move(key));
  }
  return keys;
}

absl::Status CheckShards(std::span<const StateShard> shards) {
  for (const StateShard& shard : shards) {
    const std::string where = Text(shard.kind, " '", shard.name, "'");
    if (!IsPlainKind(shard.kind) || shard.name.empty()) {
      return absl::InvalidArgumentError(
          Text(where, ": expected a name, and a kind of letters, digits and '_'"));
    }
    if (absl::Status status = layout::CheckShard(shard.shape, shard.shard); !status.ok()) {
      return absl::InvalidArgumentError(Text(where, ": ", base::MessageOf(status)));
    }
    const size_t expected =
        static_cast<size_t>(shard.shard.elements()) * tensor::SizeOf(shard.dtype);
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

// What the ranks wrote, joined; every rank must have written, and nobody else.
absl::StatusOr<Manifest> JoinFragments(const std::string& partial, const CheckpointInfo& info) {
  Manifest manifest;
  manifest.info = info;
  if (Exists(partial + "/" + FragmentFileName(info.ranks))) {
    return absl::InvalidArgumentError(Text(partial, ": rank ", info.ranks,
                                           " wrote too, but the checkpoint is said to have ",
                                           base::Counted(info.ranks, "rank"), ", numbered from 0"));
  }
  for (int rank = 0; rank < info.ranks; ++rank) {
    const std::string path = partial + "/" + FragmentFileName(rank);
    const absl::StatusOr<std::string> text = ReadText(path);
    if (absl::IsNotFound(text.status())) {
      return absl::FailedPreconditionError(
          Text(partial, ": rank ", rank, " of ", info.ranks, " has not written its shards"));
    }
    if (!text.ok()) return text.status();
    ASSIGN_OR_RETURN(Fragment fragment, ParseFragment(*text, path));
    const std::string file = partial + "/" + fragment.file.name;
    std::error_code error;
    if (fragment.rank != rank || fragment.file.name != RankFileName(rank) ||
        fs::file_size(file, error) != fragment.file.bytes || error) {
      return absl::DataLossError(Text(path, ": does not fit the file that lies beside it"));
    }
    for (ShardEntry& shard : fragment.shards) {
      shard.file = static_cast<uint32_t>(rank);
      manifest.shards.push_back(std::move(shard));
    }
    manifest.files.push_back(std::move(fragment.file));
  }
  return manifest;
}

}  // namespace

absl::StatusOr<std::string> CheckpointWriter::Prepare(const std::string& root, uint64_t step) {
  RETURN_IF_ERROR(MakeFolders(root));
  const std::string folder = PartialFolder(root, step);
  RETURN_IF_ERROR(RemoveAll(folder));
  // Not one that somebody else has just put there, or a link.
  if (mkdir(folder.c_str(), 0777) != 0) return DiskError(folder, "cannot be made", errno);
  return folder;
}

absl::Status CheckpointWriter::WriteRank(const std::string& partial_folder, int rank,
                                         std::span<const StateShard> shards) {
  if (rank < 0) return absl::InvalidArgumentError(Text("rank ", rank, " is below 0"));
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
    const absl::StatusOr<std::string> text = FormatFragment(fragment);
    status = text.ok() ? WriteDurably(partial_folder + "/" + FragmentFileName(rank), *text)
                       : text.status();
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
    return absl::InvalidArgumentError(Text("the checkpoint of step ", step,
                                           " is described as step ", info.step, " of ",
                                           base::Counted(info.ranks, "rank")));
  }
  if (!Exists(partial)) {
    if (Exists(final_folder)) return absl::AlreadyExistsError(Text(final_folder, ": is committed"));
    return absl::FailedPreconditionError(Text(partial, ": was not prepared"));
  }
  ASSIGN_OR_RETURN(const Manifest manifest, JoinFragments(partial, info));
  if (absl::Status status = CheckManifest(manifest); !status.ok()) {
    return absl::InvalidArgumentError(
        Text("what the ranks wrote makes no checkpoint: ", base::MessageOf(status)));
  }
  ASSIGN_OR_RETURN(const std::string text, FormatManifest(manifest));
  RETURN_IF_ERROR(WriteDurably(partial + "/" + std::string(kManifestName), text));
  for (int rank = 0; rank < info.ranks; ++rank) {
    std::error_code ignored;
    fs::remove(partial + "/" + FragmentFileName(rank), ignored);
  }
  RETURN_IF_ERROR(SyncFolder(partial));
  RETURN_IF_ERROR(Publish(partial, final_folder, Aside(root, step)));
  return final_folder;
}

absl::Status CheckpointWriter::Abandon(const std::string& root, uint64_t step) {
  return RemoveAll(PartialFolder(root, step));
}

absl::Status CheckpointWriter::Prune(const std::string& root, int keep, uint64_t newest,
                                     base::Links links) {
  if (keep < 1) return absl::InvalidArgumentError(Text("keep is ", keep, ", expected at least 1"));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, base::FolderNames(root));
  std::vector<uint64_t> steps;
  std::vector<std::pair<uint64_t, std::string>> hidden;
  for (const std::string& name : names) {
    uint64_t step = 0;
    if (ParseStepFolderName(name, &step) && step <= newest) steps.push_back(step);
    if (ParsePartialFolderName(name, &step) || ParseAside(name, &step)) {
      hidden.emplace_back(step, name);
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  int good = 0;
  for (uint64_t step : steps) {
    const std::string folder = root + "/" + StepFolderName(step);
    if (good < keep) {
      if (Open(folder, links).ok()) ++good;
      continue;
    }
    // Hidden first, so that a crash while it is emptied leaves nothing that looks whole.
    const std::string aside = Aside(root, step);
    RETURN_IF_ERROR(RemoveAll(aside));
    std::error_code error;
    fs::rename(folder, aside, error);
    if (error) return DiskError(folder, "cannot be set aside", error.value());
    RETURN_IF_ERROR(RemoveAll(aside));
  }
  for (const auto& [step, name] : hidden) {
    if (good > 0 && step <= newest) RETURN_IF_ERROR(RemoveAll(root + "/" + name));
  }
  return absl::OkStatus();
}

}  // namespace trireme::checkpoint
