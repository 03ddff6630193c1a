#!/usr/bin/env python3
"""`trireme backup` of a daemon that runs, and what comes of the file.

Usage: backup_test.py BIN_FOLDER [Backups.test_NAME ...]
"""
import glob
import json
import os
import re
import shutil
import signal
import stat
import sys

from daemon_fixture import DaemonCase, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402


LONG = ("--set", "training.steps=10000000", "--set", "checkpoint.every_steps=1000")
PEOPLE = {"ann": "submit", "root": "admin"}


class Backups(DaemonCase):
    def ranks(self, job):
        return [self.rank(job, number) for number in (0, 1)]

    def gets_on(self, job):
        """Its ranks make steps."""
        at = max(self.losses(job))
        until(lambda: max(self.losses(job)) > at + 20, "steps are made", self.told)

    def is_refused(self, folder, why, *by, code=2):
        refused = self.run_command("backup", folder, *by)
        self.assertEqual((refused.returncode, refused.stdout), (code, ""), refused.stderr)
        self.assertIn(why, refused.stderr)

    def test_backup_while_it_runs(self):
        """Made beside a job that runs, by an admin alone; put back after a kill as the documents say, the job is there
        and goes on; in a state folder of its own it is a store as well."""
        self.write("tokens", "".join(f"{role} {name} token-of-{name}-0123456789\n" for name, role in PEOPLE.items()), 0o600)
        for name in PEOPLE:
            self.write(f"{name}.token", f"token-of-{name}-0123456789\n", 0o600)
        self.start_daemon("--listen", "127.0.0.1:0", "--token-file", f"{self.folder}/tokens", "--allow-folder",
                          self.folder)
        port = until(self.ready_port, "the port in the log", self.told)
        by = ("--coordinator", f"127.0.0.1:{port}", "--token-file")
        job = self.submit(*LONG)
        self.reach(job, 20)
        kept = f"{self.folder}/kept"
        self.is_refused(kept, "has not the role that this needs: admin", *by, f"{self.folder}/ann.token", code=77)
        self.is_refused(f"{kept}/deeper", f"{kept}/deeper: cannot be made")
        self.is_refused(self.job_file, f"{self.job_file} is no folder")
        self.assertFalse(os.path.exists(kept))
        made = self.run_command("backup", kept, *by, f"{self.folder}/root.token")
        self.assertEqual(made.returncode, 0, made.stderr + self.told())
        self.assertRegex(made.stderr, r"^1 job and \d+ events in .* KiB, checked\n$")
        [name] = os.listdir(kept)
        self.assertRegex(name, r"^jobs-\d{4}-\d\d-\d\dT\d{6}Z\.db$")
        self.assertEqual(made.stdout, f"{kept}/{name}\n")
        self.assertEqual([stat.S_IMODE(os.stat(path).st_mode) for path in (kept, f"{kept}/{name}")], [0o700, 0o600])
        told = self.run_command("backup", f"{self.folder}/more", "--json")
        self.assertEqual(told.returncode, 0, told.stderr)
        last = json.loads(told.stdout.splitlines()[-1])
        self.assertEqual((last["done"], last["jobs"], last["bytes_done"]), (True, "1", str(os.stat(last["file"]).st_size)))
        self.assertGreaterEqual(int(last["events"]), int(re.search(r"(\d+) event", made.stderr)[1]))
        self.goes_on_from(f"{kept}/{name}", job)
        self.is_a_store_elsewhere(last["file"], job)

    def goes_on_from(self, backup, job):
        later = self.submit(*LONG)
        ranks = self.ranks(job)
        self.daemon.kill()
        self.daemon.wait()
        self.assertTrue(os.path.exists(f"{self.folder}/state/jobs.db-wal"))
        os.mkdir(f"{self.folder}/old")
        for path in glob.glob(f"{self.folder}/state/jobs.db*"):
            shutil.move(path, f"{self.folder}/old")
        shutil.copy(backup, f"{self.folder}/state/jobs.db")
        self.start_daemon()
        self.assertEqual([one["id"] for one in self.ask("list", "--all")["jobs"]], [job], f"job {later} came after it")
        self.gets_on(job)
        self.assertEqual(self.ranks(job), ranks)
        self.assertEqual(self.show(job)["status"]["attempt"], 1)
        self.ask("cancel", job)
        self.assertEqual(self.watch(job).end()[0], 5)

    def is_a_store_elsewhere(self, backup, job):
        self.stop_daemon()
        for pid in self.agents():
            os.kill(pid, signal.SIGTERM)
        until(lambda: not self.agents(), "the agent has ended", self.told)
        os.rename(f"{self.folder}/state", f"{self.folder}/before")
        os.mkdir(f"{self.folder}/state", 0o700)
        shutil.copy(backup, f"{self.folder}/state/jobs.db")
        self.start_daemon()
        self.assertEqual([one["id"] for one in self.ask("list", "--all")["jobs"]], [job])
        self.ask("cancel", job)


if __name__ == "__main__":
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    skips.main()
