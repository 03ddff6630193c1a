// An attempt is a control group: nothing of it outlives it, whatever it did to its environment, and
// an end for want of memory is told as one.
#include <linux/magic.h>
#include <signal.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>

#include "coordinator/control_group/group_files.h"
#include "coordinator/keeper/attempt_end.h"
#include "coordinator/keeper/attempt_group.h"
#include "coordinator/launcher/process_identity.h"
#include "tests/coordinator/control_group/fake_groups.h"
#include "tests/coordinator/control_group/real_groups.h"
#include "tests/coordinator/keeper/keeper_bench.h"
#include "tests/skip.h"

namespace trireme::keeper {
namespace {

namespace fs = std::filesystem;
using control_group::RealGroups;

// Leaves a process in a session of its own, without an environment, that obeys nothing else.
const std::string kHides =
    "env -i setsid sh -c \"trap '' TERM HUP USR1; echo \\$\\$ > $run/hidden.new; mv "
    "$run/hidden.new $run/hidden; while true; do sleep 1; done\" &\n"
    "while [ ! -e $run/hidden ]; do sleep 0.01; done\necho up >> $run/up\n"
    "while [ ! -e $run/end ]; do sleep 0.01; done\n";

void Give(KeeperBench& bench, const RealGroups& real) {
  auto groups = control_group::AttemptGroups::Open(bench.options.state_folder, real.root());
  REQUIRE(groups.ok());
  bench.options.control_groups = *std::move(groups);
}

std::string GroupOf(const KeeperBench& bench) {
  return bench.options.control_groups->FolderOf(AttemptFolder(bench.Attempt(1)).unique_name());
}

// With the group that the kernel would make.
void GiveFake(KeeperBench& bench, control_group::FakeGroups& fake) {
  auto groups = control_group::AttemptGroups::Open(bench.options.state_folder, fake.path());
  REQUIRE(groups.ok());
  bench.options.control_groups = *std::move(groups);
  fake.Group(GroupOf(bench).substr(fake.path().size() + std::string(control_group::kUnit).size()));
}

int Hidden(const KeeperBench& bench) { return std::stoi(Slurp(bench.run + "/hidden")); }

bool Lives(int pid) {
  const launcher::ProcessStat stat = launcher::LookAtProcess(pid);
  return stat.parent >= 0 && stat.state != 'Z';
}

TEST_CASE("a guard is outside of its attempt's group, which is gone with the verdict [real]") {
  const auto real = RealGroups::Make();
  if (!real) TRIREME_SKIP(RealGroups::kNone);
  KeeperBench bench(kHides);
  Give(bench, *real);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return fs::exists(bench.run + "/up"); });
  const std::string procs = Slurp(GroupOf(bench) + "/cgroup.procs");
  CHECK(procs.find(std::to_string(Hidden(bench)) + "\n") != std::string::npos);
  CHECK(procs.find(std::to_string(bench.Guard(1).pid) + "\n") == std::string::npos);
  bench.Touch("end");
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
  CHECK_FALSE(Lives(Hidden(bench)));
  CHECK_FALSE(fs::exists(GroupOf(bench)));
  bench.CheckNothingLeft(1);
}

TEST_CASE("what hides from its guard and outlives it is killed by the next keeper [real]") {
  const auto real = RealGroups::Make();
  if (!real) TRIREME_SKIP(RealGroups::kNone);
  KeeperBench bench(kHides);
  Give(bench, *real);
  auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return fs::exists(bench.run + "/up"); });
  keeper.reset();
  launcher::SendSignal(bench.Guard(1), SIGKILL);
  keeper = bench.Open();
  CHECK(Lives(Hidden(bench)));  // of a record it is the attempt's to end
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 137);
  CHECK_FALSE(Lives(Hidden(bench)));
  CHECK_FALSE(fs::exists(GroupOf(bench)));
}

TEST_CASE("a group without a record ends when a keeper is opened [real]") {
  const auto real = RealGroups::Make();
  if (!real) TRIREME_SKIP(RealGroups::kNone);
  KeeperBench bench(kHides);
  Give(bench, *real);
  auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return fs::exists(bench.run + "/up"); });
  keeper.reset();
  launcher::SendSignal(bench.Guard(1), SIGKILL);
  fs::remove_all(bench.options.state_folder + "/attempts");
  keeper = bench.Open();
  CHECK_FALSE(Lives(Hidden(bench)));
  CHECK_FALSE(fs::exists(GroupOf(bench)));
}

