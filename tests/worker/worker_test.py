#!/usr/bin/env python3
"""Whole jobs from outside, over real mpirun: files of a run, interrupt and resume to the bit, killed and stopped
ranks, a full disk, bad input. Every wait has a deadline, and every process started is ended.

Usage: worker_test.py BIN_FOLDER [Worker.test_NAME ...]
"""
import glob
import json
import os
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import event_files

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

BIN = ""
LIMIT_S = 100  # of one wait: generous, since ranks that share cores with other work move slowly

JOB = """name: tiny
seed: 7
model:
  config: {model_type: gpt2, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4,
           max_position_embeddings: 32, embd_pdrop: 0.1, attn_pdrop: 0.1, resid_pdrop: 0.1}
data: {text_files: [text.txt], tokenizer: char, sequence_length: 16, validation_fraction: 0.1}
training: {steps: 30, global_batch_size: 8, micro_batch_size: 4}
optimizer: {learning_rate: 0.01, warmup_steps: 5}
parallelism: {tensor_parallel_size: 2, pipeline_parallel_size: 2}
checkpoint: {every_steps: 10}
evaluation: {every_steps: 10, samples: 8}
runtime: {threads: 1, log_every_steps: 1, deadline_seconds: 20, trace_steps: 2}
generation: {prompt: "the", max_new_tokens: 10}
"""


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def processes_of(folder):
    """{pid: command line} of living processes that name the folder."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        pid = int(path.split("/")[2])
        line = read(path)
        state = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if folder in line and pid != os.getpid() and state and state[0] != "Z":
            found[pid] = line
    return found


def until(condition, what, seconds=LIMIT_S):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds} s: {what}")


class Job:
    """One `trireme run` in a folder of its own."""

    def __init__(self, folder, run, *arguments):
        self.folder = os.path.join(folder, run)
        command = [os.path.join(BIN, "trireme"), "run", os.path.join(folder, "job.yaml"),
                   "--run-dir", self.folder, *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL)
        self.heard = b""

    def hear(self, expected):
        """Waits until the output holds what the regular expression `expected` describes."""
        end = time.monotonic() + LIMIT_S
        while not re.search(expected, self.heard.decode(errors="ignore")):
            assert time.monotonic() < end, f"not told: {expected}\n{self.heard.decode()}"
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                more = os.read(self.process.stdout.fileno(), 1 << 16)
                assert more, f"ended without: {expected}\n{self.heard.decode()}"
                self.heard += more

    def end(self):
        """Exit code and output."""
        try:
            output, _ = self.process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        return self.process.returncode, (self.heard + output).decode()

    def kill(self):
        """The guard kills the ranks when it sees `trireme` gone."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def steps(self):
        # Without the last line where it is half there.
        lines = read(self.folder + "/metrics.jsonl").rpartition("\n")[0].splitlines()
        return max((json.loads(line)["step"] for line in lines), default=0)

    def reach(self, step):
        until(lambda: self.steps() >= step or self.process.poll() is not None, f"step {step}")
        assert self.process.poll() is None, self.process.communicate()[0]

    def rank(self, number):
        """The pid of a rank."""
        for pid, line in processes_of(self.folder).items():
            environment = read(f"/proc/{pid}/environ").split("\0")
            if "trireme-worker" in line.split("\0")[0] and f"OMPI_COMM_WORLD_RANK={number}" in environment:
                return pid
        return None

    def temporary_folders(self):
        """Where mpirun of this job puts its files."""
        lines = "\0".join(processes_of(self.folder).values())
        return sorted(set(re.findall(r"(?:/tmp|/dev/shm)/trireme-\d+-\d+-\w{16}", lines)))


