"""Queues of rows that come due at a time: the expirations of a window, or elements ahead of the heartbeat.

`FifoQueue` is for rows that come due in the order they arrive (update pattern WKS): pushing and popping touch only
the ends. `CalendarQueue` is for any order (WK): every push becomes a chunk sorted by due time, chunks of similar size
become one, and popping takes the heads of those few that have something due. A row is copied a logarithmic number of
times, in long stretches; days of due time `[golab 3.5]`, which cut every push into pieces of a few rows, cost more the
longer the window. `ListQueue` keeps rows as they came and looks at all of them, as the direct approach does
`[golab 2.3.3]`. All keep record batches with a due time per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Int64s, concat_arrays, int64s
from penstock.physical.kernels import argsort_time, in_time
from penstock.physical.synopses.contract import Chunks, Synopsis

#: Chunks of similar size that become one.
_MERGED = 8
#: Rows of a chunk in order of arrival from which on it stays as it is.
_LONG = 1 << 13
#: Rows of a chunk that is copied when most of it is gone.
_WORTH = 1 << 10
#: Chunks of a list before they become one.
_MOST_CHUNKS = 256


class _Chunk:
    """Rows sorted by due time (column 0, int64); those before `start` are gone already."""

    def __init__(self, number: int, batch: pa.RecordBatch, start: int = 0) -> None:
        self.id, self.batch, self.start = number, batch, start

    @cached_property
    def times(self) -> Int64s:
        """When each row is due, those that are gone included."""
        return int64s(self.batch.column(0))

    @cached_property
    def nbytes(self) -> int:
        return int(self.batch.nbytes)

    def pop_until(self, time: int) -> pa.RecordBatch | None:
        """The rows due at `time` or before, or None; they are gone from the chunk."""
        if self.times[self.start] > time:
            return None
        start, self.start = self.start, int(np.searchsorted(self.times, time, side="right"))
        return self.batch.slice(start, self.start - start)

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows) - self.start

    @property
    def left(self) -> pa.RecordBatch:
        return self.batch.slice(self.start)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows of `batches` (at least one), in this order."""
    if len(batches) == 1:
        return batches[0]
    columns = zip(*(batch.columns for batch in batches), strict=True)
    return pa.RecordBatch.from_arrays([concat_arrays(list(parts)) for parts in columns], schema=batches[0].schema)


class _Queue(Synopsis):
    """What the queues share: batches of one schema whose column 0 is the due time."""

    def __init__(self) -> None:
        self._next_id = 0
        self._chunks: list[_Chunk] = []

    def _chunk(self, batch: pa.RecordBatch) -> _Chunk:
        due = int64s(batch.column(0))
        if not in_time(due):
            batch = batch.take(pa.array(argsort_time(due)))
        self._next_id += 1
        return _Chunk(self._next_id, batch)

    def _all(self) -> Iterator[_Chunk]:
        return iter(self._chunks)

    def _merge(self) -> None:
        """Make one of the last chunks."""
        tail = self._chunks[-_MERGED:]
        self._chunks[-_MERGED:] = [self._chunk(_joined([c.left for c in tail]))]

    @property
    def rows(self) -> int:
        return sum(c.rows for c in self._all())

    @property
    def nbytes(self) -> int:
        return sum(c.nbytes for c in self._all())

    def snapshot(self) -> tuple[dict[str, Any], Chunks]:
        chunks = list(self._all())
        manifest = {"next": self._next_id, "chunks": [[c.id, c.start] for c in chunks]}
        return manifest, {c.id: c.batch for c in chunks}

    def restore(self, manifest: dict[str, Any], chunks: Chunks) -> None:
        self._next_id = manifest["next"]
        self._chunks = [_Chunk(i, chunks[i], start) for i, start in manifest["chunks"]]

    def contents(self) -> list[pa.RecordBatch]:
        """All rows held, for those who must look at everything."""
        return [c.left for c in self._all()]


class FifoQueue(_Queue):
    """Rows due in order of arrival. A batch that breaks the order is an error of the caller."""

    def push(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._chunks.append(self._chunk(batch))
        # Short ones become one, or a long window of small rounds would be a long list.
        while len(self._chunks) >= _MERGED:
            sizes = [c.rows for c in self._chunks[-_MERGED:]]
            if max(sizes) >= _LONG or sizes[0] > sum(sizes[1:]):
                break
            self._merge()

    def pop_until(self, time: int) -> list[pa.RecordBatch]:
        """The rows due at `time` or before, in batches."""
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
            while len(self._chunks) >= _MERGED:
                sizes = [c.rows for c in self._chunks[-_MERGED:]]
                if sizes[0] > sum(sizes[1:]):
                    break
                self._merge()

    def pop_until(self, time: int) -> list[pa.RecordBatch]:
        """The rows due at `time` or before, in one batch or none; of those due at once, those that came first are
        first."""
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
        """A chunk as long as the window would hold the memory of all that is gone from it."""
        if chunk.start < _WORTH or chunk.start < chunk.rows:
            return chunk
        self._next_id += 1
        return _Chunk(self._next_id, chunk.batch.take(pa.array(np.arange(chunk.start, chunk.batch.num_rows))))


class ListQueue(_Queue):
    """Rows in order of arrival, whatever they are due; popping looks at every row."""

    def push(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._add(batch)
            if len(self._chunks) > _MOST_CHUNKS:
                whole = pa.Table.from_batches([c.batch for c in self._chunks]).combine_chunks()
                self._chunks = []
                self._add(whole.to_batches()[0])

    def pop_until(self, time: int) -> list[pa.RecordBatch]:
        """The rows due at `time` or before, in batches."""
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


def make_queue(fifo: bool, listed: bool) -> FifoQueue | CalendarQueue | ListQueue:
    """The queue of expirations that come in order (`fifo`) or in any; `listed`: without regard to that."""
    return ListQueue() if listed else FifoQueue() if fifo else CalendarQueue()