TEST_CASE("a group that cannot be made or entered is done without [real]") {
  const auto real = RealGroups::Make();
  if (!real) TRIREME_SKIP(RealGroups::kNone);
  KeeperBench bench("exit 0\n");
  Give(bench, *real);
  std::string warned;
  bench.options.warn = [&](const std::string& words) { warned += words; };
  const auto keeper = bench.Open();
  std::ofstream(real->folder() + "/cgroup.max.descendants") << "1\n";  // there is the agent's leaf
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
  CHECK(warned.find("is not bounded by the kernel") != std::string::npos);
  CHECK(warned.find("trireme-7-1-") != std::string::npos);
}

TEST_CASE("ranks that end with us, and Slurm's, are in no group [real]") {
  const auto real = RealGroups::Make();
  if (!real) TRIREME_SKIP(RealGroups::kNone);
  KeeperBench bench("cat /proc/self/cgroup > $run/group; exit 0\n");
  Give(bench, *real);
  const auto group = [&](uint32_t attempt) {
    const auto keeper = bench.Open();
    keeper->SetDesired(bench.Desired({bench.Attempt(attempt)}));
    CHECK(bench.AwaitEnd(*keeper, attempt).exit_code() == 0);
    return Slurp(bench.run + "/group");
  };
  CHECK(group(1).find("/trireme-7-1-") != std::string::npos);
  bench.options.ranks_end_with_us = true;
  CHECK(group(2).find("/trireme-7-2-") == std::string::npos);
}

TEST_CASE("bounds leave room above what is promised, and none is set where nothing is known") {
  const KeeperBench bench("");
  v1::DesiredAttempt attempt = bench.Attempt(1);
  v1::LaunchSpec& launch = *attempt.mutable_launch();
  launch.mutable_allocation(0)->set_ranks(4);
  v1::NodeAllocation* other = launch.add_allocation();
  other->set_node("n2");
  other->set_ranks(100);
  CHECK(BoundsOf(launch, "n1").memory_bytes == 0);
  CHECK(BoundsOf(launch, "n1").tasks == 1024 + 4 * (1 + 256));
  CHECK(CpusOf(launch, "n1") == 4);
  launch.set_threads_per_rank(3);
  CHECK((CpusOf(launch, "n1") == 12 && BoundsOf(launch, "n1").tasks == 1024 + 4 * (3 + 256)));
  launch.set_threads_per_rank(1);
  launch.set_memory_bytes_per_rank(1000);
  CHECK(BoundsOf(launch, "n1").memory_bytes == 4 * 1250 + (uint64_t{1} << 30));
  launch.mutable_job()->mutable_runtime()->set_threads(30);
  CHECK(BoundsOf(launch, "n1").tasks == 1024 + 4 * (30 + 256));
}

TEST_CASE("an attempt is to have a CPU for each thread, and for each that was asked for") {
  const KeeperBench bench("");
  v1::DesiredAttempt attempt = bench.Attempt(1);
  v1::LaunchSpec& launch = *attempt.mutable_launch();
  launch.mutable_allocation(0)->set_ranks(4);
  launch.set_threads_per_rank(3);
  v1::JobSpec& job = *launch.mutable_job();
  job.mutable_runtime()->set_threads(2);
  CHECK(CpusOf(launch, "n1") == 12);
  job.mutable_runtime()->set_threads(5);
  CHECK(CpusOf(launch, "n1") == 20);
  // Of ranks with GPUs nobody knows, unless it is said: the one CPU that they are granted is for
  // the count.
  launch.set_threads_per_rank(1);
  job.mutable_resources()->set_gpus_per_rank(1);
  CHECK(CpusOf(launch, "n1") == 20);
  job.mutable_runtime()->set_threads(0);
  CHECK(CpusOf(launch, "n1") == 0);
  job.mutable_resources()->set_cpus_per_rank(1);
  CHECK(CpusOf(launch, "n1") == 4);
}

