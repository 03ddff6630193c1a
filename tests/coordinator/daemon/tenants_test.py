"""Several people share a daemon: who they are, and what each may do and take."""
import grp
import json
import os
import pwd
import signal
import stat
import subprocess
import sys
import unittest

from daemon_fixture import LIMIT_S, DaemonCase, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402

NOBODY = 65534


class Tenants(DaemonCase):
    def as_user(self, uid, groups, *arguments):
        return subprocess.run(self.command_of(*arguments), capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              stdin=subprocess.DEVNULL, user=uid, group=uid, extra_groups=groups, cwd="/")

    @unittest.skipUnless(os.geteuid() == 0, "only root can call as other users")
    def test_socket_group(self):
        own = grp.getgrgid(os.getegid()).gr_name
        os.chmod(self.folder, 0o700)
        refused = self.fails_to_start("--state-dir", f"{self.folder}/state", "--socket", f"{self.folder}/s.sock",
                                      "--socket-group", own, "--allow-folder", "/")
        self.assertIn("cannot pass the folder", refused)
        self.assertIn("knows no such group", self.fails_to_start(
            "--state-dir", f"{self.folder}/state", "--socket", f"{self.folder}/s.sock", "--socket-group", "no-such-group",
            "--allow-folder", "/"))
        os.chmod(self.folder, 0o711)
        self.write("triremed.toml", f'socket-group = "{own}"\nuser-running-ranks = 1\n'
                                     f'allow-folder = "{self.folder}/data"\n')
        self.start_daemon("--config", f"{self.folder}/triremed.toml")
        about = os.stat(f"{self.folder}/s.sock")
        self.assertEqual((stat.S_IMODE(about.st_mode), about.st_gid), (0o660, os.getegid()))

        name = pwd.getpwuid(NOBODY).pw_name
        member = [os.getegid()]
        # Who is root takes it for what it is not: the job is his own who was named by the kernel.
        job = self.submit("--set", "training.steps=1000000")
        self.assertEqual(self.show(job)["owner"], pwd.getpwuid(0).pw_name)
        denied = self.as_user(NOBODY, member, "cancel", job)
        self.assertEqual(denied.returncode, 77, denied.stdout + denied.stderr)
        self.assertIn(f"this job belongs to root; you are {name}, and no admin", denied.stderr)
        denied = self.as_user(NOBODY, member, "drain", "n1", "--reason", "mine")
        self.assertEqual(denied.returncode, 77, denied.stdout + denied.stderr)
        listed = self.as_user(NOBODY, member, "list", "--json")
        self.assertEqual((listed.returncode, json.loads(listed.stdout).get("jobs", [])), (0, []), listed.stderr)
        # No member: the socket itself keeps him out.
        outside = self.as_user(NOBODY, [], "list")
        self.assertEqual(outside.returncode, 77, outside.stdout + outside.stderr)
        self.assertIn("you may not use this socket", outside.stderr)

        sent = self.as_user(NOBODY, member, "submit", self.job_file, "--json")
        self.assertEqual(sent.returncode, 0, sent.stderr)
        of_nobody = json.loads(sent.stdout)["job"]["id"]
        self.assertEqual(self.show(of_nobody)["owner"], name)
        # His caps hold him, and not root, whose job runs.
        why = until(lambda: [text for text in [self.as_user(NOBODY, member, "explain", of_nobody).stdout]
                             if "--user-running-ranks" in text], "the cap is the reason", self.told)[0]
        self.assertIn(f"asks for 2 ranks, but {name} may run 1 at a time", why)
        self.assertIn("ask for fewer ranks", why)
        self.assertNotIn("--user-running-ranks", self.text("explain", job))
        ended = self.as_user(NOBODY, member, "cancel", of_nobody)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.ask("cancel", job)
        for one in (job, of_nobody):
            self.reach_state(one, "JOB_CANCELLED")

    def test_token_taken_back(self):
        kept = "".join(f"submit {person} token-of-{person}-0123456789\n" for person in ("ben", "cid"))
        self.write("tokens", f"{kept}submit ann token-of-ann-0123456789\n", 0o600)
        for person in ("ann", "ben"):
            self.write(f"{person}.token", f"token-of-{person}-0123456789\n", 0o600)
        self.start_daemon("--listen", "127.0.0.1:0", "--token-file", f"{self.folder}/tokens", "--allow-folder", self.folder)
        port = until(self.ready_port, "the port in the log", self.told)

        def begin(person, *arguments):
            return self.begin(*arguments, "--coordinator", f"127.0.0.1:{port}", "--token-file",
                              f"{self.folder}/{person}.token")
        jobs = {}
        for person in ("ann", "ben"):
            code, text = begin(person, "submit", self.job_file, "--set", "resources.gpus_per_rank=64", "--json").end()
            self.assertEqual(code, 0, text)
            jobs[person] = str(json.loads(text)["job"]["id"])
        of_ann, of_ben = (begin(person, "watch", jobs[person]) for person in ("ann", "ben"))
        for watch in (of_ann, of_ben):
            until(lambda watch=watch: "submitted" in watch.text(), "the stream is open", watch.text)
        self.write("tokens", kept, 0o600)
        self.daemon.send_signal(signal.SIGHUP)
        code, text = of_ann.end()
        self.assertEqual(code, 77, text)
        self.assertIn("the token of ann was taken back", text)
        self.assertIsNone(of_ben.process.poll(), of_ben.text())
        self.ask("cancel", jobs["ben"])
        self.assertEqual(of_ben.end()[0], 5, of_ben.text())
        self.ask("cancel", jobs["ann"])


if __name__ == "__main__":
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    skips.main()
