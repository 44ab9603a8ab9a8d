"""Rows that stand at many boundaries, a piece of these at a time.

What an operator tells at boundaries may be far more than what it holds: one timestamp far ahead lets a row stand at
billions of them. The boundaries at which something stands are therefore gone through in pieces of bounded size, and
those at which nothing stands are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.physical.elements import Int64s
from penstock.physical.kernels.compiled import repeat

#: Rows of a piece, about. A piece has one boundary at least.
PIECE = 2**20


def pieces(first: Int64s, stop: Int64s, most: int) -> Iterator[tuple[int, int]]:
    """Boundaries from low until before high, in order, that hold together all at which something stands. Row k stands
    at those from first[k] until before stop[k]. In each piece are at most `most` pairs of row and boundary, or one
    boundary."""
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
    # In doubles, as there may be more pairs than an int64 counts: where a piece is cut need not be exact.
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
