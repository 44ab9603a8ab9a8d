"""Queues of rows with a due time: the expirations of a window, or elements ahead of the heartbeat.

`FifoQueue` is for rows that become due in order of arrival (update pattern WKS): pushing and popping touch only the
ends. `CalendarQueue` is for any order (WK): every push becomes a chunk sorted by due time, chunks of similar size are
merged, and popping takes the heads of the few chunks with due rows. A row is copied a logarithmic number of times, in
long contiguous ranges; the "days" of a calendar queue `[golab 3.5]`, which cut every push into parts of a few rows,
cost more the longer the window. `ListQueue` keeps rows in order of arrival and scans all of them, as the direct
approach does `[golab 2.3.3]`. All store record batches with a due time per row.

Where rows of one due time can be added up, chunks are combined when they are merged. A FIFO queue then keeps the rows
of the latest due time, which more may follow, in chunks of their own, each at least `_GROWTH` times as long as the next
one, and makes one chunk of them when a later due time begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Int64s, concat_arrays, int64s
from penstock.physical.kernels.compiled import argsort_time, in_time
from penstock.physical.synopses.contract import Chunks, StateExtent, StoredTimes, Synopsis, extent_of
from penstock.storage.documents import Document, integer, integer_pairs

#: Number of chunks of similar size that are merged.
_MERGED = 8
#: A chunk of a FIFO queue with this many rows or more is not merged further.
_LONG = 1 << 13
#: Chunks are not merged into one with more than this fraction (1 / n) of all rows: such chunks are few, and many of
#: their rows would be due before the merge has paid off.
_PARTS = 2
#: A chunk is copied, to free memory, once this many of its rows and at least half of them have been popped.
_WORTH = 1 << 10
#: A chunk with rows of the latest due time is combined with the one before unless that is this many times as long.
_GROWTH = 4
#: The same of a calendar queue.
_GROWTH_OF_CALENDAR = 2
#: Number of chunks of a list queue before they are merged.
_MOST_CHUNKS = 256


#: Returns rows sorted by due time with those added up that can be.
Combine = Callable[[pa.RecordBatch], pa.RecordBatch]


class _Chunk:
    """Rows sorted by due time (column 0, int64); those before `start` have been popped."""

    def __init__(self, number: int, batch: pa.RecordBatch, start: int = 0) -> None:
        self.id, self.batch, self.start = number, batch, start

    @cached_property
    def times(self) -> Int64s:
        """The due time of each row, including popped rows."""
        return int64s(self.batch.column(0))

    @cached_property
    def nbytes(self) -> int:
        return int(self.batch.nbytes)

    @property
    def span(self) -> tuple[int, int]:
        """The least and the largest due time of the rows that are left."""
        return int(self.times[self.start]), int(self.times[-1])

    def due(self, time: int) -> pa.RecordBatch | None:
        """Return the rows due at `time` or before, or None if there are none."""
        if self.times[self.start] > time:
            return None
        return self.batch.slice(self.start, int(np.searchsorted(self.times, time, side="right")) - self.start)

    def pop_until(self, time: int) -> pa.RecordBatch | None:
        """Remove and return the rows due at `time` or before, or None if there are none."""
        popped = self.due(time)
        if popped is not None:
            self.start += popped.num_rows
        return popped

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows) - self.start

    @property
    def left(self) -> pa.RecordBatch:
        return self.batch.slice(self.start)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return all rows of `batches` (at least one), in this order."""
    if len(batches) == 1:
        return batches[0]
    columns = zip(*(batch.columns for batch in batches), strict=True)
    return pa.RecordBatch.from_arrays([concat_arrays(list(parts)) for parts in columns], schema=batches[0].schema)


