"""When values of a stream are closed, from its elements as they come (docs/promises.md).

One index a reader and base stream. Each round it gets the thin rows (value, ts) of the elements that the heartbeat has
reached, and finds the closings among them: a value is closed between two of its elements, or after its last one. What
it keeps are the values that are open, so a round costs as much as it has rows and closings. A value with a NULL or NaN
is never closed; it counts in N alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.algebra.properties.promises import Clustered, Ordered
from penstock.physical.elements import Bools, Int64s, concat_arrays, int64s, taken, unnamed
from penstock.physical.kernels.compiled import argsort_code_time, argsort_time
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.extremes import order_keys
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.kernels.ticks import later
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.physical.synopses.promises.element_counts import ElementCounts
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.storage.documents import Document, integer
from penstock.types import BEGIN, END

#: The lanes of an open value: whether it is open; its last element; the number N, or the instant, at which it is
#: closed unless another comes; the first element after the closing before, which names the time for which it is open.
_OPEN, _LAST, _DUE, _SINCE = range(4)
_NONE = np.empty(0, np.int64)
#: Up to so many values for each row of a round, all are looked at to find those that are due.
_LOOKED_AT = 4
_NO_CLOSINGS = np.empty((0, 2), np.int64)


class Closings(NamedTuple):
    """The closings of a round, in the order of their instants. first, second: the fingerprints of the values."""

    first: UInt64s
    second: UInt64s
    instants: Int64s


def can_close(columns: Sequence[pa.Array], length: int) -> Bools:
    """Return which of `length` values have neither a NULL nor a NaN."""
    there = np.ones(length, np.bool_)
    for column in columns:
        if column.null_count:
            there &= column.is_valid().to_numpy(zero_copy_only=False)
        if pa.types.is_floating(column.type):
            there &= ~pc.is_nan(column).fill_null(False).to_numpy(zero_copy_only=False)
    return there


@compiled(reads="codes", counted=False)
def _note_places(codes: Int64s, places: Int64s) -> None:
    """Note by code the place of the first of its times."""
    for i in range(codes.shape[0]):
        if i == 0 or codes[i] != codes[i - 1]:
            places[codes[i]] = i


@compiled(reads="codes times places looked_up since", counted=False)
def _first_from(codes: Int64s, times: Int64s, places: Int64s, looked_up: Int64s, since: Int64s, found: Int64s) -> None:
    count = codes.shape[0]
    for i in range(looked_up.shape[0]):
        found[i] = END
        if looked_up[i] < 0 or count == 0:
            continue
        # What is noted of a code without times may be anything.
        place = places[looked_up[i]]
        if place < 0 or place >= count or codes[place] != looked_up[i]:
            continue
        step = 1
        while place < count and codes[place] == looked_up[i] and times[place] < since[i]:
            # Steps grow as long as they stay among earlier times of the code.
            ahead = place + step
            if ahead < count and codes[ahead] == looked_up[i] and times[ahead] < since[i]:
                place, step = ahead, 2 * step
            elif step > 1:
                step //= 2
            else:
                place += 1
        if place < count and codes[place] == looked_up[i]:
            found[i] = times[place]


@dataclass(frozen=True)
class _TimesByCode:
    """Times by code, sorted by (code, time)."""

    codes: Int64s
    times: Int64s

    @staticmethod
    def of(codes: Int64s, times: Int64s) -> tuple[_TimesByCode, Int64s]:
        """Return the times in order, and the order."""
        order = argsort_code_time(codes, times)
        return _TimesByCode(codes[order], times[order]), order

    def last_until(self, codes: Int64s, times: Int64s) -> Int64s:
        """Return the place of the last time of a code up to a time; -1 where there is none, and for the code -1."""
        known = len(self.codes)
        order = argsort_code_time(np.concatenate([self.codes, codes]) + 1, np.concatenate([self.times, times]))
        preceding = np.maximum.accumulate(np.where(order < known, order, -1))
        moved = np.where(order < known, order + len(codes), order - known)
        found = np.empty(len(codes), np.int64)
        asked = moved < len(codes)
        found[moved[asked]] = preceding[asked]
        there = found >= 0
        there[there] = self.codes[found[there]] == codes[there]
        return np.where(there, found, -1)


@compiled(reads="order slots ts", counted=False)
def _follow(
    order: Int64s,
    slots: Int64s,
    ts: Int64s,
    counts: tuple[Int64s, Int64s],
    counted: bool,
    k: int,
    lanes: Int64s,
    fresh: Int64s,
    sinces: Int64s,
    found: tuple[Int64s, Int64s],
) -> tuple[int, int, int]:
    """Follow the elements of a round in the order of time; return the numbers of rows in `fresh`, `closed` and
    `carried`.

    Args:
        slots, ts: of the elements; order: that of time.
        counts: the instants and N, as `ElementCounts` has them; read where `counted`.
        counted: whether k is a number of elements, not a time.
        k: from an element on so much later its value is closed.
        lanes: by (slot, lane).
        fresh: receives the slots that were not open.
        sinces: receives by place in the order the first element of the time for which the value is open.
        found: `closed` receives (slot, instant) of the closings before an element, `carried` (slot, last element, the
            first of its time) as they were before the round.
    """
    instants, totals = counts
    closed, carried = found
    place = begun = ended = known = 0
    for i in range(order.shape[0]):
        slot, at = slots[order[i]], ts[order[i]]
        if counted:
            while place < instants.shape[0] and instants[place] < at:
                place += 1
            before = totals[place]
            after = totals[place + 1] if place < instants.shape[0] and instants[place] == at else before
        else:
            before, after = at - 1, at
        since = at
        if lanes[slot, _OPEN] == 0:
            fresh[begun] = slot
            begun += 1
        else:
            since = lanes[slot, _SINCE]
            if lanes[slot, _LAST] < ts[order[0]]:
                carried[known, 0], carried[known, 1], carried[known, 2] = slot, lanes[slot, _LAST], since
                known += 1
            due = lanes[slot, _DUE]
            if due <= before:
                since = at
                if counted:
                    low, high = 0, place
                    while low < high:
                        middle = (low + high) // 2
                        if totals[middle] < due:
                            low = middle + 1
                        else:
                            high = middle
                    due = instants[low - 1] if low > 0 else BEGIN
                closed[ended, 0], closed[ended, 1] = slot, due
                ended += 1
        lanes[slot, _OPEN], lanes[slot, _LAST], lanes[slot, _SINCE] = 1, at, since
        lanes[slot, _DUE] = min(after + k, END)
        sinces[i] = since
    return begun, ended, known


class ClusteredIndex(Synopsis):
    """The open values of a stream with CLUSTERED BY.

    Slots of values hold from one `advance` to the next, also those of values that it has closed.
    """

    def __init__(self, promise: Clustered) -> None:
        self._within = promise.within
        self._values = KeyedTable(4, 0)
        self._dues = ExpirationIndex(self._values, _DUE)
        #: The closings of the last round, and by slot the place of its first one.
        self._closed, self._places = _TimesByCode(_NONE, _NONE), _NONE
        #: Parts (slots, elements, the first of their times) of what was open in the last round.
        self._opened: list[tuple[Int64s, Int64s, Int64s]] = []
        self._begun: tuple[_TimesByCode, Int64s] | None = None

    def advance(self, heartbeat: int, columns: Sequence[pa.Array], ts: Int64s, counts: ElementCounts) -> None:
        """Add the thin rows of a round, and find its closings.

        Args:
            columns: the values.
            ts: of each row, later than the heartbeat before, up to `heartbeat`.
            counts: N, advanced to the heartbeat; it is read WITHIN ROWS alone.
        """
        self._values.shrink()
        self._opened, self._begun = [], None
        there = can_close(columns, len(ts))
        if not there.all():
            rows = np.flatnonzero(there)
            columns, ts = taken(columns, rows), ts[rows]
        between = self._add(columns, ts, counts) if len(ts) else _NO_CLOSINGS
        over = heartbeat if self._within.rows is None else counts.total
        # Where most values have rows in the round, it is less to look at all.
        whole = self._values.count <= _LOOKED_AT * len(ts)
        ended = self._dues.looked_up(over) if whole else self._dues.until(over)
        lanes = self._values.integers
        if len(ended):
            dues = lanes[_DUE, ended]
            at_end = dues if self._within.rows is None else counts.reached(dues)
            self._opened.append((ended, lanes[_LAST, ended], lanes[_SINCE, ended]))
            lanes[_OPEN, ended] = 0
            self._values.touch(ended)
            between = np.concatenate([between, np.stack([ended, at_end], axis=1)])
        self._closed, _ = _TimesByCode.of(between[:, 0], between[:, 1])
        if len(self._places) < self._values.count:
            self._places = np.zeros(2 * self._values.count, np.int64)
        _note_places(self._closed.codes, self._places)

    def _add(self, columns: Sequence[pa.Array], ts: Int64s, counts: ElementCounts) -> Int64s:
        """Return (slot, instant) of the closings before one of the rows."""
        slots = self._values.slots(*fingerprints(columns, len(ts)))
        order = argsort_time(ts)
        rows, ticks = self._within.rows, self._within.ticks or 0
        fresh, sinces = np.empty(len(ts), np.int64), np.empty(len(ts), np.int64)
        closed, carried = np.empty((len(ts), 2), np.int64), np.empty((len(ts), 3), np.int64)
        counted, k = (False, ticks) if rows is None else (True, rows + 1)
        lanes = self._values.by_slot.integers
        begun, ended, known = _follow(
            order, slots, ts, (counts.instants, counts.totals), counted, k, lanes, fresh, sinces, (closed, carried)
        )
        self._values.touch(slots)
        self._dues.put(fresh[:begun])
        self._opened = [(carried[:known, 0], carried[:known, 1], carried[:known, 2]), (slots[order], ts[order], sinces)]
        return closed[:ended]

    @property
    def closings_of_round(self) -> int:
        """Return how many closings the round has."""
        return len(self._closed.codes)

    @property
    def closings(self) -> Closings:
        """Return the closings of the last round."""
        order = np.argsort(self._closed.times, kind="stable")
        return Closings(*self._values.fingerprints(self._closed.codes[order]), self._closed.times[order])

    @property
    def first_closings(self) -> Closings:
        """Return the first closing in the last round of each value that was closed in it, in any order."""
        slots, instants = self._closed.codes, self._closed.times
        heads = np.ones(len(slots), np.bool_)
        heads[1:] = slots[1:] != slots[:-1]
        if not heads.all():
            slots, instants = slots[heads], instants[heads]
        return Closings(*self._values.fingerprints(slots), instants)

    def until(self, columns: Sequence[pa.Array], ts: Int64s) -> Int64s:
        """Return the first closing of values from `ts` on; END where it is not known yet. ts: instants of this
        round."""
        found = np.empty(len(ts), np.int64)
        slots = self._slots(columns, len(ts))
        _first_from(self._closed.codes, self._closed.times, self._places, slots, ts, found)
        return found

    def since(self, columns: Sequence[pa.Array], ts: Int64s) -> Int64s:
        """Return the first element of the time for which values are open that have an element up to `ts` and no closing
        between; BEGIN for a value that is not closed ever. ts: instants of this round."""
        if self._begun is None:
            opened = self._opened or [(_NONE, _NONE, _NONE)]
            codes, times, sinces = (np.concatenate(parts) for parts in zip(*opened, strict=True))
            begun, order = _TimesByCode.of(codes, times)
            self._begun = begun, np.append(sinces[order], 0)
        slots = self._slots(columns, len(ts))
        found = self._begun[0].last_until(slots, ts)
        kept = np.where(slots >= 0, self._values.integers[_SINCE, slots], BEGIN)
        return np.where(found >= 0, self._begun[1][found], kept)

    def _slots(self, columns: Sequence[pa.Array], length: int) -> Int64s:
        """Return the slots of values, -1 where they have none, as those that are never closed."""
        return self._values.find(*fingerprints(columns, length))

    def snapshot(self) -> tuple[Document, Chunks]:
        return self._values.snapshot()

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._values.restore(manifest, chunks)

    @property
    def rows(self) -> int:
        return self._values.rows

    @property
    def nbytes(self) -> int:
        return self._values.nbytes


class OrderedIndex(Synopsis):
    """The bound of a stream with ORDERED BY, and the elements that will raise it: each has a greater value than those
    before it (DESC: a smaller one)."""

    def __init__(self, promise: Ordered, kind: pa.DataType) -> None:
        self._within, self._descending = promise.within, promise.descending
        self._kind = kind
        #: The bound, or nothing before the first.
        self.bound = pa.array([], kind)
        self._waiting = unnamed([pa.array(_NONE), pa.array([], kind)])
        self._steps: tuple[pa.Array, Int64s] = self.bound, _NONE
        self._chunk, self._written = 0, (self.bound, self._waiting)

    def advance(self, heartbeat: int, columns: Sequence[pa.Array], ts: Int64s, counts: ElementCounts) -> None:
        """Add the thin rows of a round, as in `ClusteredIndex`, and find how the bound rises: a value is closed at the
        first instant with a bound that is greater."""
        (column,) = columns
        rows = np.flatnonzero(can_close(columns, len(ts)))
        dues, values = self._raising(column.take(pa.array(rows)), ts[rows], counts)
        over = heartbeat if self._within.rows is None else counts.total
        ripe = int(np.searchsorted(dues, over, side="right"))
        instants = dues[:ripe] if self._within.rows is None else counts.reached(dues[:ripe])
        raised = values.slice(0, ripe)
        self._steps = concat_arrays([self.bound, raised]), self._with_bound(instants)
        if ripe:
            self.bound = raised.slice(ripe - 1)
        if ripe or len(dues) > self._waiting.num_rows:
            self._waiting = unnamed([pa.array(dues[ripe:]), values.slice(ripe)])

    def _raising(self, column: pa.Array, ts: Int64s, counts: ElementCounts) -> tuple[Int64s, pa.Array]:
        """Return (due, value) of the elements that raise the bound, by due; the values rise."""
        if self._within.rows is None:
            dues = later(ts, self._within.ticks or 0)
        else:
            dues = later(counts.at(ts), self._within.rows)
        values = concat_arrays([self.bound, self._waiting.column(1), column])
        dues = self._with_bound(np.concatenate([int64s(self._waiting.column(0)), dues]))
        keys = self._keys(values)
        order = np.lexsort((keys, dues))
        sorted_keys = keys[order]
        greatest = np.maximum.accumulate(sorted_keys)
        rising = np.ones(len(order), np.bool_)
        rising[1:] = greatest[1:] > greatest[:-1]
        # Of those that count from one instant on the greatest is enough.
        rising[:-1] &= (dues[order][1:] > dues[order][:-1]) | ~rising[1:]
        chosen = order[rising]
        chosen = chosen[chosen >= len(self.bound)]
        return dues[chosen], values.take(pa.array(chosen))

    def _with_bound(self, times: Int64s) -> Int64s:
        """Return times behind that of the bound, which stands since before."""
        return np.concatenate([np.full(len(self.bound), BEGIN, np.int64), times])

    def _keys(self, values: pa.Array) -> Int64s:
        keys = order_keys(values)
        return ~keys if self._descending else keys

    def passed(self, column: pa.Array) -> Int64s:
        """Return the first instant with a bound above each value (DESC: below): BEGIN where that was before this round,
        END where it is not yet."""
        bounds, instants = self._steps
        keys = self._keys(concat_arrays([bounds, column]))
        places = np.searchsorted(keys[: len(bounds)], keys[len(bounds) :], side="right")
        found = np.append(instants, END)[places]
        return np.where(can_close([column], len(column)), found, END)

    def until(self, columns: Sequence[pa.Array], ts: Int64s) -> Int64s:
        """Return the first closing of values from `ts` on, as in `ClusteredIndex`."""
        return np.maximum(self.passed(columns[0]), ts)

    def since(self, columns: Sequence[pa.Array], ts: Int64s) -> Int64s:
        """Return BEGIN for values that were open until `ts` at least, else `ts`: each instant is a time of its own."""
        return np.where(self.passed(columns[0]) < ts, ts, BEGIN)

    def snapshot(self) -> tuple[Document, Chunks]:
        if self._written[0] is not self.bound or self._written[1] is not self._waiting:
            self._chunk += 1
            self._written = self.bound, self._waiting
        dues = pa.array(self._with_bound(int64s(self._waiting.column(0))))
        batch = unnamed([dues, concat_arrays([self.bound, self._waiting.column(1)])])
        return {"chunk": self._chunk, "bounds": len(self.bound)}, {self._chunk: batch}

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._chunk, bounds = integer(manifest, "chunk"), integer(manifest, "bounds")
        batch = chunks[self._chunk]
        self.bound, self._waiting = batch.column(1).slice(0, bounds), batch.slice(bounds)
        self._written = self.bound, self._waiting

    @property
    def rows(self) -> int:
        return len(self.bound) + int(self._waiting.num_rows)

    @property
    def nbytes(self) -> int:
        return int(self.bound.nbytes + self._waiting.nbytes)


def closing_index(promise: Clustered | Ordered, types: Sequence[pa.DataType]) -> ClusteredIndex | OrderedIndex:
    """Return the index of a promise. types: of its columns."""
    return ClusteredIndex(promise) if isinstance(promise, Clustered) else OrderedIndex(promise, types[0])
