"""The answers of a query that an engine in one process keeps, in the order in which they were emitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.live.parts import append_part


@dataclass(frozen=True)
class KeptAnswers:
    """The rows that have been emitted at one place.

    Args:
        parts: the rows, in tables of one chunk each, which nothing changes.
        rows: their number.
        nbytes: their size.
        first: the position of the first of them; those before it have been dropped, and the place has begun again.
        dropped: the largest tick of a row that has been dropped, None for none.
    """

    parts: tuple[pa.Table, ...] = ()
    rows: int = 0
    nbytes: int = 0
    first: int = 0
    dropped: int | None = None

    @property
    def end(self) -> int:
        """Return the position behind the last of them."""
        return self.first + self.rows

    def begun_again(self) -> KeptAnswers:
        """Return the answers of a place that has dropped these. A position is left out, so that a reader that has read
        all of these is behind too."""
        ticks = [] if self.dropped is None else [self.dropped]
        ticks += [int(pc.max(part.column(0).cast(pa.int64())).as_py()) for part in self.parts]
        return KeptAnswers(first=self.end + 1, dropped=max(ticks, default=None))

    def followed_by(self, table: pa.Table) -> KeptAnswers:
        """Return these and the rows of one more answer."""
        parts = list(self.parts)
        append_part(parts, table.combine_chunks(), _joined)
        return replace(self, parts=tuple(parts), rows=self.rows + table.num_rows, nbytes=self.nbytes + table.nbytes)

    def since(self, position: int, until: int) -> pa.Table:
        """Return rows from `position` on, and before `until`: at least one, and as many as lie together."""
        begin = self.first
        for part in self.parts:
            if position < begin + part.num_rows:
                return part.slice(position - begin, until - position)
            begin += part.num_rows
        raise IndexError(f"there are {self.rows} rows from {self.first} on, and none at {position}")


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks()
