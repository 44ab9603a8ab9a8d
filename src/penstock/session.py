"""The facade: runs scripts as continuous queries.

A `Session` stores the declarations (sources, views, queries), starts the queries as one job on Spark, and answers
single queries over bounded inputs. It uses an existing SparkSession, or starts one when needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source, declared_sources
from penstock.algebra.properties.statistics import Statistics, known_statistics
from penstock.connectors.arguments import (
    Named,
    heartbeat_of,
    names_argument,
    path_argument,
    position_of,
    punctuated_of,
    script_argument,
    settings_argument,
    table_argument,
    text_argument,
    ticks_of,
    timestamp_of,
    type_of,
)
from penstock.connectors.overview.targets import collisions
from penstock.connectors.sinks.memory import collected
from penstock.connectors.sources import open_source
from penstock.connectors.sources.memory import spool
from penstock.errors import PenstockError, ScriptErrors, ScriptWarning, nearest
from penstock.expressions.calls.user_functions import make, return_type
from penstock.expressions.user import UserAggregate, UserDefined, UserFunction
from penstock.handles import Rows, Run, Snapshot, SourceHandle, Starts, query_html, query_text, starts_of
from penstock.language.commands import ExportCommand
from penstock.language.scripts import (
    Action,
    BoundScript,
    Catalog,
    Explain,
    SelectOnce,
    Show,
    bind_query,
    bind_script,
    bind_select,
)
from penstock.notebook.plan_text import explained
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.state_size.summary import QueryState, query_state
from penstock.redaction import redacted_text
from penstock.runtime.local.explain import explain, export_plan
from penstock.server_reports import ShownEntries, kind_of_rows, listed_table
from penstock.settings import Settings
from penstock.temporary import discard, removed_after, temporary_folder
from penstock.types import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.runtime.local.analyze import Analysis
    from penstock.runtime.local.one_time import OneTimeAnswer
    from penstock.runtime.spark.job import SparkRun
    from penstock.runtime.spark.work import Work


@dataclass(frozen=True)
class Execution:
    """The result of a script. queries: the names it created; answers: those to its EXPLAIN and SHOW, which are texts,
    and to its one-time SELECTs, in order."""

    queries: tuple[str, ...]
    answers: tuple[str | OneTimeAnswer, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(answer for answer in self.answers if isinstance(answer, str))


class Session:
    """Declared streams, relations, views and queries, and the runs of them. warnings: of the last script.

    spark: a SparkSession to use; without one, the first run starts its own. master: for a session of our own.
    """

    def __init__(
        self, spark: SparkSession | None = None, settings: Settings | None = None, master: str | None = None
    ) -> None:
        self.catalog = Catalog()
        if spark is not None and not hasattr(spark, "sparkContext"):
            hint = "without one Penstock starts its own; Session(master='local[2]') names another master"
            raise PenstockError("P0203", f"expected a SparkSession, not {type_of(spark)}", hint=hint)
        self.settings = settings_argument(settings)
        self._spark = spark
        #: A Spark session of the caller, whose workers have not been checked yet.
        self._unchecked_spark = spark
        self._master = master
        self._frames: dict[str, Any] = {}
        self.warnings: tuple[ScriptWarning, ...] = ()

    def __repr__(self) -> str:
        catalog = self.catalog
        streams = sum(source.is_stream for source in catalog.sources.values())
        counts = {
            "stream": streams,
            "relation": len(catalog.sources) - streams,
            "view": len(catalog.views),
            "query": len(catalog.queries),
        }
        plurals = {"query": "queries"}
        counts_shown = (f"{n} {word if n == 1 else plurals.get(word, word + 's')}" for word, n in counts.items() if n)
        return f"Session({', '.join(counts_shown) or 'nothing declared'})"

    @property
    def sources(self) -> dict[str, SourceHandle]:
        """Return the declared streams and relations, by name."""
        return Named("source", {one.name: self._source(one) for one in self.catalog.sources.values()})

    @property
    def queries(self) -> dict[str, QueryHandle]:
        """Return the declared queries, by name."""
        return Named("query", {one.name: QueryHandle(self, one) for one in self.catalog.queries.values()})

    # -- declaring ---------------------------------------------------------------------------------------------

    def execute(self, script: str, file: str | None = None, one_time: bool = False, live: bool = False) -> Execution:
        """Bind a whole script and register its declarations; its continuous queries do not run yet. Raises
        ScriptErrors, and then nothing has been declared.

        one_time: answer each query that is a statement of its own once, in this process; otherwise it is declared as a
        continuous query (`query_1`, ...). live: the run will be one whose queries change, so that streams may RETAIN
        elements, and queries START with a past.
        """
        bound = self._bind(script, file, one_time, live)
        answers = [self._answer(action, bound) for action in bound.actions]
        self.catalog, self.settings = bound.catalog, bound.settings
        return Execution(tuple(q.name for q in bound.queries), tuple(answers))

    def select(self, text: str) -> Snapshot:
        """Return the answer of a one-time query: its rows at one instant, after its sources have been read to their
        ends in this process. Raises ScriptErrors, and P0622 for a source without an end."""
        with _frames_hinted():
            query = bind_select(script_argument(text), self.catalog, self.settings)
        answer = self._answer_once(query)
        for warning in (*("\n".join(lines) for lines in answer.left_out()), *answer.warnings):
            warnings.warn(warning, stacklevel=2)
        return Snapshot(answer)

    def declare(
        self, script: str, file: str | None = None, one_time: bool = False, live: bool = False
    ) -> tuple[str, ...]:
        """Register a script as `execute` does, without answering its EXPLAIN, SHOW and SELECT; return the names of the
        queries."""
        bound = self._bind(script, file, one_time, live)
        self.catalog, self.settings = bound.catalog, bound.settings
        return tuple(q.name for q in bound.queries)

    def _bind(self, script: str, file: str | None, one_time: bool, live: bool) -> BoundScript:
        """Return the bound script, with its results in places of their own; `warnings` are those of this script
        then."""
        with _frames_hinted():
            bound = bind_script(script_argument(script), self.catalog, self.settings, file, one_time, live)
        messages = list(collisions(bound.catalog.queries.values(), bound.catalog.sources.values(), bound.places))
        errors = [message for message in messages if isinstance(message, PenstockError)]
        if errors:
            raise ScriptErrors(errors)
        self.warnings = (*bound.warnings, *(message for message in messages if isinstance(message, ScriptWarning)))
        return bound

    def stream(
        self,
        name: str,
        df: object,
        timestamp: str,
        unit: str = "SECOND",
        order_within: str | None = None,
        advance_at_most: str | None = None,
        heartbeat: str | None = None,
        punctuated: str | None = None,
    ) -> SourceHandle:
        """Declare a DataFrame (of Spark, streaming or static, of pandas or Polars) or an Arrow table as a stream.

        Args:
            timestamp: its timestamp column.
            unit: the unit of an integer timestamp.
            order_within: its slack, such as '5 SECONDS' or a timedelta.
            advance_at_most: how far an element may be beyond the largest timestamp before it.
            heartbeat: a BOOLEAN column; a row in which it is true is a heartbeat and no element, as of HEARTBEAT BY.
            punctuated: a STRING column; a row in which it is not NULL is a punctuation and no element, as of PUNCTUATED
                BY.
        """
        df = table_argument(text_argument(name, "the name of a stream"), df)
        columns = self._columns(name, df)
        position, domain = timestamp_of(name, columns, timestamp, unit)
        slack = ticks_of(order_within, "order_within", domain) or 0
        source = Source(name, True, columns, "DATAFRAME", (), position, domain, slack)
        ahead = ticks_of(advance_at_most, "advance_at_most", domain)
        source = replace(source, ahead=ahead, heartbeat=heartbeat_of(name, columns, heartbeat))
        return self._declare(replace(source, punctuated=punctuated_of(name, columns, punctuated)), df)

    def relation(
        self,
        name: str,
        df: object,
        timestamp: str | None = None,
        operation: str | None = None,
        unit: str = "SECOND",
        primary_key: Sequence[str] = (),
    ) -> SourceHandle:
        """Declare a static DataFrame (of Spark, pandas or Polars) or an Arrow table as a relation, or with `timestamp`
        any DataFrame as its updates.

        Args:
            operation: the column that holds `+` or `-`.
            primary_key: the columns that no two rows share.
        """
        df = table_argument(text_argument(name, "the name of a relation"), df)
        columns = self._columns(name, df)
        key = tuple(position_of(name, columns, column) for column in names_argument(primary_key, "primary_key"))
        if timestamp is None:
            if operation is not None:
                hint = "timestamp='...' names the column with the times of the updates"
                raise PenstockError("P0209", f"relation {name}: operation needs a timestamp", hint=hint)
            if _streams(df):
                raise PenstockError(
                    "P0209", f"relation {name}: a streaming DataFrame needs timestamp=... for its updates"
                )
            return self._declare(Source(name, False, columns, "DATAFRAME", primary_key=key), df)
        position, domain = timestamp_of(name, columns, timestamp, unit)
        op = None if operation is None else position_of(name, columns, operation)
        if {position, op} & set(key):
            raise PenstockError("P0210", f"{name}: the timestamp and the operation are no part of a primary key")
        source = Source(name, False, columns, "DATAFRAME", (), position, domain, operation=op, primary_key=key)
        return self._declare(source, df)

    def function(
        self,
        returns: str | pa.DataType,
        parameters: Sequence[str | pa.DataType] | None = None,
        name: str | None = None,
        volatile: bool = False,
    ) -> Callable[[Callable[..., Any]], UserFunction]:
        """Decorate a Python function of Arrow arrays as a function of this session's scripts, as `penstock.function`
        does for all sessions."""
        return_type(returns, "session.function")

        def register(body: Callable[..., Any]) -> UserFunction:
            user_function: UserFunction = make(UserFunction, body, returns, name, parameters, volatile)
            self._define(user_function)
            return user_function

        return register

    def aggregate(
        self, returns: str | pa.DataType, parameters: Sequence[str | pa.DataType] | None = None, name: str | None = None
    ) -> Callable[[object], UserAggregate]:
        """Decorate a class with init, update, final, and optionally merge and expire, as an aggregate of this session's
        scripts, as `penstock.aggregate` does for all sessions."""
        return_type(returns, "session.aggregate")

        def register(body: object) -> UserAggregate:
            user_aggregate: UserAggregate = make(UserAggregate, body, returns, name, parameters)
            self._define(user_aggregate)
            return user_aggregate

        return register

    def _define(self, user: UserDefined) -> None:
        if user.key in self.catalog.functions:
            raise PenstockError("P0206", f"{user.name} is declared already", hint=f"DROP {user.kind} {user.name} first")
        self.catalog = self.catalog.with_function(user)

    def _declare(self, source: Source, df: Any) -> SourceHandle:
        if source.name in self.catalog:
            hint = f"choose another name, or DROP what has it first: session.execute('DROP STREAM {source.name}')"
            raise PenstockError("P0206", f"{source.name} is declared already", hint=hint)
        if isinstance(df, pa.Table):
            from penstock.runtime.spark.input.dataframes import plain_table

            df = plain_table(df, source.columns)
        self.catalog = self.catalog.with_source(source)
        self._frames[source.name] = df
        return self._source(source)

    def _source(self, source: Source) -> SourceHandle:
        return SourceHandle(source, lambda: self._rows_of(source))

    def _rows_of(self, source: Source) -> tuple[pa.Table, int]:
        """Return the present rows of a source, and the number of malformed ones. Raises PenstockError P0622, P0401 to
        P0404."""
        from penstock.runtime.local.statics import read_relation

        frame = self._frames.get(source.name)
        if isinstance(frame, pa.Table):
            return frame, 0
        if frame is not None and not _streams(frame):
            return frame.toArrow(), 0
        if source.connector == "MEMORY":
            with removed_after() as folder:
                path = str(folder / "rows.arrow")
                spool(source, list(self.catalog.memory.get(source.name.lower(), ())), path)
                table, rejected, _ = read_relation(replace(source, options=(("spool", path),)))
                return pa.concat_tables([table]).combine_chunks(), len(rejected)
        if frame is not None or not open_source(source).bounded:
            raise PenstockError(
                "P0622",
                f"{source.name} has no end, so its rows cannot be had all at once",
                hint="a query INTO MEMORY collects what comes while it runs",
            )
        open_source(source).check()
        table, rejected, _ = read_relation(source)
        return table, len(rejected)

    def _columns(self, name: str, df: Any) -> Schema:
        from penstock.runtime.spark.input import dataframes as frames

        if isinstance(df, pa.Table):
            return frames.arrow_columns(name, df.schema)
        if frames.is_frame(df):
            if self._spark is None:
                self._spark = self._unchecked_spark = df.sparkSession
            return frames.frame_schema(name, df)
        hint = "pandas.DataFrame(rows) makes one of rows" if isinstance(df, list | tuple | dict) else None
        if isinstance(df, str | PurePath):
            hint = f"a file is declared by execute: CREATE RELATION {name} (...) FROM FILES (path '{df}')"
        expected = "a frame of Spark, pandas or Polars, or an Arrow table"
        raise PenstockError("P0203", f"{name}: expected {expected}, not {type_of(df)}", hint=hint)

    # -- explaining --------------------------------------------------------------------------------------------

    def explain(self, query: str, format: str = "text", analyze: bool = False) -> str:  # noqa: A002 - the door's word
        """Return the plans of a declared query by name. format: text, json, mermaid or drawn (SVG). analyze: run it
        in this process over its inputs, which must be bounded, and show the measurements of every operator of the
        physical plan."""
        declared = self._query_named(query)
        statistics = self.statistics(declared, self.catalog, self.settings)
        analysis = self._analyze(declared, self.catalog.memory, self.settings, statistics) if analyze else None
        strategy = Strategy.of(self.settings)
        return explained(format, lambda form: explain(declared, form, statistics, analysis, strategy))

    def _analyze(self, query: Query, rows: Mapping[str, Any], settings: Settings, statistics: Statistics) -> Analysis:
        from penstock.runtime.local.analyze import analyze

        shards = settings.get_int("shards") or 1
        return analyze([query], rows, self._frames, shards, statistics, Strategy.of(settings))

    def state(self, query: str) -> QueryState:
        """Return the state that a declared query will store: whether it is bounded, by what, and about how large."""
        declared = self._query_named(query)
        statistics = self.statistics(declared, self.catalog, self.settings)
        return query_state(declared, statistics, Strategy.of(self.settings))

    def _query_named(self, query: str) -> Query:
        declared = self.catalog.queries.get(text_argument(query, "the name of a query").lower())
        if declared is None:
            hint = nearest(query, [q.name for q in self.catalog.queries.values()])
            if hint is None or " " in query.strip():
                hint = "a query is declared by CREATE QUERY; session.query('SELECT ..') is one that is not declared"
            raise PenstockError("P0201", f"unknown query {query[:100]}", hint=hint)
        return declared

    def query(self, text: str) -> QueryHandle:
        """Return a handle of a query that is not declared."""
        with _frames_hinted():
            return QueryHandle(self, bind_query(script_argument(text), self.catalog, self.settings))

    def statistics(self, query: Query, catalog: Catalog, settings: Settings) -> Statistics:
        """Return the statistics of the sources of `query` before it runs."""
        return known_statistics(declared_sources(query.root), catalog.memory, self._frames, settings["statistics"])

    def _answer_once(self, action: SelectOnce) -> OneTimeAnswer:
        from penstock.runtime.local.one_time import answer_once

        return answer_once(action.query, action.memory, self._frames, Strategy.of(action.settings))

    def _answer(self, action: Action, bound: BoundScript) -> str | OneTimeAnswer:
        if isinstance(action, SelectOnce):
            return self._answer_once(action)
        if isinstance(action, Explain):
            statistics = self.statistics(action.query, bound.catalog, bound.settings)
            analysis = (
                self._analyze(action.query, action.memory, action.settings, statistics) if action.analyze else None
            )
            return explain(action.query, "text", statistics, analysis, Strategy.of(action.settings))
        if isinstance(action, ExportCommand):
            statistics = self.statistics(action.query, bound.catalog, action.settings)
            return export_plan(action.query, action.logical, statistics, Strategy.of(action.settings))
        text = "\n".join(redacted_text(text or name) for name, text in action.entries)
        if action.kind == "DESCRIBE":
            return text
        return ShownEntries.of(text, listed_table(action.kind, _listed(action, bound)))

    # -- running -----------------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        """Return the SparkSession; it is started now if there is none."""
        if self._spark is None:
            from penstock.runtime.spark.startup.session import start_spark

            self._spark = start_spark(self._master, settings=self.settings.spark)
        return self._spark

    def start(
        self,
        checkpoint: str | None = None,
        drain: bool = False,
        overwrite: bool = False,
        queries: Sequence[str] | None = None,
        backfill: bool = False,
        accept_missing_results: bool = False,
        live: bool = False,
    ) -> Run:
        """Start the declared queries (or those named) as one job; return the run, with the results of queries INTO
        MEMORY by name.

        checkpoint: a folder to resume from; without one the run is ephemeral and refuses to write into a result that
        exists, unless `overwrite`. backfill: queries that are new to the checkpoint, or have changed, read the past of
        their sources before they join the others; without it they begin here, and the run's `notices` report it.
        accept_missing_results: continue although parts of delivered results are missing. live: its queries may change
        while it goes on (`Run.change`).
        """
        if checkpoint is not None:
            checkpoint = path_argument(checkpoint, "checkpoint")
        declared = self.catalog.queries
        chosen_queries = list(declared.values())
        if queries is not None:
            chosen_queries = [self._query_named(one) for one in names_argument(queries, "queries")]
        if not chosen_queries:
            raise PenstockError("P0201", "the script creates no query", hint="CREATE QUERY name INTO ... AS SELECT ...")
        from penstock.runtime.spark.launch import launch

        work = replace(
            self._work(chosen_queries, drain), backfill=backfill, accept_missing=accept_missing_results, live=live
        )
        job = launch(work, checkpoint, overwrite)
        return Run(job, chosen_queries, job.sinks, self._change)

    def _change(self, job: SparkRun, script: str, overwrite: bool, backfill: bool, start: Starts) -> tuple[Query, ...]:
        """Declare `script`, and let a live run go on with the queries declared then; where that fails, nothing has been
        declared."""
        from penstock.runtime.spark.live_change import change

        declarations_before = self.catalog, self.settings
        names = self.declare(script, live=True)
        try:
            queries = tuple(self.catalog.queries.values())
            clauses = {q.name: self.catalog.registered[q.name.lower()].start for q in queries if q.name in names}
            starts = {name: clause for name, clause in clauses.items() if clause.mode is not StartMode.NOW}
            starts |= starts_of(start, queries)
            work = replace(self._work(queries, job.job.drain), backfill=backfill, starts=starts)
            change(job, work, overwrite)
        except BaseException:
            self.catalog, self.settings = declarations_before
            raise
        return queries

    def _work(self, queries: Sequence[Query], drain: bool) -> Work:
        from penstock.runtime.spark.work import Work

        if self._unchecked_spark is not None:
            from penstock.runtime.spark.startup.workers import check_workers

            check_workers(self._unchecked_spark)
            self._unchecked_spark = None
        work = Work(tuple(queries), self.catalog.memory, self._frames, self.settings, drain, lambda: self.spark)
        return replace(work, starts=self._starts(queries))

    def _starts(self, queries: Sequence[Query]) -> dict[str, Start]:
        """Return where the answers of queries begin that do not begin NOW, by query."""
        registered = self.catalog.registered
        starts = {q.name: registered[q.name.lower()].start for q in queries if q.name.lower() in registered}
        return {name: start for name, start in starts.items() if start.mode is not StartMode.NOW}


class QueryHandle(Rows):
    """One query over a session's declarations."""

    def __init__(self, session: Session, query: Query) -> None:
        self._session = session
        self._query = query

    @property
    def name(self) -> str:
        return self._query.name

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the answer."""
        return self._query.output_schema

    @property
    def _title(self) -> str:
        return self._query.name

    def __repr__(self) -> str:
        return query_text(self._query)

    def _repr_html_(self) -> str:
        return query_html(self._query)

    def to_arrow(self) -> pa.Table:
        """Return the whole answer over bounded inputs, as `collect`, recomputed at every call."""
        return self.collect()

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the door's word
        """Return the logical and the physical plan. format: text, json, mermaid or drawn (SVG)."""
        session = self._session
        statistics = session.statistics(self._query, session.catalog, session.settings)
        strategy = Strategy.of(session.settings)
        return explained(format, lambda form: explain(self._query, form, statistics, None, strategy))

    def collect(self, drain: bool = False) -> pa.Table:
        """Return the whole answer over bounded inputs, as an Arrow table; DataFrame streams are read as far as they are
        available."""
        from penstock.runtime.spark.launch import launch

        run = launch(self._session._work([self._query], drain), None, False)
        if any(_streams(df) for df in self._session._frames.values()):
            run.end_frames()
        run.wait()
        return collected(self._query.name)

    def to_dataframe(self, folder: str | None = None) -> DataFrame:
        """Return the answer as a streaming DataFrame, for any Spark sink. It belongs to a Spark session of its own (its
        settings are the job's): what a sink calls by name, and the queries that run, are found by `.sparkSession`.

        Args:
            folder: where the readers keep their progress; name one beside the sink's checkpoint to resume. Without it
                the folder is temporary: it exists as long as this process, and a later start removes it.
        """
        from penstock.runtime.spark.launch import answer_frame

        work = self._session._work([self._query], False)
        if folder is not None:
            return answer_frame(work, Path(folder))
        folder_of_run = temporary_folder()
        try:
            # A sweep finds the dead letters of a run under this name, and keeps them.
            return answer_frame(work, folder_of_run / "penstock")
        except BaseException:
            discard(folder_of_run)
            raise


def _streams(df: Any) -> bool:
    return bool(getattr(df, "isStreaming", False))


def _listed(action: Show, bound: BoundScript) -> list[tuple[str | None, ...]]:
    """Return what SHOW lists, an entry a row."""
    if action.kind != "QUERIES":
        return [(name, redacted_text(text or name)) for name, text in action.entries]
    rows: list[tuple[str | None, ...]] = []
    for name, text in action.entries:
        # The script may have dropped it behind the SHOW.
        query = bound.catalog.queries.get(name.lower())
        known = (None, None) if query is None else (kind_of_rows(query.root.is_stream), query.sink.connector)
        rows.append((name, "DECLARED", *known, None, redacted_text(text or name)))
    return rows


@contextmanager
def _frames_hinted() -> Iterator[None]:
    """Extend the hint for an unknown name: it may be that of a variable with a table."""
    try:
        yield
    except PenstockError as error:
        for one in error.errors if isinstance(error, ScriptErrors) else [error]:
            if one.code == "P0201" and not (one.hint or "").startswith("did you mean"):
                name = one.message.rsplit(" ", 1)[-1]
                how = f"session.stream({name!r}, table, timestamp=..) or session.relation declares a table of Python"
                one.hint = f"{one.hint}; {how}" if one.hint else how
        raise
