// What is gone by is the folder that was looked at, not what has its name since.
#include "runtime/base/pinned_folder.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

#include "runtime/base/whole_file.h"
#include "tests/temporary_folder.h"

namespace trireme::base {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a pinned folder is the one that was opened, whatever takes its name") {
  const tests::TemporaryFolder above;
  const std::string path = above / "folder";
  fs::create_directory(path);
  std::ofstream(path + "/file") << "first";
  std::optional<PinnedFolder> pinned;
  {
    auto folder = PinnedFolder::Open(path, Links::kRefuse);
    REQUIRE(folder.ok());
    pinned.emplace(*std::move(folder));
  }
  fs::rename(path, path + "-before");
  fs::create_directory(path);
  std::ofstream(path + "/file") << "second";
  CHECK(*ReadWholeFile(pinned->PathOf("file")) == "first");
  CHECK(absl::IsNotFound(ReadWholeFile(PinnedFolder().PathOf("file")).status()));
}

TEST_CASE("a pinned folder is no link where none is to be followed, and no file") {
  const tests::TemporaryFolder above;
  fs::create_directory_symlink(above.path(), above / "link");
  std::ofstream(above / "file") << "x";
  CHECK(PinnedFolder::Open(above / "link", Links::kFollow).ok());
  CHECK_FALSE(PinnedFolder::Open(above / "link", Links::kRefuse).ok());
  CHECK_FALSE(PinnedFolder::Open(above / "file", Links::kFollow).ok());
  CHECK(absl::IsNotFound(PinnedFolder::Open(above / "none", Links::kFollow).status()));
  CHECK(OpenOwnFolder(above.path()).ok());
}

}  // namespace
}  // namespace trireme::base
