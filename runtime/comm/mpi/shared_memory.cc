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
#include "runtime/base/text.h"

namespace trireme::comm {

using base::Text;
namespace {

// The token has a page of its own in front of the memory.
constexpr size_t kHeaderBytes = 4096;

absl::StatusOr<std::byte*> MapFile(int fd, size_t bytes) {
  void* mapping = mmap(nullptr, kHeaderBytes + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        Text("cannot map ", bytes, " bytes of shared memory: ", std::strerror(errno)));
  }
  return static_cast<std::byte*>(mapping);
}

}  // namespace

absl::StatusOr<SharedMemory> SharedMemory::Make(size_t bytes) {
  SharedMemory memory;
  const int fd = memfd_create("trireme-window", MFD_CLOEXEC);
  // Allocated here and now: a full machine is an error here, not a bus error later.
  const int error =
      fd < 0 ? errno : posix_fallocate(fd, 0, static_cast<off_t>(kHeaderBytes + bytes));
  if (error != 0) {
    if (fd >= 0) close(fd);
    return absl::ResourceExhaustedError(
        Text("cannot make ", bytes, " bytes of shared memory: ", std::strerror(error)));
  }
  memory.address_.fd = fd;
  memory.address_.pid = getpid();
  memory.address_.bytes = bytes;
  absl::StatusOr<std::byte*> mapping = MapFile(fd, bytes);
  if (!mapping.ok()) return mapping.status();
  memory.mapping_ = *mapping;
  std::random_device random;
  for (uint64_t& word : memory.address_.token) word = (uint64_t{random()} << 32) | random();
  std::memcpy(memory.mapping_, memory.address_.token, sizeof(memory.address_.token));
  return memory;
}

absl::StatusOr<SharedMemory> SharedMemory::Open(const SharedMemoryAddress& address) {
  const std::string path = Text("/proc/", address.pid, "/fd/", address.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(Text(path, ": ", std::strerror(errno)));
  // The process of that number may be another one here: what it has open must be our file and of
  // its size.
  char link[64] = {};
  const bool ours = readlink(path.c_str(), link, sizeof(link) - 1) > 0 &&
                    std::strncmp(link, "/memfd:trireme-window", 21) == 0 &&
                    lseek(fd, 0, SEEK_END) == static_cast<off_t>(kHeaderBytes + address.bytes);
  absl::StatusOr<std::byte*> mapping = absl::NotFoundError(path + " is not the memory looked for");
  if (ours) mapping = MapFile(fd, address.bytes);
  close(fd);
  if (!mapping.ok()) return mapping.status();
  SharedMemory memory;
  memory.address_ = address;
  memory.address_.fd = -1;
  memory.mapping_ = *mapping;
  if (std::memcmp(memory.mapping_, address.token, sizeof(address.token)) != 0) {
    return absl::NotFoundError(path + " is not the memory looked for");
  }
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this == &other) return *this;
  Release();
  address_ = std::exchange(other.address_, SharedMemoryAddress{});
  mapping_ = std::exchange(other.mapping_, nullptr);
  return *this;
}

SharedMemory::~SharedMemory() { Release(); }

void SharedMemory::CloseFile() {
  if (address_.fd >= 0) close(static_cast<int>(address_.fd));
  address_.fd = -1;
}

std::span<std::byte> SharedMemory::span() const {
  if (mapping_ == nullptr) return {};
  return {mapping_ + kHeaderBytes, address_.bytes};
}

void SharedMemory::Release() {
  if (mapping_ != nullptr) munmap(mapping_, kHeaderBytes + address_.bytes);
  mapping_ = nullptr;
  CloseFile();
}

}  // namespace trireme::comm
