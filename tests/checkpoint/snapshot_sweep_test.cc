// What is left in memory goes when nobody has come back to it for long, and nothing else does.
#include "checkpoint/client/snapshot_sweep.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/client/snapshot_file.h"
#include "checkpoint/client/snapshot_key.h"
#include "checkpoint/client/unheld_files.h"
#include "runtime/base/random_hex.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using std::chrono::hours;

constexpr uint64_t kHugePage = uint64_t{2} << 20;

struct SweptRoot {
  SweptRoot() : path("/dev/shm/trireme-test-" + base::RandomHex(16)) { fs::create_directory(path); }
  ~SweptRoot() { fs::remove_all(path); }
  const std::string path;
};

std::unique_ptr<SnapshotFile> FileOf(const SweptRoot& root, uint32_t rank, std::byte run,
                                     uint64_t slot_bytes = 4096) {
  SnapshotFileOptions options{.root = root.path,
                              .shape = {.rank = rank, .ranks = 2, .slot_bytes = slot_bytes},
                              .manifest = "what lies where",
                              .lock_wait = std::chrono::milliseconds(0)};
  options.shape.key.fill(run);
  auto file = SnapshotFile::Open(options);
  REQUIRE(file.ok());
  return *std::move(file);
}

uint64_t MemoryOf(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0 ? static_cast<uint64_t>(about.st_blocks) * 512 : 0;
}

bool IsLocked(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  const bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
  if (fd >= 0) close(fd);
  return locked;
}

}  // namespace

TEST_CASE("snapshot sweep: a folder goes when none of its files was held for so long") {
  const SweptRoot root;
  SnapshotSweep sweep(root.path, hours(24));
  const SnapshotSweep::Clock::time_point start{};
  auto first = FileOf(root, 0, std::byte{1}), second = FileOf(root, 1, std::byte{1});
  const auto other = FileOf(root, 0, std::byte{2});
  const std::string path = first->path(), folder = fs::path(path).parent_path();
  CHECK(sweep.Turn(start).removed.empty());
  first.reset();
  CHECK(sweep.Turn(start + hours(30)).removed.empty());  // one is held
  second.reset();
  CHECK(sweep.Turn(start + hours(31)).removed.empty());
  CHECK(sweep.Turn(start + hours(54)).removed.empty());
  // The next attempt comes, and dies as well.
  first = FileOf(root, 0, std::byte{1});
  CHECK(first->found());
  CHECK(sweep.Turn(start + hours(55)).removed.empty());
  first.reset();
  CHECK(sweep.Turn(start + hours(56)).removed.empty());
  CHECK(sweep.Turn(start + hours(79)).removed.empty());
  CHECK(fs::exists(path));
  const uint64_t bytes = fs::file_size(path);
  const auto removed = sweep.Turn(start + hours(80)).removed;
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
  CHECK(never.Turn(start).removed.empty());
  CHECK(never.Turn(start + hours(1000)).removed.empty());
  CHECK(sweep.Turn(start).removed.empty());
  CHECK(sweep.Turn(start + hours(1)).removed.size() == 1);
  CHECK(sweep.Turn(start + hours(9)).removed.empty());
  size_t left = 0;
  for (const auto& each : fs::recursive_directory_iterator(root.path))
    left += each.is_regular_file();
  CHECK(left == 6);
}

TEST_CASE("snapshot sweep: memory goes by parts, while no rank can take it up") {
  const SweptRoot root;
  SnapshotSweep sweep(root.path, hours(1));
  const SnapshotSweep::Clock::time_point start{};
  const auto first = FileOf(root, 0, std::byte{1}, HeldFiles::kPartBytes)->path();
  const auto second = FileOf(root, 1, std::byte{1})->path();
  CHECK(sweep.Turn(start).removed.empty());
  std::vector<uint64_t> left;
  bool locked = true;
  const auto looked = sweep.Turn(start + hours(1), [&] {
    left.push_back(MemoryOf(first) + MemoryOf(second));
    locked = locked && IsLocked(first) && IsLocked(second);
    return true;
  });
  CHECK(looked.removed.size() == 1);
  CHECK(locked);
  REQUIRE(left.size() >= 3);
  CHECK(left.front() > 2 * HeldFiles::kPartBytes);
  for (size_t part = 1; part < left.size(); ++part) {
    CHECK(left[part - 1] - left[part] <= HeldFiles::kPartBytes);
  }
  CHECK(left.back() <= HeldFiles::kPartBytes);
  CHECK_FALSE(fs::exists(fs::path(first).parent_path()));
}

