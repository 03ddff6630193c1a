"""A daemon here and an agent on each of some hosts (hosts.py), whose jobs mpirun starts over a list of hosts: what the
tests of several nodes without Slurm begin with. Every wait has a deadline."""
import glob
import os
import shutil
import subprocess
import sys

import hosts

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../coordinator/daemon"))
import daemon_fixture  # noqa: E402
from daemon_fixture import read, until  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

ADDRESS = "10.78.0.254"
PORT = 7443
TOKEN = "0123456789abcdef0123456789abcdef"
STEPS = 1500
JOB = (daemon_fixture.JOB.replace("steps: 30", f"steps: {STEPS}").replace("global_batch_size: 4", "global_batch_size: 12")
       .replace("learning_rate: 0.01", "learning_rate: 0.001").replace("every_steps: 10", "every_steps: 100"))


class HostsCase(daemon_fixture.DaemonCase):
    built = ""
    names = {1: "host1", 2: "host2", 3: "host3"}  # host: its agent's node
    parent = "/var/tmp"  # what the hosts share

    def setUp(self):
        super().setUp()
        for program in ("trireme", "triremed", "trireme-agent", "trireme-worker"):  # the hosts have a /tmp of their own
            shutil.copy(f"{self.built}/{program}", self.folder)
        self.bin = self.folder
        os.chdir(self.folder)
        self.addCleanup(os.chdir, "/")
        self.hosts = hosts.Hosts(len(self.names), shared_memory="512m", own_tmp=True)
        self.addCleanup(self.hosts.close)
        self.write("job.yaml", JOB)
        self.write("tokens", f"agent hosts {TOKEN}\n", 0o600)
        self.write("token", TOKEN + "\n", 0o600)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-subj", "/CN=trireme", "-addext", f"subjectAltName=IP:{ADDRESS}", "-days", "2", "-keyout",
                        f"{self.folder}/key.pem", "-out", f"{self.folder}/cert.pem"], check=True, capture_output=True)
        for number in self.names:
            self.start_agent(number)
        self.start_daemon("--no-agent", "--listen", f"{ADDRESS}:{PORT}", "--token-file", f"{self.folder}/tokens",
                          "--certificate", f"{self.folder}/cert.pem", "--key", f"{self.folder}/key.pem",
                          "--allow-folder", self.folder)
        until(lambda: len(self.ask("nodes")["nodes"]) == len(set(self.names.values())), "all nodes are there", self.told)

    def environment_of_agents(self):
        return {}

    def arguments_of_agent(self, _number):
        return []

    def start_agent(self, number):
        command = [*self.hosts.enter_command(number), f"{self.bin}/trireme-agent", "--coordinator", f"{ADDRESS}:{PORT}",
                   "--token-file", f"{self.folder}/token", "--ca-file", f"{self.folder}/cert.pem", "--state-dir",
                   f"{self.folder}/state/agent{number}", "--node", self.names[number],
                   *self.arguments_of_agent(number)]
        settings = {f"OMPI_MCA_{key}": value for key, value in self.hosts.settings().items()}
        with open(f"{self.folder}/agent{number}.log", "a", encoding="utf-8") as log:
            agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     env={**os.environ, **settings, **self.environment_of_agents()})
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        return agent

    def told(self):
        launches = "".join(f"--- {path}\n{read(path)[-2000:]}" for path in
                           sorted(glob.glob(f"{self.folder}/state/jobs/*/attempts/*/logs/*.log")))
        return super().told() + launches + "".join(f"--- agent {number}\n{read(f'{self.folder}/agent{number}.log')[-3000:]}"
                                        for number in self.names)

    def node(self, number):
        return next(node for node in self.ask("nodes")["nodes"] if node["name"] == self.names[number])

    def nodes_of(self, job):
        return [place["node"] for place in self.show(job)["allocation"]]

    def isolate(self, number, folder):
        """From the network, and from the run folders: new looks fail there as on a server that is gone (a file system in user
        space whose program has ended), and go on in files that are open. An empty folder would be one that was removed."""
        self.hosts.cut(number)
        if folder:
            hosts.administer(*self.hosts.enter_command(number), "sh", "-c", "exec 3<>/dev/fuse; exec mount -i -t fuse "
                             f"-o fd=3,rootmode=40000,user_id=0,group_id=0 away {self.folder}/state/jobs")

    def ranks_on(self, number):
        """Processes of ranks on a host, which sees its own alone."""
        command = [*self.hosts.enter_command(number), "pgrep", "-c", "-r", "R,S,D,T", "-f", "^[^ ]*trireme-worker"]
        found = subprocess.run(command, check=False, capture_output=True, text=True)
        return int(found.stdout or 0)

    def cancel(self, job):
        self.ask("cancel", str(job))
        until(lambda: self.show(job)["status"]["state"] == "JOB_CANCELLED", "it is cancelled", self.told, 60)

    def reach_attempt(self, job, attempt):
        def runs():
            status = self.show(job)["status"]
            self.assertNotIn(status["state"], daemon_fixture.ENDED, self.told())
            return (status["attempt"], status["state"]) == (attempt, "JOB_RUNNING")
        until(runs, f"attempt {attempt} runs", self.told, 180)
        first = max(self.losses(job), default=0)
        until(lambda: max(self.losses(job), default=0) > first, f"a step of attempt {attempt}", self.told, 60)


def main():
    """Of a program of tests: its first argument is the folder of the programs."""
    reason = (hosts.missing() or (None if shutil.which("openssl") else skips.NOT_INSTALLED + "openssl") or
              (None if os.path.exists("/dev/fuse") else "not here: /dev/fuse"))
    if reason:
        skips.leave(reason)
    hosts.enter()
    HostsCase.built = os.path.abspath(sys.argv.pop(1))
    skips.main()
