#!/usr/bin/env python3
"""Daemons with another store than the one whose ranks run, or with an older state of it: nothing that runs is ended
before somebody says so, nothing runs twice, and no job gets into the folder of another.

Usage: store_test.py BIN_FOLDER [Stores.test_NAME ...]
"""
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from daemon_fixture import LIMIT_S, DaemonCase, processes_of, read, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402

LONG = ("--set", "training.steps=10000000", "--set", "checkpoint.every_steps=50")


class Stores(DaemonCase):
    def node(self):
        return self.ask("nodes")["nodes"][0]

    def ranks(self, job):
        return [self.rank(job, number) for number in (0, 1)]

    def move_store_away(self, to):
        self.kill_daemon()
        os.makedirs(to)
        for path in glob.glob(f"{self.folder}/state/jobs.db*"):
            shutil.move(path, to)

    def kill_daemon(self):
        self.daemon.kill()
        self.daemon.wait()

    def begin_second_attempt_after_backup(self, job):
        self.stop_daemon()
        shutil.copy(f"{self.folder}/state/jobs.db", f"{self.folder}/backup.db")
        self.start_daemon()
        self.ask("pause", job)
        self.reach_state(job, "JOB_PAUSED")
        self.ask("resume", job)

    def put_back(self):
        self.kill_daemon()
        for path in glob.glob(f"{self.folder}/state/jobs.db-*"):
            os.remove(path)
        shutil.copy(f"{self.folder}/backup.db", f"{self.folder}/state/jobs.db")
        self.start_daemon()

    def refused(self):
        return until(lambda: self.node().get("refuses_for"), "the agent refuses", self.told)

    def gets_on(self, job):
        """Its ranks make steps."""
        at = max(self.losses(job))
        until(lambda: max(self.losses(job)) > at + 20, "steps are made", self.told)

    def test_empty_store_ends_nothing(self):
        """The store is moved away under a job: its ranks run on until the node is adopted, and the new store's first
        job is not in its folder."""
        self.start_daemon()
        old = self.submit(*LONG)
        self.reach(old, 20)
        ranks = self.ranks(old)
        self.move_store_away(f"{self.folder}/before")
        self.start_daemon()
        self.refused()
        held = until(lambda: self.node()["held"], "what it holds is shown", self.told)
        self.assertEqual([(one["job_id"], one["attempt"]) for one in held], [(old, 1)])
        self.assertIn("trireme nodes adopt n1", " ".join(self.text("nodes").split()))
        new = self.submit("--set", "training.steps=20")
        self.assertEqual(new, str(int(old) + 1), "the number of the old one's folder is not used again")
        self.gets_on(old)
        self.assertEqual(self.ranks(old), ranks)
        self.assertEqual(self.show(new)["status"]["state"], "JOB_PENDING")
        self.assertIn("adopt n1", self.show(new)["waits_for"])
        # An agent that is started anew still knows; one that is away for a moment is adopted when it comes.
        for pid in self.agents():
            os.kill(pid, 9)
        self.assertEqual(self.ranks(old), ranks)
        adopted = self.ask("nodes", "adopt", "n1")
        self.assertEqual([one["job_id"] for one in adopted["ended"]], [old])
        self.assertEqual(adopted["kept"], [])
        self.assertEqual(self.watch(new).end()[0], 0, self.told())
        self.assertEqual(sorted(self.losses(new)), list(range(1, 21)))
        self.assertEqual(self.show(new)["status"]["attempt"], 1)
        self.ask("nodes", "adopt", "n1", code=2)

    def test_nothing_runs_so_nothing_is_asked(self):
        self.start_daemon()
        old = self.submit()
        self.assertEqual(self.watch(old).end()[0], 0, self.told())
        before = {path: read(path) for path in glob.glob(self.run_folder(old) + "/**/*.json*", recursive=True)}
        self.move_store_away(f"{self.folder}/before")
        self.start_daemon()
        new = self.submit("--set", "training.steps=20")
        self.assertEqual(self.watch(new).end()[0], 0, self.told())
        self.assertNotEqual(new, old)
        self.assertEqual(sorted(self.losses(new)), list(range(1, 21)))
        self.assertEqual({path: read(path) for path in before}, before)

    def test_run_folder_of_another_job(self):
        """One that somebody puts where the next job's is to be: the number is passed over. Where it takes the place of a
        job's own, the job is refused by name, and nothing of it is shown or touched."""
        self.start_daemon()
        first = self.submit()
        self.assertEqual(self.watch(first).end()[0], 0, self.told())
        foreign = self.run_folder(int(first) + 1)
        shutil.copytree(self.run_folder(first), foreign, ignore=shutil.ignore_patterns("control"))
        # Of a program of before, which left no name.
        shutil.copytree(foreign, self.run_folder(int(first) + 2))
        os.remove(self.run_folder(int(first) + 2) + "/run.json")
        self.ask("drain", "n1", "--reason", "nothing is planned yet")
        second = self.submit()
        self.assertEqual(int(second), int(first) + 3)
        self.assertEqual(os.listdir(self.run_folder(second)), [])
        os.rmdir(self.run_folder(second))
        shutil.copytree(foreign, self.run_folder(second))
        before = sorted(glob.glob(self.run_folder(second) + "/**", recursive=True))
        self.ask("undrain", "n1")
        self.assertEqual(self.watch(second).end()[0], 4, self.told())
        self.assertEqual(self.show(second)["status"]["exit_code"], 2)
        self.assertIn(f"is that of job {first}", self.show(second)["status"]["reason"])
        for words in (("files", second), ("files", second, "metrics.jsonl", "-o", "-"), ("logs", second),
                      ("checkpoints", second), ("export", second)):
            asked = self.run_command(*words)
            self.assertNotEqual(asked.returncode, 0, f"{words}\n{asked.stdout}")
            self.assertEqual(asked.stdout, "", words)
            self.assertIn("is another job's", asked.stderr, words)
        self.assertEqual(sorted(glob.glob(self.run_folder(second) + "/**", recursive=True)), before)

    def test_folders_with_large_numbers(self):
        """What somebody puts beside the run folders, by a date as its name, or worse: the next number is the store's."""
        self.start_daemon()
        self.ask("drain", "n1", "--reason", "nothing is planned")
        first = self.submit()
        self.stop_daemon()
        for name in ("20261126", "9223372036854775807", "9999999999999999999"):
            os.mkdir(self.run_folder(name))
        self.start_daemon()
        self.assertEqual(int(self.submit()), int(first) + 1)

    def adopted_unheard(self, agent):
        """The answer, while the agent stands still; none where it has yet to say what it holds: it goes on then."""
        os.kill(agent, signal.SIGSTOP)
        asked = self.run_command("nodes", "adopt", "n1", "--json")
        if asked.returncode == 0:
            return json.loads(asked.stdout)
        self.assertIn("ask again in a second", asked.stderr)
        os.kill(agent, signal.SIGCONT)
        return None

    def test_adoption_after_a_restart(self):
        """Daemon and agent are killed when the one has taken an adoption, and before the other, which is held up, has heard
        of it: what was said counts, and nobody has to say it again."""
        self.start_daemon()
        job = self.submit("--set", "training.steps=30000", "--set", "checkpoint.every_steps=1000")
        self.reach(job, 20)
        self.begin_second_attempt_after_backup(job)
        self.reach_state(job, "JOB_RUNNING")
        self.gets_on(job)
        ranks = self.ranks(job)
        self.put_back()
        self.refused()
        [agent] = self.agents()
        try:
            adopted = until(lambda: self.adopted_unheard(agent), "the agent has said what it holds", self.told)
            self.assertEqual([(one["job_id"], one["attempt"]) for one in adopted["kept"]], [(job, 2)])
            self.kill_daemon()
        finally:
            os.kill(agent, signal.SIGKILL)
        self.start_daemon()
        until(lambda: not self.node().get("refuses_for") and self.node()["state"] == "NODE_READY", "the agent serves",
              self.told)
        self.gets_on(job)
        self.assertEqual(self.ranks(job), ranks)
        self.assertEqual(self.show(job)["status"]["attempt"], 2)
        self.ask("cancel", job)
        self.reach_state(job, "JOB_CANCELLED")

    def test_backup_put_back_under_a_job(self):
        """The store is put back to a state before the attempt that runs: it is neither ended nor started again, and goes
        on as the job's own when the node is adopted. Who follows its log does so to its end."""
        self.start_daemon()
        job = self.submit("--set", "training.steps=30000", "--set", "checkpoint.every_steps=1000")
        self.reach(job, 20)
        self.begin_second_attempt_after_backup(job)
        self.reach_state(job, "JOB_RUNNING")
        self.assertEqual(self.show(job)["status"]["attempt"], 2)
        self.gets_on(job)
        ranks = self.ranks(job)
        logs = self.begin("logs", job, "-f")
        until(lambda: "resumed from" in logs.text(), "logs -f has begun", self.told)
        self.put_back()
        self.refused()
        self.assertEqual(self.show(job)["status"]["attempt"], 1)
        self.gets_on(job)
        self.assertEqual(self.ranks(job), ranks)
        adopted = self.ask("nodes", "adopt", "n1")
        self.assertEqual([(one["job_id"], one["attempt"]) for one in adopted["kept"]], [(job, 2)])
        self.assertEqual(adopted["ended"], [])
        self.assertEqual(self.ranks(job), ranks)
        # So many steps take a machine with other work some minutes.
        self.assertEqual(self.watch(job).end(4 * LIMIT_S)[0], 0, self.told())
        self.assertEqual(self.show(job)["status"]["attempt"], 2)
        self.assertEqual(sorted(os.listdir(self.run_folder(job) + "/attempts")), ["1", "2"])
        self.assertEqual(sorted(self.losses(job)), list(range(1, 30001)))
        code, text = logs.end()
        self.assertEqual(code, 0, text)
        self.assertIn(read(f"{self.run_folder(job)}/attempts/2/logs/rank-0.log"), text)

    def test_backup_put_back_after_the_end(self):
        """An attempt that the store has never heard of has done the job: it is not run again."""
        self.start_daemon()
        job = self.submit("--set", "training.steps=12000", "--set", "checkpoint.every_steps=1000")
        self.reach(job, 20)
        self.begin_second_attempt_after_backup(job)
        self.assertEqual(self.watch(job).end()[0], 0, self.told())
        losses = self.losses(job)
        self.put_back()
        self.assertEqual(self.watch(job).end()[0], 0, self.told())
        self.assertEqual(self.losses(job), losses)
        # By the verdict of attempt 2, which is the job's though this store has never heard of it.
        self.assertEqual(self.show(job)["status"]["attempt"], 2)
        self.assertIn("done by attempt 2", self.show(job)["status"]["reason"])
        self.assertEqual(sorted(os.listdir(self.run_folder(job) + "/attempts")), ["1", "2"])