class _Queue(Synopsis):
    """Base class of the queues: batches of one schema whose column 0 is the due time."""

    TIMES: ClassVar[StoredTimes | None] = StoredTimes("due", 0)

    def __init__(self, combine: Combine | None = None) -> None:
        self._next_id = 0
        self._chunks: list[_Chunk] = []
        self._combine = combine

    def _chunk(self, batch: pa.RecordBatch) -> _Chunk:
        due = int64s(batch.column(0))
        if not in_time(due):
            batch = batch.take(pa.array(argsort_time(due)))
        if self._combine is not None:
            # Batches that waited for the heartbeat may have come in together.
            batch = self._combine(batch)
        return self._numbered(batch)

    def _numbered(self, batch: pa.RecordBatch) -> _Chunk:
        self._next_id += 1
        return _Chunk(self._next_id, batch)

    def _all(self) -> Iterator[_Chunk]:
        return iter(self._chunks)

    def _merge(self, first: int, stop: int) -> None:
        """Merge the chunks from the place `first` to before `stop`."""
        batch = _joined([c.left for c in self._chunks[first:stop]])
        due = int64s(batch.column(0))
        if not in_time(due):
            # The stable sort is fast on concatenated sorted runs.
            batch = batch.take(pa.array(np.argsort(due, kind="stable")))
        if self._combine is not None:
            batch = self._combine(batch)
        self._next_id += 1
        self._chunks[first:stop] = [_Chunk(self._next_id, batch)]

    def times_until(self, time: int) -> Int64s:
        """Return the due times of the rows due at `time` or before, which stay, in any order."""
        times = [chunk.times[chunk.start :] for chunk in self._all()]
        return np.concatenate([np.empty(0, np.int64), *(one[one <= time] for one in times)])

    @property
    def rows(self) -> int:
        # Most queues of many queries are empty, and each is asked after each round.
        return sum([c.rows for c in self._all()]) if self._chunks else 0

    @property
    def nbytes(self) -> int:
        return sum(c.nbytes for c in self._all())

    @classmethod
    def first_live(cls, manifest: Document, chunk: int) -> int:
        return int(dict(integer_pairs(manifest, "chunks"))[chunk])

    @property
    def extent(self) -> StateExtent | None:
        return extent_of([chunk.span for chunk in self._chunks if chunk.rows])

    def snapshot(self) -> tuple[Document, Chunks]:
        chunks = list(self._all())
        return {"next": self._next_id, "chunks": [[c.id, c.start] for c in chunks]}, {c.id: c.batch for c in chunks}

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self._next_id = integer(manifest, "next")
        self._chunks = [_Chunk(i, chunks[i], start) for i, start in integer_pairs(manifest, "chunks")]

    def contents(self) -> list[pa.RecordBatch]:
        """Return all rows in the queue."""
        return [c.left for c in self._all()]


