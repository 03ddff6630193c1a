// Swap files and the disk beneath: what is handed to it, in which pieces, and who is told when it
// fails.
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/tensor/swap_file.h"
#include "tests/runtime/tensor/sick_disk.h"

namespace trireme::tensor {

namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::shared_ptr<SwapFile> FileOf(size_t bytes) {
  auto file = SwapFile::Make({std::filesystem::temp_directory_path().string()}, bytes);
  INFO(file.status().ToString());
  REQUIRE(file.ok());
  return *std::move(file);
}

}  // namespace

// While its queue is full a disk holds a call until all that it asks for has a place.
TEST_CASE("swap sync: no call asks more of the disk than whoever waits may be patient for") {
  const std::vector<std::byte> bytes(32 * kMiB, std::byte{1});
  const auto file = FileOf(bytes.size());
  const SickDisk disk;
  REQUIRE(file->Write(0, bytes).ok());
  CHECK(disk.most_bytes() > 0);
  CHECK(disk.most_bytes() <= static_cast<int64_t>(4 * kMiB));
  // What is taken, and what is sent off, of each piece.
  CHECK(file->answers() >= 2 * 8);
}

// Of bytes that nobody reads by Read: the mapping shows what lay there before.
TEST_CASE("swap sync: a write that the disk has lost is told to whoever asks, once") {
  constexpr size_t kBytes = 9 * kMiB;  // three calls
  const std::vector<std::byte> bytes(kBytes, std::byte{1});
  const auto file = FileOf(kBytes);
  SickDisk disk;
  for (const int error : {EIO, ENOSPC}) {
    REQUIRE(file->Write(0, bytes).ok());
    disk.FailWriteBack(error, 1);
    const absl::Status lost = file->Sync();
    CHECK(lost.code() == absl::StatusCode::kDataLoss);
    CHECK(lost.message().find("offload.directory: cannot write") == 0);
    CHECK(lost.message().find(std::strerror(error)) != std::string::npos);
  }
  const uint64_t before = file->answers();
  CHECK(file->Sync().ok());
  CHECK(file->answers() == before + 3);
  CHECK(disk.most_bytes() <= static_cast<int64_t>(4 * kMiB));
  CHECK(FileOf(0)->Sync().ok());
}

}  // namespace trireme::tensor
