// The folder of this program, where the worker lies beside it.
#pragma once

#include <unistd.h>

#include <climits>
#include <string>

namespace trireme::cli {

inline std::string WorkerPath() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return "trireme-worker";
  const std::string self(path, static_cast<size_t>(length));
  return self.substr(0, self.rfind('/') + 1) + "trireme-worker";
}

}  // namespace trireme::cli
