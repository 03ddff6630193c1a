// What runs have left in memory goes beside the agent's loop.
#include "coordinator/agent/left_snapshots.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "runtime/base/random_hex.h"

namespace trireme::agent {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kLimit(60);

struct LeftRoot {
  LeftRoot() : path("/dev/shm/trireme-test-" + base::RandomHex(16)) { fs::create_directory(path); }
  ~LeftRoot() { fs::remove_all(path); }
  const std::string path;
};

std::string LeftIn(const LeftRoot& root, char key) {
  const std::string folder =
      root.path + "/trireme-" + std::to_string(geteuid()) + "-" + std::string(32, key);
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  std::ofstream(folder + "/rank-00000.snapshot") << "TRIRSNAP";
  return folder;
}

bool GoesInTime(const std::string& folder) {
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (fs::exists(folder) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  return !fs::exists(folder);
}

}  // namespace

TEST_CASE("left snapshots: what nobody holds goes, and whoever holds one keeps it") {
  const LeftRoot root;
  const std::string held = LeftIn(root, 'a'), left = LeftIn(root, 'b');
  const int fd = open((held + "/rank-00000.snapshot").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(flock(fd, LOCK_EX | LOCK_NB) == 0);
  {
    const LeftSnapshots snapshots({.root = root.path, .keep = milliseconds(50)});
    CHECK(GoesInTime(left));
    CHECK(fs::exists(held));
    close(fd);
    CHECK(GoesInTime(held));
  }
  const std::string later = LeftIn(root, 'c');
  const LeftSnapshots never({.root = root.path}),
      late({.root = root.path, .keep = std::chrono::hours(1)});
  std::this_thread::sleep_for(milliseconds(100));
  CHECK(fs::exists(later));
}

}  // namespace trireme::agent
