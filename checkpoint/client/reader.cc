// Opening, finding and verifying checkpoints; restore.cc reads their tensors.
#include "checkpoint/client/reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <type_traits>

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
constexpr int kMostLooks = 100;  // while others remove what is looked at

void Tell(const absl::Status& status, std::vector<absl::Status>* faults) {
  if (!status.ok()) faults->push_back(status);
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
    if (errno == ENOENT) return absl::DataLossError(Text(path, ": is missing"));
    return ReadError(path, "cannot be looked at", errno);
  }
  if (!S_ISREG(about.st_mode)) return absl::DataLossError(Text(path, ": is no regular file"));
  if (static_cast<uint64_t>(about.st_size) == bytes) return absl::OkStatus();
  return absl::DataLossError(Text(path, ": has ", about.st_size, " bytes, the manifest says ",
                                  bytes, "; use an older checkpoint"));
}

// The pieces [begin, end) of one file. Its first piece stands for its header and, as a file without
// a byte has it too, for its being there.
struct Pieces {
  uint32_t file = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Those of a part: cut by the numbers of all pieces in the order of the manifest, so that a rank
// opens few files and no piece is left out.
std::vector<Pieces> PiecesOf(const Manifest& manifest, Part part) {
  const auto of = [](const FileEntry& file) { return std::max<uint64_t>(1, file.crc32c.size()); };
  uint64_t all = 0;
  for (const FileEntry& file : manifest.files) all += of(file);
  const auto cut = [&](int index) {  // no overflow: 2^64 pieces are beyond every disk
    const auto count = static_cast<uint64_t>(part.count), at = static_cast<uint64_t>(index);
    return all / count * at + all % count * at / count;
  };
  const uint64_t begin = cut(part.index), end = cut(part.index + 1);
  std::vector<Pieces> pieces;
  uint64_t before = 0;
  for (uint32_t file = 0; file < manifest.files.size(); ++file) {
    const uint64_t count = of(manifest.files[file]);
    const uint64_t from = std::max(begin, before), to = std::min(end, before + count);
    if (from < to) pieces.push_back({file, from - before, to - before});
    before += count;
  }
  return pieces;
}

void VerifyPieces(const Checkpoint& checkpoint, const Pieces& pieces, uint64_t* bytes_read,
                  std::vector<absl::Status>* faults) {
  const FileEntry& file = checkpoint.manifest().files[pieces.file];
  auto reader = PieceReader::Open(checkpoint.folder(), file, checkpoint.links());
  if (!reader.ok()) return Tell(reader.status(), faults);
  absl::StatusOr<safetensors::Header> header = absl::NotFoundError("not read yet");
  if (pieces.begin == 0) {
    header = (*reader)->ReadHeader();
    Tell(header.status(), faults);
    for (const ShardEntry& entry : checkpoint.manifest().shards) {
      if (entry.file != pieces.file || !header.ok() || faults->size() >= kFaultsTold) continue;
      Tell(CheckStored(*header, entry, (*reader)->path()), faults);
    }
  }
  // A broken header was told already; its first piece would only repeat it.
  const bool broken = pieces.begin == 0 && !header.ok();
  const uint64_t end = std::min<uint64_t>(pieces.end, file.crc32c.size());
  for (uint64_t piece = pieces.begin + (broken ? 1 : 0); piece < end; ++piece) {
    if (faults->size() >= kFaultsTold) break;
    if ((*reader)->Check(piece, "").ok()) continue;
    // Again, with words for it: another part has the header.
    if (!header.ok() && !broken) header = (*reader)->ReadHeader();
    Tell((*reader)->Check(piece, header.ok() ? HeldBy(*header, piece) : "unknown tensors"), faults);
  }
  if (bytes_read != nullptr) *bytes_read += (*reader)->bytes_read();
}

// The newest first.
absl::StatusOr<std::vector<uint64_t>> StepsOf(const std::string& root, uint64_t below) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, base::FolderNames(root));
  std::vector<uint64_t> steps;
  for (const std::string& name : names) {
    uint64_t step = 0;
    if (ParseStepFolderName(name, &step) && step < below) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

// The same of a folder that anybody may have filled.
absl::Status NewestSteps(const std::string& root, size_t most,
                         std::set<uint64_t, std::greater<>>* steps) {
  return base::VisitNames(root, [&](const std::string& name) {
    uint64_t step = 0;
    if (ParseStepFolderName(name, &step)) steps->insert(step);
    if (steps->size() > most) steps->erase(std::prev(steps->end()));
  });
}

// `look` sets its argument where a checkpoint went away while it was looked at: the run that writes
// here has removed it, once a newer one was there.
template <typename Look>
auto LookAgainWhileGone(const std::string& root, const Look& look) {
  using Found = std::invoke_result_t<Look, bool*>;
  for (int looks = 0; looks < kMostLooks; ++looks) {
    bool gone = false;
    Found found = look(&gone);
    if (!gone) return found;
  }
  return Found(absl::UnavailableError(
      Text(root, ": checkpoints come and go faster than they can be looked at")));
}

}  // namespace

