"""A daemon with one node in a folder of its own, and what the tests ask of it through the command line."""
import glob
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest

# Of one wait: generous, since ranks that share cores with other work move slowly. PATIENCE: on a machine that is imitated.
PATIENCE = int(os.environ.get("PATIENCE", "1"))
LIMIT_S = 100 * PATIENCE
PAUSE_S = 0.05 if PATIENCE == 1 else 1  # between two looks, each of which may begin a program
ENDED = ("JOB_COMPLETED", "JOB_FAILED", "JOB_CANCELLED")

JOB = """name: tiny
seed: 7
model:
  config: {model_type: gpt2, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2,
           max_position_embeddings: 32, embd_pdrop: 0.1, attn_pdrop: 0.1, resid_pdrop: 0.1}
data: {text_files: [data/text.txt], tokenizer: char, sequence_length: 16, validation_fraction: 0.1}
training: {steps: 30, global_batch_size: 4, micro_batch_size: 2}
optimizer: {learning_rate: 0.01, warmup_steps: 5}
parallelism: {pipeline_parallel_size: 2}
checkpoint: {every_steps: 10}
runtime: {threads: 1, log_every_steps: 1, deadline_seconds: 20}
generation: {prompt: "the", max_new_tokens: 4}
"""


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def until(condition, what, told=lambda: "", seconds=LIMIT_S):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(PAUSE_S)
    raise AssertionError(f"not within {seconds} s: {what}\n{told()}")


def lives(pid):
    state = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return bool(state) and state[0] != "Z"


