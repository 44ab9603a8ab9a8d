"""Keys in the order of values: an int64 for most types, followed by bytes for wider ones.

Contract: of two values of one type, a < b exactly when (key(a), bytes(a)) < (key(b), bytes(b)), with bytes compared
like strings; this holds across arrays, processes and time. NaN is the largest number and -0.0 equals 0.0. A struct is
the list of its fields, each in its own direction: ascending and NULL first, or as an ORDER BY has it. Keys of NULLs at
the top level are arbitrary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrays import text_bytes
from penstock.compilation import loop
from penstock.expressions.nodes import KeyDirection
from penstock.physical.elements import Int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.extremes import order_keys

Bytes = npt.NDArray[np.uint8]
_BIAS = np.uint64(1 << 63)
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_ASCENDING = KeyDirection()
#: The mark of a value that is there; that of a NULL is 0 or 2.
_PRESENT = 1


@dataclass(frozen=True)
class SortKeys:
    """Keys by row. The bytes of row i are data[starts[i] : starts[i] + lengths[i]]; `wide`: whether they are
    significant.
    """

    keys: Int64s
    wide: bool
    starts: Int64s
    lengths: Int64s
    data: Bytes


def is_wide(type_: pa.DataType) -> bool:
    """Return whether `type_` has more values than an int64."""
    return _is_text(type_) or bool(pa.types.is_decimal(type_) or pa.types.is_struct(type_))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def sort_keys(column: pa.Array, directions: Sequence[KeyDirection] = ()) -> SortKeys:
    """Return the keys of all values of `column`. directions: of the first fields of a struct; those behind them are
    ascending, NULL first."""
    kind, length = column.type, len(column)
    if pa.types.is_struct(kind):
        return _list_keys(column.flatten(), directions)
    if _is_text(kind):
        starts, lengths, data = _text(column)
        return SortKeys(_first_bytes(starts, lengths, data), True, starts, lengths, data)
    if pa.types.is_decimal(kind):
        low, high = _words(column)
        starts, lengths = np.arange(length) * 8, np.full(length, 8)
        return SortKeys(high, True, starts, lengths, _big_endian(low))
    none = np.empty(0, np.int64)
    return SortKeys(order_keys(column), False, none, none, np.empty(0, np.uint8))


def _list_keys(columns: Sequence[pa.Array], directions: Sequence[KeyDirection]) -> SortKeys:
    """Return keys of lists of values: the key of the first value; then as bytes, for every value, a mark of whether it
    is there, its bytes (of the first only what its key does not hold) and, where its length varies, an end that
    compares below every byte. The bytes of descending values are inverted."""
    ordered = [*directions, *[_ASCENDING] * (len(columns) - len(directions))]
    first, direction = sort_keys(columns[0]), ordered[0]
    present = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns]
    absent = _LEAST if direction.nulls_first else _MOST
    keys = np.where(present[0], ~first.keys if direction.descending else first.keys, absent)
    parts = [(first.starts, first.lengths, first.data) if first.wide else _no_bytes(len(keys))]
    parts += [_as_bytes(column) for column in columns[1:]]
    # The last value needs no end, but where what is longer comes first.
    ended = [_is_text(column.type) for column in columns]
    ended[-1] &= ordered[-1].descending
    # With an end, a byte of 0 becomes two, and the end takes two.
    longest = [2 * part[1] + 2 if end else part[1] for part, end in zip(parts, ended, strict=True)]
    sizes = np.sum([1 + np.where(there, size, 0) for there, size in zip(present, longest, strict=True)], axis=0)
    places = np.cumsum(sizes) - sizes
    made, at = np.empty(int(sizes.sum()), np.uint8), places.copy()
    for key, there, end, part in zip(ordered, present, ended, parts, strict=True):
        marks = np.where(there, _PRESENT, 0 if key.nulls_first else 2).astype(np.uint8)
        _append(marks, *part, end, 255 if key.descending else 0, at, made)
    return SortKeys(keys, True, places, at - places, made)


def _no_bytes(length: int) -> tuple[Int64s, Int64s, Bytes]:
    return np.zeros(length, np.int64), np.zeros(length, np.int64), np.empty(0, np.uint8)


def _as_bytes(column: pa.Array) -> tuple[Int64s, Int64s, Bytes]:
    """Return (starts, lengths, data): values as bytes in the order of the values."""
    inner = sort_keys(column)
    biased = _big_endian(inner.keys.view(np.uint64) ^ _BIAS)
    if not inner.wide:
        return np.arange(len(inner.keys)) * 8, np.full(len(inner.keys), 8), biased
    if not pa.types.is_decimal(column.type):
        return inner.starts, inner.lengths, inner.data
    both = np.stack([biased.reshape(-1, 8), inner.data.reshape(-1, 8)], axis=1).reshape(-1)
    return np.arange(len(inner.keys)) * 16, np.full(len(inner.keys), 16), both


def _text(column: pa.Array) -> tuple[Int64s, Int64s, Bytes]:
    spans, content = text_bytes(column)
    ends = spans.astype(np.int64)
    return ends[:-1], np.diff(ends), content


def _words(column: pa.Array) -> tuple[npt.NDArray[np.uint64], Int64s]:
    """Return (low, high) halves of a decimal128 column."""
    raw = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
    return np.ascontiguousarray(raw[0::2]), np.ascontiguousarray(raw[1::2]).view(np.int64)


def _big_endian(words: npt.NDArray[np.uint64]) -> Bytes:
    return np.ascontiguousarray(words).astype(">u8").view(np.uint8)


@compiled(reads="starts lengths data")
def _first_bytes(starts: Int64s, lengths: Int64s, data: Bytes) -> Int64s:
    """Return the first eight bytes of each value as a number in the order of the bytes."""
    keys = np.empty(starts.shape[0], np.int64)
    for i in range(starts.shape[0]):
        word = np.uint64(0)
        for k in range(8):
            byte = data[starts[i] + k] if k < lengths[i] else np.uint8(0)
            word = (word << np.uint64(8)) | np.uint64(byte)
        keys[i] = np.int64(word ^ np.uint64(1 << 63))
    return keys


@compiled(reads="marks starts lengths data")
def _append(
    marks: Bytes, starts: Int64s, lengths: Int64s, data: Bytes, ended: bool, flip: int, at: Int64s, made: Bytes
) -> None:
    """Write the mark of each value, and the bytes of those that are there, to `made` from at[i] on; move at[i] behind
    them."""
    for i in range(marks.shape[0]):
        end = at[i]
        made[end] = marks[i]
        end += 1
        if marks[i] == _PRESENT:
            for k in range(starts[i], starts[i] + lengths[i]):
                made[end] = data[k] ^ flip
                end += 1
                if ended and data[k] == 0:
                    made[end] = 1 ^ flip
                    end += 1
            if ended:
                made[end] = made[end + 1] = flip
                end += 2
        at[i] = end


@loop
def bytes_less(data: Bytes, one: int, one_length: int, other: int, other_length: int) -> bool:
    """Return whether data[one : one + one_length] precedes data[other : other + other_length]."""
    for k in range(min(one_length, other_length)):
        if data[one + k] != data[other + k]:
            return bool(data[one + k] < data[other + k])
    return one_length < other_length
