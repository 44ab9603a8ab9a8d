"""The plan that runs: operators, what they hold, what flows between them, and how the work is divided over shards.

An operator goes by its key, which stays as long as it computes the same. Rows and seconds are since the start of the
process; state is as of the last measurement, which the workers make as often as it costs little.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from penstock.control.entities.attributes import (
    COUNT,
    FLAG,
    MOMENT,
    REAL,
    TEXT,
    Attribute,
    AttributeSetting,
    ControlRelation,
    Origin,
    set_in_query,
    unmeasured,
)
from penstock.control.entities.queries import moment_of
from penstock.control.entities.system import SystemView
from penstock.errors import PenstockError
from penstock.language.binder.statements.attributes import NONE
from penstock.language.statements import Statement
from penstock.physical.plan.plan import Edge, Step
from penstock.physical.plan.step_choices import JOIN_ORDER, SHARED, open_choices
from penstock.runtime.monitoring.figures import NO_SHARD, EdgeFlow, StepWork
from penstock.types import TimeDomain

_TASKS = Origin.TASKS


def operator_id(key: str) -> str:
    """Return the id of the entity of an operator."""
    return f"operator:{key}"


@dataclass(frozen=True)
class OperatorRow:
    """A step of the plan."""

    view: SystemView
    step: Step

    @property
    def key(self) -> str:
        return self.view.figures.run.keys[self.step.id]

    @property
    def readers(self) -> tuple[str, ...]:
        return self.view.readers[self.step.id]

    @property
    def works(self) -> list[StepWork]:
        return self.view.work_of_steps.get(self.key, [])

    @property
    def rows_in(self) -> int | None:
        return sum(work.rows_in for work in self.works) if self.works else None

    @property
    def rows_out(self) -> int | None:
        return sum(work.rows_out for work in self.works) if self.works else None

    @property
    def selectivity(self) -> float | None:
        return None if not self.rows_in or self.rows_out is None else self.rows_out / self.rows_in

    @property
    def seconds(self) -> float | None:
        return self.view.seconds_of_steps.get(self.key)

    @property
    def joint_errors(self) -> int | None:
        return sum(work.joint_errors for work in self.works) if self.works else None

    @property
    def nanoseconds_per_row(self) -> float | None:
        return None if not self.rows_in or self.seconds is None else 1e9 * self.seconds / self.rows_in

    @property
    def state(self) -> tuple[int, int] | None:
        return self.view.state_of_steps.get(self.key)

    @cached_property
    def maturity(self) -> tuple[bool, int | None] | None:
        return self.view.maturity(self.step)

    @property
    def plan_key(self) -> str | None:
        return self.step.choices.operator or None

    @property
    def join_order(self) -> str | None:
        order = self.step.choices.order
        return None if order is None else order.text

    @property
    def is_sharable(self) -> bool | None:
        return None if self.step.spec.answered is not None else not self.step.choices.owner

    @property
    def chosen(self) -> str | None:
        names = [one.attribute for one in open_choices(self.step.choices) if one.is_chosen]
        return ", ".join(names) or None

    @property
    def spec(self) -> str:
        """Return its parameters, as EXPLAIN shows them."""
        shown, domain = self.step.spec.describe().items(), self.view.domain_of(self.readers)
        return "; ".join(
            f"{name}: {value if isinstance(value, str) else _parameter(value, domain)}" for name, value in shown
        )


def _parameter(value: object, domain: TimeDomain | None) -> str:
    parts = value if isinstance(value, tuple) else (value,)
    return ", ".join(part if isinstance(part, str) else part.show(domain) for part in parts)


def _operators(view: SystemView) -> Iterable[OperatorRow]:
    return [OperatorRow(view, step) for step in view.steps]


def plan_statements(view: SystemView, step: Step, operator: str, attribute: str, value: str) -> list[Statement]:
    """Return the statements that choose something of a step, one for each query that uses it. value: as text; the
    planner's for NULL."""
    chosen = None if value.lower() in (NONE, "default") else value
    text = json.dumps({operator: {attribute: chosen}}, ensure_ascii=False)
    return [set_in_query(one.stored.name, "plan", text) for one in view.of_plan(step)]


def _set_order(row: OperatorRow, value: str) -> list[Statement]:
    order = row.step.choices.order
    if order is None:
        hint = "a join of three inputs or more has an order; one of two inputs has none"
        raise PenstockError("P0752", f"operator {row.step.spec.title} joins no inputs in an order", hint=hint)
    return plan_statements(row.view, row.step, order.operator, JOIN_ORDER, value)


def _set_shared(row: OperatorRow, value: str) -> list[Statement]:
    if row.is_sharable is None:
        raise PenstockError("P0752", f"operator {row.step.spec.title} answers one query, and is never shared")
    return plan_statements(row.view, row.step, row.step.choices.operator, SHARED, value)


