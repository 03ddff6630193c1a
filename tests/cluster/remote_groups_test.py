#!/usr/bin/env python3
"""Ranks that mpirun starts on other nodes are in the control group of the attempt there, which their node's agent has made: what
they have hidden ends with it. Where that agent has no groups they run as ever.

Usage: remote_groups_test.py BIN_FOLDER [RemoteGroups.test_NAME ...]
"""
import os
import re

import host_case
from host_case import daemon_fixture, read, until

BUSY = ("--set", "resources.ranks=4", "--set", "training.steps=1000000")
# On the second host, in a session of its own and without an environment, so that nobody can know whose it is.
HIDES = """#!/bin/sh
[ "$(hostname)" = host2 ] && mkdir "{folder}/once" 2>/dev/null &&
  env -i setsid sh -c 'while true; do sleep 1; done; : "{folder}/hidden"' </dev/null >/dev/null 2>&1 &
exec "{bin}/trireme-worker" "$@"
"""


class Groups(host_case.HostsCase):
    names = {1: "host1", 2: "host2"}
    off = ()  # hosts whose agents have none

    def setUp(self):
        super().setUp()
        if any(", below " not in read(f"{self.folder}/agent{number}.log") for number in self.names if number not in self.off):
            self.skipTest("not here: a cgroup v2 that may be written to, as root's")

    def arguments_of_agent(self, number):
        self.write("worker", HIDES.format(folder=self.folder, bin=self.bin), 0o755)
        return ["--worker", f"{self.folder}/worker", *(["--control-groups", "off"] if number in self.off else [])]

    def hidden(self):
        """Its number, when it is there."""
        return next((pid for pid, line in daemon_fixture.processes_of(f"{self.folder}/hidden").items()), None)

    def groups_on(self, number, words, folder):
        """Of the processes of a host whose command line begins so, and names the folder."""
        host = os.readlink(f"/proc/{self.hosts.holders[number - 1][1]}/ns/uts")
        pids = [pid for pid, line in daemon_fixture.processes_of(folder).items()
                if re.match(words, line) and os.readlink(f"/proc/{pid}/ns/uts") == host]
        return [re.search(r"^0::(.*)$", read(f"/proc/{pid}/cgroup"), re.MULTILINE)[1] for pid in pids]

    def begin(self):
        job = self.submit(*BUSY)
        self.reach(job, 5)
        self.assertEqual(self.nodes_of(job), ["host1", "host2"])
        until(self.hidden, "a process hides", self.told)
        ranks = {number: self.groups_on(number, f"{self.bin}/trireme-worker", self.run_folder(job)) for number in self.names}
        self.assertEqual([len(groups) for groups in ranks.values()], [2, 2])
        return job, ranks


class RemoteGroups(Groups):
    def test_hidden_on_another_node(self):
        job, ranks = self.begin()
        for groups in ranks.values():
            self.assertEqual(len(set(groups)), 1, ranks)
            self.assertIn(f"/trireme-{job}-1-", groups[0])
        self.assertNotEqual(ranks[1], ranks[2])  # each is of its own agent
        hidden = self.hidden()
        self.assertIn(ranks[2][0], read(f"/proc/{hidden}/cgroup"))
        # mpirun's daemon too; its command line names mpirun's session folder.
        self.assertEqual(self.groups_on(2, r"[^\0]*orted\0", f"/tmp/trireme-{job}-1-"), ranks[2][:1])
        self.cancel(job)
        until(lambda: not daemon_fixture.lives(hidden), "what has hidden is gone", self.told, 30)
        said = "".join(read(f"{self.run_folder(job)}/attempts/1/logs/mpirun.log"))
        self.assertNotIn("control group", said)


class NoRemoteGroups(Groups):
    off = (2,)

    def test_launches_without_remote_groups(self):
        """And what the search of /proc misses: why there are groups."""
        job, ranks = self.begin()
        self.assertIn(f"/trireme-{job}-1-", ranks[1][0])
        self.assertNotIn("/trireme-", ranks[2][0])
        hidden = self.hidden()
        self.cancel(job)
        self.assertTrue(daemon_fixture.lives(hidden))
        os.kill(hidden, 9)


if __name__ == "__main__":
    host_case.main()
