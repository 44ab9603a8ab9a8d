"""The facade: scripts in, running queries out.

A `Session` keeps what has been declared (sources, views, queries), starts the queries as one job on Spark, and answers
single queries over bounded inputs. It works inside a SparkSession that exists already, or starts one when it must.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.algebra.nodes import leaves
from penstock.algebra.optimizer import TraceStep, optimize
from penstock.algebra.query import Query
from penstock.algebra.render import render
from penstock.algebra.scans import Scan, Source
from penstock.algebra.statistics import Statistics, known_statistics
from penstock.connectors.sinks.memory import collected
from penstock.errors import PenstockError, nearest
from penstock.explain import to_json, to_mermaid_side_by_side, to_text
from penstock.expressions.user import UserAggregate, UserDefined, UserFunction, make
from penstock.language import Bound, Catalog, Explain, bind_query, bind_script
from penstock.physical.planner import plan_queries
from penstock.physical.render import render_plan
from penstock.physical.said_of_state import QueryState, query_state
from penstock.physical.strategies import Strategy
from penstock.redaction import redacted_text
from penstock.settings import Settings
from penstock.types import CALENDAR, Interval, Schema, TimeDomain, Unit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.runtime.analyze import Analysis
    from penstock.runtime.spark.job import SparkRun
    from penstock.runtime.spark.launch import Work

FORMATS = ("text", "json", "mermaid")


@dataclass(frozen=True)
class Execution:
    """What a script did. queries: the names it created; texts: the answers to its EXPLAIN and SHOW, in order."""

    queries: tuple[str, ...]
    texts: tuple[str, ...]


class Session:
    """Declared streams, relations, views and queries, and the runs of them.

    spark: a SparkSession to live in; without one, the first run starts its own. master: for a session of our own.
    """

    def __init__(
        self, spark: SparkSession | None = None, settings: Settings | None = None, master: str | None = None
    ) -> None:
        self.catalog = Catalog()
        self.settings = settings or Settings()
        self._spark = spark
        self._master = master
        self._frames: dict[str, Any] = {}

    # -- declaring ---------------------------------------------------------------------------------------------

    def execute(self, script: str, file: str | None = None) -> Execution:
        """Read and bind a whole script and declare what it says; nothing runs yet. Raises ScriptErrors, and then
        nothing has been declared."""
        bound = bind_script(script, self.catalog, self.settings, file)
        texts = [self._answer(action, bound) for action in bound.actions]
        self.catalog, self.settings = bound.catalog, bound.settings
        return Execution(tuple(q.name for q in bound.queries), tuple(texts))

    def declare(self, script: str, file: str | None = None) -> tuple[str, ...]:
        """As `execute`, but its EXPLAIN and SHOW are not answered; returns the names of the queries."""
        bound = bind_script(script, self.catalog, self.settings, file)
        self.catalog, self.settings = bound.catalog, bound.settings
        return tuple(q.name for q in bound.queries)

    def stream(self, name: str, df: Any, timestamp: str, unit: str = "SECOND", order_within: str | None = None) -> None:
        """Declare a DataFrame (streaming or static) or an Arrow table as a stream. timestamp: its timestamp column;
        unit: what an integer timestamp counts; order_within: its slack, such as '5 SECONDS'."""
        columns = self._columns(name, df)
        position, domain = _timestamp(name, columns, timestamp, unit)
        slack = domain.ticks(_interval(order_within)) if order_within else 0
        self._declare(Source(name, True, columns, "DATAFRAME", (), position, domain, slack), df)

    def relation(
        self, name: str, df: Any, timestamp: str | None = None, operation: str | None = None, unit: str = "SECOND",
        primary_key: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Declare a static DataFrame or Arrow table as a relation, or with `timestamp` any DataFrame as its updates;
        operation: the column that holds `+` or `-`; primary_key: the columns that no two rows share."""
        columns = self._columns(name, df)
        key = tuple(_position(name, columns, column) for column in primary_key)
        if timestamp is None:
            if _streams(df):
                raise PenstockError(
                    "P0209", f"relation {name}: a streaming DataFrame needs timestamp=... for its updates"
                )
            self._declare(Source(name, False, columns, "DATAFRAME", primary_key=key), df)
            return
        position, domain = _timestamp(name, columns, timestamp, unit)
        op = None if operation is None else _position(name, columns, operation)
        if {position, op} & set(key):
            raise PenstockError("P0210", f"{name}: the timestamp and the operation are no part of a primary key")
        source = Source(name, False, columns, "DATAFRAME", (), position, domain, operation=op, primary_key=key)
        self._declare(source, df)

    def function(
        self, returns: str | pa.DataType, parameters: Sequence[str | pa.DataType] | None = None,
        name: str | None = None, volatile: bool = False,
    ) -> Callable[[Callable[..., Any]], UserFunction]:  # fmt: skip
        """Decorator: makes a Python function of Arrow arrays a function of this session's scripts; as
        `penstock.function`, which is for all sessions."""

        def register(body: Callable[..., Any]) -> UserFunction:
            made: UserFunction = make(UserFunction, body, returns, name, parameters, volatile)
            self._define(made)
            return made

        return register

    def aggregate(
        self, returns: str | pa.DataType, parameters: Sequence[str | pa.DataType] | None = None, name: str | None = None
    ) -> Callable[[Any], UserAggregate]:
        """Decorator: makes a class with init, update, final, and if it can merge and expire, an aggregate of this
        session's scripts; as `penstock.aggregate`, which is for all sessions."""

        def register(body: Any) -> UserAggregate:
            made: UserAggregate = make(UserAggregate, body, returns, name, parameters)
            self._define(made)
            return made

        return register

    def _define(self, user: UserDefined) -> None:
        if user.key in self.catalog.functions:
            raise PenstockError("P0206", f"{user.name} is declared already", hint=f"DROP {user.kind} {user.name} first")
        self.catalog = self.catalog.with_function(user)

    def _declare(self, source: Source, df: Any) -> None:
        if source.name in self.catalog:
            raise PenstockError("P0206", f"{source.name} is declared already")
        if isinstance(df, pa.Table):
            from penstock.runtime.spark.frames import plain_table

            df = plain_table(df, source.columns)
        self.catalog = self.catalog.with_source(source)
        self._frames[source.name] = df

    def _columns(self, name: str, df: Any) -> Schema:
        from penstock.runtime.spark import frames

        if isinstance(df, pa.Table):
            return frames.arrow_columns(name, df.schema)
        if frames.is_frame(df):
            self._spark = self._spark or df.sparkSession
            return frames.frame_schema(name, df)
        kind = f"{type(df).__module__}.{type(df).__name__}".removeprefix("builtins.")
        hint = "pyarrow.Table.from_pandas(df) makes one" if kind.startswith("pandas.") else None
        raise PenstockError("P0203", f"{name}: a Spark DataFrame or an Arrow table is wanted, not {kind}", hint=hint)

    # -- explaining --------------------------------------------------------------------------------------------

    def explain(self, query: str, format: str = "text", analyze: bool = False) -> str:  # noqa: A002 - the door's word
        """The plans of a declared query by name. format: text, json or mermaid. analyze: run it in this process over
        its inputs, which must be bounded, and show what every operator of the physical plan did."""
        found = self._declared(query)
        known = self.statistics(found, self.catalog, self.settings)
        ran = self._analyzed(found, self.catalog.memory, self.settings, known) if analyze else None
        return explain(found, format, known, ran, Strategy.of(self.settings))

    def _analyzed(self, query: Query, rows: Mapping[str, Any], settings: Settings, known: Statistics) -> Analysis:
        from penstock.runtime.analyze import analyze

        shards = settings.get_int("shards") or 1
        return analyze([query], rows, self._frames, shards, known, Strategy.of(settings))

    def state(self, query: str) -> QueryState:
        """What state a declared query will keep: whether it is bounded, by what, and about how large."""
        found = self._declared(query)
        known = self.statistics(found, self.catalog, self.settings)
        return query_state(found, known, Strategy.of(self.settings))

    def _declared(self, query: str) -> Query:
        found = self.catalog.queries.get(query.lower())
        if found is None:
            hint = nearest(query, [q.name for q in self.catalog.queries.values()])
            raise PenstockError("P0201", f"unknown query {query}", hint=hint)
        return found

    def query(self, text: str) -> QueryHandle:
        """A query of its own, not declared."""
        return QueryHandle(self, bind_query(text, self.catalog, self.settings))

    def statistics(self, query: Query, catalog: Catalog, settings: Settings) -> Statistics:
        """What is known of the sources of `query` before it runs."""
        sources = {leaf.source.name: leaf.source for leaf in leaves(query.root) if isinstance(leaf, Scan)}
        return known_statistics(sources, catalog.memory, self._frames, settings["statistics"])

    def _answer(self, action: Any, bound: Bound) -> str:
        if isinstance(action, Explain):
            known = self.statistics(action.query, bound.catalog, bound.settings)
            ran = self._analyzed(action.query, action.memory, action.settings, known) if action.analyze else None
            return explain(action.query, "text", known, ran, Strategy.of(action.settings))
        return "\n".join(redacted_text(text or name) for name, text in action.entries)

    # -- running -----------------------------------------------------------------------------------------------

    @property
    def spark(self) -> SparkSession:
        """The SparkSession; started now if there is none."""
        if self._spark is None:
            from penstock.runtime.spark.session import start_spark

            self._spark = start_spark(self._master, settings=self.settings.spark)
        return self._spark

    def start(
        self, checkpoint: str | None = None, drain: bool = False, overwrite: bool = False,
        queries: Sequence[str] | None = None, backfill: bool = False,
    ) -> SparkRun:  # fmt: skip
        """Start the declared queries (or those named) as one job. checkpoint: a folder to resume from; without one the
        run is ephemeral and refuses to write into a result that exists, unless `overwrite`. backfill: queries that the
        checkpoint does not know, or not like this, read the past of their sources before they join the others; without
        it they begin here, and the run's `notices` say so."""
        known = self.catalog.queries
        chosen = [known[n.lower()] for n in queries] if queries is not None else list(known.values())
        if not chosen:
            raise PenstockError("P0201", "the script creates no query", hint="CREATE QUERY name INTO ... AS SELECT ...")
        from penstock.runtime.spark.launch import launch

        return launch(replace(self._work(chosen, drain), backfill=backfill), checkpoint, overwrite)

    def _work(self, queries: Sequence[Query], drain: bool) -> Work:
        from penstock.runtime.spark.launch import Work

        return Work(tuple(queries), self.catalog.memory, self._frames, self.settings, drain, lambda: self.spark)


