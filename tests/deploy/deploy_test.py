#!/usr/bin/env python3
"""The ready-made files of deploy/: what they name exists, and the options that they give are known.

Usage: deploy_test.py BIN_FOLDER [Deploy.test_NAME ...]
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = ""
PROGRAMS = {"trireme", "trireme-worker", "triremed", "trireme-agent"}
# Of Debian's essential and base systems, or chosen by whoever runs the image.
OF_EVERY_IMAGE = {"openssh-server", "openssh-client", "ca-certificates"}


def read(path):
    with open(os.path.join(SOURCE, path), encoding="utf-8") as file:
        return file.read()


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


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
        try:
            import yaml
        except ImportError:
            return
        self.assertEqual(yaml.safe_load(text)["kind"], "MPIJob")

    def test_module(self):
        text = read("deploy/modules/trireme.lua")
        install = read("cmake/Install.cmake")
        for path in re.findall(r'pathJoin\(prefix, "([^"]+)"\)', text):
            variable = {"bin": "CMAKE_INSTALL_BINDIR", "share": "CMAKE_INSTALL_DATADIR"}.get(path.split("/")[0], path)
            self.assertIn(variable, install)
        self.assertEqual(text.count("("), text.count(")"))
        luac = next(iter(shutil.which(name) for name in ("luac", "luac5.4", "luac5.3") if shutil.which(name)), None)
        if luac:
            checked = run(luac, "-p", os.path.join(SOURCE, "deploy/modules/trireme.lua"))
            self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_units(self):
        units = sorted(glob.glob(SOURCE + "/deploy/systemd/*.service"))
        self.assertEqual(len(units), 2)
        with tempfile.TemporaryDirectory(prefix="trireme_units_") as folder:
            for unit in units:
                text = read(unit)
                [start] = re.findall(r"^ExecStart=/usr/bin/(.*)$", text.replace("\\\n", " "), re.M)
                program, *words = start.split()
                self.assertIn(program, PROGRAMS)
                said = run(f"{BIN}/{program}", "--help").stdout
                for option in (word for word in words if word.startswith("--")):
                    self.assertIn(option, said)
                self.assertRegex(text, r"(?m)^User=trireme$")
                self.assertRegex(text, r"(?m)^NoNewPrivileges=yes$")
                with open(f"{folder}/{os.path.basename(unit)}", "w", encoding="utf-8") as file:
                    file.write(text.replace("/usr/bin/", BIN + "/"))
            self.assertIn("u trireme ", read("deploy/debian/trireme.sysusers"))
            if not shutil.which("systemd-analyze"):
                self.skipTest("needs systemd-analyze")
            verified = run("systemd-analyze", "verify", "--recursive-errors=no", "--man=no",
                           *glob.glob(folder + "/*.service"))
            ours = [line for line in verified.stderr.splitlines() if "trireme" in line]
            self.assertEqual((verified.returncode, ours), (0, []), verified.stderr)


if __name__ == "__main__":
    BIN = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
