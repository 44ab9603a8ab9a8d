"""The first rows of R(τ) at every instant ([semantics 4], ORDER BY ... LIMIT).

All live rows are kept, since the first rows may expire; where none ever does, those behind the last place are
forgotten after each round, so a sample of the whole stream is a reservoir. Where the end of a row is
known on its arrival, rows that can never be among the first are forgotten from time to time (`skyband.py`).

In a round only few rows can be among the first: if D copies leave in the round, rows after the (offset + limit + D)-th
row in the state never are. To find these without sorting the state, every tuple has a *coarse* key, an int64 that never
contradicts the order; a selection of that rank bounds the candidates. These are sorted exactly, and events are swept by
time over a Fenwick tree of their copies.

With partitions, the same is done for each partition that changes in the round, one after the other.
"""

from __future__ import annotations

import numpy as np

from penstock.compilation import loop
from penstock.physical.elements import Elements, Int64s
from penstock.physical.kernels.compiled import argsort_code_time, argsort_time, argsort_uint64, group_codes
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.kernels.row_order import coarse_keys, sort_order
from penstock.physical.operators.base.contract import Moment
from penstock.physical.operators.sets import skyband
from penstock.physical.operators.sets.tuple_counts import CountedOperator, TupleEvents
from penstock.physical.plan.sets import TopKSpec
from penstock.types import END


@compiled()
def _add(tree: Int64s, rank: int, copies: int) -> None:
    node = rank + 1
    while node < tree.shape[0]:
        tree[node] += copies
        node += node & -node


@loop
def _before(tree: Int64s, rank: int) -> int:
    """Return the number of copies at ranks below `rank`."""
    total = np.int64(0)
    node = rank
    while node > 0:
        total += tree[node]
        node -= node & -node
    return int(total)


@loop
def _at(tree: Int64s, position: int, top: int) -> int:
    """Return the rank of the copy at `position` (from 1) in the order. top: the highest power of two in the tree's
    size."""
    node = np.int64(0)
    step = top
    while step > 0:
        if node + step < tree.shape[0] and tree[node + step] < position:
            node += step
            position -= tree[node]
        step >>= 1
    return int(node)


@compiled()
def _shift(
    tree: Int64s,
    top: int,
    total: int,
    rank: int,
    direction: int,
    low: int,
    high: int,
    change: Int64s,
    touched: Int64s,
    count: int,
) -> int:
    """Record how the copies at the places low+1 ... high change, by rank, when one copy of `rank` is added (direction
    1, already in the tree) or removed (-1, still in the tree). total: copies including this one. Return the new `count`
    of touched ranks."""
    first = _before(tree, rank) + 1
    if first > high or high <= low:
        return count
    inside = rank if first > low else _at(tree, low + 1, top)
    if total > low:
        change[inside] += direction
        touched[count] = inside
        count += 1
    if total > high:
        outside = _at(tree, high + 1, top)
        change[outside] -= direction
        touched[count] = outside
        count += 1
    return count


@compiled(reads="ranks times weights order copies")
def _sweep(
    ranks: Int64s, times: Int64s, weights: Int64s, order: Int64s, copies: Int64s, low: int, high: int, most: int
) -> Int64s:
    """Apply events, sorted by time, to the copies by rank; return, for every instant and rank whose copies among the
    places low+1 ... high change, a column (rank, time, change). most: upper bound of the ranks touched by an instant,
    and by the whole sweep."""
    size = copies.shape[0]
    tree = np.zeros(size + 1, np.int64)
    total = np.int64(0)
    for rank in range(size):
        tree[rank + 1] += copies[rank]
        total += copies[rank]
        parent = rank + 1 + ((rank + 1) & -(rank + 1))
        if parent <= size:
            tree[parent] += tree[rank + 1]
    top = np.int64(1)
    while 2 * top <= size:
        top *= 2
    change = np.zeros(size, np.int64)
    net = np.zeros(size, np.int64)
    changes = np.empty((3, most), np.int64)
    touched = np.empty(most, np.int64)
    k = 0
    i = 0
    n = order.shape[0]
    while i < n:
        time = times[order[i]]
        start = i
        while i < n and times[order[i]] == time:
            net[ranks[order[i]]] += weights[order[i]]
            i += 1
        count = 0
        for j in range(start, i):
            rank = ranks[order[j]]
            weight = net[rank]
            net[rank] = 0
            # Beyond `high` copies of one tuple, one more or less is not seen among the first.
            seen = min(abs(weight), high)
            remaining = abs(weight) - seen
            if weight > 0:
                for _ in range(seen):
                    _add(tree, rank, 1)
                    total += 1
                    count = _shift(tree, top, total, rank, 1, low, high, change, touched, count)
                _add(tree, rank, remaining)
                total += remaining
            elif weight < 0:
                _add(tree, rank, -remaining)
                total -= remaining
                for _ in range(seen):
                    count = _shift(tree, top, total, rank, -1, low, high, change, touched, count)
                    _add(tree, rank, -1)
                    total -= 1
        for j in range(count):
            rank = touched[j]
            if change[rank] != 0:
                changes[0, k], changes[1, k], changes[2, k] = rank, time, change[rank]
                k += 1
                change[rank] = 0
    return changes[:, :k]


