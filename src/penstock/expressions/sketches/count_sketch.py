"""Count sketches (Charikar, Chen and Farach-Colton): where a value is counted, and what the counts say of it.

A sketch has `rows` rows of `buckets` · `counters` signed numbers. A value's 64-bit hash h chooses a bucket, the same in
every row: the value dimension of `[pt 3.1]`. In row r the word mix(h + (r + 1) · STEP) chooses one of the bucket's
counters and a sign; counting a value adds the sign there. The estimate is the median over rows of sign · counter,
and at least 0.

The variance of one estimate is taken as V = median over rows of ΣC² / counters, and e = √V tuples; 1 / (1 + e) is the
confidence. e > error is compared in integers: ΣC² > ⌊error² · counters⌋.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.expressions import draws

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]

#: The step between the words of a hash; the constants of the mixer are those of splitmix64.
STEP = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class CountSketchShape:
    """The size of one sketch. rows: odd, so that the median is one of them."""

    rows: int = 5
    counters: int = 64
    buckets: int = 16

    @property
    def width(self) -> int:
        """Return the number of counters of a row."""
        return self.buckets * self.counters

    @property
    def cells(self) -> int:
        return self.rows * self.width


def value_hashes(seed: int, columns: Sequence[pa.Array], count: int) -> tuple[UInt64s, Bools]:
    """Return the hash of the summarised columns of each of `count` elements, and a mask of those without a NULL, which
    alone are summarised. Values of equal hash are one value to every summary."""
    known = np.ones(count, np.bool_)
    for column in columns:
        if column.null_count:
            known &= column.is_valid().to_numpy(zero_copy_only=False)
    return draws.universe(seed, columns, count, "/summary"), known


def places(hashes: UInt64s, shape: CountSketchShape) -> tuple[Int64s, Int64s]:
    """Return (cells, signs), each of shape (values, rows): in row r a value is counted at row r's cell, which is in
    [0, width), with its sign, 1 or -1."""
    words = np.empty((len(hashes), shape.rows), np.uint64)
    for row in range(shape.rows):
        words[:, row] = draws.mixed(hashes + np.uint64((row + 1) * STEP % 2**64))
    buckets = (hashes % np.uint64(shape.buckets)).astype(np.int64)
    cells = buckets[:, None] * shape.counters + ((words >> np.uint64(1)) % np.uint64(shape.counters)).astype(np.int64)
    return cells, 1 - 2 * (words & np.uint64(1)).astype(np.int64)


def square_limit(error: Fraction, counters: int) -> int:
    """Return the largest median of ΣC² at which an estimate is taken to err by at most `error` tuples."""
    return int(error * error * counters)
