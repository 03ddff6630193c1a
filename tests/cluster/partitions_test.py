#!/usr/bin/env python3
"""Real partitions between hosts (host_case.py): at any time ranks of one attempt live, and who was replaced publishes
nothing (docs/adr/0019). attempt_watch.py looks on. Every wait has a deadline.

Usage: partitions_test.py BIN_FOLDER [Partitions.test_NAME ...]
"""
import os
import signal
import time

import host_case
from attempt_watch import AttemptWatch, living_ranks
from host_case import JOB, hosts, read, until

# Ranks that hear of nobody in Open MPI, nor of those that they wait for: what ends them is Trireme.
JOB_WITHOUT_END = JOB.replace("deadline_seconds: 20", "deadline_seconds: 600").replace("steps: 1500", "steps: 100000000")
# Whoever writes a checkpoint into a folder that is away ends by that; lines of the metrics go to a file that is open.
JOB_WITHOUT_CHECKPOINTS = JOB_WITHOUT_END.replace("every_steps: 100", "every_steps: 100000000")
LOST_NODE_AFTER_S = 60  # the default
# mpirun with a peer's silence borne for longer than that, where a file says so.
SLOW_MPIRUN = """#!/bin/bash
words=("$@")
if [[ -e %s ]]; then
  for i in "${!words[@]}"; do [[ ${words[i]} == oob_tcp_keepalive_time ]] && words[i+1]=75; done
fi
exec %s "${words[@]}"
"""


