#!/usr/bin/env python3
"""The daemon is killed (SIGKILL) at many moments while jobs are submitted, run and are cancelled: no job is lost, none runs
twice, Watch and Logs have neither gaps nor repeats, and the steps of running jobs go on meanwhile. With backups, which are
made while it runs, it is at some of the moments started from one of them: nothing is lost but what was answered after that.
Most jobs are shell scripts of a second; some train. Usage: soak_test.py BIN_FOLDER [Soak.test_NAME ...]"""
import dataclasses
import glob
import itertools
import json
import os
import random
import shutil
import sqlite3
import subprocess
import threading
import time

from api_fixture import TIMEOUT_S, ApiCase, grpc, main
from daemon_fixture import ENDED, LIMIT_S, lives, processes_of, read, until

SEED = 21
LINES = 20
REAL_STEPS = 300
PRIORITIES = {"real": 10, "first": 5, "long": 4, "fake": 0}
ENDLESS = 100000000
# Every attempt leaves a mark that can be made only once; those whose name says so train. A shell cannot trap what it was
# born to ignore.
WORKER = """#!/usr/bin/env -S --default-signal=USR1 /bin/sh
( set -C; : > "{marks}/$TRIREME_ATTEMPT.$OMPI_COMM_WORLD_RANK" ) 2>/dev/null || echo "$TRIREME_ATTEMPT" >> "{marks}/twice"
grep -q '^name: .*real-' "$TRIREME_RUN_FOLDER/job.yaml" && exec "{worker}" "$@"
trap 'exit 75' USR1
pause=0.05
grep -q '^name: .*long-' "$TRIREME_RUN_FOLDER/job.yaml" && pause=0.4
line=0
while [ $line -lt {lines} ]; do
  line=$((line + 1))
  echo "line $line"
  sleep $pause
done
"""


@dataclasses.dataclass
class Backup:
    path: str
    begun: float  # what was answered before that is in it
    ended: dict  # {job: state}, of those that had ended by then
    put_back: float = 0.0  # the last moment of a daemon that knew more


