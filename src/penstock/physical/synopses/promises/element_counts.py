"""N, the number of accepted elements of a stream up to an instant, by which promises WITHIN k ROWS count."""

from __future__ import annotations

import numpy as np

from penstock.physical.elements import Int64s
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.storage.documents import Document, integer
from penstock.types import BEGIN, END

_NONE = np.empty(0, np.int64)


class ElementCounts(Synopsis):
    """State: N at the heartbeat. Within a round also the instants of its elements, and N at each."""

    def __init__(self) -> None:
        self.total = 0
        self._before = 0
        self._instants, self._totals = _NONE, _NONE

    def advance(self, ts: Int64s) -> None:
        """Count the elements of a round, all later than those of the rounds before.

        Args:
            ts: of each element, in any order.
        """
        self._before = self.total
        self._instants, counts = np.unique(ts, return_counts=True) if len(ts) else (_NONE, _NONE)
        self._totals = self.total + np.cumsum(counts)
        self.total += len(ts)

    def at(self, ts: Int64s) -> Int64s:
        """Return N at instants of this round."""
        totals = np.concatenate([[self._before], self._totals])
        found: Int64s = totals[np.searchsorted(self._instants, ts, side="right")]
        return found

    def reached(self, numbers: Int64s) -> Int64s:
        """Return the first instant at which N is a number or more: BEGIN where that was before this round, END where it
        is not yet."""
        instants = np.concatenate([self._instants, [END]])
        found = instants[np.searchsorted(self._totals, numbers, side="left")]
        return np.where(numbers <= self._before, BEGIN, found)

    def snapshot(self) -> tuple[Document, Chunks]:
        return {"total": self.total}, {}

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self.total = integer(manifest, "total")

    @property
    def rows(self) -> int:
        return int(self.total > 0)

    @property
    def nbytes(self) -> int:
        return 8
