// A rank's file of snapshots: what it finds again, what it takes for none of its own, and who may
// hold it.
#include "checkpoint/client/snapshot_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/format/piece_table.h"
#include "runtime/base/random_hex.h"
#include "runtime/checksum/lane_sums.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using std::chrono::milliseconds;

// Of a file system in memory, as in use.
struct Root {
  Root() : path("/dev/shm/trireme-test-" + base::RandomHex(16)) { fs::create_directory(path); }
  ~Root() { fs::remove_all(path); }
  const std::string path;
};

SnapshotFileOptions OptionsIn(const Root& root) {
  SnapshotFileOptions options{.root = root.path,
                              .shape = {.slots = 2,
                                        .rank = 3,
                                        .ranks = 4,
                                        .key = {},
                                        .layout = 77,
                                        .slot_bytes = 5 * kPieceBytes + 100},
                              .manifest = "what lies where",
                              .lock_wait = milliseconds(0)};
  options.shape.key[0] = std::byte{0x0a};
  options.shape.key[15] = std::byte{0xf1};
  return options;
}

std::unique_ptr<SnapshotFile> Opened(const SnapshotFileOptions& options) {
  auto file = SnapshotFile::Open(options);
  INFO(file.status().ToString());
  REQUIRE(file.ok());
  return *std::move(file);
}

// Also in a process that has forked, where Catch is not.
bool Filled(SnapshotFile& file, uint32_t slot, uint64_t version) {
  if (!file.Begin(slot, version).ok()) return false;
  const std::span<std::byte> data = file.data_of(slot);
  for (size_t i = 0; i < data.size(); ++i) data[i] = std::byte((i * 7 + version) % 251);
  std::vector<uint64_t> sums;
  for (size_t at = 0; at < data.size(); at += kPieceBytes) {
    sums.push_back(checksum::SumOfPiece(data.subspan(at, std::min(kPieceBytes, data.size() - at))));
  }
  return file.Stage(slot, {.version = version, .attempt = 5, .step = version}, sums).ok();
}

void Fill(SnapshotFile& file, uint32_t slot, uint64_t version) {
  REQUIRE(Filled(file, slot, version));
}

std::vector<std::string> FilesOf(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& each : fs::directory_iterator(folder)) names.push_back(each.path().filename());
  return names;
}

const std::vector<std::string> kOneName = {"rank-00003-000000000000004d-2.snapshot"};

}  // namespace

