"""`penstock.queries`: the continuous queries; `penstock.approximations`: what is not exact in their answers, and what
is known of the error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from penstock.algebra.nodes.aggregate import Aggregate
from penstock.algebra.nodes.base import Algebra, operators
from penstock.algebra.nodes.coalesce import Coalesce
from penstock.algebra.nodes.frequent import Frequent
from penstock.algebra.nodes.session_window import SessionWindow
from penstock.algebra.nodes.shed import NO_BUDGET, Shed, StretchBudget
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.update_pattern import Pattern
from penstock.control.entities.attributes import (
    COUNT,
    MOMENT,
    REAL,
    TEXT,
    Attribute,
    AttributeSetting,
    ControlRelation,
    Origin,
    measured,
    set_in_query,
    unmeasured,
)
from penstock.control.entities.system import SystemView
from penstock.control.life.listed_query import ListedQuery, shown_change, shown_state
from penstock.errors import PenstockError
from penstock.figures import (
    ENDED_ON_ARRIVAL,
    OPEN_PERIODS,
    QUERY_LAG,
    QUERY_ROWS,
    QUERY_STATE_BYTES,
    QUERY_STATE_ROWS,
    WITHOUT_PERIOD,
)
from penstock.figures.figure import Figure
from penstock.language.binder.scalars.estimates import is_estimate
from penstock.language.binder.statements.attributes import QUERY_ATTRIBUTES
from penstock.language.queries import Name
from penstock.language.statements import AlterQueryStatement, Statement
from penstock.language.statements.alter_query import AlterAction, PauseAction, ResumeAction
from penstock.physical.planning.state_size.summary import query_state
from penstock.redaction import redacted_text
from penstock.runtime.monitoring.figures import quantile
from penstock.runtime.monitoring.metrics import PeriodMetrics, QueryMetrics, SheddingMetrics
from penstock.runtime.monitoring.shedding_log import shedding_text
from penstock.types import Interval, TimeDomain

#: Values of `state` that UPDATE may set, and the statement that leads there.
_STATES: dict[str, AlterAction] = {"PAUSED": PauseAction(), "RUNNING": ResumeAction()}


@dataclass(frozen=True)
class QueryRow:
    """A query and what is known of it."""

    view: SystemView
    listed: ListedQuery

    @property
    def name(self) -> str:
        return self.listed.stored.name

    @property
    def place(self) -> int:
        return self.listed.query.place

    @cached_property
    def metrics(self) -> QueryMetrics | None:
        found = (self.view.figures.metrics.queries.get(name) for name in self._plan_names)
        return next((one for one in found if one is not None), None)

    @cached_property
    def budget(self) -> Shed | StretchBudget | None:
        """Return its first budget; None where it has none."""
        root = None if self.listed.bound is None else self.listed.bound.root
        found = (_budget_of(node) for node in (() if root is None else operators(root)))
        return next((one for one in found if one is not None), None)

    @property
    def shedding(self) -> SheddingMetrics | None:
        return None if self.metrics is None else self.metrics.shedding

    @property
    def memory(self) -> str | None:
        """Return its budget as it is written."""
        if self.budget is None or self.budget.budget == NO_BUDGET:
            return None
        return f"{self.budget.budget}{' B' if self.budget.in_bytes else ' TUPLES'}"

    @property
    def _plan_names(self) -> list[str]:
        return [name for name, place in self.view.figures.places.items() if place == self.place]

    def latency(self, share: float) -> float | None:
        latencies = self.view.figures.run.latencies
        return next((quantile(latencies[name], share) for name in self._plan_names if name in latencies), None)

    @cached_property
    def started(self) -> tuple[int, int | None] | None:
        """Return when the command was accepted with which the query began last, in microseconds since 1970, and τ0."""
        found = self.view.begun(self.place)
        return None if found is None else (found.at, found.tick)

    @property
    def rate(self) -> float | None:
        """Return the rows a second that its sink receives."""
        if self.metrics is None:
            return None
        names = self._plan_names
        run = self.view.figures.run
        return run.rate(lambda batch: sum(batch.rows_out.get(name, 0) for name in names), self.view.now)

    @property
    def counted_since(self) -> datetime | None:
        began = None if self.started is None else self.started[0] / 1_000_000
        counted = self.view.figures.rows_since
        known = [one for one in (began, counted) if one is not None]
        return moment_of(max(known)) if known else None

    @cached_property
    def sizes(self) -> tuple[int, int, float] | None:
        """Return the bytes of state that only this query uses, those that it shares, each divided by its readers, and
        the seconds of work, divided alike; None before anything was measured."""
        steps = [step for step in self.view.steps if self.name in self.view.readers[step.id]]
        if not steps:
            return None
        keys, states, spent = self.view.figures.run.keys, self.view.state_of_steps, self.view.seconds_of_steps
        own, shared, seconds = 0, 0.0, 0.0
        for step in steps:
            readers, nbytes = len(self.view.readers[step.id]), states.get(keys[step.id], (0, 0))[1]
            own += nbytes if readers == 1 else 0
            shared += nbytes / readers if readers > 1 else 0.0
            seconds += spent.get(keys[step.id], 0.0) / readers
        return own, round(shared), seconds

    @property
    def share(self) -> float | None:
        total = sum(self.view.seconds_of_steps.values())
        return None if self.sizes is None or not total else self.sizes[2] / total

    @property
    def heartbeat_tick(self) -> int | None:
        return self.view.heartbeat(self.place)

    @property
    def heartbeat(self) -> int | None:
        """Return the heartbeat of a query whose time is the calendar's, in microseconds since 1970."""
        return in_calendar(self.heartbeat_tick, None if self.listed.bound is None else self.listed.bound.root.domain)

    @property
    def verdict(self) -> str | None:
        """Return what bounds its state, as a dry run has it."""
        return None if self.listed.bound is None else query_state(self.listed.bound, Statistics()).verdict

    def attribute(self, name: str) -> str | None:
        """Return an attribute as it was set, or its default."""
        option = QUERY_ATTRIBUTES.get(name)
        return self.listed.stored.attributes.get(name, None if option is None else option.default)


