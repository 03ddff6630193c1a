// What is left in memory goes when nobody has come back to it for long, and nothing else does.
#include "checkpoint/client/snapshot_sweep.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/snapshot_file.h"
#include "checkpoint/client/snapshot_key.h"
#include "runtime/base/random_hex.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;

struct SweptRoot {
  SweptRoot() : path("/dev/shm/trireme-test-" + base::RandomHex(16)) { fs::create_directory(path); }
  ~SweptRoot() { fs::remove_all(path); }
  const std::string path;
};

std::unique_ptr<SnapshotFile> FileOf(const SweptRoot& root, uint32_t rank, std::byte run) {
  SnapshotFileOptions options{.root = root.path,
                              .shape = {.rank = rank, .ranks = 2, .slot_bytes = 4096},
                              .manifest = "what lies where",
                              .lock_wait = std::chrono::milliseconds(0)};
  options.shape.key.fill(run);
  auto file = SnapshotFile::Open(options);
  REQUIRE(file.ok());
  return *std::move(file);
}

}  // namespace

TEST_CASE("snapshot sweep: a folder goes when none of its files was held for so long") {
  const SweptRoot root;
  SnapshotSweep sweep(root.path, hours(24));
  const SnapshotSweep::Clock::time_point start{};
  auto first = FileOf(root, 0, std::byte{1}), second = FileOf(root, 1, std::byte{1});
  const auto other = FileOf(root, 0, std::byte{2});
  const std::string path = first->path(), folder = fs::path(path).parent_path();
  CHECK(sweep.Turn(start).empty());
  first.reset();
  CHECK(sweep.Turn(start + hours(30)).empty());  // one is held
  second.reset();
  CHECK(sweep.Turn(start + hours(31)).empty());
  CHECK(sweep.Turn(start + hours(54)).empty());
  // The next attempt comes, and dies as well.
  first = FileOf(root, 0, std::byte{1});
  CHECK(first->found());
  CHECK(sweep.Turn(start + hours(55)).empty());
  first.reset();
  CHECK(sweep.Turn(start + hours(56)).empty());
  CHECK(sweep.Turn(start + hours(79)).empty());
  CHECK(fs::exists(path));
  const uint64_t bytes = fs::file_size(path);
  const auto removed = sweep.Turn(start + hours(80));
  REQUIRE(removed.size() == 1);
  CHECK(removed[0].folder == folder);
  CHECK(removed[0].bytes == 2 * bytes);
  CHECK_FALSE(fs::exists(folder));
  CHECK(fs::exists(other->path()));
}

TEST_CASE("snapshot sweep: what is not a folder of snapshots of this user is let be") {
  const SweptRoot root;
  SnapshotSweep sweep(root.path, hours(1)), never(root.path, hours(0));
  const SnapshotSweep::Clock::time_point start{};
  const std::string own = absl::StrCat(root.path, "/trireme-", geteuid(), "-");
  for (const std::string& name :
       {own + "7-573b6fed63281dcd", own + std::string(32, 'g'), own + std::string(31, 'a'),
        root.path + "/trireme-" + std::to_string(geteuid() + 1) + "-" + std::string(32, 'a')}) {
    fs::create_directory(name);
    std::ofstream(name + "/file") << "of somebody else";
  }
  fs::create_directory(root.path + "/elsewhere");
  std::ofstream(root.path + "/elsewhere/file") << "of somebody else";
  fs::create_directory_symlink(root.path + "/elsewhere", own + std::string(32, 'b'));
  fs::create_directory(own + std::string(32, 'c'));
  fs::permissions(own + std::string(32, 'c'), fs::perms::all);
  std::ofstream(own + std::string(32, 'c') + "/file") << "of anybody";
  FileOf(root, 0, std::byte{1}).reset();
  CHECK(never.Turn(start).empty());
  CHECK(never.Turn(start + hours(1000)).empty());
  CHECK(sweep.Turn(start).empty());
  CHECK(sweep.Turn(start + hours(1)).size() == 1);
  CHECK(sweep.Turn(start + hours(9)).empty());
  size_t left = 0;
  for (const auto& each : fs::recursive_directory_iterator(root.path))
    left += each.is_regular_file();
  CHECK(left == 6);
}

}  // namespace trireme::checkpoint
