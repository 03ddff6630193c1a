#!/usr/bin/env python3
"""Broken and hostile callers: each is refused with the right code, nothing changes, and others are served meanwhile.
Usage: hostile_test.py BIN_FOLDER [Hostile.test_NAME ...]"""
import hashlib
import os
import random
import shutil
import socket
import struct
import time

from api_fixture import ROOT, TIMEOUT_S, ApiCase, grpc, main, token_of
from daemon_fixture import LIMIT_S, read, until

SEED = 5
MESSAGES = 30  # of each kind for each call
REFUSALS = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "PERMISSION_DENIED", "OUT_OF_RANGE",
            "RESOURCE_EXHAUSTED"}
NASTY_TEXTS = ["", "a;reboot", "$(touch /tmp/x)", "`id`", "../../etc/passwd", "/etc/passwd", "a\nb", "a\0b", "-rf", "%s%n",
               "x" * 5000, "\u202egnp", "'; DROP TABLE jobs; --"]
NASTY_NUMBERS = [0, 1, -1, 2 ** 31 - 1, -2 ** 31, 2 ** 63 - 1, -2 ** 63, 2 ** 64 - 1]
NASTY_REALS = [0.0, -1.0, 1e308, float("nan"), float("inf"), -float("inf"), 5e-324]


