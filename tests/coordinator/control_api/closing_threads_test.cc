// Whose thread closes the files of streams: close(2) of one on a mount that hangs does not come
// back. This program's own close tells, and goes on to the real one.
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>

#include "absl/synchronization/mutex.h"
#include "tests/coordinator/control_api/served_store.h"

namespace {

struct Closed {
  absl::Mutex mutex;
  std::string folder;             // of the files that count; empty: none
  std::multiset<std::string> by;  // names of threads
};

Closed& OfFiles() {
  static auto& closed = *new Closed;
  return closed;
}

void Note(int fd) {
  char path[4096] = "";
  const auto length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  if (length <= 0) return;
  Closed& closed = OfFiles();
  const absl::MutexLock lock(&closed.mutex);
  const std::string name(path, static_cast<size_t>(length));
  if (closed.folder.empty() || !name.starts_with(closed.folder + "/")) return;
  if (name.ends_with("/run.json")) return;  // read as a whole
  char thread[16] = "";
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  closed.by.insert(thread);
}

}  // namespace

extern "C" int close(int fd) {
  const int error = errno;
  Note(fd);
  errno = error;
  static const auto next = reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, "close"));
  return next(fd);
}

namespace trireme::coordinator {

TEST_CASE("control: files and logs that were read are closed by threads of their disk") {
  ServedStore served;
  const v1::Job job = served.AddJob(1, "ann");
  const std::string log = job.run_folder() + "/attempts/1/logs/mpirun.log";
  std::filesystem::create_directories(std::filesystem::path(log).parent_path());
  std::ofstream(log) << "a line\n";
  std::ofstream(job.run_folder() + "/metrics.jsonl") << std::string(200000, 'x') << "\n";
  served.Serve();
  const auto stub = served.StubOf("ann");
  Closed& closed = OfFiles();
  {
    const absl::MutexLock lock(&closed.mutex);
    closed.folder = job.run_folder();
    closed.by.clear();
  }
  constexpr size_t kReads = 10;
  for (size_t i = 0; i < kReads; ++i) {
    grpc::ClientContext of_file, of_log;
    ServedStore::Prepare(of_file, "ann");
    ServedStore::Prepare(of_log, "ann");
    v1::ReadFileRequest file;
    file.set_job_id(1);
    file.set_path("metrics.jsonl");
    v1::LogsRequest logs;
    logs.set_job_id(1);
    logs.set_rank(-1);
    v1::ReadFileResponse piece;
    v1::LogsResponse line;
    const auto reader = stub->ReadFile(&of_file, file);
    while (reader->Read(&piece)) continue;
    CHECK(reader->Finish().ok());
    const auto follower = stub->Logs(&of_log, logs);
    while (follower->Read(&line)) continue;
    CHECK(follower->Finish().ok());
  }
  const absl::MutexLock lock(&closed.mutex);
  const auto all = [&]() { return closed.by.size() >= 2 * kReads; };
  CHECK(closed.mutex.AwaitWithTimeout(absl::Condition(&all), absl::Seconds(60)));
  for (const std::string& thread : closed.by) CHECK(thread == "disk");
  closed.folder.clear();
}

}  // namespace trireme::coordinator
