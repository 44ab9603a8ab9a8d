"""Standard output for CONSOLE results: tables for people; csv, json lines or an Arrow stream for programs.

Contract: a process has one standard output, which all CONSOLE queries of a run share; batches are written one after the
other. All rows are written and no value is cut. A format for programs writes nothing but results. Results of several
queries are distinguishable: a table has its query's name above it; in csv a line `# name` and a header precede every
change of query; json lines begin with the field `query`; an Arrow stream has one schema and so accepts one query.
"""

from __future__ import annotations

import enum
import io
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import pyarrow as pa

from penstock.connectors.sinks.tabular import encodable, rendered, shown
from penstock.connectors.text import csv_text, json_text
from penstock.errors import PenstockError


class OutputFormat(enum.StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    ARROW = "arrow"


class Answered(Protocol):
    """A query with a result: its name, and the names and types of the result's columns."""

    @property
    def name(self) -> str: ...

    @property
    def output_names(self) -> tuple[str, ...]: ...

    @property
    def output_schema(self) -> pa.Schema: ...


#: Name of the field of json lines that holds the query.
_QUERY = "query"


class Output(ABC):
    """Write results to standard output.

    `around`: a context entered while something is written, for example to remove a progress line; `broken`: whether
    standard output accepts no more data; `gone`: whether that is because its reader closed it.
    """

    def __init__(self) -> None:
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext
        self.broken = self.gone = False

    @abstractmethod
    def write(self, query: Answered, tables: Iterable[pa.Table], rows: int | None) -> None:
        """Write one batch of a query, in pieces.

        Args:
            rows: largest number of rows of it that a table shows.

        Raises:
            PenstockError: P0502, standard output accepts no more data.
        """

    def close(self) -> None:  # noqa: B027 - most formats need no end
        """Write the end of a run that was not aborted."""

    def _put_lines(self, content: bytes) -> None:
        """Write lines for programs; on a terminal with control characters as escapes, as no program reads there."""
        at_terminal = sys.stdout is not None and sys.stdout.isatty()
        self._put(shown(content.decode("utf-8", "backslashreplace")) if at_terminal else content)

    def _put(self, content: bytes | str) -> None:
        try:
            with self.around():
                _write(content)
        except BrokenPipeError as error:
            self.broken = self.gone = True
            raise PenstockError("P0502", "standard output was closed by its reader", cause=error) from error
        except OSError as error:
            self.broken = True
            message = f"standard output cannot be written: {error.strerror or error}"
            raise PenstockError("P0502", message, cause=error) from error


def _write(content: bytes | str) -> None:
    """Write text in the encoding of standard output, or bytes unchanged."""
    out = sys.stdout
    if out is None:  # closed before the process began
        return
    if isinstance(content, str):
        out.write(encodable(content, out))
    elif (buffer := getattr(out, "buffer", None)) is not None:
        out.flush()
        buffer.write(content)
    else:
        out.write(content.decode("utf-8", "backslashreplace"))
    out.flush()


class Tables(Output):
    def write(self, query: Answered, tables: Iterable[pa.Table], rows: int | None) -> None:
        shown_rows, hidden_rows = 0, 0
        for table in tables:
            part = table if rows is None else table.slice(0, max(0, rows - shown_rows))
            shown_rows += part.num_rows
            hidden_rows += table.num_rows - part.num_rows
            for text in rendered(query.name, part):
                self._put(text)
        if hidden_rows:
            self._put(f"{hidden_rows:,} more row{'s' * (hidden_rows != 1)} of {query.name}\n")


class Csv(Output):
    """The results of one query are one csv file: the header is written once, also where there are no rows."""

    def __init__(self, queries: Sequence[Answered]) -> None:
        super().__init__()
        self._only_query = queries[0] if len(queries) == 1 else None
        self._last_query: str | None = None

    def write(self, query: Answered, tables: Iterable[pa.Table], rows: int | None) -> None:
        for table in tables:
            if table.num_rows:
                changed = query.name != self._last_query
                if changed and self._only_query is None:
                    name = query.name if query.name.isprintable() else json.dumps(query.name)
                    separator = "" if self._last_query is None else "\n"
                    self._put(f"{separator}# {name}\n".encode())
                self._last_query = query.name
                self._put_lines(csv_text(table, changed).to_pybytes())

    def close(self) -> None:
        if self._only_query is not None and self._last_query is None:
            self._put_lines(csv_text(self._only_query.output_schema.empty_table()).to_pybytes())


class JsonLines(Output):
    """Write json lines. Raises PenstockError P0502 for a column with the name of the field that holds the query.

    Args:
        exact: whether numbers that a double cannot hold are texts.
    """

    def __init__(self, queries: Sequence[Answered], exact: bool = False) -> None:
        super().__init__()
        self._exact = exact
        self._several_queries = len(queries) > 1
        for query in queries if self._several_queries else ():
            if _QUERY in (name.lower() for name in query.output_names):
                raise PenstockError(
                    "P0502",
                    f"json lines of several queries have a field {_QUERY}, and so has {query.name}",
                    hint="give that column another name with AS, write that query INTO FILES, or choose --format csv",
                )

    def write(self, query: Answered, tables: Iterable[pa.Table], rows: int | None) -> None:
        for table in tables:
            if self._several_queries:
                table = table.add_column(0, _QUERY, pa.repeat(query.name, table.num_rows))
            self._put_lines(json_text(table, exact=self._exact).to_pybytes())


class ArrowStream(Output):
    """An Arrow IPC stream. Raises PenstockError P0502 for more than one query."""

    def __init__(self, queries: Sequence[Answered]) -> None:
        super().__init__()
        if len(queries) > 1:
            names = ", ".join(query.name for query in queries)
            raise PenstockError(
                "P0502",
                f"an Arrow stream holds the results of one query, and {len(queries)} have no INTO: {names}",
                hint="write the others INTO FILES (...), or choose --format json or csv",
            )
        self._queries = queries
        self._stream: pa.ipc.RecordBatchStreamWriter | None = None

    @property
    def _writer(self) -> pa.ipc.RecordBatchStreamWriter:
        if self._stream is None:
            self._stream = pa.ipc.new_stream(_Sink(self._put), self._queries[0].output_schema)
        return self._stream

    def write(self, query: Answered, tables: Iterable[pa.Table], rows: int | None) -> None:
        for table in tables:
            self._writer.write_table(table.cast(query.output_schema))

    def close(self) -> None:
        if self._queries:
            self._writer.close()


class _Sink(io.RawIOBase):
    """Forward the bytes that Arrow writes."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self._put = put

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        data = bytes(memoryview(content))  # type: ignore[arg-type]  # Arrow writes buffers
        self._put(data)
        return len(data)


def output(form: OutputFormat, queries: Sequence[Answered], one_time: bool = False) -> Output:
    """Return the output of the CONSOLE results of `queries`, which are all of a run.

    Args:
        one_time: whether they are one-time queries, whose json is that of a server's answers.

    Raises:
        PenstockError: P0502, the format cannot represent them.
    """
    if form is OutputFormat.TABLE:
        return Tables()
    if form is OutputFormat.JSON:
        return JsonLines(queries, exact=one_time)
    return Csv(queries) if form is OutputFormat.CSV else ArrowStream(queries)
