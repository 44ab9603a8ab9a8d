"""Columns that grow at their end, by row number, whatever their types.

Arrow arrays cannot grow, and to make one of everything whenever rows have come would cost as much as there are rows. So
they lie in few pieces, each at least `_RATIO` times as long as what follows: a row is copied that often at every length
at most, and a look-up goes to a logarithmic number of pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Int64s, concat_arrays

_RATIO = 8


class Pieces:
    """Columns of `types`. Rows are numbered from 0; `forget` lets go of the first ones, numbers stay."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._held: list[list[pa.Array]] = []
        #: Row numbers at which the pieces begin.
        self._starts: list[int] = []
        self._end = 0

    def append(self, columns: Sequence[pa.Array]) -> None:
        """Put rows behind the others; they are joined to these when somebody looks."""
        if self._types and len(columns[0]):
            self._held.append(list(columns))
            self._starts.append(self._end)
            self._end += len(columns[0])

    def forget(self, row: int) -> None:
        """The rows before `row` are not asked for any more."""
        while self._starts and self._starts[0] + len(self._held[0][0]) <= row:
            del self._starts[0], self._held[0]
        if self._starts and 2 * (row - self._starts[0]) > len(self._held[0][0]):
            # What is left is copied: a slice would hold the memory of all.
            left = pa.array(np.arange(row - self._starts[0], len(self._held[0][0])))
            self._held[0], self._starts[0] = [c.take(left) for c in self._held[0]], row

    def take(self, rows: Int64s) -> list[pa.Array]:
        """The columns at `rows`; NULL where one is -1."""
        self._join()
        if not self._held:
            return [pa.nulls(len(rows), t) for t in self._types]
        which = np.searchsorted(self._starts, np.maximum(rows, self._starts[0]), side="right") - 1
        if len(self._held) == 1 or not len(rows) or (which == which[0]).all():
            piece = int(which[0]) if len(rows) else 0
            chosen = pa.array(rows - self._starts[piece], mask=rows < 0)
            return [c.take(chosen) for c in self._held[piece]]
        order = np.argsort(which.astype(np.int8), kind="stable")
        ordered, cuts = rows[order], np.searchsorted(which[order], np.arange(len(self._held) + 1))
        parts: list[list[pa.Array]] = [[] for _ in self._types]
        for piece, (low, high) in enumerate(pairwise(cuts.tolist())):
            if high > low:
                mine = ordered[low:high]
                chosen = pa.array(mine - self._starts[piece], mask=mine < 0)
                for part, column in zip(parts, self._held[piece], strict=True):
                    part.append(column.take(chosen))
        back = np.empty(len(rows), np.int64)
        back[order] = np.arange(len(rows))
        places = pa.array(back)
        return [concat_arrays(part).take(places) for part in parts]

    def since(self, row: int) -> list[pa.Array]:
        """The columns from `row` on; touches only what came since about then."""
        if not self._held:
            return [pa.array([], t) for t in self._types]
        piece = max(int(np.searchsorted(self._starts, row, side="right")) - 1, 0)
        tail = zip(*self._held[piece:], strict=True)
        return [concat_arrays(list(parts)).slice(row - self._starts[piece]) for parts in tail]

    @property
    def nbytes(self) -> int:
        return int(sum(column.nbytes for held in self._held for column in held))

    def _join(self) -> None:
        """Make one of the last pieces where they are too short to stand alone."""
        first = len(self._held) - 1
        if first < 1:
            return
        size = len(self._held[first][0])
        while first and len(self._held[first - 1][0]) < _RATIO * size:
            first -= 1
            size += len(self._held[first][0])
        if first < len(self._held) - 1:
            self._held[first:] = [[concat_arrays(list(parts)) for parts in zip(*self._held[first:], strict=True)]]
            del self._starts[first + 1 :]