class SharedJobs(DaemonCase):
    """Two daemons, each with a store of its own, that give jobs run folders in one folder."""

    def run_folder(self, job):
        return f"{self.folder}/shared/{job}"

    def begin_other(self):
        self.write("other.toml", f'state-dir = "{self.folder}/other"\nsocket = "{self.folder}/o.sock"\nnode = "n2"\n'
                                 f'jobs-dir = "{self.folder}/shared"\n')
        log = open(f"{self.folder}/other.log", "a", encoding="utf-8")
        self.addCleanup(log.close)
        self.other = subprocess.Popen([f"{self.bin}/triremed", "--config", f"{self.folder}/other.toml"], stdout=log,
                                      stderr=log, stdin=subprocess.DEVNULL)
        until(lambda: '"n2"' in self.run_command("nodes", "--json", "--coordinator", self.there).stdout,
              "the other daemon and its node answer", lambda: read(f"{self.folder}/other.log"))

    def end_other(self):
        self.other.terminate()
        self.assertEqual(self.other.wait(LIMIT_S), 0)
        for pid, line in processes_of(f"{self.folder}/other").items():
            if "trireme-agent" in line:
                os.kill(pid, 15)

    def test_two_daemons_share_a_folder(self):
        self.there = f"unix:{self.folder}/o.sock"
        self.start_daemon("--jobs-dir", f"{self.folder}/shared")
        self.begin_other()
        self.addCleanup(self.other.kill)
        few = ("--set", "training.steps=5", "--set", "generation.max_new_tokens=1")
        begun = [(where, self.begin("submit", self.job_file, *few, "--json", "--coordinator", where))
                 for _ in range(4) for where in (f"unix:{self.folder}/s.sock", self.there)]
        jobs = []
        for where, command in begun:
            code, text = command.end()
            self.assertEqual(code, 0, text)
            jobs.append((where, json.loads(text)["job"]["id"], json.loads(text)["job"]["run_folder"]))
        self.assertEqual(sorted(int(job) for _, job, _ in jobs), list(range(1, 9)))
        stores = {}
        for where, job, folder in jobs:
            self.assertEqual(folder, self.run_folder(job))
            watched = self.begin("watch", job, "--coordinator", where)
            self.assertEqual(watched.end()[0], 0, self.told() + read(f"{self.folder}/other.log"))
            self.assertEqual(sorted(self.losses(job)), [1, 2, 3, 4, 5])
            said = json.loads(read(folder + "/run.json"))
            self.assertEqual(str(said["job"]), job)
            stores.setdefault(where, set()).add(said["store"])
        self.assertEqual([len(names) for names in stores.values()], [1, 1])
        self.assertNotEqual(*stores.values())
        self.assertFalse(os.path.exists(f"{self.folder}/state/jobs"))
        # Its jobs may name nothing there, nor where jobs were before.
        self.assertIn("the daemon's own", self.ask("submit", self.job_file, "--set",
                                                   f"data.text_files=[{self.folder}/shared/1/job.yaml]", code=2))
        self.stop_daemon()
        self.start_daemon("--jobs-dir", f"{self.folder}/moved")
        self.assertIn("the daemon's own", self.ask("submit", self.job_file, "--set",
                                                   f"data.text_files=[{self.folder}/shared/1/job.yaml]", code=2))
        ours = next(job for where, job, _ in jobs if where != self.there)
        self.assertEqual(self.show(ours)["run_folder"], self.run_folder(ours))
        self.assertIn("metrics.jsonl", self.text("files", ours))
        self.end_other()


