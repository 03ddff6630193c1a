// Numbers of new jobs, each with a run folder in the jobs folder that nobody else has. That folder
// is on a disk that may hang, so it is asked where a job waits for it, not where the daemon starts.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/job_store/job_store.h"

namespace trireme::coordinator {

// With mode 0700, where it is not there; errors name `option`, by which another may be chosen.
// Blocks on the disk.
absl::Status MakePrivateFolder(const std::string& path, const std::string& option);

// The highest number in the jobs folder that a job has, of a store whose next one is `next`; 0:
// none. A folder far from there counts if its run.json says that number: others are somebody's
// archive, by date or as he likes, and would spoil the numbers for good. Unavailable: the disk.
// Blocks on it.
absl::StatusOr<uint64_t> NewestJobFolder(const std::string& jobs_folder, uint64_t next);

// Threads: any; calls that hang have it too.
class NewRunFolders {
 public:
  NewRunFolders(std::shared_ptr<JobStore> store, std::string jobs_folder)
      : store_(std::move(store)), jobs_folder_(std::move(jobs_folder)) {}

  // A number of the store's, above those that jobs have here, whose folder did not exist and now
  // does, so that no other daemon takes it: those in between are passed over. Makes the jobs folder
  // where there is none. Unavailable: the disk. Blocks on it.
  absl::StatusOr<uint64_t> Reserve();
  // Of a job that has not come to be.
  void Release(uint64_t id) const;

 private:
  absl::Status Make(const std::string& folder) const;

  const std::shared_ptr<JobStore> store_;
  const std::string jobs_folder_;
  std::atomic<bool> listed_{false};  // the store gives numbers above those that were there
};

}  // namespace trireme::coordinator
