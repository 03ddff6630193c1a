#!/usr/bin/env python3
"""What mpirun takes for ssh between hosts of hosts.py: over the network that a test cuts, to processes that only their own
host sees, its user's rights and no more.

  remote_shell.py serve ADDRESS          # on each host; prints "up"
  remote_shell.py HOSTNAME COMMAND...    # its words as one line for sh, its output and its exit code here; hostN is 10.78.0.N
"""
import re
import socket
import socketserver
import subprocess
import sys

PORT = 2222
CONNECT_S = 10


class Session(socketserver.StreamRequestHandler):
    """A line with the command in; out comes what it prints, and its exit code as the last line. Ends when all that holds the
    command's output has ended: a daemon that closes it runs on, as under ssh."""

    def handle(self):
        command = self.rfile.readline().decode().rstrip("\n")
        with subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT) as process:
            for line in process.stdout:
                self.wfile.write(line if line.endswith(b"\n") else line + b"\n")
            self.wfile.write(b"%d\n" % process.wait())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def serve(address):
    with Server((address, PORT), Session) as server:
        print("up", flush=True)
        server.serve_forever()


def run(host, words):
    number = re.fullmatch(r"host(\d+)", host)
    if not number:
        print(f"no host {host}", file=sys.stderr)
        return 1
    with socket.create_connection((f"10.78.0.{number[1]}", PORT), CONNECT_S) as line:
        line.settimeout(None)
        line.sendall(" ".join(words).encode() + b"\n")
        last = b""
        for text in line.makefile("rb"):
            sys.stdout.buffer.write(last)
            sys.stdout.buffer.flush()
            last = text
    return int(last) if re.fullmatch(rb"-?\d+\n", last) else 255


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    sys.exit(run(sys.argv[1], sys.argv[2:]))