class Hostile(ApiCase):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)

    def begin_with_jobs(self, *arguments):
        """A daemon on which nothing runs, a job of ann that waits, and what it may have left behind."""
        address = self.start_daemon_with_people("--allow-folder", f"{self.folder}/data", *arguments)
        self.stub.Drain(self.api.DrainRequest(node="n1", reason="nothing runs here"), timeout=TIMEOUT_S)
        channel = self.channel(address)
        stub = self.stubs.ControlStub(channel)
        self.of_ann = stub.Submit(self.api.SubmitRequest(request_id="first", job=self.job()), timeout=TIMEOUT_S,
                                  metadata=token_of("ann")).job
        os.makedirs(self.of_ann.run_folder, exist_ok=True)
        self.write("secret.svg", "secret")
        os.symlink(f"{self.folder}/secret.svg", f"{self.of_ann.run_folder}/link.svg")
        # Why it waits does not change any more: its node has come.
        until(lambda: "nothing runs here" in self.stub.Get(self.api.GetRequest(job_id=1), timeout=TIMEOUT_S).waits_for,
              "it waits", self.told)
        return channel, stub

    def kept(self):
        """All that a caller could have changed: jobs, nodes, and the bytes of the store."""
        jobs = self.stub.List(self.api.ListRequest(page_size=1000), timeout=TIMEOUT_S)
        nodes = self.stub.GetCluster(self.api.GetClusterRequest(), timeout=TIMEOUT_S).nodes
        store = hashlib.sha256()
        for name in ("jobs.db", "jobs.db-wal"):
            with open(f"{self.folder}/state/{name}", "rb") as file:
                store.update(file.read())
        files = sorted(os.path.join(at, name) for at, folders, names in os.walk(self.folder) for name in folders + names
                       if not name.startswith(("recorder", "trireme-")) and "/agent" not in at)
        return (jobs.SerializeToString(deterministic=True), [(n.name, n.drained, n.reason) for n in nodes],
                store.hexdigest(), files)

    def methods(self):
        """(path, whether its answer is a stream, class of its request) of every call of the service Control."""
        service = self.api.DESCRIPTOR.services_by_name["Control"]
        streams = {"Watch", "Logs", "Export", "ReadFile", "Backup"}
        return [(f"/trireme.v1.Control/{method.name}", method.name in streams,
                 getattr(self.api, method.input_type.name)) for method in service.methods]

    def call(self, channel, method, request, person, timeout=TIMEOUT_S):
        """The code's name; of a stream, of its first words, which may be none for a while."""
        path, streams, _ = method
        raw = request if isinstance(request, bytes) else request.SerializeToString()
        kind = channel.unary_stream if streams else channel.unary_unary
        send = kind(path, request_serializer=lambda message: message, response_deserializer=lambda message: message)
        try:
            answer = send(raw, timeout=timeout, metadata=token_of(person))
            if streams:
                for _ in answer:
                    break
                answer.cancel()
            return "OK"
        except grpc.RpcError as error:
            self.last_error = error.details()
            return error.code().name

    def random_message(self, kind, depth=0):
        """Fields filled at random with what programs stumble over."""
        message = kind()
        for field in kind.DESCRIPTOR.fields:
            if self.random.random() < 0.4:
                continue
            values = [self.random_value(field, depth) for _ in range(self.random.randint(1, 3))]
            if field.label == field.LABEL_REPEATED:
                getattr(message, field.name).extend(values)
            elif field.cpp_type == field.CPPTYPE_MESSAGE:
                getattr(message, field.name).CopyFrom(values[0])
            else:
                setattr(message, field.name, values[0])
        return message

    def random_value(self, field, depth):
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            return self.random_message(field.message_type._concrete_class, depth + 1)
        if field.cpp_type == field.CPPTYPE_STRING:
            text = self.random.choice(NASTY_TEXTS)
            return text.encode() if field.type == field.TYPE_BYTES else text
        if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
            return self.random.choice(NASTY_REALS)
        if field.cpp_type == field.CPPTYPE_BOOL:
            return self.random.random() < 0.5
        if field.cpp_type == field.CPPTYPE_ENUM:
            return self.random.choice([0, 1, 99])
        low, high = {field.CPPTYPE_INT32: (-2 ** 31, 2 ** 31 - 1), field.CPPTYPE_UINT32: (0, 2 ** 32 - 1),
                     field.CPPTYPE_INT64: (-2 ** 63, 2 ** 63 - 1), field.CPPTYPE_UINT64: (0, 2 ** 64 - 1)}[field.cpp_type]
        return self.random.choice([number for number in NASTY_NUMBERS if low <= number <= high])

    def broken_submission(self):
        """All but right: its text is nowhere."""
        job = self.job()
        job.data.text_files[0] = f"{self.folder}/data/nowhere.txt"
        return self.api.SubmitRequest(request_id="broken", job=job)

    def mutated(self, raw):
        raw = bytearray(raw)
        for _ in range(self.random.randint(1, 4)):
            at = self.random.randrange(len(raw))
            if self.random.random() < 0.5:
                raw[at] = self.random.randrange(256)
            else:
                del raw[at:at + self.random.randint(1, 8)]
            raw = raw or bytearray(b"\xff")
        return bytes(raw)

    def test_fuzzed_messages(self):
        channel, _ = self.begin_with_jobs("--submits-per-second", "0", "--calls-per-second", "0")
        before = self.kept()
        for method in self.methods():
            path, streams, kind = method
            # A stream that has nothing to say yet is no refusal.
            allowed = REFUSALS | ({"DEADLINE_EXCEEDED"} if streams else set())
            if not path.endswith("/Submit"):
                allowed.add("OK")
            if path.endswith("/OpenDashboard"):
                continue  # it has nothing that could be wrong
            messages = [self.random.randbytes(self.random.randint(1, 60)) for _ in range(MESSAGES)]
            messages += [self.random_message(kind) for _ in range(MESSAGES)]
            if path.endswith(("/Submit", "/PreviewPlan")):
                whole = self.broken_submission().SerializeToString()
                messages += [self.mutated(whole) for _ in range(MESSAGES)]
            for message in messages:
                code = self.call(channel, method, message, "ben", 0.5 if streams else TIMEOUT_S)
                self.assertIn(code, allowed, f"{path} {message!r}: {getattr(self, 'last_error', '')}\n{self.told()}")
        self.assertEqual(self.kept(), before)
        self.assertIsNone(self.daemon.poll(), self.told())

    def test_oversized_messages(self):
        channel, stub = self.begin_with_jobs()
        before = self.kept()
        api = self.api
        ann = token_of("ann")
        large = self.job()
        large.generation.prompt = "x" * (5 << 20)
        many = self.job()
        many.data.text_files.extend([f"{self.folder}/data/text.txt"] * 20000)
        long_name = self.job()
        long_name.name = "n" * 100000
        for job, code in ((large, "RESOURCE_EXHAUSTED"), (many, "INVALID_ARGUMENT"), (long_name, "INVALID_ARGUMENT")):
            request = api.SubmitRequest(request_id="large", job=job)
            self.assertEqual(self.code_of(lambda: stub.Submit(request, timeout=TIMEOUT_S, metadata=ann)), code)
        self.assertEqual(self.code_of(lambda: stub.Submit(
            api.SubmitRequest(request_id="r" * 129, job=self.job()), timeout=TIMEOUT_S, metadata=ann)),
            "INVALID_ARGUMENT")
        self.assertEqual(self.code_of(lambda: self.stub.Drain(
            api.DrainRequest(node="n1", reason="r" * 100000), timeout=TIMEOUT_S)), "INVALID_ARGUMENT")
        self.assertEqual(self.code_of(lambda: stub.Get(
            api.GetRequest(job_id=1), timeout=TIMEOUT_S, metadata=[("authorization", "Bearer " + "t" * 100000)])),
            "RESOURCE_EXHAUSTED")
        # A call of another version is told from one whose message is broken.
        unknown = ("/trireme.v1.Control/Reboot", False, None)
        # The oversized head above may have cost the connection: the channel makes another.
        until(lambda: self.call(channel, unknown, b"", "ann") == "UNIMPLEMENTED", "an unknown call is not known", self.told)
        # A length of 4 GiB in front of nothing.
        self.assertIn(self.call(channel, self.methods()[0], b"\x12" + b"\xff" * 4 + b"\x0f", "ann"),
                      {"INVALID_ARGUMENT"})
        self.assertEqual(self.kept(), before)

    def test_strangers_and_jobs_of_others(self):
        channel, _ = self.begin_with_jobs()
        before = self.kept()
        for method in self.methods():
            path, _, kind = method
            fields = kind.DESCRIPTOR.fields_by_name
            request = kind(job_id=self.of_ann.id) if "job_id" in fields else kind()
            for person in ("", "nobody-we-know"):
                self.assertIn(self.call(channel, method, request, person),
                              {"UNAUTHENTICATED"} | ({"INVALID_ARGUMENT"} if path.endswith("/OpenDashboard") else set()),
                              path)
            code = self.call(channel, method, request, "ben", 3)
            if "job_id" in fields and not path.endswith("/Watch"):
                self.assertEqual(code, "PERMISSION_DENIED", path)
            elif "node" in fields:
                self.assertEqual(code, "PERMISSION_DENIED", path)
        watch = ("/trireme.v1.Control/Watch", True, self.api.WatchRequest)
        self.assertEqual(self.call(channel, watch, self.api.WatchRequest(job_id=1), "ben"), "PERMISSION_DENIED")
        agents = "/trireme.v1.AgentLink/Connect"
        link = channel.stream_stream(agents, request_serializer=lambda message: message,
                                     response_deserializer=lambda message: message)
        for person, code in (("", "UNAUTHENTICATED"), ("ann", "PERMISSION_DENIED")):
            with self.assertRaises(grpc.RpcError) as refused:
                for _ in link(iter([b""]), timeout=TIMEOUT_S, metadata=token_of(person)):
                    pass
            self.assertEqual(refused.exception.code().name, code)
        self.assertEqual(self.kept(), before)

    def test_paths_that_lead_elsewhere(self):
        _, stub = self.begin_with_jobs()
        api = self.api
        ann = token_of("ann")
        self.write("text.txt", read(f"{self.folder}/data/text.txt"))
        os.symlink(self.folder, f"{self.folder}/data/up")
        before = self.kept()
        out = ["/etc/passwd", "relative.txt", "", f"{self.folder}/data/../text.txt", f"{self.folder}/data/up/text.txt",
               f"{self.folder}/data\0/text.txt", f"{self.folder}/datatext.txt", "~/text.txt", "file:///etc/passwd"]
        for path in out:
            jobs = [self.job(), self.job(), self.job()]
            jobs[0].data.text_files[0] = path
            jobs[1].checkpoint.directory = path
            jobs[2].model.ClearField("config")
            jobs[2].model.config_path = path
            for job in jobs:
                request = api.SubmitRequest(request_id="paths", job=job)
                self.assertEqual(self.code_of(lambda request=request: stub.Submit(
                    request, timeout=TIMEOUT_S, metadata=ann)), "INVALID_ARGUMENT", path)
            if path:
                export = api.ExportRequest(job_id=1, folder=path)
                self.assertEqual(self.code_of(lambda export=export: stub.Export(
                    export, timeout=TIMEOUT_S, metadata=ann)), "INVALID_ARGUMENT", path)
        for path in [*out, "link.svg", "../../jobs.db", "../2/job.yaml", "./link.svg", "timeline/../link.svg",
                     "attempts/1/control", ".", "..", "timeline", "x" * 10000 + ".svg"]:
            request = api.ReadFileRequest(job_id=1, path=path)
            self.assertEqual(self.code_of(lambda request=request: stub.ReadFile(
                request, timeout=TIMEOUT_S, metadata=ann)), "NOT_FOUND", path)
        self.assertEqual(len(stub.ListFiles(api.ListFilesRequest(job_id=1), timeout=TIMEOUT_S, metadata=ann).files), 0)
        self.assertEqual(self.kept(), before)

    def test_links_swapped_later(self):
        """What was allowed when it was submitted leads nowhere else afterwards, whatever its owner puts there."""
        _, stub = self.begin_with_jobs()
        api, ann, data = self.api, token_of("ann"), f"{self.folder}/data"
        text = read(f"{data}/text.txt")
        jobs = {name: self.job() for name in ("file", "folder", "checkpoints", "kept")}
        for name in ("file.txt", "inner/text.txt", "kept.txt"):
            os.makedirs(os.path.dirname(f"{data}/{name}"), exist_ok=True)
            self.write(f"data/{name}", text)
        os.symlink("kept.txt", f"{data}/link.txt")
        jobs["file"].data.text_files[0] = f"{data}/file.txt"
        jobs["folder"].data.text_files[0] = f"{data}/inner/text.txt"
        jobs["kept"].data.text_files[0] = f"{data}/link.txt"
        jobs["checkpoints"].checkpoint.directory = f"{data}/checkpoints"
        ids = {}
        for name, job in jobs.items():
            job.resources.max_failures = 1
            ids[name] = stub.Submit(api.SubmitRequest(request_id=name, job=job), timeout=TIMEOUT_S, metadata=ann).job.id
        secret = f"{self.folder}/secret"
        os.makedirs(secret)
        self.write("secret/text.txt", "the secret is " * 500)
        for swapped, by in (("file.txt", "secret/text.txt"), ("inner", "secret"), ("link.txt", "secret/text.txt")):
            os.rename(f"{data}/{swapped}", f"{data}/old-{swapped}")
            os.symlink(f"{self.folder}/{by}", f"{data}/{swapped}")
        os.symlink(secret, f"{data}/checkpoints")
        self.assertEqual(self.code_of(lambda: stub.ListCheckpoints(
            api.ListCheckpointsRequest(job_id=ids["checkpoints"]), timeout=TIMEOUT_S, metadata=ann)), "INVALID_ARGUMENT")
        self.stub.Undrain(api.UndrainRequest(node="n1"), timeout=TIMEOUT_S)
        for name, number in ids.items():
            for _ in stub.Watch(api.WatchRequest(job_id=number), timeout=LIMIT_S, metadata=ann):
                pass
            job = stub.Get(api.GetRequest(job_id=number), timeout=TIMEOUT_S, metadata=ann)
            done = name == "kept"
            self.assertEqual(job.status.exit_code == 0, done, f"{name}: {job.status}\n{self.told()}")
            if not done:
                self.assertIn("link", job.status.failure.headline + job.status.failure.evidence)
        self.assertEqual(os.listdir(secret), ["text.txt"])
        self.reads_no_linked_checkpoint(stub, f"{self.folder}/state/jobs/{ids['kept']}/checkpoints")

    def reads_no_linked_checkpoint(self, stub, of_another):
        """A step folder that is a link, and files that are, in a folder of the job's own: no checkpoints."""
        api, ann, own = self.api, token_of("ann"), f"{self.folder}/data/own"
        self.stub.Drain(api.DrainRequest(node="n1", reason="again"), timeout=TIMEOUT_S)
        job = self.job()
        job.checkpoint.directory = own
        number = stub.Submit(api.SubmitRequest(request_id="own", job=job), timeout=TIMEOUT_S, metadata=ann).job.id
        step = max(name for name in os.listdir(of_another) if name.startswith("step-"))
        os.makedirs(f"{own}/step-00000002")
        os.symlink(f"{of_another}/{step}", f"{own}/{step}")
        for name in os.listdir(f"{of_another}/{step}"):
            os.symlink(f"{of_another}/{step}/{name}", f"{own}/step-00000002/{name}")
        shutil.copytree(f"{of_another}/{step}", f"{own}/step-00000003")
        listed = stub.ListCheckpoints(api.ListCheckpointsRequest(job_id=number), timeout=TIMEOUT_S, metadata=ann).checkpoints
        self.assertEqual([one.path for one in listed], [f"{own}/step-00000003"])
        for wanted in (int(step.rpartition("-")[2]), 2):
            export = api.ExportRequest(job_id=number, step=wanted, folder=f"{self.folder}/data/out")
            self.assertNotEqual(self.code_of(lambda export=export: stub.Export(
                export, timeout=TIMEOUT_S, metadata=ann)), "OK", wanted)
        self.assertFalse(os.path.exists(f"{self.folder}/data/out"))

    def test_words_for_a_shell(self):
        """Names with such words are refused; a text may lie at any path, and nothing of it is executed."""
        self.start_daemon()
        api, stub = self.api, self.stub
        for word in NASTY_TEXTS[:-1]:
            if word not in ("-rf",):
                job = self.job()
                job.name = word
                request = api.SubmitRequest(request_id="words", job=job)
                self.assertEqual(self.code_of(lambda request=request: stub.Submit(request, timeout=TIMEOUT_S)),
                                 "INVALID_ARGUMENT", word)
            request = api.DrainRequest(node=word, reason="gone")
            self.assertIn(self.code_of(lambda request=request: stub.Drain(request, timeout=TIMEOUT_S)),
                          {"NOT_FOUND", "INVALID_ARGUMENT"}, word)
            self.assertEqual(len(stub.List(api.ListRequest(name=word or "none"), timeout=TIMEOUT_S).jobs), 0)
        self.assertEqual(len(stub.List(api.ListRequest(), timeout=TIMEOUT_S).jobs), 0)
        odd = f"{self.folder}/data/a b;touch $HOME.pwned;$(touch pwned)`touch pwned`'\"&|.txt"
        self.write(odd[len(self.folder) + 1:], read(f"{self.folder}/data/text.txt"))
        job = self.job()
        job.data.text_files[0] = odd
        job = stub.Submit(api.SubmitRequest(request_id="odd", job=job), timeout=TIMEOUT_S).job
        self.assertEqual(self.watch(str(job.id)).end()[0], 0, self.told())
        found = [name for at, _, names in os.walk(self.folder) for name in names if name.endswith("pwned")]
        self.assertEqual(found, [])

    def test_yaml_bombs(self):
        self.start_daemon()
        folder = f"{ROOT}/tests/data/broken_jobs"
        self.write("wide.yaml", "name: [" + "[" * 100000)
        self.write("large.yaml", "# " + "x" * (8 << 20) + "\nname: large\n")
        for bomb in (f"{folder}/alias_bomb.yaml", f"{folder}/deep.yaml", f"{self.folder}/wide.yaml",
                     f"{self.folder}/large.yaml"):
            self.ask("submit", bomb, code=2)
        self.assertEqual(self.ask("list", "--all")["jobs"], [])

    def resident_mib(self):
        for line in read(f"/proc/{self.daemon.pid}/status").splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise AssertionError("the daemon has gone")

    def test_readers_that_never_read(self):
        self.start_daemon()
        api, stub = self.api, self.stub
        job = stub.Submit(api.SubmitRequest(request_id="one", job=self.job()), timeout=TIMEOUT_S).job
        self.assertEqual(self.watch(str(job.id)).end()[0], 0, self.told())
        megabyte = "x" * (1 << 20)
        for name in ("trace.json", "attempts/1/logs/rank-0.log"):
            with open(f"{job.run_folder}/{name}", "a", encoding="utf-8") as file:
                for _ in range(40):
                    file.write(megabyte)
        before = self.resident_mib()
        idle = []
        for _ in range(40):
            silent = self.stubs.ControlStub(self.channel())
            idle += [silent.ReadFile(api.ReadFileRequest(job_id=job.id, path="trace.json"), timeout=LIMIT_S),
                     silent.Logs(api.LogsRequest(job_id=job.id), timeout=LIMIT_S),
                     silent.Watch(api.WatchRequest(), timeout=LIMIT_S)]
        size = sum(len(piece.data) for piece in
                   stub.ReadFile(api.ReadFileRequest(job_id=job.id, path="trace.json"), timeout=TIMEOUT_S))
        self.assertGreaterEqual(size, 40 << 20)
        time.sleep(1)
        # 80 readers of 40 MiB each would be 3 GiB.
        self.assertLess(self.resident_mib() - before, 400)
        self.assertEqual(stub.Get(api.GetRequest(job_id=job.id), timeout=TIMEOUT_S).id, job.id)
        for stream in idle:
            stream.cancel()

    def test_slow_connections(self):
        address = self.start_daemon_with_people()
        host, port = address.split(":")
        descriptors = f"/proc/{self.daemon.pid}/fd"
        before = len(os.listdir(descriptors))
        begun = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        settings = begun + struct.pack(">IBI", 0, 4, 0)[1:]
        slow = []
        for number in range(200):
            connection = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
            self.addCleanup(connection.close)
            connection.sendall([b"", begun[:number % 24], settings, b"GET / HTTP/1.1\r\n", b"\x16\x03\x01"][number % 5])
            slow.append(connection)
        stub = self.stubs.ControlStub(self.channel(address))
        for _ in range(20):
            stub.GetCluster(self.api.GetClusterRequest(), timeout=TIMEOUT_S, metadata=token_of("ann"))
        for connection in slow:
            connection.close()
        until(lambda: len(os.listdir(descriptors)) <= before + 5, "the connections are gone", self.told)
        stub.GetCluster(self.api.GetClusterRequest(), timeout=TIMEOUT_S, metadata=token_of("ann"))


if __name__ == "__main__":
    main()