class Worker(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="trireme_worker_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.jobs = []
        self.addCleanup(lambda: [job.kill() for job in self.jobs])
        with open(self.folder + "/job.yaml", "w", encoding="utf-8") as file:
            file.write(JOB)
        words = random.Random(3)
        with open(self.folder + "/text.txt", "w", encoding="utf-8") as file:
            for _ in range(2000):
                file.write(words.choice(["the oars ", "dip and ", "rise in ", "time, ", "three banks\n"]))

    def start(self, run, *arguments, ranks=4):
        self.jobs.append(Job(self.folder, run, "-n", str(ranks), *arguments))
        return self.jobs[-1]

    def run_job(self, run, *arguments, code=0, ranks=4):
        job = self.start(run, *arguments, ranks=ranks)
        got, output = job.end()
        self.assertEqual(got, code, output + read(job.folder + "/logs/rank-0.log"))
        return job, output

    def expect_nothing_left(self, job, folders):
        self.assertEqual(len(folders), 2, folders)
        for folder in folders:
            self.assertFalse(os.path.exists(folder), folder)
        self.assertEqual(processes_of(job.folder), {})

    def verify_checkpoint(self, job):
        verified = subprocess.run([os.path.join(BIN, "trireme"), "checkpoint", "verify", job.folder],
                                  capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)

    def state_files(self, job, step):
        """{name: bytes} of the state in a checkpoint."""
        files = {}
        for path in glob.glob(f"{job.folder}/checkpoints/step-{step:08d}/*.safetensors"):
            with open(path, "rb") as file:
                files[os.path.basename(path)] = file.read()
        self.assertEqual(len(files), 4)
        return files

    def losses(self, job):
        return {line["step"]: line["loss"] for line in
                map(json.loads, read(job.folder + "/metrics.jsonl").splitlines()) if "loss" in line}

    def tells_both_rates(self, report):
        """In steps alone, and over all the time since the first one, which is more; the clock goes on between the two."""
        for rate, seconds in (("tokens_per_second", "training_seconds"), ("overall_tokens_per_second", "wall_seconds")):
            self.assertAlmostEqual(report[rate] * report[seconds] / report["tokens"], 1, delta=0.01)
        self.assertLess(report["overall_tokens_per_second"], report["tokens_per_second"])

    def test_runs_to_the_end(self):
        job, output = self.run_job("run")
        names = set(os.listdir(job.folder))
        self.assertLessEqual({"job.yaml", "plan.pb", "schedule.svg", "metrics.jsonl", "report.json", "sample.txt",
                              "trace.json", "checkpoints", "logs", "recorder"}, names, output)
        losses = self.losses(job)
        self.assertEqual(sorted(losses), list(range(1, 31)))
        self.assertLess(losses[30], losses[1] - 0.3)
        report = json.loads(read(job.folder + "/report.json"))
        self.assertEqual(report["steps"], 30)
        self.assertLess(report["validation_loss"], losses[1])
        self.assertTrue(os.path.isdir(report["checkpoint"]), report)
        self.assertEqual(report["tokens"], 30 * 8 * 16)
        self.tells_both_rates(report)
        kinds = {event.get("ph") for event in json.loads(read(job.folder + "/trace.json"))["traceEvents"]}
        self.assertIn("X", kinds)
        self.assertEqual(len(read(job.folder + "/sample.txt")), len("the") + 10)
        self.assertEqual(len(glob.glob(job.folder + "/recorder/rank-*.rec")), 4)
        self.tells_of_its_last_step(job)
        self.verify_checkpoint(job)
        self.assertEqual(processes_of(job.folder), {})
        again = subprocess.run([os.path.join(BIN, "trireme"), "generate", "--checkpoint", job.folder, "--prompt",
                                "oars", "--tokens", "12"], capture_output=True, text=True, timeout=LIMIT_S,
                               check=False)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("oars", again.stdout)
        self.generates_like_the_job(job)
        self.pads_its_vocabulary()
        self.reports_a_diverged_run()

    def test_speaks_json(self):
        """Lines of watch, then how it ended: good, stopped by a signal, failed. Nothing else on either stream."""
        _, output = self.run_job("good", "--json")
        *lines, end = map(json.loads, output.splitlines())
        states = [line["event"]["state_changed"]["to"] for line in lines if "state_changed" in line.get("event", {})]
        self.assertEqual((states[0], states[-1]), ("JOB_PLANNING", "JOB_COMPLETED"), output)
        sequences = [int(line["event"]["sequence"]) for line in lines if "event" in line]
        self.assertEqual(sequences, list(range(1, len(sequences) + 1)))
        steps = [int(line["progress"]["progress"]["steps_done"]) for line in lines if "progress" in line]
        self.assertEqual((steps, steps[-1]), (sorted(set(steps)), 30))
        self.assertEqual((end["exit_code"], end["error"], end["report"]["steps"]), (0, "", 30))
        self.assertEqual(end["job"]["status"]["state"], "JOB_COMPLETED")

        job = self.start("stopped", "--json", "--set", "training.steps=100000")
        job.reach(2)
        job.process.send_signal(signal.SIGINT)
        code, output = job.end()
        warning, end = [json.loads(line) for line in output.splitlines() if '"exit_code"' in line or "warning" in line]
        self.assertIn("stopping at the next step", warning["warning"]["message"])
        self.assertEqual((code, end["exit_code"], end["job"]["status"]["state"]), (75, 75, "JOB_PAUSED"), output)
        self.assertIn("--resume auto", end["next"])

    def tells_of_its_last_step(self, job):
        """The timeline of every rank: docs/formats/step_timeline.md."""
        for rank in range(4):
            head, memory, *lines = read(f"{job.folder}/timeline/rank-{rank:03}.steps").splitlines()
            self.assertEqual(head, f"step 30 rank {rank}")
            resident, peak = map(int, re.fullmatch(r"m (\d+) (\d+)", memory).groups())
            self.assertTrue(1 << 20 < resident <= peak, memory)
            for line in lines:
                self.assertRegex(line, r"^(i 30 \d+ \d+ \d+ \d+ \d+|c 30 \d+ \d+ \d+ \d+ \d+ \d -?\d+ \d+)$")
                begin, end = map(int, line.split()[5:7])
                self.assertLessEqual(begin, end)
            self.assertTrue(any(line.startswith("i") for line in lines), lines)
            self.assertTrue(any(line.startswith("c") for line in lines), lines)
        self.assertEqual(len(os.listdir(job.folder + "/timeline")), 4, "something half made is left")

    def test_runs_a_given_plan(self):
        """Ranks that are named a plan run that one, or none."""
        job, _ = self.run_job("first")
        worker = [os.path.join(BIN, "trireme-worker"), "--job", job.folder + "/job.yaml"]
        shutil.copy(job.folder + "/plan.pb", self.folder + "/plan.pb")
        launch = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"]

        def by_hand(run, *command):
            return subprocess.run([*launch, "4", *worker, "--run-dir", f"{self.folder}/{run}", *command], text=True,
                                  capture_output=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL,
                                  env=dict(os.environ, OMP_NUM_THREADS="1"))
        given = ("--plan", self.folder + "/plan.pb", "--link", f"unix:{self.folder}/absent", "--job-id", "7")
        again = by_hand("again", *given)
        self.assertEqual(again.returncode, 0, again.stdout + again.stderr)
        self.assertEqual(again.stderr.count(f"the plan is from {self.folder}/plan.pb"), 4, again.stderr)
        self.assertFalse(os.path.exists(self.folder + "/again/plan.pb"), "it planned itself")
        self.assertEqual(read(self.folder + "/again/sample.txt"), read(job.folder + "/sample.txt"))
        refused = by_hand("other", *given, "--set", "seed=8")
        self.assertEqual(refused.returncode, 2, refused.stdout + refused.stderr)
        self.assertIn('the plan is another job\'s\n  "seed: 8" here, "seed: 7" in the plan', refused.stderr)
        nowhere = by_hand("nowhere", "--plan", self.folder + "/absent.pb")
        self.assertEqual(nowhere.returncode, 0, nowhere.stdout + nowhere.stderr)
        self.assertTrue(os.path.exists(self.folder + "/nowhere/plan.pb"), "rank 0 has not planned")

    def generates_like_the_job(self, job):
        """What is not given is the job's; what is wrong is one line; nothing is left, also after a kill."""
        temporary = self.folder + "/tmp"
        os.mkdir(temporary)
        command = [os.path.join(BIN, "trireme"), "generate", "--checkpoint", job.folder]
        environment = dict(os.environ, TMPDIR=temporary)
        again = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment)
        self.assertEqual(again.stdout, read(job.folder + "/sample.txt") + "\n", again.stderr)
        as_json = subprocess.run(command + ["--json"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        answer = json.loads(as_json.stdout)
        self.assertEqual(answer["prompt"] + answer["text"], read(job.folder + "/sample.txt"), as_json.stderr)
        self.assertEqual((answer["tokens"], answer["stopped"]), (10, False))
        for arguments, word in ((["--prompt", "oXarsZ"], "'X' (U+0058) at byte 1 and later 'Z'"),
                                (["--prompt=", "--tokens=1"], "--prompt: empty"),
                                (["--temperature", "nan"], "--temperature: nan is out of range"),
                                (["--temperature", "inf"], "--temperature: inf is out of range"),
                                (["--top-k", "-3"], "--top-k: -3 is out of range"),
                                (["--tokens", "0"], "--tokens: 0 is out of range")):
            bad = subprocess.run(command + arguments, capture_output=True, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual((bad.returncode, bad.stdout, bad.stderr.count("\n")), (2, "", 1), bad.stderr)
            self.assertIn(word, bad.stderr)
        for number, code in ((signal.SIGINT, 5), (signal.SIGKILL, -9)):
            endless = subprocess.Popen(command + ["--tokens", "10000000"], stdout=subprocess.PIPE, env=environment)
            self.assertTrue(endless.stdout.read(20))
            endless.send_signal(number)
            endless.stdout.read()
            self.assertEqual(endless.wait(LIMIT_S), code)
            endless.stdout.close()
        self.assertEqual(os.listdir(temporary), [])

    def pads_its_vocabulary(self):
        """Ids that stand for no text are as likely as all others after few steps, and never drawn."""
        job, _ = self.run_job("padded", "--set", "model.config.vocab_size=512", "--set", "training.steps=6", "--set",
                              "optimizer.learning_rate=1e-9", "--set", "generation.max_new_tokens=40", "--set", "checkpoint.every_steps=0")
        self.assertEqual(len(read(job.folder + "/sample.txt")), len("the") + 40)
        again = subprocess.run([os.path.join(BIN, "trireme"), "generate", "--checkpoint", job.folder, "--prompt",
                                "oars", "--tokens", "40"], capture_output=True, text=True, timeout=LIMIT_S,
                               check=False)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(len(again.stdout), len("oars") + 40 + 1)

    def reports_a_diverged_run(self):
        """Numbers that are none end neither the run nor what reads its files; nor does the folder's name."""
        job, _ = self.run_job('one "diverged" run', "--set", "optimizer.learning_rate=1000", "--set",
                              "optimizer.weight_decay=1000", "--set", "optimizer.warmup_steps=0", "--set",
                              "training.steps=3", "--set", "training.nonfinite_policy=skip")
        report = json.loads(read(job.folder + "/report.json"), parse_constant=self.fail)
        self.assertEqual(report["skipped_steps"], 2, report)
        self.assertTrue(os.path.isdir(report["checkpoint"]), report)
        lines = [json.loads(line, parse_constant=self.fail) for line in
                 read(job.folder + "/metrics.jsonl").splitlines()]
        self.assertIsNone(lines[1]["gradient_norm"])
        self.assertRegex(read(job.folder + "/logs/rank-0.log"),
                         r"step 2 was left out: NaN or Inf in the gradient of \S+ on rank \d at step 2, sample")

    def test_continues_after_interrupt(self):
        more = ["--set", "training.steps=150", "--set", "parallelism.zero_stage=1", "--set",
                "parallelism.tensor_parallel_size=1"]
        twin, _ = self.run_job("twin", *more)
        stopped_at = 0
        for number, resume in ((signal.SIGINT, []), (signal.SIGUSR1, ["--resume", "auto"])):
            job = self.start("stopped", *more, *resume)
            job.reach(stopped_at + 13)
            folders = job.temporary_folders()
            job.process.send_signal(number)
            code, output = job.end()
            self.assertEqual(code, 75, output)
            self.assertIn("with a checkpoint", output)
            self.expect_nothing_left(job, folders)
            stopped_at = job.steps()
            self.assertLess(stopped_at, 150)
            self.verify_checkpoint(job)
            self.assertTrue(os.path.isdir(f"{job.folder}/checkpoints/step-{stopped_at:08d}"), output)
        job, _ = self.run_job("stopped", *more, "--resume", "auto")
        _, output = self.run_job("stopped", *more, "--set", "training.steps=20", "--resume", "auto", code=2)
        self.assertIn("training.steps: 20 steps end before step 150", output)
        self.assertEqual(self.state_files(job, 150), self.state_files(twin, 150))
        self.assertEqual(self.losses(job), self.losses(twin))

    def test_goes_on_with_compression(self):
        """Within an error bound, yet a stop and a resume change no bit; every rank says what it sent."""
        more = ["--set", "training.steps=120", "--set", "parallelism.tensor_parallel_size=1", "--set",
                "parallelism.zero_stage=1"]
        for axis in ("data_parallel", "pipeline"):
            more += ["--set", f"compression.{axis}.mode=on", "--set", f"compression.{axis}.min_bytes=0"]
        twin, output = self.run_job("twin", *more)
        self.assertRegex(output, r"compression +sums of gradients [2-9]\.\d times, messages [2-9]\.\d times fewer bytes")
        self.assertNotIn("too loose", output)
        report = json.loads(read(twin.folder + "/report.json"))["compression"]
        for axis in ("gradients", "messages"):
            self.assertEqual([rank["rank"] for rank in report[axis]["ranks"]], [0, 1, 2, 3])
            self.assertGreater(report[axis]["measured"], 0)
            self.assertLess(2 * report[axis]["with_large_error"], report[axis]["measured"])
            for rank in report[axis]["ranks"]:
                self.assertGreater(rank["ratio"], 2)
                for field in ("codec_seconds", "wire_seconds", "largest_error", "relative_error"):
                    self.assertGreater(rank[field], 0, (axis, rank))
        job = self.start("stopped", *more)
        job.reach(13)
        job.process.send_signal(signal.SIGINT)
        code, output = job.end()
        self.assertEqual(code, 75, output)
        self.assertLess(job.steps(), 120)
        job, _ = self.run_job("stopped", *more, "--resume", "auto")
        self.assertEqual(self.state_files(job, 120), self.state_files(twin, 120))
        self.assertEqual(self.losses(job), self.losses(twin))
        _, output = self.run_job("loose", *more, "--set", "training.steps=10", "--set",
                                 "compression.data_parallel.bound=rms:50")
        self.assertRegex(output, r"warning +compression.data_parallel.bound rms:50 is too loose for this model")

    def test_names_a_killed_rank(self):
        job = self.start("run", "--set", "training.steps=100000", "--set", "checkpoint.every_steps=5", "--set",
                         "resources.max_failures=1")
        job.reach(12)
        folders = job.temporary_folders()
        victim = job.rank(2)
        os.kill(victim, signal.SIGKILL)
        code, output = job.end()
        self.assertEqual(code, 4, output)
        self.assertRegex(output, r"rank 2 died \(signal 9[^)]*\) at step \d+, [A-Z_]+")
        self.assertIn("--resume auto", output)
        self.expect_nothing_left(job, folders)
        self.verify_checkpoint(job)

    def test_events_for_tensorboard(self):
        """Event files have what metrics.jsonl has, each step once, also after a kill that loses steps."""
        more = ["--set", "training.steps=60", "--set", "checkpoint.every_steps=20", "--set", "resources.max_failures=1"]
        job = self.start("run", *more)
        job.reach(27)
        os.kill(job.rank(0), signal.SIGKILL)
        self.assertEqual(job.end()[0], 4)
        _, [path] = event_files.scalars_of(job.folder + "/tensorboard")
        with open(path, "ab") as file:
            file.write(b"torn")
        job, _ = self.run_job("run", *more, "--resume", "auto")
        scalars, paths = event_files.scalars_of(job.folder + "/tensorboard")
        self.assertEqual(len(paths), 2, paths)
        wanted = {}
        for line in map(json.loads, read(job.folder + "/metrics.jsonl").splitlines()):
            for tag in ("loss", "validation_loss", "learning_rate", "gradient_norm", "tokens_per_second",
                        "overall_tokens_per_second", "utilisation"):
                if tag in line:
                    wanted.setdefault(tag, {})[line["step"]] = struct.unpack("<f", struct.pack("<f", line[tag]))[0]
        self.assertEqual(scalars, wanted)
        self.assertEqual(sorted(scalars["loss"]), list(range(1, 61)))
        self.assertEqual(sorted(scalars["validation_loss"]), [10, 20, 30, 40, 50, 60])

    def test_traces_chosen_steps(self):
        """A chosen trace has its steps of all ranks as soon as they are done; a stop cuts none of them away."""
        more = ["--set", "training.steps=150", "--set", "checkpoint.keep=0", "--set", "runtime.trace_at=[2,149]",
                "--set", "runtime.trace_steps=90"]
        self.run_job("run", *more, "--set", "runtime.trace_at=[2,149,151]", code=2)
        job = self.start("run", *more)
        job.reach(13)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end()[0], 75)
        stopped_at = job.steps()
        self.run_job("run", *more, "--resume", "auto")
        traces = {}
        for path in glob.glob(job.folder + "/trace*.json"):
            events = [event for event in json.loads(read(path))["traceEvents"] if event["ph"] == "X"]
            names = {event["tid"]: event["args"]["name"] for event in json.loads(read(path))["traceEvents"]
                     if event["name"] == "thread_name"}
            traces[os.path.basename(path)] = sorted({event["args"]["step"] for event in events})
            ranks = {names[event["tid"]].split(" in ")[0] for event in events}
            self.assertEqual(ranks, {"rank 0", "rank 1", "rank 2", "rank 3"})
        wanted = {"trace-2.json": list(range(2, min(stopped_at, 91) + 1)), "trace-149.json": [149, 150]}
        if stopped_at < 91:
            wanted[f"trace-{stopped_at + 1}.json"] = list(range(stopped_at + 1, 92))
        self.assertEqual(traces, wanted)
        written = os.stat(f"{job.folder}/trace-{min(stopped_at + 1, 91)}.json" if stopped_at < 91 else
                          job.folder + "/trace-2.json")
        self.assertLess(written.st_mtime_ns, os.stat(job.folder + "/checkpoints/step-00000120").st_mtime_ns)
        self.assertFalse(os.path.exists(job.folder + "/trace"))

    def test_trains_on_after_a_killed_rank(self):
        """Twice, from a checkpoint each time: the end is that of an unbroken run, to the bit."""
        more = ["--set", "training.steps=120", "--set", "checkpoint.every_steps=20"]
        twin, _ = self.run_job("twin", *more)
        job = self.start("run", *more)
        for attempt, step in ((1, 25), (2, 65)):
            until(lambda n=attempt: os.path.realpath(job.folder + "/logs").endswith(f"attempts/{n}/logs"),
                  f"attempt {attempt}")
            victim = until(lambda: job.rank(attempt), "the rank to kill")
            job.reach(step)
            os.kill(victim, signal.SIGKILL)
        code, output = job.end()
        self.assertEqual(code, 0, output)
        for attempt in (1, 2):
            self.assertRegex(output, rf"attempt {attempt} failed \(1 of at most 5 in a row\), the next one follows")
            self.assertIn("resumed from", read(f"{job.folder}/attempts/{attempt + 1}/logs/rank-0.log"))
        self.assertEqual(self.losses(job), self.losses(twin))
        self.assertEqual(self.state_files(job, 120), self.state_files(twin, 120))
        self.assertEqual(processes_of(job.folder), {})

    def test_stops_a_crash_loop(self):
        """The loss is lost again and again, from a checkpoint on which nothing new follows."""
        job = self.start("run", "--set", "optimizer.learning_rate=1000", "--set", "optimizer.weight_decay=1000",
                         "--set", "optimizer.warmup_steps=0", "--set", "resources.max_failures=2")
        code, output = job.end()
        self.assertEqual(code, 4, output)
        self.assertRegex(output, r"2 failures in a row without a newer checkpoint .*rank \d failed at step 2")
        self.assertIn("training.nonfinite_policy", output)
        self.assertEqual(sorted(os.listdir(job.folder + "/attempts")), ["1", "2", "keeper"])
        self.assertEqual(processes_of(job.folder), {})

    def test_ends_with_its_killed_parent(self):
        """kill -9 of trireme: no rank outlives it, no temporary folder; the next one takes over."""
        more = ["--set", "training.steps=100000", "--set", "checkpoint.every_steps=5"]
        job = self.start("run", *more)
        job.reach(12)
        folders = job.temporary_folders()
        self.assertEqual(len(folders), 2, folders)
        job.kill()
        job.process.stdout.close()
        until(lambda: not processes_of(job.folder) and not any(map(os.path.exists, folders)), "nothing is left")
        reached = job.steps()
        job = self.start("run", *more, "--resume", "auto")
        job.reach(reached + 5)
        self.assertEqual(os.readlink(job.folder + "/logs"), "attempts/2/logs")
        folders = job.temporary_folders()
        for _ in range(2):
            job.process.send_signal(signal.SIGINT)
            time.sleep(0.05)
        code, output = job.end()
        self.assertIn(code, (5, 75), output)  # it may be faster than the second Ctrl-C
        self.expect_nothing_left(job, folders)
        self.verify_checkpoint(job)

    def test_ends_a_stopped_rank(self):
        job = self.start("run", "--set", "training.steps=100000", "--set", "checkpoint.every_steps=200", "--set",
                         "runtime.deadline_seconds=2", "--set", "resources.max_failures=1")
        job.reach(205)
        folders = job.temporary_folders()
        victim = job.rank(1)
        os.kill(victim, signal.SIGSTOP)
        code, output = job.end()
        self.assertEqual(code, 4, output)
        # The silent rank and its instruction, then who gave up waiting in which operation.
        self.assertRegex(output, r"rank 1 stopped moving at step \d+, [A-Z_]+.*; rank \d gave up: "
                                 r".*no progress for \d+ ms, waiting for ranks? \d")
        self.assertIn("runtime.deadline_seconds", output)
        self.assertFalse(os.path.exists(f"/proc/{victim}"), "the stopped rank is still there")
        self.expect_nothing_left(job, folders)
        self.verify_checkpoint(job)

    def test_trains_on_with_a_full_disk(self):
        small = self.folder + "/small"
        os.mkdir(small)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", small],
                                 capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("not here: root to mount a small file system: " + mounted.stderr.strip())
        self.addCleanup(subprocess.run, ["umount", "-l", small], check=False)
        timeline = self.folder + "/run/timeline"
        os.makedirs(timeline)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", timeline], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", timeline], check=False)
        events = self.folder + "/run/tensorboard"
        os.makedirs(events)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", events], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", events], check=False)
        job, output = self.run_job("run", "--set", "training.steps=30", "--set", "checkpoint.every_steps=10", "--set",
                                   f"checkpoint.directory={small}", code=4)
        self.assertIn("the last checkpoint could not be written", output)
        self.assertEqual(max(self.losses(job)), 30)
        logs = "".join(read(path) for path in glob.glob(job.folder + "/logs/rank-*.log"))
        self.assertRegex(logs, r"the checkpoint of step 10 was not written: .*disk.*full")
        warned = [read(path).count("no timeline of step") for path in glob.glob(job.folder + "/logs/rank-*.log")]
        self.assertEqual(max(warned), 1, warned)
        self.assertEqual(os.listdir(small), [".lock"], "a half-written checkpoint is left")
        report = json.loads(read(job.folder + "/report.json"))
        self.assertEqual((report["checkpoint"], report["failed_saves"]), ("", 3))
        stopped = self.start("stopped", "--set", "training.steps=100000", "--set", "checkpoint.every_steps=10", "--set",
                         "resources.max_failures=1", "--set", f"checkpoint.directory={small}")
        stopped.hear(r"attempt 1 is at work; the checkpoint of step 10 was not written: rank \d: .*disk")
        until(lambda: max(self.losses(stopped), default=0) >= 30 or stopped.process.poll() is not None, "two more saves that fail")
        stopped.process.send_signal(signal.SIGINT)
        code, told = stopped.end()
        self.assertEqual(code, 5, told)
        self.assertEqual(told.count("was not written: rank"), 1, told)  # of all that fail alike
        self.assertIn("if this one cannot either, all that this run has done is lost", told)
        self.assertIn("this run has no older one, and its steps are lost", told)
        self.assertRegex(output, r"not saved +3 checkpoints could not be written: see .*/logs/rank-0.log")

    def test_refuses_bad_input(self):
        for change, expected in (("data.text_files=[absent.txt]", "absent.txt"),
                                 ("training.steps=0", "training.steps"),
                                 ("parallelism.pipeline_parallel_size=5", "pipeline_parallel_size")):
            job, output = self.run_job("bad", "--set", change, code=2)
            self.assertIn(expected, output)
            self.assertFalse(os.path.exists(job.folder + "/logs"), "mpirun was started")
        job, output = self.run_job("bad", code=2, ranks=3)
        self.assertRegex(output, "3 ranks.*multiple of 4")
        self.assertFalse(os.path.exists(job.folder + "/logs"), "mpirun was started")

    def test_refuses_changed_text(self):
        """The same file name, the same characters, other words: what the checkpoint was trained on is gone."""
        self.run_job("run", "--set", "training.steps=10")
        text = os.path.join(self.folder, "text.txt")
        words = read(text)
        with open(text, "w", encoding="utf-8") as file:
            file.write(words[::-1])
        job, output = self.run_job("run", "--set", "training.steps=12", "--resume", "auto", code=2)
        output += read(job.folder + "/logs/rank-0.log")
        self.assertRegex(output, r"trained on another text than is now in \S*text.txt; put the old text back")
        with open(text, "w", encoding="utf-8") as file:
            file.write(words)
        job, output = self.run_job("run", "--set", "training.steps=12", "--resume", "auto")
        self.assertIn("done: step 12 of 12, 2 steps in ", output)
        self.assertIn("finished step 12 of 12, 2 steps in ", read(job.folder + "/report.html"))

    def test_refuses_what_does_not_fit(self):
        job, output = self.run_job("large", "--set", "model.config.hidden_size=65536", "--set",
                                   "model.config.num_attention_heads=512", code=3)
        self.assertRegex(output, r"needs \d+ MiB .* \d+ MiB are available")
        self.assertEqual(processes_of(job.folder), {})


if __name__ == "__main__":
    BIN = os.path.abspath(sys.argv.pop(1))
    skips.main()
