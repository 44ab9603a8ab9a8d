"""The hashes that decide: each use has a salt of its own, so that no two agree by chance.

`penstock.testing.approximation.shedding` has the same definition in Python's integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.arrays import Int64s
from penstock.shedding.compiled import loop
from penstock.shedding.layout import NEVER

_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_S1, _S27, _S30, _S31 = np.uint64(1), np.uint64(27), np.uint64(30), np.uint64(31)

#: Salts.
VALUES, TUPLES, SAMPLES, BUCKETS = 1, 2, 3, 4


@loop
def mix(x: np.uint64) -> np.uint64:
    """Apply the finaliser of splitmix64, behind one step of its sequence."""
    x = x + _GOLDEN
    x = (x ^ (x >> _S30)) * _A
    x = (x ^ (x >> _S27)) * _B
    return x ^ (x >> _S31)


@loop
def salted(word: int, salt: int, seed: int) -> int:
    """Return a hash of 63 bits of a word."""
    return int(np.int64(mix(np.uint64(word) ^ mix(np.uint64(salt) + mix(np.uint64(seed)))) >> _S1))


@loop
def of_tuple(rank: int, begin: int, end: int, ts: int, seed: int) -> int:
    """Return a hash of 63 bits of a tuple: its value, period and timestamp."""
    word = mix(np.uint64(rank) ^ mix(np.uint64(TUPLES) + mix(np.uint64(seed))))
    word = mix(word ^ mix(np.uint64(begin)))
    word = mix(word ^ mix(np.uint64(end)))
    return int(np.int64(mix(word ^ mix(np.uint64(ts))) >> _S1))


@loop
def _all_salted(words: Int64s, salt: int, seed: int, found: Int64s) -> None:
    for i in range(words.shape[0]):
        found[i] = salted(words[i], salt, seed)


def all_salted(words: Int64s, salt: int, seed: int = 0) -> Int64s:
    """Return hashes of 63 bits of words."""
    found = np.empty(len(words), np.int64)
    _all_salted(np.ascontiguousarray(words, np.int64), salt, seed, found)
    return found


def bucket_of(ranks: Int64s, buckets: int) -> Int64s:
    """Return the bucket of each hash of a value."""
    return np.zeros(len(ranks), np.int64) if buckets == 1 else all_salted(ranks, BUCKETS) % buckets


def chances(thresholds: Int64s) -> npt.NDArray[np.float64]:
    """Return with what probability hashes are below thresholds."""
    return np.minimum(1.0, thresholds.astype(np.float64) / 2.0**63)


class Fall(NamedTuple):
    """A threshold that has fallen: from `at` on the values of the bucket are refused from the hash `threshold` on."""

    at: int
    bucket: int
    threshold: int


class FallingThresholds:
    """How the thresholds of the buckets of a budget fall during a round, which `begin` begins."""

    def __init__(self, buckets: int) -> None:
        self._now = [int(NEVER)] * buckets
        self.falls: list[Fall] = []
        self._before = list(self._now)

    def begin(self, thresholds: Sequence[int]) -> None:
        self._now = [int(threshold) for threshold in thresholds]
        self._before = list(self._now)
        self.falls = []

    def note(self, bucket: int, at: Int64s, thresholds: Int64s) -> None:
        """Note thresholds of a bucket that were met, or made, at ticks in ascending order. Some may not have fallen."""
        if not len(at):
            return
        met = np.minimum.accumulate(np.minimum(thresholds, self._now[bucket]))
        for place in np.flatnonzero(np.diff(met, prepend=self._now[bucket])).tolist():
            self.falls.append(Fall(int(at[place]), bucket, int(met[place])))
        self._now[bucket] = int(met[-1])

    def met(self, buckets: Int64s, ticks: Int64s) -> Int64s:
        """Return the thresholds of buckets once all of a tick has come."""
        found = np.array(self._before, np.int64)[buckets]
        for bucket in sorted({fall.bucket for fall in self.falls}):
            own = [fall for fall in self.falls if fall.bucket == bucket]
            at = np.array([fall.at for fall in own])
            steps = np.array([self._before[bucket], *(fall.threshold for fall in own)], np.int64)
            mine = np.flatnonzero(buckets == bucket)
            found[mine] = steps[np.searchsorted(at, ticks[mine], side="right")]
        return found
