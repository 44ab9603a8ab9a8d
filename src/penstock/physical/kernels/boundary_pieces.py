"""Rows at many boundaries, processed in pieces.

The output of an operator at boundaries may be far larger than its state: one timestamp far ahead puts a row at billions
of them. Boundaries with rows are therefore processed in pieces of bounded size, and boundaries without rows are never
visited.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.physical.elements import Int64s
from penstock.physical.kernels.compiled import repeat

#: Approximate number of rows of a piece. A piece has at least one boundary.
PIECE = 2**20


def pieces(first: Int64s, stop: Int64s, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges [low, high) of boundaries, in order, that together contain all boundaries with rows.

    Row k is at the boundaries from first[k] until before stop[k]. Each piece has at most `most` pairs of row and
    boundary, or one boundary.
    """
    stands = first < stop
    if not stands.any():
        return
    first, stop = first[stands], stop[stands]
    if float((stop - first).astype(np.float64).sum()) <= most:
        yield int(first.min()), int(stop.max())
        return
    edges = np.unique(np.concatenate([first, stop]))
    comings = np.bincount(np.searchsorted(edges, first), minlength=len(edges))
    goings = np.bincount(np.searchsorted(edges, stop), minlength=len(edges))
    standing = np.cumsum(comings - goings)[:-1]
    # In doubles, because an int64 may not hold the number of pairs: the cut of a piece need not be exact.
    reached = np.concatenate([[0.0], np.cumsum(standing * np.diff(edges).astype(np.float64))])
    low, end = int(edges[0]), int(edges[-1])
    while low < end:
        at = int(np.searchsorted(edges, low, "right")) - 1
        if not standing[at]:
            low = int(edges[at + 1])
            continue
        target = reached[at] + float(standing[at]) * (low - int(edges[at])) + most
        to = int(np.searchsorted(reached, target, "right")) - 1
        high = end if to == len(standing) else int(edges[to]) + int((target - reached[to]) // max(1, standing[to]))
        high = min(max(high, low + 1), end)
        yield low, high
        low = high


def spread(first: Int64s, stop: Int64s, low: int, high: int) -> tuple[Int64s, Int64s]:
    """Return (row, boundary) for every row at each of its boundaries from `low` until before `high`, row by row."""
    begin, end = np.maximum(first, low), np.minimum(stop, high)
    chosen = np.flatnonzero(begin < end)
    rows, nth = repeat((end - begin)[chosen])
    return chosen[rows], begin[chosen][rows] + nth
