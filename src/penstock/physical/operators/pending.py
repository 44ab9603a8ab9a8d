"""Elements ahead of the heartbeat, kept until their ts has come (the buffered sort of `[ops]`)."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.physical.elements import Elements, concat, unnamed
from penstock.physical.operators.contract import Operator
from penstock.physical.order import counted
from penstock.physical.synopses.contract import Synopsis
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
        due = self.parts_until(heartbeat)
        return concat(due) if due else None

    def parts_until(self, heartbeat: int) -> list[Elements]:
        """The same as they come, none of them empty."""
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
        return due


class InOrder(Early):
    """Gives elements one by one, in the order in which they count. arrival: as for `order.counted`."""

    def __init__(self, arrival: bool) -> None:
        super().__init__()
        self._arrival = arrival

    def until(self, heartbeat: int) -> Elements | None:
        due = super().until(heartbeat)
        return None if due is None else counted(due, self._arrival)


class EarlyOperator(Operator):
    """An operator with one input, which looks at its elements in `advance`, when their ts has come."""

    def __init__(self, early: Early) -> None:
        self._early = early

    def synopses(self) -> Mapping[str, Synopsis]:
        return {"early": self._early.queue}

    def process(self, port: int, elements: Elements) -> list[Elements]:
        self._early.add(elements)
        return []


def _pack(elements: Elements) -> pa.RecordBatch:
    """Queue rows: due time (ts), exp, sign, columns. The sign stays, so that all chunks have one schema."""
    arrays = [pa.array(elements.ts), pa.array(elements.exp), pa.array(elements.signs), *elements.columns]
    return unnamed(arrays)


def _unpack(batch: pa.RecordBatch) -> Elements:
    arrays = batch.columns
    ts, exp, sign = (arrays[i].to_numpy(zero_copy_only=True) for i in range(3))
    return Elements(tuple(arrays[3:]), ts, exp, None if bool((sign == 1).all()) else sign)
