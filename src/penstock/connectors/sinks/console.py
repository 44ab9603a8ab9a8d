"""CONSOLE: the rows of every batch on standard output (`output.py`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.connectors.contract import Sink
from penstock.connectors.options import Option, Options, OptionTable, whole
from penstock.connectors.sinks.output import Output, Tables

_TABLES: Output = Tables()
_CHOSEN_OUTPUT: list[Output] = []
_ROWS = Option("rows", whole(), "rows of a batch that a table shows; without it all")


def send_to(output: Output | None) -> None:
    """Set where CONSOLE results of this process go from now on; None: tables on standard output."""
    _CHOSEN_OUTPUT[:] = [] if output is None else [output]


class ConsoleSink(Sink):
    """Write batches to the console.

    Option `rows`: number of rows of a batch that a table shows; formats for programs have all of them. A batch that is
    repeated is not shown again.
    """

    OPTIONS = OptionTable((_ROWS,))

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        options = Options(f"INTO CONSOLE of {query.name}", query.sink.options)
        options.only(self.OPTIONS)
        self._rows = options.optional(_ROWS)
        self._written_batches: set[int] = set()

    @property
    def place(self) -> str:
        return "the console"

    def open(self, resume: bool, overwrite: bool) -> None:
        self._written_batches.clear()

    def write(self, batch: int, table: pa.Table) -> None:
        self.write_pieces(batch, iter([table]))

    def write_pieces(self, batch: int, pieces: Iterator[pa.Table]) -> None:
        if batch in self._written_batches:
            # Counting the rows happens as they are computed.
            deque(pieces, maxlen=0)
            return
        self._written_batches.add(batch)
        (_CHOSEN_OUTPUT or [_TABLES])[0].write(self.query, pieces, self._rows)
