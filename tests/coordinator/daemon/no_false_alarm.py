#!/usr/bin/env python3
"""A machine with far more to do than it can: jobs on three nodes of it, twice as many idle loops as cores, and a disk
that is kept busy. However slowly the ranks move, nobody is said to stand still, to be lost or to have failed.

Usage: no_false_alarm.py BIN_FOLDER MINUTES
"""
import os
import subprocess
import sys
import time

from daemon_fixture import DaemonCase, read, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402

LOOP = "while True: pass"
WRITER = """
import os, sys
block = os.urandom(1 << 20)
while True:
    with open(sys.argv[1], "wb") as file:
        for _ in range(128):
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
"""


class NoFalseAlarm(DaemonCase):
    minutes = 30.0

    def begin_process(self, *command):
        with open(f"{self.folder}/state/agent.log", "a", encoding="utf-8") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.commands.append(process)
        self.addCleanup(process.wait)
        return process

    def load(self):
        loops = [self.begin_process(sys.executable, "-c", LOOP) for _ in range(2 * len(os.sched_getaffinity(0)))]
        return loops + [self.begin_process(sys.executable, "-c", WRITER, f"{self.folder}/written")]

    def test_no_false_alarm(self):
        os.makedirs(f"{self.folder}/state/agents")
        for node in ("n2", "n3"):
            self.begin_process(f"{self.bin}/trireme-agent", "--coordinator", f"unix:{self.folder}/s.sock", "--node",
                               node, "--state-dir", f"{self.folder}/state/agents/{node}")
        self.start_daemon()
        until(lambda: len(self.ask("nodes")["nodes"]) == 3, "three nodes", self.told)
        jobs = [self.submit("--set", f"name=job{number}", "--set", "training.steps=1000000000", "--set",
                            "optimizer.learning_rate=0.00001", "--set", "checkpoint.every_steps=200", "--set",
                            "evaluation.every_steps=150", "--set", "runtime.log_every_steps=50", "--set",
                            f"resources.nodes=[{node}]")
                for number, node in enumerate(("n1", "n2", "n3"))]
        for job in jobs:
            self.reach(job, 50)
        watches = {job: self.watch(job) for job in jobs}
        load = self.load()
        end = time.monotonic() + 60 * self.minutes
        before = {job: max(self.losses(job)) for job in jobs}
        while time.monotonic() < end:
            time.sleep(min(10.0, max(0.0, end - time.monotonic())))
            for job in jobs:
                self.assertEqual(self.show(job)["status"]["state"], "JOB_RUNNING", self.told())
        self.assertEqual([each.poll() for each in load], [None] * len(load), self.told())
        after = {job: max(self.losses(job)) for job in jobs}
        for job, watch in watches.items():
            self.assertGreater(after[job], before[job])
            self.assertEqual(watch.of_kind("stalled"), [], self.told())
            self.ask("cancel", job)
            self.assertEqual(watch.end()[0], 5, self.told())
            self.assertEqual(self.show(job)["status"]["attempt"], 1)
        self.assertNotIn(": lost", read(f"{self.folder}/daemon.log"))
        print(f"{self.minutes} minutes, steps {before} to {after}: no alarm")


if __name__ == "__main__":
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    NoFalseAlarm.minutes = float(sys.argv.pop(1))
    skips.main()
