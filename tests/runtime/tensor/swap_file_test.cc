// Room on a disk: what is written is read, nothing is left behind, and what cannot be had is told.
#include "runtime/tensor/swap_file.h"

#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "tests/runtime/tensor/sick_disk.h"
#include "tests/skip.h"

namespace trireme::tensor {

namespace fs = std::filesystem;

namespace {

std::string Temporary() { return fs::temp_directory_path().string(); }

std::vector<std::byte> Pattern(size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed) >> 3);
  return bytes;
}

// Files of this process end here, as those of a disk that is full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit low = {.rlim_cur = bytes, .rlim_max = limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, before_);
  }

 private:
  void (*const before_)(int);
  rlimit limit_ = {};
};

// Whole pages of `pages` that the system has cached.
size_t CachedPages(std::span<std::byte> pages) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> cached(pages.size() / page);
  REQUIRE(mincore(pages.data(), cached.size() * page, cached.data()) == 0);
  size_t count = 0;
  for (const unsigned char each : cached) count += each & 1;
  return count;
}

}  // namespace

TEST_CASE("swap file: what is written is read, by pieces and through the mapping") {
  constexpr size_t kBytes = (size_t{1} << 20) + 123;
  const auto file = SwapFile::Make({Temporary()}, kBytes);
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
  const auto file = SwapFile::Make({folder.string()}, 1 << 16);
  REQUIRE(file.ok());
  CHECK(fs::is_empty(folder));
  fs::remove_all(folder);
}

TEST_CASE("swap file: an empty one is as good") {
  const auto file = SwapFile::Make({Temporary()}, 0);
  REQUIRE(file.ok());
  CHECK((*file)->pages().empty());
}

TEST_CASE("swap file: no folder, and no room, are told with what to do") {
  const auto nowhere = SwapFile::Make({"/nowhere/at/all"}, 4096);
  CHECK(nowhere.status().code() == absl::StatusCode::kNotFound);
  CHECK(nowhere.status().message().find("/nowhere/at/all") != std::string::npos);
  const size_t before = fs::space(Temporary()).available;
  const auto huge = SwapFile::Make({Temporary()}, size_t{1} << 52);
  CHECK(huge.status().code() == absl::StatusCode::kResourceExhausted);
  for (const char* part :
       {"; 4503599627370496 bytes (4.00 PiB) are wanted, ", "iB) are free beside",
        "other ranks of the node take room there too", "offload.directory"}) {
    CAPTURE(part, huge.status().message());
    CHECK(huge.status().message().find(part) != std::string::npos);
  }
  // Not taken for a moment either, as far as it can be seen from here.
  CHECK(fs::space(Temporary()).available + (size_t{1} << 30) > before);
}

TEST_CASE("swap file: a link that is swapped in leads nowhere else") {
  const fs::path folder = fs::temp_directory_path() / "trireme_swap_file_links";
  fs::create_directories(folder / "real");
  fs::create_directory_symlink(folder / "real", folder / "link");
  CHECK(SwapFile::Make({folder / "link"}, 4096).ok());
  CHECK(SwapFile::Make({folder / "real", base::Links::kRefuse}, 4096).ok());
  const auto refused = SwapFile::Make({folder / "link", base::Links::kRefuse}, 4096);
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(refused.status().message().find("a link is on the way") != std::string::npos);
  fs::remove_all(folder);
}

TEST_CASE("swap file: a folder that is read-only is told as one that may not be written to") {
  const fs::path folder = fs::temp_directory_path() / "trireme_swap_file_read_only";
  fs::create_directories(folder);
  if (mount("none", folder.c_str(), "tmpfs", MS_RDONLY, nullptr) != 0) {
    fs::remove_all(folder);
    TRIREME_SKIP("not here: root to mount a file system");
  }
  const auto refused = SwapFile::Make({folder.string()}, 4096);
  umount2(folder.c_str(), MNT_DETACH);
  fs::remove_all(folder);
  CHECK(refused.status().code() == absl::StatusCode::kDataLoss);
  CHECK(refused.status().message().find("give a folder that may be written to") !=
        std::string::npos);
}

TEST_CASE("swap file: room is left on the disk for others") {
  const fs::space_info disk = fs::space(Temporary());
  const size_t left = std::min<size_t>(disk.capacity / 32, size_t{1} << 30);
  if (disk.available < left) TRIREME_SKIP("not here: the disk is nearly full");
  // Looked at before it is taken: nothing of it is, even for a moment.
  const auto refused = SwapFile::Make({Temporary()}, disk.available - left / 4);
  CHECK(refused.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(refused.status().message().find("kept for others") != std::string::npos);
}

TEST_CASE("swap file: what the disk does not take is told at once") {
  constexpr size_t kBytes = size_t{1} << 16;
  const auto file = SwapFile::Make({Temporary()}, kBytes);
  REQUIRE(file.ok());
  const std::vector<std::byte> bytes = Pattern(8192, 3);
  {
    const FileSizeLimit limit(16384);
    CHECK((*file)->Write(4096, bytes).ok());
    // The first half of it is taken.
    const absl::Status refused = (*file)->Write(12288, bytes);
    CHECK(refused.code() == absl::StatusCode::kDataLoss);
    CHECK(refused.message().find("offload.directory: cannot write") == 0);
    CHECK(refused.message().find("larger local disk") != std::string::npos);
  }
  CHECK((*file)->Write(12288, bytes).ok());
}

// The system forgets bytes whose write-back failed, and would give what lay there before.
TEST_CASE("swap file: a write that failed behind the scenes is told when it is read again") {
  constexpr size_t kBytes = size_t{9} << 20;  // three calls
  const auto file = SwapFile::Make({Temporary()}, kBytes);
  REQUIRE(file.ok());
  std::vector<std::byte> bytes = Pattern(kBytes, 4);
  SickDisk disk;
  for (const int error : {EIO, ENOSPC}) {
    REQUIRE((*file)->Write(0, bytes).ok());
    disk.FailWriteBack(error, 1);
    const absl::Status lost = (*file)->Read(0, bytes);
    CHECK(lost.code() == absl::StatusCode::kDataLoss);
    CHECK(lost.message().find("offload.directory: cannot write") == 0);
    CHECK(lost.message().find(std::strerror(error)) != std::string::npos);
  }
  const uint64_t before = (*file)->answers();
  CHECK((*file)->Read(0, bytes).ok());
  CHECK((*file)->answers() > before + 2);
}

// Else a rank's state would be in memory a second time.
TEST_CASE("swap file: what has been read is not cached any longer") {
  const std::string here = fs::current_path().string();
  struct statfs disk = {};
  constexpr long kTmpfs = 0x01021994;
  if (statfs(here.c_str(), &disk) != 0 || disk.f_type == kTmpfs) {
    TRIREME_SKIP("not here: the working directory is memory, which is never dropped");
  }
  constexpr size_t kBytes = size_t{1} << 20;
  const auto file = SwapFile::Make({here}, kBytes);
  REQUIRE(file.ok());
  std::vector<std::byte> bytes = Pattern(kBytes, 5);
  REQUIRE((*file)->Write(0, bytes).ok());
  const size_t written = CachedPages((*file)->pages());
  CHECK(written > 200);
  REQUIRE((*file)->Read(0, bytes).ok());
  // The system may have one or another in use.
  CHECK(CachedPages((*file)->pages()) < written / 4);
  CHECK(bytes == Pattern(kBytes, 5));
}

}  // namespace trireme::tensor
