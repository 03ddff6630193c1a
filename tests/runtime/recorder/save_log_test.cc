// What rank 0 notes of its checkpoints is read back newest first, and a torn end is no name.
#include "runtime/recorder/save_log.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"

namespace trireme::recorder {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

struct Folder {
  Folder() {
    char made[] = "/tmp/save_log_XXXXXX";
    TRIREME_CHECK(mkdtemp(made) != nullptr);
    path = made;
  }
  ~Folder() { fs::remove_all(path); }
  std::string path;
};

TEST_CASE("names come back newest first, and an earlier attempt's are forgotten") {
  const Folder folder;
  const std::string path = SaveLogPath(folder.path);
  CHECK(path == folder.path + "/saves");
  CHECK(ReadSaves(path).empty());
  CHECK(ForgetSaves(path).ok());
  REQUIRE(NoteSave(path, "step-00000010").ok());
  REQUIRE(NoteSave(path, "step-00000020").ok());
  CHECK(ReadSaves(path) == Names{"step-00000020", "step-00000010"});
  REQUIRE(ForgetSaves(path).ok());
  CHECK(ReadSaves(path).empty());
  REQUIRE(NoteSave(path, "step-00000015").ok());
  CHECK(ReadSaves(path) == Names{"step-00000015"});
}

TEST_CASE(
    "why a save failed stands among the names, on one line that is none, and is no long one") {
  const Folder folder;
  const std::string path = SaveLogPath(folder.path);
  REQUIRE(NoteSave(path, "step-00000010").ok());
  REQUIRE(NoteFailedSave(path, "step 20 was not written:\nno room").ok());
  REQUIRE(NoteFailedSave(path, std::string(5000, 'x')).ok());
  // Cut within a character, and with what is none: no message could hold it.
  REQUIRE(NoteFailedSave(path, std::string(396, 'x') + "\xc3\xbc\xc3\xbc\xc3\xbc").ok());
  REQUIRE(NoteFailedSave(path, "in /data/\xff").ok());
  Names lines = ReadSaves(path);
  REQUIRE(lines.size() == 5);
  for (const std::string& line : lines) {
    CHECK(base::ShowableUtf8(line) == line);
    CHECK(line.size() <= 1 + kMostFailedBytes);
  }
  lines.erase(lines.begin(), lines.begin() + 2);
  CHECK(FailedSaveOf(lines[0]) == std::string(397, 'x') + "...");
  CHECK(FailedSaveOf(lines[1]) == "step 20 was not written: no room");
  CHECK(lines[2] == "step-00000010");
  CHECK(FailedSaveOf(lines[2]).empty());
}

TEST_CASE("a line that was cut off is no name") {
  const Folder folder;
  const std::string path = SaveLogPath(folder.path);
  std::ofstream(path) << "step-00000010\n\nstep-0000002";
  CHECK(ReadSaves(path) == Names{"step-00000010"});
  std::ofstream(path) << "step-00000010";
  CHECK(ReadSaves(path).empty());
}

TEST_CASE("of a long file the end is read, from a whole line on") {
  const Folder folder;
  const std::string path = SaveLogPath(folder.path);
  std::ofstream out(path);
  for (int step = 10000000; step < 10100000; ++step) out << "step-" << step << "\n";
  out.close();
  const Names names = ReadSaves(path);
  REQUIRE(names.size() > 100);
  REQUIRE(names.size() < 1000);
  for (size_t i = 0; i < names.size(); ++i) {
    CHECK(names[i] == "step-" + std::to_string(10099999 - i));
  }
}

TEST_CASE("what is no file or cannot be written is an error that names it") {
  const Folder folder;
  const std::string path = SaveLogPath(folder.path);
  fs::create_directories(path);
  CHECK(ReadSaves(path).empty());
  const absl::Status noted = NoteSave(path, "step-00000010");
  CHECK(noted.ToString().find(path) != std::string::npos);
  CHECK_FALSE(ForgetSaves(path).ok());
  // A full disk.
  const absl::Status full = NoteSave("/dev/full", "step-00000010");
  CHECK_FALSE(full.ok());
}

}  // namespace
}  // namespace trireme::recorder
