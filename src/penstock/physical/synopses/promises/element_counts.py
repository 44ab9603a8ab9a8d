"""N, the number of accepted elements of a stream up to an instant, by which promises WITHIN k ROWS count."""

from __future__ import annotations

import numpy as np

from penstock.physical.elements import Elements, Int64s, int64s
from penstock.physical.kernels.compiled import argsort_time
from penstock.physical.kernels.compiling import compiled
from penstock.physical.synopses.contract import Chunks, Synopsis
from penstock.storage.documents import Document, integer
from penstock.types import BEGIN, END

_NONE = np.empty(0, np.int64)


@compiled(reads="ts counts", counted=False)
def _add_up(ts: Int64s, counts: Int64s, instants: Int64s, totals: Int64s) -> int:
    """Write the distinct instants, and behind totals[0], which is N before them, N at each; return how many they are,
    -1 where they are not in order of time. counts: of the elements at each of `ts`; empty for one each."""
    found = 0
    for i in range(ts.shape[0]):
        if i == 0 or ts[i] > ts[i - 1]:
            instants[found] = ts[i]
            totals[found + 1] = totals[found]
            found += 1
        elif ts[i] < ts[i - 1]:
            return -1
        totals[found] += counts[i] if counts.shape[0] > 0 else 1
    return found


class ElementCounts(Synopsis):
    """State: N at the heartbeat. Within a round also the instants of its elements, and N at each.

    instants: those of the round; totals: N before them, and at each.
    """

    def __init__(self) -> None:
        self.total = 0
        self.instants, self.totals = _NONE, np.zeros(1, np.int64)

    def advance(self, ts: Int64s, counts: Int64s = _NONE) -> None:
        """Count the elements of a round, all later than those of the rounds before.

        Args:
            ts: of each element, in any order.
            counts: how many elements there are at each of `ts`; empty for one each.
        """
        instants, totals = np.empty(len(ts), np.int64), np.empty(len(ts) + 1, np.int64)
        totals[0] = self.total
        found = _add_up(ts, counts, instants, totals)
        if found < 0:
            order = argsort_time(ts)
            found = _add_up(ts[order], counts[order] if len(counts) else counts, instants, totals)
        self.instants, self.totals = instants[:found], totals[: found + 1]
        self.total = int(totals[found])

    def take(self, counted: Elements | None) -> None:
        """Count what `InstantCounts` has added up, as `advance` does; None for nothing."""
        if counted is None:
            self.advance(_NONE)
        else:
            self.advance(counted.ts, int64s(counted.columns[0]))

    def at(self, ts: Int64s) -> Int64s:
        """Return N at instants of this round."""
        found: Int64s = self.totals[np.searchsorted(self.instants, ts, side="right")]
        return found

    def reached(self, numbers: Int64s) -> Int64s:
        """Return the first instant at which N is a number or more: BEGIN where that was before this round, END where it
        is not yet."""
        instants = np.concatenate([[BEGIN], self.instants, [END]])
        found: Int64s = instants[np.searchsorted(self.totals, numbers, side="left")]
        return found

    def snapshot(self) -> tuple[Document, Chunks]:
        return {"total": self.total}, {}

    def restore(self, manifest: Document, chunks: Chunks) -> None:
        self.total = integer(manifest, "total")
        self.totals = np.array([self.total], np.int64)

    @property
    def rows(self) -> int:
        return int(self.total > 0)

    @property
    def nbytes(self) -> int:
        return 8