def _rows(view: SystemView) -> Iterable[QueryRow]:
    return [QueryRow(view, one) for one in view.listed]


def shedding_texts(view: SystemView) -> dict[str, str]:
    """Return by query with a budget the remark of SHOW QUERIES on its shedding."""
    rows = ((row.name, row.shedding) for row in _rows(view))
    return {name: shedding_text(figures) for name, figures in rows if figures is not None}


def _set_state(row: QueryRow, value: str) -> Statement:
    action = _STATES.get(value.upper())
    if action is None:
        message = f"state of query {row.name} cannot be set to {value!r}"
        raise PenstockError("P0752", message, hint="PAUSED or RUNNING")
    return AlterQueryStatement(Name(row.name, quoted=True), action)


def _option(name: str) -> AttributeSetting[QueryRow]:
    """Return how an attribute of QUERY_ATTRIBUTES is set."""
    option = QUERY_ATTRIBUTES.get(name)
    assert option is not None, "queries have it"

    def statement(row: QueryRow, value: str) -> Statement:
        return set_in_query(row.name, name, value)

    return AttributeSetting(statement, "ALTER QUERY .. SET", option.default)


def _text(name: str, help_: str) -> Attribute[QueryRow]:
    return Attribute(name, TEXT, help_, lambda row: row.attribute(name), setting=_option(name))


def _number(row: QueryRow, name: str) -> float | None:
    """Return an attribute as a number; a length of time in seconds, None for none."""
    option, text = QUERY_ATTRIBUTES.get(name), row.attribute(name)
    assert option is not None, "queries have it"
    value = None if text is None else option.type.read(text)
    return float(value.amount * value.unit.value / 1_000_000) if isinstance(value, Interval) else value


def in_calendar(tick: int | None, domain: TimeDomain | None) -> int | None:
    """Return a tick where it is an instant of the calendar, in microseconds since 1970."""
    return tick if domain is not None and domain.calendar and tick is not None and abs(tick) < 2**57 else None


