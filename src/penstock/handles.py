"""The Python handles of a session: queries, runs of them, their results, and sources.

Contract: a handle describes itself (`repr`, and HTML in a notebook) without starting anything; `to_arrow()`,
`to_pandas()` and `show()` return or print its rows. An unbounded source or result has no rows to return: PenstockError
P0622.
"""

from __future__ import annotations

import datetime as dt
import html
import sys
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.connectors.sinks.memory import MemorySink
from penstock.connectors.sinks.tabular import html_table, rendered
from penstock.errors import PenstockError, check_columns, check_watched, malformed_rows, nearest
from penstock.notebook.latest_rows import LatestRows, is_number
from penstock.notebook.watching import Display, watch
from penstock.runtime.monitoring.progress import RunProgress
from penstock.types import type_name

if TYPE_CHECKING:
    from penstock.runtime.local.one_time import OneTimeAnswer
    from penstock.runtime.monitoring.metrics import RunMetrics
    from penstock.runtime.spark.job import SparkRun

#: Where the answer of a query begins: the name of a mode of START, or an instant.
StartPoint = str | dt.datetime | int
#: The same for all new queries or by name; None for NOW.
Starts = StartPoint | Mapping[str, StartPoint] | None

#: Default number of rows that `show()` prints, and a notebook shows.
ROWS = 20


class Rows(ABC):
    """Something with rows."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return all rows, as an Arrow table."""

    def to_pandas(self) -> Any:
        """Return all rows, as a pandas DataFrame."""
        return as_pandas(self.to_arrow())

    def show(self, rows: int | None = ROWS) -> None:
        """Print the first `rows` rows as a table, and how many others there are; None: all rows."""
        if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 0):
            raise PenstockError("P0203", f"rows: expected a number of rows or None, not {rows!r}")
        table = self.to_arrow()
        first_rows = table if rows is None else table.slice(0, rows)
        for text in rendered(self._title, first_rows):
            sys.stdout.write(text)
        remaining_rows = table.num_rows - first_rows.num_rows
        if not table.num_rows:
            sys.stdout.write(f"{self._title}: no rows\n")
        elif remaining_rows:
            sys.stdout.write(f"{remaining_rows:,} more row{'s' * (remaining_rows != 1)}\n")

    @property
    @abstractmethod
    def _title(self) -> str: ...


class Result(Rows):
    """The answers of a query INTO MEMORY so far in one run."""

    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink

    @property
    def name(self) -> str:
        return self._sink.query.name

    @property
    def is_stream(self) -> bool:
        """Return whether it is a stream; otherwise its rows are the changes of a relation."""
        return self._sink.query.root.is_stream

    @property
    def _title(self) -> str:
        return self.name

    def to_arrow(self) -> pa.Table:
        """Return all rows that the run has answered so far, in the order of time."""
        return self._sink.result()

    def __repr__(self) -> str:
        table = self.to_arrow()
        return f"Result({self.name}: {table.num_rows:,} row{'s' * (table.num_rows != 1)} of {_columns(table.schema)})"

    def _repr_html_(self) -> str:
        return f"<p><b>{html.escape(self.name)}</b></p>{html_table(self.to_arrow(), ROWS)}"


class _GrowingRows:
    """The rows that are added to a result while its run goes on. See the contract `ComingRows`."""

    def __init__(self, run: Run, result: Result) -> None:
        self._run = run
        self._result = result
        self._seen = 0

    def next(self, seconds: float) -> pa.Table | None:
        """Raises the error that ended the run."""
        end = time.monotonic() + seconds
        while True:
            # Before the rows are looked at: those of its end are among them.
            has_ended = self._run.wait(0)
            table = self._result.to_arrow()
            if table.num_rows > self._seen or has_ended:
                break
            if time.monotonic() >= end:
                return table.slice(0, 0)
            time.sleep(min(0.1, seconds))
        new, self._seen = table.slice(self._seen), table.num_rows
        return new if new.num_rows else None


