#!/usr/bin/env python3
"""The ready-made files of deploy/: what they name exists, and the options that they give are known.

Usage: deploy_test.py BIN_FOLDER [Deploy.test_NAME ...]
"""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = ""
PROGRAMS = {"trireme", "trireme-worker", "triremed", "trireme-agent"}
JOB = """name: tiny
model: {config: {model_type: gpt2, hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4,
                 max_position_embeddings: 32}}
data: {text_files: [text.txt], tokenizer: char, sequence_length: 16}
training: {steps: 50000, global_batch_size: 8, micro_batch_size: 4}
parallelism: {tensor_parallel_size: 2}
checkpoint: {every_steps: 1000000}
runtime: {log_every_steps: 1}
"""
# Of Debian's essential and base systems, or chosen by whoever runs the image.
OF_EVERY_IMAGE = {"openssh-server", "openssh-client", "ca-certificates"}


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def launcher_command(text):
    """Words of `command` and `args` of the first container in a file of this form."""
    words, block = [], None
    for line in text[text.index("command:\n"):text.index("resources:")].rstrip().splitlines()[1:]:
        if line.strip() == "args:":
            continue
        depth = len(line) - len(line.lstrip())
        if block is not None and depth > block:
            words[-1] += line[block + 2:] + "\n"
            continue
        block = None
        word = line.strip()[2:].strip('"')
        if word == "|":
            block, word = depth, ""
        words.append(word)
    return words


def steps_of(folder):
    """The last step in the metrics of folder/run."""
    try:
        with open(folder + "/run/metrics.jsonl", encoding="utf-8") as file:
            return max((json.loads(line)["step"] for line in file if line.endswith("\n")), default=0)
    except OSError:
        return 0


