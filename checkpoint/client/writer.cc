// Saving. The checksums are taken from memory, so that reading back finds what the disk made of it.
#include "checkpoint/client/writer.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

#include "checkpoint/client/disk.h"
#include "checkpoint/client/piece_reader.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer_claim.h"
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

// Of earlier versions: where a checkpoint waited to be removed.
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

// What is brought to this process's memory at a time; stays in the second cache.
constexpr size_t kMovedBytes = size_t{1} << 20;

// Hands on the shard's bytes, in order.
template <typename Function>
absl::Status ForEachPart(const StateShard& shard, const Function& function) {
  if (shard.mover == nullptr) return function(std::span<const std::byte>(shard.data));
  std::vector<std::byte> here(std::min(kMovedBytes, shard.data.size()));
  for (size_t at = 0; at < shard.data.size(); at += here.size()) {
    const auto part = std::span(here).first(std::min(here.size(), shard.data.size() - at));
    shard.mover->Read(shard.data.data() + at, part);
    RETURN_IF_ERROR(function(std::span<const std::byte>(part)));
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
    RETURN_IF_ERROR(ForEachPart(*by_key.at(tensor.name), [&](std::span<const std::byte> part) {
      table.Append(part);
      return writer.Append(tensor.name, part);
    }));
  }
  const uint64_t bytes = writer.plan().file_bytes;
  RETURN_IF_ERROR(writer.Finish());
  return FileEntry{.name = RankFileName(rank), .bytes = bytes, .crc32c = table.Finish()};
}

absl::StatusOr<Fragment> ReadFragment(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  return ParseFragment(text, path);
}

