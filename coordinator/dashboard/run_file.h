// A file that ranks write while it is read: by pieces, each bounded, whatever becomes of the file
// meanwhile.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace trireme::dashboard {

class RunFile {
 public:
  // Takes the descriptor, of a plain file.
  explicit RunFile(int fd);
  RunFile(RunFile&& other) noexcept;
  RunFile& operator=(RunFile&&) = delete;
  ~RunFile();

  int64_t size() const { return size_; }  // when it was opened
  // Another one for another file under the same name.
  const std::string& identity() const { return identity_; }
  // At most `most_bytes` from `offset` on; fewer at the end, none behind it or where the disk
  // fails.
  std::string Read(int64_t offset, size_t most_bytes) const;

 private:
  int fd_;
  int64_t size_ = 0;
  std::string identity_;
};

}  // namespace trireme::dashboard
