// Bounds of ranks' logs: what stays, where, and what readers see of the rest.
#include "coordinator/agent/rank_logs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "coordinator/run_files/job_log.h"
#include "tests/coordinator/run_files/hung_mount.h"
#include "tests/skip.h"
#include "tests/temporary_folder.h"

namespace trireme::agent {
namespace {

constexpr int64_t kPiece = kRankLogPieceBytes;

int64_t BytesOnDisk(const std::string& path) {
  struct stat about {};
  REQUIRE(stat(path.c_str(), &about) == 0);
  return about.st_blocks * 512;
}

}  // namespace

TEST_CASE("rank logs: the middle goes, offsets stay, readers skip it and say from where on") {
  const tests::TemporaryFolder folder;
  const std::string path = folder / "rank-0.log";
  const int rank = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  REQUIRE(rank >= 0);
  std::string whole;
  const auto say = [&](int64_t bytes) {
    std::string text;
    while (static_cast<int64_t>(text.size()) < bytes) {
      text += std::to_string(whole.size() + text.size()) + "\n";
    }
    REQUIRE(write(rank, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    whole += text;
  };
  // What a reader of all of it gets, and how many bytes are passed over.
  const auto read = [&](int64_t offset) {
    int64_t gone = 0;
    for (int pieces = 0; pieces < 10000; ++pieces) {
      const int64_t asked = offset;
      const auto text = coordinator::ReadLog(rank, offset, 100000);
      REQUIRE(text.ok());
      if (text->empty()) break;
      CHECK(text->size() <= 100000);
      // Not CHECK of the texts, which would be printed.
      const bool same = *text == whole.substr(static_cast<size_t>(offset), text->size());
      REQUIRE(same);
      gone += offset - asked;
      offset += static_cast<int64_t>(text->size());
    }
    CHECK(offset == static_cast<int64_t>(whole.size()));
    return gone;
  };
  say(5 * kPiece / 2);
  CHECK_FALSE(TrimRankLog(path, 2 * kPiece).value());
  CHECK(read(0) == 0);
  say(8 * kPiece);
  const auto trimmed = TrimRankLog(path, 2 * kPiece);
  if (absl::IsUnimplemented(trimmed.status())) {
    close(rank);
    TRIREME_SKIP("not here: a file system that gives parts of files back in /tmp");
  }
  CHECK(trimmed.value());
  CHECK(BytesOnDisk(path) < 5 * kPiece);
  const int64_t gone = read(0);
  CHECK(gone >= 7 * kPiece);
  CHECK(read(3 * kPiece) > 0);
  CHECK(read(static_cast<int64_t>(whole.size()) - 1000) == 0);
  // The rank goes on.
  say(3 * kPiece);
  CHECK(read(0) == gone);
  CHECK(TrimRankLog(path, 2 * kPiece).value());
  CHECK_FALSE(TrimRankLog(path, 2 * kPiece).value());
  CHECK(read(0) >= gone + 3 * kPiece);
  CHECK(BytesOnDisk(path) < 5 * kPiece);
  close(rank);
  CHECK_FALSE(TrimRankLog(folder / "none", 1).ok());
  REQUIRE(symlink(path.c_str(), (folder / "link").c_str()) == 0);
  CHECK_FALSE(TrimRankLog(folder / "link", 0).ok());
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  CHECK_FALSE(TrimRankLog(folder / "fifo", 0).value_or(false));
}

TEST_CASE("rank logs: a file system that hangs holds up no other's logs, nor the end") {
  if (!coordinator::MayHang()) {
    TRIREME_SKIP("not here: root with /dev/fuse, who may mount a file system that hangs");
  }
  const tests::TemporaryFolder folder, gone;
  const std::string path = folder / "rank-0.log";
  const int rank = open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string text(9 * kPiece, 'x');
  REQUIRE(write(rank, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  const coordinator::HungMount hung(gone / "");
  REQUIRE(hung.hangs());
  RankLogs logs(2 * kPiece);
  logs.Watch({gone / "rank-1.log", path});
  // Where parts of files are not given back, the end alone is seen.
  for (int i = 0; i < 100 && BytesOnDisk(path) > 5 * kPiece; ++i) usleep(100000);
  const int64_t left = BytesOnDisk(path);
  const bool trimmed = TrimRankLog(path, 2 * kPiece).ok();
  CHECK((!trimmed || left < 5 * kPiece));
  close(rank);
}

}  // namespace trireme::agent
