#!/usr/bin/env python3
"""Whole jobs held to what others publish and compute: nanoGPT's CPU run on one rank and on two as data, tensor and
pipeline ranks, against its published loss and against PyTorch from our initial weights and batches; and a short run
on four layouts that needs nothing from outside.

Usage: acceptance_test.py BIN_FOLDER SHAKESPEARE.txt [Acceptance.test_NAME ...]
"""
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
import skips  # noqa: E402

BIN = TEXT = ""
HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
PYTHON = "/usr/bin/python3"  # Debian's python3-torch is built for the system's Python
LIMIT_S = 2700  # of one run: the machine may be busy with other work

LAYOUTS = {
    "one rank": (1, []),
    "data 2": (2, ["parallelism.data_parallel_size=2"]),
    "tensor 2": (2, ["parallelism.tensor_parallel_size=2"]),
    "pipeline 2": (2, ["parallelism.pipeline_parallel_size=2"]),
}
BF16_LAYOUTS = {
    "one rank in bf16": (1, []),
    "data 2 in bf16 under ZeRO-3, recomputing": (2, ["parallelism.data_parallel_size=2", "parallelism.zero_stage=3",
                                                    "parallelism.recompute=full"]),
}
# One step at a learning rate of 0 leaves the initial weights in its checkpoint, to the bit.
INITIAL = ["training.steps=1", "optimizer.learning_rate=0", "optimizer.min_learning_rate=0",
           "optimizer.warmup_steps=0", "evaluation.samples=1", "generation.max_new_tokens=0"]

SHORT_JOB = """name: short
seed: 11
model:
  config: {model_type: gpt2, hidden_size: 48, num_hidden_layers: 4, num_attention_heads: 4, bias: false,
           max_position_embeddings: 32, embd_pdrop: 0.1, attn_pdrop: 0.1, resid_pdrop: 0.1}
data: {text_files: [text.txt], tokenizer: char, sequence_length: 32, validation_fraction: 0.1}
training: {steps: 30, global_batch_size: 8, micro_batch_size: 2}
optimizer: {learning_rate: 0.003, warmup_steps: 5}
evaluation: {every_steps: 0}
runtime: {threads: 1, deadline_seconds: 100}
generation: {max_new_tokens: 0}
"""


def overrides(settings):
    return [word for setting in settings for word in ("--set", setting)]


def curves(folder):
    """Losses by step: of training, of validation."""
    training, validation = {}, {}
    with open(folder + "/metrics.jsonl", encoding="utf-8") as file:
        for line in map(json.loads, file):
            if "loss" in line:
                training[line["step"]] = line["loss"]
            if "validation_loss" in line:
                validation[line["step"]] = line["validation_loss"]
    return training, validation


def distance(one, other, steps):
    return max(abs(one[step] - other[step]) for step in range(1, steps + 1))


