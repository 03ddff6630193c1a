#!/usr/bin/env python3
"""Processes take what the plan says of their ranks and little more, over real mpirun. Every wait has a deadline.

Usage: memory_test.py BIN_FOLDER [Memory.test_NAME ...]
"""
import json
import os
import re
import sys

import worker_test


class Memory(worker_test.Worker):
    def expect_planned_memory(self, run, *arguments, hidden=448, ranks=2):
        """A job whose processes stay within 5 % of what its ranks were given and 200 MB, from the first page to the last."""
        job = self.start(run, "--set", f"model.config.hidden_size={hidden}", "--set",
                         "model.config.num_attention_heads=8", "--set", "model.config.num_hidden_layers=6", "--set",
                         "parallelism.tensor_parallel_size=1", "--set", "parallelism.pipeline_parallel_size=1",
                         "--set", "training.global_batch_size=4", "--set", "optimizer.warmup_steps=1", *arguments,
                         ranks=ranks)
        peaks = {}  # bytes, by rank

        def sample():
            for rank in range(ranks):
                pid = job.rank(rank)
                found = re.search(r"VmHWM:\s+(\d+) kB", worker_test.read(f"/proc/{pid}/status")) if pid else None
                if found:
                    peaks[rank] = int(found.group(1)) * 1024
            return job.process.poll() is not None

        worker_test.until(sample, "end of the run")
        code, output = job.end()
        self.assertEqual(code, 0, output)
        report = json.loads(worker_test.read(job.folder + "/report.json"))
        given = report["arena_bytes"] + report["host_bytes"]
        print(f"{run} {' '.join(arguments)}: given {given >> 20} MiB, {report['file_bytes'] >> 20} MiB in a file, "
              f"processes {[peak >> 20 for peak in peaks.values()]} MiB")
        self.assertEqual(len(peaks), ranks)
        for peak in peaks.values():
            self.assertLess(peak, 1.05 * given + (200 << 20))
            self.assertGreater(peak, 0.95 * given)  # or it was not the arena that was measured
        return report

    def test_stays_within_planned_memory(self):
        report = self.expect_planned_memory("run", "--set", "training.steps=12")
        self.assertGreater(report["arena_bytes"], 240 << 20)

    def test_stays_within_planned_memory_in_bf16(self):
        self.expect_planned_memory("run", "--set", "training.steps=4", "--set", "training.dtype=bf16")

    def test_stays_within_planned_memory_under_zero_3(self):
        self.expect_planned_memory("run", "--set", "training.steps=4", "--set", "parallelism.zero_stage=3")

    def test_stays_within_planned_memory_recomputing(self):
        self.expect_planned_memory("run", "--set", "training.steps=4", "--set", "parallelism.recompute=[full]")

    def test_stays_within_planned_memory_with_state_on_the_host(self):
        report = self.expect_planned_memory("run", "--set", "training.steps=4", "--set", "offload.optimizer_state=host")
        self.assertGreater(report["host_bytes"], 100 << 20)

    def test_stays_within_planned_memory_with_state_in_a_file(self):
        # Which is larger than all that a process may take beside its arena: at the start of a run, at its save, and after a
        # resume.
        settings = ("--set", "training.dtype=bf16", "--set", "offload.optimizer_state=file")
        for arguments in (("--set", "training.steps=2"), ("--set", "training.steps=3", "--resume", "auto")):
            report = self.expect_planned_memory("run", *settings, *arguments, hidden=640, ranks=1)
            self.assertGreater(report["file_bytes"], 300 << 20)


if __name__ == "__main__":
    worker_test.BIN = os.path.abspath(sys.argv.pop(1))
    worker_test.skips.main()
