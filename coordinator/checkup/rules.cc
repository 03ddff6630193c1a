#include "coordinator/checkup/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/status_macros.h"

namespace trireme::checkup {
namespace {

constexpr uint64_t kKiB = uint64_t{1} << 10, kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

// A daemon keeps a socket for each watcher and agent, mpirun some for each rank: a few hundred are
// used up by any cluster, thousands are not.
constexpr uint64_t kLeastFiles = 1024, kGoodFiles = 8192;
// Network cards that write to memory by themselves need theirs locked.
constexpr uint64_t kGoodLocked = 64 * kMiB;
// Threads count as processes: ranks x (threads + those of MPI).
constexpr uint64_t kLeastProcesses = 256, kGoodProcesses = 4096;
// Ranks of a machine pass messages through it: Open MPI takes about 4 MiB a rank, our windows half
// a MiB more. 64 MiB is what container engines give where nobody asked.
constexpr uint64_t kLeastShared = 32 * kMiB, kGoodShared = 128 * kMiB;
constexpr uint64_t kLeastDisk = 256 * kMiB, kGoodDisk = 4 * kGiB;
constexpr int kLeastPorts = 1000;
// Leases last seconds: a clock that is further off makes times in lists and logs mislead.
constexpr double kGoodAhead = 2, kMostAhead = 60;

std::string Bytes(uint64_t bytes) {
  if (bytes == kUnlimited) return "unlimited";
  if (bytes >= kGiB) return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / kGiB);
  if (bytes >= kMiB) return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / kMiB);
  return fmt::format("{} KiB", bytes / kKiB);
}

std::string Count(uint64_t count) {
  return count == kUnlimited ? "unlimited" : fmt::format("{}", count);
}

Verdict Grade(uint64_t there, uint64_t least, uint64_t good) {
  return there < least ? Verdict::kFail : there < good ? Verdict::kWarn : Verdict::kOk;
}

// The fix only where there is something to mend.
Finding Graded(std::string name, Verdict verdict, std::string seen, std::string fix) {
  if (verdict == Verdict::kOk) fix.clear();
  return {std::move(name), verdict, std::move(seen), std::move(fix)};
}

}  // namespace

std::string WordOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kWarn:
      return "warn";
    case Verdict::kFail:
      return "fail";
    default:
      return "skip";
  }
}

std::vector<Finding> JudgeLimits(const Limits& limits) {
  std::vector<Finding> findings;
  const bool may_raise = limits.most_open_files >= kGoodFiles;
  findings.push_back(Graded(
      "open files", Grade(limits.open_files, kLeastFiles, kGoodFiles),
      fmt::format("{}, at most {}", Count(limits.open_files), Count(limits.most_open_files)),
      may_raise ? fmt::format("ulimit -n {}; in a unit LimitNOFILE={}", kGoodFiles, kGoodFiles)
                : fmt::format("a line \"* hard nofile {}\" in /etc/security/limits.conf, then log "
                              "in again; in a unit LimitNOFILE={}",
                              kGoodFiles, kGoodFiles)));
  const bool locked = limits.locked_bytes >= kGoodLocked;
  findings.push_back(Graded("locked memory", locked ? Verdict::kOk : Verdict::kWarn,
                            Bytes(limits.locked_bytes),
                            "matters with InfiniBand or RoCE alone: ulimit -l unlimited; in a unit "
                            "LimitMEMLOCK=infinity"));
  findings.push_back(Graded(
      "processes", Grade(limits.processes, kLeastProcesses, kGoodProcesses),
      fmt::format("{} with threads", Count(limits.processes)),
      fmt::format("ulimit -u {}; in a unit TasksMax=infinity and LimitNPROC", kGoodProcesses)));
  return findings;
}

Finding JudgeSharedMemory(const Space& space) {
  const std::string name = "shared memory";
  const std::string fix =
      "mount -o remount,size=1G /dev/shm; of a container --shm-size=1g, in Kubernetes an emptyDir "
      "of medium Memory there";
  if (!space.fault.ok()) return {name, Verdict::kFail, base::MessageOf(space.fault), fix};
  return Graded(name, Grade(space.free_bytes, kLeastShared, kGoodShared),
                fmt::format("{} free of {} in {}", Bytes(space.free_bytes),
                            Bytes(space.total_bytes), space.folder),
                space.total_bytes < kGoodShared
                    ? fix
                    : "something has left files there: ls -l " + space.folder);
}

