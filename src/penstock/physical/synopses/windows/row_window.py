"""The last elements of every partition of a stream, for windows that count rows.

Rows are stored in a log, in order of arrival, cut into immutable chunks; linked lists through the log connect the rows
of each partition, oldest first. A row that a later one ends is the oldest of its partition, so the cost of a new row
does not depend on the size. Rows are numbered from 1 within their partition, in order of arrival: the row numbered i
enters when the count reaches the next multiple of `step`, and leaves when it reaches the next multiple from i + rows
on.

Which rows of the log are still live follows from the numbers, so a snapshot writes only new rows. The log is rewritten
when a third of it is dropped; a row is copied a constant number of times, and a logarithmic one while chunks are small.
Nothing is in memory twice: timestamps are in the chunks only, numbers in a separate array that the lists index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.arrays import Int32s
from penstock.compilation import loop
from penstock.physical.elements import Bools, Int64s, concat_arrays, int64s, unnamed
from penstock.physical.kernels.compiled import argsort_uint64
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.synopses.contract import Chunks, StoredTimes, Synopsis
from penstock.physical.synopses.queues import chunk_log
from penstock.physical.synopses.tables.keyed_table import find_slots, index_slots
from penstock.storage.documents import Document, integer, integers
from penstock.types import END

_FEWEST_DEAD = 1 << 12


@loop
def _append(
    slots: Int32s,
    numbers: Int64s,
    counts: Int64s,
    step: int,
    low: int,
    high: int,
    following: Int32s,
    head: Int64s,
    tail: Int64s,
    pending: Int64s,
) -> None:
    """Put the rows low..high-1 of the log at the ends of their partitions' lists. `pending` is the oldest row of a
    partition that has not come in yet."""
    for row in range(low, high):
        slot = slots[row]
        following[row] = -1
        if head[slot] < 0:
            head[slot] = row
        else:
            following[tail[slot]] = row
        tail[slot] = row
        if pending[slot] < 0 and numbers[row] > counts[slot] // step * step:
            pending[slot] = row


@loop
def _advance(slots: Int64s, limits: Int64s, numbers: Int64s, following: Int32s, first: Int64s, found: Int64s) -> int:
    """Move `first` of each of `slots` behind the rows whose number is at most the slot's limit. Return how many rows
    are `found` that way."""
    count = 0
    for k in range(slots.shape[0]):
        row = first[slots[k]]
        while row >= 0 and numbers[row] <= limits[k]:
            found[count] = row
            count += 1
            row = following[row]
        first[slots[k]] = row
    return count


@dataclass(frozen=True)
class WindowRows:
    """Rows with the ticks at which counting brings them in and out, END for one that is not known yet. ts: their own
    timestamps."""

    columns: tuple[pa.Array, ...]
    ts: Int64s
    start: Int64s
    end: Int64s

    def __len__(self) -> int:
        return len(self.ts)


@dataclass(frozen=True)
class _Arrivals:
    """New rows, sorted by partition. ts: in that order; group: the partition of each, counted from 0; begins: where
    each partition begins; slots: its slot; old, count: its number of rows before and after; reached: the count up to
    which its content is brought."""

    order: Int64s
    ts: Int64s
    group: Int64s
    begins: Int64s
    slots: Int64s
    old: Int64s
    count: Int64s
    reached: Int64s

    @property
    def numbers(self) -> Int64s:
        return np.arange(1, len(self.ts) + 1) - self.begins[self.group] + self.old[self.group]

    def tick(self, group: Int64s, number: Int64s) -> Int64s:
        """Return the tick at which row `number` of a partition arrived; END if it has not arrived yet. Rows that
        arrived earlier get an arbitrary tick; it is never read, since their effect has already been emitted."""
        known = number <= self.reached[group]
        place = self.begins[group] + np.where(known, np.maximum(number - self.old[group] - 1, 0), 0)
        return np.where(known, self.ts[place], END)


class RowWindowBuffer(Synopsis):
    """types: of the columns; key: the partition's columns; rows, step: as of the window; length: how many ticks a row
    is needed for at the most, None for ever."""

    TIMES: ClassVar[StoredTimes | None] = StoredTimes("ts", 0)

    def __init__(
        self, types: Sequence[pa.DataType], key: Sequence[int], rows: int, step: int = 1, length: int | None = None
    ) -> None:
        self._types, self._key = tuple(types), tuple(key)
        self._window, self._step, self._length = rows, step, length
        self._next_id = 0
        self._clear()

    def _clear(self) -> None:
        # Timestamp and columns of the rows.
        self._chunks: dict[int, pa.RecordBatch] = {}
        self._size = self._gone = self._waiting = self._partitions = 0
        # By row of the log.
        self._number = np.empty(16, np.int64)
        self._slot, self._following = np.empty(16, np.int32), np.empty(16, np.int32)
        # By partition.
        self._first, self._second = np.empty(16, np.uint64), np.empty(16, np.uint64)
        self._count = np.zeros(16, np.int64)
        self._head, self._tail, self._pending = (np.full(16, -1, np.int64) for _ in range(3))
        self._table = np.full(64, -1, np.int32)

    # -- new rows ----------------------------------------------------------------------------------------------

    def arrive(self, columns: Sequence[pa.Array], ts: Int64s) -> tuple[WindowRows, WindowRows]:
        """Take new rows (at least one), in order of (timestamp, arrival). Returns the rows that come in now, with their
        end where it is known already, and the rows that came in earlier and go out now."""
        slots = self._slots_of(columns, len(ts))
        new = self._arrivals(slots, ts)
        self._count[new.slots] = new.count
        waited = self._move(self._pending, new, new.reached, self._waiting)
        self._waiting -= len(waited)
        left = self._move(self._head, new, new.reached - self._window, self._size - self._gone)
        self._gone += len(left)
        if len(waited) and len(left):
            left = left[~np.isin(left, waited)]
        numbers = new.numbers
        fresh = self._rows([c.take(pa.array(new.order)) for c in columns], new.ts, numbers, new.group, new)
        stays = np.empty(len(ts), np.bool_)
        stays[new.order] = fresh.end == END
        in_order = np.empty(len(ts), np.int64)
        in_order[new.order] = numbers
        self._store(columns, ts, in_order, slots, np.flatnonzero(stays))
        came = chosen(fresh, fresh.start < END)
        if len(waited):
            came = _both(came, self._held(waited, new))
        return came, self._held(left, new)

    def between(self, after: int, until: int) -> WindowRows:
        """The rows that arrived at ticks in (after, until] and have not gone out, their ends open; for step 1."""
        low, high = self._arrived_by(after), self._arrived_by(until)
        held = self._number[low:high] > self._count[self._slot[low:high]] - self._window
        ts, *columns = self._take(low + np.flatnonzero(held))
        return WindowRows(tuple(columns), int64s(ts), int64s(ts), np.full(len(ts), END, np.int64))

    def _arrived_by(self, tick: int) -> int:
        """Return how many rows of the log arrived until `tick`."""
        rows = 0
        for batch in self._chunks.values():
            count = int(np.searchsorted(int64s(batch.column(0)), tick, side="right"))
            rows += count
            if count < batch.num_rows:
                break
        return rows

    def _arrivals(self, slots: Int64s, ts: Int64s) -> _Arrivals:
        order = argsort_uint64(slots.view(np.uint64))
        ordered = slots[order]
        begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        sizes = np.diff(np.append(begins, len(ts)))
        old = self._count[ordered[begins]]
        group = np.repeat(np.arange(len(begins)), sizes)
        reached = (old + sizes) // self._step * self._step
        return _Arrivals(order, ts[order], group, begins, ordered[begins], old, old + sizes, reached)

    def _move(self, first: Int64s, new: _Arrivals, limits: Int64s, most: int) -> Int64s:
        """Return the held rows up to the `limits`, in order of the log; `first` is moved behind them."""
        found = np.empty(most, np.int64)
        return np.sort(found[: _advance(new.slots, limits, self._number, self._following, first, found)])

    def _held(self, rows: Int64s, new: _Arrivals) -> WindowRows:
        """Rows of the log, whose partitions are among those of the new ones."""
        group = np.searchsorted(new.slots, self._slot[rows])
        ts, *columns = self._take(rows)
        return self._rows(columns, int64s(ts), self._number[rows], group, new)

    def _rows(
        self, columns: Sequence[pa.Array], ts: Int64s, numbers: Int64s, group: Int64s, new: _Arrivals
    ) -> WindowRows:
        start = new.tick(group, _next(numbers, self._step))
        return WindowRows(tuple(columns), ts, start, new.tick(group, _next(numbers + self._window, self._step)))

    def _store(self, columns: Sequence[pa.Array], ts: Int64s, numbers: Int64s, slots: Int64s, stays: Int64s) -> None:
        """Put the rows `stays` into the log."""
        low, high = self._size, self._size + len(stays)
        if not len(stays):
            return
        self._reserve_rows(high)
        self._number[low:high], self._slot[low:high] = numbers[stays], slots[stays]
        self._size = high
        self._link(low)
        taken = columns if len(stays) == len(ts) else [c.take(pa.array(stays)) for c in columns]
        self._next_id = chunk_log.append(self._chunks, unnamed([pa.array(ts[stays]), *taken]), self._next_id)

    def _link(self, low: int) -> None:
        _append(
            self._slot,
            self._number,
            self._count,
            self._step,
            low,
            self._size,
            self._following,
            self._head,
            self._tail,
            self._pending,
        )
        slots, numbers = self._slot[low : self._size], self._number[low : self._size]
        self._waiting += int(np.count_nonzero(numbers > self._count[slots] // self._step * self._step))

    def expire(self, heartbeat: int) -> None:
        """Drop the rows that no instant after `heartbeat` needs, once they are a third of the log."""
        over = 0
        if self._length is not None:
            over = self._arrived_by(heartbeat + 1 - self._length)
        if self._size < _FEWEST_DEAD or 3 * max(over, self._gone) < self._size:
            return
        slots, numbers = self._slot[: self._size], self._number[: self._size]
        count = self._count[slots]
        needed = numbers > count // self._step * self._step - self._window
        needed[:over] = False
        # The newest row has the number up to which the partition has counted.
        needed |= (numbers == count) & (count % self._step != 0)
        kept = np.flatnonzero(needed)
        whole, numbers = unnamed(self._take(kept)), numbers[kept]
        self._clear()
        for start in range(0, len(kept), chunk_log.LARGEST):
            self._next_id += 1
            self._chunks[self._next_id] = whole.slice(start, chunk_log.LARGEST)
        self._read_chunks(numbers)

    # -- the log -----------------------------------------------------------------------------------------------

    def _take(self, rows: Int64s) -> tuple[pa.Array, ...]:
        """Timestamps and columns of rows of the log, given in its order."""
        return chunk_log.take(self._chunks, rows, (pa.int64(), *self._types), 0)

    def _read_chunks(self, numbers: Int64s) -> None:
        """Rebuild partitions, counts and lists from the chunks and the numbers of their rows."""
        self._reserve_rows(len(numbers))
        self._number[: len(numbers)] = numbers
        for batch in self._chunks.values():
            low, self._size = self._size, self._size + batch.num_rows
            self._slot[low : self._size] = self._slots_of(batch.columns[1:], batch.num_rows)
        np.maximum.at(self._count, self._slot[: self._size], self._number[: self._size])
        self._link(0)
        slots = np.arange(self._partitions)
        limits = self._count[slots] // self._step * self._step - self._window
        found = np.empty(self._size, np.int64)
        self._gone = int(_advance(slots, limits, self._number, self._following, self._head, found))

    def _reserve_rows(self, size: int) -> None:
        have = len(self._number)
        if size > have:
            more = max(size, 2 * have) - have
            for name in ("_number", "_slot", "_following"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.empty(more, old.dtype)]))

    # -- partitions --------------------------------------------------------------------------------------------

    def _slots_of(self, columns: Sequence[pa.Array], length: int) -> Int64s:
        """Return the slot of each row's partition; new partitions get one."""
        if not self._key:
            self._partitions = 1
            return np.zeros(length, np.int64)
        first, second = fingerprints([columns[i] for i in self._key], length)
        self._reserve_partitions(self._partitions + length)
        slots = np.empty(length, np.int64)
        # There is room for all, so the search stops nowhere; where the new ones stand does not matter.
        heads, known = np.empty(length, np.int64), self._partitions
        count, _ = find_slots(self._table, self._first, self._second, known, first, second, 0, slots, heads)
        self._partitions = int(count)
        return slots

    def _reserve_partitions(self, capacity: int) -> None:
        have = len(self._first)
        if capacity > have:
            more = max(capacity, 2 * have) - have
            self._first, self._second = (
                np.concatenate([a, np.empty(more, np.uint64)]) for a in (self._first, self._second)
            )
            self._count = np.concatenate([self._count, np.zeros(more, np.int64)])
            self._head, self._tail, self._pending = (
                np.concatenate([a, np.full(more, -1, np.int64)]) for a in (self._head, self._tail, self._pending)
            )
        if 2 * capacity > len(self._table):
            self._table = np.full(1 << int(2 * capacity).bit_length(), -1, np.int32)
            index_slots(self._table, self._first, self._partitions)

    # -- durability --------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return self._size - self._gone

    @property
    def nbytes(self) -> int:
        lanes = 16 * self._size + 48 * self._partitions
        return lanes + int(sum(batch.nbytes for batch in self._chunks.values()))

    def snapshot(self) -> tuple[Document, Chunks]:
        written: dict[int, pa.RecordBatch] = {}
        low = 0
        for i, batch in self._chunks.items():
            high = low + batch.num_rows
            ts, *columns = batch.columns
            written[i] = unnamed([ts, pa.array(self._number[low:high]), *columns])
            low = high
        return {"next": self._next_id, "chunks": list(written)}, written

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._next_id = integer(manifest, "next")
        numbers = [np.empty(0, np.int64)]
        for i in integers(manifest, "chunks"):
            ts, number, *columns = chunks[i].columns
            self._chunks[i] = unnamed([ts, *columns])
            numbers.append(int64s(number))
        self._read_chunks(np.concatenate(numbers))


def _next(numbers: Int64s, step: int) -> Int64s:
    """Return the next multiple of `step`, the number itself included."""
    return numbers if step == 1 else -(-numbers // step) * step


def chosen(rows: WindowRows, mask: Bools) -> WindowRows:
    """The rows for which `mask` is true."""
    if mask.all():
        return rows
    keep = np.flatnonzero(mask)
    columns = tuple(c.take(pa.array(keep)) for c in rows.columns)
    return WindowRows(columns, rows.ts[keep], rows.start[keep], rows.end[keep])


def _both(one: WindowRows, other: WindowRows) -> WindowRows:
    columns = tuple(concat_arrays([a, b]) for a, b in zip(one.columns, other.columns, strict=True))
    ticks = (np.concatenate(pair) for pair in ((one.ts, other.ts), (one.start, other.start), (one.end, other.end)))
    return WindowRows(columns, *ticks)
