// The folder is listed once; then mkdir finds out what others take.
#include "coordinator/daemon/new_run_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <vector>

#include "coordinator/reconciler/job_table.h"
#include "coordinator/run_files/run_owner.h"
#include "runtime/base/durable.h"
#include "runtime/base/folder_names.h"
#include "runtime/base/status_macros.h"
#include "runtime/base/text.h"

namespace trireme::coordinator {
namespace {

using base::Text;

// Looked at one by one before the folder is listed, of what others have taken meanwhile.
constexpr int kTriesPerListing = 100;
constexpr int kMostTries = 1000000;

}  // namespace

absl::Status MakePrivateFolder(const std::string& path, const std::string& option) {
  std::error_code error;
  const bool made = std::filesystem::create_directories(path, error);
  if (error) {
    const absl::Status why = base::ErrnoStatus(error.value(), "cannot make the folder " + path);
    return absl::Status(why.code(), base::MessageOf(why) + "; choose another by " + option);
  }
  if (made) chmod(path.c_str(), 0700);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> NewestJobFolder(const std::string& jobs_folder, uint64_t next) {
  uint64_t newest = 0;
  std::vector<uint64_t> far;
  const absl::Status visited = base::VisitNames(jobs_folder, [&](const std::string& name) {
    const uint64_t number = base::NumberIn(name).value_or(0);
    if (number > next && number - next >= kMostTries) {
      far.push_back(number);
    } else {
      newest = std::max(newest, number);
    }
  });
  if (!visited.ok() && !absl::IsNotFound(visited)) return visited;
  std::sort(far.begin(), far.end(), std::greater<>());
  for (const uint64_t number : far) {
    const absl::StatusOr<RunOwner> owner = ReadRunOwner(Text(jobs_folder, '/', number));
    if (owner.ok() && owner->job == number) return number;
  }
  return newest;
}

absl::Status NewRunFolders::Make(const std::string& folder) const {
  if (mkdir(folder.c_str(), 0777) == 0) return absl::OkStatus();
  if (errno == ENOENT) {
    RETURN_IF_ERROR(MakePrivateFolder(jobs_folder_, "--jobs-dir"));
    if (mkdir(folder.c_str(), 0777) == 0) return absl::OkStatus();
  }
  if (errno == EEXIST) return absl::AlreadyExistsError(folder);
  return base::ErrnoStatus(errno, "cannot make the run folder " + folder);
}

absl::StatusOr<uint64_t> NewRunFolders::Reserve() {
  uint64_t taken = 0;
  int collisions = 0;
  for (int i = 0; i < kMostTries; ++i) {
    const absl::StatusOr<uint64_t> next = store_->NextJobId(taken);
    RETURN_IF_ERROR(OfStore(next.status(), "the job gets no number"));
    const uint64_t id = *next;
    if (!listed_) {
      ASSIGN_OR_RETURN(taken, NewestJobFolder(jobs_folder_, id));
      listed_ = true;
      if (taken >= id) continue;
    }
    const absl::Status made = Make(Text(jobs_folder_, '/', id));
    if (made.ok()) return id;
    if (!absl::IsAlreadyExists(made)) return absl::UnavailableError(base::MessageOf(made));
    if (++collisions % kTriesPerListing != 0) continue;
    ASSIGN_OR_RETURN(taken, NewestJobFolder(jobs_folder_, id));
  }
  return absl::UnavailableError(Text("the numbers of new jobs are all taken in ", jobs_folder_,
                                     ", by folders of others; move "
                                     "those away, or choose another by --jobs-dir"));
}

void NewRunFolders::Release(uint64_t id) const { rmdir(Text(jobs_folder_, '/', id).c_str()); }

}  // namespace trireme::coordinator
