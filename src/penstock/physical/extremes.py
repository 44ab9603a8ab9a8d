"""MIN and MAX: order-preserving keys of values, and the loops that follow the extreme of a changing bag."""

from __future__ import annotations

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.physical.elements import Int64s

_LAST = np.int64(2**63 - 1)


def order_keys(column: pa.Array) -> Int64s:
    """int64 keys ordered as the values of `column` are (NaN above all numbers); arbitrary where NULL. Keys of types
    wider than 64 bits are dense ranks, comparable within this array only."""
    kind = column.type
    if pa.types.is_floating(kind):
        values = np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64) + 0.0
        values = np.where(np.isnan(values), np.float64("nan"), values)
        bits = values.view(np.int64)
        return np.where(bits < 0, np.int64(-(2**63)) - bits - 1, bits)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    if pa.types.is_integer(column.type):
        return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    ranks: Int64s = pc.rank(column, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


@nb.njit(cache=True)
def _least(codes, keys, valid, count):  # type: ignore[no-untyped-def]
    best = np.full(count, -1, np.int64)
    for i in range(codes.shape[0]):
        if valid[i]:
            c = codes[i]
            if best[c] < 0 or keys[i] < keys[best[c]]:
                best[c] = i
    return best


def extreme_by_code(function: str, codes: Int64s, count: int, column: pa.Array) -> pa.Array:
    """The MIN or MAX of `column` per code in [0, count), NULL where a code has only NULLs."""
    keys = order_keys(column)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    best = _least(codes, keys if function == "MIN" else ~keys, valid, count)
    return column.take(pa.array(best, mask=best < 0))


@nb.njit(cache=True)
def _push(heap, size, item, keys):  # type: ignore[no-untyped-def]
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if keys[heap[parent]] <= keys[item]:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


@nb.njit(cache=True)
def _pop(heap, size, keys):  # type: ignore[no-untyped-def]
    """Remove the least of `size` items; the heap then has size - 1."""
    last = heap[size - 1]
    size -= 1
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and keys[heap[child + 1]] < keys[heap[child]]:
            child += 1
        if keys[last] <= keys[heap[child]]:
            break
        heap[place] = heap[child]
        place = child
    if size > 0:
        heap[place] = last


@nb.njit(cache=True)
def follow_least(groups, times, order, pairs, weights, held, held_start, counts, keys, result):  # type: ignore[no-untyped-def]
    """The least live value at every change of every group.

    Events order[0], order[1], ... are sorted by (group, time); event e changes the count of the value `pairs[e]` (a
    slot of the bag, -1 for none) by `weights[e]`. held[held_start[g]:held_start[g+1]] are the values live in group g
    beforehand, by key. counts, keys: by slot; counts are updated in place. result[k] becomes the slot of the least
    value (or -1) after the k-th (group, time). Values die lazily: the heap may hold dead ones until they surface.
    """
    k = 0
    i = 0
    n = order.shape[0]
    while i < n:
        group = groups[order[i]]
        stop = i
        while stop < n and groups[order[stop]] == group:
            stop += 1
        size = held_start[group + 1] - held_start[group]
        heap = np.empty(size + stop - i, np.int64)
        heap[:size] = held[held_start[group] : held_start[group + 1]]
        while i < stop:
            time = times[order[i]]
            while i < stop and times[order[i]] == time:
                event = order[i]
                pair = pairs[event]
                if pair >= 0:
                    before = counts[pair]
                    counts[pair] = before + weights[event]
                    if before <= 0 and counts[pair] > 0:
                        _push(heap, size, pair, keys)
                        size += 1
                i += 1
            while size > 0 and counts[heap[0]] <= 0:
                _pop(heap, size, keys)
                size -= 1
            result[k] = heap[0] if size > 0 else -1
            k += 1


@nb.njit(cache=True)
def transitions(pairs, times, order, weights, counts, event, step):  # type: ignore[no-untyped-def]
    """When values of a bag come and go: events sorted by (pair, time) change counts[pair] (in place); each time at
    which a count goes from 0 to positive or back gives one entry: event[k] (one event of that time), step[k] ±1.
    Returns how many."""
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
