"""One side of a join whose rows leave by promises: rows that wait, rows that answer look-ups, and when they leave.

A row is held from the timestamp of its element. It *enters* then, or at a boundary of its window's SLIDE, or when it is
closed (CLOSED); from there on it answers look-ups, until after the later of the instant at which it enters and that of
its first closing, or the next boundary of the other side's SLIDE. What closes a row may come before it enters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Bools, Elements, Int64s, concat_arrays, int64s, taken
from penstock.physical.kernels.ticks import later, round_up
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.operators.promises.follower import FollowedPromise
from penstock.physical.operators.promises.held_slots import HeldSlots, held_slots
from penstock.physical.operators.promises.references import CountedStreams, FollowedReference
from penstock.physical.plan.joins.promised import ClosedBy, PromisedSide
from penstock.physical.plan.promises.closings import ClosingSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.promises.closing_index import can_close
from penstock.physical.synopses.promises.held_rows import HeldRows
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.types import BEGIN, END

#: The lanes of a row: WAITING or ENTERED (0 for one that has ended); when it enters; the end of its window; the last
#: instant at which it answers look-ups; the first one at which it does not, be it for its window; when it first found a
#: partner. END stands for what is not known yet. Then one a condition of CLOSED: when it closed the row; and two a
#: reference (`references.py`).
STATE, START, STOP, UNTIL, LEAVES, MET, _OTHERS = range(7)
WAITING, ENTERED = 1, 2
_NONE = np.empty(0, np.int64)


class RowsOfSide(Protocol):
    """Rows by their numbers."""

    def lane(self, lane: int, rows: Int64s) -> Int64s:
        """Return a number of each of some rows."""

    def put_lane(self, lane: int, rows: Int64s, values: Int64s) -> None:
        """Change a number of some rows to the least of it and `values`; a row may occur several times."""

    def columns(self, rows: Int64s) -> list[pa.Array]:
        """Return the columns of some rows."""


@dataclass
class FreshRows:
    """Rows that are not stored. lanes: by (lane, row)."""

    values: Sequence[pa.Array]
    lanes: Int64s

    def __len__(self) -> int:
        return int(self.lanes.shape[1])

    def take(self, rows: Int64s) -> FreshRows:
        return FreshRows(self.columns(rows), self.lanes[:, rows])

    @staticmethod
    def both(one: FreshRows, other: FreshRows) -> FreshRows:
        """Return the rows of both."""
        if not len(one) or not len(other):
            return one if len(one) else other
        columns = [concat_arrays([a, b]) for a, b in zip(one.values, other.values, strict=True)]
        return FreshRows(columns, np.concatenate([one.lanes, other.lanes], axis=1))

    def lane(self, lane: int, rows: Int64s) -> Int64s:
        found: Int64s = self.lanes[lane, rows]
        return found

    def put_lane(self, lane: int, rows: Int64s, values: Int64s) -> None:
        np.minimum.at(self.lanes[lane], rows, values)

    def columns(self, rows: Int64s) -> list[pa.Array]:
        return taken(self.values, rows)


class RowsInTable:
    """Rows of the table of a side, by their slots."""

    def __init__(self, table: HeldRows) -> None:
        self.table = table

    def lane(self, lane: int, rows: Int64s) -> Int64s:
        found: Int64s = self.table.integers[lane, rows]
        return found

    def put_lane(self, lane: int, rows: Int64s, values: Int64s) -> None:
        np.minimum.at(self.table.integers[lane], rows, values)
        self.table.touch(np.unique(rows))

    def columns(self, rows: Int64s) -> list[pa.Array]:
        return self.table.key_columns(rows)


class _Closer:
    """What closes rows by their values: of rows as they come, and of those that are stored."""

    def __init__(self, by: ClosedBy, promise: FollowedPromise, table: HeldRows) -> None:
        self._columns, self._promise = by.columns, promise
        self._slots: HeldSlots = held_slots(promise, table, by.columns)
        self.put = self._slots.put

    def first(self, columns: Sequence[pa.Array], came: Int64s) -> Int64s:
        """Return the first closing of each row from its own instant on; END where it is not known."""
        return self._promise.until([columns[c] for c in self._columns], came)

    def closed(self) -> tuple[Int64s, Int64s]:
        """Return the slots whose values were closed in this round, and when; some may be dead."""
        slots = self._slots.closed()
        return slots, self._promise.until(self._slots.values(slots), np.full(len(slots), BEGIN, np.int64))


class HeldSide:
    """State: the rows that are held; those whose element is ahead of the heartbeat.

    Args:
        followed: the promises that the operator follows.
        preserved: rows that cannot have a partner are answered too.
    """

    def __init__(
        self,
        spec: PromisedSide,
        followed: Mapping[ClosingSpec, FollowedPromise],
        counted: CountedStreams,
        preserved: bool,
    ) -> None:
        self._spec, self._preserved = spec, preserved
        references = [one for one in spec.leaving if one.is_reference]
        self._closed_lanes = range(_OTHERS, _OTHERS + len(spec.entering))
        lanes = self._closed_lanes.stop + 2 * len(references)
        self.table = HeldRows(spec.types[: spec.came] if spec.came is not None else spec.types, lanes, spec.key)
        self.stored = RowsInTable(self.table)
        self._early = ReorderBuffer()
        self._leaving = [
            _Closer(one, followed[one.closing], self.table) for one in spec.leaving if not one.is_reference
        ]
        self._entering = [
            [_Closer(one, followed[one.closing], self.table) for one in condition] for condition in spec.entering
        ]
        firsts = range(self._closed_lanes.stop, lanes, 2)
        self._references = [
            (one, first, FollowedReference(one.closing, counted, self.table, first))
            for one, first in zip(references, firsts, strict=True)
        ]
        self._starts, self._ends = ExpirationIndex(self.table, START), ExpirationIndex(self.table, LEAVES)
        self._waits = spec.came is not None or bool(spec.entering)
        #: Whether it is known of stored rows when they will leave.
        self._leaves_later = spec.ends or spec.slide is not None or self._waits
        self.fresh = self._no_rows()
        self._later = self._no_rows()
        #: Slots that may have ended in this round.
        self.touched: list[Int64s] = []

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"held": self.table, "early": self._early.queue}

    def process(self, elements: Elements) -> None:
        if not self._preserved:
            elements = elements.filter(keyed_rows(elements.columns, self._spec.key, len(elements)))
        came = self._spec.came
        if came is not None:
            # They are held from the timestamps of their elements on.
            columns = (*elements.columns[:came], pa.array(elements.ts))
            elements = Elements(columns, int64s(elements.columns[came]), elements.exp)
        self._early.add(elements)

    def begin(self, heartbeat: int) -> None:
        """Take the closings of a round, and let rows enter: `fresh` are those that do in this round."""
        self.table.shrink()
        self.touched = []
        entering = self._close(heartbeat) if self.table.rows else self._no_rows()
        arrived = self._arrived(heartbeat)
        if self._waits:
            now = self._enters(arrived.lanes) <= heartbeat
            self._later, arrived = arrived.take(np.flatnonzero(~now)), arrived.take(np.flatnonzero(now))
        self.fresh = FreshRows.both(entering, arrived)
        lanes = self.fresh.lanes
        lanes[START] = self._enters(lanes)
        lanes[UNTIL] = np.maximum(lanes[UNTIL], lanes[START])
        lanes[STATE] = ENTERED

    def _enters(self, lanes: Int64s) -> Int64s:
        """Return when rows that wait enter; END where it is not known. lanes: by (lane, row)."""
        found: Int64s = np.maximum.reduce([lanes[START], *(lanes[lane] for lane in self._closed_lanes)])
        return found

    def _arrived(self, heartbeat: int) -> FreshRows:
        elements = self._early.until(heartbeat)
        if elements is None:
            return self._no_rows()
        columns, came, start = list(elements.columns), elements.ts, elements.ts
        if self._spec.came is not None:
            start = int64s(columns.pop())
        lanes = np.empty((self.table.integers.shape[0], len(came)), np.int64)
        lanes[STATE], lanes[STOP], lanes[LEAVES], lanes[MET] = WAITING, elements.exp, END, END
        lanes[UNTIL] = END
        for one in self._leaving:
            np.minimum(lanes[UNTIL], one.first(columns, came), out=lanes[UNTIL])
        for by, first, reference in self._references:
            there = can_close([columns[c] for c in by.columns], len(came))
            numbers, instants = reference.dues(came)
            lanes[first], lanes[first + 1] = np.where(there, numbers, END), np.where(there, instants, END)
            settled = reference.settled(lanes[first], lanes[first + 1], heartbeat)
            np.minimum(lanes[UNTIL], settled, out=lanes[UNTIL])
        lanes[UNTIL] = self._at_boundary(lanes[UNTIL])
        lanes[START] = start
        for lane, condition in zip(self._closed_lanes, self._entering, strict=True):
            lanes[lane] = np.minimum.reduce([one.first(columns, came) for one in condition])
        return FreshRows(columns, lanes)

    def _close(self, heartbeat: int) -> FreshRows:
        """Give rows that are stored what their closings say; return those that enter, which are stored no more."""
        closed = [one.closed() for one in self._leaving]
        closed += [reference.closed(heartbeat) for _, _, reference in self._references]
        self._note_first(UNTIL, [(slots, self._at_boundary(instants)) for slots, instants in closed])
        self.touched += [slots for slots, _ in closed]
        if not self._waits:
            return self._no_rows()
        waiting = [self._starts.until(heartbeat)]
        for lane, condition in zip(self._closed_lanes, self._entering, strict=True):
            closed = [one.closed() for one in condition]
            self._note_first(lane, closed)
            waiting += [slots for slots, _ in closed]
        found = self.table.alive(np.concatenate(waiting))
        found = found[self.table.integers[STATE, found] == WAITING]
        self.table.touch(found)
        lanes = self.table.integers[:, found]
        entering = self._enters(lanes) <= heartbeat
        rows = FreshRows(self.table.key_columns(found[entering]), lanes[:, entering])
        self.table.end(found[entering])
        return rows

    def _note_first(self, lane: int, closed: Sequence[tuple[Int64s, Int64s]]) -> None:
        """Note the first closing of rows of which none is known: what closed them in an earlier round decides."""
        numbers = self.table.integers[lane]
        known = [numbers[slots] < END for slots, _ in closed]
        for (slots, instants), before in zip(closed, known, strict=True):
            np.minimum.at(numbers, slots[~before], instants[~before])

    def settle(self, heartbeat: int) -> None:
        """Store what is held after a round, and end what is not."""
        touched = self.table.alive(np.concatenate([_NONE, *self.touched]))
        lanes = self.table.integers
        lanes[LEAVES, touched] = np.minimum(later(lanes[UNTIL, touched], 1), lanes[STOP, touched])
        self.table.touch(touched)
        ended = [touched[lanes[LEAVES, touched] <= heartbeat + 1]]
        if self._leaves_later:
            self._ends.put(touched[(lanes[LEAVES, touched] > heartbeat + 1) & (lanes[LEAVES, touched] < END)])
            ended.append(self._ends.until(heartbeat + 1))
        slots = self.table.alive(np.concatenate(ended))
        self.table.end(slots[lanes[STATE, slots] == ENTERED])
        fresh = self.fresh.lanes
        fresh[LEAVES] = np.minimum(later(fresh[UNTIL], 1), fresh[STOP])
        kept = np.flatnonzero(fresh[LEAVES] > heartbeat + 1)
        self._store(FreshRows.both(self.fresh.take(kept), self._later))
        self.fresh, self._later = self._no_rows(), self._no_rows()

    def _store(self, rows: FreshRows) -> None:
        if not len(rows):
            return
        slots = self.table.add(rows.values, rows.lanes)
        for one in (*self._leaving, *(one for condition in self._entering for one in condition)):
            one.put(slots)
        for _, _, reference in self._references:
            reference.put(slots)
        if self._waits:
            self._starts.put(slots[rows.lanes[STATE] == WAITING])
        if self._leaves_later:
            self._ends.put(slots[rows.lanes[LEAVES] < END])

    def _at_boundary(self, instants: Int64s) -> Int64s:
        spec = self._spec
        return instants if spec.slide is None else round_up(instants, spec.slide, spec.align)

    def _no_rows(self) -> FreshRows:
        lanes = np.empty((self.table.integers.shape[0], 0), np.int64)
        return FreshRows(self.table.key_columns(_NONE), lanes)


def keyed_rows(columns: Sequence[pa.Array], key: Sequence[int], length: int) -> Bools:
    """Return which of `length` rows can have a partner at all: none of their key columns is NULL."""
    keep = np.ones(length, np.bool_)
    for position in key:
        if columns[position].null_count:
            keep &= columns[position].is_valid().to_numpy(zero_copy_only=False)
    return keep
