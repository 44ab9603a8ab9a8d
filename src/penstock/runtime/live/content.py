"""The content of a relation as a bag of rows, folded from its changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, concat, empty
from penstock.physical.kernels.fingerprints import fingerprints
from penstock.types import END

#: Changes are netted when there are more of them than rows, and more than this.
FEW = 1024
#: Changes of so many calls are put together. Kept apart, each of them is several arrays, and may lie in the memory of
#: the file from which it was read.
PARTS = 16


class Content:
    """A bag of rows. Changes are appended, and netted when they are many or when the content is read."""

    def __init__(self, types: Sequence[pa.DataType], rows: Elements | None = None) -> None:
        self._netted = empty(types) if rows is None else rows
        #: Changes that were put together, each part more than twice as long as the next one.
        self._changes: list[Elements] = []
        #: Later changes, as they came.
        self._latest: list[Elements] = []
        self._waiting = 0

    def add(self, changes: Elements) -> None:
        """Apply changes: rows with their multiplicities, whatever their instants."""
        if not len(changes):
            return
        self._latest.append(changes)
        self._waiting += len(changes)
        if self._waiting > max(FEW, len(self._netted)):
            self.rows()
        elif len(self._latest) >= PARTS:
            self._put_together()

    def _put_together(self) -> None:
        """Copy the latest changes into one part, with those before them that are not much longer."""
        merged = concat(self._latest)
        while self._changes and len(self._changes[-1]) <= 2 * len(merged):
            merged = concat([self._changes.pop(), merged])
        self._changes.append(merged)
        self._latest = []

    @property
    def nbytes(self) -> int:
        """The bytes that it takes now, with changes that are not netted yet."""
        return self._netted.nbytes + sum(part.nbytes for part in (*self._changes, *self._latest))

    def copy(self) -> Content:
        """Return the content as it is now; the rows are shared with it."""
        made = Content((), self._netted)
        made._changes, made._latest, made._waiting = list(self._changes), list(self._latest), self._waiting
        return made

    def rows(self) -> Elements:
        """Return the distinct rows with their multiplicities."""
        if self._waiting:
            self._netted = net([self._netted, *self._changes, *self._latest])
            self._changes, self._latest, self._waiting = [], [], 0
        return self._netted


def difference(before: Content, after: Content, tick: int) -> Elements:
    """Return the changes at `tick` that turn one content into another."""
    old, added = before.rows(), after.rows()
    changes = net([Elements(old.columns, old.ts, old.exp, -old.signs), added])
    return Elements(changes.columns, np.full(len(changes), tick, np.int64), changes.exp, changes.sign)


def net(parts: Sequence[Elements]) -> Elements:
    """Return every distinct row of `parts` once, with the sum of its signs, if that is not zero."""
    whole = concat(parts)
    first, second = fingerprints(whole.columns, len(whole))
    identity = np.rec.fromarrays([first, second])
    # A row that is taken away must be, to the bit, the one that was added: the latest that was.
    _, representative, group = np.unique(identity[::-1], return_index=True, return_inverse=True)
    total: Int64s = np.zeros(len(representative), np.int64)
    np.add.at(total, group, whole.signs[::-1])
    nonzero = np.flatnonzero(total)
    rows = whole.take(len(whole) - 1 - representative[nonzero])
    return Elements(rows.columns, rows.ts, np.full(len(nonzero), END, np.int64), total[nonzero])
