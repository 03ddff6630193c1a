#!/usr/bin/env python3
"""An attempt is a control group: what a job has hidden from everybody ends with it, through daemon, agent and guard.

Usage: groups_test.py BIN_FOLDER [Groups.test_NAME ...]
"""
import glob
import os
import signal
import subprocess
import sys

from daemon_fixture import DaemonCase, lives, read, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402

BUSY = ["--set", "training.steps=1000000", "--set", "runtime.deadline_seconds=40", "--set", "resources.max_failures=1"]
# In a session of its own and without an environment, so that nobody can know whose it is.
HIDES = """#!/bin/sh
mkdir "{folder}/once" 2>/dev/null && env -i setsid sh -c 'echo $$ >"{folder}/hidden"; while true; do sleep 1; done' &
exec "{bin}/trireme-worker" "$@"
"""


class Groups(DaemonCase):
    def start_agent(self, *arguments):
        self.write("worker", HIDES.format(folder=self.folder, bin=self.bin), 0o755)
        with open(f"{self.folder}/state-agent.log", "a", encoding="utf-8") as log:
            agent = subprocess.Popen(
                [f"{self.bin}/trireme-agent", "--coordinator", f"unix:{self.folder}/s.sock", "--node", "n1", "--state-dir",
                 f"{self.folder}/state/agent", "--worker", f"{self.folder}/worker", *arguments],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.commands.append(agent)
        self.addCleanup(agent.wait)
        return agent

    def said(self, what):
        return until(lambda: what in read(f"{self.folder}/state-agent.log"), what,
                     lambda: read(f"{self.folder}/state-agent.log") + self.told())

    def hidden(self):
        pid = int(until(lambda: read(f"{self.folder}/hidden").strip(), "a process hides", self.told))

        def end():
            if lives(pid):
                os.kill(pid, signal.SIGKILL)
        self.addCleanup(end)
        return pid

    def lose_the_guard(self, job):
        [guard] = [pid for pid, line in self.processes(job).items() if line.startswith("trireme-guard")]
        os.kill(guard, signal.SIGKILL)
        self.reach_end(job)

    def processes(self, job):
        run = self.run_folder(job)
        found = {}
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            line = read(path)
            if run in line:
                found[int(path.split("/")[2])] = line
        return found

    def reach_end(self, job):
        until(lambda: self.show(job)["status"]["state"] == "JOB_FAILED", "the job has failed", self.told)

    def test_hidden_in_a_group(self):
        agent = self.start_agent()
        self.start_daemon("--no-agent")
        self.said("control groups: ")
        if ", below " not in read(f"{self.folder}/state-agent.log"):
            self.skipTest("not here: a cgroup v2 that may be written to, as root's")
        job = self.submit(*BUSY)
        self.reach(job, 5)
        hidden = self.hidden()
        self.assertIn(f"/trireme-{job}-1-", read(f"/proc/{hidden}/cgroup"))
        # Its agent is another one by then.
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        self.start_agent()
        until(lambda: self.ask("nodes")["nodes"][0]["state"] == "NODE_READY", "the node is back", self.told)
        self.assertTrue(lives(hidden))
        self.lose_the_guard(job)
        until(lambda: not lives(hidden), "what has hidden is gone", self.told, 20)

    def test_hidden_without_groups(self):
        """What the search of /proc misses: why there are groups."""
        self.start_agent("--control-groups", "off")
        self.start_daemon("--no-agent")
        self.said("control groups: off")
        job = self.submit(*BUSY)
        self.reach(job, 5)
        hidden = self.hidden()
        self.assertNotIn("/trireme-", read(f"/proc/{hidden}/cgroup"))
        self.lose_the_guard(job)
        self.assertTrue(lives(hidden))
        os.kill(hidden, signal.SIGKILL)


if __name__ == "__main__":
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    skips.main()
