#!/usr/bin/env python3
"""A run whose newest checkpoint is damaged goes on, and a start that is refused damages nothing, over real mpirun.
Every wait has a deadline.

Usage: damage_test.py BIN_FOLDER [Damage.test_NAME ...]
"""
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys

import worker_test


class Damage(worker_test.Worker):
    def test_goes_on_after_damage(self):
        """Of the newest checkpoint each file in turn has one byte flipped, and its manifest is cut, emptied, deleted:
        the run goes on from the one before, to the same end bit for bit, and the damaged one is kept and named."""
        whole, _ = self.run_job("whole")
        expected = self.state_files(whole, 30)
        newest = os.path.join("checkpoints", "step-00000030")
        files = sorted(os.listdir(os.path.join(whole.folder, newest)))
        self.assertEqual(len(files), 5, files)

        def flip(path):
            with open(path, "r+b") as file:
                file.seek(os.path.getsize(path) - 2)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 0x10]))

        cases = [(name, "flipped", flip) for name in files]
        cases += [("manifest.json", "cut", lambda path: os.truncate(path, os.path.getsize(path) // 2)),
                  ("manifest.json", "emptied", lambda path: os.truncate(path, 0)),
                  ("manifest.json", "deleted", os.remove)]
        for name, how, damage in cases:
            with self.subTest(file=name, how=how):
                run = f"{how}-{name}"
                shutil.copytree(os.path.join(whole.folder, "checkpoints"), os.path.join(self.folder, run, "checkpoints"))
                damage(os.path.join(self.folder, run, newest, name))
                job, output = self.run_job(run, "--resume", "auto")
                log = worker_test.read(job.folder + "/logs/rank-0.log")
                self.assertRegex(output, r"passed over \S*step-00000030: .*" + re.escape(name))
                self.assertRegex(log, r"resumed from \S*step-00000020 at step 20")
                self.assertRegex(log, r"damaged checkpoint is now named \S*step-00000030\.damaged; .*" + re.escape(name))
                names = set(os.listdir(job.folder + "/checkpoints"))
                self.assertEqual(names, {".lock", "step-00000020", "step-00000030", "step-00000030.damaged"})
                self.assertEqual(self.state_files(job, 30), expected)
                self.verify_checkpoint(job)

    def test_generate_names_an_older_one(self):
        """Of a checkpoint whose manifest and sizes are right, and whose bytes are not, the error says what there is instead."""
        job, _ = self.run_job("run", "--set", "parallelism.tensor_parallel_size=1", "--set", "parallelism.pipeline_parallel_size=1",
                              ranks=1)
        root = job.folder + "/checkpoints"
        newest, older = root + "/step-00000030", root + "/step-00000020"
        with open(newest + "/rank-000.safetensors", "r+b") as file:
            for part in range(1, 20):  # parameters are among them, wherever they lie
                file.seek(os.path.getsize(file.name) * part // 20)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 0x10]))

        def refused():
            said = subprocess.run([os.path.join(worker_test.BIN, "trireme"), "generate", "--checkpoint", job.folder, "--prompt",
                                   "the"], text=True, capture_output=True, timeout=worker_test.LIMIT_S, check=False)
            self.assertNotEqual(said.returncode, 0, said.stdout)
            return said.stderr
        self.assertIn("use an older checkpoint. The newest older one that opens is " + older, refused())
        shutil.rmtree(older)
        self.assertIn("use an older checkpoint. There is no older one there that opens", refused())

    def test_refused_it_changes_nothing(self):
        """Another job that is started by hand in a folder with checkpoints leaves what is there as it is, also the flight
        recorders, by which the keeper of a run knows its ranks."""
        job, _ = self.run_job("first")
        names = os.listdir(job.folder) + ["recorder/" + name for name in os.listdir(job.folder + "/recorder")]
        kept = {name: worker_test.read(f"{job.folder}/{name}") for name in names if os.path.isfile(f"{job.folder}/{name}")}
        self.assertIn("recorder/rank-000.rec", kept)
        for name in ("job.yaml", "plan.pb", "metrics.jsonl", "report.json"):
            self.assertTrue(kept[name], name)
        again = subprocess.run(
            ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "4",
             os.path.join(worker_test.BIN, "trireme-worker"), "--job", self.folder + "/job.yaml", "--run-dir", job.folder,
             "--set", "seed=8", "--set", "training.micro_batch_size=2"],
            text=True, capture_output=True, timeout=worker_test.LIMIT_S, check=False, stdin=subprocess.DEVNULL,
            env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.assertEqual(again.returncode, 2, again.stdout + again.stderr)
        self.assertIn("checkpoints", again.stderr)
        for name, text in kept.items():
            self.assertEqual(worker_test.read(f"{job.folder}/{name}"), text, name)

    def damage_newest(self, run):
        """A whole run of 30 steps, copied, with the checkpoint of step 30 damaged."""
        whole, _ = self.run_job("whole", "--set", "checkpoint.keep=0")
        shutil.copytree(os.path.join(whole.folder, "checkpoints"), os.path.join(self.folder, run, "checkpoints"))
        os.truncate(os.path.join(self.folder, run, "checkpoints/step-00000030/manifest.json"), 100)

    def test_gets_on_from_behind_damage(self):
        """Back at step 20 of a run whose step 30 is damaged, killed once after it has saved again: the next attempt goes on
        from what this run has saved, though that is of an earlier step than what was there."""
        self.damage_newest("run")
        job = self.start("run", "--set", "training.steps=100000", "--set", "checkpoint.every_steps=3", "--set",
                         "resources.max_failures=2", "--resume", self.folder + "/run/checkpoints/step-00000020")
        for attempt in (1, 2, 3):
            folder = f"{job.folder}/attempts/{attempt}"
            worker_test.until(lambda folder=folder: worker_test.read(folder + "/recorder/saves").count("step-") >= 2
                              or job.process.poll() is not None, f"two checkpoints of attempt {attempt}")
            self.assertIsNone(job.process.poll(), worker_test.read(folder + "/logs/rank-0.log"))
            began = re.search(r"resumed from \S*step-(\d+) at", worker_test.read(folder + "/logs/rank-0.log"))
            step = int(began.group(1))
            self.assertTrue(step == 20 if attempt == 1 else step > 20, began.group(0))
            if attempt < 3:
                os.kill(job.rank(0), signal.SIGKILL)
        job.process.send_signal(signal.SIGINT)
        code, output = job.end()
        self.assertEqual(code, 75, output)
        self.verify_checkpoint(job)

    def test_waits_for_a_folder_that_is_held(self):
        """What holds the folder of the checkpoints may be of a node that was lost: no fault of the job, which waits."""
        elsewhere = self.folder + "/elsewhere"
        os.makedirs(elsewhere)
        with open(elsewhere + "/.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            job = self.start("run", "--set", "checkpoint.directory=" + elsewhere)
            worker_test.until(lambda: "another run writes its checkpoints here" in
                              worker_test.read(job.folder + "/attempts/1/logs/rank-0.log"), "the ranks wait")
        code, output = job.end()
        self.assertEqual(code, 0, output)
        self.assertIn(elsewhere + ": another run writes its checkpoints here", output)
        self.assertEqual(sorted(os.listdir(job.folder + "/attempts")), ["1", "keeper"])

    def test_stops_while_a_folder_is_held(self):
        """Nothing is lost by it, so it is no failure: a batch job that is preempted meanwhile is queued again."""
        elsewhere = self.folder + "/elsewhere"
        os.makedirs(elsewhere)
        with open(elsewhere + "/.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            job = self.start("run", "--set", "checkpoint.directory=" + elsewhere)
            worker_test.until(lambda: "another run writes its checkpoints here" in
                              worker_test.read(job.folder + "/attempts/1/logs/rank-0.log"), "the ranks wait")
            job.process.send_signal(signal.SIGINT)
            code, output = job.end()
        self.assertEqual(code, 75, output)
        # Nor is it to go on from what that other process may have saved.
        self.assertIn("stopped before anything was saved; start anew with:", output)
        self.assertNotIn("--resume", output)
        self.assertNotIn("failed", output)


if __name__ == "__main__":
    worker_test.BIN = os.path.abspath(sys.argv.pop(1))
    worker_test.skips.main()
