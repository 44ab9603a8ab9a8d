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
from penstock.physical.kernels.compiled import argsort_code_time
from penstock.physical.kernels.extremes import order_keys
from penstock.physical.kernels.fingerprints import fingerprints
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


class Closings(NamedTuple):
    """The closings of a round, in the order of their instants. columns: of the values."""

    columns: list[pa.Array]
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

    def first_from(self, codes: Int64s, times: Int64s) -> Int64s:
        """Return the place of the first time of a code from a time on; -1 where there is none, and for the code -1."""
        count = len(codes)
        # The sort is stable: what is looked for comes before equal times.
        order = argsort_code_time(np.concatenate([codes, self.codes]) + 1, np.concatenate([times, self.times]))
        places = np.where(order < count, len(self.codes), order - count)
        following = np.minimum.accumulate(places[::-1])[::-1]
        return self._of_their_codes(codes, following, order)

    def last_until(self, codes: Int64s, times: Int64s) -> Int64s:
        """Return the place of the last time of a code up to a time; -1 where there is none, and for the code -1."""
        known = len(self.codes)
        order = argsort_code_time(np.concatenate([self.codes, codes]) + 1, np.concatenate([self.times, times]))
        preceding = np.maximum.accumulate(np.where(order < known, order, -1))
        moved = np.where(order < known, order + len(codes), order - known)
        return self._of_their_codes(codes, preceding, moved)

    def _of_their_codes(self, codes: Int64s, places: Int64s, order: Int64s) -> Int64s:
        """Return by query, as `order` has them below their number, its place; -1 for one of another code."""
        found = np.empty(len(codes), np.int64)
        asked = order < len(codes)
        found[order[asked]] = places[asked]
        there = (found >= 0) & (found < len(self.codes))
        there[there] = self.codes[found[there]] == codes[there]
        return np.where(there, found, -1)


