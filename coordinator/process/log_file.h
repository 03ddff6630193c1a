// The file that a program's output goes to, of a bounded size: FILE, before it FILE.1, and so on.
// The program itself moves them, so that no line is lost or cut, whatever wrote it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace trireme::coordinator {

struct LogFileOptions {
  std::string path;
  int64_t most_bytes = 64 << 20;  // of one file; what is written between two turns may exceed it
  int most_files = 3;             // with FILE itself, at least 2
  std::vector<int> fds = {1, 2};  // that lead there
};

// Of one thread; of one program at a time that calls Turn.
class LogFile {
 public:
  // From now on the descriptors append to the file, which is made with mode 0600.
  static absl::StatusOr<LogFile> Open(const LogFileOptions& options);
  // Now and then: a file that is full becomes FILE.1, and a new one is begun. Where the disk
  // refuses, all goes on in the old one until another turn.
  absl::Status Turn();

 private:
  explicit LogFile(const LogFileOptions& options) : options_(options) {}
  absl::Status Begin(const std::string& path) const;

  LogFileOptions options_;
};

}  // namespace trireme::coordinator
