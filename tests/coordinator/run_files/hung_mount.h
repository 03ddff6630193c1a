// A file system that hangs, as one of a server that is gone: a mount of FUSE whose questions nobody
// answers. Where this process may not mount, there is none.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <string>

namespace trireme::coordinator {

// Gives this process a table of mounts of its own, which ends with it; before it makes threads.
// False: it may not.
inline bool MayHang() {
  return access("/dev/fuse", R_OK | W_OK) == 0 && unshare(CLONE_NEWNS) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

class HungMount {
 public:
  // Whoever asks for anything in `folder` from now on hangs, until the end of this, and then fails.
  explicit HungMount(const std::string& folder)
      : folder_(folder), fd_(open("/dev/fuse", O_RDWR | O_CLOEXEC)) {
    const std::string options =
        "fd=" + std::to_string(fd_) + ",rootmode=40000,user_id=0,group_id=0";
    hangs_ =
        mount("server:/gone", folder.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) == 0;
  }
  ~HungMount() {
    close(fd_);
    if (hangs_) umount2(folder_.c_str(), MNT_DETACH);
  }
  HungMount(const HungMount&) = delete;
  HungMount& operator=(const HungMount&) = delete;
  bool hangs() const { return hangs_; }

 private:
  const std::string folder_;
  const int fd_;
  bool hangs_ = false;
};

}  // namespace trireme::coordinator
