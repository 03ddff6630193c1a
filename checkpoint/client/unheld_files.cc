#include "checkpoint/client/unheld_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "runtime/base/folder_names.h"

namespace trireme::checkpoint {

bool IsNamed(int fd, const std::string& path) {
  struct stat held {
  }, named{};
  return fstat(fd, &held) == 0 && lstat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino &&
         held.st_dev == named.st_dev;
}

bool VisitUnheld(const base::PinnedFolder& folder,
                 const std::function<void(const std::string& path, const struct stat&)>& work) {
  bool all = true;
  base::VisitNames(folder.PathOf("."), [&](const std::string& name) {
    const std::string path = folder.PathOf(name);
    const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    struct stat about {};
    const bool is_file = fstat(fd, &about) == 0 && S_ISREG(about.st_mode);
    const bool unheld = is_file && flock(fd, LOCK_EX | LOCK_NB) == 0 && IsNamed(fd, path);
    if (unheld) work(path, about);
    all = all && (unheld || !is_file);
    close(fd);
  }).IgnoreError();
  return all;
}

}  // namespace trireme::checkpoint
