#include "coordinator/job_store/job_facts.h"

#include <filesystem>

namespace trireme::coordinator {

bool IsLive(const v1::Job& job) {
  if (job.status().attempt_live()) return true;
  switch (job.status().state()) {
    case v1::JOB_COMPLETED:
    case v1::JOB_FAILED:
    case v1::JOB_CANCELLED:
      return false;
    default:  // also of a newer program
      return true;
  }
}

std::string RunParentOf(const v1::Job& job) {
  return std::filesystem::path(job.run_folder()).parent_path().string();
}

}  // namespace trireme::coordinator
