"""Which slots of a table come to their end, found without a look at all of them.

An index beside a `SlotTable`: one entry for every live slot, at a tick no later than that in its lane. It is not
durable, but made anew from the table after a restore and when slots have moved.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Int64s, int64s, unnamed
from penstock.physical.synopses.queues import CalendarQueue
from penstock.physical.synopses.slots import SlotTable


class Due:
    """The live slots of `table` by the tick in integer lane `lane`, which never falls while a slot lives."""

    def __init__(self, table: SlotTable, lane: int) -> None:
        self._table, self._lane = table, lane
        self._queue: CalendarQueue | None = None
        table.followers.append(self._moved)
        table.beside.append(lambda: 0 if self._queue is None else self._queue.nbytes)

    def put(self, slots: Int64s) -> None:
        """Slots (each once) that have come to life."""
        if self._queue is not None and len(slots):
            self._queue.push(unnamed([pa.array(self._table.integers[self._lane, slots]), pa.array(slots)]))

    def until(self, tick: int) -> Int64s:
        """The live slots whose lane is at most `tick`, in order. The caller ends them, or puts those that live on."""
        if self._queue is None:
            self._queue = CalendarQueue()
            self.put(self._table.live())
        batches = self._queue.pop_until(tick)
        if not batches:
            return np.empty(0, np.int64)
        slots = np.concatenate([int64s(batch.column(1)) for batch in batches])
        slots.sort()
        later = self._table.integers[self._lane, slots] > tick
        self.put(slots[later])
        over: Int64s = slots[~later]
        return over

    def _moved(self, kept: Int64s) -> None:
        self._queue = None
