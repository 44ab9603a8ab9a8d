"""Columns of any type that rows can be appended to, addressed by row number.

Arrow arrays cannot grow, and concatenating everything at each append would cost as much as there are rows. So the
columns are kept in few pieces, each at least `_RATIO` times as long as the one after it: a row is copied at most that
often at every length, and a look-up visits a logarithmic number of pieces. Short columns are one piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Int64s, concat_arrays, taken

_RATIO = 8
_SHORT = 1 << 14


class AppendableColumns:
    """Columns of `types`; rows are numbered from 0."""

    def __init__(self, types: Sequence[pa.DataType]) -> None:
        self._types = tuple(types)
        self._held: list[list[pa.Array]] = []
        #: Row numbers at which the pieces begin.
        self._starts: list[int] = []
        self._end = 0

    def append(self, columns: Sequence[pa.Array]) -> None:
        """Append rows; they are merged with the earlier ones at the next read."""
        if self._types and len(columns[0]):
            self._held.append(list(columns))
            self._starts.append(self._end)
            self._end += len(columns[0])

    def take(self, rows: Int64s) -> list[pa.Array]:
        """Return the columns at `rows`; NULL where a row number is -1."""
        self._join()
        if not self._held:
            return [pa.nulls(len(rows), t) for t in self._types]
        if len(self._held) == 1 or not len(rows):
            return self._of_one(0, rows)
        which = np.searchsorted(self._starts, np.maximum(rows, 0), side="right") - 1
        if (which == which[0]).all():
            return self._of_one(int(which[0]), rows)
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

    def _of_one(self, piece: int, rows: Int64s) -> list[pa.Array]:
        if not len(rows) or int(rows.min()) >= 0:
            return taken(self._held[piece], rows - self._starts[piece])
        chosen = pa.array(rows - self._starts[piece], mask=rows < 0)
        return [column.take(chosen) for column in self._held[piece]]

    def since(self, row: int) -> list[pa.Array]:
        """Return the columns from `row` on; reads only the pieces that contain these rows."""
        if not self._held:
            return [pa.array([], t) for t in self._types]
        piece = max(int(np.searchsorted(self._starts, row, side="right")) - 1, 0)
        tail = zip(*self._held[piece:], strict=True)
        return [concat_arrays(list(parts)).slice(row - self._starts[piece]) for parts in tail]

    @property
    def nbytes(self) -> int:
        return int(sum(column.nbytes for held in self._held for column in held))

    def _join(self) -> None:
        """Merge the last pieces where they are too short."""
        first = len(self._held) - 1
        if first < 1:
            return
        size = len(self._held[first][0])
        while first and len(self._held[first - 1][0]) < max(_RATIO * size, _SHORT):
            first -= 1
            size += len(self._held[first][0])
        if first < len(self._held) - 1:
            self._held[first:] = [[concat_arrays(list(parts)) for parts in zip(*self._held[first:], strict=True)]]
            del self._starts[first + 1 :]
