"""The cursors of a connection: DECLARE, FETCH and CLOSE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from penstock.pgwire.protocol.errors import NO_CURSOR, WireError, unsupported
from penstock.pgwire.replies import RowColumn, RowSource, StreamRows, TableRows
from penstock.pgwire.statements.clauses import Fetch
from penstock.results.cancellation import Cancellation


@dataclass(eq=False)
class _Cursor:
    """A cursor. holds: it outlives its transaction; left: ends its rows; ended: there are no more."""

    rows: RowSource
    holds: bool
    left: Cancellation
    ended: bool = False


class Cursors:
    """All of a connection. most: rows of a FETCH."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._cursors: dict[str, _Cursor] = {}

    def check_new(self, name: str) -> None:
        """Raises WireError 42P03 where there is one of this name."""
        if name in self._cursors:
            raise WireError("42P03", f"there is a cursor {name} already", code="P0206")

    def add(self, name: str, rows: RowSource, holds: bool, left: Cancellation) -> None:
        self._cursors[name] = _Cursor(rows, holds, left)

    def columns(self, name: str) -> tuple[RowColumn, ...] | None:
        """Return the columns of a cursor, None where there is none of this name."""
        found = self._cursors.get(name)
        return None if found is None else found.rows.columns

    def _named(self, name: str) -> _Cursor:
        found = self._cursors.get(name)
        if found is None:
            raise WireError(NO_CURSOR, f"there is no cursor {name}", "DECLARE makes one", code="P0201")
        return found

    def known_columns(self, name: str) -> tuple[RowColumn, ...]:
        """Return the columns of a cursor. Raises WireError 34000."""
        return self._named(name).rows.columns

    async def fetch(self, fetch: Fetch, left: Cancellation) -> TableRows:
        """Return the next rows of a cursor. left: ends the waiting for them. Raises WireError, PenstockError P0726."""
        cursor = self._named(fetch.name)
        stream = cursor.rows if isinstance(cursor.rows, StreamRows) else None
        if stream is not None:
            stream.follow(left)
        elif fetch.seconds is not None:
            raise unsupported("FETCH waits with a timeout for the rows of SUBSCRIBE alone")
        most = self._most if fetch.count is None else min(fetch.count, self._most)
        parts: list[pa.RecordBatch] = []
        count = 0
        while count < most and not cursor.ended:
            if stream is None:
                batch = await cursor.rows.next(most - count)
            else:
                # It waits for the first rows only: what is ready then comes with them.
                batch = await stream.within(most - count, 0.0 if parts else fetch.seconds)
            if batch is None:
                cursor.ended = True
            elif not batch.num_rows:
                break
            else:
                parts.append(batch)
                count += batch.num_rows
        columns = cursor.rows.columns
        if parts:
            return TableRows(pa.Table.from_batches(parts), columns)
        nothing = [pa.array([], pa.string()) for _ in columns]
        return TableRows(pa.table(nothing, [f"c{number}" for number, _ in enumerate(columns)]), columns)

    def close(self, name: str) -> None:
        """Close one. Raises WireError 34000."""
        self._end(self._named(name), name)

    def close_all(self, which: Callable[[_Cursor], bool] = lambda cursor: True) -> None:
        for name, cursor in list(self._cursors.items()):
            if which(cursor):
                self._end(cursor, name)

    def close_of_transaction(self) -> None:
        """Close those that do not outlive their transaction."""
        self.close_all(lambda cursor: not cursor.holds)

    def _end(self, cursor: _Cursor, name: str) -> None:
        del self._cursors[name]
        cursor.left.set()
        cursor.rows.close()
