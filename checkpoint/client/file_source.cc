// The files of a checkpoint as a source of the mover.
#include <memory>
#include <utility>

#include "checkpoint/client/piece_reader.h"
#include "checkpoint/client/reader.h"
#include "checkpoint/client/restore.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::checkpoint {
namespace {

class FilePart final : public StoredPart {
 public:
  FilePart(const Manifest& manifest, std::unique_ptr<PieceReader> reader,
           safetensors::Header header, uint64_t* pieces_read)
      : manifest_(manifest),
        reader_(std::move(reader)),
        header_(std::move(header)),
        pieces_read_(pieces_read) {}
  ~FilePart() override {
    if (pieces_read_ != nullptr) *pieces_read_ += reader_->pieces_read();
  }

  // If the file's header agrees with the manifest.
  absl::StatusOr<uint64_t> OffsetOf(size_t number) override {
    const ShardEntry& entry = manifest_.shards[number];
    RETURN_IF_ERROR(CheckStored(header_, entry, reader_->path()));
    return header_.Find(entry.key)->offset;
  }
  absl::Status Read(uint64_t offset, std::span<std::byte> target, std::string_view what) override {
    return reader_->Read(offset, target, what);
  }

 private:
  const Manifest& manifest_;
  const std::unique_ptr<PieceReader> reader_;
  const safetensors::Header header_;
  uint64_t* const pieces_read_;
};

class FileSource final : public StateSource {
 public:
  FileSource(const Checkpoint& checkpoint, uint64_t* pieces_read)
      : checkpoint_(checkpoint), pieces_read_(pieces_read) {}

  const std::string& where() const override { return checkpoint_.folder(); }
  std::vector<StoredShard> shards() const override {
    std::vector<StoredShard> all;
    for (const ShardEntry& entry : checkpoint_.manifest().shards) {
      all.push_back({.name = entry.name,
                     .kind = entry.kind,
                     .dtype = entry.dtype,
                     .shape = &entry.shape,
                     .shard = &entry.shard,
                     .part = entry.file,
                     .number = all.size()});
    }
    return all;
  }
  absl::StatusOr<std::unique_ptr<StoredPart>> OpenPart(uint32_t part) const override {
    const Manifest& manifest = checkpoint_.manifest();
    ASSIGN_OR_RETURN(auto reader, PieceReader::Open(checkpoint_.folder(), manifest.files[part],
                                                    checkpoint_.links()));
    ASSIGN_OR_RETURN(safetensors::Header header, reader->ReadHeader());
    return std::make_unique<FilePart>(manifest, std::move(reader), std::move(header), pieces_read_);
  }

 private:
  const Checkpoint& checkpoint_;
  uint64_t* const pieces_read_;
};

}  // namespace

absl::Status CheckStored(const safetensors::Header& header, const ShardEntry& entry,
                         const std::string& path) {
  const safetensors::TensorInfo* tensor = header.Find(entry.key);
  const auto elements = static_cast<uint64_t>(entry.shard.elements());
  if (tensor == nullptr || tensor->element != safetensors::FromDType(entry.dtype) ||
      tensor->bytes / tensor::SizeOf(entry.dtype) != elements) {
    return absl::DataLossError(base::Text(path, ": does not hold tensor '", entry.key, "' of ",
                                          elements, " elements of ", tensor::NameOf(entry.dtype),
                                          " that the manifest says it holds"));
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::Restore(std::span<const StateShard> targets,
                                 const RestoreOptions& options) const {
  return RestoreFrom(FileSource(*this, options.pieces_read), targets, options);
}

}  // namespace trireme::checkpoint
