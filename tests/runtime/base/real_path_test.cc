// A link anywhere on the way is refused; what has none opens.
#include "runtime/base/real_path.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace trireme::base {
namespace {

namespace fs = std::filesystem;

int Opened(const std::string& path, int flags = O_RDONLY) {
  const int fd = OpenWithoutLinks(path, flags);
  const int error = errno;
  if (fd >= 0) close(fd);
  return fd >= 0 ? 0 : error;
}

TEST_CASE("real paths: no link on the way is followed") {
  char name[] = "/tmp/trireme_real_path_XXXXXX";
  REQUIRE(mkdtemp(name) != nullptr);
  const std::string root = fs::canonical(name).string();
  fs::create_directories(root + "/a/b");
  std::ofstream(root + "/a/b/file") << "text";
  fs::create_symlink(root + "/a", root + "/to_a");
  fs::create_symlink("file", root + "/a/b/to_file");
  fs::create_symlink("nowhere", root + "/dangling");

  CHECK(Opened(root + "/a/b/file") == 0);
  CHECK(Opened(root + "//a/./b/file") == 0);
  CHECK(Opened(root + "/a/b", O_PATH | O_DIRECTORY) == 0);
  CHECK(Opened(root + "/a/b/", O_PATH | O_DIRECTORY) == 0);
  CHECK(Opened("/", O_PATH | O_DIRECTORY) == 0);
  CHECK(Opened(root + "/to_a/b/file") == ELOOP);
  CHECK(Opened(root + "/a/b/to_file") == ELOOP);
  CHECK(Opened(root + "/to_a", O_PATH | O_DIRECTORY) == ELOOP);
  CHECK(Opened(root + "/a/../a/b/file") == EINVAL);
  CHECK(Opened("a/b") == EINVAL);
  CHECK(Opened("") == EINVAL);
  CHECK(Opened(root + "/a/none") == ENOENT);
  CHECK(Opened(root + "/a/b/file/c") == ENOTDIR);

  const auto read = [](const std::string& path, Links links) {
    const int fd = OpenToRead(path, links);
    const int error = errno;
    if (fd >= 0) close(fd);
    return fd >= 0 ? 0 : error;
  };
  REQUIRE(mkfifo((root + "/a/pipe").c_str(), 0600) == 0);
  for (const Links links : {Links::kFollow, Links::kRefuse}) {
    CHECK(read(root + "/a/b/file", links) == 0);
    CHECK(read(root + "/a/pipe", links) == EINVAL);
    CHECK(read(root + "/a/b", links) == EINVAL);
    CHECK(read(root + "/a/none", links) == ENOENT);
  }
  CHECK(read(root + "/to_a/b/file", Links::kFollow) == 0);
  CHECK(read(root + "/to_a/b/file", Links::kRefuse) == ELOOP);

  CHECK(CheckWithoutLinks(root + "/a/b").ok());
  CHECK(CheckWithoutLinks(root + "/a/not/yet").ok());
  CHECK(absl::IsFailedPrecondition(CheckWithoutLinks(root + "/to_a/b")));
  CHECK(absl::IsFailedPrecondition(CheckWithoutLinks(root + "/to_a")));
  CHECK(absl::IsFailedPrecondition(CheckWithoutLinks(root + "/dangling")));
  fs::remove_all(root);
}

}  // namespace
}  // namespace trireme::base
