"""MurmurHash3 x64-128 of values, with the seed and the bytes that Apache DataSketches hashes.

Integers, BOOLEAN, dates, timestamps and intervals are hashed as 8-byte integers, FLOAT and DOUBLE as the 8 bytes of a
double with one zero and one NaN, texts and BINARY as their bytes, DECIMAL as a 16-byte integer; several columns as the
hashes of each, one after the other. All little-endian.
"""

from __future__ import annotations

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.arrays import Bytes, Int32s, text_bytes
from penstock.compilation import loop

UInt64s = npt.NDArray[np.uint64]

SEED = 9001
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_A, _B, _FIVE = np.uint64(0x52DCE729), np.uint64(0x38495AB5), np.uint64(5)
_SEED = np.uint64(SEED)
_EIGHT = np.uint64(8)


def hash128(column: pa.Array) -> tuple[UInt64s, UInt64s]:
    """Return both halves of the hash of every value; arbitrary where it is NULL."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return hash128(column.dictionary_decode())
    if pa.types.is_struct(kind):
        parts = [half for field in column.flatten() for half in hash128(field)]
        one, two = _hash_rows(np.ascontiguousarray(np.stack(parts, axis=1)))
        return one, two
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        column = column.fill_null("" if pa.types.is_string(kind) else b"") if column.null_count else column
        one, two = _hash_bytes(*text_bytes(column))
        return one, two
    if pa.types.is_decimal(kind):
        column = column.cast(pa.decimal128(kind.precision, kind.scale))
        raw = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
        one, two = _hash_rows(raw.reshape(-1, 2))
        return one, two
    one, two = _hash_words(_words(column))
    return one, two


def _words(column: pa.Array) -> UInt64s:
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.uint64)
    if pa.types.is_floating(kind):
        values = np.array(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
        values[values == 0.0] = 0.0
        values[np.isnan(values)] = np.nan
        return values.view(np.uint64)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    raw = np.frombuffer(column.buffers()[1], f"i{column.type.bit_width // 8}")
    return raw[column.offset : column.offset + len(column)].astype(np.int64, copy=False).view(np.uint64)


@nb.njit(inline="always")
def _rotate(x: np.uint64, by: int) -> np.uint64:
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@nb.njit(inline="always")
def _finish(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> np.uint64(33))) * _F1
    x = (x ^ (x >> np.uint64(33))) * _F2
    return x ^ (x >> np.uint64(33))


@nb.njit(inline="always")
def _first(k: np.uint64) -> np.uint64:
    return np.uint64(_rotate(k * _C1, 31) * _C2)


@nb.njit(inline="always")
def _second(k: np.uint64) -> np.uint64:
    return np.uint64(_rotate(k * _C2, 33) * _C1)


@nb.njit(inline="always")
def _block(one: np.uint64, two: np.uint64, k1: np.uint64, k2: np.uint64) -> tuple[np.uint64, np.uint64]:
    one = (_rotate(one ^ _first(k1), 27) + two) * _FIVE + _A
    two = (_rotate(two ^ _second(k2), 31) + one) * _FIVE + _B
    return one, two


@nb.njit(inline="always")
def _end(one: np.uint64, two: np.uint64, length: np.uint64) -> tuple[np.uint64, np.uint64]:
    one ^= length
    two ^= length
    one += two
    two += one
    one, two = _finish(one), _finish(two)
    one += two
    return one, two + one


@loop
def _hash_words(words: UInt64s) -> tuple[UInt64s, UInt64s]:
    size = words.shape[0]
    one, two = np.empty(size, np.uint64), np.empty(size, np.uint64)
    for i in range(size):
        one[i], two[i] = _end(_SEED ^ _first(words[i]), _SEED, _EIGHT)
    return one, two


@loop
def _hash_rows(words: UInt64s) -> tuple[UInt64s, UInt64s]:
    """Hash rows of an even number of words."""
    size, width = words.shape
    one, two = np.empty(size, np.uint64), np.empty(size, np.uint64)
    for i in range(size):
        a, b = _SEED, _SEED
        for k in range(0, width, 2):
            a, b = _block(a, b, words[i, k], words[i, k + 1])
        one[i], two[i] = _end(a, b, np.uint64(8 * width))
    return one, two


@nb.njit(inline="always")
def _word(data: Bytes, start: int, stop: int) -> np.uint64:
    word = np.uint64(0)
    for k in range(min(8, stop - start)):
        word |= np.uint64(data[start + k]) << np.uint64(8 * k)
    return word


@loop
def _hash_bytes(offsets: Int32s, data: Bytes) -> tuple[UInt64s, UInt64s]:
    size = offsets.shape[0] - 1
    one, two = np.empty(size, np.uint64), np.empty(size, np.uint64)
    for i in range(size):
        at, stop = offsets[i], offsets[i + 1]
        length = np.uint64(stop - at)
        a, b = _SEED, _SEED
        while stop - at >= 16:
            a, b = _block(a, b, _word(data, at, stop), _word(data, at + 8, stop))
            at += 16
        if stop - at > 8:
            b ^= _second(_word(data, at + 8, stop))
        if stop > at:
            a ^= _first(_word(data, at, stop))
        one[i], two[i] = _end(a, b, length)
    return one, two
