#!/usr/bin/env python3
"""The daemon over a real Slurm of three nodes (slurm.py): its agent stands for the partition. Jobs of the API run there,
wait there, are cancelled there, live through time limits and through the death of the agent, and are submitted once.

Usage: slurm_daemon_test.py BIN_FOLDER [SlurmDaemon.test_NAME ...]
"""
import os
import shutil
import signal
import sys
import tempfile

import slurm

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "coordinator", "daemon"))
from daemon_fixture import DaemonCase, until  # noqa: E402  pylint: disable=wrong-import-position

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

# One rank a node, since a node has four CPUs.
THREE_NODES = ["--set", "parallelism.pipeline_parallel_size=1", "--set", "parallelism.data_parallel_size=3", "--set",
               "training.global_batch_size=6", "--set", "resources.cpus_per_rank=3"]
ENDLESS = ["--set", "training.steps=1000000"]


class SlurmDaemon(DaemonCase):
    @classmethod
    def setUpClass(cls):
        # Of these namespaces alone: even if this program is killed, no file stays.
        cls.parent = tempfile.mkdtemp(prefix="ts_")
        cls.addClassCleanup(shutil.rmtree, cls.parent, ignore_errors=True)
        slurm.must("mount", "-t", "tmpfs", "-o", "size=512m,mode=0755", "tmpfs", cls.parent)
        cls.addClassCleanup(slurm.must, "umount", "-l", cls.parent)
        cls.slurm = slurm.Slurm(cls.parent + "/slurm", nodes=3, cpus=4)
        cls.addClassCleanup(cls.slurm.stop)
        cls.slurm.start()

    def setUp(self):
        super().setUp()
        # More ranks than this machine has cores must not spin.
        self.environment = {**self.slurm.environment, "OMPI_MCA_mpi_yield_when_idle": "1"}
        self.addCleanup(self.call, "scancel", "--user=root")
        self.before = set(self.slurm_jobs())

    def call(self, *command):
        return slurm.call(*command, env=self.slurm.environment, cwd=self.folder)

    def must(self, *command):
        return slurm.must(*command, env=self.slurm.environment, cwd=self.folder)

    def slurm_jobs(self):
        """{number: state}, of all that Slurm knows of."""
        said = self.must("squeue", "-h", "--states=all", "-o", "%A %T").split()
        return dict(zip(said[::2], said[1::2]))

    def submitted(self):
        """Slurm jobs since the beginning of this test."""
        return sorted(set(self.slurm_jobs()) - self.before, key=int)

    def told(self):
        return super().told() + "".join(f"\n-- {job}" for job in self.slurm_jobs().items()) + self.slurm.logs()

    def reach(self, job, step):
        self.reach_state(job, "JOB_RUNNING")
        until(lambda: max(self.losses(job), default=0) >= step, f"step {step} of job {job}", self.told)

    def expect_idle(self):
        until(self.slurm.idle, "all nodes are idle again", self.told)

    def start(self, *arguments):
        self.start_daemon("--launcher", "slurm", "--partition", "main", *arguments)

    def test_runs_on_three_nodes(self):
        self.start()
        node = self.ask("nodes")["nodes"][0]
        self.assertEqual((node["cpus"], int(node["memory_bytes"]) >> 20, node["gpus"]), (12, 3000, 6))
        job = self.submit(*THREE_NODES, "--set", "resources.gpus_per_rank=1", "--set", "runtime.threads=0")
        code, events = self.watch(job).end()
        self.assertEqual(code, 0, self.told())
        states = [event["state_changed"]["to"] for event in events if "state_changed" in event]
        self.assertEqual((states[:2], states[-1]), (["JOB_PLANNING", "JOB_LAUNCHING"], "JOB_COMPLETED"), events)
        self.assertEqual(sorted(self.losses(job)), list(range(1, 31)))
        first = self.submitted()
        self.assertEqual(len(first), 1, self.told())
        said = self.must("scontrol", "show", "job", first[0])
        self.assertRegex(said, r"NumNodes=3 [^$]*TresPerTask=\S*gpu:1\b")
        # A running one is cancelled.
        job = self.submit(*THREE_NODES, *ENDLESS)
        self.reach(job, 20)
        watch = self.watch(job)
        self.ask("cancel", job)
        self.assertEqual(watch.end()[0], 5, self.told())
        self.expect_idle()
        # What Slurm refuses is told.
        job = self.submit("--set", "resources.cpus_per_rank=5")
        self.reach_state(job, "JOB_FAILED")
        self.assertIn("sbatch does not take it", self.show(job)["status"]["reason"], self.told())

    def test_waits_in_the_queue(self):
        other = self.must("sbatch", "--parsable", "-N", "3", "--exclusive", "-o", "/dev/null", "--wrap",
                          "sleep 1000").strip()
        self.before.add(other)
        self.start()
        cancelled, waiting = self.submit(*THREE_NODES), self.submit(*THREE_NODES, "--set", "name=later")
        until(lambda: "waits in Slurm's queue as job" in self.show(cancelled).get("waits_for", ""), "why it waits",
              self.told)
        self.assertIn("waits in Slurm's queue", self.text("explain", cancelled))
        self.ask("cancel", cancelled)
        self.reach_state(cancelled, "JOB_CANCELLED")
        self.must("scancel", other)
        self.reach_state(waiting, "JOB_COMPLETED")
        self.assertEqual(len(self.submitted()), 2, self.told())
        self.assertEqual(self.losses(cancelled), {})

    def test_lives_through_time_limits(self):
        # A minute, of which a third is left for the checkpoint; Slurm looks every 30 s.
        self.start("--time", "1")
        job = self.submit(*ENDLESS)
        until(lambda: self.show(job)["status"]["attempt"] == 2, "the second attempt", self.told, seconds=150)
        step = int(self.show(job)["status"]["checkpoint_step"])
        self.assertGreater(step, 0, self.told())
        self.assertEqual(self.show(job)["status"].get("failures", 0), 0)
        self.reach(job, step + 50)
        watch = self.watch(job)
        self.ask("pause", job)
        self.assertEqual(watch.end()[0], 75, self.told())
        found = self.losses(job)
        last = max(found)
        self.assertIn(f"at step {step}\n", self.text("logs", job, "--attempt", "2"))
        twin = self.folder + "/twin"
        slurm.run_until([f"{self.bin}/trireme", "run", self.job_file, "-n", "2", "--run-dir", twin, *ENDLESS],
                        lambda: max(self.losses_in(twin), default=0) >= last)
        expected = self.losses_in(twin)
        self.assertEqual(found, {one: expected[one] for one in range(1, last + 1)})
        self.expect_idle()

    def test_agent_killed(self):
        self.start()
        job = self.submit(*THREE_NODES, *ENDLESS)
        for moment in (0, 20, 40):
            if moment > 0:
                self.reach(job, moment)
            else:
                until(lambda: os.path.exists(self.run_folder(job) + "/attempts/1/batch.sh"), "a submission", self.told)
            killed = self.agents()
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            until(lambda killed=killed: set(self.agents()) - set(killed), "another agent", self.told)
        self.reach(job, max(self.losses(job)) + 50)
        self.assertEqual(self.show(job)["status"]["attempt"], 1, self.told())
        watch = self.watch(job)
        self.ask("cancel", job)
        self.assertEqual(watch.end()[0], 5, self.told())
        # One runs, whatever a killed agent's sbatch did yet.
        self.assertLessEqual(len(self.submitted()), 2, self.told())
        self.expect_idle()


if __name__ == "__main__":
    slurm.enter_or_skip()
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    skips.main()
