"""The draws of SAMPLE: a pseudo-random number per element that depends on the element alone [semantics 4.1].

An element's draw is a 64-bit hash of the seed, the stream's name, the timestamp and all its columns. It depends on
values only, never on batches, shards or processes, so that a run can be repeated. Equal elements of one instant share a
draw.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import text_bytes

UInt64s = npt.NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_PRIME = np.uint64(0x100000001B3)
_NULL = np.uint64(0x6A09E667F3BCC909)


def kept(
    percent: Fraction, seed: int, name: str, ts: npt.NDArray[np.int64], columns: Sequence[pa.Array]
) -> npt.NDArray[np.bool_]:
    """Return a mask of the elements of the stream `name` that a SAMPLE of `percent` keeps."""
    if percent >= 100:
        return np.ones(len(ts), np.bool_)
    return draws(seed, name, ts, columns) < np.uint64(int(percent * 2**64 / 100))


def universe(seed: int, columns: Sequence[pa.Array], count: int, use: str = "/universe") -> UInt64s:
    """Return the draw of the values of some columns, the same in every stream and at all times. use: a number, another
    one for each purpose of draws."""
    drawn = draws(seed, use, np.zeros(1, np.int64), columns)
    return drawn if columns else np.full(count, drawn[0])


def limit(percent: Fraction) -> np.uint64:
    """Return the number below which draws are kept."""
    return np.uint64(min(int(percent * 2**64 / 100), 2**64 - 1))


def exponential_draws(drawn: UInt64s) -> npt.NDArray[np.float64]:
    """Return −ln u of the draws `drawn`, u in (0, 1): the times of an exponential race. Equal draws give equal bits,
    whatever stands beside them."""
    uniform = ((drawn >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return np.fromiter((-math.log(u) for u in uniform.tolist()), np.float64, len(uniform))


def salted(seed: int, use: str) -> int:
    """Return the seed of another use, a BIGINT."""
    digest = hashlib.blake2b(f"{seed}/{use.lower()}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def row_draws(
    seed: int,
    name: str,
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    columns: Sequence[pa.Array],
    copies: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the draws of SAMPLE(n ROWS) of `name`. starts, ends: of the panes of rows, 0 where they have none; copies:
    the number of each row among equal ones, from 0."""
    return draws(seed, f"{name}/rows", starts, [*columns, pa.array(ends), pa.array(copies)]).view(np.int64)


def draws(seed: int, name: str, ts: npt.NDArray[np.int64], columns: Sequence[pa.Array]) -> UInt64s:
    """Return a number in [0, 2^64) for every element."""
    start = hashlib.blake2b(f"{seed}/{name.lower()}".encode(), digest_size=8).digest()
    drawn = mixed(ts.view(np.uint64) + np.frombuffer(start, "<u8")[0])
    for column in columns:
        words = mixed(_words(column) + _STEP)
        if column.null_count:
            words = np.where(column.is_valid().to_numpy(zero_copy_only=False), words, _NULL)
        drawn = mixed(drawn * np.uint64(31) + words)
    return drawn


def mixed(x: UInt64s) -> UInt64s:
    """Apply the finaliser of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * _A
    x = (x ^ (x >> np.uint64(27))) * _B
    return x ^ (x >> np.uint64(31))


def _words(column: pa.Array) -> UInt64s:
    """Return a word for every value, equal for equal values; arbitrary for NULL."""
    kind = column.type
    if pa.types.is_floating(kind):
        values = np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), np.float64) + 0.0
        return np.where(np.isnan(values), np.float64("nan"), values).view(np.uint64)
    if pa.types.is_boolean(kind):
        return np.asarray(pc.fill_null(column, False).cast(pa.int8()).to_numpy(zero_copy_only=False), np.uint64)
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.uint64)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _byte_words(column)
    if pa.types.is_decimal(kind) or pa.types.is_nested(kind):
        return _byte_words(pa.array([str(value) for value in column.to_pylist()], pa.string()))
    width = kind.bit_width // 8
    raw = np.frombuffer(column.buffers()[1], f"i{width}")[column.offset : column.offset + len(column)]
    return raw.astype(np.int64).view(np.uint64)


def _byte_words(column: pa.Array) -> UInt64s:
    """Return a polynomial over the bytes of each value."""
    bounds, data = text_bytes(column)
    lengths = np.diff(bounds)
    words = lengths.astype(np.uint64)
    if not len(words) or not lengths.any():
        return words
    content = data[bounds[0] : bounds[-1]].astype(np.uint64)
    starts = bounds[:-1] - bounds[0]
    place = np.arange(len(content)) - np.repeat(starts, lengths)
    powers = np.cumprod(np.full(int(lengths.max()), _PRIME))
    filled = lengths > 0
    words[filled] += np.add.reduceat((content + np.uint64(1)) * powers[place], starts[filled])
    return words
