"""The physical plan: plain serialisable data that says which operator runs where.

A plan is a list of `Step`s in topological order, shared by all queries of a job. Stage 0 is the ingest: it runs next
to the readers, holds no state and sees one source's batch at a time. Stages 1, 2, ... are keyed: rows are cut over
shards by an `Exchange` on the way in. What a step does is told by its spec, one small class per operator; the operator
registry (`operators/__init__.py`) turns specs into operators.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from fractions import Fraction

import pyarrow as pa

from penstock.algebra.nodes.first_rows import SortKey
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.r2s import StreamKind
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.periods import Period
from penstock.expressions.nodes import Expression
from penstock.physical.plan.spec import PassingSpec as PassingSpec
from penstock.physical.plan.spec import Spec as Spec
from penstock.physical.planning.aggregate_layout import AggregateLayout
from penstock.physical.planning.ranges import Ranges, range_properties
from penstock.types import CALENDAR, TimeDomain


def queue_name(fifo: bool, listed: bool) -> str:
    """What explain calls the queue of expirations that `synopses.queues.make_queue` makes."""
    return "list" if listed else "FIFO" if fifo else "calendar queue"


def join_state(index: str, strict: tuple[bool, ...], listed: bool) -> str:
    """What explain calls the state of a join's inputs. index: what finds their elements."""
    ends = ", looked through for ends" if listed else ""
    return " / ".join(index + (", with negative tuples" if s else ends) for s in strict)


@dataclass(frozen=True)
class ScanSpec(PassingSpec):
    """The elements of a source, as the ingest stamps them. `columns`: positions of the declared columns read."""

    source: Source
    columns: tuple[int, ...]

    def describe(self) -> dict[str, str]:
        return {"source": self.source.name, "columns": ", ".join(self.source.columns[i].name for i in self.columns)}


@dataclass(frozen=True)
class StaticSpec(PassingSpec):
    """A relation that never changes, computed once before the start. `table` names it among the job's tables;
    hash: the columns its rows are cut over shards by."""

    table: str
    key: tuple[int, ...]

    def describe(self) -> dict[str, str]:
        return {"table": self.table}


class UpdateRule(enum.Enum):
    """What names a row of an updated relation, and what a row does whose name is there already."""

    BAG = "all columns"
    REPLACE = "primary key, replaced"
    UNIQUE = "primary key, unique"


@dataclass(frozen=True)
class UpdatesSpec(Spec):
    """Updates of the relation `source`, `+` and `-` by sign. key: the columns that tell rows apart (the primary key, or
    all but timestamp and operation); names: of all columns; once: a key may not be used again once deleted."""

    source: str
    key: tuple[int, ...]
    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    rule: UpdateRule
    once: bool = False

    def describe(self) -> dict[str, str]:
        return {"row": self.rule.value, "state": "the relation" + (", keys deleted" if self.once else "")}


@dataclass(frozen=True)
class FilterSpec(PassingSpec):
    predicate: Expression


@dataclass(frozen=True)
class ProjectSpec(PassingSpec):
    expressions: tuple[Expression, ...]


@dataclass(frozen=True)
class UnionSpec(PassingSpec):
    """All ports are one. together: what comes in a round becomes one batch."""

    together: bool = False


@dataclass(frozen=True)
class TimeWindowSpec(PassingSpec):
    """Validity [ts, ts+length), both ends rounded up to a multiple of slide; length None is unbounded."""

    length: int | None
    slide: int | None
    align: int = 0

    def describe(self) -> dict[str, str]:
        found = {"length": str(self.length) if self.length is not None else "unbounded"}
        if self.slide is not None:
            found["slide"] = str(self.slide)
        return found


@dataclass(frozen=True)
class NegativeTuplesSpec(Spec):
    """Elements without an end, and a negative tuple at the end of each. fifo: they expire in order of arrival."""

    fifo: bool


