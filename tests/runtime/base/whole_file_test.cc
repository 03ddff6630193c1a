// A file that is there whole or not at all.
#include "runtime/base/whole_file.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/base/durable.h"
#include "runtime/base/exit_code.h"
#include "tests/temporary_folder.h"

namespace trireme::base {
namespace {

namespace fs = std::filesystem;

size_t Count(const tests::TemporaryFolder& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder.path()), {}));
}

std::string Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("a whole file takes the place of the former one and leaves nothing beside it") {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "state";
  REQUIRE(WriteWholeFile(path, "former").ok());
  const std::string content = std::string(100000, 'x') + std::string(1, '\0') + "end";
  REQUIRE(WriteWholeFile(path, content, 0600).ok());
  CHECK(Read(path) == content);
  CHECK(Count(folder) == 1);
  struct stat about {};
  REQUIRE(stat(path.c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0600);
}

TEST_CASE("a file that cannot be written whole leaves the former one") {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "state";
  REQUIRE(WriteWholeFile(path, "former").ok());
  const int pid = fork();
  if (pid == 0) {  // the limit is for good
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(WriteWholeFile(path, std::string(5000, 'x')).ok() ? 1 : 0);
  }
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(Read(path) == "former");
  CHECK(Count(folder) == 1);
  CHECK(absl::IsNotFound(WriteWholeFile(folder / "nowhere/state", "x")));
}

TEST_CASE("a full disk is no plan that does not fit") {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "state";
  fs::create_symlink("/dev/full", path + ".partial");
  const absl::Status full = WriteWholeFile(path, "text");
  CHECK(full.message() == "cannot write " + path + ": the disk, quota or file size limit is full");
  CHECK(ExitCodeOf(full) == kJobFailed);
  for (const int error : {ENOSPC, EDQUOT, EFBIG}) {
    CAPTURE(error);
    CHECK(ExitCodeOf(DiskError(path, "cannot be made", error)) == kJobFailed);
    CHECK(ExitCodeOf(ErrnoStatus(error, path)) == kJobFailed);
  }
  CHECK(absl::IsNotFound(ErrnoStatus(ENOENT, path)));
}

TEST_CASE("a file is read whole or it is said why not") {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "f";
  const std::string content = std::string(200000, 'x') + '\0' + "end";
  REQUIRE(WriteWholeFile(path, content).ok());
  CHECK(*ReadWholeFile(path) == content);
  CHECK(*ReadWholeFile(path, content.size()) == content);
  CHECK(absl::IsResourceExhausted(ReadWholeFile(path, content.size() - 1).status()));
  CHECK(absl::IsResourceExhausted(ReadWholeFile("/dev/zero").status()));
  CHECK(absl::IsNotFound(ReadWholeFile(folder / "absent").status()));
  const absl::Status directory = ReadWholeFile(folder / "").status();
  CHECK_FALSE(directory.ok());
  CHECK(directory.ToString().find("directory") != std::string::npos);
}

TEST_CASE("a new file takes no name that is taken, and leaves nothing beside it") {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "claim";
  REQUIRE(WriteNewFile(path, "mine", 0600).ok());
  CHECK(absl::IsAlreadyExists(WriteNewFile(path, "theirs")));
  CHECK(*ReadWholeFile(path) == "mine");
  CHECK(absl::IsNotFound(WriteNewFile(folder / "none/claim", "mine")));
  CHECK(Count(folder) == 1);
  // A file for others, too: not the mode that scratch files have.
  REQUIRE(WriteNewFile(folder / "public", "all", 0644).ok());
  const auto mode_of = [](const std::string& file) {
    return std::filesystem::status(file).permissions() & std::filesystem::perms::mask;
  };
  CHECK(mode_of(path) == static_cast<std::filesystem::perms>(0600));
  CHECK(mode_of(folder / "public") == static_cast<std::filesystem::perms>(0644));
}

TEST_CASE("a plain file is read, and nothing else by its name") {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "claim";
  CHECK(absl::IsNotFound(ReadPlainFile(path, 10).status()));
  std::ofstream(folder / "plain") << "0123456789";
  CHECK(*ReadPlainFile(folder / "plain", 10) == "0123456789");
  CHECK(absl::IsResourceExhausted(ReadPlainFile(folder / "plain", 9).status()));
  const auto refused = [&] {
    CHECK(absl::IsFailedPrecondition(ReadPlainFile(path, 10).status()));
    fs::remove(path);
  };
  fs::create_symlink("plain", path);
  refused();
  fs::create_directory(path);
  refused();
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  refused();
}

}  // namespace trireme::base
