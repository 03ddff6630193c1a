"""Looks ten times a second at what there is of a job on all hosts of this machine: of which attempts ranks live, and what is
published. Runs beside a test that cuts lines; whoever looks from here sees the processes of all hosts, and the folder."""
import glob
import json
import os
import re
import threading
import time

EVERY_S = 0.1
# Ranks look at the claim once a second before they write a line; and a look may be late.
READ_CLAIM_S = 2


def living_ranks(job):
    """{pid: attempt} of a job, whatever host they are on; those that have ended and are not reaped do not count."""
    found = {}
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                words = file.read().split("\0")
            if os.path.basename(words[0]) != "trireme-worker" or words[words.index("--job-id") + 1] != str(job):
                continue
            with open(os.path.dirname(path) + "/stat", encoding="utf-8", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    continue
        except (OSError, ValueError, IndexError):
            continue
        found[int(path.split("/")[2])] = int(words[words.index("--attempt") + 1])
    return found


class AttemptWatch(threading.Thread):
    def __init__(self, job, run_folder):
        super().__init__(daemon=True)
        self.job, self.folder = job, run_folder
        self.ends = threading.Event()
        self.looks = 0
        self.faults = []
        self.first_look = {}   # claimed attempt: when it was first seen in the claim
        self.before = {}       # claimed attempt: what was published when the older ones must have read so
        self.seen = set()      # attempts of which ranks lived

    def look(self):
        now = time.monotonic()
        living = set(living_ranks(self.job).values())
        self.seen |= living
        self.looks += 1
        begun = self.begun()
        if len(living) > 1 or any(attempt < begun for attempt in living):
            self.faults.append(f"attempt {begun} has begun, and ranks live of {sorted(living)}")
        claimed = self.claimed()
        if claimed is None:
            return
        since = self.first_look.setdefault(claimed, now)
        published = self.published()
        if now - since < READ_CLAIM_S or self.begun() >= claimed:
            return
        if self.before.setdefault(claimed, published) != published:
            self.faults.append(f"attempt {claimed} has the claim, and an older one publishes: {self.before[claimed]}, then {published}")
            self.before[claimed] = published

    def begun(self):
        """The newest attempt that was started."""
        return max((int(os.path.basename(path)) for path in glob.glob(f"{self.folder}/attempts/[0-9]*")), default=0)

    def claimed(self):
        try:
            with open(f"{self.folder}/claim.json", encoding="utf-8") as file:
                return json.load(file)["attempt"]
        except (OSError, ValueError):
            return None

    def published(self):
        """What others go by: lines of the metrics, and checkpoints that have their names."""
        try:
            metrics = os.stat(f"{self.folder}/metrics.jsonl")
            lines = (metrics.st_ino, metrics.st_size)
        except OSError:
            lines = None
        names = [name for name in glob.glob(f"{self.folder}/checkpoints/*") if re.fullmatch(r"[\w-]+", os.path.basename(name))]
        return lines, max(names, key=lambda name: (len(name), name), default=None)

    def run(self):
        while not self.ends.wait(EVERY_S):
            self.look()

    def end(self):
        self.ends.set()
        self.join(10)
