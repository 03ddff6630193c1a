// manifest.json, version 1 (docs/formats/checkpoint.md): which files a checkpoint has, with a
// CRC32C per 64 KiB piece, and which shard of which tensor lies where. The text guards itself by a
// CRC32C.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/format/state.h"
#include "runtime/layout/layout.h"
#include "runtime/tensor/dtype.h"

namespace trireme::checkpoint {

inline constexpr int kManifestVersion = 1;
inline constexpr std::string_view kManifestName = "manifest.json";

struct FileEntry {
  std::string name;
  uint64_t bytes = 0;
  std::vector<uint32_t> crc32c = {};  // One per 64 KiB piece; the last piece may be shorter.
};

struct ShardEntry {
  std::string name;
  std::string kind;
  tensor::DType dtype = tensor::DType::kF32;
  std::vector<int64_t> shape;
  layout::Shard shard;
  uint32_t file = 0;  // Index into Manifest::files.
  std::string key;    // Of the tensor inside that safetensors file.
};

struct Manifest {
  CheckpointInfo info;
  std::vector<FileEntry> files;
  std::vector<ShardEntry> shards;
};

// What one rank wrote: a file and its shards (their `file` is 0).
struct Fragment {
  int rank = 0;
  FileEntry file;
  std::vector<ShardEntry> shards;
};

// Which claim of a folder a save belongs to (checkpoint/client/writer_claim.h), so that what is
// left of an older attempt writes beside a newer one, never over it.
enum class Epoch : uint64_t { kNone = 0 };

// "step-00001234", ".step-00001234.000000070123abcd.partial" (without a claim
// ".step-00001234.partial"), "step-00001234.damaged" (then "step-00001234.damaged-2", ...),
// "rank-003.safetensors", "rank-003.json".
std::string StepFolderName(uint64_t step);
std::string PartialFolderName(uint64_t step, Epoch epoch = Epoch::kNone);
std::string DamagedFolderName(uint64_t step, int number);  // number: from 1
std::string RankFileName(int rank);
std::string FragmentFileName(int rank);
// Of a claim: sixteen hexadecimal digits.
std::string EpochText(Epoch epoch);
// The step of a name as StepFolderName (or PartialFolderName, of any claim) makes it; false for
// other names.
bool ParseStepFolderName(std::string_view name, uint64_t* step);
bool ParsePartialFolderName(std::string_view name, uint64_t* step);
// `root` / PartialFolderName(step, epoch).
std::string PartialFolder(std::string_view root, uint64_t step, Epoch epoch = Epoch::kNone);

// True for letters, digits and '_', at least one.
bool IsPlainKind(std::string_view kind);

// Ok if names are plain, piece counts fit the sizes, every shard lies in its shape, the shards of a
// tensor agree on dtype and shape, and the shards of every (kind, name) tile it exactly.
absl::Status CheckManifest(const Manifest& manifest);

// InvalidArgument if a text is not UTF-8, which JSON cannot hold.
absl::StatusOr<std::string> FormatManifest(const Manifest& manifest);
absl::StatusOr<std::string> FormatFragment(const Fragment& fragment);
// DataLoss if the text's own checksum or structure is wrong, Unimplemented for another version.
// `where` (a path) begins every message. ParseManifest also runs CheckManifest.
absl::StatusOr<Manifest> ParseManifest(std::string_view text, std::string_view where);
absl::StatusOr<Fragment> ParseFragment(std::string_view text, std::string_view where);
// The checksum in front of a text that has parsed: equal for equal texts.
std::string GuardOf(std::string_view text);

}  // namespace trireme::checkpoint
