#include "coordinator/local_run/run_links.h"

#include <filesystem>
#include <system_error>

#include "runtime/base/text.h"

namespace trireme::coordinator {

namespace fs = std::filesystem;

void LinkAttempt(const std::string& run_folder, uint32_t attempt) {
  for (const char* name : {"logs", "recorder"}) {
    const std::string path = base::Text(run_folder, "/", name);
    std::error_code ignored;
    if (fs::is_directory(fs::symlink_status(path, ignored))) {
      fs::rename(path, path + ".before", ignored);
    }
    fs::remove(path + ".partial", ignored);
    // Relative: a run folder may be moved.
    fs::create_symlink(base::Text("attempts/", attempt, "/", name), path + ".partial", ignored);
    fs::rename(path + ".partial", path, ignored);
  }
}

}  // namespace trireme::coordinator
