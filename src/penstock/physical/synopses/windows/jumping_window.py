"""The elements that a window of the sequence model holds, or will hold when it is next evaluated [semantics 6].

The window receives the instants of its query in order (`Instants`), each with at most one of its own elements, and is
evaluated at some of them: at all, at every n-th element (of each substream), or at boundaries. An element enters at the
first evaluation after it and leaves at the first one at which it is too old, so its validity is an interval of
instants. Elements that no evaluation can need are never stored: with a window shorter than its frequency that is most
of the stream `[csql 9]`.

Elements are stored in a log in order of arrival, cut into immutable chunks. Linked lists through the log connect the
elements of each substream, so the cost per element does not depend on their number. Which elements of the log are live
follows from the count of their substream and its last evaluation, so a snapshot writes only new elements and counts;
the log is rewritten when most of it is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.arrays import Records, joined, longer
from penstock.physical.elements import Bools, Elements, Int64s, concat, concat_arrays, int64s, unnamed
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.physical.plan.sequence import WindowShape
from penstock.physical.synopses.contract import Chunks, StoredTimes, Synopsis
from penstock.physical.synopses.queues import chunk_log
from penstock.physical.synopses.tables.keyed_table import KeyedTable
from penstock.physical.synopses.windows.jumping_window_kernel import (
    CHANGE,
    COUNT,
    GONE,
    HELD,
    LIST,
    LOGGED,
    MARKS,
    NEW,
    SEEN,
    SEEN_TS,
    SHAPE,
    WAITING,
    WindowState,
    link,
    run,
)
from penstock.storage.documents import Document, integer, integers
from penstock.types import BEGIN, END

_FEWEST_DEAD = 1 << 12
#: The marks that a checkpoint keeps.
_SAVED = ("counted", "last_evaluation", "last_instant")
#: Of a substream of which nothing is in the log.
_NO_LIST = np.array((-1, -1, -1), LIST)


@dataclass(frozen=True)
class Instants:
    """Instants `first`, `first` + 1, ... of a query: their ticks, which of the window's new elements each is (or -1),
    and whether it is one of its boundaries."""

    first: int
    ticks: Int64s
    rows: Int64s
    boundary: Bools

    def __len__(self) -> int:
        return len(self.ticks)


class JumpingWindowBuffer(Synopsis):
    """types: of the elements' columns."""

    TIMES: ClassVar[StoredTimes | None] = StoredTimes("ts", 0)

    def __init__(self, types: Sequence[pa.DataType], shape: WindowShape) -> None:
        self._types, self.shape = tuple(types), shape
        self._substreams = KeyedTable(3, 0)
        self._chunks: dict[int, pa.RecordBatch] = {}
        self._next_id = 0
        self._marks = np.zeros(1, MARKS)
        self._marks["last_evaluation"] = self._marks["last_instant"] = BEGIN
        self._shape = np.array(
            [
                (
                    -1 if shape.rows is None else shape.rows,
                    -1 if shape.length is None else shape.length,
                    shape.every or 0,
                    shape.alone,
                    shape.slide or 0,
                    shape.align,
                    bool(shape.key),
                )
            ],
            SHAPE,
        )
        #: Whether the log must still be read from its chunks, after a restore.
        self._unread = False
        self._clear()

    @property
    def substreams(self) -> KeyedTable:
        """The counts by substream, which are a separate synopsis."""
        return self._substreams

    def _clear(self) -> None:
        self._size = self._gone = 0
        self._log = np.empty(16, LOGGED)
        self._lists = np.repeat(_NO_LIST, 16)
        self._marks["waiting"] = self._marks["young"] = self._marks["unsure"] = 0

    def follow(self, columns: Sequence[pa.Array], instants: Instants) -> tuple[Elements | None, Bools]:
        """Add the window's new elements, in order of arrival, with all instants since the last call. Return the
        elements that enter and the negative tuples of those that leave, with instants as ts, and which instants were
        evaluations."""
        self._awake()
        shape = self.shape
        numbers = np.arange(instants.first, instants.first + len(instants))
        if shape.immediate and shape.unbounded:
            own = instants.rows >= 0
            at = numbers[own]
            return (Elements(tuple(columns), at, np.full(len(at), END)) if len(at) else None), own
        new = int(np.count_nonzero(instants.rows >= 0))
        slots = self._slots_of(columns, new)
        self._reserve(self._size + new)
        lives, base = np.empty(new, NEW), self._size
        lives["end"] = END
        changes = np.empty(2 * base, CHANGE)
        evaluated = np.zeros(len(instants), np.bool_)
        # An evaluation moves the marks of what has waited for it too.
        waiting = self._log["slot"][self._marks["waiting"][0] : base].copy()
        counts = self._substreams.integers
        window = WindowState(self._log, self._lists, counts, self._marks, self._shape, lives, changes, base)
        size, out = run(window, numbers, instants.ticks, instants.rows, instants.boundary, slots, evaluated)
        self._size = int(size)
        self._substreams.touch(slots)
        self._substreams.touch(waiting)
        lives = lives[: self._size - base]
        parts = self._changes(columns, lives, changes[:out])
        self._store(columns, base, np.ascontiguousarray(lives["taken"]))
        return (concat(parts) if parts else None), evaluated

    def _awake(self) -> None:
        if self._unread:
            self._unread = False
            self._read()

    def _changes(self, columns: Sequence[pa.Array], lives: Records, changes: Records) -> list[Elements]:
        """Return insertions, of new elements and of those that were waiting, and negative tuples of earlier ones."""
        parts = []
        fresh = np.flatnonzero(lives["start"] > 0)
        if len(fresh):
            taken, start, end = (lives[name][fresh] for name in ("taken", "start", "end"))
            parts.append(Elements(tuple(c.take(pa.array(taken)) for c in columns), start, end))
        for sign in (1, -1):
            mine = np.flatnonzero((changes["at"] > 0) == (sign > 0))
            if len(mine):
                held, ticks = self._take(changes["row"][mine]), np.abs(changes["at"][mine])
                parts.append(Elements(held, ticks, np.full(len(mine), END), np.full(len(mine), sign, np.int64)))
        return parts

    def oldest_waiting(self) -> tuple[pa.Scalar, ...] | None:
        """Return the first element that waits for the evaluation at which it enters, or None."""
        self._awake()
        waiting = np.flatnonzero(self._log["state"][: self._size] == WAITING)[:1]
        return tuple(column[0] for column in self._take(waiting)) if len(waiting) else None

    # -- the log -----------------------------------------------------------------------------------------------

    def _store(self, columns: Sequence[pa.Array], base: int, taken: Int64s) -> None:
        """Write the new elements, in the log from `base` on, into a chunk; rewrite the log when most of it is
        dropped."""
        log = self._log[: self._size]
        state = log["state"]
        self._gone = int(np.count_nonzero(state == GONE))
        fresh = self._size - base
        compact = self._gone > _FEWEST_DEAD and 2 * self._gone > self._size
        if compact or (self._size and self._gone == self._size):
            alive = np.flatnonzero(state != GONE)
            old, new = alive[alive < base], alive[alive >= base] - base
            chosen = pa.array(taken[new])
            kept = [concat_arrays([a, c.take(chosen)]) for a, c in zip(self._take(old), columns, strict=True)]
            whole = self._batch(kept, log["ts"][alive], log["number"][alive])
            self._restart([whole.slice(low, chunk_log.LARGEST) for low in range(0, len(alive), chunk_log.LARGEST)])
        elif fresh:
            chosen = pa.array(taken)
            added = log[base:]
            self._add(self._batch([c.take(chosen) for c in columns], added["ts"], added["number"]))

    def _batch(self, columns: Sequence[pa.Array], ts: Int64s, number: Int64s) -> pa.RecordBatch:
        return unnamed([*(pa.array(np.ascontiguousarray(lane)) for lane in (ts, number)), *columns])

    def _add(self, batch: pa.RecordBatch) -> None:
        self._next_id = chunk_log.append(self._chunks, batch, self._next_id)

    def _take(self, rows: Int64s) -> tuple[pa.Array, ...]:
        """Return the columns of elements of the chunks, by place in the log."""
        order = np.argsort(rows, kind="stable")
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        places = pa.array(back)
        return tuple(column.take(places) for column in chunk_log.take(self._chunks, rows[order], self._types, 2))

    def _restart(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Replace the log by `batches`, whose elements are all live."""
        self._chunks = {}
        for batch in batches:
            self._next_id += 1
            self._chunks[self._next_id] = batch
        self._read()

    def _read(self) -> None:
        """Rebuild the log's arrays and lists from the chunks and counts."""
        self._clear()
        for batch in self._chunks.values():
            low, self._size = self._size, self._size + batch.num_rows
            slots = self._slots_of(batch.columns[2:], batch.num_rows)
            self._reserve(self._size)
            rows = self._log[low : self._size]
            rows["ts"], rows["number"] = (int64s(batch.column(i)) for i in range(2))
            rows["slot"] = slots
        state = self._log["state"][: self._size]
        state[:] = self._standing()
        self._gone = int(np.count_nonzero(state == GONE))
        link(self._log, self._lists, self._marks, self._size)

    def _standing(self) -> Int64s:
        """Return which elements of the log are waiting, in the window, and dropped."""
        shape, size = self.shape, self._size
        ts, number, slot = (self._log[name][:size] for name in ("ts", "number", "slot"))
        count, seen, seen_ts = (self._substreams.integers[lane, slot] for lane in (COUNT, SEEN, SEEN_TS))
        last = np.full(size, self._marks["last_instant"][0])
        if shape.immediate:
            seen, seen_ts = count, last
        elif not shape.alone:
            seen_ts = np.full(size, self._marks["last_evaluation"][0])
        waits = number > seen
        reached, tick = np.where(waits, count, seen), np.where(waits, last, seen_ts)
        alive = np.ones(size, np.bool_) if not shape.unbounded else waits
        if shape.rows is not None:
            alive &= number > reached - shape.rows if not shape.alone else waits | (number > reached - shape.rows)
        if shape.length is not None:
            alive &= ts + shape.length > tick
        return np.where(alive, np.where(waits, WAITING, HELD), GONE)

    def _reserve(self, size: int) -> None:
        have = len(self._log)
        if size > have:
            self._log = longer(self._log, max(size, 2 * have))

    def _slots_of(self, columns: Sequence[pa.Array], length: int) -> Int64s:
        """Return the substream of each element; new ones get one."""
        if not length:
            return np.empty(0, np.int64)
        first, second = fingerprints([columns[i] for i in self.shape.key], length)
        slots = self._substreams.slots(first, second)
        have = len(self._lists)
        if self._substreams.count > have:
            more = np.repeat(_NO_LIST, max(self._substreams.count, 2 * have) - have)
            self._lists = joined([self._lists, more])
        return slots

    # -- durability --------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        self._awake()
        return self._size - self._gone

    @property
    def nbytes(self) -> int:
        return 40 * self._size + self._lists.nbytes + int(sum(batch.nbytes for batch in self._chunks.values()))

    def snapshot(self) -> tuple[Document, Chunks]:
        marks = [int(self._marks[name][0]) for name in _SAVED]
        return {"next": self._next_id, "chunks": list(self._chunks), "marks": marks}, dict(self._chunks)

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        """Return the counts are restored by themselves, before or after: they are looked at when the window is next
        needed."""
        self._next_id = integer(manifest, "next")
        self._chunks = {i: chunks[i] for i in integers(manifest, "chunks")}
        for name, mark in zip(_SAVED, integers(manifest, "marks"), strict=True):
            self._marks[name] = mark
        self._unread = True
