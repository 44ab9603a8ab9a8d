"""HASH and XXHASH64: Murmur3 of 32 bits and XXH64 of the values of a row, with the seed and the bytes of Spark.

The hash of one argument is the seed of the next; NULL leaves it as it is. Of a value enter 4 bytes (BOOLEAN, TINYINT,
SMALLINT, INT, DATE, FLOAT) or 8 (BIGINT, times, intervals, DOUBLE), of floats with one zero and one NaN; of a DECIMAL
of up to 18 digits its unscaled value in 8 bytes, of a wider one in as few as it needs, the highest first; the bytes of
texts and BINARY; the elements of an ARRAY and the fields of a STRUCT one after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrays import Bytes, Int8s, Int32s, UInt64s, text_bytes
from penstock.compilation import loop
from penstock.expressions.coercion import BIGINT, INT
from penstock.expressions.library.registry import Function
from penstock.expressions.sketches.count_min import murmur32
from penstock.expressions.values.datum import Arguments, Datum, Kernel, arrays, numbers

UInt32s = npt.NDArray[np.uint32]
#: The hashes of rows: UInt32s or UInt64s.
Hashes = npt.NDArray[Any]

#: Spark's.
SEED = 42
#: The most digits of a DECIMAL that is hashed as a number of 8 bytes.
_DIGITS_OF_8_BYTES = 18


class _Hash(ABC):
    """A hash function: rows of words or of bytes, each with a seed of its own, to hashes."""

    kind: type[np.unsignedinteger[Any]]

    @abstractmethod
    def of_4_bytes(self, words: UInt32s, seeds: Hashes) -> Hashes: ...

    @abstractmethod
    def of_8_bytes(self, words: UInt64s, seeds: Hashes) -> Hashes: ...

    @abstractmethod
    def of_bytes(self, offsets: Int32s, data: Bytes, seeds: Hashes) -> Hashes: ...


class _Murmur3(_Hash):
    kind = np.uint32

    def of_4_bytes(self, words: UInt32s, seeds: Hashes) -> Hashes:
        return self._ended(self._mixed(seeds, words), 4)

    def of_8_bytes(self, words: UInt64s, seeds: Hashes) -> Hashes:
        low, high = words.astype(np.uint32), (words >> np.uint64(32)).astype(np.uint32)
        return self._ended(self._mixed(self._mixed(seeds, low), high), 8)

    def of_bytes(self, offsets: Int32s, data: Bytes, seeds: Hashes) -> Hashes:
        return np.asarray(_murmur_of_bytes(offsets, data.view(np.int8), seeds.astype(np.int64))).astype(np.uint32)

    def _mixed(self, seeds: Hashes, words: UInt32s) -> Hashes:
        found = seeds ^ (_turned(words * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593))
        mixed: Hashes = _turned(found, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        return mixed

    def _ended(self, found: Hashes, length: int) -> Hashes:
        found = found ^ np.uint32(length)
        found = (found ^ (found >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        found = (found ^ (found >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        ended: Hashes = found ^ (found >> np.uint32(16))
        return ended


_P1, _P2, _P3 = np.uint64(0x9E3779B185EBCA87), np.uint64(0xC2B2AE3D27D4EB4F), np.uint64(0x165667B19E3779F9)
_P4, _P5 = np.uint64(0x85EBCA77C2B2AE63), np.uint64(0x27D4EB2F165667C5)


class _XXH64(_Hash):
    kind = np.uint64

    def of_4_bytes(self, words: UInt32s, seeds: Hashes) -> Hashes:
        found = (seeds + _P5 + np.uint64(4)) ^ (words.astype(np.uint64) * _P1)
        return self._ended(_turned(found, 23) * _P2 + _P3)

    def of_8_bytes(self, words: UInt64s, seeds: Hashes) -> Hashes:
        found = (seeds + _P5 + np.uint64(8)) ^ (_turned(words * _P2, 31) * _P1)
        return self._ended(_turned(found, 27) * _P1 + _P4)

    def of_bytes(self, offsets: Int32s, data: Bytes, seeds: Hashes) -> Hashes:
        return self._ended(np.asarray(_xxh64_of_bytes(offsets, data, seeds)))

    def _ended(self, found: Hashes) -> Hashes:
        found = (found ^ (found >> np.uint64(33))) * _P2
        found = (found ^ (found >> np.uint64(29))) * _P3
        ended: Hashes = found ^ (found >> np.uint64(32))
        return ended


def _turned(values: Hashes, by: int) -> Hashes:
    """Return unsigned integers with their bits turned to the left."""
    width = values.dtype.itemsize * 8
    turned: Hashes = (values << values.dtype.type(by)) | (values >> values.dtype.type(width - by))
    return turned


@loop
def _murmur_of_bytes(offsets: Int32s, data: Int8s, seeds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    found = np.empty(seeds.shape[0], np.int64)
    for i in range(seeds.shape[0]):
        found[i] = murmur32(data, int(offsets[i]), int(offsets[i + 1]), seeds[i])
    return found


@nb.njit(inline="always")
def _left(value: np.uint64, by: int) -> np.uint64:
    return np.uint64((value << np.uint64(by)) | (value >> np.uint64(64 - by)))


@nb.njit(inline="always")
def _word(data: Bytes, at: int, size: int) -> np.uint64:
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@loop
def _xxh64_of_bytes(offsets: Int32s, data: Bytes, seeds: UInt64s) -> UInt64s:
    """Return the hashes before their last mixing."""
    found = np.empty(seeds.shape[0], np.uint64)
    parts = np.empty(4, np.uint64)
    for i in range(seeds.shape[0]):
        at, stop, seed = int(offsets[i]), int(offsets[i + 1]), seeds[i]
        length = stop - at
        if length >= 32:
            parts[0], parts[1] = seed + _P1 + _P2, seed + _P2
            parts[2], parts[3] = seed, seed - _P1
            while stop - at >= 32:
                for part in range(4):
                    parts[part] = _left(parts[part] + _word(data, at + 8 * part, 8) * _P2, 31) * _P1
                at += 32
            h = _left(parts[0], 1) + _left(parts[1], 7) + _left(parts[2], 12) + _left(parts[3], 18)
            for part in range(4):
                h = (h ^ (_left(parts[part] * _P2, 31) * _P1)) * _P1 + _P4
        else:
            h = seed + _P5
        h += np.uint64(length)
        while stop - at >= 8:
            h = _left(h ^ (_left(_word(data, at, 8) * _P2, 31) * _P1), 27) * _P1 + _P4
            at += 8
        if stop - at >= 4:
            h = _left(h ^ (_word(data, at, 4) * _P1), 23) * _P2 + _P3
            at += 4
        while at < stop:
            h = _left(h ^ (np.uint64(data[at]) * _P5), 11) * _P1
            at += 1
        found[i] = h
    return found


def _hashed(hash_: _Hash, column: pa.Array, seeds: Hashes) -> Hashes:
    """Return the hash of each value with the seed of its row; of NULL the seed."""
    kind = column.type
    if pa.types.is_null(kind):
        return seeds
    if pa.types.is_list(kind):
        found = _of_lists(hash_, column, seeds)
    elif pa.types.is_struct(kind):
        found = seeds
        for field in column.flatten():
            found = _hashed(hash_, field, found)
    elif pa.types.is_decimal(kind):
        found = _of_decimals(hash_, column, seeds)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        found = _of_texts(hash_, column, seeds)
    elif pa.types.is_boolean(kind) or kind.bit_width <= 32:
        found = hash_.of_4_bytes(_words(column, np.float32, np.int32).view(np.uint32), seeds)
    else:
        found = hash_.of_8_bytes(_words(column, np.float64, np.int64).view(np.uint64), seeds)
    return np.where(column.is_valid().to_numpy(zero_copy_only=False), found, seeds) if column.null_count else found


def _words(column: pa.Array, float_: type[Any], integer: type[Any]) -> npt.NDArray[Any]:
    """Return the words of values of a fixed width; arbitrary at NULL rows."""
    if pa.types.is_boolean(column.type):
        return np.array(column.fill_null(False).to_numpy(zero_copy_only=False), integer)
    if not pa.types.is_floating(column.type):
        return np.array(numbers(column), integer)
    values = np.array(numbers(column), float_)
    values[values == 0] = 0.0
    values[np.isnan(values)] = np.nan
    return values


def _of_texts(hash_: _Hash, column: pa.Array, seeds: Hashes) -> Hashes:
    if column.null_count:
        column = column.fill_null("" if pa.types.is_string(column.type) else b"")
    return hash_.of_bytes(*text_bytes(column), seeds)


def _of_decimals(hash_: _Hash, column: pa.Array, seeds: Hashes) -> Hashes:
    raw = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, 16)[column.offset : column.offset + len(column)]
    if column.type.precision <= _DIGITS_OF_8_BYTES:
        return hash_.of_8_bytes(np.ascontiguousarray(raw[:, :8]).view(np.uint64)[:, 0], seeds)
    # All bytes of the sign but one of them that the next byte does not show.
    high_first = raw[:, ::-1]
    sign = np.where(high_first[:, :1] >= 128, 255, 0).astype(np.uint8)
    needed = high_first != sign
    first = np.where(needed.any(axis=1), needed.argmax(axis=1), 16)
    leads = np.take_along_axis(high_first, np.minimum(first, 15)[:, None], axis=1)[:, 0]
    first -= (first == 16) | ((leads ^ sign[:, 0]) >= 128)
    kept = np.arange(16) >= first[:, None]
    spans = np.concatenate(([0], np.cumsum(16 - first))).astype(np.int32)
    return hash_.of_bytes(spans, np.ascontiguousarray(high_first[kept]), seeds)


def _of_lists(hash_: _Hash, column: pa.Array, seeds: Hashes) -> Hashes:
    """Hash the first elements of all lists, then the second ones, and so on."""
    starts = np.asarray(column.offsets, np.int64)
    lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.diff(starts), 0)
    found, place, rows = seeds.copy(), 0, np.flatnonzero(lengths)
    while len(rows):
        found[rows] = _hashed(hash_, column.values.take(pa.array(starts[rows] + place)), found[rows])
        place += 1
        rows = rows[lengths[rows] > place]
    return found


def _kernel(hash_: _Hash) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        columns = arrays(arguments)
        found: Hashes = np.full(len(columns[0]), SEED, hash_.kind)
        with np.errstate(over="ignore"):
            for column in columns:
                found = _hashed(hash_, column, found)
        return pa.array(found.view(np.int32 if hash_.kind is np.uint32 else np.int64), type_)

    return run


def _hashing(name: str, type_: pa.DataType, hash_: _Hash, shown: str) -> Function:
    """Return the function of any values. shown: what it is called elsewhere."""
    return Function(
        name,
        "value, ...",
        lambda _, arguments: (tuple(arguments), type_),
        _kernel(hash_),
        f"{shown} of one or more values, as Spark has it; of NULL alone 42",
        never_null=True,
        compares=True,
    )


FUNCTIONS = (
    _hashing("HASH", INT, _Murmur3(), "32-bit Murmur3"),
    _hashing("XXHASH64", BIGINT, _XXH64(), "XXH64"),
)
