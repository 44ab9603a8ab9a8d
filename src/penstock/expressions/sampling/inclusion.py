"""Inclusion records: with what probability a row was kept, and by which draws, as a hidden column.

A row that a sample, shedding or a preference let through carries one where an ESTIMATE reads it
(`Algebra.with_inclusion`). A record is one *side* of 32 bytes for every draw that the row depends on, which the
estimators are computed of, whoever wrote them: one for a row of a sample, one of each sample for a joined row.

- pi: the probability of the draw, in (0, 1]; a row is kept with the product of its sides;
- cluster: the draw. Rows with the same one are kept or dropped together, whatever stream they are of;
- stratum, size: a simple random sample of `size` of the stratum's size / pi clusters. size is 0 for draws that are
  independent of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

INCLUSION = pa.binary()
SIDE = np.dtype([("pi", "<f8"), ("cluster", "<i8"), ("stratum", "<i8"), ("size", "<i8")])
#: The size of a draw that is independent of others.
INDEPENDENT = 0

Sides = npt.NDArray[np.void]
Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Inclusion:
    """The records of rows: the sides of row i are sides[starts[i] : starts[i + 1]]."""

    starts: Int64s
    sides: Sides

    @cached_property
    def counts(self) -> Int64s:
        """The number of sides of each row."""
        return np.diff(self.starts)

    @cached_property
    def rows(self) -> Int64s:
        """The row of each side."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def taken(self, rows: Int64s) -> Inclusion:
        """Return the records of some rows."""
        if len(rows) == len(self.counts):
            return self
        counts = self.counts[rows]
        starts = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(starts[-1]) + np.repeat(self.starts[:-1][rows] - starts[:-1], counts)
        return Inclusion(starts, self.sides[places])

    @cached_property
    def pi(self) -> Float64s:
        """The probability of each row; NaN for one without a side."""
        found = np.full(len(self.counts), np.nan)
        there = self.counts > 0
        if there.any():
            found[there] = np.multiply.reduceat(self.sides["pi"], self.starts[:-1][there])
        return found


def packed(sides: Sides, starts: Int64s | None = None) -> pa.Array:
    """Return records as a column: of one side each, or of those from one of `starts` to the next."""
    if starts is None:
        starts = np.arange(len(sides) + 1)
    offsets = (starts * SIDE.itemsize).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(np.ascontiguousarray(sides).tobytes())]
    return pa.Array.from_buffers(INCLUSION, len(starts) - 1, buffers)


def unpacked(column: pa.Array) -> Inclusion:
    """Return the records of a column without NULL. Bytes behind the last whole side are left out."""
    _, offsets, data = column.buffers()
    if not len(column):
        return Inclusion(np.zeros(1, np.int64), np.empty(0, SIDE))
    bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    content = np.frombuffer(data or b"", np.uint8)
    counts = np.diff(bounds) // SIDE.itemsize
    starts = np.concatenate([[0], np.cumsum(counts)])
    if (np.diff(bounds) == counts * SIDE.itemsize).all():
        return Inclusion(starts, content[bounds[0] : bounds[-1]].view(SIDE))
    parts = [content[b : b + n * SIDE.itemsize] for b, n in zip(bounds[:-1].tolist(), counts.tolist(), strict=True)]
    return Inclusion(starts, np.concatenate(parts).view(SIDE))


def independent(pi: float, clusters: Int64s) -> pa.Array:
    """Return the records of clusters that are kept with probability `pi`, independently of each other."""
    sides = np.zeros(len(clusters), SIDE)
    sides["pi"], sides["cluster"] = pi, clusters
    return packed(sides)


def of_pair(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return the records of joined rows, which depend on the draws of both. Where these have a draw in common the rarer
    one counts, since samples by one draw are nested. Draws come in one order, whichever side they are of."""
    one, other = unpacked(left), unpacked(right)
    rows = np.concatenate([one.rows, other.rows])
    sides = np.concatenate([one.sides, other.sides])
    order = np.lexsort([sides["pi"], sides["cluster"], sides["stratum"], sides["size"], rows])
    rows, sides = rows[order], sides[order]
    again = np.zeros(len(rows), np.bool_)
    alike = (rows[1:] == rows[:-1]) & (sides[1:]["cluster"] == sides[:-1]["cluster"])
    again[1:] = alike & (sides[1:]["stratum"] == sides[:-1]["stratum"]) & (sides[1:]["size"] == sides[:-1]["size"])
    counts = np.bincount(rows[~again], minlength=len(left))
    return packed(sides[~again], np.concatenate([[0], np.cumsum(counts)]))