@compiled(reads="starts bounds ranks times weights order copies")
def _sweep_parts(
    starts: Int64s,
    bounds: Int64s,
    ranks: Int64s,
    times: Int64s,
    weights: Int64s,
    order: Int64s,
    copies: Int64s,
    low: int,
    high: int,
) -> Int64s:
    """Run `_sweep` on every partition p: its copies are those at starts[p] ... starts[p + 1], to which the ranks are
    relative, its events those at the places bounds[p] ... bounds[p + 1] of `order`, by time."""
    room = np.zeros(starts.shape[0], np.int64)
    for part in range(starts.shape[0] - 1):
        for i in order[bounds[part] : bounds[part + 1]]:
            room[part] += 2 * min(abs(weights[i]), high)
    changes = np.empty((3, room.sum()), np.int64)
    k = 0
    for part in range(starts.shape[0] - 1):
        if room[part] > 0:
            part_order, part_copies = order[bounds[part] : bounds[part + 1]], copies[starts[part] : starts[part + 1]]
            some = _sweep(ranks, times, weights, part_order, part_copies, low, high, room[part])
            for j in range(some.shape[1]):
                changes[0, k], changes[1, k], changes[2, k] = some[0, j] + starts[part], some[1, j], some[2, j]
                k += 1
    return changes[:, :k]


