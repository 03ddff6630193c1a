#include "checkpoint/client/snapshot_map.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "checkpoint/format/piece_table.h"
#include "runtime/base/durable.h"
#include "runtime/checksum/crc32c.h"
#include "runtime/checksum/lane_sums.h"

namespace trireme::checkpoint {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

// Aligned as the data is in the file, so that it can be in huge pages.
absl::Status SnapshotMap::Map(int fd, Access access) {
  fd_ = fd;
  const auto bytes = static_cast<size_t>(places_.file_bytes);
  void* room = mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return base::ErrnoStatus(errno, absl::StrCat("cannot map ", path_));
  auto* begin = static_cast<std::byte*>(room);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  if (before < kHugePage) munmap(begin + before + bytes, kHugePage - before);
  const int rights = access == Access::kAll ? PROT_READ | PROT_WRITE : PROT_READ;
  void* mapped = mmap(begin + before, bytes, rights, MAP_SHARED | MAP_FIXED, fd, 0);
  const bool usable =
      mapped != MAP_FAILED &&
      mprotect(begin + before + places_.pins, kSnapshotPageBytes, PROT_READ | PROT_WRITE) == 0;
  if (!usable) {
    const int error = errno;
    munmap(begin + before, bytes);
    return base::ErrnoStatus(error, absl::StrCat("cannot map ", path_));
  }
  base_ = begin + before;
  return absl::OkStatus();
}

SnapshotMap::~SnapshotMap() {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(places_.file_bytes));
  if (fd_ >= 0) close(fd_);
}

size_t SnapshotMap::pieces() const { return static_cast<size_t>(PieceCount(shape_.slot_bytes)); }

std::span<std::byte> SnapshotMap::sums_of(uint32_t slot) const {
  return {base_ + places_.sums_of(slot), pieces() * sizeof(uint64_t)};
}

std::optional<SnapshotRecord> SnapshotMap::Staged(uint32_t slot) const {
  const std::optional<SnapshotRecord> record =
      SnapshotSlotView(page(places_.record(slot))).Staged();
  if (record.has_value() && checksum::Crc32c(sums_of(slot)) != record->sums_crc) return {};
  return record;
}

std::vector<SlotState> SnapshotMap::slots() const {
  std::vector<SlotState> states;
  for (uint32_t slot = 0; slot < shape_.slots; ++slot) {
    states.push_back(SnapshotSlotView(page(places_.record(slot))).begun());
  }
  return states;
}

absl::Status SnapshotMap::Verify(uint32_t slot, size_t begin, size_t end) const {
  const std::span<const std::byte> data = bytes_of(slot);
  for (size_t piece = begin; piece < std::min(end, pieces()); ++piece) {
    const size_t from = piece * kPieceBytes;
    uint64_t sum = 0;
    std::memcpy(&sum, sums_of(slot).data() + piece * sizeof(sum), sizeof(sum));
    const size_t bytes = std::min<size_t>(kPieceBytes, data.size() - from);
    if (checksum::SumOfPiece(data.subspan(from, bytes)) == sum) continue;
    return absl::DataLossError(absl::StrCat("piece ", piece, " of slot ", slot, " of ", path_,
                                            " is not what was written to it"));
  }
  return absl::OkStatus();
}

}  // namespace trireme::checkpoint
