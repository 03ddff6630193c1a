// Which logs a job has; also where its run folder knows of more attempts than the store.
#include "coordinator/run_files/job_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/coordinator/run_files/scratch.h"

namespace trireme::coordinator {
namespace {

v1::Job JobWithAttempts(const std::string& run_folder, uint32_t attempt) {
  v1::Job job;
  job.set_run_folder(run_folder);
  job.mutable_resources()->set_ranks(2);
  job.mutable_status()->set_attempt(attempt);
  return job;
}

v1::LogsRequest AskLog(uint32_t attempt, int rank, bool follow) {
  v1::LogsRequest request;
  request.set_attempt(attempt);
  request.set_rank(rank);
  request.set_follow(follow);
  return request;
}

}  // namespace

TEST_CASE("job log: of a later attempt than the store's the run folder is asked, if one follows") {
  const v1::Job job = JobWithAttempts("/nowhere", 2);
  CHECK(CheckLog(job, AskLog(2, 1, false)).ok());
  CHECK(CheckLog(job, AskLog(4, 1, true)).ok());
  const absl::Status later = CheckLog(job, AskLog(4, 1, false));
  CHECK(absl::IsInvalidArgument(later));
  CHECK(later.message() == "attempt: 4 is out of range, expected 1 to 2");
  CHECK(absl::IsInvalidArgument(CheckLog(job, AskLog(4, 2, true))));
}

TEST_CASE("job log: an attempt that has a folder was begun, whatever the store says") {
  const Scratch scratch;
  const std::string attempts = scratch.path() + "/attempts";
  std::filesystem::create_directories(attempts + "/4");
  std::ofstream(attempts + "/5") << "no folder";
  const v1::Job job = JobWithAttempts(scratch.path(), 2);
  CHECK(CheckLaterAttempt(job, 4).ok());
  for (const uint32_t never : {3u, 5u, 99u}) {
    const absl::Status refused = CheckLaterAttempt(job, never);
    CHECK(absl::IsInvalidArgument(refused));
    CHECK(refused.message() ==
          "attempt: " + std::to_string(never) + " is out of range, expected 1 to 2");
  }
  // One of before its first.
  const v1::Job waits = JobWithAttempts(scratch.path() + "/none", 0);
  CHECK(CheckLaterAttempt(waits, 1).message() == "attempt: 1 is out of range, expected 0 to 0");
}

TEST_CASE("job log: a folder that cannot be looked at is told of by its own error") {
  const Scratch scratch;
  std::filesystem::create_symlink("attempts", scratch.path() + "/attempts");
  const absl::Status looped = CheckLaterAttempt(JobWithAttempts(scratch.path(), 2), 4);
  CHECK_FALSE(looped.ok());
  CHECK_FALSE(absl::IsInvalidArgument(looped));
  CHECK(looped.message().find(scratch.path() + "/attempts/4") != absl::string_view::npos);
}

}  // namespace trireme::coordinator
