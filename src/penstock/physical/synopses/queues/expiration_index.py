"""The expiration index: finds the slots of a table that expire without scanning all of them.

An index for a `KeyedTable`: one entry for every live slot, at a tick no later than that in its lane. It is not
durable, but rebuilt from the table after a restore and when slots have been renumbered.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Int64s, int64s, unnamed
from penstock.physical.synopses.queues.expiration_queue import CalendarQueue
from penstock.physical.synopses.tables.keyed_table import KeyedTable


class ExpirationIndex:
    """The live slots of `table` by the tick in integer lane `lane`, which never decreases while a slot is live."""

    def __init__(self, table: KeyedTable, lane: int) -> None:
        self._table, self._lane = table, lane
        self._queue: CalendarQueue | None = None
        table.followers.append(self._moved)
        table.beside.append(lambda: 0 if self._queue is None else self._queue.nbytes)

    def put(self, slots: Int64s) -> None:
        """Add slots (without duplicates) that have become live."""
        if self._queue is not None and len(slots):
            self._queue.push(unnamed([pa.array(self._table.integers[self._lane, slots]), pa.array(slots)]))

    def until(self, tick: int) -> Int64s:
        """Remove and return the live slots whose lane is at most `tick`, ascending. The caller ends them, or adds those
        that stay live again with `put`."""
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

    def looked_up(self, tick: int) -> Int64s:
        """Do the same by looking at all slots; the index is made again when it is asked next."""
        self._queue = None
        live = self._table.live()
        over: Int64s = live[self._table.integers[self._lane, live] <= tick]
        return over

    def _moved(self, kept: Int64s) -> None:
        self._queue = None
