"""Panes of one grain in the order of time, which several windows over one stream read `[golab 8.3]`.

State are the panes alone, once for all windows: a FIFO queue of lane rows by the end of their pane. What stands beside
it is derived of them and never written: the group of each pane as a number, and its lanes as plain arrays. Integer
lanes that are 0 in every pane, or the same as another lane, are kept once; a pane that breaks this makes the arrays
anew.

Contract: panes are appended in the order of time, none before one that is there. Groups are numbered by *place*, their
rank among the fingerprints of all groups there are; `Reader`s hold arrays by place and are told when places change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, int64s, unnamed
from penstock.physical.fingerprints import fingerprints
from penstock.physical.kernels import argsort_uint64
from penstock.physical.lane_plan import LanePlan
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.physical.synopses.queues import FifoQueue
from penstock.physical.synopses.slots import Float64s, SlotTable

#: What stands for an integer lane that is 0 in every pane.
ZERO = -1


class Reader(Protocol):
    """Who reads a log and keeps sums by place."""

    @property
    def needs(self) -> int | None:
        """Panes that end at this tick or before are not read again; None while nothing is known."""

    @property
    def nbytes(self) -> int:
        """What it holds."""

    def move(self, places: Int64s, count: int) -> None:
        """What was at place p is at places[p] now, -1 for a group that is gone; there are `count` places."""

    def forget(self) -> None:
        """The log is made anew: rows and lanes are numbered otherwise."""


class PaneLog(Synopsis):
    """times, slots, integers, floats: of the panes that are held, in the order of time; integers: (panes, kept lanes),
    floats: (panes, lanes). lanes: by integer lane of the plan, which kept one it is, or `ZERO`. place: by slot."""

    def __init__(self, plan: LanePlan, types: Sequence[pa.DataType]) -> None:
        self._plan = plan
        self._keys = len(plan.group)
        self._types = tuple(types[: self._keys])
        self._queue = FifoQueue()
        self.readers: list[Reader] = []
        self._derived = False
        self._reset((0, *[ZERO] * (plan.integers - 1)))

    def _reset(self, lanes: tuple[int, ...]) -> None:
        self.lanes = lanes
        self._groups = SlotTable(1, 0, self._types)
        self._groups.followers.append(self._renumber)
        self._slots_kept: Int64s | None = None
        self._in_order: Int64s = np.empty(0, np.int64)
        self.place: Int64s = np.empty(0, np.int64)
        self.keys: list[pa.Array] = [pa.array([], t) for t in self._types]
        kept = 1 + max(lanes)
        self._start = self._stop = 0
        #: The number of the first pane that is held, since the arrays were made.
        self.base = 0
        self._times = np.empty(16, np.int64)
        self._slots = np.empty(16, np.int64)
        self._integers = np.empty((16, kept), np.int64)
        self._floats = np.empty((16, self._plan.floats), np.float64)
        for reader in self.readers:
            reader.forget()

    # -- what readers see --------------------------------------------------------------------------------------

    @property
    def times(self) -> Int64s:
        return self._times[self._start : self._stop]

    @property
    def slots(self) -> Int64s:
        return self._slots[self._start : self._stop]

    @property
    def integers(self) -> Int64s:
        return self._integers[self._start : self._stop]

    @property
    def floats(self) -> Float64s:
        return self._floats[self._start : self._stop]

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self._in_order)

    # -- changes -----------------------------------------------------------------------------------------------

    def turn(self, panes: Elements | None) -> None:
        """Let go what no reader needs, and take `panes`, which are key columns and lanes at the end of each pane."""
        if not self._derived:
            self._derive()
        self._drop()
        if panes is not None and len(panes):
            batch = unnamed([pa.array(panes.ts), *panes.columns])
            self._queue.push(batch)
            self._take(batch)
        self._groups.shrink()
        self._order()

    def _drop(self) -> None:
        needs = [reader.needs for reader in self.readers]
        known = [tick for tick in needs if tick is not None]
        if not known or len(known) < len(needs):
            return
        count = sum(batch.num_rows for batch in self._queue.pop_until(min(known)))
        if count:
            gone = self._slots[self._start : self._start + count]
            self._groups.integers[0, : self._groups.count] -= np.bincount(gone, minlength=self._groups.count)
            self._start += count
            self.base += count

    def _take(self, batch: pa.RecordBatch) -> None:
        """Add the rows of the queue's `batch` to the arrays."""
        keys, lanes = batch.columns[1 : 1 + self._keys], batch.columns[1 + self._keys :]
        integers = [int64s(lane) for lane in lanes[: self._plan.integers]]
        if not self._fits(integers):
            self._reset(_alike(self._all_integers()))
            for one in self._queue.contents():
                self._take(one)
            return
        first, second = fingerprints(keys, batch.num_rows)
        slots = self._groups.slots(first, second, keys)
        count = self._groups.count
        self._groups.integers[0, :count] += np.bincount(slots, minlength=count)
        start, stop = self._room(batch.num_rows)
        self._times[start:stop] = int64s(batch.column(0))
        self._slots[start:stop] = slots
        for lane, kept in enumerate(self.lanes):
            if kept != ZERO:
                self._integers[start:stop, kept] = integers[lane]
        for lane in range(self._plan.floats):
            self._floats[start:stop, lane] = lanes[self._plan.integers + lane].to_numpy(zero_copy_only=True)
        self._stop = stop

    def _fits(self, integers: Sequence[Int64s]) -> bool:
        first = {kept: lane for lane, kept in reversed(list(enumerate(self.lanes)))}
        for lane, kept in enumerate(self.lanes):
            if kept == ZERO:
                if integers[lane].any():
                    return False
            elif first[kept] != lane and not np.array_equal(integers[lane], integers[first[kept]]):
                return False
        return True

    def _all_integers(self) -> list[Int64s]:
        held = self._queue.contents()
        places = range(1 + self._keys, 1 + self._keys + self._plan.integers)
        return [np.concatenate([int64s(batch.column(i)) for batch in held]) for i in places]

    def _room(self, rows: int) -> tuple[int, int]:
        """(start, stop) of a place for so many panes more."""
        held = self._stop - self._start
        if self._stop + rows > len(self._times):
            size = max(2 * (held + rows), 16)
            for name in ("_times", "_slots", "_integers", "_floats"):
                old = getattr(self, name)
                made = np.empty((size, *old.shape[1:]), old.dtype)
                made[:held] = old[self._start : self._stop]
                setattr(self, name, made)
            self._start, self._stop = 0, held
        return self._stop, self._stop + rows

    def _renumber(self, kept: Int64s) -> None:
        """The groups' table keeps these slots, in this order."""
        moved = np.full(self._groups.count, -1, np.int64)
        moved[kept] = np.arange(len(kept))
        held = self._slots[self._start : self._stop]
        held[:] = moved[held]
        self._slots_kept = moved

    def _order(self) -> None:
        """Give every group its place, and tell the readers where groups have gone."""
        count, moved = self._groups.count, self._slots_kept
        if moved is None and count == len(self._in_order):
            return
        was = self._in_order if moved is None else moved[self._in_order]
        self._slots_kept = None
        self._in_order = argsort_uint64(self._groups.keys[0][:count])
        self.place = np.empty(count, np.int64)
        self.place[self._in_order] = np.arange(count)
        self.keys = self._groups.key_columns(self._in_order)
        places = np.where(was < 0, -1, self.place[was]) if count else np.full(len(was), -1)
        for reader in self.readers:
            reader.move(places, count)

    def _derive(self) -> None:
        self._derived = True
        held = self._queue.contents()
        if held:
            self._reset(_alike(self._all_integers()))
            for batch in held:
                self._take(batch)

    # -- the contract ------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return self._queue.rows

    @property
    def nbytes(self) -> int:
        arrays = self._times.nbytes + self._slots.nbytes + self._integers.nbytes + self._floats.nbytes
        return self._queue.nbytes + arrays + self._groups.nbytes + sum(reader.nbytes for reader in self.readers)

    def snapshot(self) -> tuple[dict[str, Any], Chunks]:
        return self._queue.snapshot()

    def restore(self, manifest: dict[str, Any], chunks: Chunks) -> None:
        self._queue.restore(manifest, chunks)
        self._derived = False


def _alike(integers: Sequence[Int64s]) -> tuple[int, ...]:
    """Lanes as `PaneLog.lanes` has them; the first is kept in any case."""
    lanes, kept = [0], [integers[0]]
    for values in integers[1:]:
        if not values.any():
            lanes.append(ZERO)
            continue
        same = [k for k, other in enumerate(kept) if np.array_equal(values, other)]
        if not same:
            kept.append(values)
        lanes.append(same[0] if same else len(kept) - 1)
    return tuple(lanes)