// What logind takes for an ordinary user: beyond SYS_UID_MAX.
Finding JudgeLogout(const Logout& logout) {
  constexpr uint32_t kFirstOrdinary = 1000;
  const std::string name = "memory after logout";
  if (!logout.logind) return {name, Verdict::kSkip, "systemd-logind is not in use", ""};
  if (!logout.removes) return {name, Verdict::kOk, "RemoveIPC=no", ""};
  if (logout.user < kFirstOrdinary) {
    return {name, Verdict::kOk, "RemoveIPC=yes, which leaves system users alone", ""};
  }
  if (logout.stays) return {name, Verdict::kOk, "RemoveIPC=yes, and this user lingers", ""};
  return {
      name, Verdict::kWarn,
      "RemoveIPC=yes: what runs keep in /dev/shm (snapshots.every_step) goes at this user's last "
      "logout",
      fmt::format("loginctl enable-linger {}, or RemoveIPC=no in /etc/systemd/logind.conf, then "
                  "systemctl restart systemd-logind",
                  logout.name)};
}

Finding JudgeDisk(const std::string& name, const Space& space) {
  if (!space.fault.ok()) {
    return {name, Verdict::kFail, base::MessageOf(space.fault),
            "make the folder and give it to who runs jobs, or name another"};
  }
  return Graded(name, Grade(space.free_bytes, kLeastDisk, kGoodDisk),
                fmt::format("{} free of {} in {}", Bytes(space.free_bytes),
                            Bytes(space.total_bytes), space.folder),
                "checkpoints need room: free some, or use a folder on another disk");
}

Finding JudgeNetwork(const Network& network) {
  const std::string name = "ports";
  if (!network.loopback.ok()) {
    return {name, Verdict::kFail,
            "no connection over 127.0.0.1: " + base::MessageOf(network.loopback),
            "ip link set lo up; look at the firewall: mpirun speaks to its ranks over it"};
  }
  const int ports = network.last_port - network.first_port + 1;
  const std::string seen = fmt::format("loopback answers; {} to {} are given to whoever asks",
                                       network.first_port, network.last_port);
  if (network.first_port == 0) return {name, Verdict::kOk, "loopback answers", ""};
  return Graded(name, ports >= kLeastPorts ? Verdict::kOk : Verdict::kWarn, seen,
                "sysctl -w net.ipv4.ip_local_port_range='32768 60999'");
}

Finding JudgeListening(const std::string& address, const absl::Status& bound) {
  if (bound.ok()) return {"listen", Verdict::kOk, "a daemon could listen at " + address, ""};
  return {"listen", Verdict::kFail, fmt::format("{}: {}", address, base::MessageOf(bound)),
          absl::IsInvalidArgument(bound)
              ? "HOST:PORT, the host being a name or address of this machine: 0.0.0.0:7000"
          : absl::IsPermissionDenied(bound)
              ? "a port of 1024 or more"
              : "another port, or end who listens there (ss -ltnp shows who)"};
}

Finding JudgeClock(const Clock& clock) {
  const std::string fix =
      "let chrony or systemd-timesyncd keep it: apt install chrony, timedatectl set-ntp true";
  const double ahead = clock.coordinator_ahead_seconds.value_or(0);
  if (ahead >= kGoodAhead) {
    return {"clock", ahead >= kMostAhead ? Verdict::kFail : Verdict::kWarn,
            fmt::format("at least {:.0f} s behind the coordinator's", ahead), fix};
  }
  const std::string beside =
      clock.coordinator_ahead_seconds ? "; not behind the coordinator's" : "";
  return Graded("clock", clock.in_step ? Verdict::kOk : Verdict::kWarn,
                (clock.in_step ? "kept in step" : "nobody keeps it in step") + beside, fix);
}

Finding JudgeHugePages(const std::string& setting) {
  const std::string name = "huge pages";
  if (setting.empty()) return {name, Verdict::kSkip, "this kernel has no transparent ones", ""};
  const bool never = setting.find("[never]") != std::string::npos;
  return Graded(name, never ? Verdict::kWarn : Verdict::kOk, setting,
                "training is slower without: echo madvise "
                ">/sys/kernel/mm/transparent_hugepage/enabled");
}

