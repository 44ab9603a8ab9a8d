"""The specs of joins, semi-joins and outer joins, with streams and with static relations."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self, cast

import pyarrow as pa

from penstock.algebra.nodes.base import column_labels
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.errors import counted
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import Expression
from penstock.physical.plan.aggregates import grouped_state
from penstock.physical.plan.joins.ranges import Ranges, RangeSpan, range_properties
from penstock.physical.plan.spec import (
    Memory,
    Parameter,
    PassingSpec,
    Spec,
    Ticks,
    has_one_form,
    queue_kinds,
    queue_name,
    with_queue,
)
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.plan.state.state_parts import (
    INDEX,
    SIGN,
    TIMES,
    StateInput,
    StatePart,
    all_rows,
    pending_ends,
    slots,
    width,
)
from penstock.physical.plan.step_choices import SynopsisKinds
from penstock.types import CALENDAR, TimeDomain

#: The parts of the state of a join, by port; that of a window store.
SIDES, STORED = ("left", "right"), "rows"
#: The kinds of synopses that a side of a join may have, the last where rows are compared by ranges.
INDEX_KINDS = ("HashJoinIndex", "SortedRuns", "IntervalRuns")
_INDEX_NAMES = dict(zip(INDEX_KINDS, ("hash index by key", "runs by (key, ts)", "runs by (key, range)"), strict=True))


def join_state(index: str, strict: tuple[bool, ...], listed: bool) -> str:
    """Return the name in EXPLAIN of the state of a join's inputs. index: what finds their elements."""
    ends = ", looked through for ends" if listed else ""
    return " / ".join(index + (", with negative tuples" if s else ends) for s in strict)


def residual_text(residual: Expression | None, names: Sequence[str]) -> dict[str, str]:
    """Return for EXPLAIN a condition over the joined row, whose columns are called `names`."""
    return {} if residual is None else {"where": to_sql(residual, names)}