class Soak(ApiCase):
    def setUp(self):
        super().setUp()
        self.moments = random.Random(SEED)
        self.marks = f"{self.folder}/marks"
        os.mkdir(self.marks)
        programs = f"{self.folder}/bin"
        os.mkdir(programs)
        for name in ("triremed", "trireme-agent"):
            shutil.copy(f"{self.bin}/{name}", programs)
        self.write("bin/trireme-worker", WORKER.format(marks=self.marks, worker=f"{self.bin}/trireme-worker",
                                                       lines=LINES), 0o755)
        self.actions = random.Random(SEED + 1)
        self.numbers = itertools.count()
        self.requests = {}  # request id: job, of all that were answered
        self.times = {}  # job: when the call that was answered began, and when it was
        self.cancelled = set()  # somebody has asked for that
        self.unknown = set()  # jobs that were asked for, and not there
        self.lock = threading.Lock()
        self.sequences = []
        self.life = 0  # of the store: one more whenever it is put back
        self.backup = None  # the newest
        self.restores = []
        self.faults = []
        self.enough, self.over = threading.Event(), threading.Event()

    def again(self, call, of=None):
        """The answer, from whichever daemon gives one; a refusal by state is none. `of`: a job that may not be there."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            try:
                return call()
            except grpc.RpcError as error:
                if of is not None and error.code().name == "NOT_FOUND":
                    self.unknown.add(of)
                    return None
                if error.code().name in ("FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND"):
                    self.faults.append(f"{error.code().name}: {error.details()}")
                    return None
                time.sleep(0.05)
        self.faults.append("no daemon answered")
        return None

    def submit_one(self, kind, steps=10):
        name = f"{kind}-{next(self.numbers)}"
        job = self.job(steps)
        job.name = name
        job.resources.priority = PRIORITIES[kind]
        request = self.api.SubmitRequest(request_id=name, job=job)
        begun = 0

        def submit():
            nonlocal begun
            begun = time.monotonic()
            return self.stub.Submit(request, timeout=TIMEOUT_S)
        answer = self.again(submit)
        if answer is None:
            return None
        self.times[answer.job.id] = (begun, time.monotonic())
        self.requests[name] = answer.job.id
        return answer.job.id

    def state_of(self, job):
        """None: it is not there."""
        answer = self.again(lambda: self.stub.Get(self.api.GetRequest(job_id=job), timeout=TIMEOUT_S), of=job)
        return None if answer is None else answer.status.state

    def act(self, fakes, reals, pause):
        """On a thread of its own: submits and cancels, whether a daemon is there or not. `pause`: the longest between two."""
        states = self.api.ListRequest.DESCRIPTOR.fields_by_name["states"].enum_type.values_by_name
        ended = {states[name].number for name in ENDED}
        real = None
        while not self.over.is_set() and not self.enough.is_set() and (fakes > 0 or reals > 0):
            if reals > 0 and (real is None or self.state_of(real) in {None, *ended}):
                real = self.submit_one("real", REAL_STEPS)
                reals -= 1
            if fakes > 0:
                job = self.submit_one("fake")
                fakes -= 1
                # A refusal says that it has ended by then.
                if job is not None and self.actions.random() < 0.4:
                    time.sleep(self.actions.uniform(0, 1.5))
                    if self.state_of(job) not in {None, *ended}:
                        self.cancel(job)
            time.sleep(self.actions.uniform(0, pause))

    def cancel(self, job):
        self.cancelled.add(job)
        faults = len(self.faults)
        if self.again(lambda: self.stub.Cancel(self.api.CancelRequest(job_id=job), timeout=TIMEOUT_S), of=job) is None:
            del self.faults[faults:]  # it was faster

    def follow(self):
        """On a thread of its own: all events, from the last one on again whenever the stream breaks."""
        while not self.over.is_set():
            with self.lock:
                life, last = self.life, max(self.sequences, default=0)
            try:
                for news in self.stub.Watch(self.api.WatchRequest(after_sequence=last)):
                    with self.lock:
                        if self.life != life:
                            break  # what it still holds of a state that is no more
                        if news.HasField("event"):
                            self.sequences.append(news.event.sequence)
            except (grpc.RpcError, ValueError):  # the channel is closed at the end
                time.sleep(0.05)

    def steps_of_reals(self):
        """{job: its last step}, of those whose ranks run."""
        found = {}
        for name, job in list(self.requests.items()):
            if not name.startswith("real"):
                continue
            lines = read(f"{self.run_folder(job)}/metrics.jsonl").rpartition("\n")[0].splitlines()
            running = any("trireme-worker" in line for line in processes_of(f"{self.run_folder(job)}\0").values())
            if lines and running:
                found[job] = len(lines)
        return found

    def steps_go_on(self):
        """Without a daemon."""
        before = self.steps_of_reals()
        until(lambda: all(job not in (now := self.steps_of_reals()) or now[job] > step for job, step in before.items()),
              f"the steps of {before} go on", self.told)
        self.assertTrue(before)

    def kill_at(self, moments, backups):
        for moment in range(moments):
            time.sleep(self.moments.choice([0.02, 0.3, 1.2]) * self.moments.random())
            put_back = backups and self.backup is not None and moment % 3 == 2
            if put_back and self.moments.random() < 0.7:
                # Its agent sees more than is in the backup, as the attempt of a job that waited then.
                self.serve()
                until(lambda: os.path.exists(f"{self.marks}/{self.late}-1.0"), f"job {self.late} begins", self.told)
            self.daemon.kill()
            self.daemon.wait()
            if self.moments.random() < 0.3:
                # One that has hardly begun.
                early = subprocess.Popen(self.daemon.args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                         stdin=subprocess.DEVNULL)
                time.sleep(0.3 * self.moments.random())
                early.kill()
                early.wait()
            if moment % 5 == 0:
                self.steps_go_on()
            if put_back:
                self.put_back()
            self.start_again()
            if backups and moment % 3 == 0:
                self.make_backup()
            elif put_back and self.moments.random() < 0.7:
                self.serve()  # else the next daemon is killed while its node still refuses
            self.assertEqual(self.birth(), self.born, f"the ranks that train live on\n{self.told()}")

    def start_again(self):
        with open(f"{self.folder}/daemon.log", "a", encoding="utf-8") as log:
            self.daemon = subprocess.Popen(self.daemon.args, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

        def answers():
            self.assertIsNone(self.daemon.poll(), self.told())
            return self.run_command("nodes", "--json").returncode == 0
        until(answers, "the daemon answers", self.told)

    def birth(self):
        """Of the rank that always trains, which is that of job 1."""
        return lives(self.trains) and read(f"/proc/{self.trains}/stat").rpartition(")")[2].split()[19]

    def node(self):
        return (self.ask("nodes")["nodes"] or [{}])[0]

    def serve(self):
        """Its node does what this daemon says, if need be by an admin's word."""
        until(lambda: self.node().get("state") == "NODE_READY", "the node dials in", self.told)
        if not self.node()["refuses_for"]:
            return
        self.refusals += 1
        # The one that trains is always held.
        until(lambda: self.node()["held"], "what it holds is shown", self.told)
        time.sleep(self.moments.random())
        self.ask("nodes", "adopt", "n1")
        until(lambda: not self.node()["refuses_for"], "the node serves", self.told)

    def make_backup(self):
        """As an admin makes it, of a daemon that runs. Its last job waits, or has begun in this moment."""
        self.submit_one("first")
        self.late = self.submit_one("long")
        states = {int(job["id"]): job["status"]["state"] for job in self.ask("list", "--all")["jobs"]}
        begun = time.monotonic()
        folder = f"{self.folder}/backup-{begun}"
        self.text("backup", folder)
        [path] = glob.glob(f"{folder}/jobs-*.db")
        self.backup = Backup(path, begun, {job: state for job, state in states.items() if state in ENDED})

    def put_back(self):
        """As the documents say, while no daemon runs."""
        killed = time.monotonic()
        for path in glob.glob(f"{self.folder}/state/jobs.db*"):
            os.remove(path)
        shutil.copy(self.backup.path, f"{self.folder}/state/jobs.db")
        with sqlite3.connect(f"file:{self.backup.path}?mode=ro&immutable=1", uri=True) as store:
            [[newest]] = store.execute("SELECT max(sequence) FROM events")
        with self.lock:
            self.life += 1
            self.sequences = [sequence for sequence in self.sequences if sequence <= newest]
        self.restores.append(dataclasses.replace(self.backup, put_back=killed))

    def soak(self, moments, fakes, reals, pause=0.6, backups=False):
        before, type(self).bin = self.bin, f"{self.folder}/bin"
        os.symlink(f"{before}/trireme", f"{self.folder}/bin/trireme")
        self.addCleanup(setattr, type(self), "bin", before)
        self.start_daemon()
        endless = self.submit_one("real", ENDLESS)
        until(self.steps_of_reals, "it trains", self.told)
        self.trains, self.refusals = self.rank(endless, 0), 0
        self.born = self.birth()
        threads = [threading.Thread(target=self.act, args=(fakes, reals, pause)), threading.Thread(target=self.follow)]
        for thread in threads:
            thread.start()
        self.addCleanup(self.over.set)
        until(lambda: len(self.requests) >= 4, "the first jobs are there", self.told)
        logs = {job: self.begin("logs", str(job), "-f") for name, job in list(self.requests.items())
                if name.startswith("fake")}
        until(lambda: all("line 1\n" in log.text() or job in self.cancelled for job, log in logs.items()),
              "the logs are followed", self.told)
        self.kill_at(moments, backups)
        if backups:
            self.enough.set()  # jobs came to the last moment
            self.serve()
        self.cancel(endless)
        threads[0].join(10 * LIMIT_S)
        self.assertFalse(threads[0].is_alive())
        jobs = until(self.all_ended, "all jobs have ended", self.told, 10 * LIMIT_S)
        if not backups:
            self.assertEqual(len(self.requests), fakes + reals + 1)
        self.check_losses({int(job["id"]): job["status"]["state"] for job in jobs})
        self.check_jobs(jobs)
        self.check_logs(logs)
        self.check_events(threads[1])
        self.assertEqual(self.faults, [])
        if backups:
            print(f"{len(self.restores)} restores, {self.refusals} adoptions, {len(self.requests) - len(jobs)} jobs lost",
                  flush=True)
            self.assertGreater(len(self.restores), moments // 4)
            self.assertGreater(self.refusals, 0)

    def all_ended(self):
        jobs = self.ask("list", "--all")["jobs"]
        return jobs if all(job["status"]["state"] in ENDED for job in jobs) else None

    def check_losses(self, states):
        """Nothing that was answered before a backup was made, or by a daemon after it was put back."""
        self.assertLessEqual(set(states), set(self.requests.values()))
        lost = set(self.requests.values()) - set(states)
        for job in lost:
            begun, answered = self.times[job]
            self.assertTrue(any(backup.begun <= answered and begun <= backup.put_back for backup in self.restores),
                            f"job {job}, of {begun} to {answered}, is lost: {self.restores}\n{self.told()}")
        self.assertLessEqual(self.unknown, lost)
        for backup in self.restores:
            self.assertEqual({job: states.get(job) for job in backup.ended}, backup.ended, self.told())

    def check_jobs(self, jobs):
        self.assertEqual(read(f"{self.marks}/twice"), "")
        marks = os.listdir(self.marks)
        for job in jobs:
            number, state, attempt = int(job["id"]), job["status"]["state"], job["status"]["attempt"]
            may_end = number in self.cancelled
            self.assertIn(state, {"JOB_COMPLETED", *(["JOB_CANCELLED"] if may_end else [])}, f"{job}\n{self.told()}")
            codes = self.check_attempts(number)
            if state == "JOB_COMPLETED":
                self.assertEqual(codes.count(0), 1, f"done once: {job}\n{self.told()}")
            if not may_end:
                self.assertEqual(codes, [0], f"nobody has ended it: {job}\n{self.told()}")
            # A cancel that is lost with the state of the store leaves an attempt that ended by it.
            if not (may_end and self.restores):
                self.assertLessEqual(attempt, 1, job)
                self.assertLessEqual({mark for mark in marks if mark.startswith(f"{number}-")}, {f"{number}-1.0"})
            if job["name"].startswith("real"):
                steps = [line["step"] for line in self.metrics(number) if "loss" in line]
                self.assertEqual(steps, list(range(1, (len(steps) if may_end else REAL_STEPS) + 1)))
            elif state == "JOB_COMPLETED":
                self.assertEqual(read(f"{self.run_folder(number)}/attempts/{attempt}/logs/rank-0.log"),
                                 "".join(f"line {line + 1}\n" for line in range(LINES)))

    def check_attempts(self, job):
        """No two of them at once; the exit codes of those whose ranks began."""
        last, codes = 0, []
        folders = glob.glob(f"{self.run_folder(job)}/attempts/[0-9]*")
        for number in sorted(int(os.path.basename(folder)) for folder in folders):
            mark, end = f"{self.marks}/{job}-{number}.0", f"{self.run_folder(job)}/attempts/{number}/exit"
            if not os.path.exists(mark):
                continue
            begun, ended = os.stat(mark).st_mtime_ns, os.stat(end).st_mtime_ns
            self.assertGreaterEqual(begun, last, f"attempt {number} of job {job} began beside the one before\n{self.told()}")
            last = ended
            codes.append(json.loads(read(end))["exit_code"])
        return codes

    def check_logs(self, logs):
        for job, follower in logs.items():
            code, text = follower.end()
            if job in self.cancelled and self.restores:
                continue  # it may have had several attempts, or none that the store knew
            self.assertEqual(code, 0, text)
            stored = read(f"{self.run_folder(job)}/attempts/1/logs/rank-0.log")
            told = "".join(line + "\n" for line in text.splitlines() if line.startswith("line "))
            self.assertEqual(told, "".join(line + "\n" for line in stored.splitlines() if line.startswith("line ")))

    def check_events(self, follower):
        last = int(self.ask("nodes")["last_sequence"])
        until(lambda: self.sequences and self.sequences[-1] >= last, "the last event is told", self.told)
        self.over.set()
        self.stop_daemon()
        follower.join(LIMIT_S)
        self.assertFalse(follower.is_alive())
        self.assertEqual(self.sequences, list(range(1, len(self.sequences) + 1)))
        self.assertEqual([sequence for sequence, _ in self.stored_events()], self.sequences)

    def test_kill_9_at_10_moments(self):
        self.soak(moments=10, fakes=6, reals=1)

    def test_kill_9_and_restores_at_10_moments(self):
        self.soak(moments=10, fakes=100, reals=1, pause=1.5, backups=True)

    def test_kill_9_and_restores_at_200_moments(self):
        self.soak(moments=200, fakes=2000, reals=12, pause=2.5, backups=True)


if __name__ == "__main__":
    main()
