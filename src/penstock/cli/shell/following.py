"""Results of a query as they come: the present content of a relation, drawn again with each change, or rows that are
appended.

Contract: what is drawn holds no control characters of values, and is no longer than the terminal.
"""

from __future__ import annotations

import heapq
import math
import shutil
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TextIO

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.live import Live
from rich.text import Text

from penstock.cli.shared.answers import data_text
from penstock.connectors.sinks.output import OutputFormat
from penstock.connectors.sinks.tabular import drawn, shown
from penstock.errors import PenstockError, counted

#: Different rows that a live table holds at most.
MOST_ROWS = 100_000
#: Lines of a live table beside its rows: frame, head, the lines below, and one for the cursor.
_BESIDE = 7
#: Columns before those of the query: `ts` and `op`.
_HEAD = 2


class ResultDisplay(Protocol):
    """Shows the results of one query."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Show more rows: `ts`, `op`, and the columns of the query."""

    def lost(self, reason: Exception) -> None:
        """Show that the connection is lost and tried again."""

    def close(self) -> str:
        """End the display; return the message to show then."""


class AppendedRows:
    """See `ResultDisplay`: each batch is written as it is.

    Args:
        write: writes to standard output, and flushes it.
        report: writes a line to standard error.
    """

    def __init__(self, form: OutputFormat, write: Callable[[str], None], report: Callable[[str], None]) -> None:
        self._form = form
        self._write = write
        self._report = report
        self._rows = 0
        self._begun = False
        self._is_lost = False

    def add(self, batch: pa.RecordBatch) -> None:
        self._is_lost = False
        if batch.num_rows == 0 and self._begun:
            return
        table = pa.Table.from_batches([batch])
        if self._form is OutputFormat.TABLE:
            self._write("".join(drawn(table)))
        else:
            self._write(data_text(table, self._form, head=not self._begun))
        self._begun = True
        self._rows += batch.num_rows

    def lost(self, reason: Exception) -> None:
        if not self._is_lost:
            self._report(f"the server is lost, and tried again: {reason}")
        self._is_lost = True

    def close(self) -> str:
        return f"({counted(self._rows, 'row')})"


class RelationContent:
    """The content of a relation, folded from its changes: a bag of rows. Raises PenstockError P0804 beyond
    `MOST_ROWS`."""

    def __init__(self) -> None:
        self.schema: pa.Schema | None = None
        #: By the text of a row: how often it is there, and its values.
        self._rows: dict[str, tuple[int, tuple[Any, ...]]] = {}
        self.instant: str | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Apply changes."""
        self.schema = pa.schema(list(batch.schema)[_HEAD:])
        if not batch.num_rows:
            return
        columns = [column.to_pylist() for column in batch.columns[_HEAD:]]
        # Zip of no columns has no rows.
        rows = zip(*columns, strict=True) if columns else iter([()] * batch.num_rows)
        for op, row in zip(batch.column(1).to_pylist(), rows, strict=True):
            if op != "p":
                self._change(1 if op == "+" else -1, tuple(map(_plain, row)))
        self.instant = _last_instant(batch)
        if len(self._rows) > MOST_ROWS:
            raise PenstockError(
                "P0804",
                f"the content has more than {MOST_ROWS:,} different rows, which a live table does not show",
                hint="\\format csv shows its changes",
            )

    def _change(self, difference: int, row: tuple[Any, ...]) -> None:
        key = repr(row)
        count = self._rows.get(key, (0, row))[0] + difference
        if count:
            self._rows[key] = count, row
        else:
            del self._rows[key]

    def __len__(self) -> int:
        return sum(max(0, count) for count, _ in self._rows.values())

    def first(self, most: int) -> pa.Table:
        """Return the first `most` rows in order of their columns."""
        assert self.schema is not None, "rows have come"
        chosen: list[tuple[Any, ...]] = []
        for count, row in heapq.nsmallest(most, self._rows.values(), key=lambda one: _order(one[1])):
            chosen += [row] * min(max(0, count), most - len(chosen))
        arrays = [pa.array([row[i] for row in chosen], field.type) for i, field in enumerate(self.schema)]
        return pa.Table.from_arrays(arrays, schema=self.schema)


class LiveTable:
    """See `ResultDisplay`: the content of a relation, drawn again after each batch."""

    def __init__(self, out: TextIO) -> None:
        self._content = RelationContent()
        self._note = ""
        self._live = Live(
            console=Console(file=out, highlight=False), auto_refresh=False, vertical_overflow="crop", transient=False
        )
        self._live.start()

    def add(self, batch: pa.RecordBatch) -> None:
        self._note = ""
        self._content.add(batch)
        self._draw()

    def lost(self, reason: Exception) -> None:
        self._note = f"; the server is lost, and tried again: {reason}"
        self._draw()

    def close(self) -> str:
        self._live.stop()
        return ""

    def _draw(self) -> None:
        if self._content.schema is None:
            self._live.update(Text(shown(self._note.removeprefix("; "))), refresh=True)
            return
        size = shutil.get_terminal_size()
        table = self._content.first(max(1, size.lines - _BESIDE))
        hidden = len(self._content) - table.num_rows
        lines = ["".join(drawn(table, size.columns)).rstrip("\n")]
        if hidden:
            lines.append(f"and {counted(hidden, 'more row')}")
        instant = "" if self._content.instant is None else f", as of {self._content.instant}"
        lines.append(shown(f"({counted(len(self._content), 'row')}{instant}; Ctrl-C ends{self._note})"))
        text = Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop")
        self._live.update(text, refresh=True)


def follow(batches: Iterable[pa.RecordBatch], display: ResultDisplay) -> None:
    """Show results until they end. Raises PenstockError, KeyboardInterrupt."""
    for batch in batches:
        display.add(batch)


def _last_instant(batch: pa.RecordBatch) -> str | None:
    """Return the largest timestamp of a batch as text."""
    last = pc.max(batch.column(0))
    if not last.is_valid:
        return None
    table = pa.table({"ts": pa.array([last.as_py()], batch.schema.field(0).type)})
    return data_text(table, OutputFormat.CSV, head=False).strip()


def _plain(value: Any) -> Any:
    """Return a value so that equal ones have one text: there is one zero."""
    return 0.0 if isinstance(value, float) and value == 0 else value


def _order(row: tuple[Any, ...]) -> tuple[tuple[int, Any], ...]:
    """Return what rows are sorted by: values of one column, NULL last, NaN after other numbers."""
    return tuple(_place(value) for value in row)


def _place(value: Any) -> tuple[int, Any]:
    if value is None:
        return 3, 0
    if isinstance(value, float) and math.isnan(value):
        return 2, 0
    return (1, repr(value)) if isinstance(value, list | dict) else (0, value)