class TopK(CountedOperator):
    """State: per tuple, integer lanes [copies, coarse key, part]; the pending expirations. part: half of the
    fingerprint of the partition columns, by which the tuples of a partition are found; partitions with the same half
    are distinguished by both halves."""

    def __init__(self, spec: TopKSpec) -> None:
        self._spec = spec
        super().__init__(spec.types, 3 if spec.partition else 2, listed=spec.listed)
        # Rows that end, when those that cannot come first were last forgotten.
        self._ending = 0

    def advance(self, moment: Moment) -> list[Elements]:
        tuples = self._counted.tuples
        events = self._counted.events(moment.heartbeat)
        if events is None:
            return []
        touched = np.unique(events.slots)
        self._key(touched[tuples.integers[0, touched] == 0])
        result = self._changes(events, touched)
        np.add.at(tuples.integers[0], events.slots, events.weights)
        if self._spec.lasting:
            touched = np.union1d(touched, self._forget())
        if self._spec.ending and self._counted.ending >= 2 * self._ending + skyband.FEWEST:
            touched = np.union1d(touched, self._forget_preceded())
            self._ending = self._counted.ending
        tuples.touch(touched)
        tuples.shrink()
        return result

    def _forget(self) -> Int64s:
        """Set the copies of tuples behind the last place to 0, each part by itself; return these tuples."""
        high = self._spec.offset + self._spec.limit
        copies = self._counted.tuples.integers[0, : self._counted.tuples.count]
        slots = np.flatnonzero(copies)
        if len(slots) <= high:
            return slots[:0]
        columns = self._counted.tuples.key_columns(slots)
        order = sort_order(columns, self._spec.order)
        if self._spec.partition:
            codes, _ = group_codes(*fingerprints([columns[i] for i in self._spec.partition], len(slots)))
            order = order[argsort_uint64(codes[order].astype(np.uint64))]
            starts = np.searchsorted(codes[order], np.arange(int(codes.max()) + 1))
            first = starts[codes[order]]
        else:
            first = np.zeros(len(slots), np.int64)
        ordered = slots[order]
        ends = np.minimum(copies[ordered], high).cumsum()
        before = ends - np.minimum(copies[ordered], high)
        behind: Int64s = ordered[before - before[first] >= high]
        copies[behind] = 0
        return behind

    def _forget_preceded(self) -> Int64s:
        """Forget copies that as many rows precede as may be first, which end no earlier; return their tuples."""
        high = self._spec.offset + self._spec.limit
        copies = self._counted.tuples.integers[0]
        slots, ends, many = self._counted.ends()
        if not len(slots):
            return slots
        order = argsort_code_time(slots, ends)
        slots, ends, many = slots[order], ends[order], many[order]
        starts = np.flatnonzero(np.concatenate([[True], (slots[1:] != slots[:-1]) | (ends[1:] != ends[:-1])]))
        slots, ends, many = slots[starts], ends[starts], np.add.reduceat(many, starts)
        live = np.flatnonzero(copies[: self._counted.tuples.count])
        columns = self._counted.tuples.key_columns(live)
        by_place = sort_order(columns, self._spec.order)
        rank = np.zeros(len(copies), np.int64)
        rank[live[by_place]] = np.arange(len(live))
        part = np.zeros(len(copies), np.int64)
        if self._spec.partition:
            part[live] = group_codes(*fingerprints([columns[i] for i in self._spec.partition], len(live)))[0]
        # Copies without an end precede those with one.
        endless = copies[live] - np.bincount(slots, many, len(copies)).astype(np.int64)[live]
        lasting = live[endless > 0]
        slots, ends = np.append(slots, lasting), np.append(ends, np.full(len(lasting), END, np.int64))
        many = np.append(many, endless[endless > 0])
        order = np.lexsort([-ends, rank[slots], part[slots]])
        kept = np.empty(len(order), np.int64)
        kept[order] = skyband.may_come_first(part[slots][order], ends[order], many[order], high)
        gone = many - kept
        np.subtract.at(copies, slots, gone)
        self._counted.keep_ends(slots[ends < END], ends[ends < END], (many - gone)[ends < END])
        return np.unique(slots[gone > 0])

    def _key(self, slots: Int64s) -> None:
        tuples, first = self._counted.tuples, self._spec.order[0]
        if len(slots):
            columns = tuples.key_columns(slots)
            tuples.integers[1, slots] = coarse_keys(columns[first.column], first)
            if self._spec.partition:
                parts = [columns[i] for i in self._spec.partition]
                tuples.integers[2, slots] = fingerprints(parts, len(slots))[0].view(np.int64)

    def _changes(self, events: TupleEvents, touched: Int64s) -> list[Elements]:
        if self._spec.partition:
            return self._changes_of_parts(events, touched)
        low, high = self._spec.offset, self._spec.offset + self._spec.limit
        copies, coarse = self._counted.tuples.integers[:, : self._counted.tuples.count]
        slots = self._candidates(copies, coarse, touched, high - int(np.minimum(events.weights, 0).sum()))
        if high == low or not len(slots):
            return []
        ordered = slots[sort_order(self._counted.tuples.key_columns(slots), self._spec.order)]
        ranks = np.full(len(copies), -1, np.int64)
        ranks[ordered] = np.arange(len(ordered))
        seen = ranks[events.slots] >= 0
        rank, times, weights = ranks[events.slots[seen]], events.times[seen], events.weights[seen]
        most = 2 * int(np.minimum(np.abs(weights), high).sum())
        changes = _sweep(rank, times, weights, argsort_time(times), copies[ordered], low, high, most)
        changes = changes[:, argsort_code_time(changes[0], changes[1])]
        return self._counted.changes(ordered[changes[0]], changes[1], changes[2])

    def _changes_of_parts(self, events: TupleEvents, touched: Int64s) -> list[Elements]:
        low, high = self._spec.offset, self._spec.offset + self._spec.limit
        copies, _, part = self._counted.tuples.integers[:, : self._counted.tuples.count]
        met = np.isin(part, np.unique(part[touched]))
        slots = np.union1d(np.flatnonzero(met & (copies != 0)), touched)
        if high == low:
            return []
        columns = self._counted.tuples.key_columns(slots)
        codes, _ = group_codes(*fingerprints([columns[i] for i in self._spec.partition], len(slots)))
        order = sort_order(columns, self._spec.order)
        order = order[argsort_uint64(codes[order].astype(np.uint64))]
        ordered, codes = slots[order], codes[order]
        starts = np.searchsorted(codes, np.arange(int(codes[-1]) + 2))
        rank, part_of = np.empty(len(copies), np.int64), np.empty(len(copies), np.int64)
        rank[ordered], part_of[ordered] = np.arange(len(ordered)) - starts[codes], codes
        parts = part_of[events.slots]
        by_part = argsort_code_time(parts, events.times)
        bounds = np.searchsorted(parts[by_part], np.arange(len(starts)))
        changes = _sweep_parts(
            starts, bounds, rank[events.slots], events.times, events.weights, by_part, copies[ordered], low, high
        )
        changes = changes[:, argsort_code_time(changes[0], changes[1])]
        return self._counted.changes(ordered[changes[0]], changes[1], changes[2])

    def _candidates(self, copies: Int64s, coarse: Int64s, touched: Int64s, limit: int) -> Int64s:
        """Return the tuples that can be at one of the first `limit` positions, counted before any removal."""
        live = np.flatnonzero(copies)
        slots = np.union1d(live, touched)
        if len(live) > limit > 0:
            bound = np.partition(coarse[live], limit - 1)[limit - 1]
            slots = slots[coarse[slots] <= bound]
        return slots
