"""The hashes that decide: each use has a salt of its own, so that no two agree by chance.

`penstock.testing.approximation.shedding` has the same definition in Python's integers.
"""

from __future__ import annotations

import numpy as np

from penstock.shedding.compiled import loop
from penstock.shedding.layout import Int64s

_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S1, _S27, _S30, _S31 = np.uint64(1), np.uint64(27), np.uint64(30), np.uint64(31)

#: Salts.
VALUES, TUPLES, SAMPLES, BUCKETS, KEEPS = 1, 2, 3, 4, 5


@loop
def mix(x):  # type: ignore[no-untyped-def]
    """Apply the finaliser of splitmix64, behind one step of its sequence."""
    x = x + _GOLDEN
    x = (x ^ (x >> _S30)) * _A
    x = (x ^ (x >> _S27)) * _B
    return x ^ (x >> _S31)


@loop
def salted(word, salt, seed):  # type: ignore[no-untyped-def]
    """Return a hash of 63 bits of a word."""
    return np.int64(mix(np.uint64(word) ^ mix(np.uint64(salt) + mix(np.uint64(seed)))) >> _S1)


@loop
def of_tuple(rank, begin, end, ts, seed):  # type: ignore[no-untyped-def]
    """Return a hash of 63 bits of a tuple: its value, period and timestamp."""
    word = mix(np.uint64(rank) ^ mix(np.uint64(TUPLES) + mix(np.uint64(seed))))
    word = mix(word ^ mix(np.uint64(begin)))
    word = mix(word ^ mix(np.uint64(end)))
    return np.int64(mix(word ^ mix(np.uint64(ts))) >> _S1)


@loop
def _all_salted(words, salt, seed, found):  # type: ignore[no-untyped-def]
    for i in range(words.shape[0]):
        found[i] = salted(words[i], salt, seed)


def all_salted(words: Int64s, salt: int, seed: int = 0) -> Int64s:
    """Return hashes of 63 bits of words."""
    found = np.empty(len(words), np.int64)
    _all_salted(np.ascontiguousarray(words, np.int64), salt, seed, found)
    return found
