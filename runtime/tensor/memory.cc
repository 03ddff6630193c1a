// mmap with room to align to a huge page, which is given back; advice, and threads that touch the
// pages.
#include "runtime/tensor/memory.h"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace trireme::tensor {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// Writes one byte of every page. Writing (not reading) is what makes the kernel give real memory.
void Touch(std::byte* begin, std::byte* end, size_t page_bytes) {
  for (std::byte* p = begin; p < end; p += page_bytes)
    *const_cast<volatile std::byte*>(p) = std::byte{0};
}

void Prefault(std::byte* data, size_t bytes, int threads) {
  const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t huge_pages = (bytes + kHugePageBytes - 1) / kHugePageBytes;
  const size_t parts = std::min<size_t>(static_cast<size_t>(threads), huge_pages);
  std::vector<std::thread> workers;
  for (size_t i = 0; i < parts; ++i) {
    std::byte* begin = data + huge_pages * i / parts * kHugePageBytes;
    std::byte* end = data + std::min(bytes, huge_pages * (i + 1) / parts * kHugePageBytes);
    workers.emplace_back([=] { Touch(begin, end, page_bytes); });
  }
  for (std::thread& worker : workers) worker.join();
}

absl::Status Refused(size_t bytes, int error) {
  struct sysinfo info = {};
  sysinfo(&info);
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot map ", bytes, " bytes (", bytes >> 20, " MiB) of memory: ", std::strerror(error),
      "; the machine has ", (info.totalram * info.mem_unit) >> 20, " MiB, of which ",
      (info.freeram * info.mem_unit) >> 20,
      " MiB are free; use a smaller micro-batch or more ranks, or raise ulimit -v"));
}

}  // namespace

absl::StatusOr<HugeMemory> HugeMemory::Map(size_t bytes, HugeMemoryOptions options) {
  HugeMemory memory;
  if (bytes == 0) return memory;
  if (bytes > std::numeric_limits<size_t>::max() - 3 * kHugePageBytes)
    return Refused(bytes, ENOMEM);
  const size_t page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used_bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
  const size_t room_bytes = used_bytes + page_bytes + kHugePageBytes;
  void* room =
      mmap(nullptr, room_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return Refused(bytes, errno);
  std::byte* const start = static_cast<std::byte*>(room);
  const size_t before_bytes =
      (kHugePageBytes - reinterpret_cast<uintptr_t>(room) % kHugePageBytes) % kHugePageBytes;
  memory.data_ = start + before_bytes;
  memory.mapping_ = memory.data_;
  memory.mapping_bytes_ = used_bytes + page_bytes;
  memory.size_bytes_ = bytes;
  memory.pages_bytes_ = used_bytes;
  // No slack on either side: what was not asked for is not there, and a page nobody may touch
  // stands behind.
  std::byte* const guard = memory.data_ + used_bytes;
  if (before_bytes > 0) munmap(start, before_bytes);
  munmap(guard + page_bytes, kHugePageBytes - before_bytes);
  if (mprotect(guard, page_bytes, PROT_NONE) != 0) return Refused(bytes, errno);
  // A kernel without huge pages refuses the advice; the memory is as good, only slower.
  (void)madvise(memory.data_, bytes, MADV_HUGEPAGE);
  if (options.prefault_threads > 0) Prefault(memory.data_, bytes, options.prefault_threads);
  return memory;
}

HugeMemory::HugeMemory(HugeMemory&& other) noexcept { *this = std::move(other); }

HugeMemory& HugeMemory::operator=(HugeMemory&& other) noexcept {
  if (this == &other) return *this;
  Unmap();
  mapping_ = std::exchange(other.mapping_, nullptr);
  mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
  data_ = std::exchange(other.data_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  pages_bytes_ = std::exchange(other.pages_bytes_, 0);
  return *this;
}

HugeMemory::~HugeMemory() { Unmap(); }

void HugeMemory::Unmap() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

}  // namespace trireme::tensor
