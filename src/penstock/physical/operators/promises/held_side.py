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
from penstock.physical.kernels.compiling import compiled
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints
from penstock.physical.kernels.ticks import later, round_up
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer
from penstock.physical.operators.promises.closed_counts import OPEN, ClosingsOfSide, sooner
from penstock.physical.operators.promises.follower import FollowedPromise
from penstock.physical.operators.promises.held_slots import HeldSlots, held_slots
from penstock.physical.operators.promises.references import CountedStreams, FollowedReference
from penstock.physical.plan.joins.promised import ClosedBy, PromisedSide
from penstock.physical.plan.promises.closings import ClosingSpec
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.promises.closing_index import can_close
from penstock.physical.synopses.promises.held_rows import HeldRows
from penstock.physical.synopses.queues.expiration_index import ExpirationIndex
from penstock.types import END

#: The lanes of a row: WAITING or ENTERED (0 for one that has ended); when it enters; the end of its window; the last
#: instant at which it answers look-ups; the first one at which it does not, be it for its window; when it first found a
#: partner. END stands for what is not known yet. Then one a condition of CLOSED: when it closed the row; and two a
#: reference (`references.py`).
STATE, START, STOP, UNTIL, LEAVES, MET, _OTHERS = range(7)
WAITING, ENTERED = 1, 2
_NONE = np.empty(0, np.int64)


@compiled(reads="rows values", counted=False)
def _put_least(lanes: Int64s, lane: int, rows: Int64s, values: Int64s) -> None:
    for i in range(rows.shape[0]):
        lanes[rows[i], lane] = min(lanes[rows[i], lane], values[i])


