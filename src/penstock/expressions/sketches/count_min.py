"""Count-min sketches in the binary format of Spark's CountMinSketch.

Each of `depth` rows hashes an item to one of `width` counters; the estimate of its count is the least of its counters,
which is never too small. A cell is row · width + column. The hash functions are Spark's: of integers a multiplication
modulo 2³¹ - 1 with factors drawn from the seed, of texts and bytes two rounds of MurmurHash3 x86-32.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import cache

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrays import Int8s, Int32s, text_bytes
from penstock.compilation import loop
from penstock.errors import PenstockError

Int64s = npt.NDArray[np.int64]

_PRIME = (1 << 31) - 1
_HEADER = struct.Struct(">iqii")
_VERSION = 1


@dataclass(frozen=True)
class Shape:
    """The size of a sketch, and the factors of its hash functions."""

    width: int
    factors: tuple[int, ...]

    @property
    def depth(self) -> int:
        return len(self.factors)

    @property
    def cells(self) -> int:
        return self.width * self.depth


def shape_of(eps: float, confidence: float, seed: int) -> Shape:
    """Return the shape of a sketch whose estimates are too large by at most eps · n, with that confidence."""
    depth = math.ceil(-math.log1p(-confidence) / math.log(2))
    return Shape(math.ceil(2 / eps), _factors(depth, seed))


@cache
def _factors(depth: int, seed: int) -> tuple[int, ...]:
    """Return what java.util.Random(seed).nextInt(2³¹ - 1) returns, `depth` times."""
    state = (seed ^ 0x5DEECE66D) & ((1 << 48) - 1)
    drawn: list[int] = []
    while len(drawn) < depth:
        state = (state * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        bits = state >> 17
        if bits < _PRIME:  # 31 random bits are drawn again where they are the bound
            drawn.append(bits)
    return tuple(drawn)


def columns_of(column: pa.Array, shape: Shape) -> Int64s:
    """Return (row, item) the column of every item in every row of the sketch; arbitrary where it is NULL."""
    kind = column.type
    if pa.types.is_integer(kind):
        items = column.fill_null(0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        found: Int64s = _of_integers(items, np.array(shape.factors, np.int64), shape.width)
        return found
    column = column.fill_null("" if pa.types.is_string(kind) else b"") if column.null_count else column
    spans, raw = text_bytes(column)
    return np.asarray(_of_bytes(spans, raw.view(np.int8), shape.depth, shape.width))


@loop
def _of_integers(items: Int64s, factors: Int64s, width: int) -> Int64s:
    found = np.empty((factors.shape[0], items.shape[0]), np.int64)
    for row in range(factors.shape[0]):
        for i in range(items.shape[0]):
            product = factors[row] * items[i]
            product += product >> 32
            found[row, i] = (product & _PRIME) % width
    return found


@nb.njit(inline="always")
def _mixed(h: int, k: int) -> int:
    k = (k * 0xCC9E2D51) & 0xFFFFFFFF
    k = ((k << 15) | (k >> 17)) & 0xFFFFFFFF
    k = (k * 0x1B873593) & 0xFFFFFFFF
    h ^= k
    h = ((h << 13) | (h >> 19)) & 0xFFFFFFFF
    return (h * 5 + 0xE6546B64) & 0xFFFFFFFF


@loop
def murmur32(data: Int8s, start: int, stop: int, seed: int) -> int:
    """Return the hash as a signed 32-bit integer; bytes behind the last word of four are hashed one by one, signed."""
    h = seed & 0xFFFFFFFF
    at = start
    while stop - at >= 4:
        k = 0
        for i in range(4):
            k |= (int(data[at + i]) & 0xFF) << (8 * i)
        h = _mixed(h, k)
        at += 4
    while at < stop:
        h = _mixed(h, int(data[at]) & 0xFFFFFFFF)
        at += 1
    h ^= stop - start
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    h ^= h >> 16
    return h - (1 << 32) if h >= (1 << 31) else h


@loop
def _of_bytes(offsets: Int32s, data: Int8s, depth: int, width: int) -> Int64s:
    size = offsets.shape[0] - 1
    found = np.empty((depth, size), np.int64)
    for i in range(size):
        start, stop = int(offsets[i]), int(offsets[i + 1])
        one = murmur32(data, start, stop, 0)
        two = murmur32(data, start, stop, one)
        for row in range(depth):
            total = (one + row * two) & 0xFFFFFFFF
            if total >= (1 << 31):
                total -= 1 << 32
            found[row, i] = abs(total) % width  # the remainder of Java has the sign of the dividend
    return found


def image(shape: Shape, cells: Int64s, counts: Int64s, total: int) -> bytes:
    """Return the sketch with these cells as Spark writes it."""
    table = np.zeros(shape.cells, np.int64)
    table[cells] = counts
    head = _HEADER.pack(_VERSION, total, shape.depth, shape.width)
    return head + np.array(shape.factors, ">i8").tobytes() + table.astype(">i8").tobytes()


@dataclass(frozen=True)
class Sketch:
    """A sketch that was read. table: by (row, column)."""

    shape: Shape
    total: int
    table: Int64s

    @property
    def error(self) -> float:
        """Return by how much estimates are too large, at most, with the sketch's confidence: eps · total."""
        return 2.0 / self.shape.width * self.total

    def counts(self, column: pa.Array) -> Int64s:
        """Return the estimated count of every item; arbitrary where it is NULL."""
        found = columns_of(column, self.shape)
        result: Int64s = np.take_along_axis(self.table, found, axis=1).min(axis=0)
        return result


def read_image(data: bytes) -> Sketch:
    """Return the sketch in an image. Raises PenstockError P0203: it is none, or of another version."""
    if len(data) < _HEADER.size:
        raise PenstockError("P0203", "not an image of a count-min sketch: it is too short")
    version, total, depth, width = _HEADER.unpack_from(data)
    if version != _VERSION:
        raise PenstockError("P0203", f"a count-min sketch of version {version}, not {_VERSION}")
    if depth < 1 or width < 1 or len(data) != _HEADER.size + 8 * depth * (1 + width):
        raise PenstockError("P0203", "not an image of a count-min sketch: its length is not that of its table")
    numbers = np.frombuffer(data, ">i8", depth * (1 + width), _HEADER.size).astype(np.int64)
    return Sketch(Shape(width, tuple(numbers[:depth].tolist())), total, numbers[depth:].reshape(depth, width))