def _readers(row: OperatorRow) -> int:
    return len(row.readers)


PLAN_APPLIED = "ALTER QUERY .. SET (plan ..), of every query that uses it"
_PLAN_ORDER: AttributeSetting[OperatorRow] = AttributeSetting(_set_order, PLAN_APPLIED, NONE, _readers)
_PLAN_SHARED: AttributeSetting[OperatorRow] = AttributeSetting(_set_shared, PLAN_APPLIED, NONE, _readers)

OPERATORS: ControlRelation[OperatorRow] = ControlRelation(
    "operators",
    "The operators of the plan that runs, each once however many queries use it.",
    (
        Attribute("id", TEXT, "the id of its entity", lambda row: operator_id(row.key)),
        Attribute("kind", TEXT, "what it does, as EXPLAIN names it", lambda row: row.step.spec.title, _TASKS),
        Attribute("key", TEXT, "the key of its state, the same as long as it computes the same", lambda row: row.key),
        Attribute("stage", COUNT, "0: beside the readers; 1 and more: by key, in shards", lambda row: row.step.stage),
        Attribute(
            "since_tick",
            COUNT,
            "the tick after which it has seen its input; NULL where it has seen all of it",
            lambda row: None if row.maturity is None else row.maturity[1],
            Origin.RUN,
            "ticks",
        ),
        Attribute(
            "mature",
            FLAG,
            "whether its state is that of one that was always there; NULL before its time begins",
            lambda row: None if row.maturity is None else row.maturity[0],
            Origin.RUN,
        ),
        Attribute("pattern", TEXT, "the update pattern of its output", lambda row: row.step.pattern or None),
        Attribute("queries", COUNT, "how many queries use it", lambda row: len(row.readers)),
        Attribute(
            "counted_since",
            MOMENT,
            "when its process began to count: since then are its rows and seconds",
            lambda row: moment_of(row.view.figures.run.since),
            _TASKS,
        ),
        Attribute(
            "rows_in",
            COUNT,
            "rows received, without those that it reads in place in another operator; of a"
            " scan, those that its readers passed on",
            lambda row: row.rows_in,
            _TASKS,
            "rows",
        ),
        Attribute("rows_out", COUNT, "rows emitted", lambda row: row.rows_out, _TASKS, "rows"),
        Attribute("selectivity", REAL, "rows_out divided by rows_in", lambda row: row.selectivity, _TASKS),
        Attribute(
            "seconds",
            REAL,
            "work of all shards; NULL in stage 0, which is measured as a whole",
            lambda row: row.seconds,
            _TASKS,
            "seconds",
        ),
        Attribute(
            "ns_per_row",
            REAL,
            "the same for each row received",
            lambda row: row.nanoseconds_per_row,
            _TASKS,
            "nanoseconds",
        ),
        Attribute(
            "joint_errors",
            COUNT,
            "turns that it took alone, since the call that advances it with others like it"
            " failed; the answer is the same",
            lambda row: row.joint_errors,
            _TASKS,
        ),
        Attribute(
            "state_rows",
            COUNT,
            "rows of its synopses; NULL without state",
            lambda row: None if row.state is None else row.state[0],
            _TASKS,
            "rows",
        ),
        Attribute(
            "state_bytes",
            COUNT,
            "their bytes",
            lambda row: None if row.state is None else row.state[1],
            _TASKS,
            "bytes",
        ),
        unmeasured("chain", COUNT, "its chain; comes with scheduling"),
        unmeasured("priority", REAL, "its priority; comes with scheduling"),
        unmeasured("policy", TEXT, "comes with scheduling"),
        unmeasured("sample", REAL, "comes with approximation"),
        unmeasured("memory", COUNT, "comes with approximation"),
        Attribute("spec", TEXT, "its parameters", lambda row: row.spec),
        Attribute(
            "plan_key",
            TEXT,
            "what choices of its kind and sharing go by in the attribute `plan` of queries: the"
            " same for all queries that compute the same, whatever is chosen",
            lambda row: row.plan_key,
        ),
        Attribute(
            "join_order",
            TEXT,
            "of a join of many inputs, or a join of the tree that it runs as, the order in"
            " which the inputs are joined; NULL for others",
            lambda row: row.join_order,
            setting=_PLAN_ORDER,
        ),
        Attribute(
            "shared",
            FLAG,
            "whether it may be shared with other queries; NULL for what answers one",
            lambda row: row.is_sharable,
            setting=_PLAN_SHARED,
        ),
        Attribute("chosen", TEXT, "which of these are chosen, instead of the planner's", lambda row: row.chosen),
    ),
    _operators,
    kind="operator",
    key=lambda row: row.key,
    title=lambda row: row.step.spec.title,
)


