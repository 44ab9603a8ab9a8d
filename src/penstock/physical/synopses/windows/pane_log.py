"""The pane log: panes of one grain in time order, which several windows over one stream read `[golab 8.3]`.

The state is the panes, stored once for all windows: a FIFO queue of accumulator rows by the end of their pane. All else
is derived from them and never written: the group of each pane as a number, and its lanes as NumPy arrays. Integer lanes
that are 0 in every pane are not stored, and lanes equal to another lane are stored once; when a pane breaks this, the
arrays are rebuilt.

Contract: panes are appended in time order, none before an existing one. Groups are numbered by *place*, their rank
among the fingerprints of all present groups; the `PaneReaders` have arrays by place and are notified when places
change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, int64s, unnamed
from penstock.physical.kernels.compiled import argsort_uint64
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.synopses.contract import Chunks, StoredTimes, Synopsis
from penstock.physical.synopses.queues.expiration_queue import FifoQueue
from penstock.physical.synopses.tables.keyed_table import Float64s, KeyedTable
from penstock.storage.documents import Document

#: What stands for an integer lane that is 0 in every pane.
ZERO = -1


class PaneReaders(Protocol):
    """The readers of a log, which keep sums by place."""

    @property
    def needs(self) -> int | None:
        """Return the tick up to which panes that end there are not read again; None while it is unknown."""

    @property
    def nbytes(self) -> int:
        """What they hold."""

    def settle(self) -> None:
        """Discard what was computed of the panes before they change."""

    def move(self, places: Int64s, count: int) -> None:
        """Move the sums of place p to places[p], -1 for a removed group; there are `count` places now."""

    def forget(self) -> None:
        """Discard everything derived: the log was rebuilt, and rows and lanes are renumbered."""


class PaneLog(Synopsis):
    """times, slots, integers, floats: of the panes that are held, in the order of time; integers: (panes, kept lanes),
    floats: (panes, lanes). lanes: by integer lane of the plan, which kept one it is, or `ZERO`. place: by slot."""

    TIMES: ClassVar[StoredTimes | None] = StoredTimes("ts", 0)

    def __init__(self, plan: AggregateLayout, types: Sequence[pa.DataType]) -> None:
        self._plan = plan
        self._keys = len(plan.group)
        self._types = tuple(types[: self._keys])
        self._queue = FifoQueue()
        self.readers: PaneReaders | None = None
        self._derived = False
        self._reset((0, *[ZERO] * (plan.integers - 1)))

    def _reset(self, lanes: tuple[int, ...]) -> None:
        self.lanes = lanes
        self._groups = KeyedTable(1, 0, self._types)
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
        if self.readers is not None:
            self.readers.forget()

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
        """Drop the panes that no reader needs, and append `panes`: key columns and lanes, with the end of the pane as
        ts."""
        if self.readers is not None:
            self.readers.settle()
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
        needs = None if self.readers is None else self.readers.needs
        if needs is None:
            return
        count = sum(batch.num_rows for batch in self._queue.pop_until(needs))
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
        """Return (start, stop) of a place for so many panes more."""
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
        """Renumber after the table of groups has kept only the slots `kept`, in this order."""
        moved = np.full(self._groups.count, -1, np.int64)
        moved[kept] = np.arange(len(kept))
        held = self._slots[self._start : self._stop]
        held[:] = moved[held]
        self._slots_kept = moved

    def _order(self) -> None:
        """Assign every group its place, and notify the readers of moved places."""
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
        if self.readers is not None:
            self.readers.move(places, count)

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
        return self._queue.nbytes + arrays + self._groups.nbytes + (0 if self.readers is None else self.readers.nbytes)

    @classmethod
    def first_live(cls, manifest: Document, chunk: int) -> int:
        return FifoQueue.first_live(manifest, chunk)

    def snapshot(self) -> tuple[Document, Chunks]:
        return self._queue.snapshot()

    def restore(self, manifest: Document, chunks: Chunks) -> None:
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