class PartitionCase(host_case.HostsCase):
    def environment_of_agents(self):
        folder = f"{self.folder}/programs"
        if not os.path.exists(folder):
            os.mkdir(folder)
            self.slow = f"{self.folder}/slow_keepalive"
            mpirun = next(f"{path}/mpirun" for path in os.environ["PATH"].split(":") if os.path.exists(f"{path}/mpirun"))
            self.write("programs/mpirun", SLOW_MPIRUN % (self.slow, mpirun), 0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    def begin_job(self, ranks, spec):
        self.write("job.yaml", spec)
        job = self.submit("--set", f"resources.ranks={ranks}", "--set", "resources.max_failures=100")
        watch = AttemptWatch(job, self.run_folder(job))
        watch.start()
        self.addCleanup(watch.end)
        return job, watch

    def let_in(self, number):
        """After isolate with the folder."""
        hosts.administer(*self.hosts.enter_command(number), "umount", "-l", f"{self.folder}/state/jobs")

    def steps_on(self, job):
        """Another line of the metrics, and one more: the first may be where a new attempt goes on from."""
        for _ in range(2):
            before = [line["step"] for line in self.metrics(job)[-1:]]
            until(lambda before=before: [line["step"] for line in self.metrics(job)[-1:]] != before, "a step", self.told, 60)

    def reach_attempt(self, job, attempt):
        def runs():
            status = self.show(job)["status"]
            return (status["attempt"], status["state"]) == (attempt, "JOB_RUNNING")
        until(runs, f"attempt {attempt} runs", self.told, 180)
        self.steps_on(job)

    def without_faults(self, watch):
        self.assertEqual(watch.faults[:5], [], self.told())


class Partitions(PartitionCase):
    def lose(self, turn, job, watch, lost, folder):
        """From the cut of one host to the first new step elsewhere."""
        attempt = self.show(job)["status"]["attempt"]
        cut = time.monotonic()
        self.isolate(lost, folder)
        until(lambda: self.ranks_on(lost) == 0, "the ranks that are cut off are gone", self.told, LOST_NODE_AFTER_S)
        gone = time.monotonic() - cut
        # By the time the next attempt has its folder: the watch looks then.
        self.reach_attempt(job, attempt + 1)
        print(f"partition {turn}: of {self.names[lost]}, folder {'away' if folder else 'there'}: ranks gone after {gone:.1f} s, "
              f"first new step after {time.monotonic() - cut:.1f} s", flush=True)
        self.assertNotIn(self.names[lost], self.nodes_of(job))
        if folder:
            self.let_in(lost)
        self.hosts.mend(lost)
        until(lambda: self.node(lost)["state"] == "NODE_READY", "the node is back", self.told, 60)
        self.assertEqual(self.ranks_on(lost), 0)
        self.without_faults(watch)

    def number_of(self, name):
        return next(number for number, known in self.names.items() if known == name)

    def launch_seconds(self, job):
        """From submit to the first step: the floor of what a partition costs beyond its times."""
        begin = time.monotonic()
        self.reach_attempt(job, 1)
        print(f"launch: first step after {time.monotonic() - begin:.1f} s", flush=True)

    def lose_each(self, ranks, spec, losses):
        """`losses`: turns of (place in the allocation, whether the folder is away, whether Open MPI is slow)."""
        job, watch = None, None
        for turn, (place, folder, slow) in enumerate(losses, 1):
            if slow != os.path.exists(self.slow):  # as of the next attempt
                self.write(os.path.basename(self.slow), "") if slow else os.remove(self.slow)
            if turn == 1:
                job, watch = self.begin_job(ranks, spec)
                self.launch_seconds(job)
            nodes = self.nodes_of(job)
            self.assertEqual(len(nodes), (ranks + 1) // 2, nodes)
            self.lose(turn, job, watch, self.number_of(nodes[place]), folder)
        self.assertEqual(watch.seen, set(range(1, len(losses) + 2)))
        self.cancel(job)
        watch.end()

    def test_five_of_one_node(self):
        """Open MPI ends none of its ranks: there is nobody whom they miss. host1 is lost, then host2, then host1."""
        self.lose_each(2, JOB_WITHOUT_CHECKPOINTS, [(0, True, False)] * 3)
        self.lose_each(2, JOB_WITHOUT_END, [(0, False, False)] * 2)

    def test_five_of_two_nodes(self):
        """In turn the node of mpirun and rank 0 is lost, and the other one; and Open MPI is as fast as it is, or slow."""
        self.lose_each(4, JOB_WITHOUT_CHECKPOINTS, [(1, True, True), (0, True, True)])
        self.lose_each(4, JOB_WITHOUT_END, [(0, False, True), (1, False, False), (0, False, False)])


class Twins(PartitionCase):
    """Two machines whose agents have one name, and a folder."""
    names = {1: "twin", 2: "twin"}

    def place(self):
        """The host that has the job, and the other one."""
        found = [number for number in self.names if self.ranks_on(number) > 0]
        self.assertEqual(len(found), 1, self.told())
        return found[0], 3 - found[0]

    def kill_agent(self, number):
        pid = next(pid for pid in self.agents() if f"agent{number}\0" in read(f"/proc/{pid}/cmdline"))
        os.kill(pid, signal.SIGKILL)

    def moves(self, job, lost, other):
        attempt = self.show(job)["status"]["attempt"]
        self.reach_attempt(job, attempt + 1)
        self.assertEqual(self.place(), (other, lost))

    def stays(self, job, seconds):
        status = self.show(job)["status"]
        time.sleep(seconds)
        self.steps_on(job)
        self.assertEqual(self.show(job)["status"]["attempt"], status["attempt"], self.told())

    def test_a_dozen_partitions(self):
        job, watch = self.begin_job(2, JOB_WITHOUT_CHECKPOINTS)
        self.reach_attempt(job, 1)
        for turn in ("cut", "blink", "agent", "isolate", "daemon", "blink", "agent is gone", "agent", "isolate", "daemon", "blink", "cut"):
            here, other = self.place()
            begin = time.monotonic()
            if turn == "blink":  # shorter than what is taken for its loss
                self.hosts.cut(here)
                time.sleep(8)
                self.hosts.mend(here)
                self.stays(job, 6)
            elif turn == "agent":
                self.kill_agent(here)
                self.stays(job, 3)
                self.start_agent(here)
                self.stays(job, 6)
            elif turn == "daemon":
                self.daemon.kill()
                self.daemon.wait()
                self.start_daemon()
                self.stays(job, 6)
            elif turn == "agent is gone":  # its ranks read the claim
                self.kill_agent(here)
                self.moves(job, here, other)
                self.start_agent(here)
            else:
                self.isolate(here, folder=turn == "isolate")
                if turn == "cut":  # they stand still, so that they do not read the claim themselves
                    for pid in living_ranks(job):
                        os.kill(pid, signal.SIGSTOP)
                self.moves(job, here, other)
                if turn == "isolate":
                    self.let_in(here)
                self.hosts.mend(here)
            # Who was there before is somebody else now.
            time.sleep(6)
            self.place()
            self.without_faults(watch)
            print(f"{turn}: {time.monotonic() - begin:.1f} s", flush=True)
        self.assertEqual(self.show(job)["status"]["attempt"], 6)
        self.assertEqual(watch.seen, set(range(1, 7)))
        self.assertGreater(watch.looks, 1000)
        self.cancel(job)


if __name__ == "__main__":
    host_case.main()
