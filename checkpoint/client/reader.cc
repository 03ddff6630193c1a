#include "checkpoint/client/reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <system_error>

#include "checkpoint/client/disk.h"
#include "checkpoint/format/crc32c.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/safetensors/safetensors.h"

namespace trireme::checkpoint {

namespace fs = std::filesystem;
using base::Text;

namespace {

// One mapped file of a checkpoint; every piece is compared with its checksum before its first use, once.
class CheckedFile {
 public:
  static absl::StatusOr<std::unique_ptr<CheckedFile>> Open(const std::string& folder,
                                                           const FileEntry& entry) {
    auto checked = std::unique_ptr<CheckedFile>(new CheckedFile(entry));
    const std::string path = folder + "/" + entry.name;
    std::error_code error;
    if (fs::file_size(path, error) != entry.bytes || error) {
      return absl::DataLossError(Text(path, ": is missing or not ", entry.bytes, " bytes long"));
    }
    auto file = safetensors::File::Open(path);
    if (!file.ok()) return absl::DataLossError(base::MessageOf(file.status()));
    checked->file_ = std::make_unique<safetensors::File>(*std::move(file));
    const safetensors::Header& header = checked->file_->header();
    RETURN_IF_ERROR(checked->Check(0, header.data_offset, "header"));
    return checked;
  }

  // Compares the pieces that hold bytes [begin, end) of the file.
  absl::Status Check(uint64_t begin, uint64_t end, std::string_view tensor) {
    if (begin >= end) return absl::OkStatus();
    for (uint64_t piece = begin / kPieceBytes; piece <= (end - 1) / kPieceBytes; ++piece) {
      if (good_[piece]) continue;
      const uint64_t from = piece * kPieceBytes;
      const uint64_t to = std::min(entry_.bytes, from + kPieceBytes);
      const uint32_t found = Crc32c({First() + from, to - from});
      if (found != entry_.crc32c[piece]) {
        return absl::DataLossError(Text(file_->path(), ": piece ", piece, " (bytes ", from, " to ", to - 1,
                                        ") does not have its checksum; it holds part of ", tensor,
                                        ". The file is damaged; use an older checkpoint"));
      }
      good_[piece] = true;
    }
    return absl::OkStatus();
  }

  const safetensors::File& file() const { return *file_; }
  const FileEntry& entry() const { return entry_; }

 private:
  explicit CheckedFile(const FileEntry& entry) : entry_(entry), good_(entry.crc32c.size(), false) {}
  // The mapping's first byte: tensors lie at their offsets from it.
  const std::byte* First() const {
    const safetensors::TensorInfo& tensor = file_->header().tensors.front();
    return file_->Data(tensor).data() - tensor.offset;
  }

  const FileEntry& entry_;
  std::vector<bool> good_;
  std::unique_ptr<safetensors::File> file_;
};

// Copies runs of elements, changing between f32 and f64 where the types differ.
void Convert(std::span<const layout::StridedCopy> copies, tensor::DType from, const std::byte* source,
             tensor::DType to, std::byte* target) {
  const size_t from_bytes = tensor::SizeOf(from), to_bytes = tensor::SizeOf(to);
  for (const layout::StridedCopy& copy : copies) {
    for (int64_t run = 0; run < copy.count; ++run) {
      const std::byte* a = source + static_cast<size_t>(copy.source_offset + run * copy.source_stride) * from_bytes;
      std::byte* b = target + static_cast<size_t>(copy.target_offset + run * copy.target_stride) * to_bytes;
      for (int64_t index = 0; index < copy.length; ++index, a += from_bytes, b += to_bytes) {
        float narrow = 0;
        double wide = 0;
        if (from == tensor::DType::kF32) {
          std::memcpy(&narrow, a, sizeof narrow);
          wide = narrow;
          std::memcpy(b, &wide, sizeof wide);
        } else {
          std::memcpy(&wide, a, sizeof wide);
          narrow = static_cast<float>(wide);
          std::memcpy(b, &narrow, sizeof narrow);
        }
      }
    }
  }
}

class Restorer {
 public:
  Restorer(const Checkpoint& checkpoint, const RestoreOptions& options)
      : checkpoint_(checkpoint), options_(options), files_(checkpoint.manifest().files.size()) {
    for (const ShardEntry& shard : checkpoint.manifest().shards) {
      shards_[{shard.kind, shard.name}].push_back(&shard);
    }
  }

