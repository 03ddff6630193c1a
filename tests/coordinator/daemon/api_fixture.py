"""A daemon as programs see it: the stubs that the build generates for Python, and people with tokens. Run by the system's
python3, which has gRPC by Debian's python3-grpcio; where it has not, tests are skipped."""
import os
import sys

from daemon_fixture import DaemonCase, until

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
import skips  # noqa: E402

try:
    import grpc
except ImportError as error:
    skips.leave(f"{skips.NOT_INSTALLED}{error} (Debian: python3-grpcio, python3-protobuf)")

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
TIMEOUT_S = 60
PEOPLE = {"ann": "submit", "ben": "submit", "root": "admin"}


def main():
    DaemonCase.bin = os.path.abspath(sys.argv.pop(1))
    skips.main()


def token_of(person):
    return [("authorization", f"Bearer token-of-{person}-0123456789")] if person else []


class ApiCase(DaemonCase):
    """`self.api`, `self.spec`: messages; `self.stub`: calls of the one who may open the socket."""

    @classmethod
    def setUpClass(cls):
        sys.path.insert(0, os.path.join(os.path.dirname(cls.bin), "python"))
        from trireme.v1 import control_pb2, control_pb2_grpc, job_spec_pb2
        cls.api, cls.spec, cls.stubs = control_pb2, job_spec_pb2, control_pb2_grpc

    def channel(self, address=None):
        channel = grpc.insecure_channel(address or f"unix:{self.folder}/s.sock", options=[
            ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0),
            ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)])
        self.addCleanup(channel.close)
        return channel

    def start_daemon(self, *arguments):
        super().start_daemon(*arguments)
        self.stub = self.stubs.ControlStub(self.channel())

    def start_daemon_with_people(self, *arguments):
        """Listens at a port as well, where PEOPLE have tokens; returns its address."""
        self.write("tokens", "".join(f"{role} {person} token-of-{person}-0123456789\n"
                                     for person, role in PEOPLE.items()), 0o600)
        folders = () if "--allow-folder" in arguments else ("--allow-folder", self.folder)
        self.start_daemon("--listen", "127.0.0.1:0", "--token-file", f"{self.folder}/tokens", *folders, *arguments)
        return f"127.0.0.1:{until(self.ready_port, 'the port in the log', self.told)}"

    def job(self, steps=30, **fields):
        """The JobSpec of a tiny job."""
        spec = self.spec
        job = spec.JobSpec(name="tiny", data=spec.DataSpec(
            text_files=[f"{self.folder}/data/text.txt"], tokenizer="char", sequence_length=16), **fields)
        job.model.config.MergeFrom(spec.ModelConfig(model_type="gpt2", hidden_size=32, num_hidden_layers=2,
                                                    num_attention_heads=2))
        job.training.MergeFrom(spec.TrainingSpec(steps=steps, global_batch_size=4, micro_batch_size=2))
        return job

    def code_of(self, call):
        """The name of the code that a call or a stream ends with."""
        try:
            answer = call()
            if hasattr(answer, "__next__"):
                for _ in answer:
                    pass
            return "OK"
        except grpc.RpcError as error:
            self.last_error = error.details()
            return error.code().name
