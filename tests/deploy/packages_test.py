#!/usr/bin/env python3
"""The Debian packages: made from what is built, looked into, checked by lintian, and installed into a copy of this
machine's root that vanishes (an overlay in a namespace of its own). Skipped, with the reason, where that is not possible.

Usage: packages_test.py BUILD_FOLDER [Packages.test_NAME ...]
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

BUILD = ""
LIMIT_S = 250
NAMES = ("trireme", "trireme-coordinator", "libtrireme-codec-dev")
FILES = {"trireme": ("bin/trireme", "bin/trireme-worker", "share/trireme/examples/demo.yaml",
                     "share/trireme/kubernetes/mpijob.yaml",
                     "share/trireme/modules/trireme.lua", "share/doc/trireme/operations.md",
                     "share/doc/trireme/operations/reference.md",
                     "share/doc/trireme/copyright"),
         "trireme-coordinator": ("bin/triremed", "bin/trireme-agent", "lib/systemd/system/triremed.service",
                                 "lib/systemd/system/trireme-agent.service", "lib/sysusers.d/trireme.conf",
                                 "share/trireme/config/triremed.toml", "share/trireme/config/agent.toml",
                                 "share/trireme/prometheus/alerts.yaml", "share/trireme/grafana/trireme.json",
                                 "share/doc/trireme-coordinator/copyright"),
         "libtrireme-codec-dev": ("lib/libtrireme_codec.so", "lib/libtrireme_codec.so.1", "include/trireme_codec.h",
                                  "lib/pkgconfig/trireme-codec.pc")}
# For the archive of Debian: a changelog in its form, an address that takes mail.
NOT_OURS = "no-changelog,bogus-mail-host"

# In a copy of the root: install, what is there, an upgrade to itself, and what is left.
INSTALL = r"""
set -eu
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --bind "$2" "$1/root/mnt"
mount -t proc proc "$1/root/proc"
mount --bind /dev "$1/root/dev"
cat > "$1/root/tmp/inside" <<'END'
set -eu
export DEBIAN_FRONTEND=noninteractive
cd /mnt
dpkg --install *.deb
test "$(dpkg-query --show --showformat='${db:Status-Status}' trireme-coordinator)" = installed
/usr/bin/trireme version
/usr/bin/triremed --help >/dev/null
/usr/bin/trireme-agent --help >/dev/null
getent passwd trireme
cmp /usr/share/trireme/config/triremed.toml /etc/trireme/triremed.toml
echo 'max-events = 5000' >> /etc/trireme/agent.toml
rm /etc/trireme/triremed.toml
systemd-analyze verify --man=no /usr/lib/systemd/system/triremed.service /usr/lib/systemd/system/trireme-agent.service
cd /usr/share/trireme/examples
/usr/bin/trireme plan gpt2_124m.yaml --ranks 4 >/dev/null
dpkg --install /mnt/trireme-coordinator_*.deb
grep -q max-events /etc/trireme/agent.toml
test ! -e /etc/trireme/triremed.toml
dpkg --remove trireme-coordinator trireme libtrireme-codec-dev
test ! -e /usr/bin/triremed
test ! -e /usr/share/trireme
test -e /etc/trireme/agent.toml
dpkg --purge trireme-coordinator
test ! -e /etc/trireme
echo all done
END
chroot "$1/root" /bin/sh /tmp/inside
"""


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                          stdin=subprocess.DEVNULL, **options)


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for program in ("cpack", "dpkg-deb", "dpkg-shlibdeps"):
            if not shutil.which(program):
                raise unittest.SkipTest(skips.NOT_INSTALLED + program)
        cls.folder = tempfile.mkdtemp(prefix="trireme_packages_")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        made = run("cpack", "--config", f"{BUILD}/CPackConfig.cmake", "-B", cls.folder, cwd=cls.folder)
        assert made.returncode == 0, made.stdout + made.stderr
        shutil.rmtree(f"{cls.folder}/_CPack_Packages")
        cls.debs = {os.path.basename(path).split("_")[0]: path for path in glob.glob(cls.folder + "/*.deb")}

    def field(self, package, name):
        return run("dpkg-deb", "--field", self.debs[package], name).stdout.strip()

    def test_contents(self):
        self.assertEqual(sorted(self.debs), sorted(NAMES))
        versions = {self.field(name, "Version") for name in NAMES}
        self.assertEqual(len(versions), 1, versions)
        owners = set()
        for name in NAMES:
            listed = run("dpkg-deb", "--contents", self.debs[name]).stdout
            for path in FILES[name]:
                self.assertRegex(listed, rf" \./usr/{re.escape(path)}(?: |\n)")
            for line in listed.splitlines():
                mode, owner, _, _, _, path, *_ = line.split()
                owners.add(owner)
                self.assertTrue(mode[0] == "l" or mode[8] == "-", line)  # nobody else may write
                self.assertTrue(path.startswith("./usr/") or path in ("./", "./usr/"), line)
                self.assertNotIn(" ", path)
        self.assertEqual(owners, {"root/root"})
        depends = {name: self.field(name, "Depends") for name in NAMES}
        self.assertRegex(depends["trireme"], r"\blibc6 \(>= ")
        self.assertRegex(depends["trireme"], r"\bopenmpi-bin\b")
        self.assertRegex(depends["trireme"], r"\blibdnnl")
        coordinator = depends["trireme-coordinator"]
        self.assertIn(f"trireme (= {versions.pop()})", coordinator)
        self.assertRegex(coordinator, r"\blibgrpc\+\+")
        self.assertRegex(coordinator, r"\blibsqlite3-0\b")
        self.assertNotRegex(coordinator, r"openmpi|dnnl|openblas")

    def test_lintian(self):
        if not shutil.which("lintian"):
            self.skipTest(skips.NOT_INSTALLED + "lintian")
        said = run("lintian", "--allow-root", "--tag-display-limit", "0", "--suppress-tags", NOT_OURS, *self.debs.values())
        errors = [line for line in said.stdout.splitlines() if line.startswith("E:")]
        self.assertEqual(errors, [], said.stdout + said.stderr)

    def test_install(self):
        if os.geteuid() != 0:
            self.skipTest("not here: root")
        root = tempfile.mkdtemp(prefix="trireme_root_")
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        debs = tempfile.mkdtemp(prefix="trireme_debs_")
        self.addCleanup(shutil.rmtree, debs, ignore_errors=True)
        for path in self.debs.values():
            shutil.copy(path, debs)
        tried = run("unshare", "--mount", "--propagation", "private", "sh", "-c",
                    'mount -t tmpfs t "$1" && mkdir "$1/u" "$1/w" "$1/r" && mount -t overlay o -o '
                    '"lowerdir=/,upperdir=$1/u,workdir=$1/w" "$1/r"', "sh", root)
        if tried.returncode != 0:
            self.skipTest("not here: namespaces and an overlay: " + tried.stderr.strip())
        done = run("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", "-c",
                   INSTALL, "sh", root, debs)
        self.assertEqual(done.returncode, 0, done.stdout[-6000:] + done.stderr[-6000:])
        self.assertIn("all done", done.stdout)


if __name__ == "__main__":
    BUILD = os.path.abspath(sys.argv.pop(1))
    skips.main()
