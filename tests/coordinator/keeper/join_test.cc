// mpirun's daemon of another node's launch is in the attempt's control group here, and nothing of
// it outlives the attempt; where that cannot be, its helper is told so, and starts it itself.
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "coordinator/control_group/group_files.h"
#include "coordinator/keeper/attempt_group.h"
#include "coordinator/keeper/join_doors.h"
#include "coordinator/launcher/join_attempt.h"
#include "coordinator/launcher/join_request.h"
#include "coordinator/launcher/process_identity.h"
#include "tests/coordinator/control_group/fake_groups.h"
#include "tests/coordinator/control_group/real_groups.h"
#include "tests/coordinator/keeper/keeper_bench.h"
#include "tests/skip.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;
using control_group::RealGroups;
using launcher::JoinAnswer;
using std::chrono::milliseconds;

// A node whose ranks mpirun of another one starts. Its agent's loop runs while a test waits.
class JoinBench {
 public:
  JoinBench() : bench("echo up >> $run/never\n") {
    bench.options.warn = [this](const std::string& words) { warned += words + "\n"; };
  }
  void Give(const std::string& root) {
    auto groups = control_group::AttemptGroups::Open(bench.options.state_folder, root);
    REQUIRE(groups.ok());
    bench.options.control_groups = *std::move(groups);
  }
  v1::DesiredAttempt Attempt(v1::AttemptDesiredState desired_state = v1::ATTEMPT_RUN) const {
    v1::DesiredAttempt attempt = bench.Attempt(1, desired_state);
    v1::NodeAllocation* here = attempt.mutable_launch()->add_allocation();
    *here = attempt.launch().allocation(0);
    here->set_ranks(3);
    attempt.mutable_launch()->mutable_allocation(0)->set_node("n0");
    return attempt;
  }
  void Start(v1::AttemptDesiredState desired_state = v1::ATTEMPT_RUN) {
    keeper = bench.Open();
    keeper->SetDesired(bench.Desired({Attempt(desired_state)}));
  }
  std::string Session() const { return AttemptFolder(Attempt()).temporary_folders().session; }
  std::string Group() const { return AttemptGroup(bench.options, Attempt()).folder(); }

  v1::NodeReport Turn() {
    v1::NodeReport report = keeper->Poll();
    CHECK(doors->Serve(keeper->seats()).ok());
    std::this_thread::sleep_for(milliseconds(5));
    return report;
  }
  // 20 s at least.
  bool Until(const std::function<bool()>& done) {
    for (int i = 0; i < 4000; ++i) {
      if (done()) return true;
      Turn();
    }
    return false;
  }
  JoinAnswer Join(const std::string& script, milliseconds limit = launcher::kJoinLimit) {
    auto answer = std::async(std::launch::async, [this, script, limit] {
      return launcher::RunJoined(Session(), {"/bin/sh", "-c", script}, limit);
    });
    REQUIRE(Until([&] { return answer.wait_for(milliseconds(0)) == std::future_status::ready; }));
    return answer.get();
  }
  bool Ended() {
    const v1::NodeReport report = Turn();
    return report.attempts(0).phase() == v1::ATTEMPT_ENDED;
  }

  KeeperBench bench;
  std::unique_ptr<Keeper> keeper;
  std::unique_ptr<JoinDoors> doors = std::make_unique<JoinDoors>();
  std::string warned;
};

bool LivesStill(int pid) {
  const launcher::ProcessStat stat = launcher::LookAtProcess(pid);
  return stat.parent >= 0 && stat.state != 'Z';
}

// As mpirun's daemon: it leaves its session, and a rank of it hides altogether. The bench has set
// PATH aside.
std::string Leaves(const std::string& folder) {
  return "PATH=/usr/bin:/bin; export PATH; cat /proc/self/cgroup > " + folder +
         "/group; env -i PATH=/usr/bin:/bin setsid sh -c 'trap \"\" TERM HUP; echo $$ > " + folder +
         "/hidden.new; mv " + folder + "/hidden.new " + folder +
         "/hidden; while true; do sleep 1; done' </dev/null >/dev/null 2>&1 & while [ ! -e " +
         folder + "/hidden ]; do sleep 0.01; done; exit 7";
}

