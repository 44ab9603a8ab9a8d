"""Rows of several operators in common arrays, so that one call of a kernel serves all of them.

Where a thousand operators have a few rows each, what a round costs is calls of kernels, not rows. Operators that differ
in nothing but their state then advance in one call (`Operator.advance_jointly`): their rows are laid together with the
number of their operator beside each, which is part of every key, and what comes out is divided by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.physical.elements import Elements, Int64s, concat, int64s
from penstock.physical.kernels.compiled import argsort_uint64, with_time
from penstock.physical.kernels.fingerprints import UInt64s, fingerprints

#: An operator with more rows than this has enough to do to advance alone.
FEW_ROWS = 256


@dataclass(frozen=True)
class OwnedRows:
    """Rows of several operators. owners: for each row, the position of its operator."""

    rows: Elements
    owners: Int64s

    @staticmethod
    def of(parts: Sequence[tuple[int, Elements]]) -> OwnedRows:
        """Return the rows of `parts`, at least one, each with the position of its operator; in their order."""
        lengths = np.fromiter((len(rows) for _, rows in parts), np.int64, len(parts))
        owners = np.fromiter((owner for owner, _ in parts), np.int64, len(parts))
        return OwnedRows(concat([rows for _, rows in parts]), np.repeat(owners, lengths))

    @staticmethod
    def both(one: OwnedRows, other: OwnedRows) -> OwnedRows:
        """Return the rows of both, in this order."""
        return OwnedRows(concat([one.rows, other.rows]), np.concatenate([one.owners, other.owners]))

    def __len__(self) -> int:
        return len(self.owners)

    def take(self, chosen: Int64s) -> OwnedRows:
        return OwnedRows(self.rows.take(chosen), self.owners[chosen])

    def in_order(self) -> OwnedRows:
        """Return the rows in order of their operators, those of one in the order in which they are."""
        return self.take(argsort_uint64(self.owners.astype(np.uint64)))

    def marked(self) -> Elements:
        """Return the rows with a further column, the last one: their operators."""
        return self.rows.with_columns([*self.rows.columns, pa.array(self.owners)])

    @staticmethod
    def unmarked(rows: Elements, at: int = -1) -> OwnedRows:
        """Return rows that have their operators in the column `at`."""
        columns = list(rows.columns)
        owners = int64s(columns.pop(at))
        return OwnedRows(rows.with_columns(columns), owners)

    def fingerprints(self, columns: Iterable[int]) -> tuple[UInt64s, UInt64s]:
        """Return fingerprints of (columns, operator)."""
        first, second = with_time(*fingerprints([self.rows.columns[i] for i in columns], len(self)), self.owners)
        return first, second

    def split(self, count: int) -> list[Elements]:
        """Return the rows of each of `count` operators; they are in order of these."""
        bounds = np.searchsorted(self.owners, np.arange(count + 1)).tolist()
        return [self.rows.slice(bounds[i], bounds[i + 1]) for i in range(count)]


def unshared(rows: Elements) -> Elements:
    """Return a copy, so that rows that stay do not keep those of all operators in memory."""
    columns = [pa.concat_arrays([c, c.slice(0, 0)]) for c in rows.columns]
    return Elements(tuple(columns), rows.ts.copy(), rows.exp.copy(), None if rows.sign is None else rows.sign.copy())
