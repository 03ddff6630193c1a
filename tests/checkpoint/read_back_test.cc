// Reading back asks the disk, not this machine's memory of what it wrote: seen by a disk that has
// spoilt what it was given, which shows once the memory is let go of.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstddef>
#include <string>

#include "checkpoint/client/reader.h"
#include "checkpoint/client/writer.h"
#include "tests/checkpoint/sample_state.h"

namespace {

// Part of the name of the files that the disk spoils; null: none.
std::atomic<const char*> spoilt{nullptr};

void Spoil(int fd) {
  char path[4096] = {};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (readlink(link.c_str(), path, sizeof(path) - 1) <= 0) return;
  if (std::string(path).find(spoilt.load()) == std::string::npos) return;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  std::byte last{};
  const off_t at = lseek(file, -1, SEEK_END);
  if (pread(file, &last, 1, at) == 1) {
    last ^= std::byte{4};
    (void)!pwrite(file, &last, 1, at);
  }
  close(file);
}

}  // namespace

// Before the C library's.
extern "C" int posix_fadvise(int fd, off_t begin, off_t bytes, int advice) {
  if (advice == POSIX_FADV_DONTNEED && spoilt.load() != nullptr) Spoil(fd);
  static const auto next =
      reinterpret_cast<decltype(&posix_fadvise)>(dlsym(RTLD_NEXT, "posix_fadvise"));
  return next == nullptr ? 0 : next(fd, begin, bytes, advice);
}

namespace trireme::checkpoint {
namespace {

absl::Status SaveOnto(const std::string& root, const char* spoils) {
  Random random(3);
  auto states = RandomLayout(random, SampleTensors(), 1);
  states[0].Fill(9);
  const auto folder = CheckpointWriter::Prepare(root, 5);
  if (!folder.ok()) return folder.status();
  const absl::Status written = CheckpointWriter::WriteRank(*folder, 0, states[0].shards());
  if (!written.ok()) return written;
  spoilt = spoils;
  absl::Status status = CheckpointWriter::ReadBack(*folder, 0);
  if (status.ok()) status = CheckpointWriter::Commit(root, 5, InfoOf(5, 1)).status();
  spoilt = nullptr;
  return status;
}

TEST_CASE("what the disk has made of a save is seen, not what memory has of it") {
  for (const char* name : {"/rank-000.safetensors", "/manifest.json"}) {
    TemporaryFolder root;
    const absl::Status status = SaveOnto(root.path(), name);
    INFO(name << ": " << status.ToString());
    CHECK(absl::IsDataLoss(status));
    CHECK(status.ToString().find(name) != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(root.path() + "/step-00000005"));
  }
  TemporaryFolder root;
  CHECK(SaveOnto(root.path(), nullptr).ToString() == "OK");
}

}  // namespace
}  // namespace trireme::checkpoint