TEST_CASE("where files of a job are memory its memory is not bounded") {
  struct statfs about {};
  if (statfs("/dev/shm", &about) != 0 || about.f_type != TMPFS_MAGIC) {
    TRIREME_SKIP("not here: a tmpfs at /dev/shm");
  }
  const tests::TemporaryFolder folder;
  v1::LaunchSpec launch;
  v1::NodeAllocation* part = launch.add_allocation();
  part->set_node("n1");
  part->set_ranks(1);
  launch.set_memory_bytes_per_rank(1000);
  launch.set_run_folder("/proc");  // on no tmpfs
  CHECK(BoundsHere(launch, "n1").memory_bytes > 0);
  SECTION("run folder") { launch.set_run_folder("/dev/shm"); }
  SECTION("a folder that is not there yet") {
    launch.set_run_folder("/dev/shm/trireme-none/runs/7");
  }
  SECTION("a folder that cannot be known") {
    launch.set_run_folder("/" + std::string(300, 'x'));  // ENAMETOOLONG, also for root
  }
  SECTION("a link that leads to nothing yet") {
    fs::create_symlink("/dev/shm/trireme-none", folder / "run");
    launch.set_run_folder(folder / "run");
  }
  SECTION("checkpoints") { launch.mutable_job()->mutable_checkpoint()->set_directory("/dev/shm"); }
  SECTION("offload") { launch.mutable_job()->mutable_offload()->set_directory("/dev/shm"); }
  CHECK(BoundsHere(launch, "n1").memory_bytes == 0);
  CHECK(BoundsHere(launch, "n1").tasks > 0);
}

TEST_CASE("where the group's pages are not written back for it, there is room for a checkpoint") {
  CHECK(PagesOn(EXT4_SUPER_MAGIC) == Pages::kWrittenBack);
  CHECK(PagesOn(XFS_SUPER_MAGIC) == Pages::kWrittenBack);
  CHECK(PagesOn(static_cast<int32_t>(BTRFS_SUPER_MAGIC)) == Pages::kWrittenBack);  // as on 32 bits
  CHECK(PagesOn(NFS_SUPER_MAGIC) == Pages::kHeldUp);
  CHECK(PagesOn(0x0BD00BD0) == Pages::kHeldUp);  // Lustre
  CHECK(PagesOn(RAMFS_MAGIC) == Pages::kStay);
  v1::LaunchSpec launch;
  v1::NodeAllocation* part = launch.add_allocation();
  part->set_node("n1");
  part->set_ranks(3);
  launch.set_memory_bytes_per_rank(1000);
  const uint64_t bytes = BoundsOf(launch, "n1").memory_bytes;
  CHECK(BoundsHere(launch, "n1").memory_bytes == bytes);
  launch.mutable_job()->mutable_checkpoint()->set_directory("/proc");  // is none of the first
  CHECK(BoundsHere(launch, "n1").memory_bytes == bytes + 3000);
  // What is on the disk alone is saved too, and in no promise.
  launch.mutable_job()->mutable_offload()->set_activations("file");
  CHECK(BoundsHere(launch, "n1").memory_bytes == 0);
  launch.mutable_job()->mutable_checkpoint()->clear_directory();
  CHECK(BoundsHere(launch, "n1").memory_bytes == bytes);
}

v1::Failure Told(const KeeperBench& bench, const std::string& events, int exit_code, bool own) {
  v1::LaunchSpec launch = bench.Attempt(1).launch();
  launch.set_memory_bytes_per_rank(uint64_t{2} << 30);  // a limit may have been set otherwise since
  std::ofstream(bench.run + "/memory.events") << events;
  v1::Failure failure;
  failure.set_exit_code(exit_code);
  failure.set_headline("x");
  failure.set_evidence("log: x");
  failure.set_next_action("y");
  NameMemoryKill(bench.run, launch, own, failure);
  return failure;
}

TEST_CASE("an end for want of memory is told as one, with whose limit it was") {
  const KeeperBench bench("");
  const std::string limit = "memory.max " + std::to_string(uint64_t{12} << 30) + "\n";
  const v1::Failure own = Told(bench, "oom 1\noom_kill 3\n" + limit, 137, false);
  CHECK(own.headline() ==
        "the kernel killed the ranks of the attempt on node n1: out of memory (its limit there, "
        "memory.max of 12.0 GiB, or one within it)");
  CHECK(own.evidence() == "x\nlog: x");
  CHECK(own.next_action().find("docs/operations/memory.md") != std::string::npos);
  // Of a guard of before, which kept no limit; or one that it had made within its own was full.
  const v1::Failure unsaid = Told(bench, "oom 1\noom_kill 3\n", 137, false);
  CHECK(unsaid.headline() ==
        "the kernel killed the ranks of the attempt on node n1: out of memory (the limit of its "
        "control group there, or of one within it)");
  CHECK(unsaid.next_action() == own.next_action());
  const v1::Failure others = Told(bench, "oom 0\noom_kill 3\n" + limit, 137, false);
  CHECK(others.headline().find("the node, or a control group above") != std::string::npos);
  CHECK(Told(bench, "oom 4\noom_kill 0\n", 137, false).headline() == "x");
}

