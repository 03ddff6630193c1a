#!/usr/bin/env python3
"""The Python client: the example of docs/python.md, and the calls that it does not show. Usage: python_client_test.py
BIN_FOLDER [PythonClient.test_NAME ...]"""
import os
import subprocess
import sys

from api_fixture import ROOT, TIMEOUT_S, ApiCase, grpc, main
from daemon_fixture import LIMIT_S, read


class PythonClient(ApiCase):
    def test_example(self):
        self.start_daemon()
        example = f"{ROOT}/deploy/examples/python/submit.py"
        with open(example, encoding="utf-8") as file:
            self.assertLessEqual(len(file.readlines()), 18)
        ended = subprocess.run(
            [sys.executable, "-B", example, f"unix:{self.folder}/s.sock", f"{self.folder}/data/text.txt"],
            env=os.environ | {"PYTHONPATH": os.path.join(os.path.dirname(self.bin), "python")},
            capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr + self.told())
        self.assertIn("to: JOB_COMPLETED", ended.stdout)
        self.assertEqual(self.show("from-python")["status"]["state"], "JOB_COMPLETED")

    def test_every_call(self):
        self.start_daemon()
        api, stub = self.api, self.stub
        request = api.SubmitRequest(request_id="one", job=self.job(steps=1000000))
        job = stub.Submit(request, timeout=TIMEOUT_S).job
        self.assertTrue(stub.Submit(request, timeout=TIMEOUT_S).repeated)
        preview = stub.PreviewPlan(api.PreviewPlanRequest(job=self.job()), timeout=TIMEOUT_S).text
        self.assertIn("gpt2", preview)
        self.assertIn("there is room for it", preview)
        large = self.job()
        large.resources.memory_mib_per_rank = 1 << 30
        preview = stub.PreviewPlan(api.PreviewPlanRequest(job=large), timeout=TIMEOUT_S).text
        self.assertRegex(preview, r"now .*a rank, but no node has more than")
        self.names_faulty_fields()
        health = self.channel().unary_unary("/grpc.health.v1.Health/Check", lambda name: b"\x0a" + bytes([len(name)]) + name,
                                            lambda answer: answer)
        for service in (b"", b"trireme.v1.Control", b"trireme.v1.AgentLink"):
            self.assertEqual(health(service, timeout=TIMEOUT_S), b"\x08\x01", service)
        states = []
        for news in stub.Watch(api.WatchRequest(job_id=job.id), timeout=LIMIT_S):
            if news.HasField("event") and news.event.HasField("state_changed"):
                states.append(news.event.state_changed.to)
            if news.HasField("progress") and news.progress.progress.steps_done > 5:
                break
        self.reach(str(job.id), 5)
        stub.Pause(api.PauseRequest(job_id=job.id), timeout=TIMEOUT_S)
        self.reach_state(str(job.id), "JOB_PAUSED")
        [checkpoint] = stub.ListCheckpoints(api.ListCheckpointsRequest(job_id=job.id), timeout=TIMEOUT_S).checkpoints[:1]
        self.reads_files(job)
        self.exports(job, checkpoint)
        self.backs_up()
        stub.Resume(api.ResumeRequest(job_id=job.id), timeout=TIMEOUT_S)
        self.reach_state(str(job.id), "JOB_RUNNING")
        stub.Cancel(api.CancelRequest(job_id=job.id), timeout=TIMEOUT_S)
        for _ in stub.Watch(api.WatchRequest(job_id=job.id), timeout=LIMIT_S):
            pass
        listed = stub.List(api.ListRequest(states=["JOB_CANCELLED"]), timeout=TIMEOUT_S)
        self.assertEqual([one.id for one in listed.jobs], [job.id])
        logs = b"".join(piece.data for piece in stub.Logs(api.LogsRequest(job_id=job.id), timeout=TIMEOUT_S))
        self.assertIn(b"resumed from", logs)
        node = stub.Drain(api.DrainRequest(node="n1", reason="new disk"), timeout=TIMEOUT_S)
        self.assertTrue(node.drained)
        self.assertFalse(stub.Undrain(api.UndrainRequest(node="n1"), timeout=TIMEOUT_S).drained)
        self.assertEqual(self.code_of(lambda: [stub.AdoptNode(api.AdoptNodeRequest(node="n1"), timeout=TIMEOUT_S)]),
                         "FAILED_PRECONDITION")
        self.assertEqual([one.name for one in stub.GetCluster(api.GetClusterRequest(), timeout=TIMEOUT_S).nodes], ["n1"])

    def names_faulty_fields(self):
        """Every refusal has a detail with the path of what was wrong."""
        api, stub = self.api, self.stub
        nowhere = self.job()
        nowhere.data.text_files[0] = f"{self.folder}/nowhere.txt"
        faults = {
            "request_id": lambda: stub.Submit(api.SubmitRequest(job=self.job()), timeout=TIMEOUT_S),
            "job.training.steps": lambda: stub.Submit(api.SubmitRequest(
                request_id="x", job=self.job(steps=-1)), timeout=TIMEOUT_S),
            "job.data.text_files": lambda: stub.Submit(api.SubmitRequest(request_id="x", job=nowhere), timeout=TIMEOUT_S),
            "grace_seconds": lambda: stub.Cancel(api.CancelRequest(job_id=1, grace_seconds=-1), timeout=TIMEOUT_S),
            "rank": lambda: list(stub.Logs(api.LogsRequest(job_id=1, rank=9, follow=True), timeout=TIMEOUT_S)),
            "folder": lambda: list(stub.Backup(api.BackupRequest(folder="kept"), timeout=TIMEOUT_S)),
            "page_token": lambda: stub.List(api.ListRequest(page_token="?"), timeout=TIMEOUT_S),
            "path": lambda: list(stub.ReadFile(api.ReadFileRequest(job_id=1, path="?"), timeout=TIMEOUT_S)),
        }
        for field, call in faults.items():
            with self.assertRaises(grpc.RpcError) as refused:
                call()
            [packed] = [value for key, value in refused.exception.trailing_metadata() if key == "grpc-status-details-bin"]
            [detail] = api.ErrorStatus.FromString(packed).details
            fault = api.ErrorDetail()
            self.assertTrue(detail.Unpack(fault))
            self.assertEqual(fault.field, field)
            self.assertTrue(fault.message)

    def test_logs_of_what_is_to_come(self):
        """Who follows a job that waits hears it from its first byte; who does not is told."""
        self.start_daemon()
        api, stub = self.api, self.stub
        stub.Drain(api.DrainRequest(node="n1", reason="later"), timeout=TIMEOUT_S)
        one, two = (stub.Submit(api.SubmitRequest(request_id=name, job=self.job()), timeout=TIMEOUT_S).job.id
                    for name in ("one", "two"))
        self.assertEqual(self.code_of(lambda: stub.Logs(api.LogsRequest(job_id=one), timeout=TIMEOUT_S)),
                         "FAILED_PRECONDITION")
        followed = [stub.Logs(api.LogsRequest(job_id=job, follow=True), timeout=LIMIT_S) for job in (one, two)]
        stub.Cancel(api.CancelRequest(job_id=two), timeout=TIMEOUT_S)
        self.assertEqual(list(followed[1]), [])
        stub.Undrain(api.UndrainRequest(node="n1"), timeout=TIMEOUT_S)
        pieces = list(followed[0])
        self.assertEqual((pieces[0].offset, pieces[0].attempt), (0, 1))
        job = stub.Get(api.GetRequest(job_id=one), timeout=TIMEOUT_S)
        self.assertEqual(b"".join(piece.data for piece in pieces).decode(),
                         read(f"{job.run_folder}/attempts/1/logs/rank-0.log"))

    def reads_files(self, job):
        api, stub = self.api, self.stub
        files = {file.path: file.bytes for file in
                 stub.ListFiles(api.ListFilesRequest(job_id=job.id), timeout=TIMEOUT_S).files}
        self.assertLessEqual({"job.yaml", "plan.pb", "metrics.jsonl"}, set(files))
        for name, size in files.items():
            pieces = stub.ReadFile(api.ReadFileRequest(job_id=job.id, path=name), timeout=TIMEOUT_S)
            data = b"".join(piece.data for piece in pieces)
            with open(f"{job.run_folder}/{name}", "rb") as file:
                self.assertEqual((data, len(data)), (file.read(), size))

    def backs_up(self):
        """Who comes second waits for the first one."""
        calls = [self.stub.Backup(self.api.BackupRequest(folder=f"{self.folder}/kept-{number}"), timeout=LIMIT_S)
                 for number in (1, 2)]
        for call in calls:
            told = list(call)
            last = told[-1]
            self.assertEqual([one.done for one in told], [False] * (len(told) - 1) + [True])
            self.assertEqual((last.jobs, last.bytes_done), (1, os.stat(last.file).st_size))
            self.assertGreater(last.events, 3)
            self.assertEqual(os.listdir(os.path.dirname(last.file)), [os.path.basename(last.file)])

    def exports(self, job, checkpoint):
        api, stub = self.api, self.stub
        told = list(stub.Export(api.ExportRequest(job_id=job.id), timeout=LIMIT_S))
        self.assertEqual([one.done for one in told], [False] * (len(told) - 1) + [True])
        last = told[-1]
        self.assertEqual((last.step, last.bytes_done), (checkpoint.step, last.bytes_total))
        self.assertEqual(last.folder, f"{job.run_folder}/exports/step-{last.step}")
        self.assertEqual(sorted(os.listdir(last.folder)), ["config.json", "model.safetensors"])
        self.assertGreater(os.path.getsize(f"{last.folder}/model.safetensors"), last.bytes_total)
        self.assertEqual(self.code_of(lambda: stub.Export(api.ExportRequest(job_id=job.id), timeout=LIMIT_S)),
                         "ALREADY_EXISTS")
        named = f"{self.folder}/exported"
        stream = stub.Export(api.ExportRequest(job_id=job.id, step=last.step, folder=named), timeout=LIMIT_S)
        self.assertTrue(list(stream)[-1].done)
        for request, code in ((api.ExportRequest(job_id=job.id, step=10 ** 6, folder=f"{named}2"), "NOT_FOUND"),
                              (api.ExportRequest(job_id=job.id, folder="exported"), "INVALID_ARGUMENT"),
                              (api.ExportRequest(job_id=job.id, folder=f"{self.folder}/none/e"), "NOT_FOUND"),
                              (api.ExportRequest(job_id=99), "NOT_FOUND")):
            self.assertEqual(self.code_of(lambda request=request: stub.Export(request, timeout=LIMIT_S)), code,
                             request)
        # Who leaves at once leaves nothing behind.
        leaver = stub.Export(api.ExportRequest(job_id=job.id, folder=f"{self.folder}/left"), timeout=LIMIT_S)
        leaver.cancel()
        after = stub.Export(api.ExportRequest(job_id=job.id, folder=f"{self.folder}/after"), timeout=LIMIT_S)
        self.assertTrue(list(after)[-1].done)
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".export")], [])


if __name__ == "__main__":
    main()
