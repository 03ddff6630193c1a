// A shared mapping of the first kFileBytes bytes of a file, for its writer; released at the end of
// its life.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "runtime/recorder/recording_format.h"

namespace trireme::recorder {

class MappedPage {
 public:
  // `fd` may be closed afterwards. words() is null if the map was refused (errno).
  explicit MappedPage(int fd) {
    void* at = mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at != MAP_FAILED) words_ = static_cast<uint64_t*>(at);
  }
  MappedPage(MappedPage&& other) noexcept : words_(std::exchange(other.words_, nullptr)) {}
  ~MappedPage() {
    if (words_ != nullptr) munmap(words_, kFileBytes);
  }
  uint64_t* words() const { return words_; }
  char* text() const { return reinterpret_cast<char*>(words_) + kFailureOffset; }

 private:
  uint64_t* words_ = nullptr;
};

}  // namespace trireme::recorder