absl::StatusOr<Checkpoint> OpenManifest(const std::string& folder, base::Links links) {
  const std::string path = folder + "/" + std::string(kManifestName);
  const absl::StatusOr<std::string> read = ReadText(path, links);
  std::error_code ignored;
  if (!read.ok() && fs::is_regular_file(fs::symlink_status(folder, ignored))) {
    return absl::DataLossError(Text(folder, ": is a file, expected a checkpoint's folder"));
  }
  ASSIGN_OR_RETURN(const std::string text, read);
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.links_ = links;
  ASSIGN_OR_RETURN(checkpoint.manifest_, ParseManifest(text, path));
  checkpoint.guard_ = GuardOf(text);
  return checkpoint;
}

absl::StatusOr<Checkpoint> Open(const std::string& folder, base::Links links) {
  ASSIGN_OR_RETURN(Checkpoint checkpoint, OpenManifest(folder, links));
  for (const FileEntry& file : checkpoint.manifest().files) {
    RETURN_IF_ERROR(CheckSize(folder + "/" + file.name, file.bytes, links));
  }
  return checkpoint;
}

bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status);
}

bool IsGone(const std::string& folder) {
  struct stat about {};
  return lstat(folder.c_str(), &about) != 0 && errno == ENOENT;
}

absl::Status VisitCheckpoints(
    const std::string& root, size_t most, base::Links links,
    const std::function<void(const std::string& folder, const absl::StatusOr<Checkpoint>& opened)>&
        visit) {
  return LookAgainWhileGone(root, [&](bool* gone) {
    std::set<uint64_t, std::greater<>> steps;
    const absl::Status listed = NewestSteps(root, most, &steps);
    bool visited = false;
    for (const uint64_t step : steps) {
      const std::string folder = root + "/" + StepFolderName(step);
      const absl::StatusOr<Checkpoint> opened = Open(folder, links);
      if (!opened.ok() && IsGone(folder)) continue;
      visited = true;
      visit(folder, opened);
    }
    *gone = !visited && !steps.empty();
    return listed;
  });
}

absl::StatusOr<std::string> FindNewest(const std::string& root, std::vector<Skipped>* skipped,
                                       uint64_t below, base::Links links) {
  return LookAgainWhileGone(root, [&](bool* gone) -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const std::vector<uint64_t> steps, StepsOf(root, below));
    std::vector<Skipped> passed_over;
    const auto tell = [&] {
      if (skipped != nullptr)
        skipped->insert(skipped->end(), passed_over.begin(), passed_over.end());
    };
    for (const uint64_t step : steps) {
      const std::string folder = root + "/" + StepFolderName(step);
      const absl::StatusOr<Checkpoint> checkpoint = Open(folder, links);
      if (checkpoint.ok()) {
        tell();
        return folder;
      }
      if ((*gone = IsGone(folder))) return checkpoint.status();
      passed_over.push_back({folder, checkpoint.status()});
    }
    tell();
    return absl::NotFoundError(Text(root, ": holds no checkpoint that opens"));
  });
}

absl::StatusOr<std::string> FindNewestUndamaged(const std::string& root,
                                                std::vector<Skipped>* skipped, uint64_t below,
                                                base::Links links) {
  std::vector<Skipped> passed_over;
  absl::StatusOr<std::string> found = FindNewest(root, &passed_over, below, links);
  for (const Skipped& each : passed_over) {
    if (!IsDamage(each.reason)) return each.reason;
    skipped->push_back(each);
  }
  if (absl::IsNotFound(found.status()) && !skipped->empty()) return NoneIntact(root, *skipped);
  return found;
}

absl::StatusOr<std::string> FindNewestIntact(const std::string& root, std::vector<Skipped>* skipped,
                                             base::Links links) {
  std::vector<Skipped> damaged;
  absl::StatusOr<std::string> newest = LookAgainWhileGone(root, [&](bool* gone) {
    damaged.clear();
    for (uint64_t below = UINT64_MAX;;) {
      absl::StatusOr<std::string> found = FindNewestUndamaged(root, &damaged, below, links);
      if (!found.ok()) return found;
      const absl::Status status = Verify(*found, links);
      if (status.ok()) return found;
      if (!IsDamage(status) || (*gone = IsGone(*found))) return absl::StatusOr<std::string>(status);
      damaged.push_back({*found, status});
      TRIREME_CHECK(ParseStepFolderName(fs::path(*found).filename().string(), &below));
    }
  });
  if (skipped != nullptr) *skipped = std::move(damaged);
  return newest;
}

absl::Status NoneIntact(const std::string& root, std::span<const Skipped> damaged) {
  std::string told = Text(root, ": no checkpoint here is intact");
  for (const Skipped& each : damaged) told += Text("\n  ", base::MessageOf(each.reason));
  return absl::DataLossError(told);
}

absl::Status VerifyPart(const Checkpoint& checkpoint, Part part, uint64_t* bytes_read) {
  std::string told;
  for (const Pieces& pieces : PiecesOf(checkpoint.manifest(), part)) {
    std::vector<absl::Status> faults;
    VerifyPieces(checkpoint, pieces, bytes_read, &faults);
    for (const absl::Status& fault : faults) {
      if (!IsDamage(fault)) return fault;
      told += (told.empty() ? "" : "\n") + base::MessageOf(fault);
    }
  }
  return told.empty() ? absl::OkStatus() : absl::DataLossError(told);
}

absl::Status Verify(const std::string& folder, base::Links links) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Open(folder, links));
  return VerifyPart(checkpoint, {});
}

}  // namespace trireme::checkpoint
