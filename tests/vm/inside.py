#!/usr/bin/env python3
"""In the machine of vm_test.py, as root under systemd: what docs/adr/0022 says of control groups, and the units of their
watchdogs, restarts and rights. The agent's `worker` is a script that runs what the test has written before it becomes a rank.

Usage: inside.py [Inside.test_NAME ...]
"""
import glob
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../coordinator/daemon"))
from daemon_fixture import DaemonCase, lives, processes_of, read, until  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

AGENT, DAEMON = "trireme-agent", "triremed"
GROUP = f"/sys/fs/cgroup/system.slice/{AGENT}.service"
MIB = 1 << 20
BEFORE_A_RANK = "/srv/before_a_rank"  # what the worker of vm_test.py runs
CPUSET = os.cpu_count() > 1  # user-mode-linux has neither
BUSY = ("training.steps=1000000", "parallelism.pipeline_parallel_size=1", "resources.max_failures=1",
        "resources.memory_mib_per_rank=300", "runtime.deadline_seconds=400")
MEMORY_MAX = 300 * MIB * 5 // 4 + 1024 * MIB
PIDS_MAX = 1024 + 1 + 256
# By the kernel's hand: each fault of its own is slow in this machine.
HOG = """import mmap
held = []
while True: held.append(mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
"""
THREADS = """import threading, time
try:
  for count in range(5000): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
except RuntimeError: pass
open("{folder}/count", "w").write(str(count))
time.sleep(600)
"""
# Twice a child of nobody, without an environment, and it goes on to make others.
FORKS = "echo $$ >{folder}/left\nwhile true; do sleep 5 & sleep 0.1; done\n"
HIDES = "env -i setsid sh -c 'sh {folder}/forks &' &\n"


def systemctl(*arguments):
    return subprocess.run(["systemctl", *arguments], check=True, capture_output=True, text=True, timeout=300).stdout.strip()


def shown(unit, name):
    return systemctl("show", "--value", "-p", name, unit)


def main_pid(unit):
    return int(shown(unit, "MainPID"))


