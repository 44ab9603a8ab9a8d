"""The answers of a query that an engine in one process keeps, in the order in which they were emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.runtime.live.parts import append_part


@dataclass(frozen=True)
class KeptAnswers:
    """The rows that have been emitted at one place.

    Args:
        parts: the rows, in tables of one chunk each, which nothing changes.
        rows: their number.
        nbytes: their size.
    """

    parts: tuple[pa.Table, ...] = ()
    rows: int = 0
    nbytes: int = 0

    def followed_by(self, table: pa.Table) -> KeptAnswers:
        """Return these and the rows of one more answer."""
        parts = list(self.parts)
        append_part(parts, table.combine_chunks(), _joined)
        return KeptAnswers(tuple(parts), self.rows + table.num_rows, self.nbytes + table.nbytes)

    def since(self, position: int, until: int) -> pa.Table:
        """Return rows from `position` on, and before `until`: at least one, and as many as lie together."""
        begin = 0
        for part in self.parts:
            if position < begin + part.num_rows:
                return part.slice(position - begin, until - position)
            begin += part.num_rows
        raise IndexError(f"there are {self.rows} rows, and none at {position}")


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()