@dataclass(frozen=True)
class QueryOperatorRow:
    """A query that uses an operator."""

    query: str
    operator: str


QUERY_OPERATORS: ControlRelation[QueryOperatorRow] = ControlRelation(
    "query_operators",
    "Which query uses which operator: what is shared, and by whom.",
    (
        Attribute("query", TEXT, "the name of the query", lambda row: row.query),
        Attribute("operator", TEXT, "the id of the operator", lambda row: row.operator),
    ),
    lambda view: [QueryOperatorRow(query, operator_id(row.key)) for row in _operators(view) for query in row.readers],
)


@dataclass(frozen=True)
class OperatorShardRow:
    """A step in a shard."""

    view: SystemView
    key: str
    shard: int
    work: StepWork

    @property
    def state(self) -> tuple[int, int] | None:
        return self.view.state_of_shards.get((self.key, self.shard))


def _operator_shards(view: SystemView) -> Iterable[OperatorShardRow]:
    kept = set(view.figures.run.keys.values())
    found = sorted(view.figures.run.work.items(), key=lambda item: item[0])
    return [OperatorShardRow(view, key, shard, work) for (key, shard), work in found if key in kept]


OPERATOR_SHARDS: ControlRelation[OperatorShardRow] = ControlRelation(
    "operator_shards",
    "The same by shard: how evenly the work is divided.",
    (
        Attribute("operator", TEXT, "the id of the operator", lambda row: operator_id(row.key)),
        Attribute(
            "shard",
            COUNT,
            "its number; NULL in stage 0, whose tasks have none",
            lambda row: None if row.shard == NO_SHARD else row.shard,
        ),
        Attribute("rows_in", COUNT, "rows received", lambda row: row.work.rows_in, _TASKS, "rows"),
        Attribute("rows_out", COUNT, "rows emitted", lambda row: row.work.rows_out, _TASKS, "rows"),
        Attribute("seconds", REAL, "work; NULL in stage 0", lambda row: row.work.seconds, _TASKS, "seconds"),
        Attribute(
            "state_rows",
            COUNT,
            "rows of state; NULL without any",
            lambda row: None if row.state is None else row.state[0],
            _TASKS,
            "rows",
        ),
        Attribute(
            "state_bytes",
            COUNT,
            "bytes of state",
            lambda row: None if row.state is None else row.state[1],
            _TASKS,
            "bytes",
        ),
    ),
    _operator_shards,
)


@dataclass(frozen=True)
class EdgeRow:
    """An edge of the plan: port `port` of the step `to`."""

    view: SystemView
    to: Step
    port: int
    edge: Edge

    @property
    def to_key(self) -> str:
        return self.view.figures.run.keys[self.to.id]

    @property
    def from_key(self) -> str:
        return self.view.figures.run.keys[self.edge.step]

    @property
    def flow(self) -> EdgeFlow | None:
        return self.view.figures.run.edges.get((self.to_key, self.port))

    @property
    def exchange(self) -> str | None:
        """Return how its rows are divided over shards; None within a stage."""
        exchange = self.edge.exchange
        if exchange is None:
            return None
        if exchange.everywhere:
            return "everywhere"
        if exchange.key is None:
            return "by sender"
        return f"columns {', '.join(map(str, exchange.key))}" if exchange.key else "one shard"

    @property
    def beat(self) -> int | None:
        """Return up to which tick its elements are complete: the heartbeat of the queries behind it."""
        beats = [self.view.heartbeat(self.view.figures.places.get(name, -1)) for name in self.to.queries]
        return max((beat for beat in beats if beat is not None), default=None)


def _edges(view: SystemView) -> Iterable[EdgeRow]:
    return [EdgeRow(view, step, port, edge) for step in view.steps for port, edge in enumerate(step.inputs)]


def _flowed(name: str, type_: str) -> Attribute[EdgeRow]:
    help_ = (
        "rows that have passed, without those that are read in place"
        if name != "bytes"
        else "bytes that have passed; NULL within a stage"
    )
    field = "bytes" if name == "bytes" else "rows"
    return Attribute(
        name, COUNT, help_, lambda row: None if row.flow is None else getattr(row.flow, field), _TASKS, type_
    )


PLAN_EDGES: ControlRelation[EdgeRow] = ControlRelation(
    "plan_edges",
    "The edges of the plan that runs.",
    (
        Attribute("from_operator", TEXT, "the id of the operator that emits", lambda row: operator_id(row.from_key)),
        Attribute("to_operator", TEXT, "the id of the operator that receives", lambda row: operator_id(row.to_key)),
        Attribute("port", COUNT, "its input, from 0 on", lambda row: row.port),
        Attribute(
            "exchange_key", TEXT, "how rows are divided over shards; NULL within a stage", lambda row: row.exchange
        ),
        _flowed("rows", "rows"),
        _flowed("bytes", "bytes"),
    ),
    _edges,
)