TEST_CASE("join: what another node's mpirun starts here is of the attempt's group [real]") {
  const auto real = RealGroups::Make();
  if (!real) TRIREME_SKIP(RealGroups::kNone);
  JoinBench here;
  here.Give(real->root());
  here.Start();
  const JoinAnswer answer = here.Join(Leaves(here.bench.run));
  CHECK((answer.exit_code == 7 && answer.why_not.empty()));
  CHECK(Slurp(here.bench.run + "/group").find("/trireme-7-1-") != std::string::npos);
  const int hidden = std::stoi(Slurp(here.bench.run + "/hidden"));
  CHECK(LivesStill(hidden));
  SECTION("its agent kills what hides when the attempt is to end") {}
  SECTION("so does the next agent") {
    here.doors = std::make_unique<JoinDoors>();
    here.keeper.reset();
    here.keeper = here.bench.Open();
    CHECK(LivesStill(hidden));
  }
  here.keeper->SetDesired(here.bench.Desired({here.Attempt(v1::ATTEMPT_KILL)}));
  CHECK(here.Until([&] { return here.Ended(); }));
  CHECK_FALSE(LivesStill(hidden));
  CHECK_FALSE(fs::exists(here.Group()));
  CHECK_FALSE(fs::exists(here.Session()));
  CHECK_FALSE(fs::exists(here.bench.run + "/never"));
}

TEST_CASE("join: what hides is gone when the launching node has seen the attempt's end [real]") {
  const auto real = RealGroups::Make();
  if (!real) TRIREME_SKIP(RealGroups::kNone);
  JoinBench here;
  here.Give(real->root());
  here.Start();
  CHECK(here.Join(Leaves(here.bench.run)).exit_code == 7);
  const int hidden = std::stoi(Slurp(here.bench.run + "/hidden"));
  // As the other node's keeper and guard make them.
  REQUIRE(AttemptFolder(here.Attempt()).Make().ok());
  here.Turn();
  CHECK(LivesStill(hidden));
  std::ofstream(here.bench.Folder(1) + "/exit") << "{\"exit_code\": 0}\n";
  CHECK(here.Until([&] { return here.Ended(); }));
  CHECK_FALSE(LivesStill(hidden));
  CHECK_FALSE(fs::exists(here.Group()));
}

TEST_CASE("join: a helper that hangs up has started nothing, or ends what it has started [real]") {
  const auto real = RealGroups::Make();
  if (!real) TRIREME_SKIP(RealGroups::kNone);
  JoinBench here;
  here.Give(real->root());
  here.Start();
  REQUIRE(here.Until([&] { return fs::exists(launcher::JoinSocket(here.Session())); }));
  const bool go = GENERATE(false, true);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = launcher::JoinSocket(here.Session());
  std::memcpy(address.sun_path, path.c_str(), path.size());
  REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  const std::string started = here.bench.run + "/started";
  launcher::JoinRequest request = launcher::RequestOfThisProcess(
      {"/bin/sh", "-c",
       "echo $(umask) $(pwd) $A $(ulimit -c) > " + started + "; exec /bin/sleep 1000"});
  request.umask = 027;
  request.environment = {"A=b"};
  request.working_folder = "/usr";
  request.limits = {{RLIMIT_CORE, {512, 512}}};
  const int64_t until_ms = launcher::JoinClockMs() + 10000;
  REQUIRE(launcher::SendRequest(fd, request, until_ms).ok());
  auto word = std::async(std::launch::async, [&] { return launcher::ReceiveByte(fd, until_ms); });
  REQUIRE(here.Until([&] { return word.wait_for(milliseconds(0)) == std::future_status::ready; }));
  CHECK(word.get().value_or(0) == launcher::kJoinReady);
  std::this_thread::sleep_for(milliseconds(200));
  CHECK_FALSE(fs::exists(started));
  if (go) {
    REQUIRE(launcher::SendByte(fd, launcher::kJoinGo, until_ms).ok());
    REQUIRE(here.Until([&] { return !Slurp(started).empty(); }));
    CHECK(Slurp(started) == "0027 /usr b 1\n");  // blocks of 512 bytes
    CHECK(control_group::IsPopulated(here.Group()));
  }
  close(fd);
  CHECK(here.Until([&] { return !control_group::IsPopulated(here.Group()); }));
  CHECK(fs::exists(started) == go);
}

