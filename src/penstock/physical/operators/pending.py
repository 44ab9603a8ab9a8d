"""Elements ahead of the heartbeat, kept until their ts has come (the buffered sort of `[ops]`)."""

from __future__ import annotations

import pyarrow as pa

from penstock.physical.elements import Elements, concat, unnamed
from penstock.physical.synopses.queues import CalendarQueue
from penstock.types import BEGIN


class Early:
    """Takes elements in any order and gives those whose ts has come. Only what stays behind touches the queue."""

    def __init__(self) -> None:
        self.queue = CalendarQueue()
        self._fresh: list[Elements] = []

    def add(self, elements: Elements) -> None:
        if len(elements):
            self._fresh.append(elements)

    def hold(self) -> None:
        """Keep everything: time has not begun."""
        self.until(BEGIN - 1)

    def until(self, heartbeat: int) -> Elements | None:
        """The elements with ts ≤ heartbeat that were not given yet, or None."""
        due = [_unpack(batch) for batch in self.queue.pop_until(heartbeat)]
        for elements in self._fresh:
            ready = elements.ts <= heartbeat
            if ready.all():
                due.append(elements)
                continue
            self.queue.push(_pack(elements.filter(~ready)))
            if ready.any():
                due.append(elements.filter(ready))
        self._fresh = []
        return concat(due) if due else None


def _pack(elements: Elements) -> pa.RecordBatch:
    """Queue rows: due time (ts), exp, sign, columns. The sign stays, so that all chunks have one schema."""
    arrays = [pa.array(elements.ts), pa.array(elements.exp), pa.array(elements.signs), *elements.columns]
    return unnamed(arrays)


def _unpack(batch: pa.RecordBatch) -> Elements:
    arrays = batch.columns
    ts, exp, sign = (arrays[i].to_numpy(zero_copy_only=True) for i in range(3))
    return Elements(tuple(arrays[3:]), ts, exp, None if bool((sign == 1).all()) else sign)