Finding JudgeControlGroups(const ControlGroups& groups) {
  const std::string name = "control groups";
  const std::string without = "leftovers of attempts are found by their environment";
  // Who runs no agent here needs none.
  const Verdict lacking = groups.agent ? Verdict::kWarn : Verdict::kSkip;
  if (!groups.unwanted.empty()) {
    return {name, Verdict::kSkip, "the agent uses none: " + groups.unwanted, ""};
  }
  if (groups.kind == control_group::Kind::kNoVersion2 && groups.version1) {
    return {name, lacking, "cgroup v1: " + without, "boot with systemd.unified_cgroup_hierarchy=1"};
  }
  if (groups.kind == control_group::Kind::kNoVersion2) {
    return {name, lacking, "no cgroup v2 is mounted here: " + without,
            "mount -t cgroup2 none /sys/fs/cgroup, or as the container's engine does it"};
  }
  if (!groups.kills) {
    return {name, lacking, "v2, but this kernel has no cgroup.kill: " + without,
            "Linux 5.14 or later"};
  }
  if (groups.kind == control_group::Kind::kNotDelegated) {
    return {name, lacking, fmt::format("v2, {} is not delegated: {}", groups.folder, without),
            "Delegate=yes in trireme-agent.service, as in the package's unit"};
  }
  if (groups.limits.empty()) {
    return {name, lacking,
            fmt::format("v2, {} is delegated: the kernel ends attempts as one, but limits nothing",
                        groups.folder),
            "the controllers memory and pids are under v1, or others are in that group: see what "
            "the agent's log says of control groups"};
  }
  std::string list;
  for (const std::string& limit : groups.limits) list += (list.empty() ? "" : ", ") + limit;
  return {name, Verdict::kOk,
          fmt::format("v2, {} is delegated: attempts are bounded by the kernel ({}), {}",
                      groups.folder, list,
                      groups.shared_cpus.empty() ? "with CPUs of their own (cpuset)"
                                                 : "and share the CPUs: " + groups.shared_cpus),
          ""};
}

std::vector<Finding> JudgeMpi(const Mpi& mpi) {
  if (mpi.mpirun.empty()) {
    return {{"mpirun", Verdict::kFail, "not in PATH",
             "apt install openmpi-bin; jobs of one rank do without"}};
  }
  std::vector<Finding> findings = {
      {"mpirun", Verdict::kOk, fmt::format("{}: {}", mpi.mpirun, mpi.version), ""}};
  if (mpi.launched.ok()) {
    findings.push_back(
        {"two ranks", Verdict::kOk, "mpirun starts them and they reach each other", ""});
  } else {
    findings.push_back({"two ranks", Verdict::kFail, base::MessageOf(mpi.launched),
                        "try by hand: mpirun -n 2 trireme-worker hello; is MPI of one version, is "
                        "/dev/shm large enough, does loopback work?"});
  }
  return findings;
}

std::vector<Finding> JudgeSlurm(const Slurm& slurm) {
  if (slurm.sbatch.empty()) {
    return {{"slurm", Verdict::kSkip, "no sbatch in PATH: jobs are started by mpirun", ""}};
  }
  // Packages bring the commands; only who has a configuration means to use them.
  if (!slurm.set_up) {
    return {{"slurm", Verdict::kWarn, "its commands are here, but not set up",
             "nothing, if jobs are started by mpirun; else a slurm.conf (sbatch --version says "
             "what is missing)"}};
  }
  if (!slurm.controller.ok()) {
    return {{"slurm", Verdict::kFail,
             fmt::format("{}: {}", slurm.version, base::MessageOf(slurm.controller)),
             "scontrol ping; systemctl status slurmctld munge"}};
  }
  std::vector<Finding> findings = {{"slurm", Verdict::kOk, slurm.version + " answers", ""}};
  std::string list;
  bool pmix = false;
  for (const std::string& plugin : slurm.plugins) {
    list += (list.empty() ? "" : ", ") + plugin;
    pmix = pmix || plugin.rfind("pmix", 0) == 0;
  }
  findings.push_back(Graded("slurm and MPI", pmix ? Verdict::kOk : Verdict::kFail,
                            "srun --mpi knows " + (list.empty() ? "nothing" : list),
                            "Slurm's PMIx plugin starts the ranks: apt install slurm-wlm with "
                            "mpi_pmix.so, or ask who built it"));
  return findings;
}

std::vector<Finding> JudgeCoordinator(const absl::Status& answer, const std::string& address,
                                      const std::string& version, const std::string& ours) {
  if (!answer.ok()) {
    return {{"coordinator", Verdict::kFail, base::MessageOf(answer),
             "without one this machine can train by trireme run alone"}};
  }
  std::vector<Finding> findings = {{"coordinator", Verdict::kOk, "answers at " + address, ""}};
  findings.push_back(Graded(
      "versions", version == ours ? Verdict::kOk : Verdict::kWarn,
      version == ours ? ours + " here and there" : fmt::format("{} here, {} there", ours, version),
      "install the same on all machines"));
  return findings;
}

int ExitCodeOf(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& one) { return one.verdict == Verdict::kFail; })
             ? 1
             : 0;
}

}  // namespace trireme::checkup
