#include "runtime/base/own_program.h"

#include <fcntl.h>
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

std::string BootId() {
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  char text[64];
  const ssize_t got = read(fd, text, sizeof text);
  close(fd);
  std::string id(text, got > 0 ? static_cast<size_t>(got) : 0);
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

}  // namespace trireme::base
