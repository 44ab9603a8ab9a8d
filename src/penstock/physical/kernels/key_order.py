"""Keys in the order of values: an int64 for most types, followed by bytes for wider ones.

Contract: of two values of one type, a < b exactly when (key(a), bytes(a)) < (key(b), bytes(b)), with bytes compared
like strings; this holds across arrays, processes and time. NaN is the largest number, -0.0 equals 0.0, and inside a
struct NULL is the smallest value. Keys of NULLs at the top level are arbitrary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compilation import loop
from penstock.physical.elements import Bools, Int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.extremes import order_keys

Bytes = npt.NDArray[np.uint8]
_BIAS = np.uint64(1 << 63)


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
    text = pa.types.is_string(type_) or pa.types.is_binary(type_)
    return bool(text or pa.types.is_decimal(type_) or pa.types.is_struct(type_))


def sort_keys(column: pa.Array) -> SortKeys:
    """Return the keys of all values of `column`. A struct has two fields."""
    kind, length = column.type, len(column)
    if pa.types.is_struct(kind):
        return _pair_keys(*column.flatten())
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        starts, lengths, data = _text(column)
        return SortKeys(_first_bytes(starts, lengths, data), True, starts, lengths, data)
    if pa.types.is_decimal(kind):
        low, high = _words(column)
        starts, lengths = np.arange(length) * 8, np.full(length, 8)
        return SortKeys(high, True, starts, lengths, _big_endian(low))
    none = np.empty(0, np.int64)
    return SortKeys(order_keys(column), False, none, none, np.empty(0, np.uint8))


def _pair_keys(major: pa.Array, minor: pa.Array) -> SortKeys:
    """Return keys of pairs: the key of the first value, then bytes: whether both are present, and the second value."""
    present = major.is_valid().to_numpy(zero_copy_only=False)
    there = minor.is_valid().to_numpy(zero_copy_only=False)
    starts, lengths, data = _as_bytes(minor)
    if is_wide(major.type):
        return _wide_pair_keys(sort_keys(major), present, there, starts, lengths, data)
    keys = np.where(present, order_keys(major), np.iinfo(np.int64).min)
    made = np.empty(int(np.where(there, lengths, 0).sum()) + 2 * len(keys), np.uint8)
    places = np.empty(len(keys), np.int64)
    sizes = np.empty(len(keys), np.int64)
    _mark(present, there, starts, lengths, data, places, sizes, made)
    return SortKeys(keys, True, places, sizes, made)


def _wide_pair_keys(
    major: SortKeys, present: Bools, there: Bools, starts: Int64s, lengths: Int64s, data: Bytes
) -> SortKeys:
    """Of pairs whose first value is wide: its key; whether it is there, its bytes with an end that compares below every
    byte, whether the second value is there, its bytes."""
    keys = np.where(present, major.keys, np.iinfo(np.int64).min)
    # A byte of 0 becomes two, and the end takes two.
    size = 4 * len(keys) + int(2 * np.where(present, major.lengths, 0).sum() + np.where(there, lengths, 0).sum())
    made = np.empty(size, np.uint8)
    places, sizes = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    _mark_wide(present, major.starts, major.lengths, major.data, there, starts, lengths, data, places, sizes, made)
    return SortKeys(keys, True, places, sizes, made)


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
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
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


@compiled(reads="present there starts lengths data")
def _mark(
    present: Bools,
    there: Bools,
    starts: Int64s,
    lengths: Int64s,
    data: Bytes,
    places: Int64s,
    sizes: Int64s,
    made: Bytes,
) -> None:
    end = 0
    for i in range(starts.shape[0]):
        places[i] = end
        made[end] = 1 if present[i] else 0
        made[end + 1] = 1 if there[i] else 0
        end += 2
        if there[i]:
            for k in range(starts[i], starts[i] + lengths[i]):
                made[end] = data[k]
                end += 1
        sizes[i] = end - places[i]


@compiled(reads="present first_starts first_lengths first_data there starts lengths data")
def _mark_wide(
    present: Bools,
    first_starts: Int64s,
    first_lengths: Int64s,
    first_data: Bytes,
    there: Bools,
    starts: Int64s,
    lengths: Int64s,
    data: Bytes,
    places: Int64s,
    sizes: Int64s,
    made: Bytes,
) -> None:
    end = 0
    for i in range(starts.shape[0]):
        places[i] = end
        made[end] = 1 if present[i] else 0
        end += 1
        if present[i]:
            for k in range(first_starts[i], first_starts[i] + first_lengths[i]):
                made[end] = first_data[k]
                end += 1
                if first_data[k] == 0:
                    made[end] = 1
                    end += 1
        made[end] = 0
        made[end + 1] = 0
        made[end + 2] = 1 if there[i] else 0
        end += 3
        if there[i]:
            for k in range(starts[i], starts[i] + lengths[i]):
                made[end] = data[k]
                end += 1
        sizes[i] = end - places[i]


@loop
def bytes_less(data: Bytes, one: int, one_length: int, other: int, other_length: int) -> bool:
    """Return whether data[one : one + one_length] precedes data[other : other + other_length]."""
    for k in range(min(one_length, other_length)):
        if data[one + k] != data[other + k]:
            return bool(data[one + k] < data[other + k])
    return one_length < other_length