class ClusteredIndex(Synopsis):
    """The open values of a stream with CLUSTERED BY.

    Slots of values hold from one `advance` to the next, also those of values that it has closed.
    """

    def __init__(self, promise: Clustered, types: Sequence[pa.DataType]) -> None:
        self._within = promise.within
        self._values = KeyedTable(4, 0, types)
        self._dues = ExpirationIndex(self._values, _DUE)
        self._closed, self._begun, self._since = _TimesByCode(_NONE, _NONE), _TimesByCode(_NONE, _NONE), _NONE
        #: Those of the last round.
        self.closings = Closings([pa.array([], one) for one in types], _NONE)

    def advance(self, heartbeat: int, columns: Sequence[pa.Array], ts: Int64s, counts: ElementCounts) -> Closings:
        """Add the thin rows of a round; return its closings.

        Args:
            columns: the values.
            ts: of each row, later than the heartbeat before, up to `heartbeat`.
            counts: N, advanced to the heartbeat; it is read WITHIN ROWS alone.
        """
        self._values.shrink()
        there = can_close(columns, len(ts))
        if not there.all():
            rows = np.flatnonzero(there)
            columns, ts = taken(columns, rows), ts[rows]
        between = self._add(columns, ts, counts)
        ended = self._dues.until(heartbeat if self._within.rows is None else counts.total)
        at_end = self._instants_of(self._values.integers[_DUE, ended], counts)
        self._remember(ended)
        self._values.integers[_OPEN, ended] = 0
        self._values.touch(ended)
        slots, instants = np.concatenate([between[0], ended]), np.concatenate([between[1], at_end])
        self._closed, _ = _TimesByCode.of(slots, instants)
        order = np.argsort(instants, kind="stable")
        self.closings = Closings(self._values.key_columns(slots[order]), instants[order])
        return self.closings

    def _add(self, columns: Sequence[pa.Array], ts: Int64s, counts: ElementCounts) -> tuple[Int64s, Int64s]:
        """Return (slot, instant) of the closings before one of the rows."""
        lanes = self._values.integers
        if not len(ts):
            self._begun, self._since = _TimesByCode(_NONE, _NONE), _NONE
            return _NONE, _NONE
        placed = self._values.place(columns, len(ts))
        lanes = self._values.integers
        rows, _ = _TimesByCode.of(placed.slots, ts)
        slots, times = rows.codes, rows.times
        heads = np.flatnonzero(np.concatenate([[True], slots[1:] != slots[:-1]]))
        dues = self._dues_of(times, counts)
        # The element before each one, of the same value: of the first it is that of the round before.
        owners = slots[heads]
        known = lanes[_OPEN, owners] != 0
        before, is_known = np.empty_like(dues), np.ones(len(dues), np.bool_)
        before[1:] = dues[:-1]
        before[heads], is_known[heads] = lanes[_DUE, owners], known
        instants = self._instants_of(before, counts)
        closed = is_known & (instants < times)
        begins = closed | ~is_known
        sinces = times.copy()
        carried = heads[known & ~begins[heads]]
        sinces[carried] = lanes[_SINCE, slots[carried]]
        begins[carried] = True
        sinces = sinces[np.maximum.accumulate(np.where(begins, np.arange(len(times)), 0))]
        fresh = owners[~known]
        carried_since = lanes[_SINCE, owners[known]].copy()
        carried_last = lanes[_LAST, owners[known]].copy()
        lasts = np.append(heads[1:], len(times)) - 1
        for lane, values in ((_OPEN, 1), (_LAST, times[lasts]), (_DUE, dues[lasts]), (_SINCE, sinces[lasts])):
            lanes[lane, owners] = values
        self._values.touch(owners)
        self._dues.put(fresh)
        self._begun, order = _TimesByCode.of(
            np.concatenate([owners[known], slots]), np.concatenate([carried_last, times])
        )
        self._since = np.concatenate([carried_since, sinces])[order]
        found = np.flatnonzero(closed)
        return slots[found], instants[found]

    def _remember(self, ended: Int64s) -> None:
        """Keep for this round since when the values were open that end without an element in it."""
        lanes = self._values.integers
        self._begun, order = _TimesByCode.of(
            np.concatenate([self._begun.codes, ended]), np.concatenate([self._begun.times, lanes[_LAST, ended]])
        )
        self._since = np.concatenate([self._since, lanes[_SINCE, ended]])[order]

    def _dues_of(self, times: Int64s, counts: ElementCounts) -> Int64s:
        if self._within.rows is None:
            return later(times, self._within.ticks or 0)
        return later(counts.at(times), self._within.rows + 1)

    def _instants_of(self, dues: Int64s, counts: ElementCounts) -> Int64s:
        return dues if self._within.rows is None else counts.reached(dues)

    def until(self, columns: Sequence[pa.Array], ts: Int64s) -> Int64s:
        """Return the first closing of values from `ts` on; END where it is not known yet. ts: instants of this
        round."""
        slots = self._slots(columns, len(ts))
        found = self._closed.first_from(slots, ts)
        return np.where(found >= 0, np.append(self._closed.times, END)[found], END)

    def since(self, columns: Sequence[pa.Array], ts: Int64s) -> Int64s:
        """Return the first element of the time for which values are open that have an element up to `ts` and no closing
        between; BEGIN for a value that is not closed ever. ts: instants of this round."""
        slots = self._slots(columns, len(ts))
        found = self._begun.last_until(slots, ts)
        kept = np.where(slots >= 0, self._values.integers[_SINCE, slots], BEGIN)
        return np.where(found >= 0, np.append(self._since, 0)[found], kept)

    def _slots(self, columns: Sequence[pa.Array], length: int) -> Int64s:
        found = self._values.find(*fingerprints(columns, length))
        return np.where(can_close(columns, length), found, -1)

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
        self._steps = Closings([self.bound], _NONE)
        self._chunk, self._written = 0, (self.bound, self._waiting)

    def advance(self, heartbeat: int, columns: Sequence[pa.Array], ts: Int64s, counts: ElementCounts) -> Closings:
        """Add the thin rows of a round, as in `ClusteredIndex`; return how the bound rises: a value is closed at the
        first instant with a bound that is greater."""
        (column,) = columns
        rows = np.flatnonzero(can_close(columns, len(ts)))
        dues, values = self._raising(column.take(pa.array(rows)), ts[rows], counts)
        over = heartbeat if self._within.rows is None else counts.total
        ripe = int(np.searchsorted(dues, over, side="right"))
        instants = dues[:ripe] if self._within.rows is None else counts.reached(dues[:ripe])
        raised = values.slice(0, ripe)
        self._steps = Closings([concat_arrays([self.bound, raised])], self._with_bound(instants))
        if ripe:
            self.bound = raised.slice(ripe - 1)
        if ripe or len(dues) > self._waiting.num_rows:
            self._waiting = unnamed([pa.array(dues[ripe:]), values.slice(ripe)])
        return Closings([raised], instants)

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
        bounds = self._steps.columns[0]
        keys = self._keys(concat_arrays([bounds, column]))
        places = np.searchsorted(keys[: len(bounds)], keys[len(bounds) :], side="right")
        found = np.append(self._steps.instants, END)[places]
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
    return ClusteredIndex(promise, types) if isinstance(promise, Clustered) else OrderedIndex(promise, types[0])
