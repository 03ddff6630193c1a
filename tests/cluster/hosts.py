#!/usr/bin/env python3
"""Several hosts on this one machine, for tests and measurements: each has a network, processes, a host name and a /dev/shm of its own, joined by a switch whose links can be slowed down. All of it lies in namespaces of this program and is
gone when it ends, however that happens. Needs root.

  hosts.py --hosts 2 --rate 1gbit -- build/release/bin/bench_comm    # one rank on each of two hosts, by mpirun
  hosts.py --hosts 4 --ranks 2 -- PROGRAM ARGUMENT...                # two ranks on each of four
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

LIMIT_S = 20  # of one administrative command
INSIDE = "--inside-namespaces"
OUTER = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
HOST = ["--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
REMOTE_SHELL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "remote_shell.py")
# tbf's bucket must hold what a timer tick lets through: 10 Gb/s needs megabytes, 1 Gb/s is smoother with less.
BURSTS = {"gbit": 400_000, "mbit": 64_000}  # bytes per unit of rate, but for small rates


def missing():
    """Why there can be no hosts here, or None."""
    if os.geteuid() != 0:
        return "not here: root; it makes network namespaces"
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("unshare", "util-linux"), ("nsenter", "util-linux"),
                             ("mpirun", "openmpi-bin")):
        if shutil.which(program) is None:
            return f"{skips.NOT_INSTALLED}{program} (Debian: {package})"
    tried = subprocess.run(["unshare", *OUTER, "true"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return None if tried.returncode == 0 else "not here: namespaces: " + tried.stderr.strip()


def enter():
    """Starts this program again inside namespaces of its own; returns only there. As their first process it takes all
    hosts with it."""
    if INSIDE in sys.argv:
        sys.argv.remove(INSIDE)
        return
    os.execvp("unshare", ["unshare", *OUTER, sys.executable, "-B", *sys.argv, INSIDE])


def administer(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def burst_of(rate):
    """Bytes of tbf's bucket for a rate like 1gbit."""
    for unit, per_unit in BURSTS.items():
        if rate.endswith(unit):
            return max(64_000, int(float(rate[:-len(unit)]) * per_unit))
    raise ValueError(f"rate '{rate}': expected a number and gbit or mbit")


