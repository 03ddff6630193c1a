#!/usr/bin/env python3
"""An agent frees what runs have left in its node's memory after the hours that it was told, in a /dev/shm of its own, so that
nothing of anybody else is touched. Every wait has a deadline.

Usage: snapshots_test.py BIN_FOLDER [LeftSnapshots.test_NAME ...]
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
import skips

LIMIT_S = 100
ALONE = ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount -t tmpfs shm /dev/shm && exec "$@"', "sh"]


class LeftSnapshots(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        tried = subprocess.run([*ALONE, "true"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        if tried.returncode != 0:
            raise unittest.SkipTest("not here: a mount namespace: " + tried.stderr.strip())

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="trireme_agent_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, name, *more):
        """An agent to whose coordinator no line comes; its /dev/shm, as it is seen from here, once it is at work."""
        with open(f"{self.folder}/{name}.log", "w", encoding="utf-8") as log:
            agent = subprocess.Popen([*ALONE, f"{BIN}/trireme-agent", "--node", "n1", "--state-dir", f"{self.folder}/{name}",
                                      "--coordinator", f"unix:{self.folder}/none", "--control-groups", "off", *more],
                                     stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.addCleanup(self.stop, agent)
        self.until(lambda: "agent of node n1" in self.said(name), f"{name} is at work")
        return f"/proc/{agent.pid}/root/dev/shm"

    def stop(self, agent):
        agent.send_signal(signal.SIGTERM)
        self.assertEqual(agent.wait(LIMIT_S), 0)

    def said(self, name):
        with open(f"{self.folder}/{name}.log", encoding="utf-8") as log:
            return log.read()

    def until(self, condition, what):
        end = time.monotonic() + LIMIT_S
        while not condition():
            self.assertLess(time.monotonic(), end, f"not within {LIMIT_S} s: {what}")
            time.sleep(0.05)

    def leave(self, memory):
        folder = f"{memory}/trireme-{os.geteuid()}-{'a' * 32}"
        os.mkdir(folder, mode=0o700)
        with open(folder + "/rank-00000.snapshot", "wb") as file:
            file.write(b"TRIRSNAP" + bytes(1 << 20))
        return folder

    def test_go_after_the_hours_told(self):
        kept = [self.leave(self.start("usual")), self.leave(self.start("never", "--keep-snapshots-hours", "0"))]
        left = self.leave(self.start("soon", "--keep-snapshots-hours", "0.0001"))
        self.until(lambda: not os.path.exists(left), "it goes")
        self.until(lambda: "removed: " in self.said("soon"), "it is told")
        for folder in kept:
            self.assertTrue(os.path.exists(folder + "/rank-00000.snapshot"), folder)


if __name__ == "__main__":
    BIN = os.path.abspath(sys.argv.pop(1))
    skips.main()
