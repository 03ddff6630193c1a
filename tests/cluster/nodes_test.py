#!/usr/bin/env python3
"""Several nodes without Slurm: a daemon here and an agent on each of three hosts (hosts.py), whose jobs mpirun starts over
a list of hosts. They train as on one machine, two replicas to the bit; a node that is switched off, and one whose network is cut, cost
a job the steps since its last checkpoint and no more. Every wait has a deadline.

Usage: nodes_test.py BIN_FOLDER [Nodes.test_NAME ...]
"""
import glob
import os
import shutil
import subprocess
import sys
import time

import hosts

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../coordinator/daemon"))
import daemon_fixture  # noqa: E402
from daemon_fixture import read, until  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

HOSTS = 3
ADDRESS = "10.78.0.254"
PORT = 7443
TOKEN = "0123456789abcdef0123456789abcdef"
STEPS = 1500
AWAY = float(os.environ.get("TRIREME_TEST_AWAY_SECONDS", "60"))  # longer than what ends ranks that hear of nobody
JOB = (daemon_fixture.JOB.replace("steps: 30", f"steps: {STEPS}").replace("global_batch_size: 4", "global_batch_size: 12")
       .replace("learning_rate: 0.01", "learning_rate: 0.001").replace("every_steps: 10", "every_steps: 100"))


