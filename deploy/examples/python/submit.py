"""Submits a job and watches it to its end: submit.py ADDRESS TEXT_FILE, as in unix:/run/trireme/triremed.sock /data/text.txt"""
import sys
import uuid
import grpc
from trireme.v1 import control_pb2 as api, control_pb2_grpc, job_spec_pb2 as spec

address, text = sys.argv[1:]
coordinator = control_pb2_grpc.ControlStub(grpc.insecure_channel(address))
job = spec.JobSpec(name="from-python", data=spec.DataSpec(text_files=[text], tokenizer="char", sequence_length=16))
job.model.config.MergeFrom(spec.ModelConfig(model_type="gpt2", hidden_size=32, num_hidden_layers=2, num_attention_heads=2))
job.training.MergeFrom(spec.TrainingSpec(steps=30, global_batch_size=4, micro_batch_size=2))
job = coordinator.Submit(api.SubmitRequest(request_id=str(uuid.uuid4()), job=job), timeout=10).job
for news in coordinator.Watch(api.WatchRequest(job_id=job.id)):
    print(news.event if news.HasField("event") else f"step {news.progress.progress.steps_done}", flush=True)