class Snapshot(Rows):
    """The answer of a one-time query."""

    def __init__(self, answer: OneTimeAnswer) -> None:
        self._answer = answer

    @property
    def as_of(self) -> str | None:
        """Return the instant that the answer is of; None without a timed source, or while none has an element."""
        tick = self._answer.tick
        return None if tick is None else self._answer.query.domain.show(tick)

    @property
    def late(self) -> dict[str, int]:
        """Return the number of late rows, by source; they are in no answer."""
        return dict(self._answer.late)

    @property
    def rejected(self) -> dict[str, dict[str, int]]:
        """Return the number of records that are in no answer, by source and reason."""
        return {name: dict(reasons) for name, reasons in self._answer.rejected.items()}

    @property
    def _title(self) -> str:
        return self._answer.query.name

    def to_arrow(self) -> pa.Table:
        """Return all rows, in the order of the query."""
        return self._answer.table

    def __repr__(self) -> str:
        table, at = self._answer.table, self.as_of
        instant = "" if at is None else f", as of {at}"
        return f"Snapshot({table.num_rows:,} row{'s' * (table.num_rows != 1)} of {_columns(table.schema)}{instant})"

    def _repr_html_(self) -> str:
        return html_table(self._answer.table, ROWS)


class SourceHandle(Rows):
    """A declared stream or relation. read: returns its rows, and the number of its malformed records."""

    def __init__(self, source: Source, read: Callable[[], tuple[pa.Table, int]]) -> None:
        self._source = source
        self._read = read

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def schema(self) -> pa.Schema:
        """Return the declared columns."""
        return pa.schema([pa.field(f.name, f.type) for f in self._source.columns])

    @property
    def _title(self) -> str:
        return self.name

    def to_arrow(self) -> pa.Table:
        """Return the rows that are present now, in order of arrival; malformed records cause a warning. Raises
        PenstockError P0622 for a source without an end, P0401 to P0404 for one that cannot be read."""
        table, malformed = self._read()
        if malformed:
            warnings.warn(f"{malformed_rows(malformed, self.name)} and left out", stacklevel=2)
        return table

    @property
    def _kind(self) -> str:
        return "Stream" if self._source.is_stream else "Relation"

    def __repr__(self) -> str:
        return f"{self._kind}({self.name} {_columns(self.schema)} FROM {self._source.connector})"

    def _repr_html_(self) -> str:
        title = f"{self._kind} <b>{html.escape(self.name)}</b> from {html.escape(self._source.connector)}"
        return f"<p>{title}</p>{_columns_in_html(self.schema)}"


