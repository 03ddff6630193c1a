// The names of an attempt's temporary folders: nobody else can make them first, all keepers of an
// attempt have the same, and attempts that were launched before they had keys keep theirs.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "coordinator/keeper/attempt_folder.h"
#include "runtime/base/exit_code.h"
#include "tests/coordinator/keeper/keeper_bench.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUntilGo = "echo up >> $run/up; while [ ! -e $run/go ]; do sleep 0.01; done";

// What stands in the way of a folder of ours, gone with this.
class Squatter {
 public:
  explicit Squatter(const std::string& name) : path_("/tmp/" + name) {
    std::ofstream(path_) << "x";
  }
  ~Squatter() { fs::remove(path_); }
  Squatter(const Squatter&) = delete;
  Squatter& operator=(const Squatter&) = delete;
  bool Stays() const { return fs::is_regular_file(path_); }

 private:
  const std::string path_;
};

TEST_CASE(
    "temporary names: who takes the name that anybody can tell keeps no attempt from its work") {
  KeeperBench bench("exit 0");
  const bool keyed = GENERATE(true, false);
  if (!keyed) bench.key = "";
  const Squatter squatter(AttemptFolder(bench.Attempt(1)).unique_name());
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  if (keyed) {
    CHECK(end.exit_code() == 0);
    CHECK(squatter.Stays());
    bench.CheckNothingLeft(1);
  } else {  // as ever: refused, and not taken over
    CHECK_THAT(end.failure().headline(), Catch::Contains("cannot make /tmp/trireme-7-1-"));
  }
}

TEST_CASE("temporary names: a folder that others may write to, or a link, is not used") {
  KeeperBench bench("exit 0");
  const AttemptFolder folder(bench.Attempt(1));
  const std::string name = folder.temporary_folders().session;
  const bool is_link = GENERATE(true, false);
  if (is_link) {
    fs::create_directory_symlink(bench.root, name);
  } else {
    fs::create_directory(name);
    fs::permissions(name, fs::perms(GENERATE(0770, 0707, 01777)));
  }
  CHECK_FALSE(folder.MakeTemporaryFolders().ok());
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  CHECK_THAT(bench.AwaitEnd(*keeper, 1).failure().headline(), Catch::Contains("cannot make /tmp/"));
  fs::remove_all(name);
}

TEST_CASE(
    "temporary names: ranks are told them, they are alike on all nodes and tell no other name") {
  KeeperBench bench("echo \"$@\" > $run/arguments; exit 0");
  const std::string session = "/tmp/trireme-7-1-" + bench.key;
  v1::DesiredAttempt attempt = bench.Attempt(1);
  CHECK(AttemptFolder(attempt).link_socket() == session + "/link");
  CHECK(AttemptFolder(attempt).temporary_folders().shared_memory ==
        "/dev/shm/trireme-7-1-" + bench.key);
  CHECK_THAT(AttemptFolder(attempt).unique_name(), !Catch::Contains(bench.key));
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({attempt}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
  CHECK_THAT(Slurp(bench.run + "/arguments"),
             Catch::Contains(" --link unix:" + session + "/link "));
  bench.CheckNothingLeft(1);
}

TEST_CASE("temporary names: a keeper that adopts goes on with those of the launch") {
  KeeperBench bench(kUntilGo);
  const std::string drawn = bench.key;
  const bool before = GENERATE(false, true);  // launched by a coordinator that knew no keys
  if (before) bench.key = "";
  const AttemptFolder folder(bench.Attempt(1));
  {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
    bench.Await(*keeper, 1, [&](const auto&) { return bench.Lines("up") == 1; });
  }
  const auto keeper = bench.Open();
  // What is said of it now does not change where its ranks dial.
  v1::DesiredAttempt now = bench.Attempt(1);
  now.mutable_launch()->set_key(before ? drawn : "");
  keeper->SetDesired(bench.Desired({now}));
  keeper->Poll();
  REQUIRE(keeper->seats().size() == 1);
  CHECK(keeper->seats()[0].socket == folder.link_socket());
  CHECK(fs::exists(folder.temporary_folders().session));
  bench.Touch("go");
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
  bench.CheckNothingLeft(1);
}

TEST_CASE("temporary names: a key that is none is refused, and leads nowhere") {
  KeeperBench bench("touch $run/ran; exit 0");
  const std::string good = bench.key;
  bench.key =
      GENERATE_COPY(as<std::string>(), "../../etc/trireme", "0123456789abcde", "0123456789ABCDEF",
                    "0123456789abcde/", "0123456789abcdef\n", std::string(65, 'a'), good + ".");
  CAPTURE(bench.key);
  const AttemptFolder folder(bench.Attempt(1));
  CHECK(folder.temporary_folders().session == "/tmp/" + folder.unique_name());
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK(end.exit_code() == base::kBadInput);
  CHECK_THAT(end.failure().headline(), Catch::Contains("16 to 64 hex digits"));
  CHECK_FALSE(fs::exists(bench.run + "/ran"));
}

}  // namespace
}  // namespace trireme::keeper
