"""Queues of rows that come due at a time: the expirations of a window, or elements ahead of the heartbeat.

`FifoQueue` is for rows that come due in the order they arrive (update pattern WKS): pushing and popping touch only
the ends. `CalendarQueue` is for any order (WK): rows lie in days, ranges of due time, and popping touches the days
that are due `[golab 3.5]`. `ListQueue` keeps rows as they came and looks at all of them, as the direct approach does
`[golab 2.3.3]`. All keep record batches with a due time per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Int64s, int64s
from penstock.physical.kernels import argsort_time
from penstock.physical.synopses.contract import Chunks, Synopsis

#: Days of a calendar. Few, because every push cuts its rows by them.
_MOST_DAYS = 32
_FEWEST_DAYS = 8
#: Chunks of similar size that become one.
_MERGED = 8
#: Chunks of a list before they become one.
_MOST_CHUNKS = 256


@dataclass
class _Chunk:
    """Rows sorted by due time (column 0, int64); those before `start` are gone already."""

    id: int
    batch: pa.RecordBatch
    start: int = 0

    @property
    def due(self) -> Int64s:
        return int64s(self.batch.column(0))[self.start :]

    def pop_until(self, time: int) -> pa.RecordBatch | None:
        """The rows due at `time` or before, or None; they are gone from the chunk."""
        count = int(np.searchsorted(self.due, time, side="right"))
        if count == 0:
            return None
        head = self.batch.slice(self.start, count)
        self.start += count
        return head

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows) - self.start


class _Queue(Synopsis):
    """What both queues share: batches of one schema whose column 0 is the due time."""

    def __init__(self) -> None:
        self._next_id = 0

    def _chunk(self, batch: pa.RecordBatch) -> _Chunk:
        order = argsort_time(int64s(batch.column(0)))
        if not np.array_equal(order, np.arange(len(order))):
            batch = batch.take(pa.array(order))
        self._next_id += 1
        return _Chunk(self._next_id, batch)

    def _all(self) -> Iterator[_Chunk]:
        raise AssertionError

    @property
    def rows(self) -> int:
        return sum(c.rows for c in self._all())

    @property
    def nbytes(self) -> int:
        return sum(c.batch.nbytes for c in self._all())

    def snapshot(self) -> tuple[dict[str, Any], Chunks]:
        chunks = list(self._all())
        manifest = {"next": self._next_id, "chunks": [[c.id, c.start] for c in chunks]}
        return manifest, {c.id: c.batch for c in chunks}

    def contents(self) -> list[pa.RecordBatch]:
        """All rows held, for those who must look at everything."""
        return [c.batch.slice(c.start) for c in self._all()]


class FifoQueue(_Queue):
    """Rows due in order of arrival. A batch that breaks the order is an error of the caller."""

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[_Chunk] = []

    def push(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._chunks.append(self._chunk(batch))

    def pop_until(self, time: int) -> list[pa.RecordBatch]:
        """The rows due at `time` or before, in batches."""
        popped: list[pa.RecordBatch] = []
        while self._chunks:
            head = self._chunks[0].pop_until(time)
            if head is not None:
                popped.append(head)
            if self._chunks[0].rows:
                break
            self._chunks.pop(0)
        return popped

    def _all(self) -> Iterator[_Chunk]:
        return iter(self._chunks)

    def restore(self, manifest: dict[str, Any], chunks: Chunks) -> None:
        self._next_id = manifest["next"]
        self._chunks = [_Chunk(i, chunks[i], start) for i, start in manifest["chunks"]]


class CalendarQueue(_Queue):
    """Rows due in any order, in days of `width` ticks. The width follows the span of what is held."""

    def __init__(self) -> None:
        super().__init__()
        self._width = 0
        self._days: dict[int, list[_Chunk]] = {}

    def push(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        whole = self._chunk(batch)
        due = whole.due
        if self._width == 0:
            self._width = max(1, (int(due[-1]) - int(due[0])) // _FEWEST_DAYS)
        days = due // self._width
        cuts = np.flatnonzero(days[1:] != days[:-1]) + 1
        if len(cuts) + 1 > _MOST_DAYS:
            self._widen(int(due[0]), int(due[-1]))
            days = due // self._width
            cuts = np.flatnonzero(days[1:] != days[:-1]) + 1
        if len(cuts) == 0:
            self._put(int(days[0]), whole)
        else:
            bounds = [0, *cuts.tolist(), len(due)]
            for start, stop in pairwise(bounds):
                part = whole.batch.slice(start, stop - start)
                self._next_id += 1
                self._put(int(days[start]), _Chunk(self._next_id, part))
        if len(self._days) > _MOST_DAYS:
            self._widen(*self._span())

    def pop_until(self, time: int) -> list[pa.RecordBatch]:
        """The rows due at `time` or before, in batches."""
        if not self._days:
            return []
        popped: list[pa.RecordBatch] = []
        for day in sorted(d for d in self._days if d * self._width <= time):
            kept: list[_Chunk] = []
            for chunk in self._days[day]:
                head = chunk.pop_until(time)
                if head is not None:
                    popped.append(head)
                if chunk.rows:
                    kept.append(chunk)
            if kept:
                self._days[day] = kept
            else:
                del self._days[day]
        return popped

    def _span(self) -> tuple[int, int]:
        heads = [int(c.due[0]) for c in self._all()]
        tails = [int(c.due[-1]) for c in self._all()]
        return min(heads), max(tails)

    def _widen(self, low: int, high: int) -> None:
        """Longer days, so that [low, high] is few of them; chunks move to their new day whole or cut."""
        held = list(self._all())
        self._width = max(self._width * 2, (high - low) // _FEWEST_DAYS)
        self._days = {}
        for chunk in held:
            self.push(chunk.batch.slice(chunk.start))

    def _put(self, day: int, chunk: _Chunk) -> None:
        """One more chunk in a day. The newest, when they are many of similar size, become one, so that each row is
        copied a logarithmic number of times."""
        chunks = self._days.setdefault(day, [])
        chunks.append(chunk)
        while len(chunks) >= _MERGED and chunks[-_MERGED].rows <= sum(c.rows for c in chunks[1 - _MERGED :]):
            tail = chunks[-_MERGED:]
            del chunks[-_MERGED:]
            merged = pa.Table.from_batches([c.batch.slice(c.start) for c in tail]).combine_chunks()
            chunks.append(self._chunk(merged.to_batches()[0]))

    def _all(self) -> Iterator[_Chunk]:
        return (chunk for day in sorted(self._days) for chunk in self._days[day])

    def snapshot(self) -> tuple[dict[str, Any], Chunks]:
        manifest, chunks = super().snapshot()
        return {**manifest, "width": self._width}, chunks

    def restore(self, manifest: dict[str, Any], chunks: Chunks) -> None:
        self._next_id = manifest["next"]
        self._width = manifest["width"]
        for i, start in manifest["chunks"]:
            chunk = _Chunk(i, chunks[i], start)
            self._days.setdefault(int(chunk.due[0]) // self._width, []).append(chunk)


class ListQueue(_Queue):
    """Rows in order of arrival, whatever they are due; popping looks at every row."""

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[_Chunk] = []

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

    def _all(self) -> Iterator[_Chunk]:
        return iter(self._chunks)

    def restore(self, manifest: dict[str, Any], chunks: Chunks) -> None:
        self._next_id = manifest["next"]
        self._chunks = [_Chunk(i, chunks[i], start) for i, start in manifest["chunks"]]


def make_queue(fifo: bool, listed: bool) -> FifoQueue | CalendarQueue | ListQueue:
    """The queue of expirations that come in order (`fifo`) or in any; `listed`: without regard to that."""
    return ListQueue() if listed else FifoQueue() if fifo else CalendarQueue()
