// The rules of `trireme check`, and its probes where the answer is known.
#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>

#include "coordinator/checkup/probes.h"
#include "coordinator/checkup/programs.h"
#include "coordinator/checkup/rules.h"
#include "tests/coordinator/control_group/fake_groups.h"
#include "tests/runtime/base/fake_root.h"

namespace trireme::checkup {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::map<std::string, Finding> ByName(const std::vector<Finding>& findings) {
  std::map<std::string, Finding> found;
  for (const Finding& one : findings) found[one.name] = one;
  return found;
}

// Who complains says what to do, who does not keeps silent.
void Complete(const Finding& finding) {
  CAPTURE(finding.name, finding.seen, finding.fix);
  CHECK_FALSE(finding.seen.empty());
  const bool complains = finding.verdict == Verdict::kWarn || finding.verdict == Verdict::kFail;
  CHECK(complains == !finding.fix.empty());
}

TEST_CASE("checkup: limits") {
  auto found = ByName(JudgeLimits({}));
  for (const auto& [name, one] : found) {
    CHECK(one.verdict == Verdict::kOk);
    Complete(one);
  }
  found = ByName(JudgeLimits({1024, 1 << 20, 64 * 1024, 1000}));
  CHECK(found["open files"].verdict == Verdict::kWarn);
  CHECK(found["open files"].fix.rfind("ulimit -n", 0) == 0);
  CHECK(found["locked memory"].verdict == Verdict::kWarn);
  CHECK(found["processes"].verdict == Verdict::kWarn);
  found = ByName(JudgeLimits({256, 512, 0, 100}));
  CHECK(found["open files"].verdict == Verdict::kFail);
  CHECK(found["open files"].fix.find("limits.conf") != std::string::npos);
  CHECK(found["processes"].verdict == Verdict::kFail);
  for (const auto& [name, one] : found) Complete(one);
}

TEST_CASE("checkup: files in memory that go at the last logout") {
  const auto judged = [](const Logout& logout) {
    const Finding one = JudgeLogout(logout);
    Complete(one);
    return one.verdict;
  };
  CHECK(judged({}) == Verdict::kSkip);
  CHECK(judged({true, false, false, 1000, "ann"}) == Verdict::kOk);
  CHECK(judged({true, true, true, 1000, "ann"}) == Verdict::kOk);
  CHECK(judged({true, true, false, 999, "trireme"}) == Verdict::kOk);
  CHECK(judged({true, true, false, 1000, "ann"}) == Verdict::kWarn);
  CHECK(JudgeLogout({true, true, false, 1000, "ann"}).fix.find("enable-linger ann") !=
        std::string::npos);
  // What the files say: the one with the last name, and of one name that in /etc.
  base::FakeRoot root;
  CHECK_FALSE(LookAtLogout(root.path()).logind);
  root.Write("/run/systemd/seats/seat0", "");
  CHECK(LookAtLogout(root.path()).logind);
  CHECK(LookAtLogout(root.path()).removes);
  root.Write("/etc/systemd/logind.conf", "[Login]\n#RemoveIPC=no\n");
  CHECK(LookAtLogout(root.path()).removes);
  root.Write("/etc/systemd/logind.conf", "[Login]\nRemoveIPC=no\n");
  CHECK_FALSE(LookAtLogout(root.path()).removes);
  root.Write("/usr/lib/systemd/logind.conf.d/50.conf", "[Login]\nRemoveIPC=yes\n");
  CHECK(LookAtLogout(root.path()).removes);
  root.Write("/etc/systemd/logind.conf.d/50.conf", "[Login]\nRemoveIPC=off\n");
  CHECK_FALSE(LookAtLogout(root.path()).removes);
  const std::string name = LookAtLogout(root.path()).name;
  CHECK_FALSE(LookAtLogout(root.path()).stays);
  root.Write("/var/lib/systemd/linger/" + name, "");
  CHECK(LookAtLogout(root.path()).stays);
}

TEST_CASE("checkup: space") {
  const auto shared = [](uint64_t total_mib, uint64_t free_mib) {
    const Finding one = JudgeSharedMemory({"/dev/shm", {}, total_mib * kMiB, free_mib * kMiB});
    Complete(one);
    return one;
  };
  CHECK(shared(8192, 8000).verdict == Verdict::kOk);
  CHECK(shared(64, 64).verdict == Verdict::kWarn);
  CHECK(shared(64, 64).fix.find("--shm-size") != std::string::npos);
  CHECK(shared(8192, 10).verdict == Verdict::kFail);
  CHECK(shared(8192, 10).fix.find("ls -l /dev/shm") != std::string::npos);
  CHECK(JudgeSharedMemory({"/dev/shm", absl::NotFoundError("gone"), 0, 0}).verdict ==
        Verdict::kFail);
  const auto disk = [](uint64_t free_mib) {
    return JudgeDisk("disk", {"/runs", {}, 1000000 * kMiB, free_mib * kMiB}).verdict;
  };
  CHECK(disk(100000) == Verdict::kOk);
  CHECK(disk(1000) == Verdict::kWarn);
  CHECK(disk(100) == Verdict::kFail);
  Complete(JudgeDisk("disk", {"/runs", absl::PermissionDeniedError("no"), 0, 0}));
}

TEST_CASE("checkup: network and clock and huge pages") {
  CHECK(JudgeNetwork({{}, 32768, 60999}).verdict == Verdict::kOk);
  CHECK(JudgeNetwork({{}, 0, 0}).verdict == Verdict::kOk);
  CHECK(JudgeNetwork({{}, 60000, 60099}).verdict == Verdict::kWarn);
  CHECK(JudgeNetwork({absl::UnavailableError("no lo"), 1, 2}).verdict == Verdict::kFail);
  CHECK(JudgeClock({true, {}}).verdict == Verdict::kOk);
  CHECK(JudgeClock({true, -500.0}).verdict == Verdict::kOk);
  CHECK(JudgeClock({true, 5.0}).verdict == Verdict::kWarn);
  CHECK(JudgeClock({true, 500.0}).verdict == Verdict::kFail);
  CHECK(JudgeClock({false, {}}).verdict == Verdict::kWarn);
  CHECK(JudgeHugePages("always [madvise] never").verdict == Verdict::kOk);
  CHECK(JudgeHugePages("always madvise [never]").verdict == Verdict::kWarn);
  CHECK(JudgeHugePages("").verdict == Verdict::kSkip);
}

TEST_CASE(
    "control groups: what the kernel keeps of attempts is told, with what would make it keep "
    "them") {
  using control_group::Kind;
  const auto judge = [](const ControlGroups& groups) { return JudgeControlGroups(groups); };
  const Finding bounded = judge({true, Kind::kDelegated, "/sys/fs/cgroup/u", {"memory", "pids"}});
  CHECK((bounded.verdict == Verdict::kOk && bounded.fix.empty()));
  CHECK(bounded.seen ==
        "v2, /sys/fs/cgroup/u is delegated: attempts are bounded by the kernel (memory, pids), "
        "with CPUs of their own (cpuset)");
  ControlGroups sharing{true, Kind::kDelegated, "/u", {"memory", "pids"}};
  sharing.shared_cpus = "--control-groups no-cpuset";
  CHECK(judge(sharing).verdict == Verdict::kOk);
  CHECK(judge(sharing).seen.find("and share the CPUs: --control-groups no-cpuset") !=
        std::string::npos);
  CHECK(judge({true, Kind::kDelegated, "/u", {}}).seen.find("limits nothing") != std::string::npos);
  const Finding not_ours = judge({true, Kind::kNotDelegated, "/u", {"memory"}});
  CHECK(not_ours.verdict == Verdict::kWarn);
  CHECK(not_ours.fix.find("Delegate=yes in trireme-agent.service") == 0);
  ControlGroups none{true, Kind::kNoVersion2, "", {}};
  CHECK(judge(none).seen.find("no cgroup v2 is mounted here: ") == 0);
  CHECK(judge(none).fix.find("unified_cgroup_hierarchy") == std::string::npos);
  none.version1 = true;
  CHECK(judge(none).seen.find("cgroup v1: ") == 0);
  ControlGroups old{true, Kind::kNotDelegated, "/u", {"memory"}};
  old.kills = false;
  CHECK(judge(old).seen.find("v2, but this kernel has no cgroup.kill: ") == 0);
  CHECK((judge(old).verdict == Verdict::kWarn && judge(old).fix == "Linux 5.14 or later"));
  old.unwanted = "--launcher slurm";
  CHECK(judge(old).seen == "the agent uses none: --launcher slurm");
  CHECK(judge(old).verdict == Verdict::kSkip);
  // Without an agent nobody misses them.
  CHECK(judge({false, Kind::kNotDelegated, "/u", {}}).verdict == Verdict::kSkip);
}

TEST_CASE("control groups: an agent that runs is looked at, else who asks") {
  control_group::FakeGroups fake;
  ControlGroups seen = LookAtControlGroups(fake.path());
  CHECK((!seen.agent && seen.kind == control_group::Kind::kDelegated));
  CHECK(seen.limits == std::vector<std::string>{"memory", "pids"});
  fake.Write("/proc/77/comm", "trireme-agent\n");
  fake.Write("/proc/77/cgroup", "0::/unit\n");
  seen = LookAtControlGroups(fake.path());
  CHECK((seen.agent && seen.kind == control_group::Kind::kNotDelegated));
  fake.Write("/proc/77/cgroup", "0::/unit/trireme-agent\n");
  fake.Write(control_group::FakeGroups::Unit("/cgroup.subtree_control"), "pids\n");
  seen = LookAtControlGroups(fake.path());
  CHECK((seen.kind == control_group::Kind::kDelegated && seen.folder == control_group::kUnit));
  CHECK(seen.limits == std::vector<std::string>{"pids"});
}

TEST_CASE("control groups: whether attempts have CPUs of their own, and why not") {
  control_group::FakeGroups fake;
  const auto shared = [&] { return LookAtControlGroups(fake.path()).shared_cpus; };
  const std::string control = control_group::FakeGroups::Unit("/cgroup.subtree_control");
  CHECK(shared().empty());  // an agent that is started from here would
  fake.Write("/proc/77/comm", "trireme-agent\n");
  fake.Write("/proc/77/cgroup", "0::/unit/trireme-agent\n");
  fake.Write("/proc/77/status", "Cpus_allowed_list:\t0-7\n");
  fake.Write(control, "memory pids\n");
  CHECK(shared().find("the controller cpuset is not enabled") == 0);
  fake.Write(control, "cpuset memory pids\n");
  CHECK(shared().empty());
  fake.Write("/proc/77/status", "Cpus_allowed_list:\t0-127\n");  // it may be that many could be
  CHECK(shared().empty());
  fake.Write("/proc/77/status", "Cpus_allowed_list:\t0-3\n");
  CHECK(shared().find("the agent itself is bound to 0-3 of 0-7") == 0);
  fake.Write("/proc/77/cmdline", std::string("trireme-agent\0--control-groups=no-cpuset\0", 40));
  CHECK(shared() == "--control-groups no-cpuset");
}

TEST_CASE("control groups: an agent that is to have none is known by its options") {
  control_group::FakeGroups fake;
  fake.Write("/proc/77/comm", "trireme-agent\n");
  fake.Write("/proc/77/cgroup", "0::/unit\n");
  const auto unwanted = [&](std::string words) {
    std::replace(words.begin(), words.end(), ' ', '\0');
    fake.Write("/proc/77/cmdline", "trireme-agent" + words + std::string(1, '\0'));
    return LookAtControlGroups(fake.path()).unwanted;
  };
  CHECK(unwanted(" --control-groups off") == "--control-groups off");
  CHECK(unwanted(" --control-groups=off --node n1") == "--control-groups off");
  CHECK(unwanted(" --launcher slurm --time 10") == "--launcher slurm");
  CHECK(unwanted(" --node off --launcher mpirun").empty());
  fake.Write("/etc/agent.toml",
             "node = \"n1\"\n# launcher = \"slurm\"\ncontrol-groups = \"off\"\n");
  CHECK(unwanted(" --config=-/etc/agent.toml") == "--control-groups off");
  CHECK(unwanted(" --config /etc/agent.toml --control-groups auto").empty());
  CHECK(unwanted(" --config=-/etc/none.toml").empty());
  CHECK(unwanted("").empty());
}

TEST_CASE("control groups: what a machine has is told from what it lacks") {
  control_group::FakeGroups fake;
  ControlGroups seen = LookAtControlGroups(fake.path());
  CHECK((seen.kills && !seen.version1));
  std::filesystem::remove(fake.path() + control_group::kUnit + "/cgroup.kill");
  CHECK(LookAtControlGroups(fake.path()).kills);  // of the root of all it is not known
  fake.Write(control_group::FakeGroups::Unit("/cgroup.events"), "populated 1\n");
  CHECK_FALSE(LookAtControlGroups(fake.path()).kills);
  fake.Write("/proc/self/mountinfo", "35 31 0:32 / /m rw - cgroup c rw,memory\n");
  seen = LookAtControlGroups(fake.path());
  CHECK((seen.version1 && seen.kind == control_group::Kind::kNoVersion2));
}

TEST_CASE("checkup: programs") {
  CHECK(JudgeMpi({}).at(0).verdict == Verdict::kFail);
  Mpi mpi{"/usr/bin/mpirun", "mpirun 4", {}};
  CHECK(ExitCodeOf(JudgeMpi(mpi)) == 0);
  mpi.launched = absl::DeadlineExceededError("not done within 60 s");
  CHECK(ByName(JudgeMpi(mpi))["two ranks"].seen.find("60 s") != std::string::npos);
  CHECK(ExitCodeOf(JudgeMpi(mpi)) == 1);
  CHECK(JudgeSlurm({}).at(0).verdict == Verdict::kSkip);
  CHECK(ExitCodeOf(JudgeSlurm({"/usr/bin/sbatch", "slurm 22", {}, {"pmi2", "pmix_v4"}})) == 0);
  CHECK(ExitCodeOf(JudgeSlurm({"/usr/bin/sbatch", "slurm 22", {}, {"pmi2"}})) == 1);
  CHECK(ExitCodeOf(JudgeSlurm({"sbatch", "slurm", absl::UnavailableError("DOWN"), {}})) == 1);
  const Finding unset = JudgeSlurm({"sbatch", "", absl::UnavailableError("x"), {}, false}).at(0);
  CHECK(unset.verdict == Verdict::kWarn);
  Complete(unset);
  using Names = std::vector<std::string>;
  CHECK(PluginsOf("MPI plugin types are...\n\tnone\n\tpmix\n\tpmi2\n"
                  "specific pmix plugin versions available: pmix_v4\n") == Names({"pmix", "pmi2"}));
  CHECK(PluginsOf("srun: MPI types are...\nsrun: none\nsrun: pmix_v3\n") == Names({"pmix_v3"}));
  CHECK(PluginsOf("").empty());
}

TEST_CASE("checkup: the coordinator") {
  CHECK(ExitCodeOf(JudgeCoordinator(absl::UnavailableError("nobody"), "here", "", "1")) == 1);
  CHECK(ExitCodeOf(JudgeCoordinator({}, "here", "1", "1")) == 0);
  CHECK(ByName(JudgeCoordinator({}, "here", "2", "1"))["versions"].verdict == Verdict::kWarn);
}

TEST_CASE("checkup: what is measured is what is there") {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{300, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  CHECK(MeasureLimits().open_files == 300);
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(MeasureSpace("/tmp").fault.ok());
  CHECK(MeasureSpace("/tmp").total_bytes > 0);
  CHECK(absl::IsNotFound(MeasureSpace("/no/such/folder").fault));
  CHECK_FALSE(MeasureSpace("/proc").fault.ok());
  CHECK(MeasureNetwork().loopback.ok());
}

TEST_CASE("checkup: a port that is taken is told from one that is free") {
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  REQUIRE(bind(taken, name, size) == 0);
  REQUIRE(listen(taken, 1) == 0);
  getsockname(taken, name, &size);
  const absl::Status refused = TryListening("127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(JudgeListening("x:1", refused).fix.rfind("another port", 0) == 0);
  close(taken);
  CHECK(TryListening("127.0.0.1:0").ok());
  for (const char* none : {"203.0.113.9:0", "127.0.0.1", "127.0.0.1:ssh-or-so", "bogus"}) {
    CAPTURE(none);
    const Finding finding = JudgeListening(none, TryListening(none));
    CHECK(finding.verdict == Verdict::kFail);
    CHECK(finding.fix.rfind("HOST:PORT", 0) == 0);
    Complete(finding);
  }
}

}  // namespace
}  // namespace trireme::checkup
