// A window of whole pieces moves over the file; what is in it has been compared.
#include "checkpoint/client/piece_reader.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "checkpoint/client/disk.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"
#include "runtime/checksum/crc32c.h"

namespace trireme::checkpoint {
namespace {

using base::Text;

constexpr uint64_t kWindowPieces = 16;  // 1 MiB per pread of a long run.

}  // namespace

absl::StatusOr<std::unique_ptr<PieceReader>> PieceReader::Open(const std::string& folder,
                                                               const FileEntry& entry,
                                                               base::Links links) {
  std::unique_ptr<PieceReader> reader(new PieceReader(entry));
  reader->path_ = folder + "/" + entry.name;
  reader->fd_ = base::OpenToRead(reader->path_, links);
  if (reader->fd_ < 0 && errno == ENOENT) {
    return absl::DataLossError(Text(reader->path_, ": is missing"));
  }
  if (reader->fd_ < 0) return ReadError(reader->path_, "cannot be opened", errno);
  struct stat info {};
  if (fstat(reader->fd_, &info) != 0) return ReadError(reader->path_, "cannot be read", errno);
  if (static_cast<uint64_t>(info.st_size) != entry.bytes) {
    return absl::DataLossError(Text(reader->path_, ": has ", info.st_size,
                                    " bytes, the manifest says ", entry.bytes,
                                    "; use an older checkpoint"));
  }
  return reader;
}

PieceReader::~PieceReader() {
  if (fd_ >= 0) close(fd_);
}

absl::Status PieceReader::Load(uint64_t first, uint64_t count, std::string_view what) {
  const uint64_t begin = first * kPieceBytes;
  const uint64_t bytes = std::min(entry_.bytes - begin, count * kPieceBytes);
  window_count_ = 0;
  window_.resize(kWindowPieces * kPieceBytes);
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t got =
        pread(fd_, window_.data() + done, bytes - done, static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ReadError(path_, Text("cannot be read for ", what), errno);
    if (got == 0) {
      return absl::DataLossError(Text(path_, ": ends at byte ", begin + done, " while ", what,
                                      " is read: it was cut off"));
    }
    done += static_cast<uint64_t>(got);
  }
  pieces_read_ += count;
  bytes_read_ += bytes;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t from = i * kPieceBytes;
    const uint64_t to = std::min(bytes, from + kPieceBytes);
    const uint32_t found = checksum::Crc32c({window_.data() + from, to - from});
    const uint32_t expected = entry_.crc32c[first + i];
    if (found == expected) continue;
    return absl::DataLossError(
        Text(path_, ": piece ", first + i, " (bytes ", begin + from, " to ", begin + to - 1,
             ", of ", what, ") has checksum ", fmt::format("{:08x}", found), ", expected ",
             fmt::format("{:08x}", expected), ": the file is damaged; use an older checkpoint"));
  }
  window_first_ = first;
  window_count_ = count;
  return absl::OkStatus();
}

absl::Status PieceReader::Read(uint64_t offset, std::span<std::byte> target,
                               std::string_view what) {
  TRIREME_CHECK(offset <= entry_.bytes && target.size() <= entry_.bytes - offset);
  while (!target.empty()) {
    const uint64_t piece = offset / kPieceBytes;
    if (piece < window_first_ || piece >= window_first_ + window_count_) {
      const uint64_t last = (offset + target.size() - 1) / kPieceBytes;
      RETURN_IF_ERROR(Load(piece, std::min(last - piece + 1, kWindowPieces), what));
    }
    const uint64_t from = offset - window_first_ * kPieceBytes;
    const uint64_t take = std::min<uint64_t>(target.size(), window_count_ * kPieceBytes - from);
    std::memcpy(target.data(), window_.data() + from, take);
    target = target.subspan(take);
    offset += take;
  }
  return absl::OkStatus();
}

absl::Status PieceReader::Check(uint64_t piece, std::string_view what) {
  if (piece >= window_first_ && piece < window_first_ + window_count_) return absl::OkStatus();
  return Load(piece, 1, what);
}

absl::StatusOr<safetensors::Header> PieceReader::ReadHeader() {
  std::vector<std::byte> prefix(8);
  if (entry_.bytes < prefix.size()) {
    return absl::DataLossError(Text(path_, ": ", entry_.bytes, " bytes are too few for a header"));
  }
  RETURN_IF_ERROR(Read(0, prefix, "the header"));
  auto length = safetensors::HeaderLength(std::span(prefix).first<8>(), entry_.bytes, path_);
  if (!length.ok()) return absl::DataLossError(base::MessageOf(length.status()));
  prefix.resize(8 + *length);
  RETURN_IF_ERROR(Read(0, prefix, "the header"));
  auto header = safetensors::ParseHeader(prefix, entry_.bytes, path_);
  if (!header.ok()) return absl::DataLossError(base::MessageOf(header.status()));
  return header;
}

}  // namespace trireme::checkpoint