class QueryHandle:
    """One query over a session's declarations."""

    def __init__(self, session: Session, query: Query) -> None:
        self._session = session
        self._query = query

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the door's word
        """The logical and the physical plan. format: text, json or mermaid."""
        session = self._session
        statistics = session.statistics(self._query, session.catalog, session.settings)
        return explain(self._query, format, statistics, None, Strategy.of(session.settings))

    def collect(self, drain: bool = False) -> pa.Table:
        """The whole answer over bounded inputs, as an Arrow table; DataFrame streams are read as far as they go."""
        from penstock.runtime.spark.launch import launch

        run = launch(self._session._work([self._query], drain), None, False)
        if any(_streams(df) for df in self._session._frames.values()):
            run.end_frames()
        run.wait()
        return collected(self._query.name)

    def to_dataframe(self, folder: str | None = None) -> DataFrame:
        """A streaming DataFrame of the answer, for any Spark sink. folder: where the readers keep what they know; give
        one beside the sink's checkpoint to resume, else it is temporary. It belongs to a Spark session of its own (its
        settings are the job's): what a sink calls by name, and the queries that run, are found by `.sparkSession`."""
        from penstock.runtime.spark.launch import answer_frame

        place = Path(folder or tempfile.mkdtemp(prefix="penstock-"))
        return answer_frame(self._session._work([self._query], False), place)


