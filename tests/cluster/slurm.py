"""A real Slurm on this one machine, for tests: munged, slurmctld and one slurmd per node, in namespaces of their own
(network, processes, mounts, host name), so that neither a Slurm nor a munge of the machine is touched, and that all of
it is gone when the first process of the namespaces is, however that ends.
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

HOST = "trireme-slurm"
ADDRESS = "10.77.0.1"  # of a veth: Open MPI's TCP does not use the loopback device between nodes
LIMIT_S = 60  # of one command
INSIDE = "--inside"

CONFIGURATION = """ClusterName=trireme
SlurmctldHost={host}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdTimeout=30
KillWait=10
ReturnToService=2
JobRequeue=1
MailProg=/bin/true
GresTypes=gpu
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/log/slurmctld
SlurmdParameters=config_overrides
SlurmdSpoolDir={folder}/spool/%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/log/slurmd.%n
# PMIx of nodes that share a folder would take each other's files.
TmpFS={folder}/tmp/%n
"""


def missing():
    """Why there can be no cluster here, or None."""
    if os.geteuid() != 0:
        return "not here: root; it starts daemons in namespaces of their own"
    for program, package in (("munged", "munge"), ("slurmctld", "slurm-wlm"), ("slurmd", "slurm-wlm"),
                             ("srun", "slurm-wlm"), ("ip", "iproute2"), ("unshare", "util-linux")):
        if shutil.which(program) is None:
            return f"{skips.NOT_INSTALLED}{program} (Debian: {package}); deploy/install_packages cluster"
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, timeout=LIMIT_S,
                           check=False)
    return None if tried.returncode == 0 else "not here: namespaces: " + tried.stderr.strip()


NODE_NAMESPACES = ["--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
NAMESPACES = ["--net", *NODE_NAMESPACES]
# Two nodes with one name would take each other's segments in /dev/shm.
NODE = 'hostname "$0" && mount -t tmpfs tmpfs /dev/shm && slurmd -D -N "$0"; exit $?'


def enter():
    """Starts this program again in namespaces of its own; returns only inside them."""
    if sys.argv[-1] == INSIDE:
        sys.argv.pop()
        return
    # A shell is the first process there: it collects the dead daemons.
    os.execvp("unshare", ["unshare", *NAMESPACES, "sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-B", *sys.argv,
                          INSIDE])


def enter_or_skip():
    why_not = missing()
    if why_not:
        skips.leave(why_not)
    enter()


def call(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                          check=False, **options)


def must(*command, **options):
    result = call(*command, **options)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: exit {result.returncode}: {result.stdout}{result.stderr}")
    return result.stdout


def run_until(command, reached, seconds=150, **options):
    """Runs a `trireme run` until `reached`, then has it stop with a checkpoint."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **options)
    try:
        end = time.monotonic() + seconds
        while not reached():
            if process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{command} has not come so far within {seconds} s")
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(LIMIT_S)
    if code != 75:
        raise AssertionError(f"{command}: exit code {code}")


class Slurm:
    """The cluster; `nodes` of `cpus` cores each. Commands see it through `environment`."""

    def __init__(self, folder, nodes, cpus):
        self.folder = folder
        self.nodes = [f"n{number + 1}" for number in range(nodes)]
        self.cpus = cpus
        self.environment = dict(os.environ, SLURM_CONF=folder + "/slurm.conf")
        self.daemons = []

    def start(self):
        for name in ("state", "log", *[f"{kind}/{node}" for kind in ("spool", "tmp") for node in self.nodes]):
            os.makedirs(f"{self.folder}/{name}")
        self.network()
        with open(self.folder + "/slurm.conf", "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(host=HOST, address=ADDRESS, folder=self.folder))
            for number, node in enumerate(self.nodes):
                file.write(f"NodeName={node} NodeHostname={HOST} NodeAddr={ADDRESS} Port={17001 + number} "
                           f"CPUs={self.cpus} RealMemory=1000 Gres=gpu:2\n")
            file.write(f"PartitionName=main Nodes={','.join(self.nodes)} Default=YES\n")
        with open(self.folder + "/gres.conf", "w", encoding="utf-8") as file:
            # Counted and bound, never opened; without a file slurmd finds none.
            file.write("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")
        key = self.folder + "/munge.key"
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
            file.write(os.urandom(128))
        # --force: the folder is ours alone, which munge calls inaccessible.
        self.daemon("munged", "--foreground", "--force", "--key-file", key, "--socket", self.folder + "/munge.socket",
                    "--pid-file", self.folder + "/munge.pid", "--log-file", self.folder + "/log/munge",
                    "--seed-file", self.folder + "/munge.seed")
        self.until(lambda: os.path.exists(self.folder + "/munge.socket"), "munged listens")
        self.daemon("slurmctld", "-D", "-c")
        for node in self.nodes:
            # A node has a host name, processes and shared memory of its own, as a machine has.
            self.daemon("unshare", *NODE_NAMESPACES, "sh", "-c", NODE, node)
        self.until(self.idle, "all nodes are idle")

    def fail(self, node):
        """The node dies with all its processes, as in a power cut."""
        daemon = next(each for each in self.daemons if each.args[-1] == node)
        self.daemons.remove(daemon)
        daemon.kill()
        daemon.wait()

    def network(self):
        """Name and address of this host in the namespaces."""
        socket.sethostname(HOST)
        with open(self.folder + "/hosts", "w", encoding="utf-8") as file:
            file.write(f"127.0.0.1 localhost\n{ADDRESS} {HOST}\n")
        must("mount", "--bind", self.folder + "/hosts", "/etc/hosts")
        must("ip", "link", "set", "lo", "up")
        must("ip", "link", "add", "oar0", "type", "veth", "peer", "name", "oar1")
        must("ip", "addr", "add", ADDRESS + "/24", "dev", "oar0")
        for device in ("oar0", "oar1"):
            must("ip", "link", "set", device, "up")

    def daemon(self, *command):
        with open(f"{self.folder}/log/{command[0]}.{len(self.daemons)}.out", "w", encoding="utf-8") as output:
            self.daemons.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                                 env=self.environment))

    def stop(self):
        """Every daemon by its own pid; the last started first."""
        for daemon in reversed(self.daemons):
            # A node dies with its first process; unshare does not hand a SIGTERM on.
            if daemon.args[0] == "unshare":
                daemon.kill()
            daemon.terminate()
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        call("ip", "link", "delete", "oar0")
        call("umount", "/etc/hosts")

    def states(self):
        """{node: state}; a star after it says that the node does not answer."""
        said = call("sinfo", "-h", "-N", "-o", "%N %t", env=self.environment).stdout.split()
        return dict(zip(said[::2], said[1::2]))

    def idle(self):
        return self.states() == dict.fromkeys(self.nodes, "idle")

    def until(self, condition, what, seconds=LIMIT_S):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            dead = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            if dead:
                raise AssertionError(f"{dead[0]} ended while waiting: {what}\n{self.logs()}")
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {what}\n{self.logs()}")

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.folder + "/log")):
            with open(f"{self.folder}/log/{name}", encoding="utf-8", errors="replace") as file:
                text += f"-- {name}\n" + "".join(file.readlines()[-15:])
        return text
