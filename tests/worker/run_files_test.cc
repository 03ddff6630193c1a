// metrics.jsonl and its event files when a run goes on: what of an earlier attempt cannot be read
// is not replaced by what could be.
#include "worker/run_files.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/whole_file.h"
#include "runtime/report/event_file.h"
#include "tests/temporary_folder.h"

namespace {
bool refuse_flags = false;  // of renames, as NFS does
}  // namespace

extern "C" int renameat2(int from_folder, const char* from, int to_folder, const char* to,
                         unsigned int flags) noexcept {
  if (refuse_flags && flags != 0) {
    errno = EINVAL;
    return -1;
  }
  return static_cast<int>(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
}

namespace trireme::worker {
namespace {

namespace fs = std::filesystem;

// Opens, and gives an error at the first byte, as a bad sector does.
constexpr const char* kUnreadable = "/proc/self/mem";

TEST_CASE("metrics: lines of steps that will come again are dropped, all others stay") {
  const tests::TemporaryFolder run;
  std::ofstream(run / "metrics.jsonl") << "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n";
  REQUIRE(MetricsLog::Open(run.path(), 2).ok());
  CHECK(base::ReadWholeFile(run / "metrics.jsonl").value() == "{\"step\":1}\n{\"step\":2}\n");
}

TEST_CASE("metrics: what a crash or a power cut has left of a line makes no other unreadable") {
  const tests::TemporaryFolder run;
  const std::string whole = "{\"step\":1}\n";
  for (const std::string& broken :
       {std::string("{\"step\":2,\"lo"), std::string("{\"step\":12"), std::string(9, '\0'),
        std::string(9, '\0') + "\n", std::string("{\"step\":2}")}) {
    std::ofstream(run / "metrics.jsonl") << whole << broken;
    REQUIRE(MetricsLog::Open(run.path(), 200).ok());
    CHECK(base::ReadWholeFile(run / "metrics.jsonl").value() == whole);
  }
}

TEST_CASE("metrics: what cannot be read is kept under another name") {
  const tests::TemporaryFolder run;
  for (const char* aside :
       {"metrics.jsonl.unread", "metrics.jsonl.unread-2", "metrics.jsonl.unread-3"}) {
    refuse_flags = std::string(aside).ends_with("3");
    fs::remove(run / "metrics.jsonl");
    fs::create_symlink(kUnreadable, run / "metrics.jsonl");
    CHECK(MetricsLog::Open(run.path(), 2).status().ToString() == "OK");
    CHECK(fs::is_symlink(run / aside));
    CHECK(fs::is_regular_file(run / "metrics.jsonl"));
  }
  refuse_flags = false;
}

TEST_CASE("metrics: what a replaced attempt writes late is read by nobody, or void") {
  const tests::TemporaryFolder run;
  const auto event_files = [&] {
    std::vector<std::string> files;
    for (const auto& each : fs::directory_iterator(run / "tensorboard")) {
      files.push_back(each.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  };
  auto late = MetricsLog::Open(run.path(), 0);
  REQUIRE(late.ok());
  late->Validation(1, 1.5);
  const size_t head_bytes = report::EventFileHead(1).size();
  for (const uint64_t keep_through : {1, 0}) {
    auto newer = MetricsLog::Open(run.path(), keep_through);
    REQUIRE(newer.ok());
    // It says which steps begin anew.
    CHECK(fs::file_size(event_files().back()) ==
          head_bytes + report::SessionStartEvent(1, keep_through + 1).size());
    newer->Validation(3, 3.5);
    const std::string lines = base::ReadWholeFile(run / "metrics.jsonl").value();
    late->Validation(2, 2.5);
    CHECK(base::ReadWholeFile(run / "metrics.jsonl").value() == lines);
    CHECK(lines.find("3.5") != std::string::npos);
  }
  CHECK(event_files().size() == 3);
}

TEST_CASE("metrics: an event file that cannot be read is left as it is") {
  const tests::TemporaryFolder run;
  fs::create_directories(run / "tensorboard");
  const std::string file = run / "tensorboard/events.out.tfevents.1.host.1";
  fs::create_symlink(kUnreadable, file);
  CHECK(MetricsLog::Open(run.path(), 2).ok());
  CHECK(fs::is_symlink(file));
}

}  // namespace
}  // namespace trireme::worker
