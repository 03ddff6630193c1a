// Files that are in use while somebody holds their lock (flock), and by nobody after a death.
#pragma once

#include <sys/stat.h>

#include <functional>
#include <string>

#include "runtime/base/pinned_folder.h"

namespace trireme::checkpoint {

// Whether `path` still names the file of `fd`.
bool IsNamed(int fd, const std::string& path);

// Calls `work` with the path of each plain file in `folder` that nobody holds; it is held
// meanwhile. False: somebody holds one, or was faster with it.
bool VisitUnheld(const base::PinnedFolder& folder,
                 const std::function<void(const std::string& path, const struct stat&)>& work);

}  // namespace trireme::checkpoint
