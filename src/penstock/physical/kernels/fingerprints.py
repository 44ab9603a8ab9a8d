"""128-bit fingerprints of rows, which identify keys, groups and equal tuples.

Two rows have the same fingerprint when they are equal in the sense of GROUP BY (NULL equals NULL, NaN equals NaN,
-0.0 equals 0.0). The converse holds exactly for one column of at most 64 bits (the mix is a bijection), and otherwise
except with a probability of 2^-128 per pair. Fingerprints depend on values and types alone, never on process or batch,
so shards can be chosen by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Bools, Bytes, Float64s, Int32s, Int64s
from penstock.physical.kernels.compiling import compiled

UInt64s = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@nb.njit(inline="always")
def _mix(x: np.uint64) -> np.uint64:
    """Apply the finaliser of splitmix64: a bijection on 64 bits."""
    x = (x ^ (x >> _S30)) * _A
    x = (x ^ (x >> _S27)) * _B
    return x ^ (x >> _S31)


@compiled(reads="words valid")
def _first_words(words: UInt64s, valid: Bools, has_nulls: bool, first: UInt64s, second: UInt64s) -> None:
    for i in range(words.shape[0]):
        if has_nulls and not valid[i]:
            first[i] = _NULL
            second[i] = np.uint64(1)
        else:
            first[i] = _mix(words[i])
            second[i] = np.uint64(0)


@compiled(reads="words valid")
def _more_words(words: UInt64s, valid: Bools, has_nulls: bool, first: UInt64s, second: UInt64s) -> None:
    for i in range(words.shape[0]):
        word = _NULL
        if not has_nulls or valid[i]:
            word = _mix(words[i] + np.uint64(1))
        first[i] = _mix(first[i] * np.uint64(31) + word)
        second[i] = _mix((second[i] ^ word) + np.uint64(0x5851F42D4C957F2D))


@compiled(reads="offsets data")
def _string_words(offsets: Int32s, data: Bytes, one: UInt64s, two: UInt64s) -> None:
    """Compute two independent multiply-mix hashes of each byte string, eight bytes at a time."""
    for i in range(one.shape[0]):
        start, stop = offsets[i], offsets[i + 1]
        a = np.uint64(stop - start) ^ _A
        b = np.uint64(stop - start) * _B + np.uint64(7)
        position = start
        while position < stop:
            word = np.uint64(0)
            for k in range(min(8, stop - position)):
                word |= np.uint64(data[position + k]) << np.uint64(8 * k)
            a = _mix(a ^ word)
            b = _mix(b + word * _A)
            position += 8
        one[i] = a
        two[i] = b


_NAN = np.array([np.nan]).view(np.uint64)[0]


def fingerprints(columns: Sequence[pa.Array], length: int) -> tuple[UInt64s, UInt64s]:
    """Return the fingerprints of the rows of `columns` as two uint64 arrays of `length`. Without columns all are
    equal.
    """
    first = np.zeros(length, np.uint64)
    second = np.zeros(length, np.uint64)
    started = False
    for column in columns:
        valid, has_nulls = _validity(column)
        for words in _words(column):
            # A second word of the same column (decimals, strings) must not overwrite the first.
            (_more_words if started else _first_words)(words, valid, has_nulls, first, second)
            started = True
    return first, second


def _validity(column: pa.Array) -> tuple[npt.NDArray[np.bool_], bool]:
    if column.null_count == 0:
        return np.empty(0, np.bool_), False
    return column.is_valid().to_numpy(zero_copy_only=False), True


def _words(column: pa.Array) -> list[UInt64s]:
    """Return the column as one or two uint64 arrays that are equal for equal values; arbitrary where it is NULL."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _words(column.dictionary_decode())
    if pa.types.is_null(kind):
        return [np.zeros(len(column), np.uint64)]
    if pa.types.is_boolean(kind):
        return [pc.fill_null(column, False).cast(pa.int8()).to_numpy(zero_copy_only=False).astype(np.uint64)]
    if pa.types.is_floating(kind):
        return [float_bits(column)]
    if pa.types.is_decimal(kind):
        raw = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
        return [np.ascontiguousarray(raw[0::2]), np.ascontiguousarray(raw[1::2])]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _bytes_words(column, np.int32)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _bytes_words(column, np.int64)
    if pa.types.is_struct(kind):
        return list(fingerprints(column.flatten(), len(column)))
    if pa.types.is_list(kind):
        return _list_words(column)
    width = kind.bit_width
    raw = np.frombuffer(column.buffers()[1], f"i{width // 8}")[column.offset : column.offset + len(column)]
    return [raw.astype(np.int64).view(np.uint64)]


def float_bits(column: pa.Array) -> UInt64s:
    """Return the bits of each value as a double, with one zero and one NaN; 0 where it is NULL."""
    filled = column.fill_null(0) if column.null_count else column
    values = np.ascontiguousarray(filled.to_numpy(zero_copy_only=False), np.float64)
    bits = np.empty(len(values), np.uint64)
    _one_of_a_kind(values, values.view(np.uint64), _NAN, bits)
    return bits


@compiled(reads="values raw")
def _one_of_a_kind(values: Float64s, raw: UInt64s, nan: np.uint64, bits: UInt64s) -> None:
    for i in range(values.shape[0]):
        value = values[i]
        bits[i] = np.uint64(0) if value == 0.0 else nan if value != value else raw[i]


def _bytes_words(column: pa.Array, offset_type: type) -> list[UInt64s]:
    _, offsets, data = column.buffers()
    starts: npt.NDArray[Any] = np.frombuffer(offsets, offset_type)[column.offset : column.offset + len(column) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    one, two = np.empty(len(column), np.uint64), np.empty(len(column), np.uint64)
    _string_words(starts, content, one, two)
    return [one, two]


def _list_words(column: pa.Array) -> list[UInt64s]:
    offsets = column.offsets.to_numpy(zero_copy_only=True).astype(np.int64)
    start, stop = int(offsets[0]), int(offsets[-1])
    first, second = fingerprints([column.values.slice(start, stop - start)], stop - start)
    one, two = np.empty(len(column), np.uint64), np.empty(len(column), np.uint64)
    _fold_lists(offsets - start, first, second, one, two)
    return [one, two]


@compiled(reads="offsets first second")
def _fold_lists(offsets: Int64s, first: UInt64s, second: UInt64s, one: UInt64s, two: UInt64s) -> None:
    """Combine the hashes of each list's members, in their order, to two hashes of the list."""
    for i in range(one.shape[0]):
        length = np.uint64(offsets[i + 1] - offsets[i])
        a, b = length ^ _A, length * _B + np.uint64(7)
        for k in range(offsets[i], offsets[i + 1]):
            a = _mix(a * np.uint64(31) + first[k] + second[k] * _A)
            b = _mix((b ^ first[k]) + second[k] + _B)
        one[i] = a
        two[i] = b
