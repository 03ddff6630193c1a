// What the job store costs on the disk that is named: flushed commits, beside bare flushes of the
// same disk, and reading it all. Usage: bench_job_store FOLDER
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "coordinator/job_store/job_store.h"
#include "runtime/base/check.h"
#include "runtime/base/status_macros.h"

namespace trireme::coordinator {
namespace {

constexpr uint64_t kJobs = 10'000;
constexpr uint64_t kEventsPerJob = 20;
constexpr int kCommits = 500;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

v1::Job BenchJob(uint64_t id) {
  v1::Job job;
  job.set_id(id);
  job.set_name(fmt::format("job-{}", id));
  job.set_owner("ann");
  job.mutable_spec()->set_name(job.name());
  // A resolved spec with its model's configuration has about this size.
  job.mutable_spec()->mutable_model()->set_config_path(std::string(600, 'c'));
  job.mutable_status()->set_state(v1::JOB_RUNNING);
  job.set_run_folder(fmt::format("/runs/job-{}", id));
  return job;
}

v1::Event BenchEvent(uint64_t job_id) {
  v1::Event event;
  event.set_time_unix_ns(1'700'000'000'000'000'000);
  event.set_job_id(job_id);
  event.mutable_state_changed()->set_from(v1::JOB_LAUNCHING);
  event.mutable_state_changed()->set_to(v1::JOB_RUNNING);
  event.mutable_state_changed()->set_reason("every rank is at work");
  return event;
}

// Pages of 4 KiB written anew in a file that has its blocks, each flushed: what no log can beat.
double FlushesPerSecond(const std::string& path) {
  const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  TRIREME_CHECK(file >= 0);
  const std::string page(4096, 'x');
  for (int i = 0; i < kCommits; ++i) TRIREME_CHECK(write(file, page.data(), page.size()) == 4096);
  TRIREME_CHECK(fsync(file) == 0 && lseek(file, 0, SEEK_SET) == 0);
  const double begin = Seconds();
  for (int i = 0; i < kCommits; ++i) {
    TRIREME_CHECK(write(file, page.data(), page.size()) == 4096);
    TRIREME_CHECK(fdatasync(file) == 0);
  }
  close(file);
  return kCommits / (Seconds() - begin);
}

double CommitsPerSecond(JobStore& store) {
  const double begin = Seconds();
  for (uint64_t i = 0; i < kCommits; ++i) {
    Change change;
    change.jobs = {BenchJob(i + 1)};
    change.events = {BenchEvent(i + 1), BenchEvent(i + 1)};
    TRIREME_CHECK(store.Commit(change).ok());
  }
  return kCommits / (Seconds() - begin);
}

absl::Status Run(const std::string& folder) {
  const std::string path = folder + "/bench_jobs.db", bare = folder + "/bench_flushes";
  for (const std::string& name : {path, path + "-wal", bare}) std::filesystem::remove(name);
  ASSIGN_OR_RETURN(auto store, JobStore::Open(path));
  for (uint64_t id = 1; id <= kJobs;) {
    Change change;
    for (uint64_t end = id + 1000; id < end; ++id) {
      change.jobs.push_back(BenchJob(id));
      for (uint64_t i = 0; i < kEventsPerJob; ++i) change.events.push_back(BenchEvent(id));
    }
    RETURN_IF_ERROR(store->Commit(change));
  }
  for (int round = 0; round < 2; ++round) {
    const double commits = CommitsPerSecond(*store);
    const double flushes = FlushesPerSecond(bare);
    fmt::print("{:.0f} commits/s, {:.0f} bare flushes/s\n", commits, flushes);
  }
  double begin = Seconds();
  ASSIGN_OR_RETURN(const auto jobs, store->Jobs());
  fmt::print("Jobs() of {}: {:.1f} ms\n", jobs.size(), 1e3 * (Seconds() - begin));
  begin = Seconds();
  ASSIGN_OR_RETURN(const auto events, store->Events({0, kJobs / 2, 1000}));
  fmt::print("Events() of one job: {}: {:.3f} ms\n", events.size(), 1e3 * (Seconds() - begin));
  ASSIGN_OR_RETURN(const uint64_t sequence, store->LastSequence());
  store = nullptr;
  begin = Seconds();
  ASSIGN_OR_RETURN(store, JobStore::Open(path));
  fmt::print("Open with {} events: {:.0f} ms, file of {:.1f} MB\n", sequence,
             1e3 * (Seconds() - begin),
             1e-6 * static_cast<double>(std::filesystem::file_size(path)));
  store = nullptr;
  for (const std::string& name : {path, bare}) std::filesystem::remove(name);
  return absl::OkStatus();
}

}  // namespace
}  // namespace trireme::coordinator

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: bench_job_store FOLDER\n");
    return 2;
  }
  const absl::Status status = trireme::coordinator::Run(argv[1]);
  if (!status.ok()) fmt::print(stderr, "{}\n", trireme::base::MessageOf(status));
  return status.ok() ? 0 : 1;
}
