"""CONSOLE: the first rows of every batch as a table, and how many more there were."""

from __future__ import annotations

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.algebra.query import Query
from penstock.connectors.contract import Sink
from penstock.connectors.options import Options
from penstock.connectors.sinks.text import plain

_ROWS = 20


class ConsoleSink(Sink):
    """Option `rows`: how many rows of a batch are shown. A batch that is written again is not shown again."""

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        options = Options(f"INTO CONSOLE of {query.name}", query.sink.options)
        options.only(("rows",))
        self._rows = options.count("rows", _ROWS)
        self._shown: set[int] = set()

    @property
    def place(self) -> str:
        return "the console"

    def open(self, resume: bool, overwrite: bool) -> None:
        self._shown.clear()

    def write(self, batch: int, table: pa.Table) -> None:
        if batch in self._shown or not table.num_rows:
            return
        self._shown.add(batch)
        Console().print(rendered(self.query.name, table, self._rows))


def rendered(title: str, table: pa.Table, rows: int = _ROWS) -> Table:
    """The first `rows` rows of `table` for people; numbers to the right, NULL dimmed, how many others below."""
    more = table.num_rows - min(rows, table.num_rows)
    view = Table(title=Text(title), title_justify="left", caption=f"{more:,} more rows" if more else None)
    shown = table.slice(0, rows)
    columns = []
    for name, column in zip(table.column_names, shown.columns, strict=True):
        numeric = (
            pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)
        )
        view.add_column(Text(name), justify="right" if numeric else "left")
        columns.append([_cell(text) for chunk in column.chunks for text in plain(chunk).to_pylist()])
    for row in zip(*columns, strict=True):
        view.add_row(*row)
    return view


def _cell(text: bytes | None) -> Text:
    return Text("NULL", style="dim") if text is None else Text(text.decode("utf-8", "backslashreplace"))
