// What the ranks have traced becomes one file, however many they are.
#include "worker/trace_files.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/sanitizer.h"
#include "tests/temporary_folder.h"

namespace trireme::worker {
namespace {

// Instructions one after the other, rank 1's first, and a communication beside the last.
void WriteSpans(const std::string& run_folder, int rank, int instructions) {
  std::filesystem::create_directories(run_folder + "/trace");
  std::ofstream file(run_folder + "/trace/rank-" + std::to_string(rank) + ".spans");
  const int64_t start_ns = rank == 1 ? 5000 : 7000;
  for (int i = 0; i < instructions; ++i) {
    file << "i 3 1 0 " << i % 8 << ' ' << start_ns + 1000 * i << ' ' << start_ns + 1000 * i + 900
         << '\n';
  }
  file << "c 3 9 0 0 " << start_ns + 100 << ' ' << start_ns + 2500 << " 0 -1 2\n";
}

size_t DataBytes() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages >> pages >> pages >> pages >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("trace: the ranks' spans come together, with times from the first of all") {
  const tests::TemporaryFolder folder;
  const std::string run = folder / "run";
  for (const int rank : {0, 1, 3}) WriteSpans(run, rank, 4);
  WriteSpans(run, 2, 0);
  REQUIRE(MergeTraces(run, 4, "trace.json").ok());
  std::ifstream file(run + "/trace.json");
  const auto json = nlohmann::json::parse(file);
  std::map<std::string, int> names;
  double first = 1e9;
  for (const auto& event : json["traceEvents"]) {
    if (event["name"] == "thread_name") ++names[event["args"]["name"]];
    if (event["ph"] != "X") continue;
    ++names["spans"];
    first = std::min(first, event["ts"].get<double>());
  }
  CHECK(first == 0);
  CHECK(names == std::map<std::string, int>{{"rank 0", 1},
                                            {"rank 1", 1},
                                            {"rank 3", 1},
                                            {"rank 0 in flight", 1},
                                            {"rank 1 in flight", 1},
                                            {"rank 2 in flight", 1},
                                            {"rank 3 in flight", 1},
                                            {"spans", 3 * 4 + 4}});
  CHECK_FALSE(std::filesystem::exists(run + "/trace"));
}

// A rank's is 1.2 MB of spans and 1.5 MB of text.
TEST_CASE("trace: no more is at hand than one rank's") {
  constexpr int kRanks = tests::Tries(64);
  const tests::TemporaryFolder folder;
  const std::string run = folder / "run";
  for (int rank = 0; rank < kRanks; ++rank) WriteSpans(run, rank, 10000);
  const int pid = fork();
  if (pid == 0) {
    const rlimit limit{DataBytes() + (24 << 20), DataBytes() + (24 << 20)};
    if (!tests::kSanitizer && setrlimit(RLIMIT_DATA, &limit) != 0) _exit(2);
    _exit(MergeTraces(run, kRanks, "trace.json").ok() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
  CHECK(std::filesystem::file_size(run + "/trace.json") > kRanks * 1000000);
}

}  // namespace trireme::worker