class Deploy(unittest.TestCase):
    def test_container(self):
        text = read("deploy/container/Containerfile")
        joined = text.replace("\\\n", " ")
        for source in re.findall(r"^COPY (?!--from)(\S+) ", joined, re.M):
            self.assertTrue(os.path.exists(os.path.join(SOURCE, source)), source)
        for package in re.findall(r"/packages/([a-z-]+)_\*\.deb", joined):
            self.assertIn(f"PACKAGE_NAME {package})", read("cmake/Package.cmake"))
        known = set(re.findall(r"[a-z0-9][a-z0-9+.-]+", read("deploy/install_packages"))) | OF_EVERY_IMAGE
        for line in re.findall(r"apt-get install([^&]*)", joined):
            names = [word for word in line.split() if not word.startswith(("-", "/"))]
            self.assertLessEqual(set(names), known)
        [group] = re.findall(r"RUN deploy/install_packages (\w+)", joined)
        self.assertRegex(read("deploy/install_packages"), rf"\b{group}\) wanted=")
        [preset] = set(re.findall(r"--preset (\w+)", joined))
        self.assertIn(f'"name": "{preset}"', read("CMakePresets.json"))
        # The second stage starts from nothing: what it copies, the first has made.
        for stage, path in re.findall(r"COPY --from=(\w+) (\S+)/", joined):
            self.assertIn(f"AS {stage}", joined)
            self.assertIn(f"-B {path}", joined)

    def test_kubernetes(self):
        text = read("deploy/kubernetes/mpijob.yaml")
        self.assertNotIn("\t", text)
        slots, = re.findall(r"slotsPerWorker: (\d+)", text)
        ranks, = re.findall(r'- -n\n +- "(\d+)"', text)
        replicas = re.findall(r"replicas: (\d+)", text)[1]
        self.assertEqual(int(ranks), int(slots) * int(replicas))
        arguments = re.findall(r"^ +- (\S+)$", text, re.M)
        worker = arguments[arguments.index("trireme-worker") + 1:]
        for option in (word for word in worker if word.startswith("--")):
            self.assertIn(f'"{option}"', read("worker/main.cc"))
        image = read("deploy/container/Containerfile")
        for path in re.findall(r'"-f", "([^"]+)"', text):
            self.assertIn(f"> {path}", image)
        [keys] = re.findall(r"sshAuthMountPath: (\S+)", text)
        self.assertIn(f"HostKey {keys}/id_rsa", image)
        command = launcher_command(text)
        # Debian's Python has Debian's module, whichever runs this.
        read_yaml = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))"
        parsed = subprocess.run(["/usr/bin/python3", "-c", read_yaml], input=text, text=True, capture_output=True, timeout=60,
                                check=False)
        if "No module named 'yaml'" in parsed.stderr:
            self.skipTest(skips.NOT_INSTALLED + "python3-yaml")
        self.assertEqual(parsed.returncode, 0, parsed.stderr)
        job = json.loads(parsed.stdout)
        self.assertEqual(job["kind"], "MPIJob")
        launcher = job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
        self.assertEqual(command, launcher["command"] + launcher["args"])
        self.stops_with_a_checkpoint(command)

    def stops_with_a_checkpoint(self, command):
        """The launcher's own command line, at another place and with two ranks, and the TERM of its pod's end."""
        if not shutil.which("mpirun"):
            self.skipTest(skips.NOT_INSTALLED + "mpirun")
        with tempfile.TemporaryDirectory(prefix="trireme_launcher_") as folder:
            with open(folder + "/job.yaml", "w", encoding="utf-8") as file:
                file.write(JOB)
            with open(folder + "/text.txt", "w", encoding="utf-8") as file:
                file.write("the oars dip and rise in time\n" * 100)
            others = {"4": "2", "/srv/trireme/job/job.yaml": folder + "/job.yaml",
                      "/srv/trireme/shared/runs/trireme": folder + "/run", "runtime.threads=2": "runtime.threads=1"}
            self.assertLessEqual(set(others), set(command))
            # Of a container the image says these.
            environment = dict(os.environ, PATH=BIN + ":" + os.environ["PATH"], OMPI_ALLOW_RUN_AS_ROOT="1",
                               OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                               OMPI_MCA_mpi_yield_when_idle="1")
            process = subprocess.Popen([others.get(word, word) for word in command], env=environment, text=True,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       start_new_session=True)
            try:
                end = time.monotonic() + 60
                while steps_of(folder) < 5:
                    self.assertTrue(process.poll() is None and time.monotonic() < end, "it does not train")
                    time.sleep(0.05)
                process.terminate()
                output, _ = process.communicate(timeout=60)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    print(process.communicate()[0])
            self.assertEqual(process.returncode, 75, output)
            self.assertTrue(os.path.isdir(f"{folder}/run/checkpoints/step-{steps_of(folder):08d}"), output)

    def test_module(self):
        text = read("deploy/modules/trireme.lua")
        install = read("cmake/Install.cmake")
        for path in re.findall(r'pathJoin\(prefix, "([^"]+)"\)', text):
            variable = {"bin": "CMAKE_INSTALL_BINDIR", "share": "CMAKE_INSTALL_DATADIR"}.get(path.split("/")[0], path)
            self.assertIn(variable, install)
        self.assertEqual(text.count("("), text.count(")"))
        if not shutil.which("luac5.4"):
            self.skipTest(skips.NOT_INSTALLED + "luac5.4")
        checked = run("luac5.4", "-p", os.path.join(SOURCE, "deploy/modules/trireme.lua"))
        self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_config(self):
        """The files of options have every option of their program, all together a file that it takes."""
        for program, name in (("triremed", "triremed.toml"), ("trireme-agent", "agent.toml")):
            text = read(f"deploy/config/{name}")
            options = set(re.findall(r"^  (?:-\w,)?--([\w-]+)", run(f"{BIN}/{program}", "--help").stdout, re.M))
            keys = re.findall(r"^(?:# )?([\w-]+) = ", text, re.M)
            self.assertEqual(sorted(keys), sorted(options - {"help", "version", "config"}))
            whole = re.sub(r"^# (?=[\w-]+ = )", "", text, flags=re.M)
            for content, said in ((text + "bogus = 1\n", r"\A[^\n]*:\d+: bogus: no such option"),
                                  (whole + "bogus = 1\n", r"\A[^\n]*:\d+: bogus: no such option"),
                                  (re.sub(r"^log-format.*\n", "", whole, flags=re.M) + 'log-format = "x"\n',
                                   r"\A[^\n]*:\d+: --log-format: x not in")):
                with tempfile.TemporaryDirectory(prefix="trireme_config_") as folder:
                    with open(f"{folder}/a.toml", "w", encoding="utf-8") as file:
                        file.write(content)
                    ended = run(f"{BIN}/{program}", "--state-dir", f"{folder}/state", "--config", f"{folder}/a.toml")
                    self.assertEqual(ended.returncode, 2, ended.stderr)
                    self.assertRegex(ended.stderr, said)
                    self.assertFalse(os.path.exists(f"{folder}/state"))

    def test_agent_unit_gives_its_controllers_back(self):
        """systemd can start no process in a group whose children have controllers, so they are disabled at its end."""
        text = read("deploy/systemd/trireme-agent.service").replace("\\\n", " ")
        self.assertRegex(text, r"(?m)^Delegate=yes$")
        self.assertRegex(text, r"(?m)^ProtectControlGroups=no$")
        [command] = re.findall(r"^ExecStopPost=-/bin/sh -c '(.*)'$", text, re.M)
        command = command.replace("$$", "$").replace("%%", "%")  # as systemd reads it
        with tempfile.TemporaryDirectory(prefix="trireme_group_") as folder:
            with open(f"{folder}/own", "w", encoding="utf-8") as file:
                file.write("1:name=systemd:/other\n0::/system.slice/trireme-agent.service/.control\n")
            for there, here in (("/sys/fs/cgroup", folder), ("/proc/self/cgroup", f"{folder}/own")):
                self.assertIn(there, command)
                command = command.replace(there, here)
            ended = run("sh", "-c", command)  # v2 is mounted elsewhere, beside v1
            self.assertEqual((ended.returncode, ended.stderr), (0, ""))
            unit = f"{folder}/system.slice/trireme-agent.service"
            os.makedirs(f"{unit}/.control")
            os.makedirs(f"{unit}/trireme-7-1-89abcdef.00000000")
            # Each word by itself: of one that is not there the kernel refuses all.
            words = b"-memory\n-pids\n-cpuset\n"
            os.mkfifo(f"{unit}/cgroup.subtree_control")
            self.assertEqual(self.written(command, f"{unit}/cgroup.subtree_control"), words)
            # A job may have enabled some in its own, and the kernel wants those disabled first.
            inner = f"{unit}/trireme-7-1-89abcdef.00000000/cgroup.subtree_control"
            os.mkfifo(inner)
            self.assertEqual(self.written(command, inner, f"{unit}/cgroup.subtree_control"), words * 2)

    def written(self, command, *fifos):
        """What the command writes to these, which it is to open one after the other."""
        text, readers = b"", []
        with subprocess.Popen(["timeout", "20", "sh", "-c", command], stderr=subprocess.PIPE) as running:
            for fifo in fifos:  # who writes waits for one who reads
                reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
                readers.append(reader)
                got = b""
                until = time.monotonic() + 10
                while got.count(b"\n") < 3 and time.monotonic() < until:
                    try:
                        got += os.read(reader, 1000)
                    except BlockingIOError:
                        pass
                    time.sleep(0.002)
                text += got
            said = running.communicate(timeout=30)[1]
        for reader in readers:
            os.close(reader)
        self.assertEqual((running.returncode, said), (0, b""))
        return text

    def test_units(self):
        units = sorted(glob.glob(SOURCE + "/deploy/systemd/*.service"))
        self.assertEqual(len(units), 2)
        states = []
        with tempfile.TemporaryDirectory(prefix="trireme_units_") as folder:
            for unit in units:
                text = read(unit)
                [start] = re.findall(r"^ExecStart=/usr/bin/(.*)$", text.replace("\\\n", " "), re.M)
                program, *words = start.split()
                self.assertIn(program, PROGRAMS)
                said = run(f"{BIN}/{program}", "--help").stdout
                for option in (word for word in words if word.startswith("--")):
                    self.assertIn(option.partition("=")[0], said)
                # Beside ours only what every Debian has.
                for other in re.findall(r"^Exec(?!Start=)\w+=-?(\S+)", text, re.M):
                    self.assertEqual(other, "/bin/sh")
                # A file that need not be there.
                [config] = [word.partition("=-")[2] for word in words if word.startswith("--config=-/etc/trireme/")]
                self.assertIn(f": {config}. ", read(f"deploy/config/{os.path.basename(config)}"))
                self.assertRegex(text, r"(?m)^User=trireme$")
                self.assertRegex(text, r"(?m)^NoNewPrivileges=yes$")
                self.assertRegex(text, r"(?m)^Type=notify$")
                self.assertRegex(text, r"(?m)^WatchdogSec=\d+$")
                # What it writes there, systemd makes, and for this unit alone.
                [folder_of_state] = re.findall(r"--state-dir /var/lib/(\S+)", start)
                self.assertRegex(text, rf"(?m)^StateDirectory={folder_of_state}$")
                states.append(folder_of_state)
                with open(f"{folder}/{os.path.basename(unit)}", "w", encoding="utf-8") as file:
                    file.write(text.replace("/usr/bin/", BIN + "/"))
            self.assertEqual(len(set(states)), 2, states)
            self.assertIn("u trireme ", read("deploy/debian/trireme.sysusers"))
            if not shutil.which("systemd-analyze"):
                self.skipTest(skips.NOT_INSTALLED + "systemd-analyze")
            verified = run("systemd-analyze", "verify", "--recursive-errors=no", "--man=no",
                           *glob.glob(folder + "/*.service"))
            ours = [line for line in verified.stderr.splitlines() if "trireme" in line]
            self.assertEqual((verified.returncode, ours), (0, []), verified.stderr)


if __name__ == "__main__":
    BIN = os.path.abspath(sys.argv.pop(1))
    skips.main()