// Written, and seen to be on the disk as it was meant.
absl::Status WriteManifest(const std::string& path, const std::string& text) {
  RETURN_IF_ERROR(WriteDurably(path, text));
  if (const int fd = base::OpenToRead(path, base::Links::kFollow); fd >= 0) {
    ForgetCached(fd);
    close(fd);
  }
  ASSIGN_OR_RETURN(const std::string there, ReadText(path));
  if (there == text) return absl::OkStatus();
  return absl::DataLossError(Text(path, ": does not read back as it was written"));
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
    absl::StatusOr<Fragment> read = ReadFragment(path);
    if (absl::IsNotFound(read.status())) {
      return absl::FailedPreconditionError(
          Text(partial, ": rank ", rank, " of ", info.ranks, " has not written its shards"));
    }
    ASSIGN_OR_RETURN(Fragment fragment, std::move(read));
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

absl::StatusOr<std::string> CheckpointWriter::Prepare(const std::string& root, uint64_t step,
                                                      Epoch epoch) {
  RETURN_IF_ERROR(MakeFolders(root));
  RETURN_IF_ERROR(CheckEpoch(root, epoch));
  const std::string folder = PartialFolder(root, step, epoch);
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

absl::Status CheckpointWriter::ReadBack(const std::string& partial_folder, int rank,
                                        uint64_t* bytes_read) {
  const std::string path = partial_folder + "/" + FragmentFileName(rank);
  ASSIGN_OR_RETURN(const Fragment fragment, ReadFragment(path));
  if (fragment.rank != rank || fragment.file.name != RankFileName(rank)) {
    return absl::DataLossError(Text(path, ": is of rank ", fragment.rank, ", expected ", rank));
  }
  ASSIGN_OR_RETURN(const auto reader,
                   PieceReader::Open(partial_folder, fragment.file, base::Links::kFollow));
  reader->ForgetCached();
  ASSIGN_OR_RETURN(const safetensors::Header header, reader->ReadHeader());
  for (const ShardEntry& shard : fragment.shards) {
    RETURN_IF_ERROR(CheckStored(header, shard, reader->path()));
  }
  for (uint64_t piece = 0; piece < fragment.file.crc32c.size(); ++piece) {
    RETURN_IF_ERROR(reader->Check(piece, "what was just written"));
  }
  if (bytes_read != nullptr) *bytes_read += reader->bytes_read();
  return absl::OkStatus();
}

absl::StatusOr<std::string> CheckpointWriter::Commit(const std::string& root, uint64_t step,
                                                     const CheckpointInfo& info, Epoch epoch) {
  const std::string partial = PartialFolder(root, step, epoch);
  const std::string final_folder = root + "/" + StepFolderName(step);
  if (info.step != step || info.ranks < 1) {
    return absl::InvalidArgumentError(Text("the checkpoint of step ", step,
                                           " is described as step ", info.step, " of ",
                                           base::Counted(info.ranks, "rank")));
  }
  if (!Exists(partial)) {
    RETURN_IF_ERROR(CheckEpoch(root, epoch));
    if (Exists(final_folder)) return absl::AlreadyExistsError(Text(final_folder, ": is committed"));
    return absl::FailedPreconditionError(Text(partial, ": was not prepared"));
  }
  ASSIGN_OR_RETURN(const Manifest manifest, JoinFragments(partial, info));
  if (absl::Status status = CheckManifest(manifest); !status.ok()) {
    return absl::InvalidArgumentError(
        Text("what the ranks wrote makes no checkpoint: ", base::MessageOf(status)));
  }
  ASSIGN_OR_RETURN(const std::string text, FormatManifest(manifest));
  RETURN_IF_ERROR(WriteManifest(partial + "/" + std::string(kManifestName), text));
  for (int rank = 0; rank < info.ranks; ++rank) {
    std::error_code ignored;
    fs::remove(partial + "/" + FragmentFileName(rank), ignored);
  }
  RETURN_IF_ERROR(SyncFolder(partial));
  RETURN_IF_ERROR(CheckEpoch(root, epoch));
  // A newer epoch that begins at this moment takes the source away, before it looks what there is.
  if (rename(partial.c_str(), final_folder.c_str()) != 0) {
    const int error = errno;
    RETURN_IF_ERROR(CheckEpoch(root, epoch));
    if (error == ENOTEMPTY || error == EEXIST) {
      return absl::AlreadyExistsError(Text(final_folder, ": is there already; move it away"));
    }
    return DiskError(final_folder, "cannot be named", error);
  }
  RETURN_IF_ERROR(SyncFolder(root));
  return final_folder;
}

absl::Status CheckpointWriter::Abandon(const std::string& root, uint64_t step, Epoch epoch) {
  return RemoveAll(PartialFolder(root, step, epoch));
}

absl::Status CheckpointWriter::Prune(const std::string& root, const PruneOptions& options) {
  if (options.keep < 1) {
    return absl::InvalidArgumentError(Text("keep is ", options.keep, ", expected at least 1"));
  }
  RETURN_IF_ERROR(Open(root + "/" + StepFolderName(options.newest), options.links).status());
  ASSIGN_OR_RETURN(const std::vector<std::string> names, base::FolderNames(root));
  std::vector<uint64_t> steps;
  std::set<std::string> due;
  for (const std::string& name : names) {
    uint64_t step = 0;
    if (ParseStepFolderName(name, &step)) {
      if (step <= options.newest) steps.push_back(step);
    } else if (ParsePartialFolderName(name, &step) || ParseAside(name, &step)) {
      if (step <= options.newest) due.insert(name);
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  int good = 0;
  for (uint64_t step : steps) {
    const std::string name = StepFolderName(step);
    if (good >= options.keep) {
      due.insert(name);
    } else if (Open(root + "/" + name, options.links).ok()) {
      ++good;
    }
  }
  // What was moved goes, also where something else could not be.
  absl::Status pruned =
      TakeAway(root, options.epoch, [&](const std::string& name) { return due.contains(name); });
  if (absl::IsFailedPrecondition(pruned)) return pruned;
  pruned.Update(RemoveAll(RemovedFolder(root, options.epoch)));
  return pruned;
}

}  // namespace trireme::checkpoint
