#!/usr/bin/python3
"""nanoGPT's published CPU run in PyTorch, to be compared with Trireme's given the same initial weights and batches:
4 layers, 4 heads, 128 wide, no biases, block 64, batch 12, no dropout; AdamW lr 1e-3 to 1e-4 by cosine, 100 warm-up steps,
betas 0.9/0.99, decay 0.1, clip 1 (github.com/karpathy/nanoGPT, README "I only have a macbook").
Prints `step N loss X` for each step and `validation step N loss X` for the full validation split at the end.

  nanogpt_reference.py --text FILE [--weights W.safetensors] [--batches B.safetensors] [--steps 2000]

--text       first 90 % of the characters train, the rest validates in windows of 64 in order of the text
--weights    initial weights under GPT-2's names; without it normal(0, 0.02), residual projections / sqrt(2 L)
--batches    `tokens` and `targets`, i32 [steps][12][64]; without it random windows of the training part
--save-weights, --save-batches, --save-final   write what was used, for the other side of the comparison"""
import argparse
import math

import numpy
import torch

import models
import safetensors
import training

BLOCK, BATCH = 64, 12
OPTIONS = {'learning_rate': 1e-3, 'min_learning_rate': 1e-4, 'warmup_steps': 100, 'beta1': 0.9, 'beta2': 0.99,
           'epsilon': 1e-8, 'weight_decay': 0.1, 'gradient_clip_norm': 1.0}


def model_config(vocabulary):
    return {'model_type': 'gpt2', 'n_embd': 128, 'n_layer': 4, 'n_head': 4, 'n_inner': 512, 'n_positions': BLOCK,
            'vocab_size': vocabulary, 'layer_norm_epsilon': 1e-5, 'bias': False}


def read_text(path):
    """Token ids of the training and the validation part, and the size of the vocabulary (distinct characters, sorted)."""
    with open(path, encoding='utf-8', newline='') as file:
        text = file.read()
    characters = sorted(set(text))
    number = {character: index for index, character in enumerate(characters)}
    ids = numpy.array([number[character] for character in text], dtype=numpy.int32)
    cut = int(len(ids) * 0.9)
    return ids[:cut], ids[cut:], len(characters)


def random_weights(config, seed):
    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    weights = {}
    for name, shape in models.shapes(config).items():
        if len(shape) == 1:
            weights[name] = numpy.ones(shape, numpy.float32)
            continue
        scale = 0.02 / (math.sqrt(2 * config['n_layer']) if name.endswith('c_proj.weight') else 1)
        weights[name] = (scale * generator.standard_normal(shape)).astype(numpy.float32)
    return weights


def random_batches(ids, steps, seed):
    generator = numpy.random.Generator(numpy.random.PCG64(seed))
    begins = generator.integers(0, len(ids) - BLOCK, (steps, BATCH))
    windows = begins[..., None] + numpy.arange(BLOCK)
    return {'tokens': ids[windows], 'targets': ids[windows + 1]}


def validation_loss(trainer, ids):
    """Mean over every token but the first; the last window may be shorter."""
    samples = -(-(len(ids) - 1) // BLOCK)
    tokens = numpy.zeros((samples, BLOCK), numpy.int64)
    targets = numpy.full((samples, BLOCK), -1, numpy.int64)
    tokens.reshape(-1)[:len(ids) - 1] = ids[:-1]
    targets.reshape(-1)[:len(ids) - 1] = ids[1:]
    total = 0.0
    with torch.no_grad():
        for begin in range(0, samples, 64):
            piece = slice(begin, begin + 64)
            values = models.logits(trainer.config, trainer.weights, torch.tensor(tokens[piece]))
            counted = int((targets[piece] >= 0).sum())
            total += models.loss_of(values, torch.tensor(targets[piece])).item() * counted
    return total / (len(ids) - 1)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--text', required=True)
    parser.add_argument('--weights')
    parser.add_argument('--batches')
    parser.add_argument('--steps', type=int, default=2000)
    parser.add_argument('--decay-steps', type=int, default=2000)
    parser.add_argument('--validate-every', type=int, default=0)
    parser.add_argument('--seed', type=int, default=1337)
    parser.add_argument('--threads', type=int, default=2)
    parser.add_argument('--save-weights')
    parser.add_argument('--save-batches')
    parser.add_argument('--save-final')
    return parser.parse_args()


def main():
    given = arguments()
    torch.set_num_threads(given.threads)
    train, validation, vocabulary = read_text(given.text)
    config = model_config(vocabulary)
    initial = safetensors.read(given.weights) if given.weights else random_weights(config, given.seed)
    expected = models.shapes(config)
    if {name: value.shape for name, value in initial.items()} != expected:
        raise SystemExit(f'{given.weights}: names or shapes are not those of the model: expected {expected}')
    batches = safetensors.read(given.batches) if given.batches else random_batches(train, given.steps, given.seed + 1)
    if len(batches['tokens']) < given.steps:
        raise SystemExit(f'{given.batches}: {len(batches["tokens"])} batches, but {given.steps} steps are asked for')
    if given.save_weights:
        safetensors.write(given.save_weights, initial)
    if given.save_batches:
        safetensors.write(given.save_batches, batches)
    weights = {name: torch.tensor(value) for name, value in initial.items()}
    trainer = training.Trainer(config, weights, {**OPTIONS, 'decay_steps': given.decay_steps})
    tokens, targets = (torch.tensor(batches[name].astype(numpy.int64)) for name in ('tokens', 'targets'))
    for step in range(given.steps):
        loss, _ = trainer.step(step, tokens[step], targets[step])
        print(f'step {step + 1} loss {loss:.6f}', flush=True)
        done = step + 1
        if done == given.steps or (given.validate_every and done % given.validate_every == 0):
            print(f'validation step {done} loss {validation_loss(trainer, validation):.6f}', flush=True)
    if given.save_final:
        safetensors.write(given.save_final, {name: value.detach().numpy() for name, value in weights.items()})


if __name__ == '__main__':
    main()
