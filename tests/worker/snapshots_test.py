#!/usr/bin/env python3
"""Ranks killed at any moment, over real mpirun: the run goes on from the step in memory, and ends with the bits of one that
was never broken. Every wait has a deadline.

Usage: snapshots_test.py BIN_FOLDER [Snapshots.test_NAME ...]
"""
import glob
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import worker_test

# No checkpoint but the last: what is not in memory is lost.
MORE = ["--set", "snapshots.every_step=true", "--set", "checkpoint.every_steps=0", "--set", "evaluation.every_steps=50",
        "--set", "parallelism.tensor_parallel_size=1", "--set", "parallelism.zero_stage=1"]


def key_of(job):
    return worker_test.read(job.folder + "/snapshots.key").partition(" ")[0]


def folder_of(job):
    return f"/dev/shm/trireme-{os.getuid()}-{key_of(job)}"


class Snapshots(worker_test.Worker):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.remove_snapshots)

    def remove_snapshots(self):
        for job in self.jobs:
            for path in glob.glob(folder_of(job) + "/rank-*.snapshot") if key_of(job) else []:
                os.remove(path)
            if key_of(job) and os.path.isdir(folder_of(job)):
                os.rmdir(folder_of(job))

    def attempts(self, job):
        return len(glob.glob(job.folder + "/attempts/[0-9]*"))

    def resumed_at(self, job, attempt, where="memory"):
        """The step from which it goes on there; None: from none."""
        ways = {"memory": "in memory", "disk": r"from \S+"}
        way = "|".join(ways[each] for each in where.split("|"))
        log = worker_test.read(f"{job.folder}/attempts/{attempt}/logs/rank-0.log")
        found = re.search(rf"resumed (?:{way}) at step (\d+)", log)
        return int(found.group(1)) if found else None

    def validations(self, job):
        return [(line["step"], line["validation_loss"]) for line in
                map(json.loads, worker_test.read(job.folder + "/metrics.jsonl").splitlines()) if "validation_loss" in line]

    def expect_twin(self, job, twin, steps):
        self.assertEqual(self.losses(job), self.losses(twin))
        self.assertEqual(self.validations(job), self.validations(twin))
        self.assertEqual(self.state_files(job, steps), self.state_files(twin, steps))
        self.assertFalse(os.path.exists(folder_of(job)), "memory is left behind")
        self.assertEqual(worker_test.processes_of(job.folder), {})

    def kill_at_random(self, kills, steps, checkpoint_every=0):
        more = [*MORE, "--set", f"training.steps={steps}", "--set", f"checkpoint.every_steps={checkpoint_every}"]
        twin, _ = self.run_job("twin", *more)
        chance = random.Random()
        seed = int.from_bytes(os.urandom(4), "little")
        chance.seed(seed)
        # Each goes on further than the one before, so that none is the second in a row.
        job = self.start("run", *more, "--set", "resources.max_failures=2")
        at = 0
        for attempt in range(1, kills + 1):
            worker_test.until(lambda n=attempt: self.attempts(job) == n, f"attempt {attempt}")
            victim = worker_test.until(lambda: job.rank(chance.randrange(4)), "a rank to kill")
            job.reach(max(job.steps(), at) + 1)
            time.sleep(chance.uniform(0, 0.1))
            reached = job.steps()
            os.kill(victim, signal.SIGKILL)
            worker_test.until(lambda n=attempt: self.attempts(job) == n + 1 or job.process.poll() is not None, "the next one")
            where = "memory|disk" if checkpoint_every > 0 else "memory"
            at = worker_test.until(lambda n=attempt: self.resumed_at(job, n + 1, where), f"seed {seed}: a step to go on from")
            self.assertGreaterEqual(at, reached, f"seed {seed}: a step is lost")
        code, output = job.end()
        self.assertEqual(code, 0, f"seed {seed}: {output}")
        self.expect_twin(job, twin, steps)

    def test_goes_on_in_memory(self):
        self.kill_at_random(3, 1500)

    def test_goes_on_in_memory_50_times(self):
        """With checkpoints, so that some begin on the disk."""
        self.addCleanup(setattr, worker_test, "LIMIT_S", worker_test.LIMIT_S)
        worker_test.LIMIT_S = 900
        self.kill_at_random(50, 8000, checkpoint_every=25)

    def test_does_what_was_due_at_that_step(self):
        """Killed in the middle of an evaluation, with a checkpoint to follow: both come before the next step."""
        more = [*MORE, "--set", "training.steps=60", "--set", "evaluation.every_steps=50", "--set", "evaluation.samples=0",
                "--set", "data.validation_fraction=0.9", "--set", "checkpoint.every_steps=50"]
        twin, _ = self.run_job("twin", *more)
        job = self.start("run", *more)
        job.reach(50)
        os.kill(worker_test.until(lambda: job.rank(3), "rank 3"), signal.SIGKILL)
        code, output = job.end()
        self.assertEqual(code, 0, output)
        self.assertEqual(self.resumed_at(job, 2), 50)
        self.assertIn(50, dict(self.validations(job)))
        self.expect_twin(job, twin, 60)
        self.assertEqual(self.state_files(job, 50), self.state_files(twin, 50))

    def listed(self, job, *arguments):
        return subprocess.run([os.path.join(worker_test.BIN, "trireme"), "checkpoint", "list", job.folder, *arguments],
                              capture_output=True, text=True, timeout=worker_test.LIMIT_S, check=True).stdout

    def put_back(self, kept):
        for path, content in kept.items():
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(content)

    def test_takes_memory_or_disk_whichever_is_newer(self):
        """What stays in memory after a failure is told, with the way on; who goes on there by hand finds it."""
        more = [*MORE, "--set", "training.steps=400", "--set", "checkpoint.every_steps=60"]
        twin, _ = self.run_job("twin", *more)
        more += ["--set", "resources.max_failures=1"]
        job = self.start("run", *more)
        job.reach(100)
        os.kill(job.rank(1), signal.SIGKILL)
        code, output = job.end()
        self.assertEqual(code, 4, output)
        self.assertRegex(output, rf"step \d+ is in memory \(.*{re.escape(folder_of(job))}")
        table, listed = self.listed(job), json.loads(self.listed(job, "--json"))
        self.assertEqual([each["step"] for each in listed["checkpoints"]], [60])
        memory = listed["memory"]
        self.assertGreaterEqual(memory["step"], 100)
        self.assertEqual((memory["files"], memory["ranks"], memory["samples"]), (4, 4, 8 * memory["step"]))
        self.assertRegex(table, rf"(?m)^ +{memory['step']} +{memory['samples']} +4 .*in memory: {folder_of(job)}$")
        kept = {}
        for path in glob.glob(folder_of(job) + "/rank-*.snapshot"):
            with open(path, "rb") as file:
                kept[path] = file.read()
        self.assertEqual(len(kept), 4)
        self.run_job("run", *more, "--resume", "auto")
        self.assertGreaterEqual(self.resumed_at(job, 2), 100)
        self.assertEqual(self.state_files(job, 400), self.state_files(twin, 400))
        self.assertFalse(os.path.exists(folder_of(job)))
        # Now the disk has a newer one.
        self.put_back(kept)
        self.run_job("run", *more, "--resume", "auto")
        self.assertIsNone(self.resumed_at(job, 3))
        self.assertFalse(os.path.exists(folder_of(job)))

    def run_in_small_memory(self, job, age, shows):
        """With 16 MiB of /dev/shm, of which another run has left 11 MiB: what it ends with, and what lies there then."""
        script = ('mount -t tmpfs -o size=16m shm /dev/shm || exit 99\n'
                  'left=/dev/shm/trireme-$(id -u)-' + "a" * 32 + '\n'
                  'mkdir -m 700 $left && head -c 11m /dev/zero | tr "\\0" x > $left/rank-00000.snapshot\n'
                  f'touch -d "{age}" $left/rank-00000.snapshot\n'
                  '"$@"; code=$?; ls -d /dev/shm/trireme-*; exit $code')
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh",
                               os.path.join(worker_test.BIN, "trireme"), "run", f"{self.folder}/job.yaml", "-n", "1", "--run-dir",
                               f"{self.folder}/{job}", "--set", "snapshots.every_step=true", "--set", "training.steps=5",
                               "--set", "parallelism.tensor_parallel_size=1", "--set",
                               "parallelism.pipeline_parallel_size=1"],
                              capture_output=True, text=True, timeout=worker_test.LIMIT_S, check=False)
        if done.returncode == 99 or "unshare:" in done.stderr:
            self.skipTest("not here: a mount namespace: " + done.stderr.strip())
        output = done.stdout + done.stderr + worker_test.read(f"{self.folder}/{job}/attempts/1/logs/rank-0.log")
        for text in shows:
            self.assertIn(text, output)
        return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("/dev/shm/")], output

    def test_makes_room_of_what_is_left(self):
        """What a run has left goes for one that needs its room, unless it is as new as one that may be about to go on."""
        code, left, output = self.run_in_small_memory("old", "1 hour ago", ["removed, for this run needs its room: 11"])
        self.assertEqual((code, left), (0, []), output)
        code, left, output = self.run_in_small_memory("new", "1 minute ago", ["make room in /dev/shm"])
        self.assertEqual((code, len(left)), (3, 1), output)


if __name__ == "__main__":
    worker_test.BIN = os.path.abspath(sys.argv.pop(1))
    worker_test.skips.main()