class Run:
    """A started job. As a context it is stopped at the end. `run["name"]` is the result of a query INTO MEMORY.

    change: declares a script, lets the job go on with the queries declared then, and returns these.
    """

    def __init__(
        self,
        job: SparkRun,
        queries: Sequence[Query],
        sinks: Mapping[str, Any],
        change: Callable[[SparkRun, str, bool, bool, Starts], Sequence[Query]],
    ) -> None:
        self._job = job
        self._change = change
        self._set_queries(queries, sinks)

    def _set_queries(self, queries: Sequence[Query], sinks: Mapping[str, Any]) -> None:
        self._queries = tuple(queries)
        self._results = {name: Result(sink) for name, sink in sinks.items() if isinstance(sink, MemorySink)}

    def change(
        self, script: str, overwrite: bool = False, backfill: bool = False, start: Starts = None
    ) -> tuple[str, ...]:
        """Execute a script in the session while the run goes on; return the names of all queries of the run. Queries
        that the script creates begin between two rounds, those that it drops end there, the others continue. All of it
        takes effect, or nothing.

        Args:
            overwrite: new queries may write into results that exist.
            backfill: new queries begin with their sources, as with `start="BEGINNING"`.
            start: where the answers of new queries begin, for all or by name: "NOW", "WARM", "WARM WAIT", "BEGINNING",
                or an instant (a datetime, or an integer where timestamps are integers). This call returns when their
                past has been read; the run goes on meanwhile.

        Raises:
            ScriptErrors: for a script with errors.
            PenstockError: P0701 where the run has ended, or was not started with `live`; P0703 where the past that a
                query needs cannot be read; the errors of a start.
        """
        self._set_queries(self._change(self._job, script, overwrite, backfill, start), self._job.sinks)
        return tuple(query.name for query in self._queries)

    def hydrating(self) -> dict[str, float]:
        """Return, by query that reads its past at present and begins then, the share of it that has been read."""
        return self._job.hydration.shares()

    # -- results -----------------------------------------------------------------------------------------------

    @property
    def results(self) -> Mapping[str, Result]:
        """Return the results INTO MEMORY, by name."""
        return dict(self._results)

    def __getitem__(self, query: str) -> Result:
        """Return the result of a query. Raises PenstockError P0201 for a query that is not in the run, or has another
        sink."""
        for name, result in self._results.items():
            if name.lower() == query.lower():
                return result
        for declared in self._queries:
            if declared.name.lower() == query.lower():
                place = self.progress().queries[declared.name].place
                raise PenstockError(
                    "P0201",
                    f"the result of {declared.name} is not in memory: it is in {place}",
                    hint="CREATE QUERY name INTO MEMORY () AS ... keeps it there",
                )
        names = [declared.name for declared in self._queries]
        raise PenstockError("P0201", f"the run has no query {query}", hint=nearest(query, names))

    def to_arrow(self, query: str | None = None) -> pa.Table:
        """Return all rows so far of a query INTO MEMORY, whose name may be left out if it is the only one."""
        return self._only_result(query).to_arrow()

    def to_pandas(self, query: str | None = None) -> Any:
        """Return the rows of `to_arrow` as a pandas DataFrame."""
        return self._only_result(query).to_pandas()

    def show(self, query: str | None = None, rows: int | None = ROWS) -> None:
        """Print the results INTO MEMORY, or that of one query."""
        for result in self._results.values() if query is None else [self[query]]:
            result.show(rows)

    def watch(
        self,
        query: str | None = None,
        *,
        seconds: float | None = None,
        every: float = 0.5,
        rows: int = ROWS,
        value: str | None = None,
        by: str | None = None,
        display: Display | None = None,
    ) -> None:
        """Show the result of a query INTO MEMORY in a notebook as it grows: the content of a relation, the newest rows
        of a stream, and a chart. Elsewhere lines are printed. The run goes on when the cell is interrupted.

        Args:
            seconds: after which it ends; None: with the run, or when the cell is interrupted.
            every: seconds between two updates at least.
            rows: how many are shown.
            value, by: columns of the chart: the number, and what has a line each.
            display: shows the output in place of the notebook.

        Raises:
            PenstockError: P0201 for an unknown query, P0202 for a column that it has not.
        """
        result = self._only_result(query)
        fields = list(result.to_arrow().schema)[1 if result.is_stream else 2 :]
        check_columns((value, by), (one.name for one in fields))
        check_watched(seconds, every, rows, value, [one.name for one in fields if is_number(one.type)])
        latest = LatestRows(not result.is_stream, not result.is_stream, rows, value, by)
        watch(result.name, _GrowingRows(self, result), latest, seconds, every, display)

    def _only_result(self, query: str | None) -> Result:
        if query is not None:
            return self[query]
        if len(self._results) == 1:
            return next(iter(self._results.values()))
        names = ", ".join(self._results) or "none"
        raise PenstockError("P0201", f"which query? In memory are the results of: {names}", hint='run["name"]')

    # -- the run -----------------------------------------------------------------------------------------------

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds; return whether the run has ended. Raises the error that ended it."""
        return self._job.wait(timeout)

    def stop(self) -> None:
        """Stop after the work in progress; with a checkpoint the run can be resumed."""
        self._job.stop()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def active(self) -> bool:
        """Return whether the run is active."""
        return self._job.active

    @property
    def error(self) -> PenstockError | None:
        """Return the error that ended the run, None without one."""
        return self._job.error

    def progress(self) -> RunProgress:
        """Return the present counts of rows, late and malformed ones, the heartbeats and the targets."""
        return self._job.progress()

    def metrics(self) -> RunMetrics:
        """Return the present metrics of the run (docs/metrics.md)."""
        return self._job.metrics()

    @property
    def metrics_port(self) -> int | None:
        """Return the port of the Prometheus endpoint, None without one."""
        return self._job.metrics_port

    @property
    def notices(self) -> tuple[str, ...]:
        """Return the messages about a script that differs from the checkpoint's."""
        return self._job.notices

    @property
    def checkpoint(self) -> Path:
        return self._job.checkpoint

    @property
    def dead_letters(self) -> str:
        """Return the folder of the dead letters."""
        return self._job.dead_letters

    def _state(self) -> str:
        if self._job.error is not None:
            return f"failed with {self._job.error.code}"
        return "running" if self.active else "ended"

    def __repr__(self) -> str:
        progress = self.progress()
        names = ", ".join(query.name for query in self._queries)
        return f"Run({names}: {self._state()}, {progress.rows_in:,} rows in, {progress.rows_out:,} rows out)"

    def _repr_html_(self) -> str:
        progress = self.progress()
        sources = pa.table(
            {
                "source": list(progress.sources),
                "rows": [s.rows for s in progress.sources.values()],
                "late": [s.late for s in progress.sources.values()],
                "malformed": [s.malformed for s in progress.sources.values()],
                "known to": [s.heartbeat for s in progress.sources.values()],
            }
        )
        queries = pa.table(
            {
                "query": list(progress.queries),
                "rows": [q.rows for q in progress.queries.values()],
                "final to": [q.heartbeat for q in progress.queries.values()],
                "result": [q.place for q in progress.queries.values()],
            }
        )
        tables = "".join(html_table(table, table.num_rows) for table in (sources, queries))
        return f"<p>{html.escape(self._state())}</p>{tables}"


