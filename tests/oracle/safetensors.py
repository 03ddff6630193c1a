"""Reads and writes safetensors files: u64 header length, JSON header padded to 8 bytes, data without holes."""
import json
import struct

import numpy

DTYPES = {'F64': numpy.dtype('<f8'), 'F32': numpy.dtype('<f4'), 'I64': numpy.dtype('<i8'), 'I32': numpy.dtype('<i4')}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def write(path, tensors):
    """tensors: name to numpy array. Ordered by falling alignment, then name, as Hugging Face's writer does."""
    header = {'__metadata__': {'format': 'pt'}}
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    end = 0
    for name in order:
        array = tensors[name]
        begin, end = end, end + array.nbytes
        header[name] = {'dtype': NAMES[array.dtype], 'shape': list(array.shape), 'data_offsets': [begin, end]}
    text = json.dumps(header, separators=(',', ':')).encode()
    text += b' ' * (-len(text) % 8)
    with open(path, 'wb') as file:
        file.write(struct.pack('<Q', len(text)))
        file.write(text)
        for name in order:
            file.write(numpy.ascontiguousarray(tensors[name]).tobytes())


def read(path):
    with open(path, 'rb') as file:
        data = file.read()
    length, = struct.unpack('<Q', data[:8])
    header = json.loads(data[8:8 + length])
    header.pop('__metadata__', None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry['data_offsets']
        piece = data[8 + length + begin:8 + length + end]
        tensors[name] = numpy.frombuffer(piece, DTYPES[entry['dtype']]).reshape(entry['shape'])
    return tensors