class Acceptance(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="trireme_acceptance_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def call(self, *command):
        """Output of a program that must end well."""
        # The children of trireme end with it, so a timeout leaves nothing behind.
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, " ".join(command) + "\n" + done.stdout + done.stderr)
        return done.stdout

    def train(self, job, name, ranks, settings):
        folder = os.path.join(self.folder, name.replace(" ", "_"))
        self.call(os.path.join(BIN, "trireme"), "run", job, "-n", str(ranks), "--run-dir", folder,
                  *overrides(settings))
        return folder

    def test_layouts_agree(self):
        job = self.folder + "/job.yaml"
        with open(job, "w", encoding="utf-8") as file:
            file.write(SHORT_JOB)
        words = random.Random(5)
        with open(self.folder + "/text.txt", "w", encoding="utf-8") as file:
            for _ in range(3000):
                file.write(words.choice(["the oars ", "dip and ", "rise in ", "time, ", "three banks\n"]))
        results = {name: curves(self.train(job, name, ranks, settings))
                   for name, (ranks, settings) in LAYOUTS.items()}
        reference, validation = results["one rank"]
        self.assertEqual(sorted(reference), list(range(1, 31)))
        self.assertLess(reference[30], reference[1] - 0.5, "it does not learn")
        for name, (training, last) in results.items():
            with self.subTest(layout=name):
                self.assertLess(distance(training, reference, 30), 1e-4)
                self.assertLess(abs(last[30] - validation[30]), 1e-4)

    def need_text(self):
        if not os.path.isfile(TEXT):
            self.skipTest(f"not here: {TEXT}; give its path to cmake: -DTRIREME_SHAKESPEARE=FILE")
        with open(TEXT, "rb") as file:
            if hashlib.md5(file.read()).hexdigest() != "6fb458f1232090904fb40fe944165e91":
                self.skipTest(f"not here: nanoGPT's text; {TEXT} is another")

    def need_torch(self):
        if not os.path.exists(PYTHON) or subprocess.run([PYTHON, "-c", "import torch, numpy"], capture_output=True,
                                                        check=False).returncode != 0:
            self.skipTest(f"{skips.NOT_INSTALLED}PyTorch for {PYTHON} (Debian: python3-torch)")

    def pytorch(self, job, text):
        """The same training in PyTorch, from our initial weights and batches: losses by step, validation loss."""
        start = self.train(job, "initial", 1, text + INITIAL)
        weights, batches = self.folder + "/weights.safetensors", self.folder + "/batches.safetensors"
        self.call(PYTHON, "-B", HERE + "/checkpoint_weights.py", start + "/checkpoints/step-00000001", weights)
        self.call(os.path.join(BIN, "write_batches"), job, batches, *text)
        output = self.call(PYTHON, "-B", SOURCE + "/tests/oracle/nanogpt_reference.py", "--text", TEXT, "--weights",
                           weights, "--batches", batches)
        lines = [line.split() for line in output.splitlines()]
        return ({int(words[1]): float(words[3]) for words in lines if words[0] == "step"},
                [float(words[4]) for words in lines if words[0] == "validation"][-1])

    def test_nanogpt_published_run(self):
        self.need_text()
        self.need_torch()
        job = SOURCE + "/deploy/examples/shakespeare_char.yaml"
        text = [f"data.text_files=[{TEXT}]"]
        results = {}
        for name, (ranks, settings) in LAYOUTS.items():
            results[name] = curves(self.train(job, name, ranks, text + settings))
            print(f"{name}: validation loss {results[name][1][2000]:.4f}", flush=True)
        torch_losses, torch_validation = self.pytorch(job, text)
        print(f"PyTorch: validation loss {torch_validation:.4f}", flush=True)
        reference = results["one rank"][0]
        print(f"PyTorch: first 200 losses within {distance(torch_losses, reference, 200):.2e} of one rank")
        self.assertLess(distance(torch_losses, reference, 200), 1e-3)
        for name, (training, validation) in results.items():
            with self.subTest(layout=name):
                print(f"{name}: first 200 losses within {distance(training, reference, 200):.2e} of one rank")
                self.assertLess(distance(training, reference, 200), 1e-3)
                self.assertLessEqual(validation[2000], 1.93)
                self.assertLess(abs(validation[2000] - torch_validation), 0.01)
        for name, (ranks, settings) in BF16_LAYOUTS.items():
            with self.subTest(layout=name):
                _, validation = curves(self.train(job, name, ranks, text + settings + ["training.dtype=bf16"]))
                print(f"{name}: validation loss {validation[2000]:.4f}", flush=True)
                self.assertLess(abs(validation[2000] - results["one rank"][1][2000]), 0.01)

    def test_nanogpt_with_compression(self):
        """The same run within the default bounds: gradients at two replicas, messages at two stages."""
        self.need_text()
        job = SOURCE + "/deploy/examples/shakespeare_char.yaml"
        settings = [f"data.text_files=[{TEXT}]", "evaluation.every_steps=250", "checkpoint.keep=1",
                    "generation.max_new_tokens=0"]
        plain = {seed: curves(self.train(job, f"seed {seed}", 2, settings + [f"seed={seed}"]))
                 for seed in (1337, 1, 2)}
        losses = {seed: validation[2000] for seed, (_, validation) in plain.items()}
        print("uncompressed, by seed:", losses, flush=True)
        cases = {"gradients": (8, ["compression.data_parallel.mode=on"]),
                 "messages": (3, ["compression.pipeline.mode=on", "parallelism.pipeline_parallel_size=2"])}
        drawn = {"uncompressed": plain[1337], "another seed": plain[2]}
        for name, (least, more) in cases.items():
            with self.subTest(coded=name):
                folder = self.train(job, name, 2, settings + more)
                drawn[name + " within a bound"] = curves(folder)
                loss = drawn[name + " within a bound"][1][2000]
                with open(folder + "/report.json", encoding="utf-8") as file:
                    report = json.load(file)
                coding = report["compression"][name]
                print(f"{name}: validation loss {loss:.5f} ({loss / losses[1337] - 1:+.2%}), {coding['ratio']:.2f} "
                      f"times fewer bytes, relative error {coding['relative_error']:.4f}", flush=True)
                self.assertGreaterEqual(coding["ratio"], least)
                self.assertLess(abs(loss / losses[1337] - 1), 0.005)
                self.assertLess(loss, max(losses.values()))
                self.assertNotIn("warning", report)
        # For docs/images/compression.py.
        print("curves", json.dumps({name: validation for name, (_, validation) in drawn.items()}), flush=True)
        with self.subTest("too loose"):
            loose = self.train(job, "loose", 2, settings + ["training.steps=20", "compression.pipeline.mode=on",
                                                            "compression.pipeline.bound=rms:0.3",
                                                            "parallelism.pipeline_parallel_size=2"])
            with open(loose + "/report.json", encoding="utf-8") as file:
                self.assertIn("compression.pipeline.bound rms:0.3 is too loose", json.load(file)["warning"])


if __name__ == "__main__":
    BIN = os.path.abspath(sys.argv.pop(1))
    TEXT = os.path.abspath(sys.argv.pop(1))
    skips.main()