TEST_CASE("what a rank says of itself stays the cause beside a kill, unless all were killed") {
  const KeeperBench bench("");
  const v1::Failure said = Told(bench, "oom 1\noom_kill 1\n", 3, true);
  CHECK((said.headline() == "x" && said.next_action() == "y"));
  CHECK(said.evidence() == "log: x\nthe kernel killed processes of the attempt too: out of memory");
  CHECK(Told(bench, "oom 1\noom_kill 1\n", 137, true).headline() != "x");
  CHECK(Told(bench, "oom 1\noom_kill 1\n", 3, false).headline() != "x");
}

TEST_CASE("a guard that vanished when its end was asked for is no matter of memory") {
  const KeeperBench bench("");
  std::ofstream(bench.run + "/memory.events") << "oom 0\noom_kill 3\n";
  const v1::LaunchSpec launch = bench.Attempt(1).launch();
  CHECK(VanishedFailure(bench.run, launch, true).headline().find("the guard") == 0);
  CHECK(VanishedFailure(bench.run, launch, false).headline().find("the kernel killed") == 0);
}

TEST_CASE("where the kernel has killed the guard too, its attempt's end is named all the same") {
  control_group::FakeGroups fake;
  KeeperBench bench("echo up >> $run/up\nwhile true; do sleep 0.01; done\n");
  GiveFake(bench, fake);
  const bool asked = GENERATE(false, true);
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({bench.Attempt(1)}));
  bench.Await(*keeper, 1, [&](const auto&) { return fs::exists(bench.run + "/up"); });
  std::ofstream(GroupOf(bench) + "/memory.events") << "oom 0\noom_kill 2\n";
  if (asked) {
    keeper->SetDesired(bench.Desired({bench.Attempt(1, v1::ATTEMPT_KILL)}));
  } else {
    launcher::SendSignal(bench.Guard(1), SIGKILL);
  }
  const v1::Failure failure = bench.AwaitEnd(*keeper, 1).failure();
  const bool named = failure.headline().find("is out of memory") != std::string::npos;
  CHECK(named == !asked);
  if (!asked) CHECK(failure.evidence().find("the guard of the ranks vanished") == 0);
}

TEST_CASE("a kill for memory in the group of another node's launch is reported, with its limit") {
  control_group::FakeGroups fake;
  KeeperBench bench("");
  GiveFake(bench, fake);
  std::string warned;
  bench.options.warn = [&](const std::string& words) { warned += words + "\n"; };
  v1::DesiredAttempt attempt = bench.Attempt(1);
  // Another node launches it.
  v1::NodeAllocation* part = attempt.mutable_launch()->add_allocation();
  *part = attempt.launch().allocation(0);
  attempt.mutable_launch()->mutable_allocation(0)->set_node("n0");
  auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({attempt}));
  CHECK_FALSE(keeper->Poll().attempts(0).has_failure());
  const bool limit = GENERATE(true, false), at_its_end = GENERATE(false, true);
  CAPTURE(limit, at_its_end);
  const std::string headline =
      limit ? "the kernel killed ranks of the attempt on node n1: out of memory (its limit there, "
              "memory.max of 12.0 GiB, or one within it)"
            : "the kernel killed ranks of the attempt on node n1: the node, or a control group "
              "above the attempt's, is out of memory";
  // The end of an agent that was started anew meanwhile is its first look.
  if (at_its_end) keeper = nullptr;
  if (limit) std::ofstream(GroupOf(bench) + "/memory.max") << (uint64_t{12} << 30) << "\n";
  std::ofstream(GroupOf(bench) + "/memory.events")
      << (limit ? "oom 1\n" : "oom 0\n") << "oom_kill 1\n";
  if (at_its_end) {
    keeper = bench.Open();
  } else {
    const v1::AttemptReport running =
        bench.Await(*keeper, 1, [](const auto& report) { return report.has_failure(); });
    CHECK(running.phase() != v1::ATTEMPT_ENDED);
    CHECK(running.failure().headline() == headline);
  }
  attempt.set_desired_state(v1::ATTEMPT_KILL);
  keeper->SetDesired(bench.Desired({attempt}));
  const v1::AttemptReport end = bench.AwaitEnd(*keeper, 1);
  CHECK_FALSE(end.launcher());
  CHECK(end.failure().headline() == headline);
  CHECK(end.failure().next_action().find("docs/operations/memory.md") != std::string::npos);
  CHECK(warned.find("the kernel killed 1 of its processes here") != std::string::npos);
}