def as_pandas(table: pa.Table) -> Any:
    """Return a table as a pandas DataFrame. Dates are Python's, as pandas has no type of dates; a column with dates
    outside of the years 1 to 9999, which Python lacks, becomes one of timestamps, to the second."""
    try:
        return table.to_pandas()
    except (ValueError, OverflowError):
        with_timestamps = pa.schema([pa.field(f.name, _with_timestamps(f.type)) for f in table.schema])
    for index, column in enumerate(table.columns):
        try:
            column.to_pandas()
        except (ValueError, OverflowError):
            table = table.set_column(index, with_timestamps[index], column.cast(with_timestamps[index].type))
    return table.to_pandas()


def _with_timestamps(type_: pa.DataType) -> pa.DataType:
    """Return a type with timestamps in the place of dates."""
    if pa.types.is_list(type_):
        return pa.list_(_with_timestamps(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, _with_timestamps(f.type)) for f in type_])
    return pa.timestamp("s") if pa.types.is_date(type_) else type_


def query_text(query: Query) -> str:
    """Return `Query(late: a stream of (ts TIMESTAMP, dest STRING))`, the `repr` of a query."""
    kind = "a stream of" if query.root.is_stream else "a relation, emitted as changes of"
    return f"Query({query.name}: {kind} {_columns(query.output_schema)})"


def query_html(query: Query) -> str:
    """Return the HTML of a query: its text and its columns."""
    text = f"<pre>{html.escape(query.text)}</pre>" if query.text else ""
    return f"<p>Query <b>{html.escape(query.name)}</b></p>{text}{_columns_in_html(query.output_schema)}"


def _columns(schema: pa.Schema) -> str:
    return f"({', '.join(f'{field.name} {type_name(field.type)}' for field in schema)})"


def _columns_in_html(schema: pa.Schema) -> str:
    table = pa.table({"column": schema.names, "type": [type_name(kind) for kind in schema.types]})
    return html_table(table, table.num_rows)


def starts_of(given: Starts, queries: Sequence[Query]) -> dict[str, Start]:
    """Return where the answers of `queries` begin. Raises PenstockError P0201 for a name that is none of theirs, P0104
    for a beginning that there is not."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return {query.name: _start(given, query) for query in queries}
    by_name = {query.name.lower(): query for query in queries}
    unknown = [name for name in given if name.lower() not in by_name]
    if unknown:
        raise PenstockError("P0201", f"there is no query {unknown[0]}", hint=nearest(unknown[0], by_name))
    return {by_name[name.lower()].name: _start(point, by_name[name.lower()]) for name, point in given.items()}


def _start(point: StartPoint, query: Query) -> Start:
    calendar = query.domain.calendar
    if isinstance(point, int) and not calendar:
        return Start(StartMode.AT, point)
    if isinstance(point, dt.datetime) and calendar:
        instant = point if point.tzinfo is not None else point.replace(tzinfo=dt.UTC)
        return Start(StartMode.AT, (instant - dt.datetime.fromtimestamp(0, dt.UTC)) // dt.timedelta(microseconds=1))
    if isinstance(point, str) and point.upper() in ("NOW", "WARM", "BEGINNING"):
        return Start(StartMode(point.upper()))
    if isinstance(point, str) and point.upper().split() == ["WARM", "WAIT"]:
        return Start(StartMode.WARM, wait=True)
    instant_type = "a datetime" if calendar else "an integer"
    raise PenstockError(
        "P0104",
        f"query {query.name} cannot start at {point!r}",
        hint=f'give "NOW", "WARM", "WARM WAIT", "BEGINNING", or {instant_type} for the instant',
    )