def explain(
    query: Query, format: str = "text", statistics: Statistics | None = None,  # noqa: A002 - the door's word
    ran: Analysis | None = None, strategy: Strategy = Strategy.PATTERN,
) -> str:  # fmt: skip
    """The optimised logical plan and the physical plan of a query, ordered by what is known of its sources. ran: a run
    of it, whose figures are shown."""
    if format not in FORMATS:
        raise PenstockError("P0104", f"explain has no format {format}", hint=nearest(format, FORMATS))
    trace: list[TraceStep] = []
    root = optimize(query.root, trace, planning=strategy.planning(statistics))
    logical = render(root)
    if ran is None:
        physical = render_plan(plan_queries([replace(query, root=root)], statistics, strategy), query.name)
    else:
        physical = render_plan(ran.plan, query.name, ran.meter, ran.statics)
    state = query_state(query, statistics or Statistics(), strategy)
    if format == "json":
        choices = json.dumps([_choice(step, costs) for step in trace if (costs := step.costs)])
        return (
            f'{{"query": {json.dumps(query.name)},\n"logical": {to_json(logical)},\n"choices": {choices},\n'
            f'"physical": {to_json(physical)},\n"state": {json.dumps(state.as_json(), indent=2)}}}\n'
        )
    parts = [("logical plan", logical), ("physical plan" if ran is None else _ran(ran), physical)]
    if format == "mermaid":
        return to_mermaid_side_by_side([(f"{query.name}: {title}", tree) for title, tree in parts])
    texts = [(title, to_text(tree)) for title, tree in parts]
    # The same move may have been thought of again once columns were pruned.
    told = dict.fromkeys(_choice_text(step, costs) for step in trace if (costs := step.costs))
    if told:
        texts.insert(1, ("choices by cost", "".join(f"{line}\n" for line in told)))
    texts.append(("state", state.text()))
    return "\n".join(f"-- {query.name}: {title}\n{text}" for title, text in texts)


