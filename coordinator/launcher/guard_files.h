// What a guard leaves in its folder, by a descriptor of that folder. Written between
// fork and exec: only system calls and glibc's fork-safe malloc.
#pragma once

namespace trireme::launcher {

// Of the command's control group, a copy, where the kernel has killed in it for want of memory.
inline constexpr char kMemoryEvents[] = "memory.events";

// "guard.json": {"pid", "start_ticks", "boot_id"} of this process, whole or absent, and never
// replaced: of all processes that claim a folder one wins. Returns 0, EEXIST if another one has
// claimed or sealed it, else the errno of what went wrong.
int ClaimFolder(int folder_fd);

// "exit": {"exit_code"}, whole or absent. The space for it is taken beforehand, so that a full disk
// does not swallow the verdict.
class ExitFile {
 public:
  explicit ExitFile(int folder_fd);
  void Write(int exit_code) const;

 private:
  int folder_fd_;
  int fd_;
};

}  // namespace trireme::launcher
