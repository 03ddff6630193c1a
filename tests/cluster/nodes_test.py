#!/usr/bin/env python3
"""Several nodes without Slurm (host_case.py). They train as on one machine, two replicas to the bit; a node that is switched
off, and one whose network is cut, cost a job the steps since its last checkpoint and no more.

Usage: nodes_test.py BIN_FOLDER [Nodes.test_NAME ...]
"""
import glob
import json
import os
import subprocess
import time

import host_case
from host_case import JOB, STEPS, daemon_fixture, until

AWAY_S = 60  # longer than what ends ranks that hear of nobody
# A rank that is held up by something of the daemon's waits for a deadline of its line, which are longer. Others' work on this
# machine holds up ranks too, but for less.
STALL_S = 10


class Nodes(host_case.HostsCase):
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

    def last_step(self, job):
        """Of metrics.jsonl, whose lines are shorter than what is read of it."""
        with open(f"{self.run_folder(job)}/metrics.jsonl", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 65536))
            lines = file.read().rpartition(b"\n")[0].splitlines()[1:]
        return max(json.loads(line)["step"] for line in lines if b'"loss"' in line)

    def ranks_of(self, job):
        return {pid for pid, line in daemon_fixture.processes_of(self.run_folder(job)).items()
                if line.startswith(f"{self.bin}/trireme-worker")}

    def steps_during(self, job, seconds):
        """Steps a second, and the longest time without one, as looks twice a second see them."""
        ranks = self.ranks_of(job)
        self.assertEqual(len(ranks), 4)
        begun = seen = time.monotonic()
        first = last = self.last_step(job)
        longest = 0
        while (now := time.monotonic()) < begun + seconds:
            step = self.last_step(job)
            longest = max(longest, now - seen)
            if step > last:
                seen, last = now, step
            time.sleep(0.5)
        self.assertEqual(glob.glob(f"{self.run_folder(job)}/attempts/*/exit"), [])
        self.assertEqual(self.ranks_of(job), ranks, self.told())
        return (last - first) / (now - begun), longest

    def check_a_daemon_away(self, seconds):
        job = self.submit("--set", "resources.ranks=4", "--set", "training.steps=100000000")
        self.reach(job, 250)
        before = self.steps_during(job, 20)
        ranks = self.ranks_of(job)
        self.stop_daemon()
        away = self.steps_during(job, seconds)
        print(f"steps a second, and seconds without one: {before[0]:.1f}, {before[1]:.1f} before; {away[0]:.1f}, "
              f"{away[1]:.1f} with the daemon away for {seconds} s", flush=True)
        self.assertLess(away[1], max(STALL_S, 5 * before[1]))
        self.assertGreater(away[0], before[0] / 5)
        last = self.last_step(job)
        self.start_daemon()
        until(lambda: int(self.show(job).get("progress", {}).get("steps_done", 0)) > last, "it is told of steps again", self.told)
        self.assertEqual(self.show(job)["status"]["attempt"], 1)
        self.assertEqual(self.ranks_of(job), ranks, self.told())
        self.cancel(job)

    def test_a_daemon_away_ends_nothing(self):
        self.check_a_daemon_away(AWAY_S)

    def test_a_daemon_away_for_ten_minutes(self):
        self.check_a_daemon_away(600)


if __name__ == "__main__":
    host_case.main()