@compiled(reads="slots", counted=False)
def _leave(slots: Int64s, lanes: Int64s, heartbeat: int) -> None:
    """Note when rows leave, each of which may occur several times, and end those that do until `heartbeat`."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        if lanes[slot, STATE] == 0:
            continue
        lanes[slot, LEAVES] = min(lanes[slot, UNTIL] + 1, lanes[slot, STOP], END)
        if lanes[slot, LEAVES] <= heartbeat + 1 and lanes[slot, STATE] == ENTERED:
            lanes[slot, STATE] = 0


@compiled(reads="start stop", counted=False)
def _begin(lanes: Int64s, start: Int64s, stop: Int64s) -> None:
    """Write the numbers of rows that come, by (row, lane)."""
    for i in range(lanes.shape[0]):
        lanes[i, STATE], lanes[i, START], lanes[i, STOP] = WAITING, start[i], stop[i]
        lanes[i, UNTIL], lanes[i, LEAVES], lanes[i, MET] = END, END, END


@compiled(counted=False)
def _stay(lanes: Int64s, heartbeat: int, kept: Int64s) -> int:
    """Note when rows leave; write those that do not until `heartbeat` to `kept`, and return how many they are."""
    count = 0
    for row in range(lanes.shape[0]):
        lanes[row, LEAVES] = min(lanes[row, UNTIL] + 1, lanes[row, STOP], END)
        if lanes[row, LEAVES] > heartbeat + 1:
            kept[count] = row
            count += 1
    return count


class RowsOfSide(Protocol):
    """Rows by their numbers."""

    @property
    def by_row(self) -> Int64s:
        """Return the numbers by (row, lane), as they lie in memory."""

    def lane(self, lane: int, rows: Int64s) -> Int64s:
        """Return a number of each of some rows."""

    def put_lane(self, lane: int, rows: Int64s, values: Int64s) -> None:
        """Change a number of some rows to the least of it and `values`; a row may occur several times."""

    def columns(self, rows: Int64s) -> list[pa.Array]:
        """Return the columns of some rows."""


@dataclass
class FreshRows:
    """Rows that are not stored. lanes: by (lane, row); in memory those of a row are contiguous."""

    values: Sequence[pa.Array]
    lanes: Int64s

    @staticmethod
    def of(values: Sequence[pa.Array], lanes: int, length: int) -> FreshRows:
        """Return rows with that many lanes, which are to be written."""
        return FreshRows(values, np.empty((length, lanes), np.int64).T)

    @property
    def by_row(self) -> Int64s:
        return self.lanes.T

    def __len__(self) -> int:
        return int(self.lanes.shape[1])

    def take(self, rows: Int64s) -> FreshRows:
        return FreshRows(self.columns(rows), self.by_row[rows].T)

    @staticmethod
    def both(one: FreshRows, other: FreshRows) -> FreshRows:
        """Return the rows of both."""
        if not len(one) or not len(other):
            return one if len(one) else other
        columns = [concat_arrays([a, b]) for a, b in zip(one.values, other.values, strict=True)]
        return FreshRows(columns, np.concatenate([one.by_row, other.by_row]).T)

    def lane(self, lane: int, rows: Int64s) -> Int64s:
        found: Int64s = self.lanes[lane, rows]
        return found

    def put_lane(self, lane: int, rows: Int64s, values: Int64s) -> None:
        _put_least(self.by_row, lane, rows, values)

    def columns(self, rows: Int64s) -> list[pa.Array]:
        return taken(self.values, rows)


class RowsInTable:
    """Rows of the table of a side, by their slots."""

    def __init__(self, table: HeldRows) -> None:
        self.table = table

    @property
    def by_row(self) -> Int64s:
        return self.table.by_slot.integers

    def lane(self, lane: int, rows: Int64s) -> Int64s:
        found: Int64s = self.table.integers[lane, rows]
        return found

    def put_lane(self, lane: int, rows: Int64s, values: Int64s) -> None:
        _put_least(self.by_row, lane, rows, values)
        self.table.touch(rows)

    def columns(self, rows: Int64s) -> list[pa.Array]:
        return self.table.key_columns(rows)


class _Closer:
    """What closes rows by their values: of rows as they come, and of those that are stored."""

    def __init__(self, by: ClosedBy, promise: FollowedPromise, table: HeldRows) -> None:
        self._columns, self._promise = by.columns, promise
        self._slots: HeldSlots = held_slots(promise, table, by.columns)

    def put(self, slots: Int64s, columns: Sequence[pa.Array]) -> None:
        """Add rows that are stored. columns: of the rows."""
        self._slots.put(slots, [columns[c] for c in self._columns])

    def first(self, columns: Sequence[pa.Array], came: Int64s) -> Int64s:
        """Return the first closing of each row from its own instant on; END where it is not known."""
        return self._promise.until([columns[c] for c in self._columns], came)

    def closed(self) -> tuple[Int64s, Int64s]:
        """Return the slots whose values were closed in this round, and when; some may be dead."""
        return self._slots.closings()


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
        self._no_values = self.table.key_columns(_NONE)
        self._early = ReorderBuffer()
        self._due: Elements | None = None
        self._leaving = [
            _Closer(one, followed[one.closing], self.table) for one in spec.leaving if not one.is_reference
        ]
        self._entering = [
            [_Closer(one, followed[one.closing], self.table) for one in condition] for condition in spec.entering
        ]
        firsts = range(self._closed_lanes.stop, lanes, 2)
        self._references = [
            (one, FollowedReference(one.closing, counted, self.table, first))
            for one, first in zip(references, firsts, strict=True)
        ]
        texts = [one.closing.text for one in (*(o for o in spec.leaving if not o.is_reference), *references)]
        #: What closes rows in this round.
        self.closings = ClosingsOfSide(self.table, texts, spec.unique)
        self._starts, self._ends = ExpirationIndex(self.table, START), ExpirationIndex(self.table, LEAVES)
        self._waits = spec.came is not None or bool(spec.entering)
        #: Whether it is known of stored rows when they will leave.
        self._leaves_later = spec.ends or spec.slide is not None or self._waits
        self.fresh = self._no_rows()
        self._later = self._no_rows()
        self._keyed: tuple[Int64s, UInt64s, UInt64s] | None = None
        #: Slots that may have ended in this round.
        self.touched: list[Int64s] = []

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"held": self.table, "early": self._early.queue}

    def process(self, elements: Elements) -> None:
        if not self._spec.accepted:
            elements = self._needed(elements)
        came = self._spec.came
        if came is not None:
            # They are held from the timestamps of their elements on.
            columns = (*elements.columns[:came], pa.array(elements.ts))
            elements = Elements(columns, int64s(elements.columns[came]), elements.exp)
        self._early.add(elements)

    def _needed(self, elements: Elements) -> Elements:
        """Return the rows without those that are answered in no case."""
        if self._preserved or not any(elements.columns[c].null_count for c in self._spec.key):
            return elements
        return elements.filter(keyed_rows(elements.columns, self._spec.key, len(elements)))

    def arrive(self, heartbeat: int) -> Elements | None:
        """Take the rows up to `heartbeat`, which `begin` then knows; return them, all that were accepted if they are
        among them."""
        self._due = arrived = self._early.until(heartbeat)
        if arrived is not None and self._spec.accepted:
            self._due = self._needed(arrived.valid())
        return arrived

    def begin(self, heartbeat: int) -> None:
        """Take the closings of a round, and let rows enter: `fresh` are those that do in this round."""
        self.table.shrink()
        self.touched = []
        entering = self._close(heartbeat) if self.table.rows else self._no_rows()
        arrived, by, at = self._arrived(heartbeat)
        now = np.ones(len(arrived), np.bool_)
        if self._waits:
            now = self._enters(arrived.lanes) <= heartbeat
        self.closings.arrive(by, at, now, arrived.lanes[STOP])
        if self._waits:
            self._later, arrived = arrived.take(np.flatnonzero(~now)), arrived.take(np.flatnonzero(now))
        self.fresh, self._keyed = FreshRows.both(entering, arrived), None
        lanes = self.fresh.lanes
        if self._waits:
            lanes[START] = self._enters(lanes)
            lanes[UNTIL] = np.maximum(lanes[UNTIL], lanes[START])
        lanes[STATE] = ENTERED

    @property
    def keyed(self) -> tuple[Int64s, UInt64s, UInt64s]:
        """Return the rows of `fresh` that can have a partner, and the fingerprints of their keys."""
        if self._keyed is None:
            fresh, key = self.fresh, self._spec.key
            first, second = fingerprints([fresh.values[c] for c in key], len(fresh))
            there = keyed_rows(fresh.values, key, len(fresh))
            rows = np.flatnonzero(there)
            self._keyed = (rows, first, second) if len(rows) == len(fresh) else (rows, first[rows], second[rows])
        return self._keyed

    def _enters(self, lanes: Int64s) -> Int64s:
        """Return when rows that wait enter; END where it is not known. lanes: by (lane, row)."""
        found: Int64s = np.maximum.reduce([lanes[START], *(lanes[lane] for lane in self._closed_lanes)])
        return found

    def _arrived(self, heartbeat: int) -> tuple[FreshRows, Int64s, Int64s]:
        """Return the rows that arrive, and the number of the promise that closes each first, and when."""
        elements, self._due = self._due, None
        if elements is None or not len(elements):
            return self._no_rows(), _NONE, _NONE
        columns, came, start = list(elements.columns), elements.ts, elements.ts
        if self._spec.came is not None:
            start = int64s(columns.pop())
        arrived = FreshRows.of(columns, len(self.table.integers), len(came))
        lanes = arrived.lanes
        _begin(arrived.by_row, np.ascontiguousarray(start), np.ascontiguousarray(elements.exp))
        by: Int64s = np.full(len(came), OPEN)
        at: Int64s = np.full(len(came), END)
        for number, one in enumerate(self._leaving):
            by, at = sooner(by, at, number, one.first(columns, came))
        lanes[UNTIL] = at
        for number, (closed_by, reference) in enumerate(self._references, len(self._leaving)):
            there = can_close([columns[c] for c in closed_by.columns], len(came))
            reference.arrive(came, there, heartbeat, arrived.by_row, UNTIL)
            by, at = sooner(by, at, number, lanes[UNTIL])
        if self._spec.slide is not None:
            lanes[UNTIL] = self._at_boundary(at)
        for lane, condition in zip(self._closed_lanes, self._entering, strict=True):
            lanes[lane] = np.minimum.reduce([one.first(columns, came) for one in condition])
        return arrived, by, at

    def _close(self, heartbeat: int) -> FreshRows:
        """Give rows that are stored what their closings say; return those that enter, which are stored no more."""
        closed = [one.closed() for one in self._leaving]
        closed += [reference.closed(heartbeat) for _, reference in self._references]
        self.closings.close(closed, self.table.integers[STATE], self.table.integers[UNTIL])
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
        self.closings.enter(found[entering], self.table.integers[UNTIL, found[entering]] < END)
        rows = FreshRows(self.table.key_columns(found[entering]), lanes.T[entering].T)
        self.table.end(found[entering])
        return rows

    def _note_first(self, lane: int, closed: Sequence[tuple[Int64s, Int64s]]) -> None:
        """Note the first closing of rows of which none is known: what closed them in an earlier round decides."""
        numbers, lanes = self.table.integers[lane], self.table.by_slot.integers
        fresh = [numbers[slots] == END for slots, _ in closed]
        for (slots, instants), there in zip(closed, fresh, strict=True):
            _put_least(lanes, lane, slots[there], instants[there])

    def settle(self, heartbeat: int) -> None:
        """Store what is held after a round, and end what is not."""
        if self._leaves_later:
            self._settle_table(heartbeat)
        elif self.touched:
            touched = np.concatenate(self.touched)
            _leave(touched, self.table.by_slot.integers, heartbeat)
            self.table.touch(touched)
        fresh, stored = self.fresh.lanes, self.table.integers
        self.closings.count((fresh[UNTIL], fresh[STOP]), (stored[UNTIL], stored[STOP]))
        kept = np.empty(len(self.fresh), np.int64)
        self._store(kept[: _stay(self.fresh.by_row, heartbeat, kept)])
        self.fresh, self._later, self._keyed = self._no_rows(), self._no_rows(), None

    def _settle_table(self, heartbeat: int) -> None:
        """Settle rows that are stored, some of which leave at an instant that is known before."""
        touched = self.table.alive(np.concatenate([_NONE, *self.touched]))
        lanes = self.table.integers
        lanes[LEAVES, touched] = np.minimum(later(lanes[UNTIL, touched], 1), lanes[STOP, touched])
        self.table.touch(touched)
        ended = [touched[lanes[LEAVES, touched] <= heartbeat + 1]]
        self._ends.put(touched[(lanes[LEAVES, touched] > heartbeat + 1) & (lanes[LEAVES, touched] < END)])
        ended.append(self._ends.until(heartbeat + 1))
        slots = self.table.alive(np.concatenate(ended))
        self.table.end(slots[lanes[STATE, slots] == ENTERED])

    def _store(self, kept: Int64s) -> None:
        """Store some of the rows that have entered, and those that wait."""
        if not len(kept) and not len(self._later):
            return
        rows = FreshRows.both(self.fresh.take(kept), self._later)
        prints = None
        if len(rows) == len(kept) and self._keyed is not None and len(self._keyed[0]) == len(self.fresh):
            prints = self._keyed[1][kept], self._keyed[2][kept]
        slots = self.table.add(rows.values, rows.lanes, prints)
        for one in (*self._leaving, *(one for condition in self._entering for one in condition)):
            one.put(slots, rows.values)
        for _, reference in self._references:
            reference.put(slots)
        if self._waits:
            self._starts.put(slots[rows.lanes[STATE] == WAITING])
        if self._leaves_later:
            self._ends.put(slots[rows.lanes[LEAVES] < END])

    def _at_boundary(self, instants: Int64s) -> Int64s:
        spec = self._spec
        return instants if spec.slide is None else round_up(instants, spec.slide, spec.align)

    def _no_rows(self) -> FreshRows:
        return FreshRows.of(self._no_values, len(self.table.integers), 0)


def keyed_rows(columns: Sequence[pa.Array], key: Sequence[int], length: int) -> Bools:
    """Return which of `length` rows can have a partner at all: none of their key columns is NULL."""
    keep = np.ones(length, np.bool_)
    for position in key:
        if columns[position].null_count:
            keep &= columns[position].is_valid().to_numpy(zero_copy_only=False)
    return keep