class Inside(DaemonCase):
    bin, parent = "/usr/bin", "/srv"

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o777)
        self.before_a_rank("")
        until(lambda: self.ask("nodes")["nodes"][0]["state"] == "NODE_READY", "the node is ready", self.told)

    def tearDown(self):
        """What was done to the units leaves them as they were, and a job's end leaves no group."""
        for job in self.ask("list")["jobs"]:
            self.text("cancel", job["id"], "--grace", "1")
        until(lambda: not glob.glob(f"{GROUP}/trireme-*-*"), "no group of an attempt is left", self.told)
        for unit in (AGENT, DAEMON):
            self.assertEqual(shown(unit, "ActiveState"), "active", self.told())

    def told(self):
        return subprocess.run(["journalctl", "--no-pager", "-n", "40", "-u", AGENT, "-u", DAEMON], capture_output=True, text=True, check=False).stdout

    def command_of(self, *arguments):
        return [f"{self.bin}/trireme", *arguments]

    def run_folder(self, job):
        return f"/var/lib/trireme/jobs/{job}"

    @staticmethod
    def before_a_rank(text):
        with open(BEFORE_A_RANK, "w", encoding="utf-8") as file:
            file.write(text)

    def start(self, *more):
        """A job that runs, its group, and who is in it."""
        job = self.submit(*(word for option in (*BUSY, *more) for word in ("--set", option)))
        self.reach(job, 2)
        [group] = glob.glob(f"{GROUP}/trireme-{job}-1-*")
        return job, group

    def python(self, name, text):
        self.write(name, text.format(folder=self.folder))
        self.before_a_rank(f"python3 {self.folder}/{name} &\n")

    def bounded(self, group):
        for name, value in (("memory.max", MEMORY_MAX), ("pids.max", PIDS_MAX), ("memory.oom.group", 1)):
            self.assertEqual(read(f"{group}/{name}").strip(), str(value), name)

    def goes_on(self, job, group, ranks, agent):
        """Another agent than that one has taken the same ranks over, they train, and their group is bounded."""
        until(lambda: main_pid(AGENT) not in (0, agent) and shown(AGENT, "ActiveState") == "active", "another agent", self.told)
        until(lambda: self.ask("nodes")["nodes"][0]["state"] == "NODE_READY", "the node is back", self.told)
        self.trains(job)
        self.assertEqual(self.ranks(group), ranks)
        until(lambda: read(f"{group}/memory.max").strip() == str(MEMORY_MAX), "it is bounded", self.told)
        self.bounded(group)
        return main_pid(AGENT)

    def trains(self, job):
        step = max(self.losses(job))
        until(lambda: max(self.losses(job)) > step, "a further step", self.told)

    @staticmethod
    def ranks(group):
        return sorted(path for path in read(f"{group}/cgroup.procs").split() if read(f"/proc/{path}/comm") == "trireme-worker\n")

    def ended(self, job):
        until(lambda: self.show(job)["status"]["state"] in ("JOB_FAILED", "JOB_CANCELLED"), f"job {job} ends", self.told)

    def test_boots(self):
        """Both run without anybody's doing, and `check` has nothing to say against it."""
        for unit in (AGENT, DAEMON):
            self.assertEqual(systemctl("is-enabled", unit), "enabled")
            self.assertEqual((shown(unit, "Type"), shown(unit, "User")), ("notify", "trireme"))
        checked = self.run_command("check", "--folder", self.folder)
        print(checked.stdout)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.assertIn("attempts are bounded by the kernel (memory, pids), " + (
            "with CPUs of their own (cpuset)" if CPUSET else "and share the CPUs: the controller cpuset is not there"), checked.stdout)

    def test_trains(self):
        """The units let it write where it has to: its run folder, checkpoints elsewhere, /dev/shm, its group."""
        job, group = self.start(f"checkpoint.directory={self.folder}/saved", "checkpoint.every_steps=2")
        self.bounded(group)
        until(lambda: glob.glob(f"{self.folder}/saved/*"), "a checkpoint", self.told)

    def test_memory(self):
        self.python("hog.py", HOG)
        job = self.submit(*(word for option in BUSY for word in ("--set", option)))
        agent = main_pid(AGENT)
        self.ended(job)
        said = self.text("explain", job)
        print(said)
        self.assertIn("out of memory (its limit there, memory.max of 1.37 GiB, or one within it)", said)
        kept = read(f"{self.run_folder(job)}/attempts/1/memory.events")
        self.assertRegex(kept, r"(?m)^oom_group_kill [1-9]")
        self.assertIn(f"memory.max {MEMORY_MAX}\n", kept)
        self.assertEqual(main_pid(AGENT), agent)

    def test_tasks(self):
        self.python("threads.py", THREADS)
        _, group = self.start()
        count = int(until(lambda: read(f"{self.folder}/count"), "no more threads", self.told))
        self.assertTrue(1000 < count < PIDS_MAX, count)
        self.assertRegex(read(f"{group}/pids.events"), r"^max [1-9]")

    def on_cpu(self, group, cpu):
        """All threads of the attempt are there, and nowhere else."""
        until(lambda: read(f"{group}/cpuset.cpus").strip() == cpu, f"{group} has CPU {cpu}", self.told)
        seen = 0
        for path in (path for pid in read(f"{group}/cgroup.procs").split() for path in glob.glob(f"/proc/{pid}/task/*/status")):
            if status := read(path):  # else it has ended meanwhile
                self.assertIn(f"\nCpus_allowed_list:\t{cpu}\n", status)
                seen += 1
        self.assertGreater(seen, 1)

    def test_cpus(self):
        """Each attempt has CPUs of its own, and the same ones under another agent, though a restart of the unit takes them away."""
        self.assertEqual("cpuset" in read(f"{GROUP}/cgroup.controllers").split(), CPUSET)
        first, group_of_first = self.start()
        if not CPUSET:
            self.assertFalse(os.path.exists(f"{group_of_first}/cpuset.cpus"))
            return
        self.on_cpu(group_of_first, "0")
        second, group = self.start()
        self.on_cpu(group, "1")
        self.text("cancel", first, "--grace", "1")
        self.ended(first)
        ranks, agent = self.ranks(group), main_pid(AGENT)
        systemctl("stop", AGENT)
        self.assertFalse(os.path.exists(f"{group}/cpuset.cpus"))
        systemctl("start", AGENT)
        agent = self.goes_on(second, group, ranks, agent)
        self.on_cpu(group, "1")
        os.kill(agent, signal.SIGKILL)
        self.goes_on(second, group, ranks, agent)
        self.on_cpu(group, "1")
        self.on_cpu(self.start()[1], "0")

    def test_agents_come_and_go(self):
        job, group = self.start()
        ranks, agent = self.ranks(group), main_pid(AGENT)
        self.assertEqual(len(ranks), 1)
        systemctl("restart", AGENT)
        agent = self.goes_on(job, group, ranks, agent)
        os.kill(agent, signal.SIGKILL)
        agent = self.goes_on(job, group, ranks, agent)
        # A job may use its group as it likes, and hold controllers by that.
        os.mkdir(f"{group}/inner")
        for pid in read(f"{group}/cgroup.procs").split():
            with open(f"{group}/inner/cgroup.procs", "w", encoding="ascii") as file:
                file.write(pid)
        with open(f"{group}/cgroup.subtree_control", "w", encoding="ascii") as file:
            file.write("+memory +pids")
        systemctl("stop", AGENT)
        self.assertEqual(read(f"{GROUP}/cgroup.subtree_control").strip(), "")
        self.assertEqual(self.ranks(f"{group}/inner"), ranks)
        self.trains(job)
        systemctl("start", AGENT)
        self.goes_on(job, f"{group}", [], agent)
        self.assertEqual(self.ranks(f"{group}/inner"), ranks)

    def test_watchdogs(self):
        job, group = self.start()
        ranks, pids = self.ranks(group), {unit: main_pid(unit) for unit in (AGENT, DAEMON)}
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)
        for unit, pid in pids.items():
            until(lambda unit=unit, pid=pid: main_pid(unit) not in (0, pid), f"another {unit}", self.told, 400)
        self.goes_on(job, group, ranks, pids[AGENT])

    def test_leaves_nobody(self):
        """A cancel, and an end without a guard, which would find its descendants; the folders go, too."""
        self.write("forks", FORKS.format(folder=self.folder))
        for kill_guard in (False, True):
            self.before_a_rank(HIDES.format(folder=self.folder))
            job, group = self.start()
            left = read(f"{self.folder}/left").strip()
            self.assertIn(os.path.basename(group), read(f"/proc/{left}/cgroup"))
            in_it = read(f"{group}/cgroup.procs").split()
            self.assertIn(left, in_it)
            if kill_guard:
                [guard] = [pid for pid in processes_of(self.run_folder(job)) if read(f"/proc/{pid}/comm") == "trireme-guard\n"]
                os.kill(guard, signal.SIGKILL)
            else:
                self.text("cancel", job)
            self.ended(job)
            until(lambda group=group: not os.path.exists(group), "the group is removed", self.told)
            self.assertEqual([pid for pid in in_it if lives(int(pid))], [])

    def test_daemon(self):
        job, group = self.start()
        ranks, daemon = self.ranks(group), main_pid(DAEMON)
        systemctl("reload", DAEMON)
        self.assertEqual(main_pid(DAEMON), daemon)
        systemctl("restart", DAEMON)
        os.kill(main_pid(DAEMON), signal.SIGKILL)
        until(lambda: self.run_command("nodes").returncode == 0, "the daemon answers", self.told)
        self.reach_state(job, "JOB_RUNNING")
        self.trains(job)
        self.assertEqual(self.ranks(group), ranks)


if __name__ == "__main__":
    skips.main()
