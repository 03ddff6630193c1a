#include "coordinator/control_api/job_checkpoints.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "checkpoint/client/reader.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

constexpr size_t kMostListed = 1000;

}  // namespace

std::string CheckpointFolderOf(const v1::Job& job) {
  const v1::CheckpointSpec& spec = job.spec().checkpoint();
  return spec.has_directory() ? spec.directory() : job.run_folder() + "/checkpoints";
}

absl::StatusOr<CheckpointRoot> CheckpointRootOf(const v1::Job& job, const SubmissionRules& rules) {
  CheckpointRoot root{CheckpointFolderOf(job)};
  if (!job.spec().checkpoint().has_directory()) return root;
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
  v1::ListCheckpointsResponse response;
  const auto list = [&](const std::string& folder,
                        const absl::StatusOr<checkpoint::Checkpoint>& opened) {
    if (!opened.ok()) {
      response.add_damaged(base::Text(folder, ": ", base::MessageOf(opened.status())));
      return;
    }
    v1::CheckpointInfo& one = *response.add_checkpoints();
    one.set_path(folder);
    one.set_step(opened->info().step);
    for (const checkpoint::FileEntry& file : opened->manifest().files) {
      one.set_bytes(one.bytes() + file.bytes);
    }
    struct stat about {};
    if (stat(folder.c_str(), &about) == 0) {
      one.set_written_unix_ns(about.st_mtim.tv_sec * int64_t{1000000000} + about.st_mtim.tv_nsec);
    }
  };
  checkpoint::VisitCheckpoints(root.path, kMostListed, root.links, list).IgnoreError();
  return response;
}

}  // namespace trireme::coordinator