def processes_of(folder):
    """{pid: command line} of living processes that name the folder."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        pid = int(path.split("/")[2])
        line = read(path)
        if folder in line and pid != os.getpid() and lives(pid):
            found[pid] = line
    return found


class Command:
    """A `trireme` that runs beside the test; what it prints goes to a file."""

    def __init__(self, folder, command):
        handle, self.path = tempfile.mkstemp(dir=folder)
        with os.fdopen(handle, "w") as file:
            self.process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL)

    def end(self, limit_s=LIMIT_S):
        """Exit code and output; it may be asked again."""
        try:
            return self.process.wait(limit_s), self.text()
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{self.process.args} has not ended:\n{self.text()}") from error

    def text(self):
        return read(self.path)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Watch(Command):
    def events(self):
        whole = self.text().rpartition("\n")[0].splitlines()
        return [json.loads(line)["event"] for line in whole if line.startswith('{"event"')]

    def of_kind(self, kind):
        return [event for event in self.events() if kind in event]

    def end(self, limit_s=LIMIT_S):
        return super().end(limit_s)[0], self.events()


class DaemonCase(unittest.TestCase):
    bin = ""
    parent = "/tmp"  # short: a socket's path has at most 107 characters

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="td_", dir=self.parent)
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.temporary = set()
        self.commands = []
        self.daemon = None
        self.more = ()
        self.environment = {}  # of the daemon, beside ours
        self.addCleanup(self.end_everything)
        self.job_file = f"{self.folder}/job.yaml"
        self.write("job.yaml", JOB)
        os.mkdir(f"{self.folder}/data")
        words = random.Random(3)
        self.write("data/text.txt", "".join(
            words.choice(["the oars ", "dip and ", "rise in ", "time, ", "three banks\n"]) for _ in range(2000)))

    def tearDown(self):
        """All that was started ends when it is told to, and leaves nothing behind."""
        for command in self.commands:
            command.kill()
        self.stop_daemon()
        for pid in self.agents():
            os.kill(pid, signal.SIGTERM)
        until(lambda: not processes_of(self.folder), "no process is left",
              lambda: f"{processes_of(self.folder)}\n{self.told()}", 15)
        self.assertEqual([path for path in self.temporary if os.path.exists(path)], [], self.told())
        self.assertEqual(glob.glob(f"{self.folder}/*.sock"), [])

    def end_everything(self):
        for command in self.commands:
            command.kill()
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait()
        for _ in range(100):
            left = processes_of(self.folder)
            if not left:
                break
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)
        for path in self.temporary:
            shutil.rmtree(path, ignore_errors=True)

    def write(self, name, text, mode=0o644):
        path = f"{self.folder}/{name}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)

    def told(self):
        """What the daemon and its agent wrote."""
        return "".join(f"--- {name}\n{read(f'{self.folder}/{name}')[-6000:]}"
                       for name in ("daemon.log", "state/agent.log"))

    def start_daemon(self, *arguments):
        """With the arguments of before, if there are none. Returns when it answers."""
        self.more = arguments or self.more
        with open(f"{self.folder}/daemon.log", "a", encoding="utf-8") as log:
            self.daemon = subprocess.Popen(
                [f"{self.bin}/triremed", "--state-dir", f"{self.folder}/state", "--socket",
                 f"{self.folder}/s.sock", "--node", "n1", *self.more], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, env={**os.environ, **self.environment})

        def answers():
            self.assertIsNone(self.daemon.poll(), self.told())
            asked = self.run_command("nodes", "--json")
            return asked.returncode == 0 and json.loads(asked.stdout)["nodes"]
        until(answers, "the daemon and its node answer", self.told)

    def stop_daemon(self):
        if self.daemon is None or self.daemon.poll() is not None:
            return
        self.daemon.send_signal(signal.SIGTERM)
        self.assertEqual(self.daemon.wait(LIMIT_S), 0, self.told())

    def fails_to_start(self, *arguments):
        """What it says of arguments that are wrong; `--no-agent`, so that none is started before it fails."""
        ended = subprocess.run([f"{self.bin}/triremed", "--no-agent", "--node", "n2", *arguments], text=True,
                               capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual(ended.returncode, 2, ended.stdout + ended.stderr)
        return ended.stderr

    def ready_port(self):
        found = re.search(r"ready: .*port (\d+)", read(f"{self.folder}/daemon.log"))
        return found and int(found[1])

    def agents(self):
        return [pid for pid, line in processes_of(f"{self.folder}/state").items()
                if read(f"/proc/{pid}/comm") == "trireme-agent\n"]

    def command_of(self, *arguments):
        here = () if "--coordinator" in arguments else ("--coordinator", f"unix:{self.folder}/s.sock")
        return [f"{self.bin}/trireme", *arguments, *here]

    def run_command(self, *arguments):
        return subprocess.run(self.command_of(*arguments), capture_output=True, text=True, timeout=LIMIT_S,
                              check=False, stdin=subprocess.DEVNULL)

    def ask(self, *arguments, code=0):
        """The answer; of what is refused the error."""
        asked = self.run_command(*arguments, "--json")
        self.assertEqual(asked.returncode, code, f"{arguments}\n{asked.stdout}{asked.stderr}{self.told()}")
        return json.loads(asked.stdout) if code == 0 else asked.stderr

    def text(self, *arguments):
        asked = self.run_command(*arguments)
        self.assertEqual(asked.returncode, 0, f"{arguments}\n{asked.stdout}{asked.stderr}{self.told()}")
        return asked.stdout

    def begin(self, *arguments, kind=Command):
        self.commands.append(kind(self.folder, self.command_of(*arguments)))
        return self.commands[-1]

    def watch(self, job):
        return self.begin("watch", job, "--json", kind=Watch)

    def submit(self, *arguments):
        return self.ask("submit", self.job_file, *arguments)["job"]["id"]

    def show(self, job):
        return self.ask("show", job)

    def run_folder(self, job):
        return f"{self.folder}/state/jobs/{job}"

    def metrics(self, job):
        whole = read(self.run_folder(job) + "/metrics.jsonl").rpartition("\n")[0].splitlines()
        return [json.loads(line) for line in whole]

    def losses(self, job):
        return self.losses_in(self.run_folder(job))

    @staticmethod
    def losses_in(run):
        """{step: loss}, to the bit."""
        whole = map(json.loads, read(run + "/metrics.jsonl").rpartition("\n")[0].splitlines())
        return {line["step"]: line["loss"] for line in whole if "loss" in line}

    def reach_state(self, job, state):
        def there():
            now = self.show(job)["status"]["state"]
            self.assertTrue(now == state or now not in ENDED, f"{self.show(job)}\n{self.told()}")
            return now == state
        until(there, f"job {job} is {state}", self.told)

    def reach(self, job, step):
        """It runs and has done the step; what it keeps in temporary folders is remembered for the end."""
        self.reach_state(job, "JOB_RUNNING")
        until(lambda: max(self.losses(job), default=0) >= step, f"step {step} of job {job}", self.told)
        lines = "\0".join(processes_of(self.run_folder(job)).values())
        found = set(re.findall(r"(?:/tmp|/dev/shm)/trireme-[\w-]+", lines))
        self.assertEqual(len(found), 2, lines)
        self.temporary |= found

    def rank(self, job, number):
        """The pid of a rank."""
        for pid, line in processes_of(self.run_folder(job)).items():
            environment = read(f"/proc/{pid}/environ").split("\0")
            if "trireme-worker" in line.split("\0")[0] and f"OMPI_COMM_WORLD_RANK={number}" in environment:
                return pid
        raise AssertionError(f"rank {number} of job {job} is not there\n{self.told()}")

    def stored_events(self):
        """[(sequence, job)], of a daemon that has ended."""
        with sqlite3.connect(f"file:{self.folder}/state/jobs.db?mode=ro", uri=True) as store:
            return store.execute("SELECT sequence, job_id FROM events ORDER BY sequence").fetchall()