class Hosts:
    """Hosts numbered from 1, at 10.78.0.NUMBER; this program is at 10.78.0.254. Call enter() first. `own_tmp`: each has a /tmp of its own, as machines have;
    what they share, `folder` too, is then below /var/tmp."""

    def __init__(self, count, rate=None, shared_memory="4g", own_tmp=False):
        self.folder = tempfile.mkdtemp(prefix="trireme_hosts_", dir="/var/tmp" if own_tmp else None)
        self.shell = shutil.copy(REMOTE_SHELL, self.folder)  # the hosts may not see where it lies
        self.own_tmp = own_tmp
        self.holders = []
        self.shells = []
        administer("ip", "link", "set", "lo", "up")
        administer("ip", "link", "add", "switch", "type", "bridge")
        administer("ip", "addr", "add", "10.78.0.254/24", "dev", "switch")
        administer("ip", "link", "set", "switch", "up")
        self.agent = os.path.join(self.folder, "remote_shell")
        with open(self.agent, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {sys.executable} -B {self.shell} "$@"\n')
        os.chmod(self.agent, 0o755)
        for number in range(1, count + 1):
            self.start(number, shared_memory)
            if rate:
                self.limit(number, rate)

    def start(self, number, shared_memory):
        # The holder is the first process of the host: whoever kills it switches the host off.
        script = (f"hostname host{number}; mount -t tmpfs -o size={shared_memory} shm /dev/shm; ip link set lo up; "
                  + ("mount -t tmpfs -o mode=1777 tmp /tmp; " if self.own_tmp else "") + "echo up; exec sleep infinity")
        holder = subprocess.Popen(["unshare", *HOST, "--propagation", "private", "sh", "-c", script],
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if holder.stdout.readline().strip() != "up":
            raise RuntimeError(f"host {number} did not come up")
        with open(f"/proc/{holder.pid}/task/{holder.pid}/children", encoding="ascii") as file:
            first = int(file.read().split()[0])
        self.holders.append((holder, first))
        port = f"port{number}"
        administer("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(first))
        administer("ip", "link", "set", port, "master", "switch", "up")
        administer(*self.enter_command(number), "ip", "addr", "add", f"10.78.0.{number}/24", "dev", "eth0")
        administer(*self.enter_command(number), "ip", "link", "set", "eth0", "up")
        # Not in the folder of the caller, whose processes are looked for by its name.
        shell = subprocess.Popen([*self.enter_command(number, "/"), sys.executable, "-B", self.shell, "serve", f"10.78.0.{number}"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.shells.append(shell)
        if shell.stdout.readline().strip() != "up":
            raise RuntimeError(f"host {number} has no remote shell")

    def enter_command(self, number, folder=None):
        """Words before a command that is to run on a host; the folder of the caller is kept."""
        return ["nsenter", "-t", str(self.holders[number - 1][1]), "-m", "-n", "-u", "-i", "-p", "--wd=" + (folder or os.getcwd())]

    def limit(self, number, rate):
        """Both ways of a host's link: what it sends, and what the switch sends to it."""
        shape = ["root", "tbf", "rate", rate, "burst", str(burst_of(rate)), "latency", "50ms"]
        administer(*self.enter_command(number), "tc", "qdisc", "replace", "dev", "eth0", *shape)
        administer("tc", "qdisc", "replace", "dev", f"port{number}", *shape)

    def cut(self, number):
        """Pulls the plug of the network."""
        administer("ip", "link", "set", f"port{number}", "down")

    def mend(self, number):
        """And puts it in again."""
        administer("ip", "link", "set", f"port{number}", "up")

    def switch_off(self, number):
        """All processes of a host end at once."""
        os.kill(self.holders[number - 1][1], signal.SIGKILL)

    def settings(self):
        """What Open MPI must know to reach from host 1 to the others, by TCP."""
        return {"plm": "rsh", "plm_rsh_agent": self.agent, "plm_rsh_no_tree_spawn": "1", "btl": "self,vader,tcp",
                "btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0"}

    def mpirun(self, command, ranks_per_host=1, options=()):
        """The words that run `command` on all hosts, from host 1, by TCP between them."""
        names = ",".join(f"host{number}:{ranks_per_host}" for number in range(1, len(self.holders) + 1))
        words = ["mpirun", "-n", str(len(self.holders) * ranks_per_host), "--host", names, "--allow-run-as-root"]
        settings = {**self.settings(), "orte_tmpdir_base": self.folder, "odls_base_sigkill_timeout": "0",
                    "mpi_yield_when_idle": "1"}
        for key, value in settings.items():
            words += ["--mca", key, value]
        return [*self.enter_command(1), *words, *options, *command]

    def close(self):
        for holder, _ in self.holders:
            holder.kill()
            holder.wait()
        for shell in self.shells:
            shell.wait(LIMIT_S)
            shell.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=1, help="ranks on each host (default 1)")
    parser.add_argument("--rate", help="of each link, as 1gbit; not limited if left out")
    parser.add_argument("--limit", type=int, default=600, help="seconds, after which all is ended (default 600)")
    parser.add_argument("command", nargs="+", help="after --")
    arguments = parser.parse_args([word for word in sys.argv[1:] if word != INSIDE])
    reason = missing() if INSIDE not in sys.argv else None
    if reason:
        print(f"hosts: {reason}", file=sys.stderr)
        return 77
    enter()
    hosts = Hosts(arguments.hosts, arguments.rate)
    try:
        return subprocess.run(hosts.mpirun(arguments.command, arguments.ranks), timeout=arguments.limit,
                              check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"hosts: not done after {arguments.limit} s", file=sys.stderr)
        return 124
    finally:
        hosts.close()


if __name__ == "__main__":
    sys.exit(main())
