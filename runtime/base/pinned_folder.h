// A folder as it was when it was opened: whoever looks at whose it is, and then goes by a name in
// it, is in the folder that was looked at, whatever has taken its place meanwhile.
#pragma once

#include <sys/stat.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/base/real_path.h"

namespace trireme::base {

class PinnedFolder {
 public:
  // Errors: NotFound; else by errno. Links::kRefuse: NotADirectory where the last part of `path` is
  // a link.
  static absl::StatusOr<PinnedFolder> Open(const std::string& path, Links links);
  // No folder: nothing is there by any name.
  PinnedFolder() = default;
  PinnedFolder(PinnedFolder&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), about_(other.about_) {}
  PinnedFolder& operator=(PinnedFolder&& other) noexcept {
    std::swap(fd_, other.fd_);
    about_ = other.about_;
    return *this;
  }
  ~PinnedFolder();

  // As it was.
  const struct stat& about() const { return about_; }
  // For this process, while this lives.
  std::string PathOf(const std::string& name) const;

 private:
  int fd_ = -1;
  struct stat about_ {};
};

// One that is this process's user's, no link, and that nobody else may write to: what is in it was
// put there by him or by root. PermissionDenied: it is not so; NotFound: there is none.
absl::StatusOr<PinnedFolder> OpenOwnFolder(const std::string& path);

}  // namespace trireme::base
