// A folder that goes away; in memory where there is room for it, since what is looked at after a
// loss of power is flushed thousands of times.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "runtime/base/check.h"

namespace trireme::power_loss {

class EmptyFolder {
 public:
  EmptyFolder() {
    for (const char* above : {"/dev/shm", "/tmp"}) {
      path_ = std::string(above) + "/trireme_power_XXXXXX";
      if (mkdtemp(path_.data()) != nullptr) return;
    }
    TRIREME_CHECK(false);
  }
  EmptyFolder(const EmptyFolder&) = delete;
  ~EmptyFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace trireme::power_loss
