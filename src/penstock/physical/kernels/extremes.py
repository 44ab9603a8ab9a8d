"""MIN, MAX and DISTINCT: order-preserving keys of values, and the loop that finds when values appear and disappear."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.compilation import loop
from penstock.physical.elements import Bools, Int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.fingerprints import float_bits

_LAST = np.int64(2**63 - 1)


def order_keys(column: pa.Array) -> Int64s:
    """Return int64 keys in the order of the values of `column` (NaN above all numbers); arbitrary where NULL.

    Keys of types wider than 64 bits are dense ranks, comparable only within this array.
    """
    kind = column.type
    if pa.types.is_floating(kind):
        bits = float_bits(column).view(np.int64)
        return np.where(bits < 0, np.int64(-(2**63)) - bits - 1, bits)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    ranks: Int64s = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def from_order_keys(keys: Int64s, there: Bools, kind: pa.DataType) -> pa.Array:
    """Return the values of `order_keys`, NULL where not `there`; for types of at most 64 bits."""
    mask = None if there.all() else ~there
    if pa.types.is_floating(kind):
        bits = np.where(keys < 0, np.int64(-(2**63)) - keys - 1, keys)
        return pa.array(bits.view(np.float64), pa.float64(), mask=mask).cast(kind)
    values = pa.array(keys, pa.int64(), mask=mask)
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    return values.cast(kind)


@loop
def _least(codes: Int64s, keys: Int64s, valid: Bools, count: int) -> Int64s:
    best = np.full(count, -1, np.int64)
    for i in range(codes.shape[0]):
        if valid[i]:
            c = codes[i]
            if best[c] < 0 or keys[i] < keys[best[c]]:
                best[c] = i
    return best


@compiled(reads="codes values")
def greatest_by_code(codes: Int64s, values: Int64s, count: int) -> Int64s:
    """Return the greatest of `values`, which are not negative, per code in [0, count)."""
    greatest = np.zeros(count, np.int64)
    for i in range(codes.shape[0]):
        greatest[codes[i]] = max(greatest[codes[i]], values[i])
    return greatest


def extreme_by_code(least: bool, codes: Int64s, count: int, column: pa.Array) -> pa.Array:
    """Return the smallest or largest value of `column` per code in [0, count), NULL where a code has only NULLs."""
    keys = order_keys(column)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    best = _least(codes, keys if least else ~keys, valid, count)
    return column.take(pa.array(best, mask=best < 0))


@compiled(reads="slots times order pairs weights")
def comings(
    slots: Int64s, times: Int64s, order: Int64s, pairs: Int64s, weights: Int64s, lanes: Int64s, steps: Int64s
) -> None:
    """Find when values of a bag appear and disappear.

    Events sorted by (slot, time) change the counts lanes[0, pair]; lanes[3, pair] is 1 while it is positive. steps[e]
    becomes ±1 for one event of a time at which its value appears or disappears.
    """
    n, i = order.shape[0], 0
    while i < n:
        slot, time = slots[order[i]], times[order[i]]
        first = i
        while i < n and slots[order[i]] == slot and times[order[i]] == time:
            if pairs[order[i]] >= 0:
                lanes[0, pairs[order[i]]] += weights[order[i]]
            i += 1
        for j in range(first, i):
            pair = pairs[order[j]]
            if pair >= 0:
                here = 1 if lanes[0, pair] > 0 else 0
                steps[order[j]] = here - lanes[3, pair]
                lanes[3, pair] = here


@loop
def transitions(
    pairs: Int64s, times: Int64s, order: Int64s, weights: Int64s, counts: Int64s, event: Int64s, step: Int64s
) -> int:
    """Find when values of a bag appear and disappear; return the number of such changes.

    Events sorted by (pair, time) change counts[pair] (in place); each time at which a count changes between 0 and
    positive gives one entry: event[k] (one event of that time), step[k] ±1.
    """
    k = 0
    i = 0
    n = order.shape[0]
    while i < n:
        pair = pairs[order[i]]
        time = times[order[i]]
        before = counts[pair]
        last = i
        while i < n and pairs[order[i]] == pair and times[order[i]] == time:
            counts[pair] += weights[order[i]]
            last = i
            i += 1
        if (before > 0) != (counts[pair] > 0):
            event[k] = order[last]
            step[k] = 1 if counts[pair] > 0 else -1
            k += 1
    return k