class Nodes(daemon_fixture.DaemonCase):
    built = ""
    parent = "/var/tmp"  # what the hosts share

    def setUp(self):
        super().setUp()
        for program in ("trireme", "triremed", "trireme-agent", "trireme-worker"):  # the hosts have a /tmp of their own
            shutil.copy(f"{self.built}/{program}", self.folder)
        self.bin = self.folder
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        self.hosts = hosts.Hosts(HOSTS, shared_memory="512m", own_tmp=True)
        self.addCleanup(self.hosts.close)
        self.write("job.yaml", JOB)
        self.write("tokens", f"agent hosts {TOKEN}\n", 0o600)
        self.write("token", TOKEN + "\n", 0o600)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-subj", "/CN=trireme", "-addext", f"subjectAltName=IP:{ADDRESS}", "-days", "2", "-keyout",
                        f"{self.folder}/key.pem", "-out", f"{self.folder}/cert.pem"], check=True, capture_output=True)
        for number in range(1, HOSTS + 1):
            self.start_agent(number)
        self.start_daemon("--no-agent", "--listen", f"{ADDRESS}:{PORT}", "--token-file", f"{self.folder}/tokens",
                          "--certificate", f"{self.folder}/cert.pem", "--key", f"{self.folder}/key.pem",
                          "--allow-folder", self.folder)
        until(lambda: len(self.ask("nodes")["nodes"]) == HOSTS, "all nodes are there", self.told)

    def start_agent(self, number):
        command = [*self.hosts.enter_command(number), f"{self.bin}/trireme-agent", "--coordinator", f"{ADDRESS}:{PORT}",
                   "--token-file", f"{self.folder}/token", "--ca-file", f"{self.folder}/cert.pem", "--state-dir",
                   f"{self.folder}/state/agent{number}"]
        settings = {f"OMPI_MCA_{key}": value for key, value in self.hosts.settings().items()}
        with open(f"{self.folder}/agent{number}.log", "a", encoding="utf-8") as log:
            agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     env={**os.environ, **settings})
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)

    def told(self):
        launches = "".join(f"--- {path}\n{read(path)[-2000:]}" for path in
                           sorted(glob.glob(f"{self.folder}/state/jobs/*/attempts/*/logs/*.log")))
        return super().told() + launches + "".join(f"--- agent {number}\n{read(f'{self.folder}/agent{number}.log')[-3000:]}"
                                        for number in range(1, HOSTS + 1))

    def node(self, number):
        return next(node for node in self.ask("nodes")["nodes"] if node["name"] == f"host{number}")

    def nodes_of(self, job):
        return [place["node"] for place in self.show(job)["allocation"]]

    def quiet_losses(self, ranks):
        """Of the same job on this machine alone, undisturbed."""
        run = f"{self.folder}/quiet"
        done = subprocess.run([f"{self.bin}/trireme", "run", self.job_file, "-n", str(ranks), "--run-dir", run],
                              capture_output=True, text=True, timeout=300, check=False, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return self.losses_in(run)

    def goes_on_as_if_nothing_had_been(self, job, attempts):
        until(lambda: self.show(job)["status"]["state"] in daemon_fixture.ENDED, "the end", self.told, 300)
        shown = self.show(job)
        self.assertEqual((shown["status"]["state"], shown["status"]["attempt"]), ("JOB_COMPLETED", attempts), self.told())
        self.assertEqual(self.losses(job), self.quiet_losses(4))

    def test_trains_on_all_of_them(self):
        self.write("job.yaml", JOB.replace(f"steps: {STEPS}", "steps: 200"))
        job = self.submit("--set", "resources.ranks=6")
        self.reach(job, 5)
        self.assertEqual(self.nodes_of(job), ["host1", "host2", "host3"])
        self.assertEqual(self.watch(job).end()[0], 0, self.told())
        quiet = self.quiet_losses(6)
        losses = self.losses(job)
        self.assertEqual(list(losses), list(quiet))
        # Three replicas are summed in another order on three hosts than on one: f32 rounding of a sum, 1e-7 of each
        # gradient, which 200 small steps let grow.
        for step, loss in quiet.items():
            self.assertLess(abs(losses[step] - loss), 1e-4 * loss, step)

    def test_goes_on_without_a_node_that_is_gone(self):
        job = self.submit("--set", "resources.ranks=4")
        self.reach(job, 250)
        self.assertEqual(self.nodes_of(job), ["host1", "host2"])
        self.assertIn("not gone", self.ask("drain", "host2", "--reason", "burnt", "--gone", code=2))
        self.hosts.switch_off(2)
        until(lambda: self.node(2)["state"] == "NODE_LOST", "the node is lost", self.told)
        # Its ranks may run, for all that is known: nothing is started elsewhere until somebody says so.
        self.assertEqual(self.show(job)["status"]["attempt"], 1)
        self.ask("drain", "host2", "--reason", "burnt", "--gone")
        self.assertIn("gone", self.text("nodes"))
        self.goes_on_as_if_nothing_had_been(job, 2)
        placed = [event["placed"] for event in self.watch(job).end()[1] if "placed" in event]
        self.assertEqual([place["node"] for place in placed[-1]["allocation"]], ["host1", "host3"], placed)

    def test_goes_on_when_a_cut_cable_is_mended(self):
        self.ask("drain", "host3", "--reason", "not for this job")
        job = self.submit("--set", "resources.ranks=4")
        self.reach(job, 250)
        self.hosts.cut(2)
        until(lambda: self.node(2)["state"] == "NODE_LOST", "the node is lost", self.told)
        self.assertEqual(self.show(job)["status"]["attempt"], 1)
        self.hosts.mend(2)
        self.goes_on_as_if_nothing_had_been(job, 2)

    def isolate(self, number, folder):
        """From the network, and from the run folders: new looks find nothing there."""
        self.hosts.cut(number)
        if folder:
            hosts.administer(*self.hosts.enter_command(number), "mount", "-t", "tmpfs", "away", f"{self.folder}/state/jobs")

    def ranks_on(self, number):
        """Processes of ranks on a host, which sees its own alone (but host 1)."""
        command = [*self.hosts.enter_command(number), "pgrep", "-c", "-r", "R,S,D,T", "-f", "^[^ ]*trireme-worker"]
        found = subprocess.run(command, check=False, capture_output=True, text=True)
        return int(found.stdout or 0)

    def test_goes_on_elsewhere_without_a_human(self):
        job = self.submit("--set", "resources.ranks=4")
        self.reach(job, 250)
        self.assertEqual(self.nodes_of(job), ["host1", "host2"])
        self.isolate(2, folder=True)
        until(lambda: self.node(2)["state"] == "NODE_LOST", "the node is lost", self.told)
        self.assertIn("goes on elsewhere", self.text("explain", job))
        until(lambda: self.ranks_on(2) == 0, "the ranks that are cut off are gone", self.told, 60)
        until(lambda: self.show(job)["status"]["attempt"] == 2, "the job goes on elsewhere", self.told, 90)
        self.assertEqual(self.nodes_of(job), ["host1", "host3"])
        self.goes_on_as_if_nothing_had_been(job, 2)

    def test_a_daemon_away_ends_nothing(self):
        job = self.submit("--set", "resources.ranks=4", "--set", "training.steps=1000000")
        self.reach(job, 50)
        self.stop_daemon()
        before = os.path.getsize(f"{self.folder}/state/jobs/{job}/metrics.jsonl")
        time.sleep(AWAY)
        self.assertEqual(glob.glob(f"{self.folder}/state/jobs/{job}/attempts/*/exit"), [])
        self.assertGreater(os.path.getsize(f"{self.folder}/state/jobs/{job}/metrics.jsonl"), before)
        self.start_daemon()
        self.reach(job, 60)
        self.assertEqual(self.show(job)["status"]["attempt"], 1)
        self.cancel(job)

    def test_ten_partitions(self):
        """From cut to the first new step, each time on another node, with the folder or without it."""
        job = self.submit("--set", "resources.ranks=4", "--set", "training.steps=100000000", "--set", "resources.max_failures=100")
        for attempt in range(1, 11):
            self.reach_attempt(job, attempt)
            lost = 3 if "host3" in self.nodes_of(job) else 2
            cut = time.monotonic()
            self.isolate(lost, folder=attempt % 2 == 0)
            until(lambda lost=lost: self.ranks_on(lost) == 0, "the ranks that are cut off are gone", self.told, 90)
            gone = time.monotonic() - cut
            self.reach_attempt(job, attempt + 1)
            print(f"partition {attempt}: ranks gone after {gone:.1f} s, first new step after {time.monotonic() - cut:.1f} s",
                  flush=True)
            self.assertNotIn(f"host{lost}", self.nodes_of(job))
            if attempt % 2 == 0:
                hosts.administer(*self.hosts.enter_command(lost), "umount", "-l", f"{self.folder}/state/jobs")
            self.hosts.mend(lost)
            until(lambda lost=lost: self.node(lost)["state"] == "NODE_READY", "the node is back", self.told, 60)
            self.assertEqual(self.ranks_on(lost), 0)
        self.cancel(job)

    def cancel(self, job):
        self.ask("cancel", str(job))
        until(lambda: self.show(job)["status"]["state"] == "JOB_CANCELLED", "it is cancelled", self.told, 60)

    def reach_attempt(self, job, attempt):
        def runs():
            status = self.show(job)["status"]
            self.assertNotIn(status["state"], daemon_fixture.ENDED, self.told())
            return (status["attempt"], status["state"]) == (attempt, "JOB_RUNNING")
        until(runs, f"attempt {attempt} runs", self.told, 180)
        first = max(self.losses(job), default=0)
        until(lambda: max(self.losses(job), default=0) > first, f"a step of attempt {attempt}", self.told, 60)


def main():
    reason = hosts.missing() or (None if shutil.which("openssl") else skips.NOT_INSTALLED + "openssl")
    if reason:
        skips.leave(reason)
    hosts.enter()
    Nodes.built = os.path.abspath(sys.argv.pop(1))
    skips.main()


if __name__ == "__main__":
    main()