class Names(DaemonCase):
    """A second agent by the name of a node, on a machine that looks the same: only its state folder is another."""

    def begin_agent(self, name):
        log = open(f"{self.folder}/{name}.log", "a", encoding="utf-8")
        self.addCleanup(log.close)
        agent = subprocess.Popen(
            [f"{self.bin}/trireme-agent", "--coordinator", f"unix:{self.folder}/s.sock", "--node", "n1", "--state-dir",
             f"{self.folder}/{name}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        return agent

    def said(self, name, what):
        return until(lambda: what in read(f"{self.folder}/{name}.log"), f"{name}: {what}",
                     lambda: read(f"{self.folder}/{name}.log") + self.told())

    def test_name_is_held_by_a_lease(self):
        agent = self.begin_agent("a")
        self.start_daemon("--no-agent")
        self.said("a", "the coordinator has us")
        other = self.begin_agent("b")
        self.said("b", "n1 is kept by another agent")
        # Also when its line is cut, and its agent is started anew; and while the daemon is.
        agent.kill()
        agent.wait()
        time.sleep(2)
        self.daemon.kill()
        self.daemon.wait()
        self.start_daemon_without_nodes()
        time.sleep(3)
        self.assertNotIn("the coordinator has us", read(f"{self.folder}/b.log"))
        agent = self.begin_agent("a")
        until(lambda: read(f"{self.folder}/a.log").count("the coordinator has us") == 2, "it is known again", self.told)
        # Silent for a lease: the name is free.
        agent.kill()
        agent.wait()
        self.said("b", "the coordinator has us")
        agent = self.begin_agent("a")
        until(lambda: "n1 is kept by another agent" in read(f"{self.folder}/a.log"), "now it is the second one", self.told)
        for one in (agent, other):
            one.terminate()
            self.assertEqual(one.wait(LIMIT_S), 0)

    def start_daemon_without_nodes(self):
        with open(f"{self.folder}/daemon.log", "a", encoding="utf-8") as log:
            self.daemon = subprocess.Popen(
                [f"{self.bin}/triremed", "--state-dir", f"{self.folder}/state", "--socket", f"{self.folder}/s.sock",
                 "--node", "n1", "--no-agent"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until(lambda: self.run_command("nodes", "--json").returncode == 0, "the daemon answers", self.told)


if __name__ == "__main__":
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    skips.main()
