// Room on a disk: what is written is read, nothing is left behind, and what cannot be had is told.
#include "runtime/tensor/swap_file.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

namespace trireme::tensor {

namespace fs = std::filesystem;

namespace {

std::string Temporary() { return fs::temp_directory_path().string(); }

std::vector<std::byte> Pattern(size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed) >> 3);
  return bytes;
}

}  // namespace

TEST_CASE("swap file: what is written is read, by pieces and through the mapping") {
  constexpr size_t kBytes = (size_t{1} << 20) + 123;
  const auto file = SwapFile::Make(Temporary(), kBytes);
  INFO(file.status().ToString());
  REQUIRE(file.ok());
  const std::span<std::byte> pages = (*file)->pages();
  REQUIRE(pages.size() >= kBytes);
  CHECK(reinterpret_cast<uintptr_t>(pages.data()) % (size_t{2} << 20) == 0);
  CHECK(pages[0] == std::byte{0});
  CHECK(pages[kBytes - 1] == std::byte{0});
  // Across pages, and neither begins nor ends on one.
  const std::vector<std::byte> first = Pattern(300001, 1), second = Pattern(4097, 2);
  REQUIRE((*file)->Write(4095, first).ok());
  REQUIRE((*file)->Write(kBytes - second.size(), second).ok());
  CHECK(std::memcmp(pages.data() + 4095, first.data(), first.size()) == 0);
  std::vector<std::byte> got(first.size());
  // Twice: reading drops what the system has cached, not what was written.
  for (int time = 0; time < 2; ++time) {
    REQUIRE((*file)->Read(4095, got).ok());
    CHECK(got == first);
  }
  std::memset(pages.data() + 8192, 0x5a, 4096);
  REQUIRE((*file)->Read(8192, std::span(got).first(4096)).ok());
  CHECK(got[0] == std::byte{0x5a});
  CHECK(got[4095] == std::byte{0x5a});
  CHECK(std::memcmp(pages.data() + kBytes - second.size(), second.data(), second.size()) == 0);
}

TEST_CASE("swap file: nothing of it is seen in the folder") {
  const fs::path folder = fs::temp_directory_path() / "trireme_swap_file_test";
  fs::create_directories(folder);
  const auto file = SwapFile::Make(folder.string(), 1 << 16);
  REQUIRE(file.ok());
  CHECK(fs::is_empty(folder));
  fs::remove_all(folder);
}

TEST_CASE("swap file: an empty one is as good") {
  const auto file = SwapFile::Make(Temporary(), 0);
  REQUIRE(file.ok());
  CHECK((*file)->pages().empty());
}

TEST_CASE("swap file: no folder, and no room, are told with what to do") {
  const auto nowhere = SwapFile::Make("/nowhere/at/all", 4096);
  CHECK(nowhere.status().code() == absl::StatusCode::kNotFound);
  CHECK(nowhere.status().message().find("/nowhere/at/all") != std::string::npos);
  const size_t before = fs::space(Temporary()).available;
  const auto huge = SwapFile::Make(Temporary(), size_t{1} << 52);
  CHECK(huge.status().code() == absl::StatusCode::kDataLoss);
  CHECK(huge.status().message().find("are free") != std::string::npos);
  CHECK(huge.status().message().find("offload.directory") != std::string::npos);
  // Not taken for a moment either, as far as it can be seen from here.
  CHECK(fs::space(Temporary()).available + (size_t{1} << 30) > before);
}

}  // namespace trireme::tensor
