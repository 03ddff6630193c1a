#!/usr/bin/env python3
"""Ranks, agents and daemons that stand still, each told apart and named, through a daemon and its command line. Ranks that
are stopped or killed are in daemon_test.py.

Usage: stall_test.py BIN_FOLDER [Stalls.test_NAME ...]
"""
import os
import signal
import subprocess
import sys
import time

from daemon_fixture import DaemonCase, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402

DEADLINE_S = 40
LEASE_S = 10  # of an agent's silence
BUSY = ["--set", "training.steps=1000000", "--set", f"runtime.deadline_seconds={DEADLINE_S}"]


class Stalls(DaemonCase):
    def test_hung_rank(self):
        hang = f"{self.folder}/hang"
        self.environment = {"HANG_FILE": hang, "HANG_RANK": "1",
                            "LD_PRELOAD": os.path.join(self.bin, "../tests/libhang_when_told.so")}
        self.start_daemon()
        # Without checkpoints: for a disk ranks wait longer than the deadline.
        job = self.submit(*BUSY, "--set", "resources.max_failures=1", "--set", "checkpoint.every_steps=1000000")
        self.reach(job, 20)
        watch = self.watch(job)
        self.write("hang", "")
        [told] = until(lambda: watch.of_kind("stalled"), "a rank that hangs is told", self.told, 60)
        stalled = told["stalled"]
        self.assertEqual((stalled["rank"], stalled["node"], stalled["over"]), (1, "n1", False))
        self.assertRegex(stalled["text"], r"^rank 1 on node n1 has not moved for [1-9]\d+ s at step \d+, [A-Z_]+.*; "
                                          r"rank 0 waits for it$")
        for command in ("explain", "show"):
            self.assertIn("rank 1 on node n1 has not moved", self.text(command, job))
        self.assertIn("rank 1 on node n1 has not moved", self.told())
        os.remove(hang)
        [_, over] = until(lambda: watch.of_kind("stalled")[1:] and watch.of_kind("stalled"), "it is over", self.told)
        self.assertEqual((over["stalled"]["rank"], over["stalled"]["over"]), (1, True))
        # It has gone on from such a stillness, so the next one ends by the deadline of those who wait.
        self.reach(job, max(self.losses(job)) + 20)
        self.write("hang", "")
        self.assertEqual(watch.end()[0], 4, self.told())
        self.assertEqual({event["stalled"]["rank"] for event in watch.of_kind("stalled")}, {1}, self.told())
        failure = self.show(job)["status"]["failure"]
        self.assertEqual(failure["rank"], 1, failure)
        self.assertRegex(failure["headline"], r"^rank 1 stopped moving at step \d+, .*; rank 0 gave up: ")

    def start_agent(self):
        with open(f"{self.folder}/agent.log", "a", encoding="utf-8") as log:
            self.commands.append(subprocess.Popen(
                [f"{self.bin}/trireme-agent", "--coordinator", f"unix:{self.folder}/s.sock", "--node", "n1",
                 "--state-dir", f"{self.folder}/state/agent"], stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        self.addCleanup(self.commands[-1].wait)
        return self.commands[-1]

    def test_lost_agent(self):
        agent = self.start_agent()
        self.start_daemon("--no-agent")
        job = self.submit(*BUSY)
        self.reach(job, 20)
        watch = self.watch(job)
        until(watch.events, "the watch has begun", self.told)
        ranks = [self.rank(job, number) for number in (0, 1)]
        agent.send_signal(signal.SIGKILL)
        agent.wait()

        def node():
            return self.ask("nodes")["nodes"][0]["state"]
        until(lambda: node() == "NODE_LOST", "the node is lost", self.told)
        # Its ranks run on, and none of them is blamed.
        step = max(self.losses(job))
        until(lambda: max(self.losses(job)) > step + 20, "the ranks run on", self.told)
        self.assertEqual(self.show(job)["status"]["state"], "JOB_RUNNING")
        self.start_agent()
        until(lambda: node() == "NODE_READY", "the node is back", self.told)
        self.assertEqual([self.rank(job, number) for number in (0, 1)], ranks)
        self.ask("cancel", job)
        self.assertEqual(watch.end()[0], 5, self.told())
        self.assertEqual(watch.of_kind("stalled"), [])
        self.assertEqual(self.show(job)["status"]["attempt"], 1)
        log = self.told()
        self.assertIn("node n1: lost", log)

    def test_stopped_daemon(self):
        self.start_daemon()
        job = self.submit(*BUSY)
        self.reach(job, 20)
        self.daemon.send_signal(signal.SIGSTOP)
        time.sleep(LEASE_S + 4)
        self.daemon.send_signal(signal.SIGCONT)
        until(lambda: "the reconciler stood still for" in self.told(), "it is told", self.told)
        # What its agent has said since does not come to one that takes it for silent.
        self.reach(job, max(self.losses(job)) + 20)
        self.assertEqual(self.ask("nodes")["nodes"][0]["state"], "NODE_READY", self.told())
        self.assertEqual(self.show(job)["status"]["attempt"], 1)
        self.assertNotIn("node n1: lost", self.told())
        self.ask("cancel", job)
        self.reach_state(job, "JOB_CANCELLED")


if __name__ == "__main__":
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    skips.main()
