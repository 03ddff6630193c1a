#!/usr/bin/env python3
"""Takes docs/images/dashboard_*.png: a daemon whose node trains jobs on the demo's text, and three nodes that only say
what they have. Needs what the tests of the dashboard need and the text of deploy/demo; takes some minutes. Run by the system's python3:

    /usr/bin/python3 -B docs/images/dashboard.py build/release/bin
"""
import os
import queue
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "coordinator", "daemon"))
import api_fixture  # noqa: E402
import browser  # noqa: E402
from daemon_fixture import until  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
JOB = """name: kjv
model:
  config: {model_type: gpt2, hidden_size: 64, num_hidden_layers: 4, num_attention_heads: 4,
           max_position_embeddings: 64}
data: {text_files: [TEXT], tokenizer: char, sequence_length: 64}
training: {steps: 600, global_batch_size: 16, micro_batch_size: 2}
optimizer: {learning_rate: 0.003, warmup_steps: 50}
evaluation: {every_steps: 25}
checkpoint: {every_steps: 100}
runtime: {threads: 1}
"""
OF_TWO = ("--set", "parallelism.pipeline_parallel_size=2", "--set", "parallelism.schedule=zb-h1")


class Pictures(api_fixture.ApiCase):
    def silent_node(self, name, cpus):
        """An agent that reports and is given nothing."""
        from trireme.v1 import agent_pb2, agent_pb2_grpc
        words = queue.Queue()
        hello = agent_pb2.AgentHello(node=name, cpus=cpus, memory_bytes=64 << 30, boot_id=name, state_folder=b"/")
        words.put(agent_pb2.FromAgent(hello=hello))
        stream = agent_pb2_grpc.AgentLinkStub(self.channel()).Connect(iter(words.get, None))

        def speak():
            while not self.over.wait(1):
                words.put(agent_pb2.FromAgent(report=agent_pb2.NodeReport()))
            words.put(None)
        self.over = getattr(self, "over", threading.Event())
        threading.Thread(target=speak, daemon=True).start()
        threading.Thread(target=lambda: [None for _ in self.swallow(stream)], daemon=True).start()

    def swallow(self, stream):
        try:
            yield from stream
        except api_fixture.grpc.RpcError:
            return

    def run_to_end(self, *arguments):
        self.watch(self.submit("--set", "resources.nodes=[n1]", *arguments)).end()

    def test_take(self):
        self.write("job.yaml", JOB.replace("TEXT", os.path.join(ROOT, "build", "demo", "kjv.txt")))
        self.start_daemon("--http", "127.0.0.1:0")
        for number, cpus in ((2, 16), (3, 16), (4, 16)):
            self.silent_node(f"n{number}", cpus)
        until(lambda: len(self.ask("nodes")["nodes"]) == 4, "four nodes", self.told)
        for name in ("n2", "n3", "n4"):
            self.ask("drain", name, "--reason", "new disk on Thursday" if name == "n4" else "holds nothing yet")
        self.run_to_end("--set", "name=kjv-tiny", "--set", "training.steps=60")
        self.run_to_end("--set", "name=lr-too-high", "--set", "optimizer.learning_rate=1000", "--set",
                        "resources.max_failures=1", "--set", "optimizer.warmup_steps=0")
        for name in ("n2", "n3"):
            self.ask("undrain", name)
        self.submit("--set", "name=gpu-ablation", "--set", "resources.gpus_per_rank=1")
        job = self.submit("--set", "name=kjv-zb-h1", "--set", "resources.nodes=[n1]", *OF_TWO)
        self.submit("--set", "name=wide-search", "--set", "resources.nodes=[n1]", *OF_TWO)
        self.reach(job, 350)
        page = browser.Browser(1440, 1180)
        self.addCleanup(page.close)
        self.take(page, job)
        self.over.set()
        self.ask("cancel", job)
        until(lambda: not self.show(job)["status"]["attempt_live"], "its ranks have ended", self.told)

    def take(self, page, job):
        page.open(self.ask("dashboard")["url"])
        page.script("localStorage.setItem('theme', 'dark')")
        page.script("document.documentElement.dataset.theme = 'dark'")
        until(lambda: page.count(f".row[data-job='{job}']"), "the job in the list", self.told)
        page.click(f".row[data-job='{job}']")
        until(lambda: page.count("#timeline .legend"), "the last step", self.told)
        time.sleep(6)
        page.screenshot(os.path.join(HERE, "dashboard_job.png"))
        page.script("document.documentElement.dataset.theme = 'light'")
        page.click("header a, header .home, header h1")
        until(lambda: page.count(".node"), "the nodes", self.told)
        page.resize(1280, 900)
        time.sleep(4)
        page.screenshot(os.path.join(HERE, "dashboard_cluster.png"))


if __name__ == "__main__":
    api_fixture.main()
