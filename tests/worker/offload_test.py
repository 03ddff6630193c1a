#!/usr/bin/env python3
"""A run whose disk loses state that is offloaded ends, and saves nothing of it, over real mpirun. Every wait has a
deadline.

Usage: offload_test.py BIN_FOLDER [Offload.test_NAME ...]
"""
import os
import sys

import worker_test


class Offload(worker_test.Worker):
    def test_saves_nothing_that_a_disk_lost(self):
        """After the only step, of which nothing reads the state but the checkpoint."""
        preload = os.path.join(worker_test.BIN, "../tests/liblose_when_told.so")
        arguments = ("--set", "training.steps=1", "--set", "optimizer.warmup_steps=0",
                     "--set", "offload.optimizer_state=file", "--set", "resources.max_failures=1")
        sound, _ = self.run_job("sound", *arguments)
        self.assertIn("step-00000001", os.listdir(sound.folder + "/checkpoints"))
        for rank in range(4):  # before it is made, lest a mount that hangs be silent
            log = worker_test.read(f"{sound.folder}/logs/rank-{rank}.log")
            self.assertRegex(log, r"makes a file of \d+(\.\d+)? KiB in " + sound.folder)
        os.environ.update(LD_PRELOAD=preload, LOSING_RANK="2")
        self.addCleanup(lambda: [os.environ.pop(name) for name in ("LD_PRELOAD", "LOSING_RANK")])
        job = self.start("run", *arguments)
        code, output = job.end()
        self.assertNotEqual(code, 0, output)
        self.assertRegex(output, r"rank 2.*offload\.directory: cannot write in .*: Input/output error")
        self.assertNotIn("step-00000001", os.listdir(job.folder + "/checkpoints"), output)
        self.assertFalse(os.path.exists(job.folder + "/report.json"))


if __name__ == "__main__":
    worker_test.BIN = os.path.abspath(sys.argv.pop(1))
    worker_test.skips.main()
