// Names of a checkpoint's folders and files, and the checks that hold for every manifest, made here
// or read.
#include <cstdio>
#include <map>
#include <set>

#include "checkpoint/format/manifest.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::checkpoint {

using base::Text;

std::string StepFolderName(uint64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%08llu", static_cast<unsigned long long>(step));
  return name;
}

std::string EpochText(Epoch epoch) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(epoch));
  return text;
}

std::string PartialFolderName(uint64_t step, Epoch epoch) {
  const std::string claim = epoch == Epoch::kNone ? "" : "." + EpochText(epoch);
  return Text(".", StepFolderName(step), claim, ".partial");
}

std::string DamagedFolderName(uint64_t step, int number) {
  return Text(StepFolderName(step), ".damaged", number > 1 ? Text("-", number) : "");
}

std::string RankFileName(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "rank-%03d.safetensors", rank);
  return name;
}

std::string FragmentFileName(int rank) {
  char name[40];
  std::snprintf(name, sizeof name, "rank-%03d.json", rank);
  return name;
}

bool ParseStepFolderName(std::string_view name, uint64_t* step) {
  if (!name.starts_with("step-") || name.size() > 5 + 18) return false;
  uint64_t value = 0;
  for (char digit : name.substr(5)) {
    if (digit < '0' || digit > '9') return false;
    value = value * 10 + static_cast<uint64_t>(digit - '0');
  }
  if (StepFolderName(value) != name) return false;
  *step = value;
  return true;
}

bool ParsePartialFolderName(std::string_view name, uint64_t* step) {
  constexpr std::string_view kEnd = ".partial";
  if (!name.starts_with(".") || !name.ends_with(kEnd)) return false;
  std::string_view inner = name.substr(1, name.size() - 1 - kEnd.size());
  if (const size_t dot = inner.find('.'); dot != std::string_view::npos) {
    const std::string_view claim = inner.substr(dot + 1);
    constexpr std::string_view kDigits = "0123456789abcdef";
    if (claim.size() != 16 || claim.find_first_not_of(kDigits) != std::string_view::npos) {
      return false;
    }
    inner = inner.substr(0, dot);
  }
  return ParseStepFolderName(inner, step);
}

std::string PartialFolder(std::string_view root, uint64_t step, Epoch epoch) {
  return Text(root, "/", PartialFolderName(step, epoch));
}

bool IsPlainKind(std::string_view kind) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  return !kind.empty() && kind.find_first_not_of(kLetters) == std::string_view::npos;
}

static absl::Status CheckFiles(const Manifest& manifest) {
  std::set<std::string> names;
  for (const FileEntry& file : manifest.files) {
    if (file.name.empty() || file.name.starts_with(".") ||
        file.name.find('/') != std::string::npos || file.name.find("..") != std::string::npos) {
      return absl::DataLossError(Text("file name '", file.name, "' is not a plain name"));
    }
    if (!names.insert(file.name).second) {
      return absl::DataLossError(Text("file ", file.name, " is listed twice"));
    }
    if (file.crc32c.size() != PieceCount(file.bytes)) {
      return absl::DataLossError(Text("file ", file.name, " of ", file.bytes, " bytes has ",
                                      file.crc32c.size(), " checksums, expected ",
                                      PieceCount(file.bytes)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckManifest(const Manifest& manifest) {
  RETURN_IF_ERROR(CheckFiles(manifest));
  struct Tensor {
    const ShardEntry* first = nullptr;
    std::vector<layout::Shard> shards;
  };
  std::map<std::pair<std::string, std::string>, Tensor> tensors;
  for (const ShardEntry& shard : manifest.shards) {
    const std::string where = Text(shard.kind, " '", shard.name, "'");
    if (!IsPlainKind(shard.kind) || shard.name.empty()) {
      return absl::DataLossError(Text(where, ": is no kind or no name of a tensor"));
    }
    if (shard.file >= manifest.files.size()) {
      return absl::DataLossError(
          Text(where, ": names file ", shard.file, " of ", manifest.files.size()));
    }
    RETURN_IF_ERROR(base::Annotate(layout::CheckShard(shard.shape, shard.shard), where));
    Tensor& tensor = tensors[{shard.kind, shard.name}];
    if (tensor.first == nullptr) tensor.first = &shard;
    if (tensor.first->dtype != shard.dtype || tensor.first->shape != shard.shape) {
      return absl::DataLossError(Text(where, ": its shards disagree on dtype or shape"));
    }
    tensor.shards.push_back(shard.shard);
  }
  for (const auto& [name, tensor] : tensors) {
    RETURN_IF_ERROR(base::Annotate(layout::CheckTiling(tensor.first->shape, tensor.shards),
                                   Text(name.first, " '", name.second, "'")));
  }
  return absl::OkStatus();
}

}  // namespace trireme::checkpoint