@dataclass(frozen=True)
class RowWindowSpec(Spec):
    """The last `rows` elements of every partition, as the algebra's `RowWindow` says; step is 1 without SLIDE in rows.
    arrival: elements are given in order of arrival; else those of one instant count in the order of their values."""

    types: tuple[pa.DataType, ...]
    rows: int
    step: int
    partition: tuple[int, ...]
    length: int | None
    slide: int | None
    align: int
    arrival: bool

    def describe(self) -> dict[str, str]:
        found = {"rows": str(self.rows)}
        if self.step > 1:
            found["step"] = str(self.step)
        if self.length is not None:
            found["length"] = str(self.length)
        if self.slide is not None:
            found["slide"] = str(self.slide)
        return {**found, "order": "arrival" if self.arrival else "values"}


@dataclass(frozen=True)
class SampleSpec(PassingSpec):
    """The elements that a draw of `percent` keeps; seed and name (of the stream) decide the draws."""

    percent: Fraction
    seed: int
    name: str

    def describe(self) -> dict[str, str]:
        return {"percent": f"{float(self.percent):g}", "seed": str(self.seed)}


@dataclass(frozen=True)
class AccumulatorRowsSpec(Spec):
    plan: AggregateLayout
    pre_aggregate: bool

    def describe(self) -> dict[str, str]:
        return {"panes": "yes" if self.pre_aggregate else "no"}


@dataclass(frozen=True)
class AggregateSpec(Spec):
    """fifo: the input's elements expire in order of arrival. input_types: of the lane rows."""

    plan: AggregateLayout
    fifo: bool
    input_types: tuple[pa.DataType, ...]
    listed: bool = False

    def describe(self) -> dict[str, str]:
        return {"state": queue_name(self.fifo, self.listed)}


@dataclass(frozen=True)
class DistinctSpec(Spec):
    """strict: negative tuples may come, so copies are counted; else δ* keeps one expiration per tuple."""

    types: tuple[pa.DataType, ...]
    strict: bool
    listed: bool = False

    @property
    def waits(self) -> bool:
        return self.strict

    def describe(self) -> dict[str, str]:
        return {"state": "counts" if self.strict else "list of all input" if self.listed else "δ*"}


class CopyRule(enum.Enum):
    """What a set operation makes of the copies of a tuple on either side."""

    EXCEPT_ALL = "EXCEPT ALL"
    INTERSECT_ALL = "INTERSECT ALL"
    EXCEPT = "EXCEPT"
    INTERSECT = "INTERSECT"


@dataclass(frozen=True)
class SetOperationSpec(Spec):
    """Port 0 is the left side, port 1 the right."""

    kind: CopyRule
    types: tuple[pa.DataType, ...]
    listed: bool = False

    def describe(self) -> dict[str, str]:
        return {"kind": self.kind.value, "state": "counts" + (", ends in a list" if self.listed else "")}


@dataclass(frozen=True)
class TopKSpec(Spec):
    """The first rows by `order`, which names every column; with `partition`, of all rows that agree in these columns.
    step: `local`, of one shard's rows, or `final`."""

    order: tuple[SortKey, ...]
    limit: int
    offset: int
    types: tuple[pa.DataType, ...]
    step: str = "final"
    listed: bool = False
    partition: tuple[int, ...] = ()

    def describe(self) -> dict[str, str]:
        found = {"limit": str(self.limit), "step": self.step, "state": "rows with counts"}
        if self.partition:
            found["of each"] = ", ".join(f"#{i}" for i in self.partition)
        return found | ({"offset": str(self.offset)} if self.offset else {})


@dataclass(frozen=True)
class JoinSpec(PassingSpec):
    """left_key, right_key: positions of the equi-join columns; strict: (left, right) may bring negative tuples;
    null_safe: a NULL key joins a NULL key."""

    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    left_types: tuple[pa.DataType, ...]
    right_types: tuple[pa.DataType, ...]
    residual: Expression | None
    strict: tuple[bool, bool]
    note: str = field(default="", compare=False)
    """why the plan has this join, for explain"""
    listed: bool = False
    null_safe: bool = False
    ranges: Ranges | None = None

    def describe(self) -> dict[str, str]:
        state = "runs by (key, range)" if self.ranges else join_state("hash index by key", self.strict, self.listed)
        return {"state": state, "chosen": self.note, **range_properties(self.ranges)}