TEST_CASE(
    "an attempt has as many CPUs of its own as it was granted, and the same after a restart") {
  control_group::FakeGroups fake;
  KeeperBench bench("echo up >> $run/up\nwhile [ ! -e $run/end ]; do sleep 0.01; done\n");
  GiveFake(bench, fake);
  v1::DesiredAttempt attempt = bench.Attempt(1);
  attempt.mutable_launch()->set_threads_per_rank(3);
  const std::string cpus = GroupOf(bench) + "/cpuset.cpus", kept = bench.Folder(1) + "/cpus";
  auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({attempt}));
  bench.Await(*keeper, 1, [&](const auto&) { return fs::exists(bench.run + "/up"); });
  CHECK(Slurp(cpus) == "0-2");
  CHECK(Slurp(kept) == "0-2\n");
  keeper.reset();
  // As the end of the unit leaves it; it had others than are free first.
  std::ofstream(cpus) << "\n";
  if (!fake.Keep(fs::path(GroupOf(bench)).filename().string().insert(0, "/"), "3-5")) {
    TRIREME_SKIP("not here: extended attributes in /tmp");
  }
  keeper = bench.Open();
  keeper->SetDesired(bench.Desired({attempt}));
  bench.Await(*keeper, 1, [&](const auto&) { return Slurp(cpus) == "3-5"; });
  bench.AwaitFile("attempts/1/cpus", "3-5\n");
  CHECK_FALSE(fs::exists(kept + ".new"));
  // Others have taken what there is meanwhile: it runs on all, and nothing says else.
  keeper.reset();
  std::ofstream(cpus) << "\n";
  fake.Group("/trireme-8-1-89abcdef.other");
  fake.Write(control_group::FakeGroups::Unit("/trireme-8-1-89abcdef.other/cpuset.cpus"), "0-6\n");
  keeper = bench.Open();
  keeper->SetDesired(bench.Desired({attempt}));
  bench.Await(*keeper, 1, [&](const auto&) { return !fs::exists(kept); });
  CHECK(Slurp(cpus) == "\n");
  bench.Touch("end");
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
}

TEST_CASE("an attempt that finds too few CPUs runs on all of them, which is said once") {
  control_group::FakeGroups fake;
  KeeperBench bench("echo up >> $run/up\nwhile [ ! -e $run/end ]; do sleep 0.01; done\n");
  GiveFake(bench, fake);
  fake.Group("/trireme-8-1-89abcdef.other");
  fake.Write(control_group::FakeGroups::Unit("/trireme-8-1-89abcdef.other/cpuset.cpus"), "0-6\n");
  std::string warned;
  bench.options.warn = [&](const std::string& words) { warned += words + "\n"; };
  v1::DesiredAttempt attempt = bench.Attempt(1);
  if (GENERATE(false, true)) {
    attempt.mutable_launch()->set_threads_per_rank(2);
  } else {
    attempt.mutable_launch()->mutable_job()->mutable_runtime()->set_threads(2);  // of 1 CPU
  }
  const auto keeper = bench.Open();
  keeper->SetDesired(bench.Desired({attempt}));
  bench.Await(*keeper, 1, [&](const auto&) { return fs::exists(bench.run + "/up"); });
  CHECK(Slurp(GroupOf(bench) + "/cpuset.cpus") == "\n");
  CHECK_FALSE(fs::exists(bench.Folder(1) + "/cpus"));
  bench.Touch("end");
  CHECK(bench.AwaitEnd(*keeper, 1).exit_code() == 0);
  const std::string words =
      "has no CPUs of its own, and runs on all that there are: it is to have 2, and 1 of 8 are "
      "free\n";
  REQUIRE(warned.find(words) != std::string::npos);
  CHECK(warned.find(words, warned.find(words) + 1) == std::string::npos);
}

}  // namespace
}  // namespace trireme::keeper