QUEUES: ControlRelation[EdgeRow] = ControlRelation(
    "queues",
    "The queues of the edges. A round runs every operator over all of its input, so none holds rows between rounds.",
    (
        Attribute("id", TEXT, "the id of its entity", lambda row: f"queue:{row.to_key}.{row.port}"),
        Attribute("from_operator", TEXT, "the id of the operator that emits", lambda row: operator_id(row.from_key)),
        Attribute("to_operator", TEXT, "the id of the operator that receives", lambda row: operator_id(row.to_key)),
        Attribute("port", COUNT, "its input, from 0 on", lambda row: row.port),
        Attribute("exchange", TEXT, "how rows are divided over shards; NULL within a stage", lambda row: row.exchange),
        Attribute("rows", COUNT, "rows that wait between rounds: none", lambda row: 0, Origin.CATALOG, "rows"),
        Attribute("bytes", COUNT, "their bytes: none", lambda row: 0, Origin.CATALOG, "bytes"),
        _flowed("count", "rows"),
        unmeasured("oldest_tick", COUNT, "the least tick that waits: none does between rounds"),
        Attribute(
            "heartbeat", COUNT, "up to which its elements are complete", lambda row: row.beat, Origin.RUN, "ticks"
        ),
        unmeasured("limit", COUNT, "rows that may wait: none do; a query sheds by its `memory` and `cpu`"),
        unmeasured("shed", REAL, "share that is dropped here: none; see `penstock.approximations`"),
        unmeasured("shed_rows", COUNT, "rows that were dropped here: none"),
    ),
    _edges,
    kind="queue",
    key=lambda row: f"{row.to_key}.{row.port}",
    title=lambda row: f"{row.to.spec.title}, input {row.port}",
)


@dataclass(frozen=True)
class StageRow:
    """A stage, or a stage in a shard."""

    view: SystemView
    stage: int
    shard: int | None

    @property
    def steps(self) -> list[Step]:
        return [step for step in self.view.steps if step.stage == self.stage]

    @property
    def state_bytes(self) -> int | None:
        keys = {self.view.figures.run.keys[step.id] for step in self.steps}
        sizes = [
            size.bytes
            for (key, shard, _), size in self.view.figures.run.synopses.items()
            if key in keys and self.shard in (None, shard)
        ]
        return sum(sizes) if sizes else None

    @property
    def seconds(self) -> float | None:
        spent = [
            seconds
            for (stage, shard), seconds in self.view.figures.run.stages.items()
            if stage == self.stage and self.shard in (None, shard)
        ]
        return sum(spent) if spent else None


def _stages(view: SystemView) -> Iterable[StageRow]:
    return [StageRow(view, stage, None) for stage in sorted({step.stage for step in view.steps})]


def _shards(view: SystemView) -> Iterable[StageRow]:
    stages = {step.stage for step in view.steps}
    found = sorted(pair for pair in view.figures.run.stages if pair[0] in stages and pair[1] != NO_SHARD)
    return [StageRow(view, stage, shard) for stage, shard in found]


_WORK: tuple[Attribute[StageRow], ...] = (
    Attribute("operators", COUNT, "how many operators it has", lambda row: len(row.steps)),
    Attribute("state_bytes", COUNT, "bytes of state; NULL without any", lambda row: row.state_bytes, _TASKS, "bytes"),
    Attribute(
        "seconds", REAL, "work of its tasks since the start of the process", lambda row: row.seconds, _TASKS, "seconds"
    ),
    unmeasured("policy", TEXT, "comes with scheduling"),
    unmeasured("budget", REAL, "comes with scheduling"),
)
_STAGE: Attribute[StageRow] = Attribute(
    "stage", COUNT, "0: beside the readers; 1 and more: by key, in shards", lambda row: row.stage
)

STAGES: ControlRelation[StageRow] = ControlRelation(
    "stages",
    "The stages of the plan that runs.",
    (_STAGE, *_WORK),
    _stages,
    kind="stage",
    key=lambda row: str(row.stage),
    title=lambda row: f"stage {row.stage}",
)

SHARDS: ControlRelation[StageRow] = ControlRelation(
    "shards",
    "The stages that are divided by key, by shard.",
    (_STAGE, Attribute("shard", COUNT, "its number", lambda row: row.shard), *_WORK),
    _shards,
    kind="stage",
    key=lambda row: f"{row.stage}@{row.shard}",
    title=lambda row: f"stage {row.stage}, shard {row.shard}",
)
