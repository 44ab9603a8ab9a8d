"""N, the number of elements up to an instant, as a shard learns it of the counts of all ingests."""

from __future__ import annotations

import numpy as np

from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.operators.base.reorder_buffer import ReorderBuffer


class CountedInstants:
    """The counts that have come (`InstantCountsSpec`), and N at the heartbeat.

    early: counts beyond the heartbeat; total: N at the heartbeat, which is kept with the state.
    """

    def __init__(self) -> None:
        self.early = ReorderBuffer()
        self.total = 0
        self._instants: Int64s = np.empty(0, np.int64)
        self._counts: Int64s = np.zeros(1, np.int64)

    def advance(self, heartbeat: int) -> Elements | None:
        """Take the counts up to `heartbeat`, which `upto` and `before` then know; return them."""
        came = self.early.until(heartbeat)
        if came is None:
            self._instants, self._counts = np.empty(0, np.int64), np.array([self.total], np.int64)
            return None
        self._instants, codes = np.unique(came.ts, return_inverse=True)
        counts = np.zeros(len(self._instants), np.int64)
        np.add.at(counts, codes, int64s(came.columns[0]))
        self._counts = self.total + np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        self.total = int(self._counts[-1])
        return came

    def upto(self, instants: Int64s) -> Int64s:
        """Return N at instants since the last heartbeat."""
        found: Int64s = self._counts[np.searchsorted(self._instants, instants, side="right")]
        return found

    def before(self, instants: Int64s) -> Int64s:
        """Return N of what is before instants since the last heartbeat."""
        found: Int64s = self._counts[np.searchsorted(self._instants, instants, side="left")]
        return found
