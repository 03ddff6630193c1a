#!/usr/bin/env python3
"""What a daemon shows of itself over HTTP and in its log.

Usage: observed_test.py BIN_FOLDER [Observed.test_NAME ...]
"""
import ctypes
import glob
import http.client
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import unittest

from daemon_fixture import LIMIT_S, DaemonCase, read, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


class StoppedThread:
    """One thread of a process stands still, as a debugger has it."""

    SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17

    def __init__(self, pid, name):
        [self.thread] = [int(path.split("/")[4]) for path in glob.glob(f"/proc/{pid}/task/*/comm")
                         if read(path) == name + "\n"][:1]

    def call(self, request):
        libc = ctypes.CDLL(None, use_errno=True)
        zero = ctypes.c_void_p(0)
        return libc.ptrace(ctypes.c_long(request), ctypes.c_long(self.thread), zero, zero)

    def __enter__(self):
        if self.call(self.SEIZE) != 0:
            raise unittest.SkipTest(f"not here: ptrace: {os.strerror(ctypes.get_errno())}")
        self.call(self.INTERRUPT)
        os.waitpid(self.thread, 0x40000000)  # __WALL

    def __exit__(self, *_):
        self.call(self.DETACH)


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

    def test_watchdog(self):
        """systemd hears of daemon and agent while the thread that decides goes round, and no longer."""
        notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(notices.close)
        notices.bind(f"{self.folder}/notices")
        told = []

        def hear(seconds):
            """What comes in that time."""
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                notices.settimeout(left)
                try:
                    told.append(notices.recv(100).decode())
                except TimeoutError:
                    return

        def begin(program, *arguments):
            """As systemd does: it says whom it means."""
            with open(f"{self.folder}/watched.log", "a", encoding="utf-8") as log:
                # exec: the shell's pid is the program's.
                process = subprocess.Popen(
                    ["sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh", f"{self.bin}/{program}", "--node", "n1", *arguments],
                    stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                    env={**os.environ, "NOTIFY_SOCKET": f"{self.folder}/notices", "WATCHDOG_USEC": "800000"})
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            return process

        daemon = ("triremed", "--state-dir", f"{self.folder}/state", "--socket", f"{self.folder}/s.sock", "--no-agent")
        agent = ("trireme-agent", "--state-dir", f"{self.folder}/agent", "--coordinator", f"unix:{self.folder}/s.sock")
        for command, thread in ((daemon, "reconciler"), (agent, "trireme-agent")):
            told.clear()
            process = begin(*command)
            until(lambda: hear(0.2) or ("READY=1" in told and told.count("WATCHDOG=1") > 3), f"notices of {thread}",
                  lambda: f"{told}" + read(f"{self.folder}/watched.log"))
            with StoppedThread(process.pid, thread):
                hear(1)
                told.clear()
                hear(2)
                self.assertEqual(told, [])
            until(lambda: hear(0.2) or told.count("WATCHDOG=1") > 1, "it goes on", lambda: f"{told}")
            process.terminate()
            self.assertEqual(process.wait(LIMIT_S), 0)
            hear(0.5)
            self.assertIn("STOPPING=1", told)
        told.clear()
        other = subprocess.run([f"{self.bin}/trireme-agent", "--state-dir", f"{self.folder}/agent", "--coordinator", "unix:/none"],
                               env={**os.environ, "NOTIFY_SOCKET": f"{self.folder}/notices", "WATCHDOG_USEC": "soon"},
                               capture_output=True, check=False, timeout=LIMIT_S, preexec_fn=lambda: signal.alarm(2))
        self.assertEqual(other.returncode, -signal.SIGALRM, other.stderr)
        hear(0.2)
        self.assertEqual(told, ["READY=1"])
        os.remove(f"{self.folder}/notices")

    def test_agent_log_is_bounded(self):
        """What is full is moved by the agent that runs, which goes on in a new file; so does the next one."""
        os.mkdir(f"{self.folder}/state")
        self.write("state/agent.log", "x" * 99 + "\n")
        with open(f"{self.folder}/state/agent.log", "a", encoding="utf-8") as file:
            file.truncate(64 << 20)  # without a byte on the disk
        self.start_daemon()
        until(lambda: os.path.exists(f"{self.folder}/state/agent.log.1"), "it is moved", self.told)
        size = os.path.getsize(f"{self.folder}/state/agent.log.1")
        for pid in self.agents():
            os.kill(pid, signal.SIGTERM)
        until(lambda: "signal 15: ending" in read(f"{self.folder}/state/agent.log"), "it says so in the new one", self.told)
        self.assertEqual(os.path.getsize(f"{self.folder}/state/agent.log.1"), size)
        until(self.agents, "another is started", self.told)
        until(lambda: "agent of node n1" in read(f"{self.folder}/state/agent.log"), "it goes on there", self.told)
        self.assertFalse(os.path.exists(f"{self.folder}/state/agent.log.2"))

    def test_damage_ends_a_daemon(self):
        """Of what a start does not read, as jobs that have ended: found by the check after it, and not served again."""
        self.start_daemon()
        job = self.submit("--set", "resources.nodes=[elsewhere]")
        self.ask("cancel", job)
        self.stop_daemon()
        store = sqlite3.connect(f"{self.folder}/state/jobs.db")
        self.assertEqual(store.execute("UPDATE jobs SET job = CAST(job || x'00' AS BLOB)").rowcount, 1)
        store.commit()
        store.close()
        with open(f"{self.folder}/daemon.log", "a", encoding="utf-8") as log:
            self.daemon = subprocess.Popen(
                [f"{self.bin}/triremed", "--state-dir", f"{self.folder}/state", "--socket", f"{self.folder}/s.sock",
                 "--no-agent"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.assertNotIn(self.daemon.wait(LIMIT_S), (0, -signal.SIGTERM), self.told())
        said = read(f"{self.folder}/daemon.log").rpartition("ready: ")[2]
        self.assertIn(f"damaged (job {job})", said)
        # The next one does not begin at all.
        again = subprocess.run([f"{self.bin}/triremed", "--state-dir", f"{self.folder}/state", "--socket",
                                f"{self.folder}/s.sock", "--no-agent"], capture_output=True, text=True, timeout=LIMIT_S,
                               check=False)
        self.assertEqual(again.returncode, self.daemon.returncode, again.stderr)
        self.assertIn(f"damaged (job {job})", again.stderr)
        self.assertNotIn("ready", again.stderr)

    def test_run_folders_go_by_age(self):
        """Of an ended job all but what can be gone on from; named in the log before, and nothing of another store's."""
        self.assertIn("needs --keep-run-folders", self.fails_to_start("--remove-checkpoints"))
        self.assertIn("--keep-run-folders", self.fails_to_start("--keep-run-folders", "nan"))
        self.start_daemon()
        job = self.submit()
        self.assertEqual(self.watch(job).end()[0], 0, self.told())
        theirs = self.run_folder(77)
        os.makedirs(theirs)
        self.write("state/jobs/77/run.json", json.dumps({"version": 1, "job": 77, "store": "another"}))
        self.write("state/jobs/77/metrics.jsonl", "")
        self.stop_daemon()
        # Two seconds; it looks five times a second.
        self.start_daemon("--keep-run-folders", "0.00002")
        until(lambda: sorted(os.listdir(self.run_folder(job))) == ["checkpoints", "job.yaml", "run.json"],
              "all else is removed", self.told)
        said = re.compile(rf"(?s)at the next look [^\n]*will be removed: {self.run_folder(job)}\n.*removed by its age: "
                          rf"{self.run_folder(job)}\n")
        until(lambda: said.search(read(f"{self.folder}/daemon.log")), "it says so before and then", self.told)
        self.assertTrue(self.ask("checkpoints", job)["checkpoints"])
        self.assertEqual(self.text("logs", job), "")
        waiting = self.submit("--set", "resources.nodes=[elsewhere]")
        self.stop_daemon()
        self.start_daemon("--keep-run-folders", "0.00002", "--remove-checkpoints")
        until(lambda: not os.path.exists(self.run_folder(job)), "now all of it", self.told)
        self.assertEqual(self.show(job)["status"]["state"], "JOB_COMPLETED")
        self.assertEqual(sorted(os.listdir(theirs)), ["metrics.jsonl", "run.json"])
        self.assertTrue(os.path.exists(self.run_folder(waiting)))

    def test_rank_logs_are_bounded(self):
        """The middle of a log that grows is given back while its rank runs, and who reads it is told how much is gone."""
        with open(f"{self.folder}/agent.log", "a", encoding="utf-8") as log:
            agent = subprocess.Popen(
                [f"{self.bin}/trireme-agent", "--coordinator", f"unix:{self.folder}/s.sock", "--node", "n1", "--state-dir",
                 f"{self.folder}/state/agent", "--max-rank-log-bytes", str(2 << 20)], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        self.start_daemon("--no-agent")
        job = self.submit("--set", "training.steps=10000000", "--set", "checkpoint.every_steps=1000000")
        self.reach(job, 3)
        path = f"{self.run_folder(job)}/attempts/1/logs/rank-0.log"
        lines = "".join(f"line {number}\n" for number in range(1000000))
        with open(path, "a", encoding="utf-8") as log:
            log.write(lines)
        size = os.path.getsize(path)
        self.assertGreater(size, 11 << 20)
        until(lambda: os.stat(path).st_blocks * 512 < 5 << 20, "its middle is given back",
              lambda: read(f"{self.folder}/agent.log"))
        self.assertGreaterEqual(os.path.getsize(path), size)
        asked = self.run_command("logs", job)
        self.assertEqual(asked.returncode, 0, asked.stderr)
        [gone] = re.findall(r"--- (\d+) bytes of the log are no longer kept ---", asked.stderr)
        self.assertGreater(int(gone), 7 << 20)
        self.assertNotIn("\0", asked.stdout)
        self.assertIn("line 10\n", asked.stdout)
        self.assertIn("line 999999\n", asked.stdout)
        self.assertGreaterEqual(len(asked.stdout) + int(gone), size)
        at = self.losses(job)
        until(lambda: max(self.losses(job)) > max(at), "the rank goes on", self.told)
        self.ask("cancel", job)
        self.watch(job).end()
        agent.terminate()
        agent.wait()

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
        found = re.findall(r"http://(127\.0\.0\.1:\d+)", read(f"{self.folder}/daemon.log"))[-1]
        self.assertIn("choose another address by --http", self.fails_to_start(*other, "--http", found))
        self.assertTrue(self.fails_to_start("--htp", "0").startswith("triremed: "))
        agent = subprocess.run([f"{self.bin}/trireme-agent", "--nod", "n1"], text=True, capture_output=True,
                               timeout=LIMIT_S, check=False)
        self.assertEqual(agent.returncode, 2)
        self.assertTrue(agent.stderr.startswith("trireme-agent: "), agent.stderr)
        # A daemon that is killed and started again takes the same port: nothing holds it.
        self.daemon.send_signal(signal.SIGKILL)
        self.daemon.wait()
        self.start_daemon("--http", found)
        self.assertEqual(self.http("/healthz")[0], 200)

    def metrics_page(self):
        """{"name{labels}": value}."""
        status, headers, text = self.http("/metrics")
        self.assertEqual(status, 200, text)
        self.assertIn("version=0.0.4", headers["Content-Type"])
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def test_metrics(self):
        self.start_daemon("--http", "127.0.0.1:0")
        job = self.submit("--set", "training.steps=1000000")
        self.reach(job, 20)
        labels = f'{{job_id="{job}",job_name="tiny"}}'
        page = until(lambda: (lambda now: now.get("trireme_job_step" + labels, 0) > 0 and now)(self.metrics_page()),
                     "its progress in the metrics", self.told)
        self.assertEqual(page['trireme_jobs{state="running"}'], 1)
        self.assertEqual(page["trireme_job_steps_wanted" + labels], 1000000)
        self.assertGreater(page["trireme_job_loss" + labels], 0)
        self.assertGreater(page["trireme_job_tokens_per_second" + labels], 0)
        self.assertGreater(page["trireme_job_overall_tokens_per_second" + labels], 0)
        self.assertEqual(page['trireme_nodes{state="ready"}'], 1)
        self.assertGreater(page['trireme_node_cpus{node="n1"}'], 0)
        self.assertGreater(page['trireme_node_cpus_used{node="n1"}'], 0)
        self.assertEqual(page['trireme_rpcs_total{method="Control/Submit",code="OK"}'], 1)
        self.assertEqual(page['trireme_rpc_duration_seconds_count{method="Control/Submit"}'], 1)
        self.assertGreater(page["trireme_store_commit_duration_seconds_count"], 0)
        watch = self.watch(job)
        until(lambda: self.metrics_page().get('trireme_rpcs_open{method="Control/Watch"}') == 1, "a watcher is counted",
              self.told)
        os.kill(self.rank(job, 1), signal.SIGKILL)
        until(lambda: self.metrics_page()['trireme_attempts_failed_total{cause="rank_killed"}'] == 1,
              "the failed attempt is counted", self.told)
        self.ask("cancel", job)
        self.assertEqual(watch.end()[0], 5, self.told())
        page = until(lambda: (lambda now: now['trireme_rpcs_open{method="Control/Watch"}'] == 0 and now)(
            self.metrics_page()), "the watcher has gone", self.told)
        self.assertEqual(page['trireme_jobs{state="cancelled"}'], 1)
        self.assertNotIn("trireme_job_step" + labels, page)
        self.assertEqual(page['trireme_attempts_failed_total{cause="rank_killed"}'], 1)
        self.assertGreaterEqual(page["trireme_events_total"], 6)

    def test_alerts_and_board(self):
        """Alert rules, Grafana's board and the list in docs/operations/reference.md know the daemon's metrics, and no others;
        docs/operations/when_something_breaks.md has a row for each alert."""
        self.start_daemon("--http", "127.0.0.1:0")
        types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", self.http("/metrics")[2], re.M))
        known = {f"{name}{suffix}" for name, kind in types.items()
                 for suffix in (("_bucket", "_sum", "_count") if kind == "histogram" else ("",))}
        labels = set(re.findall(r'[{,](\w+)="', self.http("/metrics")[2])) | {"job_id", "job_name", "job", "le"}
        with open(f"{SOURCE}/deploy/grafana/trireme.json", encoding="utf-8") as file:
            board = json.load(file)
        expressions = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
        expressions += [one["expr"] for one in board["annotations"]["list"]]
        rules = read(f"{SOURCE}/deploy/prometheus/alerts.yaml")
        alerts = re.findall(r"^        expr: (.+)$", rules, re.M)
        self.assertEqual(len(alerts), rules.count("- alert: "))
        self.assertGreater(len(expressions), 20)
        for expression in expressions + alerts:
            names = set(re.findall(r"trireme_\w+", expression))
            self.assertTrue(names or expression.startswith("up{"), expression)
            self.assertLessEqual(names, known, expression)
            used = set(re.findall(r"(\w+)=~?\"", expression)) | {
                one.strip() for group in re.findall(r"(?:by|on) \(([^)]*)\)", expression) for one in group.split(",")}
            self.assertLessEqual(used, labels, expression)
        listed = set(re.findall(r"`(trireme_\w+)`", read(f"{SOURCE}/docs/operations/reference.md")))
        self.assertEqual(listed, set(types))
        page = read(f"{SOURCE}/docs/operations/when_something_breaks.md")
        self.assertEqual(re.findall(r"^\| (Trireme\w+) \|", page, re.M), re.findall(r"^      - alert: (\w+)$", rules, re.M))

    def test_promtool(self):
        """What Prometheus itself says of the rules and of a page, where it is: it is too large to install for that alone."""
        if not shutil.which("promtool"):
            self.skipTest("not here: promtool of Prometheus")
        self.start_daemon("--http", "127.0.0.1:0")
        for check in (["rules", f"{SOURCE}/deploy/prometheus/alerts.yaml"], ["metrics"]):
            said = subprocess.run(["promtool", "check", *check], input=self.http("/metrics")[2], text=True,
                                  capture_output=True, timeout=LIMIT_S, check=False)
            self.assertEqual(said.returncode, 0, said.stdout + said.stderr)

    def test_json_log(self):
        self.start_daemon("--http", "127.0.0.1:0", "--log-format", "json")
        job = self.submit()
        self.assertEqual(self.watch(job).end()[0], 0, self.told())
        self.stop_daemon()
        lines = [json.loads(line) for line in read(f"{self.folder}/daemon.log").splitlines()]
        for line in lines:
            self.assertEqual(list(line)[:4], ["time", "level", "program", "message"])
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertEqual(line["program"], "triremed")
        done = [line for line in lines if "completed" in line["message"]]
        self.assertEqual([(line["job"], line["attempt"]) for line in done], [(int(job), 1)])
        self.assertTrue([line for line in lines if line.get("node") == "n1"], lines)
        agent = [json.loads(line) for line in read(f"{self.folder}/state/agent.log").splitlines()]
        self.assertEqual({(line["program"], line["node"]) for line in agent}, {("trireme-agent", "n1")})
        error = json.loads(self.fails_to_start(f"--state-dir={self.folder}/other", "--no-socket", "--log-format", "json"))
        self.assertIn("--listen", error["message"])


if __name__ == "__main__":
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    skips.main()
