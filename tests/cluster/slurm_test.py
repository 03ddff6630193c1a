#!/usr/bin/env python3
"""Whole jobs under Slurm: srun and `trireme slurm-script` on a real cluster of three nodes (slurm.py). They must
train to the bit as under mpirun, stop and go on by signals, and end when a rank or a node dies. Every wait has a
deadline.

Usage: slurm_test.py BIN_FOLDER [SlurmJobs.test_NAME ...]
"""
import contextlib
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import slurm

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

BIN = ""
DEADLINE_S = 20  # runtime.deadline_seconds of the job
ENDLESS = ["--set", "training.steps=1000000"]

JOB = f"""name: tiny
seed: 7
model:
  config: {{model_type: gpt2, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4,
           max_position_embeddings: 32, embd_pdrop: 0.1, attn_pdrop: 0.1, resid_pdrop: 0.1}}
data: {{text_files: [text.txt], tokenizer: char, sequence_length: 16, validation_fraction: 0.1}}
training: {{steps: 600, global_batch_size: 8, micro_batch_size: 4}}
optimizer: {{learning_rate: 0.01, warmup_steps: 5}}
parallelism: {{tensor_parallel_size: 2, pipeline_parallel_size: 2}}
checkpoint: {{every_steps: 50}}
evaluation: {{every_steps: 200, samples: 8}}
runtime: {{threads: 1, log_every_steps: 1, deadline_seconds: {DEADLINE_S}}}
generation: {{prompt: "the", max_new_tokens: 10}}
"""


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def steps_of(run):
    lines = read(run + "/metrics.jsonl").splitlines()
    return max((json.loads(line)["step"] for line in lines), default=0)


def losses(run):
    return [(line["step"], line.get("loss"), line.get("validation_loss")) for line in
            map(json.loads, read(run + "/metrics.jsonl").splitlines())]


def state(run, step):
    """{name: bytes} of a checkpoint's tensors."""
    files = {}
    for path in glob.glob(f"{run}/checkpoints/step-{step:08d}/*.safetensors"):
        with open(path, "rb") as file:
            files[os.path.basename(path)] = file.read()
    return files


