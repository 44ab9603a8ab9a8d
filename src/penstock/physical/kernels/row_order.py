"""The order of rows by sort keys: NULLs as the key specifies, NaN above all numbers, strings by code points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.algebra.nodes.first_rows import SortKey
from penstock.arrays import Bytes, Int32s, text_bytes
from penstock.compilation import loop
from penstock.physical.elements import Int64s
from penstock.physical.kernels.extremes import order_keys

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@loop
def _prefixes(offsets: Int32s, data: Bytes, keys: Int64s) -> None:
    """Return the first eight bytes of each string as a number in the same order."""
    for i in range(keys.shape[0]):
        start, stop = offsets[i], offsets[i + 1]
        word = np.uint64(0)
        for j in range(8):
            word <<= np.uint64(8)
            if start + j < stop:
                word |= np.uint64(data[start + j])
        keys[i] = np.int64(word ^ np.uint64(1 << 63))


def coarse_keys(column: pa.Array, key: SortKey) -> Int64s:
    """Return int64 keys consistent with the order of `key`, in this and other arrays: an earlier row has a key that is
    smaller or equal.
    """
    kind = column.type
    if pa.types.is_decimal(kind):
        keys = order_keys(column.cast(pa.float64()))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        keys = _string_keys(column)
    elif pa.types.is_nested(kind):
        return np.zeros(len(column), np.int64)
    else:
        keys = order_keys(column)
    if key.descending:
        keys = ~keys
    if column.null_count:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        keys = np.where(valid, keys, _LEAST if key.nulls_first else _MOST)
    return keys


def _string_keys(column: pa.Array) -> Int64s:
    keys = np.empty(len(column), np.int64)
    if len(column):
        _prefixes(*text_bytes(column), keys)
    return keys


def sort_order(columns: Sequence[pa.Array], order: Sequence[SortKey]) -> Int64s:
    """Return the indices of the rows in order."""
    keys: list[np.ndarray[tuple[int], np.dtype[np.generic]]] = []
    for key in reversed(order):  # lexsort takes the most significant last
        column = columns[key.column]
        values = _ranks(column) if pa.types.is_nested(column.type) else order_keys(column)
        if key.descending:
            values = ~values
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            keys += [np.where(valid, values, 0), valid if key.nulls_first else ~valid]
        else:
            keys.append(values)
    return np.lexsort(keys)


def _ranks(column: pa.Array) -> Int64s:
    """Return dense ranks of values in ascending order, comparable within this array: 0 for NULL, others from 1.

    Arrays and structs are ordered by their elements, an array before those of which it is a prefix.
    """
    if pa.types.is_struct(column.type):
        values = _rows_ranks(np.stack([_ranks(part) for part in column.flatten()], axis=1))
    elif pa.types.is_list(column.type):
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        members = np.full((len(column), int(lengths.max(initial=0)) + 1), -1, np.int64)
        members[np.arange(members.shape[1]) < lengths[:, None]] = _ranks(column.flatten())
        values = _rows_ranks(members)
    else:
        values = np.unique(order_keys(column), return_inverse=True)[1].astype(np.int64)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return np.where(valid, values + 1, 0)


def _rows_ranks(keys: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Int64s:
    ranks: Int64s = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return ranks
