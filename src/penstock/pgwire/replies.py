"""Rows on their way to a client: those of a table, and those that come as a subscription goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.pgwire.protocol import messages
from penstock.pgwire.protocol.errors import PROTOCOL, SHUTDOWN, Fatal, WireError
from penstock.pgwire.values.arrow_types import modifier_of, wire_type_of
from penstock.pgwire.values.encoding import encoded
from penstock.pgwire.values.wire_types import WireType, wire_type
from penstock.results.cancellation import Cancellation
from penstock.results.result_source import EndOfResults, ResultPart, ResultSource

#: Rows that are encoded at once; only so many are held as bytes.
_ROWS = 500
#: Seconds that a thread waits for rows before it looks whether the server ends.
WAIT = 1.0


@dataclass(frozen=True)
class RowColumn:
    """A column of an answer."""

    name: str
    type: WireType
    modifier: int = -1


def columns_of(schema: pa.Schema) -> tuple[RowColumn, ...]:
    """Return the columns of a table."""
    return tuple(RowColumn(one.name, wire_type_of(one.type), modifier_of(one.type)) for one in schema)


def text_columns(*names: str) -> tuple[RowColumn, ...]:
    return tuple(RowColumn(name, wire_type("text")) for name in names)


class RowSource(Protocol):
    """The rows of a statement."""

    columns: tuple[RowColumn, ...]

    async def next(self, most: int, wait: bool = True) -> pa.RecordBatch | None:
        """Return some of the next rows, `most` at most; None at their end. Where `wait` is not set, an empty batch when
        none are ready. Raises PenstockError."""

    def close(self) -> None: ...


class TableRows:
    """The rows of a table."""

    def __init__(self, table: pa.Table, columns: tuple[RowColumn, ...] | None = None) -> None:
        self.columns = columns_of(table.schema) if columns is None else columns
        self._table = table
        self._at = 0

    async def next(self, most: int, wait: bool = True) -> pa.RecordBatch | None:
        part = self._table.slice(self._at, min(most, _ROWS))
        self._at += part.num_rows
        return None if not part.num_rows else part.combine_chunks().to_batches()[0]

    def close(self) -> None:
        self._table = self._table.slice(0, 0)


class LineRows(TableRows):
    """Lines of text."""

    def __init__(self, name: str, lines: Sequence[str]) -> None:
        super().__init__(pa.table({name: pa.array(lines, pa.string())}), text_columns(name))


class StreamRows:
    """The rows of a subscription.

    Args:
        run: calls the source in a thread.
        is_closing: whether the server ends.
        closed: is called once at the end.
        interruption: returns the error of the statement that is ended from outside.
    """

    def __init__(
        self,
        source: ResultSource,
        run: Callable[[Callable[[], ResultPart | None]], Awaitable[ResultPart | None]],
        left: Cancellation,
        is_closing: Callable[[], bool],
        closed: Callable[[], None],
        interruption: Callable[[], PenstockError],
    ) -> None:
        self.columns = columns_of(source.schema)
        self._source, self._run, self._left, self._is_closing = source, run, left, is_closing
        self._closed: Callable[[], None] | None = closed
        self._interruption = interruption
        self._ready: deque[pa.RecordBatch] = deque()
        self._ended = False

    def follow(self, left: Cancellation) -> None:
        """Be cancelled by another statement from now on: the one that reads its rows."""
        self._left = left

    async def next(self, most: int, wait: bool = True) -> pa.RecordBatch | None:
        return await self.within(most, None if wait else 0.0)

    async def within(self, most: int, seconds: float | None) -> pa.RecordBatch | None:
        """Return the next rows, an empty batch where there are none within so many seconds; None at their end."""
        while not self._ready:
            if self._ended:
                return None
            if self._left.is_set():
                raise self._interruption()
            if self._is_closing():
                raise Fatal(SHUTDOWN, "the server ends; the rows go on after its next start")
            pause = WAIT if seconds is None else min(WAIT, seconds)
            try:
                part = await self._run(partial(self._source.next, pause))
            except EndOfResults:
                # A subscription that is closed from outside has no more rows either, and has not ended.
                if self._left.is_set():
                    raise self._interruption() from None
                self._ended = True
                return None
            except PenstockError:
                if self._left.is_set():
                    raise self._interruption() from None
                raise
            if part is not None and part.rows.num_rows:
                self._ready.append(part.rows)
            elif seconds is not None:
                seconds -= pause
                if seconds <= 0:
                    return pa.RecordBatch.from_pylist([], schema=self._source.schema)
        return self._taken(min(most, _ROWS))

    def _taken(self, most: int) -> pa.RecordBatch:
        first = self._ready.popleft()
        if first.num_rows > most:
            self._ready.appendleft(first.slice(most))
        return first.slice(0, most)

    def close(self) -> None:
        self._source.close()
        self._ready.clear()
        closed, self._closed = self._closed, None
        if closed is not None:
            closed()


def description(columns: Sequence[RowColumn], formats: Sequence[bool] = ()) -> bytes:
    """Return the RowDescription of columns. formats: by column, whether it is sent in binary."""
    return messages.row_description(
        (one.name, one.type.oid, one.type.size, one.modifier, int(formats[n] if formats else False))
        for n, one in enumerate(columns)
    )


def spread(formats: Sequence[int], count: int) -> list[bool]:
    """Return by column whether it is in binary. Raises WireError 08P01 for formats that do not fit."""
    if any(one not in (0, 1) for one in formats) or len(formats) not in (0, 1, count):
        raise WireError(PROTOCOL, f"{len(formats)} formats for {count} columns, each of which is 0 or 1")
    return [bool(one) for one in formats] * (count if len(formats) == 1 else 1) if formats else [False] * count


def data_rows(batch: pa.RecordBatch, columns: Sequence[RowColumn], formats: Sequence[bool]) -> Iterator[bytes]:
    """Yield the DataRow of each row."""
    if not columns:
        yield from (messages.data_row(()) for _ in range(batch.num_rows))
        return
    encodings = [
        encoded(column, one.type, binary) for column, one, binary in zip(batch.columns, columns, formats, strict=True)
    ]
    yield from map(messages.data_row, zip(*encodings, strict=True))
