#!/usr/bin/env python3
"""The daemon is killed (SIGKILL) at many moments while jobs are submitted, run and are cancelled: no job is lost, none runs
twice, Watch and Logs have neither gaps nor repeats, and the steps of running jobs go on meanwhile. Most jobs are shell
scripts of a second; some train. Usage: soak_test.py BIN_FOLDER [Soak.test_NAME ...]"""
import os
import random
import shutil
import subprocess
import threading
import time

from api_fixture import TIMEOUT_S, ApiCase, grpc, main
from daemon_fixture import ENDED, LIMIT_S, processes_of, read, until

SEED = 21
LINES = 20
REAL_STEPS = 300
ENDLESS = 1000000
# Every attempt leaves a mark that can be made only once; those whose name says so train. A shell cannot trap what it was
# born to ignore.
WORKER = """#!/usr/bin/env -S --default-signal=USR1 /bin/sh
( set -C; : > "{marks}/$TRIREME_ATTEMPT.$OMPI_COMM_WORLD_RANK" ) 2>/dev/null || echo "$TRIREME_ATTEMPT" >> "{marks}/twice"
grep -q '^name: .*real-' "$TRIREME_RUN_FOLDER/job.yaml" && exec "{worker}" "$@"
trap 'exit 75' USR1
line=0
while [ $line -lt {lines} ]; do
  line=$((line + 1))
  echo "line $line"
  sleep 0.05
done
"""


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
        self.requests = {}  # request id: job, of all that were answered
        self.cancelled = set()
        self.sequences = []
        self.faults = []
        self.over = threading.Event()

    def again(self, call):
        """The answer, from whichever daemon gives one; a refusal by state is none."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            try:
                return call()
            except grpc.RpcError as error:
                if error.code().name in ("FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND"):
                    self.faults.append(f"{error.code().name}: {error.details()}")
                    return None
                time.sleep(0.05)
        self.faults.append("no daemon answered")
        return None

    def submit_one(self, kind, steps):
        name = f"{kind}-{len(self.requests)}"
        job = self.job(steps)
        job.name = name
        job.resources.priority = 10 if kind == "real" else 0
        request = self.api.SubmitRequest(request_id=name, job=job)
        answer = self.again(lambda: self.stub.Submit(request, timeout=TIMEOUT_S))
        if answer is not None:
            self.requests[name] = answer.job.id
        return answer and answer.job.id

    def state_of(self, job):
        answer = self.again(lambda: self.stub.Get(self.api.GetRequest(job_id=job), timeout=TIMEOUT_S))
        return None if answer is None else answer.status.state

    def act(self, fakes, reals):
        """On a thread of its own: submits and cancels, whether a daemon is there or not."""
        states = self.api.ListRequest.DESCRIPTOR.fields_by_name["states"].enum_type.values_by_name
        ended = {states[name].number for name in ENDED}
        real = None
        while not self.over.is_set() and (fakes > 0 or reals > 0):
            if reals > 0 and (real is None or self.state_of(real) in ended):
                real = self.submit_one("real", REAL_STEPS)
                reals -= 1
            if fakes > 0:
                job = self.submit_one("fake", 10)
                fakes -= 1
                # A refusal says that it has ended by then.
                if job is not None and self.actions.random() < 0.4:
                    time.sleep(self.actions.uniform(0, 1.5))
                    if self.state_of(job) not in ended:
                        self.cancel(job)
            time.sleep(self.actions.uniform(0, 0.6))

    def cancel(self, job):
        faults = len(self.faults)
        if self.again(lambda: self.stub.Cancel(self.api.CancelRequest(job_id=job), timeout=TIMEOUT_S)) is not None:
            self.cancelled.add(job)
        else:
            del self.faults[faults:]  # it was faster

    def follow(self):
        """On a thread of its own: all events, from the last one on again whenever the stream breaks."""
        last = 0
        while not self.over.is_set():
            try:
                for news in self.stub.Watch(self.api.WatchRequest(after_sequence=last)):
                    if news.HasField("event"):
                        last = news.event.sequence
                        self.sequences.append(last)
            except (grpc.RpcError, ValueError):  # the channel is closed at the end
                time.sleep(0.05)

    def steps_of_reals(self):
        """{job: its last step}, of those whose ranks run."""
        found = {}
        for name, job in list(self.requests.items()):
            if not name.startswith("real"):
                continue
            lines = read(f"{self.run_folder(job)}/metrics.jsonl").rpartition("\n")[0].splitlines()
            running = any("trireme-worker" in line for line in processes_of(f"{self.run_folder(job)}").values())
            if lines and running:
                found[job] = len(lines)
        return found

    def steps_go_on(self):
        """Without a daemon."""
        before = self.steps_of_reals()
        until(lambda: all(job not in (now := self.steps_of_reals()) or now[job] > step for job, step in before.items()),
              f"the steps of {before} go on", self.told)
        self.assertTrue(before)

    def kill_at(self, moments):
        for moment in range(moments):
            time.sleep(self.moments.choice([0.02, 0.3, 1.2]) * self.moments.random())
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
            self.start_again()

    def start_again(self):
        with open(f"{self.folder}/daemon.log", "a", encoding="utf-8") as log:
            self.daemon = subprocess.Popen(self.daemon.args, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

        def answers():
            self.assertIsNone(self.daemon.poll(), self.told())
            return self.run_command("nodes", "--json").returncode == 0
        until(answers, "the daemon answers", self.told)

    def soak(self, moments, fakes, reals):
        before, type(self).bin = self.bin, f"{self.folder}/bin"
        os.symlink(f"{before}/trireme", f"{self.folder}/bin/trireme")
        self.addCleanup(setattr, type(self), "bin", before)
        self.start_daemon()
        endless = self.submit_one("real", ENDLESS)
        until(self.steps_of_reals, "it trains", self.told)
        threads = [threading.Thread(target=self.act, args=(fakes, reals)), threading.Thread(target=self.follow)]
        for thread in threads:
            thread.start()
        self.addCleanup(self.over.set)
        until(lambda: len(self.requests) >= 4, "the first jobs are there", self.told)
        logs = {job: self.begin("logs", str(job), "-f") for name, job in list(self.requests.items())
                if name.startswith("fake")}
        until(lambda: all(log.text() for log in logs.values()), "the logs are followed", self.told)
        self.kill_at(moments)
        self.cancel(endless)
        threads[0].join(10 * LIMIT_S)
        self.assertFalse(threads[0].is_alive())
        jobs = until(self.all_ended, "all jobs have ended", self.told, 10 * LIMIT_S)
        self.check_jobs(jobs, fakes + reals + 1)
        self.check_logs(logs)
        self.check_events(threads[1])
        self.assertEqual(self.faults, [])

    def all_ended(self):
        jobs = self.ask("list", "--all")["jobs"]
        return jobs if all(job["status"]["state"] in ENDED for job in jobs) else None

    def check_jobs(self, jobs, count):
        self.assertEqual(sorted(int(job["id"]) for job in jobs), sorted(self.requests.values()))
        self.assertEqual(len(jobs), count)
        self.assertEqual(read(f"{self.marks}/twice"), "")
        marks = sorted(name for name in os.listdir(self.marks))
        expected = []
        for job in jobs:
            number, state, attempt = int(job["id"]), job["status"]["state"], job["status"]["attempt"]
            allowed = {"JOB_COMPLETED", "JOB_CANCELLED"} if number in self.cancelled else {"JOB_COMPLETED"}
            self.assertIn(state, allowed, f"{job}\n{self.told()}")
            self.assertLessEqual(attempt, 1, job)
            if state == "JOB_COMPLETED":
                expected.append(f"{number}-1.0")
            if job["name"].startswith("real"):
                steps = [line["step"] for line in self.metrics(number) if "loss" in line]
                self.assertEqual(steps, list(range(1, (len(steps) if number in self.cancelled else REAL_STEPS) + 1)))
            elif state == "JOB_COMPLETED":
                self.assertEqual(read(f"{self.run_folder(number)}/attempts/1/logs/rank-0.log"),
                                 "".join(f"line {line + 1}\n" for line in range(LINES)))
        self.assertLessEqual(set(expected), set(marks))
        self.assertLessEqual(set(marks), {f"{job['id']}-1.0" for job in jobs})

    def check_logs(self, logs):
        for job, follower in logs.items():
            code, text = follower.end()
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

    def take_backup(self):
        self.stop_daemon()
        shutil.copy(f"{self.folder}/state/jobs.db", f"{self.folder}/backup.db")
        self.start_again()
        return dict(self.requests)

    def put_back(self):
        """The store is that of the backup again; its node serves it by an admin's word."""
        self.daemon.kill()
        self.daemon.wait()
        for suffix in ("-wal", "-journal"):
            if os.path.exists(f"{self.folder}/state/jobs.db{suffix}"):
                os.remove(f"{self.folder}/state/jobs.db{suffix}")
        shutil.copy(f"{self.folder}/backup.db", f"{self.folder}/state/jobs.db")
        self.start_again()

        def node():
            return (self.ask("nodes")["nodes"] or [{}])[0]
        until(lambda: node().get("state") == "NODE_READY", "the node dials in", self.told)
        if not node()["refuses_for"]:
            return False  # its agent has seen nothing of what is lost
        # The one that trains is always held.
        until(lambda: node()["held"], "what it holds is shown", self.told)
        time.sleep(self.moments.random())
        self.ask("nodes", "adopt", "n1")
        until(lambda: not node()["refuses_for"], "the node serves", self.told)
        return True

    def soak_with_backups(self, rounds):
        before, type(self).bin = self.bin, f"{self.folder}/bin"
        os.symlink(f"{before}/trireme", f"{self.folder}/bin/trireme")
        self.addCleanup(setattr, type(self), "bin", before)
        self.start_daemon()
        endless = self.submit_one("real", 100 * ENDLESS)
        until(self.steps_of_reals, "it trains", self.told)
        ranks = [self.rank(endless, number) for number in (0,)]
        refusals = 0
        for number in range(rounds):
            for _ in range(2):
                self.submit_one("fake", 10)
            time.sleep(self.moments.uniform(0, 1.5))
            if number % 2 == 0:
                acknowledged = self.take_backup()
            for _ in range(2):
                self.submit_one("fake", 10)
            time.sleep(self.moments.uniform(0, 1.5) if number % 3 == 0 else 6)  # an agent dials every 5 s at least
            refusals += self.put_back()
            self.requests = dict(acknowledged)
            self.assertEqual([self.rank(endless, number) for number in (0,)], ranks, self.told())
        self.assertGreater(refusals, 0)
        self.cancel(endless)
        jobs = until(self.all_ended, "all jobs have ended", self.told, 10 * LIMIT_S)
        self.assertEqual(read(f"{self.marks}/twice"), "")
        self.assertLessEqual(set(self.requests.values()), {int(job["id"]) for job in jobs})
        for job in jobs:
            states = ("JOB_CANCELLED",) if int(job["id"]) == endless else ("JOB_COMPLETED",)
            self.assertIn(job["status"]["state"], states, f"{job}\n{self.told()}")
            if job["name"].startswith("fake"):
                # Done once, by whichever attempt.
                done = [folder for folder in os.listdir(f"{self.run_folder(job['id'])}/attempts")
                        if '"exit_code": 0' in read(f"{self.run_folder(job['id'])}/attempts/{folder}/exit")]
                self.assertEqual(len(done), 1, f"{job}\n{self.told()}")
        self.assertEqual(self.faults, [])

    def test_backups_put_back_twice(self):
        self.soak_with_backups(2)

    def test_backups_put_back_40_times(self):
        self.soak_with_backups(40)

    def test_kill_9_at_10_moments(self):
        self.soak(moments=10, fakes=6, reals=1)

    def test_kill_9_at_200_moments(self):
        self.soak(moments=200, fakes=150, reals=12)


if __name__ == "__main__":
    main()
