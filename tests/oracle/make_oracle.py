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

B, STEPS = 3, 10
GPT2 = {'model_type': 'gpt2', 'architectures': ['GPT2LMHeadModel'], 'n_embd': 16, 'n_layer': 2, 'n_head': 2, 'n_inner': 32,
        'n_positions': 8, 'vocab_size': 29, 'layer_norm_epsilon': 1e-5, 'activation_function': 'gelu_new',
        'embd_pdrop': 0.0, 'attn_pdrop': 0.0, 'resid_pdrop': 0.0, 'tie_word_embeddings': True}
LLAMA = {'model_type': 'llama', 'architectures': ['LlamaForCausalLM'], 'hidden_size': 16, 'num_hidden_layers': 2,
         'num_attention_heads': 4, 'num_key_value_heads': 2, 'intermediate_size': 24, 'max_position_embeddings': 8,
         'vocab_size': 29, 'rms_norm_eps': 1e-6, 'rope_theta': 10000.0, 'hidden_act': 'silu', 'tie_word_embeddings': False}
CONFIGS = {
    'gpt2_bias': {**GPT2, 'bias': True},
    'gpt2_no_bias': {**GPT2, 'bias': False},
    'llama_grouped': LLAMA,
    # No width is a multiple of 8, so that every vector loop has a tail; longer than a vector and than 32 tokens.
    'gpt2_tails': {**GPT2, 'bias': True, 'n_embd': 33, 'n_head': 3, 'n_inner': 70, 'n_positions': 37, 'vocab_size': 53,
                   'embd_pdrop': 0.1, 'attn_pdrop': 0.25, 'resid_pdrop': 0.15},
    'llama_tails': {**LLAMA, 'hidden_size': 36, 'num_attention_heads': 6, 'num_key_value_heads': 2, 'intermediate_size': 45,
                    'max_position_embeddings': 35, 'vocab_size': 61},
}
SEED = 20  # of the masks of dropout
# The schedule passes through its warm-up and its decay; every gradient norm is above the limit, so that clipping acts.
OPTIONS = {'learning_rate': 1e-2, 'min_learning_rate': 1e-3, 'warmup_steps': 3, 'schedule': 'cosine', 'decay_steps': 10,
           'beta1': 0.9, 'beta2': 0.95, 'epsilon': 1e-8, 'weight_decay': 0.1, 'gradient_clip_norm': 1.0}
# A gradient that is zero in exact arithmetic (a key's bias) is rounding noise, which a tiny epsilon makes a full step: with
# this one the weights of an f32 run say something, too.
TAILS_EPSILON = 1e-4


def initial_weights(config, generator):
    """Large enough that no gradient is near zero; norms differ from one and biases from zero. f32, so exact in f64."""
    weights = {}
    for name, shape in sorted(models.shapes(config).items()):
        values = generator.standard_normal(shape)
        is_norm = len(shape) == 1 and name.endswith('.weight')
        weights[name] = (1 + 0.1 * values if is_norm else 0.2 * values).astype(numpy.float32)
    return weights


def context_and_vocabulary(config):
    return config['n_positions' if config['model_type'] == 'gpt2' else 'max_position_embeddings'], config['vocab_size']


def options_of(name):
    return {**OPTIONS, 'epsilon': TAILS_EPSILON} if name.endswith('tails') else OPTIONS


def run(name, weights, tokens, targets, dtype):
    """What the oracle states for one dtype, as numpy arrays."""
    config, options = CONFIGS[name], options_of(name)
    seed = SEED if config.get('attn_pdrop') else None

    def train():
        tensors = {name: torch.tensor(value, dtype=dtype) for name, value in weights.items()}
        return training.Trainer(config, tensors, options, seed)

    first = train()
    with torch.no_grad():
        values = first.logits(tokens[0], 0)
    loss = first.gradients(tokens[0], targets[0])
    stated = {'logits': values.numpy(), 'loss': loss.reshape(1).numpy()}
    for parameter, tensor in first.weights.items():
        stated['grad.' + parameter] = tensor.grad.numpy()
    trained = train()
    rows = [trained.step(index, tokens[index], targets[index]) for index in range(STEPS)]
    stated['adamw.losses'] = numpy.array([row[0] for row in rows])
    stated['adamw.gradient_norms'] = numpy.array([row[1] for row in rows])
    stated['adamw.learning_rates'] = numpy.array([training.learning_rate(options, index) for index in range(STEPS)])
    for parameter, tensor in trained.weights.items():
        stated['final.' + parameter] = tensor.detach().numpy()
    return stated


def spread(narrow, wide):
    """Per tensor: how far PyTorch's own f32 run is from its f64 run, in f64."""
    return {'spread.' + name: numpy.abs(narrow[name].astype(numpy.float64) - wide[name]).max().reshape(1)
            for name in wide if not name.startswith('adamw.')}


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), 'data')
    torch.set_num_threads(1)
    for seed, (name, config) in enumerate(CONFIGS.items()):
        generator = numpy.random.Generator(numpy.random.PCG64(seed + 1))
        target_folder = os.path.join(folder, name)
        os.makedirs(target_folder, exist_ok=True)
        weights = initial_weights(config, generator)
        length, vocabulary = context_and_vocabulary(config)
        tokens = generator.integers(0, vocabulary, (STEPS, B, length), dtype=numpy.int32)
        targets = generator.integers(0, vocabulary, (STEPS, B, length), dtype=numpy.int32)
        targets[:, 1, length - 3:] = -1  # not counted: the mean is over what is left
        with open(os.path.join(target_folder, 'config.json'), 'w', encoding='utf-8') as file:
            json.dump({**config, 'torch_dtype': 'float32'}, file, indent=2)
            file.write('\n')
        safetensors.write(os.path.join(target_folder, 'model.safetensors'), weights)
        safetensors.write(os.path.join(target_folder, 'batches.safetensors'), {'tokens': tokens, 'targets': targets})
        ids, expected = torch.tensor(tokens).long(), torch.tensor(targets).long()
        wide = run(name, weights, ids, expected, torch.float64)
        narrow = run(name, weights, ids, expected, torch.float32)
        wide.update(spread(narrow, wide))
        safetensors.write(os.path.join(target_folder, 'oracle_f64.safetensors'), wide)
        if not name.endswith('tails'):  # there the f64 run and the spread say enough
            narrow = {key: value for key, value in narrow.items() if not key.startswith('final.')}
            safetensors.write(os.path.join(target_folder, 'oracle_f32.safetensors'), narrow)
        print(name, 'loss', wide['loss'][0], 'losses', wide['adamw.losses'].round(4).tolist(),
              'norms', wide['adamw.gradient_norms'].round(3).tolist())
    with open(os.path.join(folder, 'optimizer.json'), 'w', encoding='utf-8') as file:
        json.dump(OPTIONS, file, indent=2)
        file.write('\n')


if __name__ == '__main__':
    main()