def _choice(step: TraceStep, costs: tuple[float, float]) -> dict[str, Any]:
    return {"rule": step.rule, "taken": step.taken, "cost_before": costs[0], "cost_after": costs[1]}


def _choice_text(step: TraceStep, costs: tuple[float, float]) -> str:
    """A plan that was thought of: what it costs, and the plan that it would replace."""
    verdict = "taken" if step.taken else "left"
    return f"{step.rule}: {verdict}, {costs[1]:.4g} elements/s handled instead of {costs[0]:.4g}"


def _ran(ran: Analysis) -> str:
    return f"physical plan, as it ran in {ran.seconds:.3f} s"


def _streams(df: Any) -> bool:
    return bool(getattr(df, "isStreaming", False))


def _position(name: str, columns: Schema, column: str) -> int:
    found = columns.index(column)
    if found is None:
        raise PenstockError("P0202", f"{name} has no column {column}", hint=nearest(column, columns.names))
    return found


def _timestamp(name: str, columns: Schema, column: str, unit: str) -> tuple[int, TimeDomain]:
    position = _position(name, columns, column)
    kind = columns[position].type
    if pa.types.is_timestamp(kind):
        return position, CALENDAR
    known = Unit.parse(unit)
    if not pa.types.is_integer(kind) or known not in (Unit.SECOND, Unit.MILLISECOND, Unit.MICROSECOND):
        raise PenstockError(
            "P0209", f"{name}: the timestamp column {column} is {kind} with unit {unit}",
            hint="a TIMESTAMP, or an integer with unit SECOND, MILLISECOND or MICROSECOND",
        )  # fmt: skip
    return position, TimeDomain(known, False)


def _interval(text: str) -> Interval:
    found = Interval.parse(text)
    if found is None:
        raise PenstockError("P0102", f"{text!r} is no interval", hint="write it as '5 SECONDS'")
    return found
