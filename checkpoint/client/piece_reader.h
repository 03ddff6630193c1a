// Reads one file of a checkpoint by whole 64 KiB pieces, each compared with its checksum in the
// buffer it is then copied from. pread, not mmap: a bad disk is a Status then, not a signal, and
// the bytes that were compared are the bytes that are used. Internal to checkpoint/client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "checkpoint/client/disk.h"
#include "checkpoint/format/manifest.h"
#include "runtime/base/real_path.h"
#include "runtime/safetensors/safetensors.h"

namespace trireme::checkpoint {

// One thread at a time.
class PieceReader {
 public:
  // `entry` must outlive the reader. DataLoss if the file is missing or not entry.bytes long.
  static absl::StatusOr<std::unique_ptr<PieceReader>> Open(const std::string& folder,
                                                           const FileEntry& entry,
                                                           base::Links links);
  PieceReader(const PieceReader&) = delete;
  ~PieceReader();

  const std::string& path() const { return path_; }
  uint64_t pieces_read() const { return pieces_read_; }
  uint64_t bytes_read() const { return bytes_read_; }
  // What is read from here on comes from the disk, not from the memory of whoever wrote it.
  void ForgetCached() const { checkpoint::ForgetCached(fd_); }

  // Copies bytes [offset, offset + target.size()) of the file. Callers that go upwards read each
  // piece once. DataLoss names file, piece and `what` (which tensor was wanted).
  absl::Status Read(uint64_t offset, std::span<std::byte> target, std::string_view what);
  // Compares one piece without copying.
  absl::Status Check(uint64_t piece, std::string_view what);
  // The safetensors header, read through Read.
  absl::StatusOr<safetensors::Header> ReadHeader();

 private:
  explicit PieceReader(const FileEntry& entry) : entry_(entry) {}
  // Fills the window with pieces [first, first + count), count at most kWindowPieces.
  absl::Status Load(uint64_t first, uint64_t count, std::string_view what);

  const FileEntry& entry_;
  std::string path_;
  int fd_ = -1;
  std::vector<std::byte> window_;
  uint64_t window_first_ = 0;  // In pieces.
  uint64_t window_count_ = 0;
  uint64_t pieces_read_ = 0;
  uint64_t bytes_read_ = 0;
};

// Ok if the header of the file at `path` holds the shard's tensor as the manifest says; else
// DataLoss.
absl::Status CheckStored(const safetensors::Header& header, const ShardEntry& entry,
                         const std::string& path);

}  // namespace trireme::checkpoint
