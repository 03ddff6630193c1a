// A log of a bounded size: which bytes are kept, in which files, and that no line is lost
// meanwhile.
#include "coordinator/process/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>

#include "tests/temporary_folder.h"

namespace trireme::coordinator {
namespace {

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Descriptor {
 public:
  ~Descriptor() { close(fd_); }
  int fd() const { return fd_; }
  void Say(const std::string& text) const {
    REQUIRE(write(fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }

 private:
  int fd_ = open("/dev/null", O_WRONLY | O_CLOEXEC);
};

}  // namespace

TEST_CASE("log file: the oldest goes when the newest is full") {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "a.log";
  std::ofstream(path) << "before\n";
  const Descriptor out, err;
  auto log = LogFile::Open({path, 10, 3, {out.fd(), err.fd()}});
  REQUIRE(log.ok());
  out.Say("a\n");
  REQUIRE(log->Turn().ok());
  CHECK(TextOf(path) == "before\na\n");
  for (const char* text : {"b", "c", "d"}) {
    err.Say(std::string(text) + "\n");
    out.Say("0123456789\n");
    REQUIRE(log->Turn().ok());
  }
  out.Say("end\n");
  CHECK(TextOf(path) == "end\n");
  CHECK(TextOf(path + ".1") == "d\n0123456789\n");
  CHECK(TextOf(path + ".2") == "c\n0123456789\n");
  CHECK_FALSE(std::filesystem::exists(path + ".3"));
  CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms::all) ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
}

TEST_CASE("log file: lines that are written meanwhile are whole, each once") {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "a.log";
  const Descriptor out;
  auto log = LogFile::Open({path, 1000, 1000, {out.fd()}});
  REQUIRE(log.ok());
  constexpr int kLines = 20000;
  constexpr int kLinesOfTurn = 5000;
  std::atomic<int> turns{0};
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (int i = 0; i < kLines; ++i) {
      const std::string line = std::to_string(i) + "\n";
      if (write(out.fd(), line.data(), line.size()) < 0) break;
      if (i % kLinesOfTurn != 0) continue;
      // Some turns fall between the lines however busy the machine is.
      for (const int seen = turns; turns <= seen + 1;) std::this_thread::yield();
    }
    done = true;
  });
  for (; !done; ++turns) CHECK(log->Turn().ok());
  writer.join();
  int files = 0;
  while (std::filesystem::exists(path + "." + std::to_string(files + 1))) ++files;
  CHECK(files > 1);
  std::string whole;
  for (int number = files; number > 0; --number) {
    whole += TextOf(path + "." + std::to_string(number));
  }
  std::istringstream lines(whole + TextOf(path));
  int next = 0;
  for (std::string line; std::getline(lines, line); ++next) REQUIRE(line == std::to_string(next));
  CHECK(next == kLines);
}

TEST_CASE("log file: a disk that refuses ends nothing") {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "a.log";
  const Descriptor out;
  CHECK_FALSE(LogFile::Open({folder / "none" + "/a.log", 10, 3, {out.fd()}}).ok());
  auto log = LogFile::Open({path, 10, 2, {out.fd()}});
  REQUIRE(log.ok());
  std::filesystem::create_directories(path + ".1/in the way");
  out.Say("0123456789\n");
  CHECK_FALSE(log->Turn().ok());
  out.Say("more\n");
  CHECK(TextOf(path) == "0123456789\nmore\n");
  std::filesystem::remove_all(path + ".1");
  CHECK(log->Turn().ok());
  CHECK(TextOf(path + ".1") == "0123456789\nmore\n");
  CHECK(TextOf(path).empty());
}

}  // namespace trireme::coordinator
