#include "coordinator/control_api/job_checkpoints.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "checkpoint/client/reader.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {

absl::StatusOr<CheckpointRoot> CheckpointRootOf(const v1::Job& job, const SubmissionRules& rules) {
  const v1::CheckpointSpec& spec = job.spec().checkpoint();
  if (!spec.has_directory()) return CheckpointRoot{job.run_folder() + "/checkpoints"};
  CheckpointRoot root{spec.directory()};
  if (rules.real_paths()) {
    // Of a job that is older than the rules it may yet lead through links.
    std::error_code error;
    const auto real = std::filesystem::weakly_canonical(root.path, error);
    if (!error) root.path = real.string();
    root.links = base::Links::kRefuse;
  }
  RETURN_IF_ERROR(CheckAllowed("job.checkpoint.directory", root.path, rules));
  return root;
}

v1::ListCheckpointsResponse CheckpointsIn(const CheckpointRoot& root) {
  std::vector<v1::CheckpointInfo> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root.path, error)) {
    const auto checkpoint = checkpoint::Open(entry.path().string(), root.links);
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