@dataclass(frozen=True)
class JoinSpec(PassingSpec):
    """An equi-join. left_key, right_key: positions of the equi-join columns; strict: whether (left, right) may have
    negative tuples; null_safe: a NULL key joins a NULL key."""

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

    @property
    def memory(self) -> Memory:
        return Memory.LIVE

    @property
    def title(self) -> str:
        return "Join"

    @property
    def divides(self) -> bool:
        # Ranges find few partners among many rows.
        return self.ranges is None

    @property
    def index_kind(self) -> str:
        """Return the kind of synopsis of a side without a choice."""
        return "HashJoinIndex" if self.ranges is None else "IntervalRuns"

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        possible = INDEX_KINDS if self.ranges is not None else INDEX_KINDS[:2]
        return {side: SynopsisKinds(self.kind_of(port), possible) for port, side in enumerate(SIDES)}

    def kind_of(self, port: int) -> str:
        """Return the kind of synopsis of a side."""
        return self.index_kind

    def with_kinds(self, kinds: Mapping[str, str]) -> Self:
        chosen = tuple(kinds.get(side, self.kind_of(port)) for port, side in enumerate(SIDES))
        return cast(Self, ChosenJoinSpec(**{**vars(self), "chosen": chosen}))

    def describe(self) -> Mapping[str, Parameter]:
        state = "runs by (key, range)" if self.ranges else join_state("hash index by key", self.strict, self.listed)
        return {"state": state, "chosen": self.note, **range_properties(self.ranges)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        for one, side, strict in zip(inputs, ("left", "right"), self.strict, strict=True):
            yield all_rows(one, f"rows of the {side} side", TIMES + INDEX + (SIGN if strict else 0))

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        left, right = inputs
        pairs = zip(self.left_key, self.right_key, strict=True)
        return {"on": " AND ".join(f"{left[a]} = {right[b]}" for a, b in pairs), **residual_text(self.residual, made)}


@dataclass(frozen=True)
class ChosenJoinSpec(JoinSpec):
    """An equi-join for whose sides kinds of synopses are chosen. chosen: by side, the class."""

    chosen: tuple[str, str] = ("HashJoinIndex", "HashJoinIndex")

    def kind_of(self, port: int) -> str:
        return self.chosen[port]

    def describe(self) -> Mapping[str, Parameter]:
        own = join_state("", self.strict, self.listed).split(" / ")
        shown = (_INDEX_NAMES[kind] + rest for kind, rest in zip(self.chosen, own, strict=True))
        return {**super().describe(), "state": " / ".join(shown)}


@dataclass(frozen=True)
class DecidingExtreme:
    """The column of a side of which only the least value of equal rows decides, or the greatest."""

    column: int
    greatest: bool


@dataclass(frozen=True)
class ValueJoinSpec(JoinSpec):
    """A join of two relations that never lose a row, and of whose values the query leaves finitely many
    `[golab 2.2.1]`: by value the number of rows is stored in place of rows.

    Args:
        once: duplicates do not count: at least one copy of every different pair is emitted, and by value it is stored
            that there was a row.
        extremes: by side; with `once` alone.
        most: by side how many values there are.
    """

    once: bool = False
    extremes: tuple[DecidingExtreme | None, DecidingExtreme | None] = (None, None)
    most: tuple[int, int] = (0, 0)

    @property
    def title(self) -> str:
        return "ValueJoin"

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        return {}

    def describe(self) -> Mapping[str, Parameter]:
        shown = [self._stored(port) for port in range(len(SIDES))]
        return {**super().describe(), "state": " / ".join(shown)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        for port, (one, side) in enumerate(zip(inputs, SIDES, strict=True)):
            rows = min(one.size, float(self.most[port]))
            labels = column_labels(one.node.schema)
            extreme = self.extremes[port]
            names = [name for i, name in enumerate(labels) if extreme is None or i != extreme.column]
            values = f"at most {counted(self.most[port], 'value')}" + (f" of {', '.join(names)}" if names else "")
            bound = Boundedness(Grade.BOUNDED, values, length=None)
            nbytes = rows * (width(one.types) + TIMES + SIGN + INDEX)
            yield StatePart(f"{self._stored(port)} of the {side} side", rows, nbytes, bound)

    def _stored(self, port: int) -> str:
        extreme = self.extremes[port]
        if extreme is None:
            return "flags by value" if self.once else "counts by value"
        return f"{'greatest' if extreme.greatest else 'least'} by value"


@dataclass(frozen=True)
class PartneredSpec(JoinSpec):
    """The left tuples of an equi-join's pairs, at least once at every instant at which they have a partner. What is
    known of a tuple's pairs is put together while they are formed, so that few are held at once."""

    @property
    def divides(self) -> bool:
        # With a key it emits little: what is known of a tuple's pairs is one element.
        return not self.left_key and super().divides

    @property
    def title(self) -> str:
        return "Partnered"

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        return {}

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        return super().expressions_text(inputs, [name for side in inputs for name in side])


@dataclass(frozen=True)
class WindowStoreSpec(PassingSpec):
    """The rows of a stream for windows of any length over it, found by key [bulletin 2.2]. How long they are kept
    follows from the windows that are read here, so the length is no part of what the store is. Joins that take their
    results back need the rows that leave the longest window in the next instant, so these are kept too.

    Args:
        key: the columns by which rows are found.
        types: of the rows.
    """

    keeps_rows: ClassVar[bool] = True

    key: tuple[int, ...]
    types: tuple[pa.DataType, ...]

    @property
    def memory(self) -> Memory:
        return Memory.LIVE

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        """Return what the joins that read it may have in its place: with another kind they store their sides."""
        return {STORED: SynopsisKinds("HashJoinIndex", INDEX_KINDS[:2])}

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": "hash index by key, of the longest window"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return [all_rows(made, "rows of the longest window", TIMES + INDEX)]


@dataclass(frozen=True)
class StoreJoinSpec(JoinSpec):
    """An equi-join one or both of whose sides are windows over a window store.

    windows: by side the length of the window in ticks, None for a side that the join stores itself.
    """

    reads: ClassVar[bool] = True
    varying: ClassVar[frozenset[str]] = frozenset({"windows"})

    windows: tuple[int | None, int | None] = (None, None)

    def reads_port(self, port: int) -> bool:
        return self.windows[port] is not None

    def read_length(self, port: int) -> int | None:
        return self.windows[port]

    @property
    def divides(self) -> bool:
        # A store has taken all new rows before it is read.
        return False

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        own = super().kinds
        return {side: own[side] for port, side in enumerate(SIDES) if self.windows[port] is None}

    def describe(self) -> Mapping[str, Parameter]:
        own = super().describe()
        sides = str(own["state"]).split(" / ")
        shown = tuple("window store" if length is not None else sides[i] for i, length in enumerate(self.windows))
        lengths = tuple(Ticks(length) for length in self.windows if length is not None)
        return {**own, "state": " / ".join(shown), "windows": lengths}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        own = super().state(inputs, made)
        return [part for part, length in zip(own, self.windows, strict=True) if length is None]


@dataclass(frozen=True)
class TakingBackJoinSpec(StoreJoinSpec):
    """An equi-join with a window over a window store that takes its results back (`lowering/retracting_joins.py`)."""

    takes_back: ClassVar[bool] = True

    def describe(self) -> Mapping[str, Parameter]:
        return {**super().describe(), "ends": "taken back when rows leave the window"}


@dataclass(frozen=True)
class MultiJoinSpec(PassingSpec):
    """A pipelined join. By input: the types of its columns; names, its name in EXPLAIN; strict, whether it may have
    negative tuples; orders, in which order its elements probe the others. classes: as in `algebra.MultiJoin`; order and
    cost: the chosen order, and its expected cost in tuples read per second."""

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

    @property
    def memory(self) -> Memory:
        return Memory.LIVE

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

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        for one, name, strict in zip(inputs, self.names, self.strict, strict=True):
            yield all_rows(one, f"rows of {name}", TIMES + INDEX + (SIGN if strict else 0))

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        """Return the conditions, with the inputs' names before the columns'."""
        labels = [f"{name}.{column}" for name, own in zip(self.names, inputs, strict=True) for column in own]
        starts = [sum(map(len, inputs[:i])) for i in range(len(inputs))]
        classes = (
            " = ".join(labels[start + place] for start, place in zip(starts, places, strict=True) if place is not None)
            for places in self.classes
        )
        return {"on": " AND ".join(classes), **residual_text(self.residual, labels)}


@dataclass(frozen=True)
class LookupSpec(PassingSpec):
    """Join with a static relation of which every task holds a copy. `static_left`: the table's columns come first."""

    keeps_times: ClassVar[bool] = True

    table: str
    key: tuple[int, ...]
    table_key: tuple[int, ...]
    residual: Expression | None
    static_left: bool
    ranges: Ranges | None = None
    """of the elements and of the table, in this order"""

    @property
    def memory(self) -> Memory:
        return Memory.NOTHING

    def describe(self) -> dict[str, str]:
        return {"table": self.table, **range_properties(self.ranges)}

    @property
    def static_tables(self) -> tuple[str, ...]:
        return (self.table,)

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        return residual_text(self.residual, made)


class Keep(enum.Enum):
    """The result for a tuple with a partner, and for one without."""

    MATCHED = "with a partner"
    LONE = "without a partner"
    MARKED = "marked"
    PADDED = "pairs, or padded"


@dataclass(frozen=True)
class PartnerCountsSpec(Spec):
    """The counts of partners. Port 0: tuples; port 1: the same tuples once per partner they have. LONE passes on those
    without a partner, MARKED all, with whether they have one as a last column. types: of a tuple; single: the scalar
    subquery that must not have two partners for one tuple, or empty; domain: the time domain of its error message."""

    types: tuple[pa.DataType, ...]
    keep: Keep
    single: str = ""
    domain: TimeDomain = CALENDAR
    listed: bool = False

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        return queue_kinds(False, self.listed)

    def with_kinds(self, kinds: Mapping[str, str]) -> Self:
        return with_queue(self, kinds)

    @property
    def memory(self) -> Memory:
        # The numbers of live copies and of pairs. A change retracts all copies that are valid and emits those that
        # are, so what is valid now is one element, whenever it was emitted.
        return Memory.LIVE if has_one_form(self.types) else Memory.HISTORY

    def describe(self) -> dict[str, str]:
        return {"keeps": self.keep.value, "state": "copies and partners by tuple"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        yield slots(inputs[0], 2, "rows with their partners counted")
        for one in inputs:
            yield from pending_ends(one)


@dataclass(frozen=True)
class StaticPartnerCountsSpec(PassingSpec):
    """The partners of a tuple in a static relation of which every task holds a copy; no tuple is stored. table_types:
    of the static relation, whose columns PADDED appends; alone: the conjuncts of the condition on the tuple alone."""

    keeps_times: ClassVar[bool] = True

    table: str
    table_types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    table_key: tuple[int, ...]
    residual: Expression | None
    keep: Keep
    single: str = ""
    domain: TimeDomain = CALENDAR
    ranges: Ranges | None = None
    alone: Expression | None = None

    @property
    def memory(self) -> Memory:
        return Memory.NOTHING

    def describe(self) -> dict[str, str]:
        return {"table": self.table, "keeps": self.keep.value, **range_properties(self.ranges)}

    @property
    def static_tables(self) -> tuple[str, ...]:
        return (self.table,)


@dataclass(frozen=True)
class BandPartitionerSpec(PassingSpec):
    """Every element once for each cell of `width` that its span reaches into, with two columns more: the cell, and
    whether it is the span's first."""

    span: RangeSpan
    width: float

    def describe(self) -> dict[str, str]:
        return {"width": f"{self.width:.15g}"}


@dataclass(frozen=True)
class NRRJoinSpec(Spec):
    """Join of elements (port 0) with a NON RETROACTIVE relation (port 1) as of their arrival.

    came: the column of port 0 with the arrival time, at most `behind` ticks before an element's ts; None for the ts
    itself. strict: port 0 may have negative tuples; width: its number of columns. announced: port 2 emits up to when no
    element can arrive any more, in place of `behind`. null_safe: NULL in a key is equal to NULL.
    """

    left_key: tuple[int, ...]
    right_key: tuple[int, ...]
    residual: Expression | None
    came: int | None = None
    behind: int = 0
    strict: bool = False
    width: int = 0
    announced: bool = False
    null_safe: bool = False

    def describe(self) -> dict[str, str]:
        state = "the relation, " + ("results that may be taken back" if self.strict else "nothing of the stream")
        return {"state": state}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        yield all_rows(inputs[1], "the relation")
        if self.strict:
            yield all_rows(made, "results that may be taken back", TIMES + SIGN)


@dataclass(frozen=True)
class StampSpec(Spec):
    """Elements with their ts as a last column."""

    holds_early: ClassVar[bool] = False

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return ()


@dataclass(frozen=True)
class AggregateLookupSpec(Spec):
    """A join that is a look-up. Port 0: rows that live for one instant each, port 1: the lane rows of an aggregate.
    plan, fifo, input_types: as in `AggregateSpec`; key: the columns of port 0 that name the group, in the order of its
    columns; between: the predicates and lists of expressions that are applied to the aggregate's rows before the join;
    found_types: of their results; left: port 0 is the left side; outer: its rows stay without a partner."""

    #: It reads groups later than rows of them come.
    ending: ClassVar[tuple[()]] = ()

    plan: AggregateLayout
    fifo: bool
    input_types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    between: tuple[Expression | tuple[Expression, ...], ...]
    found_types: tuple[pa.DataType, ...]
    residual: Expression | None
    left: bool
    outer: bool
    note: str = field(default="", compare=False)
    """why the plan has this join, for explain"""
    listed: bool = False

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        return queue_kinds(self.fifo, self.listed)

    def with_kinds(self, kinds: Mapping[str, str]) -> Self:
        return with_queue(self, kinds)

    def describe(self) -> dict[str, str]:
        found = {"state": queue_name(self.fifo, self.listed), "chosen": self.note}
        return {"keeps": "left", **found} if self.outer else found

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        rows = inputs[-1]
        return grouped_state(self.plan, rows, self.input_types, rows.by_keys(self.plan.group, "groups"))