def workers(variable):
    """[(number, pid)] by a variable of their environment; these namespaces hold nobody else's."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        pid = path.split("/")[2]
        if os.path.basename(read(path).split("\0")[0]) != "trireme-worker":
            continue
        value = re.search(rf"(?:^|\0){variable}(\d+)", read(f"/proc/{pid}/environ"))
        if value:
            found.append((int(value.group(1)), int(pid)))
    return found


def ranks_alive():
    """{rank: pid}"""
    return dict(workers("SLURM_PROCID="))


def attempts_alive():
    """Numbers of the attempts of which ranks live, on whatever node."""
    return {number for number, _ in workers("TRIREME_ATTEMPT=1-")}


class SlurmJobs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="trireme_slurm_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        # Of these namespaces alone: even if this program is killed, no file stays.
        slurm.must("mount", "-t", "tmpfs", "-o", "size=512m,mode=0755", "tmpfs", self.folder)
        self.addCleanup(slurm.must, "umount", "-l", self.folder)
        with open(self.folder + "/job.yaml", "w", encoding="utf-8") as file:
            file.write(JOB)
        words = random.Random(3)
        with open(self.folder + "/text.txt", "w", encoding="utf-8") as file:
            for _ in range(2000):
                file.write(words.choice(["the oars ", "dip and ", "rise in ", "time, ", "three banks\n"]))
        self.slurm = slurm.Slurm(self.folder + "/slurm", nodes=3, cpus=4)
        # More ranks than this machine has cores must not spin. The fence: see the batch script.
        self.slurm.environment.update(PATH=BIN + ":" + os.environ["PATH"], OMPI_MCA_mpi_yield_when_idle="1",
                                      SLURM_PMIX_FENCE="ring")
        self.addCleanup(self.slurm.stop)
        self.slurm.start()

    def call(self, *command):
        return slurm.call(*command, env=self.slurm.environment, cwd=self.folder)

    def must(self, *command):
        return slurm.must(*command, env=self.slurm.environment, cwd=self.folder)

    def srun(self, nodes, run, *options):
        """The step as a process; its output and exit code are the ranks'."""
        command = ["srun", "--mpi=pmix", "--label", f"--nodes={nodes}", f"--ntasks-per-node={4 // nodes}",
                   "trireme-worker", "--job", "job.yaml", "--run-dir", run, *options]
        return subprocess.Popen(command, cwd=self.folder, env=self.slurm.environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def end(self, process):
        try:
            output, _ = process.communicate(timeout=slurm.LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError("srun did not end: " + process.communicate()[0] + self.slurm.logs()) from None
        return process.returncode, output

    def sbatch(self, *options, script=(), sbatch=()):
        """Job number and run folder of a batch job over two nodes."""
        self.must("trireme", "slurm-script", "job.yaml", "-N", "2", "-o", "job.sbatch", *script)
        job = self.must("sbatch", "--parsable", *sbatch, "job.sbatch", *options).strip()
        return job, f"{self.folder}/runs/tiny-{job}"

    def field(self, job, name):
        found = re.search(rf"\b{name}=(\S+)", self.must("scontrol", "show", "job", job))
        return found.group(1) if found else ""

    def log(self, job):
        return read(f"{self.folder}/tiny-{job}.log")

    def reach(self, run, step):
        self.slurm.until(lambda: steps_of(run) >= step, f"step {step} of {run}")

    def become(self, job, *states, seconds=slurm.LIMIT_S):
        try:
            self.slurm.until(lambda: self.field(job, "JobState") in states, f"job {job} {states}", seconds)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n-- log\n{self.log(job)}") from None

    def start_again(self, job, attempt):
        """Slurm lets a job that was queued again wait for two minutes, until its old step, which had the same number,
        is gone from all nodes. This waits for just that, and for Slurm's clock, which counts whole seconds."""
        quiet_since = None

        def started():
            nonlocal quiet_since
            if f"attempt {attempt}" in self.log(job):
                return True
            quiet = (self.field(job, "JobState") == "PENDING" and
                     self.call("pgrep", "-f", "^slurmstepd: ").returncode == 1)
            quiet_since = (quiet_since or time.monotonic()) if quiet else None
            if quiet and time.monotonic() - quiet_since > 2:
                self.call("scontrol", "update", f"JobId={job}", "StartTime=now")
            return False

        self.slurm.until(started, f"attempt {attempt}")

    def expect_as_unbroken(self, run):
        """An endless run has the losses of one that was never stopped."""
        twin = self.folder + "/endless-twin"
        last = steps_of(run)
        slurm.run_until(["trireme", "run", "job.yaml", "-n", "4", "--run-dir", twin, *ENDLESS],
                        lambda: steps_of(twin) >= last, cwd=self.folder, env=self.slurm.environment)
        found, expected = losses(run), losses(twin)
        self.assertGreater(len(found), 100)
        self.assertEqual(found, expected[:len(found)])

    def verify_checkpoint(self, run):
        self.must("trireme", "checkpoint", "verify", run)

    def expect_nothing_left(self):
        """No rank, and nothing in the shared memory and temporary folder of a node."""
        def leftovers():
            nodes = [int(pid) for pid in self.must("pgrep", "-x", "slurmd").split()]
            self.assertEqual(len(nodes), len(self.slurm.nodes))
            places = [f"/proc/{pid}/root/dev/shm/*" for pid in nodes] + [self.slurm.folder + "/tmp/*/*"]
            return [path for place in places for path in glob.glob(place)] + list(ranks_alive().values())
        self.slurm.until(lambda: not leftovers(), "no process and no file left of the job")
        self.slurm.until(self.slurm.idle, "all nodes are idle again")

    def test_trains_as_under_mpirun(self):
        twin = self.folder + "/twin"
        self.must("trireme", "run", "job.yaml", "-n", "4", "--run-dir", twin)
        self.assertEqual(losses(twin)[-2][0], 600)
        for nodes in (1, 2):  # shared memory alone, then TCP between the stages
            run = f"{self.folder}/on{nodes}"
            code, output = self.end(self.srun(nodes, run))
            self.assertEqual(code, 0, output)
            self.assertEqual(losses(run), losses(twin))
            self.assertEqual(len(state(run, 600)), 4)
            self.assertEqual(state(run, 600), state(twin, 600))
            for name in ("job.yaml", "plan.pb"):
                self.assertEqual(read(f"{run}/{name}"), read(f"{twin}/{name}"))
            self.assertEqual(json.loads(read(run + "/report.json"))["steps"], 600)
            self.verify_checkpoint(run)
            self.expect_nothing_left()
        self.assertIn("oars", self.must("trireme", "generate", "--checkpoint", run, "--prompt", "oars"))

    def test_runs_inside_an_allocation(self):
        twin = self.folder + "/twin"
        self.must("trireme", "run", "job.yaml", "-n", "4", "--run-dir", twin)
        run = self.folder + "/inside"
        self.must("salloc", "--nodes=2", "--ntasks-per-node=2", "trireme", "run", "job.yaml", "-n", "4", "--run-dir", run)
        self.assertEqual(losses(run), losses(twin))
        self.assertEqual(state(run, 600), state(twin, 600))
        self.assertTrue(os.path.exists(run + "/logs/rank-3.log"), os.listdir(run + "/logs"))
        # A stop at a step boundary, as by Ctrl-C, and on from there.
        stopped = subprocess.Popen(["salloc", "--nodes=2", "--ntasks-per-node=2", "trireme", "run", "job.yaml", "-n", "4",
                                    "--run-dir", self.folder + "/stopped"], cwd=self.folder, env=self.slurm.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.reach(self.folder + "/stopped", 100)
        for pid in subprocess.run(["pgrep", "-x", "trireme"], capture_output=True, text=True, check=False).stdout.split():
            os.kill(int(pid), signal.SIGINT)
        code, output = self.end(stopped)
        self.assertEqual(code, 75, output)
        self.must("salloc", "--nodes=2", "--ntasks-per-node=2", "trireme", "run", "job.yaml", "-n", "4", "--run-dir",
                  self.folder + "/stopped", "--resume", "auto")
        self.assertEqual(state(self.folder + "/stopped", 600), state(twin, 600))
        self.expect_nothing_left()

    def test_ends_the_step_of_a_killed_srun(self):
        """From a machine that sees no process of the nodes, as a login node does."""
        run = self.folder + "/run"
        away = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        with open(self.folder + "/run.log", "w", encoding="utf-8") as log:
            process = subprocess.Popen(["salloc", "--nodes=2", "--ntasks-per-node=2", *away, "trireme", "run", "job.yaml",
                                        "-n", "4", "--run-dir", run, *ENDLESS], cwd=self.folder, stdout=log, stderr=log,
                                       env=self.slurm.environment, stdin=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        self.reach(run, 60)
        self.assertEqual(attempts_alive(), {1})
        for pid in self.must("pgrep", "-x", "srun").split():
            with contextlib.suppress(ProcessLookupError):  # srun is two processes, and one ends with the other
                os.kill(int(pid), signal.SIGKILL)

        def second_alone():
            alive = attempts_alive()
            self.assertLessEqual(len(alive), 1, read(self.folder + "/run.log"))
            return alive == {2} and "resumed from" in read(run + "/logs/rank-0.log")
        self.slurm.until(second_alone, "the second attempt")
        self.assertIn("srun or its guard died (signal 9, Killed)", read(self.folder + "/run.log"))
        self.reach(run, steps_of(run) + 20)
        for pid in self.must("pgrep", "-x", "trireme").split():
            os.kill(int(pid), signal.SIGINT)
        self.assertEqual(process.wait(slurm.LIMIT_S), 75, read(self.folder + "/run.log"))
        self.expect_nothing_left()

    def test_goes_on_after_signals(self):
        twin = self.folder + "/twin"
        self.must("trireme", "run", "job.yaml", "-n", "4", "--run-dir", twin)
        job, run = self.sbatch()
        stopped_at = 0
        for attempt in (1, 2):
            self.reach(run, stopped_at + 20)
            self.must("scancel", "--signal=USR1", job)
            self.become(job, "PENDING")
            stopped_at = steps_of(run)
            self.assertLess(stopped_at, 600, "the job was over before the signal")
            self.assertTrue(os.path.isdir(f"{run}/checkpoints/step-{stopped_at:08d}"), self.log(job))
            self.verify_checkpoint(run)
            self.start_again(job, attempt + 1)
            self.assertEqual(self.log(job).count("stopped with a checkpoint (exit code 75)"), attempt)
        self.become(job, "COMPLETED")
        self.assertIn(f"resumed from {run}/checkpoints/step-{stopped_at:08d} at step {stopped_at}", self.log(job))
        self.assertIn("attempt 3", self.log(job))
        self.assertEqual(losses(run), losses(twin))
        self.assertEqual(state(run, 600), state(twin, 600))
        self.expect_nothing_left()

    def test_queues_what_is_stopped_early(self):
        """A request to stop that finds ranks not listening yet: here they never will."""
        with open(os.open(self.folder + "/slow", os.O_WRONLY | os.O_CREAT, 0o755), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexec sleep 1000\n")
        self.must("trireme", "slurm-script", "job.yaml", "-N", "2", "-o", "job.sbatch")
        script = read(self.folder + "/job.sbatch")
        self.assertIn(BIN + "/trireme-worker ", script)
        with open(self.folder + "/job.sbatch", "w", encoding="utf-8") as file:
            file.write(script.replace(BIN + "/trireme-worker ", self.folder + "/slow "))
        job = self.must("sbatch", "--parsable", "job.sbatch").strip()
        self.slurm.until(lambda: len(self.call("pgrep", "-x", "sleep").stdout.split()) == 4, "four ranks")
        self.must("scancel", "--signal=USR1", job)
        self.become(job, "PENDING")
        self.assertIn("stopped before the ranks were up (exit code 138)", self.log(job))
        self.must("scancel", job)
        self.expect_nothing_left()

    def test_goes_on_after_a_dead_node(self):
        twin = self.folder + "/twin"
        self.must("trireme", "run", "job.yaml", "-n", "4", "--run-dir", twin)
        job, run = self.sbatch("--set", "runtime.deadline_seconds=3")
        self.reach(run, 120)
        self.slurm.fail("n2")
        self.start_again(job, 2)
        self.become(job, "COMPLETED")
        # Whoever misses the node first, the ranks or Slurm, has the job queued again.
        self.assertRegex(self.log(job), r"failed after a new checkpoint \(exit code 4\)|DUE TO NODE FAILURE")
        self.assertIn("attempt 2, 4 ranks on n[1,3]", self.log(job))
        self.assertRegex(self.log(job), r"resumed from \S+ at step \d+")
        self.assertEqual(losses(run), losses(twin))
        self.assertEqual(state(run, 600), state(twin, 600))

    def test_ends_when_a_fault_returns(self):
        job, run = self.sbatch(*ENDLESS, "--set", "checkpoint.every_steps=1000")
        self.reach(run, 1005)
        os.kill(ranks_alive()[3], signal.SIGKILL)
        self.start_again(job, 2)
        self.assertRegex(self.log(job), r"failed after a new checkpoint \(exit code 1\d\d\)")
        # Seconds before the next checkpoint, so that this attempt has brought nothing.
        self.slurm.until(lambda: "resumed from" in self.log(job), "the second attempt")
        os.kill(ranks_alive()[0], signal.SIGKILL)
        self.become(job, "FAILED")
        self.assertEqual(self.log(job).count("asking Slurm to queue"), 1, self.log(job))
        self.expect_nothing_left()

    def test_stops_before_its_time_limit(self):
        # A minute, of which the script leaves a third for the checkpoint; Slurm looks every 30 s.
        job, run = self.sbatch(script=["--time", "1", *ENDLESS])
        self.reach(run, 1)
        self.become(job, "PENDING", seconds=150)
        stopped_at = steps_of(run)
        self.assertIn("stopped with a checkpoint (exit code 75)", self.log(job))
        self.assertTrue(os.path.isdir(f"{run}/checkpoints/step-{stopped_at:08d}"), self.log(job))
        self.start_again(job, 2)
        self.reach(run, stopped_at + 50)
        self.must("scancel", job)
        self.expect_nothing_left()
        self.expect_as_unbroken(run)

    def test_does_not_queue_again(self):
        job, run = self.sbatch(*ENDLESS, sbatch=["--no-requeue"])
        self.reach(run, 20)
        self.must("scancel", "--signal=USR1", job)
        self.become(job, "FAILED")
        self.assertEqual(self.field(job, "ExitCode"), "75:0")
        self.assertIn(f"to go on: sbatch SCRIPT --run-dir {run}", self.log(job))
        stopped_at = steps_of(run)
        self.verify_checkpoint(run)
        # A new Slurm job goes on in the old folder; a cancelled one saves what it has and is not queued again.
        job, _ = self.sbatch(*ENDLESS, "--run-dir", run)
        self.reach(run, stopped_at + 20)
        self.assertIn(f"at step {stopped_at}", self.log(job))
        self.must("scancel", job)
        self.become(job, "CANCELLED")
        self.slurm.until(lambda: os.path.isdir(f"{run}/checkpoints/step-{steps_of(run):08d}"), "a last checkpoint")
        self.expect_nothing_left()
        self.assertEqual(self.must("squeue", "-h"), "")
        # Nor is one whose job file is wrong; the code of the ranks is that of the Slurm job.
        job, _ = self.sbatch("--set", "parallelism.tensor_parallel_size=3")
        self.become(job, "FAILED")
        self.assertEqual(self.field(job, "ExitCode"), "2:0", self.log(job))
        self.assertIn("use a multiple of 6", self.log(job))

    def test_ends_with_a_killed_rank(self):
        run = self.folder + "/run"
        step = self.srun(2, run, *ENDLESS)
        self.reach(run, 60)
        began = time.monotonic()
        os.kill(ranks_alive()[2], signal.SIGKILL)
        code, output = self.end(step)
        took = time.monotonic() - began
        print(f"the step ended {took:.2f} s after its rank, with exit code {code}")
        self.assertLess(took, DEADLINE_S)
        self.assertEqual(code, 128 + signal.SIGKILL, output)
        self.assertRegex(output, r"task 2: Killed")
        self.expect_nothing_left()
        self.verify_checkpoint(run)
        # The nodes take the next step at once.
        step = self.srun(2, run, *ENDLESS, "--resume", "auto")
        self.slurm.until(lambda: len(ranks_alive()) == 4, "four ranks")
        self.reach(run, steps_of(run) + 20)
        step.send_signal(signal.SIGUSR1)  # srun hands it on
        code, output = self.end(step)
        self.assertEqual(code, 75, output)
        self.assertIn("resumed from", output)


if __name__ == "__main__":
    slurm.enter_or_skip()
    BIN = os.path.abspath(sys.argv.pop(1))
    skips.main()
