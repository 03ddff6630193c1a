// Memory shared by the processes of one machine without a name that could be left behind: one
// process makes an anonymous file, the others open it through /proc. A token in it proves that they
// found the right one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace trireme::comm {

// What a process tells the others of its memory. Sent as bytes.
struct SharedMemoryAddress {
  int64_t pid = 0;
  int64_t fd = -1;
  uint64_t bytes = 0;
  uint64_t token[2] = {0, 0};
};

// Owns a mapping, and in the making process the file until CloseFile.
class SharedMemory {
 public:
  // Zero-filled, aligned to 2 MiB, in huge pages where the system gives them. ResourceExhausted
  // when the system refuses.
  static absl::StatusOr<SharedMemory> Make(size_t bytes);
  // NotFound unless `address` leads to the same memory: another machine, or another container on
  // this one. What is never touched takes none of this process's page table: of many ranks a few
  // are summed with.
  static absl::StatusOr<SharedMemory> Open(const SharedMemoryAddress& address);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  const SharedMemoryAddress& address() const { return address_; }
  // The page table of all of it, where the kernel can: no fault when it is first used.
  void Populate();
  // Once all others have opened it. Its memory lives on with the mappings.
  void CloseFile();
  // Without the token.
  std::span<std::byte> span() const;

 private:
  absl::Status Map(int fd, size_t bytes);
  void Release();

  SharedMemoryAddress address_;
  std::byte* reserved_ = nullptr;  // with more than the memory on both sides
  size_t reserved_bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace trireme::comm
