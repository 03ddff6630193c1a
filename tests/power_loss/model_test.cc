// That the disk of these tests loses what a real one may, so that the others do not pass for
// nothing.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/base/durable.h"
#include "runtime/base/whole_file.h"
#include "tests/power_loss/empty_folder.h"
#include "tests/power_loss/lost_power.h"

namespace trireme::power_loss {
namespace {

namespace fs = std::filesystem;

std::string ContentOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return "(none)";
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// What `name` may hold after all calls of `work` and the loss of power.
std::set<std::string> AfterAll(const std::function<void(const std::string& root)>& work,
                               const std::string& name) {
  const EmptyFolder root;
  const auto log = Record(root.path(), [&] { work(root.path()); });
  std::set<std::string> found;
  AfterEachLoss(log, {.random_disks = 40, .from = log.size()}, [&](const Loss& loss) {
    found.insert(ContentOf(loss.folder + "/" + name));
    return true;
  });
  return found;
}

void WriteFile(const std::string& path, const std::string& text, bool flush) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  REQUIRE(write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  if (flush) REQUIRE(fsync(fd) == 0);
  close(fd);
}

using Contents = std::set<std::string>;

TEST_CASE("bytes and names are lost unless both are flushed") {
  CHECK(AfterAll([](const std::string& root) { WriteFile(root + "/a", "new", false); }, "a") ==
        Contents{"(none)", "", "new", std::string(3, '\0')});
  CHECK(AfterAll([](const std::string& root) { WriteFile(root + "/a", "new", true); }, "a") ==
        Contents{"(none)", "new"});
  CHECK(AfterAll(
            [](const std::string& root) {
              WriteFile(root + "/a", "new", false);
              REQUIRE(base::SyncFolder(root).ok());
            },
            "a") == Contents{"", "new", std::string(3, '\0')});
  CHECK(AfterAll(
            [](const std::string& root) {
              WriteFile(root + "/a", "new", true);
              REQUIRE(base::SyncFolder(root).ok());
            },
            "a") == Contents{"new"});
}

TEST_CASE("a folder's flush keeps its names, not the name of the folder") {
  const auto make = [](const std::string& root, bool and_above) {
    REQUIRE(mkdir((root + "/f").c_str(), 0755) == 0);
    WriteFile(root + "/f/a", "new", true);
    REQUIRE(base::SyncFolder(root + "/f").ok());
    if (and_above) REQUIRE(base::SyncFolder(root).ok());
  };
  CHECK(AfterAll([&](const std::string& root) { make(root, false); }, "f/a") ==
        Contents{"(none)", "new"});
  CHECK(AfterAll([&](const std::string& root) { make(root, true); }, "f/a") == Contents{"new"});
}

TEST_CASE("a file that is replaced by a rename is the old or the new one, if that was flushed") {
  const auto replace = [](const std::string& root, bool flush) {
    REQUIRE(base::WriteWholeFile(root + "/a", "old").ok());
    WriteFile(root + "/b", "new", flush);
    REQUIRE(rename((root + "/b").c_str(), (root + "/a").c_str()) == 0);
  };
  CHECK(AfterAll([&](const std::string& root) { replace(root, true); }, "a") ==
        Contents{"old", "new"});
  CHECK(AfterAll([&](const std::string& root) { replace(root, false); }, "a") ==
        Contents{"old", "", "new", std::string(3, '\0')});
}

TEST_CASE("the standard library's calls, links, truncation and removal are seen") {
  const EmptyFolder root;
  const std::string& path = root.path();
  const auto log = Record(path, [&] {
    fs::create_directories(path + "/x/y");
    WriteFile(path + "/x/y/a", "0123456789", true);
    REQUIRE(link((path + "/x/y/a").c_str(), (path + "/x/y/b").c_str()) == 0);
    fs::resize_file(path + "/x/y/a", 4);  // by truncate(2), which no room calls
    fs::rename(path + "/x/y/b", path + "/x/y/c");
    fs::remove(path + "/x/y/a");
    WriteFile(path + "/gone", "1", true);
    fs::create_directories(path + "/tree/of/folders");
    WriteFile(path + "/tree/of/file", "2", true);
    fs::remove_all(path + "/tree");
    fs::remove(path + "/gone");
  });
  AfterEachLoss(log, {.random_disks = 0, .from = log.size()}, [&](const Loss& loss) {
    if (loss.how != "everything") return true;
    CHECK(ContentOf(loss.folder + "/x/y/c").size() >= 4);
    CHECK(ContentOf(loss.folder + "/x/y/a") == "(none)");
    CHECK(ContentOf(loss.folder + "/x/y/b") == "(none)");
    CHECK_FALSE(fs::exists(loss.folder + "/tree"));
    CHECK_FALSE(fs::exists(loss.folder + "/gone"));
    return true;
  });
}

TEST_CASE(
    "a whole file is there, old or new, at every loss of power, and with it all its flushes") {
  const EmptyFolder root;
  const auto log = Record(root.path(), [&] {
    for (const char* text : {"first", "second"}) {
      REQUIRE(base::WriteWholeFile(root.path() + "/a", text).ok());
      Mark(text);
    }
  });
  const auto look = [](const Loss& loss) {
    const std::string text = ContentOf(loss.folder + "/a");
    if (loss.marks.count("second") != 0) return text == "second";
    if (loss.marks.count("first") != 0) return text == "first" || text == "second";
    return text == "(none)" || text == "first";
  };
  CHECK(AfterEachLoss(log, {}, look));
  int flushes = 0;
  for (const Call& call : log) {
    if (call.kind != Call::Kind::kSyncFile && call.kind != Call::Kind::kSyncFolder) continue;
    ++flushes;
    LossOptions options;
    options.left_out = [&](const Call& each) { return &each == &call; };
    CHECK_FALSE(AfterEachLoss(log, options, look));
  }
  CHECK(flushes == 4);
}

}  // namespace
}  // namespace trireme::power_loss
