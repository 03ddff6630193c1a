// Folders of a disk that fails while they are read.
#include "runtime/base/folder_names.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace {

int good_entries = -1;  // until the disk fails; -1: it does not

}  // namespace

// In place of the C library's, also for the standard library of C++.
extern "C" dirent* readdir(DIR* folder) {
  if (good_entries == 0) {
    errno = EIO;
    return nullptr;
  }
  if (good_entries > 0) --good_entries;
  static const auto real = reinterpret_cast<dirent* (*)(DIR*)>(dlsym(RTLD_NEXT, "readdir"));
  return real(folder);
}

namespace trireme::base {
namespace {

class Folder : public tests::TemporaryFolder {
 public:
  Folder() {
    for (const char* name : {"a", "b", "c", "d"}) std::ofstream(*this / name) << name;
  }
};

TEST_CASE("the names of a folder") {
  const Folder folder;
  auto names = FolderNames(folder.path());
  REQUIRE(names.ok());
  std::sort(names->begin(), names->end());
  CHECK(*names == std::vector<std::string>{"a", "b", "c", "d"});
  CHECK(absl::IsNotFound(FolderNames(folder.path() + "/none").status()));
  CHECK(absl::IsUnavailable(FolderNames(folder.path() + "/a").status()));
}

TEST_CASE("a disk that fails while a folder is read is a status") {
  const Folder folder;
  // The dots come among the names: at any of six entries.
  for (int entries = 0; entries < 6; ++entries) {
    int seen = 0;
    good_entries = entries;
    const absl::Status status = VisitNames(folder.path(), [&](const std::string&) { ++seen; });
    good_entries = -1;
    CHECK(absl::IsUnavailable(status));
    CHECK(status.message() == folder.path() + ": cannot be listed: Input/output error");
    CHECK(seen <= entries);
    CHECK(seen >= entries - 2);
  }
}

TEST_CASE("the largest number of a folder, where it can be read") {
  const Folder folder;
  CHECK(*LargestNumber(folder.path() + "/none") == 0);
  CHECK(*LargestNumber(folder.path()) == 0);
  for (const char* name : {"3", "20", "x99", "100x", "-5", "007", "300"}) {
    std::ofstream(folder / name) << name;
  }
  CHECK(*LargestNumber(folder.path()) == 300);
  CHECK(*LargestNumber(folder.path(), 299) == 20);
  CHECK(absl::IsUnavailable(LargestNumber(folder.path() + "/a").status()));
  CHECK(!NumberIn("").has_value());
  CHECK(!NumberIn("18446744073709551616").has_value());
}

}  // namespace
}  // namespace trireme::base