@dataclass(frozen=True)
class MultiJoinSpec(PassingSpec):
    """Pipelined join. By input: the types of its columns; names, what explain calls it; strict, whether it may bring
    negative tuples; orders, in which order its elements probe the others. classes: as in `algebra.MultiJoin`; order
    and cost: what was chosen, and the tuples looked at per second that this is expected to cost."""

    types: tuple[tuple[pa.DataType, ...], ...]
    names: tuple[str, ...] = field(metadata={"transparent": True})
    strict: tuple[bool, ...]
    orders: tuple[tuple[int, ...], ...]
    classes: tuple[tuple[int | None, ...], ...]
    residual: Expression | None
    order: tuple[int, ...]
    cost: float = field(metadata={"transparent": True})
    note: str = field(default="", metadata={"transparent": True})
    listed: bool = False

    def describe(self) -> dict[str, str]:
        def shown(order: tuple[int, ...]) -> str:
            return ", ".join(self.names[i] for i in order)

        probes = "; ".join(f"{self.names[i]}: {shown(order)}" for i, order in enumerate(self.orders))
        return {
            "order": shown(self.order),
            "probes": probes,
            "cost": f"{self.cost:.4g} tuples/s",
            "state": join_state("runs by (key, ts)", self.strict, self.listed),
            "chosen": self.note,
        }


@dataclass(frozen=True)
class LookupSpec(PassingSpec):
    """Join with a static relation that every task holds whole. `static_left`: the table's columns come first."""

    table: str
    key: tuple[int, ...]
    table_key: tuple[int, ...]
    residual: Expression | None
    static_left: bool
    ranges: Ranges | None = None
    """of the elements and of the table, in this order"""

    def describe(self) -> dict[str, str]:
        return {"table": self.table, **range_properties(self.ranges)}


class Keep(enum.Enum):
    """What becomes of a tuple that has a partner, and of one that has none."""

    MATCHED = "with a partner"
    LONE = "without a partner"
    MARKED = "marked"
    PADDED = "pairs, or padded"


@dataclass(frozen=True)
class PartnerCountsSpec(Spec):
    """Port 0: tuples; port 1: the same tuples once per partner they have. LONE passes on those without a partner,
    MARKED all, with a last column that says which. types: of a tuple; single: the scalar subquery that must not have
    two partners for one tuple, or empty; domain: what its error tells the instant in."""

    types: tuple[pa.DataType, ...]
    keep: Keep
    single: str = ""
    domain: TimeDomain = CALENDAR
    listed: bool = False

    def describe(self) -> dict[str, str]:
        return {"keeps": self.keep.value, "state": "copies and partners by tuple"}


@dataclass(frozen=True)
class StaticPartnerCountsSpec(PassingSpec):
    """The partners of a tuple in a static relation that every task holds whole; nothing is stored of the tuples.
    table_types: of the static relation, whose columns PADDED appends."""

    table: str
    table_types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    table_key: tuple[int, ...]
    residual: Expression | None
    keep: Keep
    single: str = ""
    domain: TimeDomain = CALENDAR
    ranges: Ranges | None = None

    def describe(self) -> dict[str, str]:
        return {"table": self.table, "keeps": self.keep.value, **range_properties(self.ranges)}


class StreamMode(enum.Enum):
    """How an RSTREAM is evaluated."""

    BOUNDARIES = "boundaries"
    TICKS = "ticks"
    INSTANTS = "instants"


