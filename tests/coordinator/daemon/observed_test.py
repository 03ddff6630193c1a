#!/usr/bin/env python3
"""What a daemon shows of itself over HTTP and in its log.

Usage: observed_test.py BIN_FOLDER [Observed.test_NAME ...]
"""
import http.client
import os
import re
import signal
import sys
import unittest

from daemon_fixture import LIMIT_S, DaemonCase, read, until


class Observed(DaemonCase):
    def http(self, path, method="GET", **headers):
        """Status, headers and text of an answer."""
        found = until(lambda: re.findall(r"ready: .*http://127\.0\.0\.1:(\d+)", read(f"{self.folder}/daemon.log")),
                      "the HTTP port in the log", self.told)
        caller = http.client.HTTPConnection("127.0.0.1", int(found[-1]), timeout=LIMIT_S)
        try:
            caller.request(method, path, headers=headers)
            answer = caller.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            caller.close()

    def test_health(self):
        self.start_daemon("--http", "127.0.0.1:0")
        status, headers, text = self.http("/healthz")
        self.assertEqual((status, text), (200, "ok\n"))
        self.assertEqual(headers["Cache-Control"], "no-store")
        self.assertEqual(self.http("/healthz", Host="evil.example")[0], 421)
        self.assertEqual(self.http("/healthz", "POST")[0], 405)
        other = (f"--state-dir={self.folder}/other", f"--socket={self.folder}/other.sock")
        self.assertIn("--http-anywhere", self.fails_to_start(*other, "--http", "0.0.0.0:0"))
        self.assertIn("HOST:PORT", self.fails_to_start(*other, "--http", "8470"))
        # A daemon that is killed and started again takes the same port: nothing holds it.
        found = re.findall(r"http://(127\.0\.0\.1:\d+)", read(f"{self.folder}/daemon.log"))[-1]
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait()
        self.start_daemon("--http", found)
        self.assertEqual(self.http("/healthz")[0], 200)


if __name__ == "__main__":
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