TEST_CASE("join: without control groups here the helper is told at once, and starts it itself") {
  JoinBench here;
  here.Start();
  // Shorter than a group is waited for.
  const JoinAnswer answer =
      here.Join("echo up > " + here.bench.run + "/started", launcher::kJoinLimit * 2 / 5);
  CHECK((!answer.exit_code && answer.why_not.empty()));
  CHECK_FALSE(fs::exists(here.bench.run + "/started"));
}

TEST_CASE("join: a group that cannot be made is waited for so long and no longer [real]") {
  const auto real = RealGroups::Make();
  if (!real) TRIREME_SKIP(RealGroups::kNone);
  JoinBench here;
  here.Give(real->root());
  std::ofstream(real->folder() + "/cgroup.max.descendants") << "1\n";  // there is the agent's leaf
  here.Start();
  const JoinAnswer answer = here.Join("echo up > " + here.bench.run + "/started");
  CHECK((!answer.exit_code && answer.why_not.empty()));
  CHECK_FALSE(fs::exists(here.bench.run + "/started"));
  CHECK(here.warned.find("is not bounded by the kernel") != std::string::npos);
}

TEST_CASE("join: nothing is started of an attempt that is to end, or started itself") {
  JoinBench here;
  here.Start();
  REQUIRE(here.Until([&] { return fs::exists(launcher::JoinSocket(here.Session())); }));
  auto answer = std::async(std::launch::async, [&] {
    return launcher::RunJoined(here.Session(), {"/bin/sh", "-c", "exit 0"});
  });
  auto seats = here.keeper->seats();
  REQUIRE(seats.size() == 1);
  seats[0].wanted = false;
  while (answer.wait_for(milliseconds(5)) != std::future_status::ready) {
    CHECK(here.doors->Serve(seats).ok());
  }
  CHECK(answer.get().exit_code == 137);
}

TEST_CASE("join: where no agent answers the helper starts it itself after a while, and says why") {
  JoinBench here;  // its loop does not run
  const JoinAnswer nobody =
      launcher::RunJoined(here.Session(), {"/bin/sh", "-c", "exit 7"}, milliseconds(200));
  CHECK((!nobody.exit_code && nobody.why_not.find(here.Session()) != std::string::npos));
  here.Start();
  REQUIRE(here.Until([&] { return fs::exists(launcher::JoinSocket(here.Session())); }));
  const JoinAnswer silent =
      launcher::RunJoined(here.Session(), {"/bin/sh", "-c", "exit 7"}, milliseconds(200));
  CHECK((!silent.exit_code && silent.why_not.find("no answer in time") != std::string::npos));
}

TEST_CASE(
    "join: bounds of another node's launch are of the ranks here, and its daemon outlives "
    "a kill for memory") {
  control_group::FakeGroups fake;
  JoinBench here;
  here.Give(fake.path());
  const std::string group = here.Group();
  fake.Group(group.substr(fake.path().size() + std::string(control_group::kUnit).size()));
  here.Start();
  REQUIRE(here.Until([&] { return Slurp(group + "/cpuset.cpus") == "0-2"; }));
  CHECK(Slurp(group + "/pids.max") == std::to_string(1024 + 3 * (1 + 256)));
  CHECK(Slurp(group + "/memory.oom.group") != "1");
  CHECK_FALSE(fs::exists(here.bench.Folder(1) + "/cpus"));  // the launching node's
  std::ofstream(group + "/memory.events") << "oom 1\noom_kill 2\n";
  const auto told = [&] { return here.warned.find("killed 2 of its processes"); };
  REQUIRE(here.Until([&] { return told() != std::string::npos; }));
  here.Turn();
  CHECK(here.warned.find("killed 2 of its processes", told() + 1) == std::string::npos);
  // The folder is of the launching node, whose own kills are told there.
  REQUIRE(AttemptFolder(here.Attempt()).Make().ok());
  here.keeper->SetDesired(here.bench.Desired({here.Attempt(v1::ATTEMPT_KILL)}));
  CHECK(here.Until([&] { return here.Ended(); }));
  CHECK_FALSE(fs::exists(here.bench.Folder(1) + "/memory.events"));
}

}  // namespace
}  // namespace trireme::keeper
