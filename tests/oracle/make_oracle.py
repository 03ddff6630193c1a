#!/usr/bin/python3
"""Writes the PyTorch oracle: for each tiny configuration, in f64 and f32, the logits, loss, every gradient and ten AdamW
losses that a right implementation must reproduce. Needs Debian's python3-torch; README.md describes the files.
Usage: make_oracle.py [FOLDER]; FOLDER defaults to data beside this script."""
import json
import os
import sys

import numpy
import torch

import models
import safetensors
import training

B, T, V, STEPS = 3, 8, 29, 10
GPT2 = {'model_type': 'gpt2', 'architectures': ['GPT2LMHeadModel'], 'n_embd': 16, 'n_layer': 2, 'n_head': 2, 'n_inner': 32,
        'n_positions': T, 'vocab_size': V, 'layer_norm_epsilon': 1e-5, 'activation_function': 'gelu_new',
        'embd_pdrop': 0.0, 'attn_pdrop': 0.0, 'resid_pdrop': 0.0, 'tie_word_embeddings': True}
LLAMA = {'model_type': 'llama', 'architectures': ['LlamaForCausalLM'], 'hidden_size': 16, 'num_hidden_layers': 2,
         'num_attention_heads': 4, 'num_key_value_heads': 2, 'intermediate_size': 24, 'max_position_embeddings': T,
         'vocab_size': V, 'rms_norm_eps': 1e-6, 'rope_theta': 10000.0, 'hidden_act': 'silu', 'tie_word_embeddings': False}
CONFIGS = {
    'gpt2_bias': {**GPT2, 'bias': True},
    'gpt2_no_bias': {**GPT2, 'bias': False},
    'llama_grouped': LLAMA,
}
# The schedule passes through its warm-up and its decay; every gradient norm is above the limit, so that clipping acts.
OPTIONS = {'learning_rate': 1e-2, 'min_learning_rate': 1e-3, 'warmup_steps': 3, 'schedule': 'cosine', 'decay_steps': 10,
           'beta1': 0.9, 'beta2': 0.95, 'epsilon': 1e-8, 'weight_decay': 0.1, 'gradient_clip_norm': 1.0}


def initial_weights(config, generator):
    """Large enough that no gradient is near zero; norms differ from one and biases from zero. f32, so exact in f64."""
    weights = {}
    for name, shape in sorted(models.shapes(config).items()):
        values = generator.standard_normal(shape)
        is_norm = len(shape) == 1 and name.endswith('.weight')
        weights[name] = (1 + 0.1 * values if is_norm else 0.2 * values).astype(numpy.float32)
    return weights


def run(config, weights, tokens, targets, dtype):
    """What the oracle states for one dtype, as numpy arrays."""
    def train():
        tensors = {name: torch.tensor(value, dtype=dtype) for name, value in weights.items()}
        return training.Trainer(config, tensors, OPTIONS)

    first = train()
    with torch.no_grad():
        values = models.logits(config, first.weights, tokens[0])
    loss = first.gradients(tokens[0], targets[0])
    stated = {'logits': values.numpy(), 'loss': loss.reshape(1).numpy()}
    for name, tensor in first.weights.items():
        stated['grad.' + name] = tensor.grad.numpy()
    trained = train()
    rows = [trained.step(index, tokens[index], targets[index]) for index in range(STEPS)]
    stated['adamw.losses'] = numpy.array([row[0] for row in rows])
    stated['adamw.gradient_norms'] = numpy.array([row[1] for row in rows])
    stated['adamw.learning_rates'] = numpy.array([training.learning_rate(OPTIONS, index) for index in range(STEPS)])
    return stated


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), 'data')
    torch.set_num_threads(1)
    for seed, (name, config) in enumerate(CONFIGS.items()):
        generator = numpy.random.Generator(numpy.random.PCG64(seed + 1))
        target_folder = os.path.join(folder, name)
        os.makedirs(target_folder, exist_ok=True)
        weights = initial_weights(config, generator)
        tokens = generator.integers(0, V, (STEPS, B, T), dtype=numpy.int32)
        targets = generator.integers(0, V, (STEPS, B, T), dtype=numpy.int32)
        targets[:, 1, T - 3:] = -1  # not counted: the mean is over what is left
        with open(os.path.join(target_folder, 'config.json'), 'w', encoding='utf-8') as file:
            json.dump({**config, 'torch_dtype': 'float32'}, file, indent=2)
            file.write('\n')
        safetensors.write(os.path.join(target_folder, 'model.safetensors'), weights)
        safetensors.write(os.path.join(target_folder, 'batches.safetensors'), {'tokens': tokens, 'targets': targets})
        ids, expected = torch.tensor(tokens).long(), torch.tensor(targets).long()
        for label, dtype in (('f64', torch.float64), ('f32', torch.float32)):
            stated = run(config, weights, ids, expected, dtype)
            safetensors.write(os.path.join(target_folder, f'oracle_{label}.safetensors'), stated)
            print(name, label, 'loss', stated['loss'][0], 'losses', stated['adamw.losses'].round(4).tolist(),
                  'norms', stated['adamw.gradient_norms'].round(3).tolist())
    with open(os.path.join(folder, 'optimizer.json'), 'w', encoding='utf-8') as file:
        json.dump(OPTIONS, file, indent=2)
        file.write('\n')


if __name__ == '__main__':
    main()
