#!/usr/bin/python3
"""Joins the parameters of a checkpoint folder (docs/formats/checkpoint.md) into one safetensors file of whole tensors
under their Hugging Face names, whatever the layout that saved it.

  checkpoint_weights.py CHECKPOINT_FOLDER OUT.safetensors"""
import json
import os
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'oracle'))
import safetensors  # noqa: E402


# A checkpoint keeps heads as dimensions of their own; Hugging Face joins them: where the width of the stream comes first,
# all that follows is one dimension, where it comes last, all before it.
WIDTH_FIRST = ('c_attn.weight', 'o_proj.weight')
WIDTH_LAST = ('c_proj.weight', 'q_proj.weight', 'k_proj.weight', 'v_proj.weight')


def hugging_face_shape(name, shape):
    if name.endswith('.bias'):
        return [-1]
    if len(shape) <= 2:
        return shape
    if name.endswith(WIDTH_FIRST):
        return [shape[0], -1]
    if name.endswith(WIDTH_LAST):
        return [-1, shape[-1]]
    raise SystemExit(f'{name}: a shape of {shape} is not known; say here which dimensions Hugging Face joins')


def read_parameters(folder):
    """Name to whole numpy array."""
    with open(os.path.join(folder, 'manifest.json'), encoding='utf-8') as file:
        manifest = json.load(file)
    files = [safetensors.read(os.path.join(folder, entry['name'])) for entry in manifest['files']]
    tensors, missing = {}, {}
    for shard in manifest['shards']:
        if shard['kind'] != 'parameter':
            continue
        name, shape = shard['name'], shard['shape']
        values = files[shard['file']][shard['key']]
        if name not in tensors:
            tensors[name] = numpy.zeros(shape, values.dtype)
            missing[name] = tensors[name].size
        begin, end = shard['interval']
        box = tuple(slice(low, high) for low, high in shard['box'])
        piece = tensors[name][box].reshape(-1)  # a copy where the box is not contiguous
        piece[begin:end] = values
        tensors[name][box] = piece.reshape([high - low for low, high in shard['box']])
        missing[name] -= end - begin
    holes = sorted(name for name, count in missing.items() if count != 0)
    if holes:
        raise SystemExit(f'{folder}: the shards do not hold each element once: {", ".join(holes)}')
    return {name: values.reshape(hugging_face_shape(name, values.shape)) for name, values in tensors.items()}


if __name__ == '__main__':
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    safetensors.write(sys.argv[2], read_parameters(sys.argv[1]))
