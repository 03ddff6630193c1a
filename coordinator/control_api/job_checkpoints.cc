#include "coordinator/control_api/job_checkpoints.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "checkpoint/client/reader.h"

namespace trireme::coordinator {

std::string CheckpointRoot(const v1::Job& job) {
  const v1::CheckpointSpec& spec = job.spec().checkpoint();
  return spec.has_directory() ? spec.directory() : job.run_folder() + "/checkpoints";
}

v1::ListCheckpointsResponse CheckpointsIn(const std::string& root) {
  std::vector<v1::CheckpointInfo> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    const auto checkpoint = checkpoint::Open(entry.path().string());
    if (!checkpoint.ok()) continue;
    v1::CheckpointInfo& one = found.emplace_back();
    one.set_path(entry.path().string());
    one.set_step(checkpoint->info().step);
    std::error_code ignored;
    for (const auto& file : std::filesystem::directory_iterator(entry.path(), ignored)) {
      one.set_bytes(one.bytes() + file.file_size(ignored));
    }
    struct stat about {};
    if (stat(entry.path().c_str(), &about) == 0) {
      one.set_written_unix_ns(about.st_mtim.tv_sec * int64_t{1000000000} + about.st_mtim.tv_nsec);
    }
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.step() > b.step(); });
  v1::ListCheckpointsResponse response;
  response.mutable_checkpoints()->Assign(found.begin(), found.end());
  return response;
}

}  // namespace trireme::coordinator
