#include "runtime/base/own_program.h"

#include <unistd.h>

#include <climits>
#include <filesystem>

namespace trireme::base {

std::string ProgramBesideUs(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? name : (self.parent_path() / name).string();
}

std::string HostName() {
  char name[HOST_NAME_MAX + 1] = "localhost";
  gethostname(name, sizeof name);
  name[HOST_NAME_MAX] = '\0';
  return name;
}

}  // namespace trireme::base