class FifoQueue(_Queue):
    """Rows due in order of arrival. A batch that breaks the order is an error of the caller."""

    def push(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        chunk = self._chunk(batch)
        if self._combine is None:
            self._chunks.append(chunk)
            self._merge_short(len(self._chunks))
            return
        earlier = chunk.pop_until(int(chunk.times[-1]) - 1)
        for part in (earlier, chunk.left):
            if part is not None:
                self._add_up(self._numbered(part))

    def _add_up(self, chunk: _Chunk) -> None:
        """Append a chunk, combined with those of its due time."""
        due, chunks = chunk.span[0], self._chunks
        begins = not chunks or chunks[-1].span[1] < due
        if begins and chunks:
            # No row of an earlier due time follows.
            last = chunks[-1].span[1]
            first = next((at for at, c in enumerate(chunks) if c.span[1] == last), len(chunks))
            if first < len(chunks) - 1:
                self._merge(first, len(chunks))
            self._merge_short(len(chunks))
        chunks.append(chunk)
        while not begins and len(chunks) > 1 and chunks[-2].span[1] == due:
            if chunks[-2].rows > _GROWTH * chunks[-1].rows or chunks[-2].span[0] < due:
                break
            self._merge(len(chunks) - 2, len(chunks))

    def _merge_short(self, stop: int) -> None:
        """Merge short chunks before the place `stop`, or a long window of small rounds would have a long list."""
        while stop >= _MERGED:
            sizes = [c.rows for c in self._chunks[stop - _MERGED : stop]]
            if max(sizes) >= _LONG or sizes[0] > sum(sizes[1:]):
                break
            self._merge(stop - _MERGED, stop)
            stop -= _MERGED - 1

    def between(self, low: int, high: int) -> list[pa.RecordBatch]:
        """Return the rows due after `low`, up to `high`, in batches; they stay in the queue."""
        found: list[pa.RecordBatch] = []
        for chunk in self._chunks:
            if chunk.times[chunk.start] > high:
                break
            start = max(chunk.start, int(np.searchsorted(chunk.times, low, side="right")))
            stop = int(np.searchsorted(chunk.times, high, side="right"))
            if start < stop:
                found.append(chunk.batch.slice(start, stop - start))
        return found

    def pop_until(self, time: int) -> list[pa.RecordBatch]:
        """Return the rows due at `time` or before, in batches."""
        popped: list[pa.RecordBatch] = []
        gone = 0
        for chunk in self._chunks:
            head = chunk.pop_until(time)
            if head is not None:
                popped.append(head)
            if chunk.rows:
                break
            gone += 1
        del self._chunks[:gone]
        return popped


class CalendarQueue(_Queue):
    """Rows due in any order."""

    def push(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._chunks.append(self._chunk(batch))
            if self._combine is not None:
                self._add_up()
            while len(self._chunks) >= _MERGED:
                # The sizes before popping: rows popped since are no reason to copy the rest.
                sizes = [c.batch.num_rows for c in self._chunks[-_MERGED:]]
                if sizes[0] > sum(sizes[1:]) or sum(sizes) > max(_LONG, self.rows // _PARTS):
                    break
                self._merge(len(self._chunks) - _MERGED, len(self._chunks))

    def _add_up(self) -> None:
        """Combine the last chunk with those before it that have rows of its due time alone."""
        chunks = self._chunks
        while len(chunks) > 1:
            before, last = chunks[-2:]
            if before.span != last.span or last.span[0] < last.span[1] or before.rows > _GROWTH_OF_CALENDAR * last.rows:
                break
            self._merge(len(chunks) - 2, len(chunks))

    def due(self, time: int) -> list[pa.RecordBatch]:
        """Return the rows due at `time` or before, in batches; rows due at the same time are in order of arrival. They
        stay."""
        return [head for chunk in self._chunks if (head := chunk.due(time)) is not None]

    def pop_until(self, time: int) -> list[pa.RecordBatch]:
        """Remove and return the rows due at `time` or before, in one batch or none; rows due at the same time are in
        order of arrival."""
        popped: list[pa.RecordBatch] = []
        kept: list[_Chunk] = []
        for chunk in self._chunks:
            head = chunk.pop_until(time)
            if head is not None:
                popped.append(head)
            if chunk.rows:
                kept.append(self._without_the_gone(chunk))
        self._chunks = kept
        return [_joined(popped)] if popped else []

    def _without_the_gone(self, chunk: _Chunk) -> _Chunk:
        """Return the chunk, copied if most of its rows are popped: a chunk with rows due much later would keep the
        memory of all popped rows."""
        if chunk.start < _WORTH or chunk.start < chunk.rows:
            return chunk
        self._next_id += 1
        return _Chunk(self._next_id, chunk.batch.take(pa.array(np.arange(chunk.start, chunk.batch.num_rows))))


class ListQueue(_Queue):
    """Rows in order of arrival, whatever their due time; popping scans every row."""

    @property
    def extent(self) -> StateExtent | None:
        return extent_of([(int(chunk.times.min()), int(chunk.times.max())) for chunk in self._chunks])

    def push(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._add(batch)
            if len(self._chunks) > _MOST_CHUNKS:
                whole = pa.Table.from_batches([c.batch for c in self._chunks]).combine_chunks()
                self._chunks = []
                self._add(whole.to_batches()[0])

    def pop_until(self, time: int) -> list[pa.RecordBatch]:
        """Return the rows due at `time` or before, in batches."""
        popped: list[pa.RecordBatch] = []
        held, self._chunks = self._chunks, []
        for chunk in held:
            due = int64s(chunk.batch.column(0)) <= time
            if not due.any():
                self._chunks.append(chunk)
                continue
            popped.append(chunk.batch.filter(pa.array(due)))
            if not due.all():
                self._add(chunk.batch.filter(pa.array(~due)))
        return popped

    def _add(self, batch: pa.RecordBatch) -> None:
        self._next_id += 1
        self._chunks.append(_Chunk(self._next_id, batch))


def make_queue(fifo: bool, listed: bool, combine: Combine | None = None) -> FifoQueue | CalendarQueue | ListQueue:
    """Return a queue for expirations in order of arrival (`fifo`) or in any order; `listed`: a `ListQueue` in either
    case, which combines no rows."""
    return ListQueue() if listed else FifoQueue(combine) if fifo else CalendarQueue(combine)
