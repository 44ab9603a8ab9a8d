"""Compiled loops that have no vector form in NumPy or Arrow: grouping, sorting by small keys, cutting by shard,
growing.

Every function here is a pure function of arrays. Compiled code is cached on disk by numba. Loops that every query needs
make no arrays: `np.zeros` in one takes longer to compile than the loop.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Int32s, Numbers
from penstock.compilation import loop
from penstock.physical.elements import Int64s
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.fingerprints import UInt64s, _mix

#: Up to this many rows NumPy sorts faster than a compiled loop is called.
_FEW = 64

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@compiled(reads="first second")
def _group(first: UInt64s, second: UInt64s, table: Int64s, codes: Int64s, firsts: Int64s) -> int:
    mask = np.uint64(table.shape[0] - 1)
    count = 0
    for i in range(first.shape[0]):
        place = (first[i] * _GOLDEN >> np.uint64(20)) & mask
        while True:
            code = table[place]
            if code < 0:
                table[place] = count
                firsts[count] = i
                codes[i] = count
                count += 1
                break
            j = firsts[code]
            if first[j] == first[i] and second[j] == second[i]:
                codes[i] = code
                break
            place = (place + np.uint64(1)) & mask
    return count


def group_codes(first: UInt64s, second: UInt64s) -> tuple[Int64s, Int64s]:
    """Return dense group numbers of fingerprints, in order of first appearance: (code of each row, first row of each
    code).
    """
    length = len(first)
    size = 1 << max(4, int(length * 2 - 1).bit_length()) if length else 16
    codes = np.empty(length, np.int64)
    firsts = np.empty(length, np.int64)
    count = _group(first, second, np.full(size, -1, np.int64), codes, firsts)
    return codes, firsts[:count]


@loop
def heads_of_chains(first: UInt64s, heads: Int32s, rows: Int32s) -> None:
    """Find the head of the chain of each first half of a fingerprint; these look-ups do not depend on each other."""
    mask = np.uint64(heads.shape[0] - 1)
    for i in range(first.shape[0]):
        rows[i] = heads[(first[i] * _GOLDEN >> np.uint64(20)) & mask]


@loop
def mix_time(first: np.uint64, second: np.uint64, tick: int) -> tuple[np.uint64, np.uint64]:
    """Return the fingerprint of (row, tick) from that of the row."""
    word = _mix(np.uint64(tick) + _GOLDEN)
    return _mix(first * np.uint64(31) + word), _mix(second + word * np.uint64(7))


@compiled(reads="first second ts")
def with_time(first: UInt64s, second: UInt64s, ts: Int64s) -> tuple[UInt64s, UInt64s]:
    """Return fingerprints of (row, ts), which distinguish equal tuples at different instants."""
    one = np.empty_like(first)
    two = np.empty_like(second)
    for i in range(first.shape[0]):
        one[i], two[i] = mix_time(first[i], second[i], ts[i])
    return one, two


@compiled(reads="ts exp")
def _runs(ts: Int64s, exp: Int64s, bounds: Int64s) -> int:
    """Find runs of equal (ts, exp): their starts, and the end of the last one, in `bounds`.

    Return their number, or -1 where they are not in order.
    """
    count = 0
    for i in range(ts.shape[0]):
        if i == 0 or ts[i] != ts[i - 1] or exp[i] != exp[i - 1]:
            if i > 0 and (ts[i] < ts[i - 1] or (ts[i] == ts[i - 1] and exp[i] < exp[i - 1])):
                return -1
            bounds[count] = i
            count += 1
    bounds[count] = ts.shape[0]
    return count


@compiled(reads="first second bounds")
def _group_runs(first: UInt64s, second: UInt64s, bounds: Int64s, table: Int32s, codes: Int64s, firsts: Int64s) -> int:
    mask = np.uint64(table.shape[0] - 1)
    count = 0
    for run in range(bounds.shape[0] - 1):
        before = count
        for i in range(bounds[run], bounds[run + 1]):
            place = (first[i] * _GOLDEN >> np.uint64(20)) & mask
            while True:
                code = table[place]
                if code < before:  # empty, or left by an earlier run
                    table[place] = count
                    firsts[count] = i
                    codes[i] = count
                    count += 1
                    break
                j = firsts[code]
                if first[j] == first[i] and second[j] == second[i]:
                    codes[i] = code
                    break
                place = (place + np.uint64(1)) & mask
    return count


def group_runs(first: UInt64s, second: UInt64s, bounds: Int64s) -> tuple[Int64s, Int64s]:
    """Return `group_codes` of (fingerprint, run), where run k is the rows from bounds[k] to bounds[k + 1].

    The hash table has the size that the longest run requires, and so is in cache where runs are short.
    """
    length = len(first)
    longest = int((bounds[1:] - bounds[:-1]).max()) if length else 0
    size = 1 << max(4, (longest * 2).bit_length())
    codes, firsts = np.empty(length, np.int64), np.empty(length, np.int64)
    count = _group_runs(first, second, bounds, np.full(size, -1, np.int32), codes, firsts)
    return codes, firsts[:count]


def pane_codes(first: UInt64s, second: UInt64s, ts: Int64s, exp: Int64s) -> tuple[Int64s, Int64s]:
    """Return `group_codes` of (fingerprint, ts, exp), one run at a time where rows are in order of time."""
    bounds = np.empty(len(first) + 1, np.int64)
    runs = int(_runs(ts, exp, bounds))
    if runs >= 0:
        return group_runs(first, second, bounds[: runs + 1])
    return group_codes(*with_time(*with_time(first, second, ts), exp))


@compiled(reads="codes values", counted=False)
def _add_by_code(codes: Int64s, values: Int64s, sums: Int64s) -> None:
    for i in range(codes.shape[0]):
        sums[codes[i]] += values[i]


def sum_by_code(codes: Int64s, values: Int64s, count: int) -> Int64s:
    """Return the int64 sums (wrapping) of `values` per code in [0, count)."""
    sums = np.zeros(count, np.int64)
    _add_by_code(codes, values, sums)
    return sums


def distinct_slots(slots: Int64s, count: int) -> Int64s:
    """Return the distinct values of `slots`, which index a table of `count`, in order."""
    if count > 8 * len(slots):
        # Sort the few slots instead of scanning the table; `np.unique` hashes, which takes ten times as long.
        ordered = np.sort(slots)
        return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(slots) else ordered
    return np.flatnonzero(np.bincount(slots, minlength=count))


@compiled(counted=False)
def _radix_pass(
    keys: UInt64s, order: Int64s, shift: np.uint64, counts: Int64s, next_keys: UInt64s, next_order: Int64s
) -> None:
    for i in range(keys.shape[0]):
        counts[((keys[i] >> shift) & np.uint64(2047)) + np.uint64(1)] += 1
    for d in range(2048):
        counts[d + 1] += counts[d]
    for i in range(keys.shape[0]):
        digit = (keys[i] >> shift) & np.uint64(2047)
        place = counts[digit]
        counts[digit] = place + 1
        next_keys[place] = keys[i]
        next_order[place] = order[i]


def argsort_uint64(keys: UInt64s) -> Int64s:
    """Return a stable argsort of uint64 keys: a radix sort over the bits that are in use, 11 at a time."""
    order = np.arange(len(keys), dtype=np.int64)
    if len(keys) < 2:
        return order
    bits = int(keys.max()).bit_length()
    other_keys, other_order = np.empty_like(keys), np.empty_like(order)
    for shift in range(0, bits, 11):
        _radix_pass(keys, order, np.uint64(shift), np.zeros(2049, np.int64), other_keys, other_order)
        keys, other_keys = other_keys, (np.empty_like(keys) if shift == 0 else keys)
        order, other_order = other_order, order
    return order


def in_time(ts: Int64s) -> bool:
    """Return whether ticks are in order."""
    return len(ts) < 2 or bool(np.all(ts[1:] >= ts[:-1]))


def argsort_time(ts: Int64s) -> Int64s:
    """Return a stable argsort of ticks; only a check when they are in order already."""
    if in_time(ts):
        return np.arange(len(ts), dtype=np.int64)
    low = int(ts.min())
    if int(ts.max()) - low < 2**62:
        return argsort_uint64((ts - low).astype(np.uint64))
    return np.argsort(ts, kind="stable")


def argsort_code_time(codes: Int64s, ts: Int64s) -> Int64s:
    """Return a stable argsort by (code, ts); codes are ≥ 0."""
    if len(ts) <= _FEW:
        return np.lexsort((ts, codes)) if len(ts) > 1 else np.zeros(len(ts), np.int64)
    low, high = int(ts.min()), int(ts.max())
    span_bits = (high - low).bit_length()
    if span_bits + int(codes.max()).bit_length() <= 63:
        return argsort_uint64((codes.astype(np.uint64) << np.uint64(span_bits)) | (ts - low).astype(np.uint64))
    by_time = argsort_time(ts)
    return by_time[argsort_uint64(codes[by_time].astype(np.uint64))]


@compiled(reads="first", counted=False)
def _by_shard(first: UInt64s, shards: np.uint64, shard: Int32s, order: Int64s, bounds: Int64s, place: Int64s) -> None:
    for i in range(first.shape[0]):
        shard[i] = (first[i] >> np.uint64(32)) % shards
        bounds[shard[i] + 1] += 1
    for k in range(place.shape[0]):
        place[k] = bounds[k]
        bounds[k + 1] += bounds[k]
    for i in range(first.shape[0]):
        order[place[shard[i]]] = i
        place[shard[i]] += 1


def cut_by_shard(first: UInt64s, shards: int) -> tuple[Int64s, Int64s]:
    """Return (order, bounds): the rows of shard k are order[bounds[k]:bounds[k+1]], in their old order."""
    # The upper half decides, so that hash tables within a shard still receive all values of the lower bits.
    order, bounds = np.empty(len(first), np.int64), np.zeros(shards + 1, np.int64)
    _by_shard(first, np.uint64(shards), np.empty(len(first), np.int32), order, bounds, np.empty(shards, np.int64))
    return order, bounds


def repeat(counts: Int64s) -> tuple[Int64s, Int64s]:
    """Return each row i repeated counts[i] times (negative: not at all), and the number of each repetition from 0."""
    counts = np.maximum(counts, 0)
    rows = np.repeat(np.arange(len(counts)), counts)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)


@compiled()
def with_room(lanes: Numbers, used: int, needed: int) -> Numbers:
    """Return the array `lanes`, of shape (lanes, length), of which `used` columns are occupied, grown to hold
    `needed`.
    """
    if needed <= lanes.shape[1]:
        return lanes
    made = np.empty((lanes.shape[0], max(needed, 2 * lanes.shape[1])), lanes.dtype)
    for lane in range(lanes.shape[0]):
        for place in range(used):
            made[lane, place] = lanes[lane, place]
    return made


@compiled()
def sort_first(values: Int64s, count: int) -> None:
    """Sort the first `count` of `values` in place, with a heap. `np.sort` in a compiled loop takes longer to compile
    than most loops."""
    for step in range(count // 2 + count - 1):
        # First every inner node is sifted down, from the last; then the largest goes to the end, again and again.
        if step < count // 2:
            node, size = count // 2 - 1 - step, count
        else:
            node, size = 0, count - 1 - (step - count // 2)
            values[0], values[size] = values[size], values[0]
        value = values[node]
        child = 2 * node + 1
        while child < size:
            if child + 1 < size and values[child + 1] > values[child]:
                child += 1
            if values[child] <= value:
                break
            values[node] = values[child]
            node, child = child, 2 * child + 1
        values[node] = value
