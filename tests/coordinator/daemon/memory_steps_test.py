#!/usr/bin/env python3
"""Jobs of a daemon that go on in memory: those that get further are not given up, and a step that fails is left.

Usage: memory_steps_test.py BIN_FOLDER [MemorySteps.test_NAME ...]
"""
import fcntl
import glob
import json
import os
import shutil
import signal
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
import skips  # noqa: E402
from daemon_fixture import DaemonCase, processes_of, read, until

MORE = ("--set", "snapshots.every_step=true", "--set", "training.steps=2000")
PAGE = 4096
STAGED = 2


def shifted(crc):
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


TABLE = [shifted(byte) for byte in range(256)]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def sums_of(piece):
    """As docs/formats/snapshot.md has it: the 8 bytes of a piece."""
    words = struct.unpack(f"<{len(piece) // 4}I", piece)
    rows = len(words) // 16
    lanes = [words[lane::16] for lane in range(16)]
    first = struct.pack("<16Q", *(sum(lane) for lane in lanes))
    second = struct.pack("<16Q", *(sum((rows - row) * word for row, word in enumerate(lane)) for lane in lanes))
    return struct.pack("<II", crc32c(first), crc32c(second))


class SnapshotFile:
    """A rank's file, whose rank has ended."""

    def __init__(self, path):
        self.file = open(path, "r+b")
        fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        header = self.at(0, PAGE)
        assert header[:8] == b"TRIRSNAP", header[:8]
        self.slots, = struct.unpack_from("<I", header, 12)
        (self.piece, self.slot, self.manifest, self.manifest_bytes, self.sums, self.sums_bytes,
         self.data) = struct.unpack_from("<7Q", header, 48)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.file.close()

    def at(self, offset, size):
        self.file.seek(offset)
        return self.file.read(size)

    def put(self, offset, content):
        self.file.seek(offset)
        self.file.write(content)

    def versions(self):
        """{version: slot} of what is whole."""
        words = [struct.unpack_from("<Q", self.at(PAGE * (1 + slot), 8))[0] for slot in range(self.slots)]
        return {word // 4: slot for slot, word in enumerate(words) if word % 4 == STAGED}

    def poison(self, version, name):
        """A weight of that version is no number any more; all sums say that it never was another."""
        slot = self.versions()[version]
        parts = json.loads(self.at(self.manifest, self.manifest_bytes))["parts"]
        [part] = [each for each in parts if name in each["name"] and each["kind"] == "parameter"]
        place = part["offset"] // self.piece
        at = self.data + slot * self.slot + place * self.piece
        sums_at = self.sums + slot * self.sums_bytes
        piece, sums = bytearray(self.at(at, self.piece)), bytearray(self.at(sums_at, 8 * self.slot // self.piece))
        record = bytearray(self.at(PAGE * (1 + slot), PAGE))
        # Else the ranks would pass over it for a reason of ours.
        assert sums_of(piece) == sums[8 * place:8 * place + 8]
        assert struct.unpack_from("<Q", record, 72)[0] == crc32c(sums)
        assert struct.unpack_from("<I", record, PAGE - 4)[0] == crc32c(record[:-4])
        struct.pack_into("<f", piece, part["offset"] % self.piece, float("nan"))
        sums[8 * place:8 * place + 8] = sums_of(piece)
        struct.pack_into("<Q", record, 72, crc32c(sums))
        struct.pack_into("<I", record, PAGE - 4, crc32c(record[:-4]))
        self.put(at, piece)
        self.put(sums_at, sums)
        self.put(PAGE * (1 + slot), record)


class MemorySteps(DaemonCase):
    def memory_of(self, job):
        key = read(f"{self.run_folder(job)}/snapshots.key").partition(" ")[0]
        folder = f"/dev/shm/trireme-{os.getuid()}-{key}"
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def kill_daemon(self):
        """As in a crash, with its agent: ranks go on."""
        for pid in self.agents():
            os.kill(pid, signal.SIGKILL)
        self.daemon.kill()
        self.daemon.wait()

    def ranks_are_gone(self, job):
        until(lambda: not any("trireme-worker" in line.split("\0")[0]
                              for line in processes_of(self.run_folder(job)).values()), "all ranks have ended")

    def began_at(self, job, attempt):
        lines = [line for line in self.text("logs", job, "--attempt", str(attempt), "--rank", "0").splitlines() if "resumed" in line]
        return lines[0].partition("resumed ")[2] if lines else ""

    def test_kills_in_a_row(self):
        """Five, with one failure allowed, and the daemon killed on the way: each attempt goes on further in memory."""
        self.start_daemon()
        job = self.submit(*MORE, "--set", "checkpoint.every_steps=0", "--set", "resources.max_failures=2")
        for kill in range(1, 6):
            self.reach(job, max(self.losses(job), default=0) + 20)
            self.memory_of(job)
            victim = self.rank(job, kill % 2)
            if kill == 3:
                self.kill_daemon()
                os.kill(victim, signal.SIGKILL)
                self.start_daemon()
            else:
                os.kill(victim, signal.SIGKILL)
            until(lambda n=kill: self.show(job)["status"]["attempt"] == n + 1, "the next attempt", self.told)
        code, events = self.watch(job).end()
        self.assertEqual(code, 0, self.told())
        status = self.show(job)["status"]
        self.assertEqual((status["state"], status["attempt"]), ("JOB_COMPLETED", 6))
        steps = [int(event["went_on_in_memory"]["step"]) for event in events if "went_on_in_memory" in event]
        self.assertEqual(len(steps), 5, steps)
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(int(status["furthest_memory_step"]), steps[-1])
        # None was told to wait longer than after a first failure.
        reasons = [event["state_changed"]["reason"] for event in events
                   if event.get("state_changed", {}).get("to") == "JOB_RECOVERING"]
        self.assertEqual(len(reasons), 5, reasons)
        for reason in reasons:
            self.assertIn("failed (1 of at most 2 in a row), the next one follows in 1 s", reason)
        self.assertIn(f"goes on in memory at step {steps[-1]}", self.text("watch", job))

    def test_leaves_a_step_that_fails(self):
        """A weight of the newest version in memory is no number: two attempts fail at once, the third begins on the disk, and
        the job ends as if nothing had happened."""
        self.start_daemon()
        # None is due where the ranks are killed: of that step the disk would be taken, or have what memory has.
        more = (*MORE, "--set", "checkpoint.every_steps=110")
        twin = self.submit(*more)
        self.assertEqual(self.watch(twin).end()[0], 0, self.told())
        job = self.submit(*more)
        self.reach(job, 120)
        victim = self.rank(job, 1)
        self.kill_daemon()
        os.kill(victim, signal.SIGKILL)
        self.ranks_are_gone(job)
        first, second = (SnapshotFile(path) for path in sorted(glob.glob(self.memory_of(job) + "/rank-*.snapshot")))
        with first, second:
            step = max(first.versions().keys() & second.versions().keys())
            first.poison(step, "ln_1.weight")
        self.start_daemon()
        code, events = self.watch(job).end()
        self.assertEqual(code, 0, self.told())
        self.assertEqual(self.show(job)["status"]["attempt"], 4)
        self.assertEqual([self.began_at(job, 2), self.began_at(job, 3)], [f"in memory at step {step}"] * 2)
        self.assertNotEqual(step % 110, 0)
        self.assertRegex(self.began_at(job, 4), rf"^from \S+ at step {step // 110 * 110}$")
        told = [(int(event["memory_step_left"]["step"]), event["memory_step_left"].get("over", False))
                for event in events if "memory_step_left" in event]
        self.assertEqual(told, [(step, False), (step, True)])
        text = self.text("watch", job)
        self.assertIn(f"step {step} in memory failed twice, it is not used again", text)
        self.assertIn("NaN or Inf in", text)
        self.assertEqual(self.losses(job), self.losses(twin))


if __name__ == "__main__":
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    skips.main()
