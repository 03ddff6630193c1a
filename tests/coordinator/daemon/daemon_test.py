#!/usr/bin/env python3
"""triremed, its agent and its command line from outside: jobs end to end, kills of every part, strangers. Every wait
has a deadline, and every process started is ended.

Usage: daemon_test.py BIN_FOLDER [Daemon.test_NAME ...]
"""
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

from daemon_fixture import ENDED, LIMIT_S, DaemonCase, processes_of, read, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402

KILLS = 12


class Daemon(DaemonCase):
    def test_runs_a_job(self):
        self.start_daemon()
        loose = ["--set", "compression.pipeline.mode=on", "--set", "compression.pipeline.min_bytes=0", "--set",
                 "compression.pipeline.bound=rms:50"]  # of which rank 0 warns
        job = self.submit(*loose, "--request-id", "first")
        again = self.ask("submit", self.job_file, *loose, "--request-id", "first")
        self.assertEqual((again["job"]["id"], again["repeated"]), (job, True))
        self.assertEqual([one["id"] for one in self.ask("list", "--all")["jobs"]], [job])
        code, events = self.watch(job).end()
        self.assertEqual(code, 0, self.told())
        states = [event["state_changed"]["to"] for event in events if "state_changed" in event]
        self.assertEqual(states, ["JOB_PLANNING", "JOB_LAUNCHING", "JOB_RUNNING", "JOB_COMPLETED"], events)
        shown = self.show(job)
        self.assertEqual((shown["name"], shown["status"]["attempt"], shown["status"]["exit_code"]), ("tiny", 1, 0))
        self.assertEqual(self.show("tiny")["id"], job)
        self.assertEqual(sorted(self.losses(job)), list(range(1, 31)))
        self.assertIn("too loose for this model", self.text("logs", job))
        checkpoints = self.ask("checkpoints", job)["checkpoints"]
        self.assertEqual([one["step"] for one in checkpoints], ["30", "20"])
        self.assertTrue(os.path.isdir(checkpoints[0]["path"]))
        self.assertEqual(self.ask("list").get("jobs"), [])
        self.ask("show", "2", code=2)
        self.ask("logs", job, "--attempt", "2", code=2)
        for bad in ("a b", "x" * 129):
            self.assertIn("request_id", self.ask("submit", self.job_file, "--request-id", bad, code=2))

    def test_pauses_and_resumes(self):
        self.start_daemon()
        job = self.submit("--set", "training.steps=1200")
        twin = self.submit("--set", "training.steps=1200", "--set", "name=twin")
        self.reach(job, 50)
        watch = self.watch(job)
        self.ask("pause", job)
        self.assertEqual(watch.end()[0], 75, self.told())
        paused = self.show(job)
        self.assertEqual((paused["status"]["state"], paused["allocation"]), ("JOB_PAUSED", []))
        step = int(paused["status"]["checkpoint_step"])
        self.assertTrue(50 <= step < 1200, paused)
        self.assertEqual(self.ask("checkpoints", job)["checkpoints"][0]["step"], str(step))
        self.assertEqual(max(self.losses(job)), step)
        self.ask("resume", job)
        for one in (job, twin):
            self.reach_state(one, "JOB_COMPLETED")
        self.assertEqual(self.show(job)["status"]["attempt"], 2)
        self.assertIn(f"at step {step}\n", self.text("logs", job))
        self.assertEqual(len(self.losses(twin)), 1200)
        self.assertEqual(self.losses(job), self.losses(twin))

    def test_cancels(self):
        self.assertIn("--default-time-limit", self.fails_to_start("--default-time-limit", "nan"))
        self.start_daemon("--default-time-limit", "3600")
        job = self.submit("--set", "training.steps=1000000")
        self.assertIn("1 h, of which", self.text("show", job))
        self.reach(job, 20)
        watch = self.watch(job)
        self.ask("cancel", job)
        self.assertEqual(watch.end()[0], 5, self.told())
        self.assertEqual(self.show(job)["status"]["exit_code"], 5)
        self.assertEqual(self.show(job)["allocation"], [])
        self.ask("resume", job, code=2)
        self.ask("drain", "n1", "--reason", "new disk")
        waiting = self.submit()
        until(lambda: "drained" in self.show(waiting)["waits_for"], "why it waits", self.told)
        [listed] = self.ask("list")["jobs"]
        self.assertEqual((listed["id"], listed["status"]["state"], listed["queue_position"]),
                         (waiting, "JOB_PENDING", 1))
        self.assertIn("new disk", listed["waits_for"])
        self.assertIn("drained", self.text("explain", waiting))
        self.ask("cancel", waiting)
        self.assertEqual(self.watch(waiting).end()[0], 5)
        after = self.submit()
        self.assertEqual(self.show(after)["status"]["state"], "JOB_PENDING")
        self.ask("undrain", "n1")
        self.assertEqual(self.watch(after).end()[0], 0, self.told())
        self.assertEqual(self.show(waiting)["status"]["attempt"], 0)
        self.assertEqual(self.show(after)["status"]["attempt"], 1)

    def test_survives_kill_9(self):
        """The daemon is killed at any moment, also while it takes jobs, and every other time its agent with it: no job
        is lost, started twice or told twice."""
        self.start_daemon()
        moments = random.Random(11)
        watches = {}
        for kill in range(KILLS):
            submitting = None
            if kill < 3:
                submitting = self.begin("submit", self.job_file, "--request-id", f"job-{kill}", "--set",
                                        "training.steps=200", "--timeout", "5")
                time.sleep(moments.uniform(0.02, 0.15))
            else:
                time.sleep(moments.uniform(0.1, 0.9))
            for pid in self.agents() if kill % 2 == 1 else []:
                os.kill(pid, signal.SIGKILL)
            self.daemon.kill()
            self.daemon.wait()
            self.start_daemon()
            if submitting is None:
                continue
            code, output = submitting.end()
            self.assertIn(code, (0, 69), output)
            job = self.submit("--set", "training.steps=200", "--request-id", f"job-{kill}")
            watches[job] = self.watch(job)
            until(watches[job].events, "the watch has begun", self.told)
        self.assertEqual(sorted(watches), ["1", "2", "3"])
        for job, watch in watches.items():
            self.assertEqual(watch.end()[0], 0, watch.text() + self.told())
            self.assertEqual(self.show(job)["status"]["state"], "JOB_COMPLETED")
            self.assertEqual(self.show(job)["status"]["attempt"], 1)
            self.assertEqual(os.listdir(f"{self.run_folder(job)}/attempts"), ["1"])
            self.assertEqual([line["step"] for line in self.metrics(job) if "loss" in line], list(range(1, 201)))
        self.assertEqual([one["id"] for one in self.ask("list", "--all")["jobs"]], ["3", "2", "1"])
        later = {job: self.watch(job).end()[1] for job in watches}
        self.stop_daemon()
        stored = self.stored_events()
        self.assertEqual([sequence for sequence, _ in stored], list(range(1, len(stored) + 1)))
        for job, watch in watches.items():
            sequences = [sequence for sequence, of_job in stored if str(of_job) == job]
            self.assertGreaterEqual(len(sequences), 6)
            for events in (watch.end()[1], later[job]):
                self.assertEqual([int(event["sequence"]) for event in events], sequences, self.told())

    def test_readers_outlive_it(self):
        """Those who stay wait for a daemon that is away, whatever they ask of it."""
        self.start_daemon()
        self.ask("drain", "n1", "--reason", "later")
        job = self.submit("--set", "training.steps=40", "--set", "training.nonfinite_policy=skip", "--set",
                          "optimizer.learning_rate=1000", "--set", "optimizer.warmup_steps=0", "--set",
                          "optimizer.weight_decay=1000")  # of which rank 0 has something to write
        logs = self.begin("logs", job, "-f")
        watch = self.begin("watch", job)
        until(lambda: "waiting for its first attempt" in logs.text(), "logs -f waits", self.told)
        until(lambda: "submitted" in watch.text(), "watch watches", self.told)
        self.daemon.kill()
        self.daemon.wait()
        until(lambda: "is away; waiting for it" in watch.text(), "watch tells it", self.told)
        until(lambda: "is away; waiting for it" in logs.text(), "logs -f asks meanwhile, and tells it", self.told)
        self.start_daemon()
        self.ask("undrain", "n1")
        code, text = logs.end()
        left_out = re.findall(r"step (\d+) was left out", text)
        self.assertEqual((code, len(left_out)), (0, len(set(left_out))), text)
        self.assertEqual(left_out[-1:], ["40"], text)  # whatever the first one whose numbers end
        code, text = watch.end()
        self.assertEqual(code, 0, text)
        self.assertIn("is completed: all steps are done", text)

    def test_ranks_dial_their_keeper(self):
        """They run its plan, leftovers are refused, and they dial again when the agent was killed."""
        self.start_daemon()
        job = self.submit("--set", "training.steps=3000")
        self.reach(job, 20)
        [socket] = set(re.findall(r"unix:(/tmp/trireme-[\w-]+/link)", "".join(
            processes_of(self.run_folder(job)).values())))
        self.assertEqual(os.stat(socket).st_mode & 0o777, 0o600)
        for number in (0, 1):
            self.assertIn("the plan is from the keeper of this node", self.text("logs", job, "--rank", str(number)))

        def lines():
            """Ranks that are connected; /proc/net/unix: the state is the sixth field, 3 connected."""
            fields = [line.split() for line in read("/proc/net/unix").splitlines()[1:]]
            return sum(line[-1] == socket and line[5] == "03" for line in fields)
        until(lambda: lines() >= 2, "both ranks are connected", self.told)
        leftover = subprocess.run(
            [f"{self.bin}/trireme-worker", "--job", self.run_folder(job) + "/job.yaml", "--run-dir",
             f"{self.folder}/leftover", "--link", f"unix:{socket}", "--job-id", job, "--attempt", "9"], text=True,
            capture_output=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL, env=dict(
                os.environ, OMPI_MCA_ess_singleton_isolated="1", OMPI_MCA_orte_tmpdir_base=self.folder))
        self.assertEqual(leftover.returncode, 2, leftover.stdout + leftover.stderr)
        self.assertIn("this rank is a leftover and is to end", leftover.stdout + leftover.stderr)
        before = self.agents()
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        until(lambda: set(self.agents()) - set(before), "another agent", self.told)
        if self.show(job)["status"]["state"] == "JOB_RUNNING":
            until(lambda: lines() >= 2 or self.show(job)["status"]["state"] in ENDED, "both are connected again",
                  self.told)
        self.assertEqual(self.watch(job).end()[0], 0, self.told())
        self.assertEqual(self.show(job)["status"]["attempt"], 1)
        self.assertEqual([line["step"] for line in self.metrics(job) if "loss" in line], list(range(1, 3001)))
        self.assertFalse(os.path.exists(socket))

    def test_agent_killed(self):
        self.start_daemon()
        job = self.submit("--set", "training.steps=1500")
        self.reach(job, 20)
        ranks = [self.rank(job, number) for number in (0, 1)]
        before = self.agents()
        self.assertTrue(before, self.told())
        for pid in before:
            os.kill(pid, signal.SIGKILL)
        [after] = until(lambda: set(self.agents()) - set(before), "another agent", self.told)
        self.assertNotIn(after, before)
        if self.show(job)["status"]["state"] == "JOB_RUNNING":
            self.assertEqual([self.rank(job, number) for number in (0, 1)], ranks)
        self.assertEqual(self.watch(job).end()[0], 0, self.told())
        self.assertEqual(self.show(job)["status"]["attempt"], 1)
        self.assertEqual([line["step"] for line in self.metrics(job) if "loss" in line], list(range(1, 1501)))

    def test_agent_outlives_daemon(self):
        """The next daemon starts none beside it, and one when it dies; one that comes all the same asks Slurm nothing."""
        self.start_daemon()
        before = self.agents()
        self.daemon.kill()
        self.daemon.wait()
        self.start_daemon()
        os.mkdir(f"{self.folder}/slurm")
        self.write("slurm/sinfo", f"#!/bin/sh\ntouch {self.folder}/asked\nexit 1\n", 0o755)
        another = subprocess.run(
            [f"{self.bin}/trireme-agent", "--state-dir", f"{self.folder}/state/agent", "--launcher", "slurm"],
            env={**os.environ, "PATH": f"{self.folder}/slurm:{os.environ['PATH']}"}, text=True, capture_output=True,
            timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL)
        self.assertEqual(another.returncode, 0, another.stderr)
        self.assertIn("this one is not needed", another.stderr)
        self.assertFalse(os.path.exists(f"{self.folder}/asked"))
        until(lambda: "an agent is at work on this machine already" in read(f"{self.folder}/daemon.log")
              or "is not needed" in read(f"{self.folder}/state/agent.log"), "the daemon has looked for one", self.told)
        self.assertEqual(self.agents(), before)
        self.assertEqual(len(before), 1)
        lines = read(f"{self.folder}/state/agent.log").count("the coordinator has us")
        os.kill(before[0], signal.SIGKILL)
        until(lambda: set(self.agents()) - set(before), "another agent", self.told)
        until(lambda: read(f"{self.folder}/state/agent.log").count("the coordinator has us") > lines,
              "it has a line to the daemon", self.told)
        # Whichever look of the daemon had started one too many, that one would have said so by now.
        self.assertNotIn("is not needed", read(f"{self.folder}/state/agent.log"))

    def test_worker_killed(self):
        self.start_daemon()
        job = self.submit("--set", "training.steps=1500", "--set", "checkpoint.every_steps=50")
        self.reach(job, 120)
        victim = self.rank(job, 1)
        os.kill(victim, signal.SIGKILL)
        code, events = self.watch(job).end()
        self.assertEqual(code, 0, self.told())
        status = self.show(job)["status"]
        self.assertEqual((status["attempt"], status["checkpoint_step"]), (2, "1500"))
        [failed] = [event for event in events if event.get("state_changed", {}).get("to") == "JOB_RECOVERING"]
        failure = failed["state_changed"]["failure"]
        self.assertEqual((failed["attempt"], failure["rank"]), (1, 1), failed)
        self.assertRegex(failure["headline"], r"rank 1 died \(signal 9")
        self.assertTrue(failure["next_action"], failed)
        # Told before that if it was seen in time; the deaths that follow it never are.
        alarms = [event["stalled"]["text"] for event in events if "stalled" in event]
        self.assertLessEqual(len(alarms), 1, alarms)
        for alarm in alarms:
            self.assertRegex(alarm, r"^rank 1 on node n1 is dead at step \d+")
        self.assertRegex(self.text("logs", job), r"resumed from \S+ at step ([1-9]\d*[05]0)\n")
        self.assertEqual(self.text("logs", job, "--attempt", "1").count("resumed"), 0)

    def test_worker_killed_unseen(self):
        """A rank that dies while neither daemon nor agent is there, then the guard of the next attempt."""
        self.start_daemon()
        job = self.submit("--set", "training.steps=1500", "--set", "checkpoint.every_steps=50")
        self.reach(job, 60)
        watch = self.watch(job)
        until(watch.events, "the watch has begun", self.told)
        victim = self.rank(job, 1)
        for pid in self.agents():
            os.kill(pid, signal.SIGKILL)
        self.daemon.kill()
        self.daemon.wait()
        os.kill(victim, signal.SIGKILL)
        self.start_daemon()
        until(lambda: self.show(job)["status"]["attempt"] == 2, "the next attempt", self.told)
        self.reach(job, max(self.losses(job)) + 20)
        guard = json.loads(read(f"{self.run_folder(job)}/attempts/2/guard.json"))
        os.kill(guard["pid"], signal.SIGKILL)
        self.assertEqual(watch.end()[0], 0, self.told())
        failures = [event["state_changed"]["failure"] for event in watch.events()
                    if event.get("state_changed", {}).get("to") == "JOB_RECOVERING"]
        self.assertEqual([failure["rank"] for failure in failures], [1, -1], failures)
        self.assertIn("rank 1 died (signal 9", failures[0]["headline"])
        self.assertIn("the guard of the ranks vanished", failures[1]["headline"])
        self.assertEqual(self.show(job)["status"]["attempt"], 3)

    def test_fails_for_good(self):
        self.start_daemon()
        job = self.submit("--set", "training.steps=1000000", "--set", "resources.max_failures=1")
        self.reach(job, 20)
        os.kill(self.rank(job, 0), signal.SIGKILL)
        self.assertEqual(self.watch(job).end()[0], 4, self.told())
        shown = self.show(job)
        self.assertEqual((shown["status"]["state"], shown["status"]["failure"]["rank"]), ("JOB_FAILED", 0))
        self.assertRegex(self.text("explain", job), r"rank 0 died \(signal 9[\s\S]*\nNext: ")
        self.ask("resume", job, code=2)
        # What does not stop when it is cancelled is killed when its grace is over.
        job = self.submit("--set", "training.steps=1000000", "--set", "runtime.deadline_seconds=100")
        self.reach(job, 20)
        watch = self.watch(job)
        os.kill(self.rank(job, 1), signal.SIGSTOP)
        self.ask("cancel", job, "--grace", "1")
        self.assertEqual(watch.end()[0], 5, self.told())

    def test_retries_a_full_jobs_folder(self):
        """For longer than five failures in a row would take."""
        jobs = f"{self.folder}/jobs"
        os.mkdir(jobs)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", jobs], capture_output=True, text=True,
                                 check=False)
        if mounted.returncode != 0:
            self.skipTest("not here: root to mount a small file system: " + mounted.stderr.strip())
        self.addCleanup(subprocess.run, ["umount", "-l", jobs], check=False)
        self.start_daemon("--jobs-dir", jobs)
        subprocess.run(["dd", "if=/dev/zero", f"of={jobs}/filler", "bs=64k"], capture_output=True, check=False)
        queue = [self.submit() for _ in range(2)]
        until(lambda: "its plan waits: " in self.show(queue[0])["status"]["reason"], "the plan waits", self.told)
        time.sleep(20)
        status = self.show(queue[0])["status"]
        self.assertEqual((status["state"], status["attempt"], status["failures"]), ("JOB_PLANNING", 1, 0), self.told())
        self.assertRegex(status["reason"], f"{jobs}/{queue[0]}/.*is full")
        os.remove(f"{jobs}/filler")
        for job in queue:
            self.assertEqual(self.watch(job).end()[0], 0, self.told())
            self.assertEqual(self.show(job)["status"]["attempt"], 1)

    def test_worker_stopped(self):
        self.start_daemon()
        job = self.submit("--set", "training.steps=1000000", "--set", "runtime.deadline_seconds=100")
        self.reach(job, 20)
        watch = self.watch(job)
        until(lambda: self.show(job)["status"]["checkpoint_step"] != "0", "a checkpoint is told", self.told)
        victim = self.rank(job, 1)
        os.kill(victim, signal.SIGSTOP)
        [told] = until(lambda: watch.of_kind("stalled"), "a stopped rank is told", self.told, 10)
        self.assertEqual((told["stalled"]["rank"], told["stalled"]["node"], told["stalled"]["over"]),
                         (1, "n1", False))
        self.assertRegex(told["stalled"]["text"], r"rank 1 on node n1 is stopped \(SIGSTOP.*\) at step \d+, [A-Z]")
        self.assertIn("rank 1 on node n1 is stopped", self.text("explain", job))
        # Checkpoints are told while it runs; a restart tells nothing again and forgets nothing.
        self.assertRegex(self.text("explain", job), "goes on from the checkpoint of step [1-9]")
        for signal_of_victim in (0, signal.SIGCONT):
            self.daemon.kill()
            self.daemon.wait()
            os.kill(victim, signal_of_victim)
            self.start_daemon()
        [_, over] = until(lambda: watch.of_kind("stalled")[1:] and watch.of_kind("stalled"), "it is over", self.told)
        self.assertEqual((over["stalled"]["rank"], over["stalled"]["over"]), (1, True))
        self.assertIn("goes on", over["stalled"]["text"])
        self.assertNotIn("It is stalled", self.text("explain", job))
        self.ask("cancel", job)
        self.assertEqual(watch.end()[0], 5, self.told())
        self.assertEqual(self.show(job)["status"]["attempt"], 1)

    def start_guarded_daemon(self):
        """One that listens on TCP; {person: what the command line needs to be them}."""
        people = {"ada": "submit", "bob": "submit", "root": "admin", "node": "agent", "eve": None}
        tokens = ""
        for person, role in people.items():
            token = f"token-of-{person}-0123456789"
            self.write(f"{person}.token", token + "\n", 0o600)
            tokens += f"{role} {person} {token}\n" if role else ""
        self.write("tokens", tokens, 0o600)
        self.start_daemon("--listen", "127.0.0.1:0", "--token-file", f"{self.folder}/tokens", "--allow-folder",
                          f"{self.folder}/data")
        port = until(lambda: self.ready_port(), "the port in the log", self.told)
        at = ["--coordinator", f"127.0.0.1:{port}"]
        here = {person: at + ["--token-file", f"{self.folder}/{person}.token"] for person in people}
        here["nobody"] = at
        return here

    def test_refuses_strangers(self):
        here = self.start_guarded_daemon()
        self.ask("drain", "n1", "--reason", "nothing runs here")
        for stranger in ("nobody", "eve"):
            for command in (["list"], ["nodes"], ["submit", self.job_file], ["watch", "1"]):
                self.ask(*command, *here[stranger], code=77)
        self.ask("submit", self.job_file, *here["node"], code=77)
        of_ada = self.ask("submit", self.job_file, *here["ada"])["job"]
        of_bob = self.ask("submit", self.job_file, *here["bob"], "--set", "name=his")["job"]
        self.assertEqual((of_ada["owner"], of_bob["owner"]), ("ada", "bob"))
        for command in ("show", "explain", "watch", "logs", "checkpoints", "cancel", "pause", "resume"):
            self.ask(command, of_ada["id"], *here["bob"], code=77)
        self.ask("undrain", "n1", *here["bob"], code=77)
        self.ask("list", "--owner", "ada", *here["bob"], code=77)
        self.ask("show", "tiny", *here["bob"], code=2)  # a name of hers is no name of his
        for person, ids in (("ada", [of_ada["id"]]), ("bob", [of_bob["id"]]), ("root", [of_bob["id"], of_ada["id"]])):
            self.assertEqual([job["id"] for job in self.ask("list", "--all", *here[person])["jobs"]], ids)
        self.assertEqual(self.ask("show", of_ada["id"], *here["ada"])["status"]["state"], "JOB_PENDING")
        # The same request id of another person is another submission.
        ids = {self.ask("submit", self.job_file, "--request-id", "same", *here[person])["job"]["id"]
               for person in ("ada", "bob")}
        self.assertEqual(len(ids), 2)
        self.refuses_files_and_names(here["ada"])
        for job in [of_ada["id"], of_bob["id"], *ids]:
            self.ask("cancel", job, *here["root"])
        self.assertEqual(len(self.ask("list", "--all")["jobs"]), 4)

    def test_reads_tokens_again(self):
        here = self.start_guarded_daemon()
        self.ask("list", *here["ada"])
        tokens = read(f"{self.folder}/tokens")

        def give(text, said):
            self.write("tokens", text, 0o600)
            before = read(f"{self.folder}/daemon.log").count(said)
            self.daemon.send_signal(signal.SIGHUP)
            until(lambda: read(f"{self.folder}/daemon.log").count(said) > before, said, self.told)

        give(tokens.replace("submit ada", "submit eva"), "the token file is read again")
        self.assertEqual(self.ask("submit", self.job_file, *here["ada"])["job"]["owner"], "eva")
        give("submit\n", "the tokens are those of before")
        self.ask("list", *here["ada"])
        give(tokens.replace("token-of-ada", "another-token"), "the token file is read again")
        self.ask("list", *here["ada"], code=77)
        self.ask("list", *here["bob"])

    def refuses_files_and_names(self, as_ada):
        text = read(f"{self.folder}/data/text.txt")
        self.write("outside.txt", text)
        os.mkdir(f"{self.folder}/data-of-others")
        self.write("data-of-others/text.txt", text)
        os.symlink(f"{self.folder}/outside.txt", f"{self.folder}/data/link.txt")
        os.symlink(self.folder, f"{self.folder}/data/up")
        for path in ("outside.txt", "data/../outside.txt", "data/link.txt", "data/up/outside.txt",
                     "data-of-others/text.txt"):
            error = self.ask("submit", self.job_file, *as_ada, "--set",
                             f"data.text_files=[{self.folder}/{path}]", code=2)
            self.assertIn("outside the folders that this daemon lets jobs use", error)
        for path in ("", "data/../elsewhere", "data/up/elsewhere"):
            error = self.ask("submit", self.job_file, *as_ada, "--set",
                             f"checkpoint.directory={self.folder}/{path}", code=2)
            self.assertIn("checkpoint.directory", error)
        for name in ("a;b", "$(reboot)", "a b", "a/b", "..", "`x`", "a\nb"):
            error = self.ask("submit", self.job_file, *as_ada, "--set", f"name={name!r}", code=2)
            self.assertIn("name", error)

    def test_refuses_a_second_daemon(self):
        self.start_daemon()
        cluster = self.ask("nodes")
        # A look into the store by the daemon itself would drop SQLite's lock of it.
        for option in ("data.text_files=[{}/state/jobs.db]", "checkpoint.directory={}/state/jobs/7/checkpoints"):
            refused = self.ask("submit", self.job_file, "--set", "data.tokenizer=byte", "--set",
                               option.format(self.folder), code=2)
            self.assertIn("the daemon's own", refused)
        other = [f"--state-dir={self.folder}/other", f"--socket={self.folder}/other.sock"]
        for arguments, word in (
                ([f"--state-dir={self.folder}/state", other[1]], "another"),
                ([other[0], f"--socket={self.folder}/s.sock"], "listens at"),
                ([other[0], f"--socket=unix:{self.folder}/s.sock"], "listens at"),
                ([*other, "--colour"], "--colour"),
                ([*other, "--max-streams", "0"], "--max-streams"),
                ([*other, "--no-socket"], "--no-socket"),
                ([other[0], "--socket", f"{self.folder}/{'s' * 107}"], "107"),
                ([*other, "--listen", "127.0.0.1:0"], "--token-file"),
                ([*other, "--listen", "127.0.0.1:0", "--token-file", f"{self.folder}/none"], "--allow-folder"),
                ([*other, "--socket-group", "root"], "--allow-folder")):
            self.assertIn(word, self.fails_to_start(*arguments))
        for mode, listen, word in ((0o644, "127.0.0.1:0", "chmod 600"), (0o640, "127.0.0.1:0", "chmod 600"),
                                   (0o600, "0.0.0.0:0", "certificate")):
            self.write("tokens", "admin root 0123456789abcdef\n", mode)
            self.assertIn(word, self.fails_to_start(*other, "--allow-folder", "/", "--listen", listen, "--token-file",
                                                    f"{self.folder}/tokens"))
        for line in ("king root 0123456789abcdef", "admin root short", "admin root"):
            self.write("tokens", f"# who may come\n{line}\n", 0o600)
            self.assertIn("tokens:2: expected 'ROLE USER TOKEN'",
                          self.fails_to_start(*other, "--allow-folder", "/", "--listen", "127.0.0.1:0", "--token-file",
                                              f"{self.folder}/tokens"))
        after = self.ask("nodes")
        self.assertEqual(after["started_unix_ns"], cluster["started_unix_ns"])


if __name__ == "__main__":
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    skips.main()
