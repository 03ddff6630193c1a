"""The masks that a seed means (docs/glossary.md, runtime/base/philox.h), once more in numpy: Philox4x32-10 by Salmon, Moraes,
Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11. The name of the site and the seed make the key, index of the
element and step the counter; an element is dropped if its 32 bits are below p 2^32. PyTorch trains with them."""
import numpy
import torch

LOW = numpy.uint64(0xFFFFFFFF)
HALF = numpy.uint64(32)


def philox(counter, key):
    """counter: four u64 arrays, each below 2^32; key: two numbers. Four arrays of 32 bits."""
    c, k = list(counter), list(key)
    for _ in range(10):
        left, right = numpy.uint64(0xD2511F53) * c[0], numpy.uint64(0xCD9E8D57) * c[2]
        c = [(right >> HALF) ^ c[1] ^ numpy.uint64(k[0]), right & LOW, (left >> HALF) ^ c[3] ^ numpy.uint64(k[1]), left & LOW]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def fnv1a(name):
    value = 0xcbf29ce484222325
    for byte in name.encode():
        value = (value ^ byte) * 0x100000001b3 % 2**64
    return value


def uniform32(seed, name, step, count):
    """Elements 0 .. count - 1 of the stream."""
    site = fnv1a(name)
    key = seed ^ ((site * 0x9E3779B97F4A7C15 + (site >> 29)) % 2**64)
    block = numpy.arange(-(-count // 4), dtype=numpy.uint64)
    words = [numpy.full_like(block, word) for word in (step % 2**32, step >> 32)]
    four = philox([block & LOW, block >> HALF] + words, [key % 2**32, key >> 32])
    return numpy.stack(four, axis=1).reshape(-1)[:count]


class Masks:
    """Of one step over a whole batch: sample 0 of the tensors is sample 0 of the global batch, so elements lie as they count."""

    def __init__(self, seed, step):
        self.seed, self.step = seed, step

    def __call__(self, x, site, p):
        if p == 0:
            return x
        kept = uniform32(self.seed, site, self.step, x.numel()) >= int(p * 2**32)
        return x * torch.tensor(kept.reshape(x.shape)).to(x.dtype) * (1 / (1 - p))


# Random123's known answers (kat_vectors) for philox4x32-10.
assert [int(word[0]) for word in philox([numpy.zeros(1, numpy.uint64)] * 4, [0, 0])] == [
    0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]
