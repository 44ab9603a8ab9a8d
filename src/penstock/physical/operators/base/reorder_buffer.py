"""Elements ahead of the heartbeat, kept until the heartbeat reaches their ts (the buffered sort of `[ops]`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, concat, unnamed
from penstock.physical.kernels.arrival_order import counted
from penstock.physical.operators.base.contract import Operator
from penstock.physical.operators.base.owned_rows import OwnedRows
from penstock.physical.synopses.contract import Synopsis
from penstock.physical.synopses.queues.expiration_queue import CalendarQueue
from penstock.types import BEGIN

#: Up to this many elements that are ahead wait for the next round before they go to the queue.
_SHORT = 1 << 10
#: Nothing of a batch of more elements waits like that: it would keep the memory of all of them.
_LONG = 1 << 16


class ReorderBuffer:
    """A buffer that accepts elements in any order and returns those whose ts the heartbeat has reached. Only elements
    that remain after a round are written to the queue. add_up: returns fewer elements, in the same order of ts, where
    several mean the same as one."""

    def __init__(self, add_up: Callable[[Elements], Elements] | None = None) -> None:
        self._queue = CalendarQueue(None if add_up is None else lambda batch: _pack(add_up(_unpack(batch))))
        self._kept: list[Elements] = []
        self._fresh: list[Elements] = []

    @property
    def queue(self) -> CalendarQueue:
        """Return the synopsis of what remains after a round."""
        for elements in self._kept:
            self._push(elements)
        self._kept = []
        return self._queue

    def _push(self, elements: Elements) -> None:
        # Parts of a batch would keep the memory of the whole of it.
        self._queue.push(_pack(elements.take(np.arange(len(elements)))))

    def add(self, elements: Elements) -> None:
        if len(elements):
            self._fresh.append(elements)

    def waiting(self, heartbeat: int) -> list[Elements]:
        """Return the elements with ts ≤ heartbeat, and those with a later ts that are not in the queue; in batches, in
        order of arrival where their ts is the same. They stay."""
        return [*(_unpack(batch) for batch in self._queue.due(heartbeat)), *self._kept, *self._fresh]

    def settle(self, heartbeat: int, early: Elements | None) -> None:
        """Remove what `waiting` returns, but for `early`, those of it with a later ts, in order of arrival. They are
        written to the queue when it is read."""
        self._kept, self._fresh = [] if early is None or not len(early) else [early], []
        if self._queue.rows:
            self._queue.pop_until(heartbeat)

    def hold(self) -> None:
        """Keep all elements in the queue: time has not begun."""
        self.until(BEGIN - 1)

    def until(self, heartbeat: int) -> Elements | None:
        """Remove and return the elements with ts ≤ heartbeat, or None if there are none."""
        due = self.parts_until(heartbeat)
        return concat(due) if due else None

    def parts_until(self, heartbeat: int) -> list[Elements]:
        """Do the same as `until`, but return the batches unconcatenated; none of them is empty."""
        due = [_unpack(batch) for batch in self._queue.pop_until(heartbeat)] if self._queue.rows else []
        if not self._fresh and not self._kept:
            return due
        waited, left = len(self._kept), list[Elements]()
        for number, elements in enumerate((*self._kept, *self._fresh)):
            ready = elements.ts <= heartbeat
            there = int(np.count_nonzero(ready))
            if there == len(elements):
                due.append(elements)
                continue
            early = elements
            if there and ready[:there].all():
                due.append(elements.slice(0, there))
                early = elements.slice(there, len(elements))
            elif there:
                due.append(elements.filter(ready))
                early = elements.filter(~ready)
            if number < waited:
                self._push(early)
            else:
                left.append(early)
        if sum(map(len, left)) > _SHORT or max((len(elements) for elements in self._fresh), default=0) > _LONG:
            for early in left:
                self._push(early)
            left = []
        self._kept, self._fresh = left, []
        return due


class JointInput:
    """What has arrived for some of several operators with a buffer each. due: the rows that the heartbeat has reached,
    None for none. Until it is accepted, all of it stays in the buffers."""

    def __init__(self, which: Sequence[int], buffers: Sequence[ReorderBuffer], heartbeat: int) -> None:
        parts = {i: buffers[i].waiting(heartbeat) for i in which}
        self._heartbeat = heartbeat
        self._buffers = {i: buffers[i] for i, found in parts.items() if found}
        self.due: OwnedRows | None = None
        self._early: list[Elements] | None = None
        if not self._buffers:
            return
        arrived = OwnedRows.of([(i, rows) for i, found in parts.items() for rows in found])
        due = arrived.rows.ts <= heartbeat
        if due.all():
            self.due = arrived
            return
        self._early = arrived.take(np.flatnonzero(~due)).in_order().split(len(buffers))
        self.due = arrived.take(np.flatnonzero(due)) if due.any() else None

    def accept(self) -> None:
        """Remove the rows that are due; the others remain for later rounds."""
        for i, buffer in self._buffers.items():
            buffer.settle(self._heartbeat, None if self._early is None else self._early[i])


class ArrivalOrderBuffer(ReorderBuffer):
    """A reorder buffer that returns elements with sign 1 each, in arrival order. arrival: as for
    `arrival_order.counted`."""

    def __init__(self, arrival: bool) -> None:
        super().__init__()
        self._arrival = arrival

    def until(self, heartbeat: int) -> Elements | None:
        due = super().until(heartbeat)
        return None if due is None else counted(due, self._arrival)


class ReorderingOperator(Operator):
    """An operator with one input that processes its elements in `advance`, once the heartbeat has reached their ts."""

    def __init__(self, early: ReorderBuffer) -> None:
        self._early = early

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(elements)
        return []


def _pack(elements: Elements) -> pa.RecordBatch:
    """Return queue rows: due time (ts), exp, sign, columns. The sign is always present, so that all chunks have one
    schema."""
    arrays = [pa.array(elements.ts), pa.array(elements.exp), pa.array(elements.signs), *elements.columns]
    return unnamed(arrays)


def _unpack(batch: pa.RecordBatch) -> Elements:
    arrays = batch.columns
    ts, exp, sign = (arrays[i].to_numpy(zero_copy_only=True) for i in range(3))
    return Elements(tuple(arrays[3:]), ts, exp, None if bool((sign == 1).all()) else sign)