  absl::Status Fill(const StateShard& target) {
    const auto found = shards_.find({target.kind, target.name});
    if (found == shards_.end()) {
      return absl::NotFoundError(Text(checkpoint_.folder(), ": has no ", target.kind, " of ", target.name));
    }
    const ShardEntry& any = *found->second.front();
    if (any.shape != target.shape) {
      return absl::FailedPreconditionError(Text(checkpoint_.folder(), ": ", target.kind, " of ", target.name,
                                                " has shape ", ShapeText(any.shape), ", expected ",
                                                ShapeText(target.shape)));
    }
    const bool widens = any.dtype == tensor::DType::kF32 && target.dtype == tensor::DType::kF64;
    const bool narrows = any.dtype == tensor::DType::kF64 && target.dtype == tensor::DType::kF32;
    if (any.dtype != target.dtype && !widens && !(narrows && options_.allow_narrowing)) {
      return absl::FailedPreconditionError(Text(checkpoint_.folder(), ": ", target.kind, " of ", target.name,
                                                " is ", tensor::NameOf(any.dtype), ", expected ",
                                                tensor::NameOf(target.dtype)));
    }
    for (const ShardEntry* shard : found->second) RETURN_IF_ERROR(FillFrom(*shard, target));
    return absl::OkStatus();
  }

 private:
  static std::string ShapeText(const std::vector<int64_t>& shape) {
    std::string text = "[";
    for (size_t dim = 0; dim < shape.size(); ++dim) text += Text(dim == 0 ? "" : ", ", shape[dim]);
    return text + "]";
  }

  absl::Status FillFrom(const ShardEntry& shard, const StateShard& target) {
    const std::vector<layout::StridedCopy> copies = layout::Copies(shard.shard, target.shard);
    if (copies.empty()) return absl::OkStatus();
    std::unique_ptr<CheckedFile>& file = files_[shard.file];
    if (file == nullptr) {
      ASSIGN_OR_RETURN(file, CheckedFile::Open(checkpoint_.folder(), checkpoint_.manifest().files[shard.file]));
    }
    const safetensors::TensorInfo* tensor = file->file().Find(shard.key);
    const size_t width = tensor::SizeOf(shard.dtype);
    if (tensor == nullptr || tensor->bytes != static_cast<uint64_t>(shard.shard.elements()) * width) {
      return absl::DataLossError(Text(file->file().path(), ": does not hold ", shard.key, " as the manifest says"));
    }
    for (const layout::StridedCopy& copy : copies) {
      for (int64_t run = 0; run < copy.count; ++run) {
        const uint64_t begin =
            tensor->offset + static_cast<uint64_t>(copy.source_offset + run * copy.source_stride) * width;
        RETURN_IF_ERROR(file->Check(begin, begin + static_cast<uint64_t>(copy.length) * width, shard.key));
      }
    }
    const std::span<const std::byte> source = file->file().Data(*tensor);
    if (shard.dtype == target.dtype) {
      layout::Apply(copies, width, source, target.data);
    } else {
      Convert(copies, shard.dtype, source.data(), target.dtype, target.data.data());
    }
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  const RestoreOptions options_;
  std::map<std::pair<std::string, std::string>, std::vector<const ShardEntry*>> shards_;
  std::vector<std::unique_ptr<CheckedFile>> files_;
};

}  // namespace

absl::Status Checkpoint::Restore(std::span<const StateShard> targets, const RestoreOptions& options) const {
  Restorer restorer(*this, options);
  for (const StateShard& target : targets) RETURN_IF_ERROR(restorer.Fill(target));
  return absl::OkStatus();
}

absl::StatusOr<Checkpoint> Open(const std::string& folder) {
  const std::string path = folder + "/" + std::string(kManifestName);
  ASSIGN_OR_RETURN(const std::string text, ReadText(path));
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  ASSIGN_OR_RETURN(checkpoint.manifest_, ParseManifest(text, path));
  for (const FileEntry& file : checkpoint.manifest_.files) {
    std::error_code error;
    const uint64_t bytes = fs::file_size(folder + "/" + file.name, error);
    if (error) return absl::DataLossError(Text(folder, "/", file.name, ": is missing"));
    if (bytes != file.bytes) {
      return absl::DataLossError(Text(folder, "/", file.name, ": has ", bytes, " bytes, expected ", file.bytes));
    }
  }
  return checkpoint;
}

absl::StatusOr<std::string> FindNewest(const std::string& root, std::vector<Skipped>* skipped) {
  std::vector<uint64_t> steps;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, error)) {
    uint64_t step = 0;
    if (ParseStepFolderName(entry.path().filename().string(), &step)) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  for (uint64_t step : steps) {
    const std::string folder = root + "/" + StepFolderName(step);
    const absl::StatusOr<Checkpoint> checkpoint = Open(folder);
    if (checkpoint.ok()) return folder;
    if (skipped != nullptr) skipped->push_back({folder, checkpoint.status()});
  }
  return absl::NotFoundError(Text(root, ": holds no checkpoint that opens"));
}

absl::Status Verify(const std::string& folder) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Open(folder));
  std::string faults;
  for (const FileEntry& entry : checkpoint.manifest().files) {
    auto file = CheckedFile::Open(folder, entry);
    const absl::Status status = file.ok() ? (*file)->Check(0, entry.bytes, "the file") : file.status();
    if (!status.ok()) faults += (faults.empty() ? "" : "\n") + base::MessageOf(status);
  }
  return faults.empty() ? absl::OkStatus() : absl::DataLossError(faults);
}

}  // namespace trireme::checkpoint