TEST_CASE("snapshot sweep: what is broken off holds no state, and the next one goes on with it") {
  const SweptRoot root;
  const SnapshotSweep::Clock::time_point start{};
  const auto path = FileOf(root, 0, std::byte{1}, HeldFiles::kPartBytes)->path();
  {
    SnapshotSweep sweep(root.path, hours(1));
    CHECK(sweep.Turn(start).removed.empty());
    int parts = 0;
    CHECK(sweep.Turn(start + hours(1), [&] { return ++parts <= 1; }).removed.empty());
    CHECK(parts == 2);
  }
  REQUIRE(fs::exists(path));
  CHECK(MemoryOf(path) > HeldFiles::kPartBytes);
  SnapshotSweep next(root.path, hours(1));
  SECTION("another program, at once, and with that alone") {
    const auto kept = FileOf(root, 0, std::byte{2})->path();
    CHECK(next.Turn(start).removed.size() == 1);
    CHECK_FALSE(fs::exists(path));
    CHECK(fs::exists(kept));
  }
  SECTION("a rank that comes meanwhile finds nothing of before") {
    CHECK_FALSE(FileOf(root, 0, std::byte{1}, HeldFiles::kPartBytes)->found());
    CHECK(next.Turn(start).removed.empty());
    CHECK(fs::exists(path));
  }
}

TEST_CASE(
    "snapshot sweep: what is to go is told once, with its step, when half of the time is over") {
  const SweptRoot root;
  SnapshotSweep sweep(root.path, hours(24));
  const SnapshotSweep::Clock::time_point start{};
  std::string folder;
  {
    const auto file = FileOf(root, 0, std::byte{1});
    REQUIRE(file->Begin(1, 41).ok());
    REQUIRE(
        file->Stage(1, {.version = 41, .step = 41}, std::vector<uint64_t>(file->pieces())).ok());
    folder = fs::path(file->path()).parent_path();
  }
  CHECK(sweep.Turn(start).late.empty());
  CHECK(sweep.Turn(start + hours(11)).late.empty());
  const auto late = sweep.Turn(start + hours(12)).late;
  REQUIRE(late.size() == 1);
  CHECK(late[0].folder == folder);
  CHECK(late[0].step == 41);
  CHECK(sweep.Turn(start + hours(13)).late.empty());
  const auto last = sweep.Turn(start + hours(24));
  CHECK(last.late.empty());
  REQUIRE(last.removed.size() == 1);
  CHECK(last.removed[0].step == 41);
}

TEST_CASE("snapshot sweep: room is made of what is left, the oldest first, and no more than that") {
  const SweptRoot root;
  std::vector<std::string> paths;
  for (int run = 1; run <= 4; ++run) {
    const auto file = FileOf(root, 0, std::byte(run), 16 * kHugePage);
    paths.push_back(file->path());
    // The first is the oldest, the fourth was written to just now.
    if (run == 4) continue;
    fs::last_write_time(file->path(), fs::file_time_type::clock::now() - hours(10 - run));
  }
  const auto held = FileOf(root, 0, std::byte{2}, 16 * kHugePage);
  fs::last_write_time(paths[1], fs::file_time_type::clock::now() - hours(20));
  const RoomOptions options{.root = root.path};
  struct statvfs about {};
  REQUIRE(statvfs(root.path.c_str(), &about) == 0);
  CHECK(MakeRoom(options, uint64_t{about.f_bavail} * about.f_frsize / 2).empty());
  SECTION("all of it, but what is held or new") {
    const auto removed = MakeRoom(options, UINT64_MAX);
    REQUIRE(removed.size() == 2);
    CHECK(removed[0].folder == fs::path(paths[0]).parent_path());
    CHECK(removed[1].folder == fs::path(paths[2]).parent_path());
    CHECK_FALSE((fs::exists(paths[0]) || fs::exists(paths[2])));
    CHECK((fs::exists(paths[1]) && fs::exists(paths[3])));
  }
  SECTION("not that of who asks") {
    RoomOptions own = options;
    own.except = fs::path(paths[0]).parent_path();
    REQUIRE(MakeRoom(own, UINT64_MAX).size() == 1);
    CHECK(fs::exists(paths[0]));
  }
}

}  // namespace trireme::checkpoint