def moment_of(seconds: float | None) -> datetime | None:
    """Return an instant of the wall clock, given in seconds since 1970."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _periods(figure: Figure) -> Attribute[QueryRow]:
    """Return the attribute of a figure of queries over periods."""

    def metrics(row: QueryRow) -> PeriodMetrics | None:
        return None if row.metrics is None else row.metrics.periods

    return measured(figure, metrics, help_=f"{figure.help}; NULL of a query without periods")


def _metrics(row: QueryRow) -> QueryMetrics | None:
    return row.metrics


_STATE_HELP = (
    "PENDING, HYDRATING, WAITING, RUNNING, PAUSED, FAILED, NEEDS ATTENTION or COMPLETED; "
    "set to PAUSED or RUNNING it pauses and resumes"
)

QUERIES: ControlRelation[QueryRow] = ControlRelation(
    "queries",
    "The continuous queries, those that are still to begin included.",
    (
        Attribute("name", TEXT, "its name", lambda row: row.name),
        Attribute(
            "id",
            TEXT,
            "the id of its entity; the number in it is never used again",
            lambda row: f"query:{row.listed.stored.id}",
        ),
        Attribute(
            "text", TEXT, "its SELECT as written, without secrets", lambda row: redacted_text(row.listed.stored.text)
        ),
        Attribute(
            "state",
            TEXT,
            _STATE_HELP,
            lambda row: shown_state(row.listed, row.view.version),
            setting=AttributeSetting(_set_state, "ALTER QUERY .. PAUSE and RESUME"),
        ),
        Attribute(
            "change",
            TEXT,
            "what takes over from it or its plan, and when, or for which rows it waits; or NULL",
            lambda row: shown_change(row.listed, row.view.version),
        ),
        Attribute(
            "kind",
            TEXT,
            "`stream` or `relation`",
            lambda row: (
                None if row.listed.bound is None else "stream" if row.listed.bound.root.is_stream else "relation"
            ),
        ),
        Attribute(
            "pattern",
            TEXT,
            "its update pattern: MONOTONIC, WEAKEST, WEAK or STRICT",
            lambda row: None if row.listed.bound is None else Pattern(row.listed.bound.root.pattern).name,
        ),
        Attribute(
            "weight",
            REAL,
            "importance: sinks of heavier queries are written first",
            lambda row: _number(row, "weight"),
            setting=_option("weight"),
        ),
        Attribute(
            "start",
            TEXT,
            "where its answer begins: NOW, WARM, BEGINNING or AT",
            lambda row: row.listed.query.answer.start.mode.value,
        ),
        Attribute(
            "started_at",
            MOMENT,
            "when the command was accepted with which it began last",
            lambda row: None if row.started is None else row.started[0],
            Origin.LOG,
        ),
        Attribute(
            "since_tick",
            COUNT,
            "the tick after which its answer misses nothing: τ0, or of START NOW how far one of its streams had been"
            " read; NULL where it began with its sources",
            lambda row: None if row.started is None else row.started[1],
            Origin.LOG,
            "ticks",
        ),
        Attribute(
            "heartbeat",
            MOMENT,
            "up to which its answer is final, where its time is that of the calendar",
            lambda row: row.heartbeat,
            Origin.RUN,
        ),
        Attribute("heartbeat_tick", COUNT, "the same in ticks", lambda row: row.heartbeat_tick, Origin.RUN, "ticks"),
        measured(QUERY_LAG, _metrics, Origin.RUN),
        Attribute(
            "share",
            REAL,
            "of one that is HYDRATING, which part of its past has been read",
            lambda row: row.listed.share,
            Origin.RUN,
        ),
        measured(QUERY_ROWS, _metrics, Origin.RUN),
        Attribute(
            "counted_since", MOMENT, "since when these rows are counted", lambda row: row.counted_since, Origin.RUN
        ),
        Attribute(
            "rows_per_second",
            REAL,
            "the rows of the last 10 seconds, in each of them",
            lambda row: row.rate,
            Origin.RUN,
            "rows per second",
        ),
        Attribute(
            "latency_p50",
            REAL,
            "from the start of a round to the end of the delivery of its rows: the median of"
            " the last 256 batches with rows",
            lambda row: row.latency(0.5),
            Origin.RUN,
            "seconds",
        ),
        Attribute(
            "latency_p99",
            REAL,
            "the same, exceeded by one in a hundred",
            lambda row: row.latency(0.99),
            Origin.RUN,
            "seconds",
        ),
        measured(QUERY_STATE_ROWS, _metrics),
        measured(QUERY_STATE_BYTES, _metrics),
        Attribute(
            "own_bytes",
            COUNT,
            "those of operators that no other query uses",
            lambda row: None if row.sizes is None else row.sizes[0],
            Origin.TASKS,
            "bytes",
        ),
        Attribute(
            "shared_bytes",
            COUNT,
            "those of shared operators, each divided by the number of its queries",
            lambda row: None if row.sizes is None else row.sizes[1],
            Origin.TASKS,
            "bytes",
        ),
        Attribute(
            "cpu_seconds",
            REAL,
            "work of its operators since the start of the process, that of shared ones"
            " divided by the number of their queries",
            lambda row: None if row.sizes is None else row.sizes[2],
            Origin.TASKS,
            "seconds",
        ),
        Attribute("cpu_share", REAL, "its part of the work of all operators", lambda row: row.share, Origin.TASKS),
        Attribute("verdict", TEXT, "what bounds its state, and about how large that is", lambda row: row.verdict),
        Attribute(
            "error",
            TEXT,
            "the code and message with which it failed",
            lambda row: f"{row.listed.query.code} {row.listed.query.message}" if row.listed.query.code else None,
        ),
        _text("on_failure", "what happens when a step or its sink fails: `pause` or `stop server`"),
        Attribute(
            "result_limit",
            COUNT,
            "bytes of answers computed and not delivered, beyond which it fails; NULL: the value of the setting",
            lambda row: _number(row, "result_limit"),
            unit="bytes",
            setting=_option("result_limit"),
        ),
        Attribute(
            "sink_retry",
            REAL,
            "how long a failing sink is tried again; NULL: the value of the setting",
            lambda row: _number(row, "sink_retry"),
            unit="seconds",
            setting=_option("sink_retry"),
        ),
        Attribute(
            "latency_target",
            REAL,
            "how long a batch may take; the least of all queries, and of the setting"
            " `target_latency`, sets how much a round reads",
            lambda row: _number(row, "latency_target"),
            unit="seconds",
            setting=_option("latency_target"),
        ),
        _text("comment", "a text for readers"),
        Attribute(
            "memory",
            TEXT,
            "what its coalescing holds at the most, as `10000 TUPLES` or `4096 B`; NULL without a"
            " budget. A part of its answer, so ALTER QUERY .. AS changes it",
            lambda row: row.memory,
        ),
        _periods(WITHOUT_PERIOD),
        _periods(ENDED_ON_ARRIVAL),
        _periods(OPEN_PERIODS),
        unmeasured("period", TEXT, "how often it is answered at least; comes with periodic queries"),
        Attribute("sink", TEXT, "the connector into which it writes", lambda row: row.listed.query.sink.connector),
    ),
    _rows,
    kind="query",
    key=lambda row: str(row.listed.stored.id),
    title=lambda row: row.name,
    confirms=True,
)


@dataclass(frozen=True)
class ApproximationRow:
    """Something that makes the answer of a query approximate. What was not measured yet is None.

    Args:
        shedding: the figures of a budget.
        known: of FREQUENT, the share of all counts that an item in no list can have; of an approximate call, the half
            width of its bounds as a share of their middle.
        in_place_of: the exact aggregate that a setting has replaced by it.
    """

    query: QueryRow
    technique: str
    reason: str
    shedding: SheddingMetrics | None = None
    known: float | None = None
    in_place_of: str | None = None

    @property
    def rate(self) -> float | None:
        """Return the share of tuples that were kept."""
        found = self.shedding
        return None if found is None or not found.arrived else 1 - found.shed / found.arrived

    @property
    def missing(self) -> float | None:
        return None if self.shedding is None else 1 - self.shedding.coverage_at_least

    def error(self, of: str) -> float | None:
        """Return 1 less a bound of the accuracy."""
        accuracy: float | None = None if self.shedding is None else getattr(self.shedding, of)
        return None if accuracy is None else 1 - accuracy

    @property
    def most(self) -> float | None:
        return self.error("accuracy_low") if self.known is None else self.known


def _approximations(view: SystemView) -> Iterable[ApproximationRow]:
    queries = (QueryRow(view, one) for one in view.listed)
    return [row for query in queries for row in {(r.technique, r.reason): r for r in _of_query(query)}.values()]


def _of_query(query: QueryRow) -> Iterator[ApproximationRow]:
    root = None if query.listed.bound is None else query.listed.bound.root
    for node in () if root is None else operators(root):
        budget = _budget_of(node)
        if budget is not None:
            policy = budget.policy if isinstance(budget, Shed) else "value"
            yield ApproximationRow(query, f"shed {policy}", _reason_of(budget), query.shedding)
        elif isinstance(node, Aggregate):
            replaced = node.replacements
            for call, accuracy in node.approximations.items():
                was = replaced.get(call)
                yield ApproximationRow(query, call, accuracy.text, known=accuracy.width, in_place_of=was)
            if any(map(is_estimate, node.aggregates)):
                measured = None if query.metrics is None else query.metrics.approximations
                width = None if measured is None else measured.estimate_width
                yield ApproximationRow(query, "ESTIMATE", "of the rows of a sample, without bias", known=width)
        elif isinstance(node, Frequent):
            found = None if query.metrics is None else query.metrics.frequent
            reason = f"{node.k} items of each pane are kept, with certain bounds"
            yield ApproximationRow(
                query, f"FREQUENT {node.k}", reason, known=None if found is None else found.missed_share
            )


def _budget_of(node: Algebra) -> Shed | StretchBudget | None:
    """Return the budget that a node is, or has."""
    if isinstance(node, Shed):
        return node
    return node.budget if isinstance(node, Coalesce | SessionWindow) else None


def _reason_of(shed: Shed | StretchBudget) -> str:
    """Return the budgets of shedding as text."""
    tuples = isinstance(shed, Shed) or not shed.compact
    kind = "bytes" if shed.in_bytes else "tuples" if tuples else "stretches or sessions that go on"
    found = [] if shed.budget == NO_BUDGET else [f"memory: at most {shed.budget:,} {kind} are held"]
    found += [f"cpu: at most {shed.cpu / 1e6:g} cores are used"] if shed.cpu else []
    found += ["state_limit: at most its part is held"] if shed.shares_limit else []
    return "; ".join(found)


APPROXIMATIONS: ControlRelation[ApproximationRow] = ControlRelation(
    "approximations",
    "Budgets beyond which queries shed, approximate aggregates and FREQUENT items, and what is known of their errors.",
    (
        Attribute("query", TEXT, "the name of the query", lambda row: row.query.name),
        Attribute("entity", TEXT, "the id of its entity", lambda row: QUERIES.id_of(row.query)),
        Attribute(
            "technique",
            TEXT,
            "`shed` and the policy, the call of an approximate aggregate, ESTIMATE, FREQUENT",
            lambda row: row.technique,
        ),
        Attribute(
            "rate", REAL, "share of the tuples that were kept since the beginning", lambda row: row.rate, Origin.TASKS
        ),
        unmeasured("from_tick", COUNT, "the first instant of an answer that is not exact"),
        unmeasured("until_tick", COUNT, "the last one"),
        unmeasured("fp", REAL, "share of what is answered that the exact answer lacks"),
        Attribute(
            "fn",
            REAL,
            "share of the covered time that is missing at the most, before the predicate: certain; 0"
            " where the answer lacks nothing",
            lambda row: row.missing,
            Origin.TASKS,
        ),
        Attribute(
            "error_low",
            REAL,
            "1 less the accuracy, as estimated: where its interval of 95 % begins",
            lambda row: row.error("accuracy_high"),
            Origin.TASKS,
        ),
        Attribute(
            "error_high",
            REAL,
            "where it ends; of FREQUENT the share of the counts in the window that an item in"
            " no list can have, certain; of an approximate aggregate half of what lies between its bounds of 95 %"
            " by their middle, NULL where that is not constant; of ESTIMATE the widest of its bounds emitted"
            " last, NULL where the query has none",
            lambda row: row.most,
            Origin.TASKS,
        ),
        Attribute(
            "in_place_of",
            TEXT,
            "the exact aggregate that `approximate_aggregates` has replaced by it",
            lambda row: row.in_place_of,
        ),
        Attribute("reason", TEXT, "why, and for an approximate aggregate its error", lambda row: row.reason),
    ),
    _approximations,
)
