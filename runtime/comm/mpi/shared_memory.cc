// memfd, /proc/PID/fd/N and a token: see the header for why not /dev/shm.
#include "runtime/comm/mpi/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::comm {

using base::Text;
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;
// The token has a page of its own behind the memory.
constexpr size_t kTokenBytes = kPageBytes;
// MADV_COLLAPSE of Linux 6.1, which not every C library names.
constexpr int kCollapse = 25;

size_t TokenAt(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Huge pages by advice, which is followed where the system's shmem_enabled allows it; and else by
// collapsing, for which a page of each has to be there. Where neither works the memory is as good,
// only slower. Pages are asked for and not touched: what is not there would be a bus error. Returns
// errno's number of a full machine, or 0.
int MakeHuge(int fd, std::byte* data, size_t bytes) {
  const size_t whole = bytes / kHugePageBytes * kHugePageBytes;
  for (size_t at = 0; at < whole; at += kHugePageBytes) {
    if (const int error = posix_fallocate(fd, static_cast<off_t>(at), kPageBytes); error != 0) {
      return error;
    }
  }
  if (whole > 0) (void)madvise(data, whole, kCollapse);
  return 0;
}

}  // namespace

absl::Status SharedMemory::Map(int fd, size_t bytes) {
  const size_t file_bytes = TokenAt(bytes) + kTokenBytes;
  // With room to align to a huge page; what is left over on both sides stays forbidden.
  reserved_bytes_ = file_bytes + 2 * kHugePageBytes;
  void* room = mmap(nullptr, reserved_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* mapping = MAP_FAILED;
  if (room != MAP_FAILED) {
    reserved_ = static_cast<std::byte*>(room);
    const auto past = reinterpret_cast<uintptr_t>(room) % kHugePageBytes;
    mapping = mmap(reserved_ + (kHugePageBytes - past), file_bytes, PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_FIXED, fd, 0);
  }
  if (mapping == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        Text("cannot map ", bytes, " bytes of shared memory: ", std::strerror(errno)));
  }
  data_ = static_cast<std::byte*>(mapping);
  (void)madvise(data_, bytes, MADV_HUGEPAGE);
  return absl::OkStatus();
}

absl::StatusOr<SharedMemory> SharedMemory::Make(size_t bytes) {
  SharedMemory memory;
  const off_t file_bytes = static_cast<off_t>(TokenAt(bytes) + kTokenBytes);
  const int fd = memfd_create("trireme-window", MFD_CLOEXEC);
  memory.address_ = {.pid = getpid(), .fd = fd, .bytes = bytes};
  int error = fd < 0 || ftruncate(fd, file_bytes) != 0 ? errno : 0;
  if (error == 0) {
    RETURN_IF_ERROR(memory.Map(fd, bytes));
    error = MakeHuge(fd, memory.data_, bytes);
    // Allocated here and now: a full machine is an error here, not a bus error later.
    if (error == 0) error = posix_fallocate(fd, 0, file_bytes);
  }
  if (error != 0) {
    return absl::ResourceExhaustedError(
        Text("cannot make ", bytes, " bytes of shared memory: ", std::strerror(error)));
  }
  memory.Populate();
  std::random_device random;
  for (uint64_t& word : memory.address_.token) word = (uint64_t{random()} << 32) | random();
  std::memcpy(memory.data_ + TokenAt(bytes), memory.address_.token, sizeof(memory.address_.token));
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::Open(const SharedMemoryAddress& address) {
  const std::string path = Text("/proc/", address.pid, "/fd/", address.fd);
  const absl::Status missing = absl::NotFoundError(path + " is not the memory looked for");
  // The process of that number may be another one here: what it has open must be our file and of
  // its size. Looked at before it is opened: it may be anything.
  char link[64] = {};
  if (readlink(path.c_str(), link, sizeof(link) - 1) <= 0 ||
      std::strncmp(link, "/memfd:trireme-window", 21) != 0) {
    return missing;
  }
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(Text(path, ": ", std::strerror(errno)));
  SharedMemory memory;
  const bool ours =
      lseek(fd, 0, SEEK_END) == static_cast<off_t>(TokenAt(address.bytes) + kTokenBytes);
  const absl::Status mapped = ours ? memory.Map(fd, address.bytes) : missing;
  close(fd);
  RETURN_IF_ERROR(mapped);
  memory.address_ = address;
  memory.address_.fd = -1;
  if (std::memcmp(memory.data_ + TokenAt(address.bytes), address.token, sizeof(address.token)) !=
      0) {
    return missing;
  }
  return memory;
}

void SharedMemory::Populate() { (void)madvise(data_, address_.bytes, MADV_POPULATE_WRITE); }

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  Release();
  address_ = std::exchange(other.address_, SharedMemoryAddress{});
  reserved_ = std::exchange(other.reserved_, nullptr);
  reserved_bytes_ = std::exchange(other.reserved_bytes_, 0);
  data_ = std::exchange(other.data_, nullptr);
  return *this;
}

SharedMemory::~SharedMemory() { Release(); }

void SharedMemory::CloseFile() {
  if (address_.fd >= 0) close(static_cast<int>(address_.fd));
  address_.fd = -1;
}

std::span<std::byte> SharedMemory::span() const {
  return {data_, data_ == nullptr ? 0 : address_.bytes};
}

void SharedMemory::Release() {
  if (reserved_ != nullptr) munmap(reserved_, reserved_bytes_);
  reserved_ = data_ = nullptr;
  CloseFile();
}

}  // namespace trireme::comm
