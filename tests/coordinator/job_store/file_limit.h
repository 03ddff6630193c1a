// A full disk: no file grows beyond a limit. SIGXFSZ is to be ignored.
#pragma once

#include <sys/resource.h>

#include <cstddef>

#include "runtime/base/check.h"

namespace trireme::coordinator {

// Files cannot grow beyond `bytes` while this lives.
class FileLimit {
 public:
  explicit FileLimit(size_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    TRIREME_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  FileLimit(const FileLimit&) = delete;
  ~FileLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace trireme::coordinator