@dataclass(frozen=True)
class ChangesSpec(Spec):
    """ISTREAM, DSTREAM or (kind None) all changes. netted: equal tuples never come and go at one instant; grows: the
    relation brings no negative tuples, which follows from what lies below."""

    kind: StreamKind | None
    types: tuple[pa.DataType, ...]
    netted: bool
    fifo: bool
    listed: bool = False
    grows: bool = field(default=False, metadata={"transparent": True})

    @property
    def waits(self) -> bool:
        return not (self.kind is StreamKind.ISTREAM and self.grows)

    def describe(self) -> dict[str, str]:
        found = {"kind": self.kind.value if self.kind else "changes", "netting": "no need" if self.netted else "yes"}
        return found | ({"state": "list"} if self.listed else {})


@dataclass(frozen=True)
class DistinctChangesSpec(Spec):
    """ISTREAM, DSTREAM or (kind None) all changes of a DISTINCT whose input's expirations are known."""

    kind: StreamKind | None
    types: tuple[pa.DataType, ...]

    @property
    def waits(self) -> bool:
        return self.kind is not StreamKind.ISTREAM

    def describe(self) -> dict[str, str]:
        return {"kind": self.kind.value if self.kind else "changes", "state": "δ*"}


@dataclass(frozen=True)
class RStreamSpec(Spec):
    """RSTREAM. Port 0 is the relation; in mode `instants`, further ports bring the elements whose arrival is an
    evaluation instant; changes: so are changes of the relation, and, where it begins with them, its beginning."""

    types: tuple[pa.DataType, ...]
    mode: StreamMode
    slide: int = 1
    align: int = 0
    strict: bool = False
    begins: bool = True
    changes: bool = True

    @property
    def waits(self) -> bool:
        return self.strict or self.mode is not StreamMode.TICKS

    def describe(self) -> dict[str, str]:
        return {"evaluated": self.mode.value}


@dataclass(frozen=True)
class OutputSpec(PassingSpec):
    """The answer of a query: elements whose ts is the instant and whose sign says `+` or `-`."""

    query: str

    def describe(self) -> dict[str, str]:
        return {"query": self.query}


@dataclass(frozen=True)
class Exchange:
    """How the rows of an edge are cut over the shards of the receiving stage.

    key: columns hashed; () sends all to shard 0; None leaves rows where the sender's task number puts them.
    everywhere: a copy goes to every shard, which only a join with a relation of one row asks for.
    """

    key: tuple[int, ...] | None
    everywhere: bool = False


@dataclass(frozen=True)
class Edge:
    """An edge into a step: from which step, and over which exchange (None: within the stage)."""

    step: int
    exchange: Exchange | None = None


@dataclass(frozen=True)
class Step:
    """One operator of the plan. types: of its output columns; sources: the timed sources below, by name;
    queries: those that it works for, all born in the same epoch of a run; pattern and names: for explain."""

    id: int
    spec: Spec
    inputs: tuple[Edge, ...]
    stage: int
    types: tuple[pa.DataType, ...]
    sources: frozenset[str]
    pattern: str = ""
    names: tuple[str, ...] = ()
    queries: frozenset[str] = frozenset()
    birth: int = 0


@dataclass(frozen=True)
class Plan:
    """Steps of a whole job, inputs before consumers. statics: the static relations to compute first, as plans of their
    own (name -> plan); sources: the timed ones by name; queries by name; periods: how often each asks for answers;
    wanted: by source the condition of the rows that some query reads, over the declared columns (`wanted.py`); of a
    source that is not named all rows are read."""

    steps: tuple[Step, ...]
    queries: dict[str, Query]
    sources: dict[str, Source]
    statics: dict[str, Plan] = field(default_factory=dict)
    periods: dict[str, tuple[Period, ...]] = field(default_factory=dict)
    wanted: dict[str, Expression] = field(default_factory=dict)

    def waits(self, query: str) -> bool:
        """Return whether some step of `query` emits results of an instant only when all elements of it have come; else
        each result is emitted with the newest element that it is made of."""
        return any(step.spec.waits for step in self.steps if query in step.queries)

    @property
    def stages(self) -> int:
        """Number of keyed stages (at least 1: answers are put in order there)."""
        return max([1, *(s.stage for s in self.steps)])
