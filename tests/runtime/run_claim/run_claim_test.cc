// Which attempt counts, by what lies in the run folder.
#include "runtime/run_claim/run_claim.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

namespace trireme::run_claim {
namespace fs = std::filesystem;
namespace {

class RunFolder {
 public:
  RunFolder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~RunFolder() { fs::remove_all(path_); }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string claim() const { return path_ + "/claim.json"; }

 private:
  std::string path_ = "/tmp/trireme-claim-XXXXXX";
};

}  // namespace

TEST_CASE("run claim: what is written is read, and a newer one takes its place") {
  const RunFolder run;
  for (const uint32_t attempt : {1U, 4294967295U}) {
    REQUIRE(WriteRunClaim(run.path(), {7, attempt, "store"}).ok());
    const auto claim = ReadRunClaim(run.path());
    REQUIRE(claim.ok());
    CHECK(claim->job == 7);
    CHECK(claim->attempt == attempt);
    CHECK(claim->store == "store");
  }
  CHECK(std::distance(fs::directory_iterator(run.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("run claim: an attempt publishes unless a newer one counts") {
  const RunFolder run;
  CHECK(CheckRunClaim(run.path(), 3).ok());  // nobody claims it
  CHECK(CheckRunClaim(run.path() + "/none", 3).ok());
  REQUIRE(WriteRunClaim(run.path(), {7, 3, "store"}).ok());
  CHECK(CheckRunClaim(run.path(), 3).ok());
  CHECK(CheckRunClaim(run.path(), 4).ok());
  const absl::Status replaced = CheckRunClaim(run.path(), 2);
  CHECK(absl::IsFailedPrecondition(replaced));
  CHECK(replaced.message().find("attempt 3 of the job has replaced attempt 2") !=
        std::string::npos);
}

TEST_CASE("run claim: what is no claim says neither yes nor no, and nobody waits for it") {
  const RunFolder run;
  const auto check = [&] {
    const absl::Status read = ReadRunClaim(run.path()).status();
    INFO(read);
    CHECK(absl::IsDataLoss(read));
    CHECK(absl::IsDataLoss(CheckRunClaim(run.path(), 1)));
    fs::remove_all(run.claim());
  };
  for (const char* text : {"", "{", "[]", R"({"job": 7, "attempt": "3", "store": ""})",
                           R"({"job": 7, "store": ""})"}) {
    std::ofstream(run.claim()) << text;
    check();
  }
  fs::create_directory(run.claim());
  check();
  REQUIRE(mkfifo(run.claim().c_str(), 0600) == 0);
  check();
  std::ofstream(run.path() + "/other") << R"({"job": 7, "attempt": 3, "store": ""})";
  fs::create_symlink("other", run.claim());
  check();
}

}  // namespace trireme::run_claim