TEST_CASE("snapshot file: who is killed leaves his versions to the next") {
  const Root root;
  const SnapshotFileOptions options = OptionsIn(root);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto file = SnapshotFile::Open(options);
    if (file.ok() && Filled(**file, 1, 8)) (void)(*file)->Begin(0, 9);
    std::raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  const auto file = Opened(options);
  CHECK(file->found());
  CHECK_FALSE(file->Staged(0).has_value());  // it was being written
  REQUIRE(file->Staged(1).has_value());
  CHECK(file->Staged(1)->version == 8);
  CHECK(file->Staged(1)->attempt == 5);
  CHECK(file->pieces() == 6);
  CHECK(file->Verify(1, 0, file->pieces()).ok());
  CHECK(reinterpret_cast<uintptr_t>(file->data().data()) % (2 << 20) == 0);
  CHECK(file->data_of(1).data() == file->data().data() + (2 << 20));
  const std::string folder = SnapshotFolder(root.path, options.shape.key);
  CHECK(folder ==
        root.path + "/trireme-" + std::to_string(geteuid()) + "-0a0000000000000000000000000000f1");
  struct stat about {};
  REQUIRE(stat(folder.c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0700);
  REQUIRE(stat(file->path().c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
  // Room is taken at once: a full file system is no SIGBUS later.
  CHECK(static_cast<uint64_t>(about.st_blocks) * 512 >= static_cast<uint64_t>(about.st_size));
  file->Clear(1);
  CHECK_FALSE(file->Staged(1).has_value());
}

TEST_CASE("snapshot file: a flipped bit of data or sums is found, with its piece") {
  const Root root;
  const auto file = Opened(OptionsIn(root));
  Fill(*file, 1, 8);
  const std::span<std::byte> data = file->data_of(1);
  for (const size_t at : {size_t{0}, kPieceBytes - 1, 3 * kPieceBytes + 17, data.size() - 1}) {
    data[at] ^= std::byte{0x10};
    const size_t piece = at / kPieceBytes;
    CHECK_THAT(std::string(file->Verify(1, 0, 6).message()),
               Contains("piece " + std::to_string(piece) + " of slot 1 of " + file->path()));
    CHECK_FALSE(file->Verify(1, piece, piece + 1).ok());
    CHECK(file->Verify(1, 0, piece).ok());
    CHECK(file->Verify(1, piece + 1, 6).ok());
    data[at] ^= std::byte{0x10};
  }
  CHECK(file->Verify(1, 0, 6).ok());
  // The sums' own: they are behind the manifest, which has a page behind records and pins.
  const int raw = open(file->path().c_str(), O_RDWR);
  const off_t sums = 4096 * 5 + 4096 + 8;
  std::byte value{};
  REQUIRE(pread(raw, &value, 1, sums) == 1);
  value ^= std::byte{1};
  REQUIRE(pwrite(raw, &value, 1, sums) == 1);
  CHECK_FALSE(file->Staged(1).has_value());
  value ^= std::byte{1};
  REQUIRE(pwrite(raw, &value, 1, sums) == 1);
  CHECK(file->Staged(1).has_value());
  close(raw);
}

TEST_CASE("snapshot file: what is of another shape is none of ours, and makes room") {
  const Root root;
  const SnapshotFileOptions options = OptionsIn(root);
  const std::vector<std::function<void(SnapshotFileOptions&)>> changes = {
      [](auto& other) { other.shape.ranks = 5; },
      [](auto& other) { other.shape.slot_bytes += 4; },
      [](auto& other) { other.manifest[0] = 'W'; },
  };
  for (const auto& change : changes) {
    Fill(*Opened(options), 0, 3);
    CHECK(Opened(options)->found());
    SnapshotFileOptions other = options;
    change(other);
    const auto file = Opened(other);
    CHECK_FALSE(file->found());
    CHECK_FALSE(file->Staged(0).has_value());
    const std::span<std::byte> data = file->data();
    CHECK(
        std::all_of(data.begin(), data.end(), [](std::byte each) { return each == std::byte{}; }));
    CHECK(FilesOf(SnapshotFolder(root.path, options.shape.key)) == kOneName);
  }
}

TEST_CASE("snapshot file: those of other layouts stay, until they are told to go") {
  const Root root;
  SnapshotFileOptions options = OptionsIn(root);
  Fill(*Opened(options), 0, 3);
  options.shape.layout = 78;
  Fill(*Opened(options), 1, 4);
  options.shape.slots = 3;
  auto last = Opened(options);
  CHECK_FALSE(last->found());
  const std::string folder = SnapshotFolder(root.path, options.shape.key);
  CHECK(FilesOf(folder).size() == 3);
  CHECK(Opened(OptionsIn(root))->Staged(0)->version == 3);
  last->RemoveOthers();
  CHECK(FilesOf(folder) == std::vector<std::string>{"rank-00003-000000000000004e-3.snapshot"});
}

TEST_CASE("snapshot file: one that another holds is left to him, after the wait") {
  const Root root;
  SnapshotFileOptions options = OptionsIn(root);
  auto held = Opened(options);
  Fill(*held, 0, 3);
  auto next = Opened(options);
  CHECK_FALSE(next->found());
  CHECK_FALSE(next->Staged(0).has_value());
  // Neither sees what the other writes.
  Fill(*next, 0, 4);
  CHECK(held->Staged(0)->version == 3);
  Fill(*held, 0, 5);
  CHECK(next->Staged(0)->version == 4);
  CHECK(next->Verify(0, 0, 6).ok());
  held.reset();
  next.reset();
  // The name is that of the younger.
  auto last = Opened(options);
  CHECK(last->found());
  CHECK(last->Staged(0)->version == 4);
  // Who lets go in time is waited for.
  options.lock_wait = std::chrono::seconds(60);
  std::thread holder([&] {
    std::this_thread::sleep_for(milliseconds(50));
    last.reset();
  });
  const auto waited = Opened(options);
  holder.join();
  CHECK(waited->found());
  CHECK(waited->Staged(0)->version == 4);
}

TEST_CASE("snapshot file: folders of others and links are refused") {
  const Root root;
  const SnapshotFileOptions options = OptionsIn(root);
  const std::string folder = SnapshotFolder(root.path, options.shape.key);
  fs::create_directory(folder);
  chmod(folder.c_str(), 0750);
  CHECK_THAT(SnapshotFile::Open(options).status().ToString(),
             Contains("PERMISSION_DENIED") && Contains("chmod 700 " + folder));
  fs::remove(folder);
  fs::create_directory(root.path + "/elsewhere");
  chmod((root.path + "/elsewhere").c_str(), 0700);
  fs::create_symlink(root.path + "/elsewhere", folder);
  CHECK_FALSE(SnapshotFile::Open(options).ok());
  CHECK(fs::is_empty(root.path + "/elsewhere"));
  fs::remove(folder);
  // A link in the file's place gives way; what it names is not touched.
  fs::create_directory(folder);
  chmod(folder.c_str(), 0700);
  std::ofstream(root.path + "/victim") << "kept";
  fs::create_symlink(root.path + "/victim", folder + "/rank-00003-000000000000004d-2.snapshot");
  CHECK_FALSE(Opened(options)->found());
  CHECK(
      fs::is_regular_file(fs::symlink_status(folder + "/rank-00003-000000000000004d-2.snapshot")));
  CHECK(fs::file_size(root.path + "/victim") == 4);
}

TEST_CASE("snapshot file: without room it says how much, and leaves nothing behind") {
  const Root root;
  SnapshotFileOptions options = OptionsIn(root);
  options.shape.slot_bytes = 64 << 20;
  std::string said;
  {
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit low{.rlim_cur = 32 << 20, .rlim_max = before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);
    said = SnapshotFile::Open(options).status().ToString();
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    std::signal(SIGXFSZ, handler);
  }
  CHECK_THAT(said, Contains("RESOURCE_EXHAUSTED") && Contains("130 MiB") &&
                       Contains("snapshots.every_step: false"));
  CHECK(fs::is_empty(SnapshotFolder(root.path, options.shape.key)));
}

TEST_CASE("snapshot file: the only one is kept where it could not be opened") {
  const Root root;
  const SnapshotFileOptions options = OptionsIn(root);
  Fill(*Opened(options), 0, 3);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int first = open("/dev/null", O_RDONLY);
  close(first);
  std::vector<std::string> said;
  std::unique_ptr<SnapshotFile> found;
  for (rlim_t more = 0; found == nullptr && more < 20; ++more) {
    const rlimit few{.rlim_cur = static_cast<rlim_t>(first) + more, .rlim_max = before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
    auto file = SnapshotFile::Open(options);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    said.push_back(file.status().ToString());
    if (file.ok()) found = *std::move(file);
  }
  REQUIRE(found != nullptr);
  CHECK(found->found());
  CHECK(found->Staged(0)->version == 3);
  CHECK(std::any_of(said.begin(), said.end(), [](const std::string& text) {
    return text.find("cannot open /") != std::string::npos;
  }));
}

TEST_CASE("snapshot file: one of another shape is waited for, too") {
  const Root root;
  SnapshotFileOptions options = OptionsIn(root);
  auto held = Opened(options);
  options.shape.ranks = 5;
  options.lock_wait = std::chrono::seconds(60);
  std::atomic<bool> let_go = false;
  std::thread holder([&] {
    std::this_thread::sleep_for(milliseconds(50));
    let_go = true;
    held.reset();
  });
  const auto file = SnapshotFile::Open(options);
  CHECK(let_go);
  holder.join();
  REQUIRE(file.ok());
  CHECK_FALSE((*file)->found());
}

TEST_CASE("snapshot file: of several who make one at once each has it in turn") {
  for (int round = 0; round < 20; ++round) {
    const Root root;
    SnapshotFileOptions options = OptionsIn(root);
    options.lock_wait = std::chrono::seconds(60);
    std::atomic<int> at_once = 0, made = 0, faults = 0;
    const auto one = [&] {
      const auto file = SnapshotFile::Open(options);
      if (!file.ok() || ++at_once > 1) ++faults;
      made += file.ok() && !(*file)->found() ? 1 : 0;
      std::this_thread::sleep_for(milliseconds(1));
      --at_once;
    };
    std::vector<std::thread> makers;
    for (int i = 0; i < 4; ++i) makers.emplace_back(one);
    for (std::thread& maker : makers) maker.join();
    CHECK(faults == 0);
    CHECK(made == 1);
    CHECK(FilesOf(SnapshotFolder(root.path, options.shape.key)) == kOneName);
  }
}

TEST_CASE("snapshot file: who was replaced in a slot changes nothing there") {
  const Root root;
  const auto file = Opened(OptionsIn(root));
  REQUIRE(file->Begin(0, 3).ok());
  Fill(*file, 0, 4);  // another process's
  const std::vector<uint64_t> sums(file->pieces(), 99);
  CHECK(absl::IsFailedPrecondition(file->Stage(0, {.version = 3}, sums)));
  REQUIRE(file->Staged(0).has_value());
  CHECK(file->Staged(0)->version == 4);
  CHECK(file->Verify(0, 0, file->pieces()).ok());
}

TEST_CASE("snapshot file: a folder that is removed meanwhile is made again") {
  const Root root;
  SnapshotFileOptions options = OptionsIn(root);
  // Room that takes a while, in which the folder is empty.
  options.shape.slot_bytes = 512 * kPieceBytes;
  const std::string folder = SnapshotFolder(root.path, options.shape.key);
  int removed = 0;
  for (int turn = 0; turn < 100 && removed < 3; ++turn) {
    std::atomic<bool> made{false};
    std::thread sweep([&] {
      while (!made) {
        if (rmdir(folder.c_str()) != 0) continue;
        ++removed;
        return;
      }
    });
    const auto file = SnapshotFile::Open(options);
    made = true;
    sweep.join();
    INFO(file.status().ToString());
    REQUIRE(file.ok());
    CHECK_FALSE((*file)->found());
    REQUIRE(fs::exists((*file)->path()));
    (*file)->Remove();
  }
  CHECK(removed > 0);
}

TEST_CASE("snapshot file: those of a run that has ended are removed") {
  const Root root;
  SnapshotFileOptions options = OptionsIn(root);
  const std::string folder = SnapshotFolder(root.path, options.shape.key);
  const auto file = Opened(options);
  options.shape.rank = 1;
  auto other = Opened(options);
  file->Remove();
  CHECK_FALSE(fs::exists(file->path()));
  CHECK(fs::exists(other->path()));
  other.reset();
  file->Remove();
  CHECK_FALSE(fs::exists(folder));
  file->Remove();
}

}  // namespace trireme::checkpoint
