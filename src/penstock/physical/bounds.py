"""What state a plan will keep, said before it runs: whether it is bounded, by what, and about how many bytes.

`state_of` walks the steps of a plan; `held` says of each kind of operator which parts of state it keeps, mirroring the
synopses of its operator. Sizes follow from what is expected of the inputs (`algebra/statistics.py`): rates, lengths of
windows and numbers of distinct values; they are good for an order of magnitude. What is bounded by the number of some
values is as large as the statistics have these values; what is unbounded is given as it is after an hour.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch

import pyarrow as pa

from penstock.algebra import Aggregate, Announced, Distinct, Except, Internal, Intersect, RowWindow, TopK, Window
from penstock.algebra.content import Content, Grade, by_keys, content, together
from penstock.algebra.estimates import Estimate, estimate
from penstock.algebra.nodes import Algebra
from penstock.algebra.pattern import Pattern
from penstock.algebra.r2s import RelationToStream, StreamKind
from penstock.algebra.statistics import Statistics, seconds
from penstock.algebra.windows import WindowKind
from penstock.expressions.nodes import Expression, columns_of
from penstock.physical import plan as specs
from penstock.physical.lane_plan import Kind, LanePlan
from penstock.physical.nrr_plan import NRRJoinSpec, StampSpec
from penstock.physical.pane_plan import (
    BoundaryAggregateSpec,
    BoundarySumsSpec,
    PanesSpec,
    PaneStoreSpec,
    WindowSumsSpec,
)
from penstock.physical.plan import LanesSpec, Plan, Spec, Step
from penstock.physical.probe_plan import ProbeSpec
from penstock.physical.range_plan import CellsSpec
from penstock.physical.results_plan import ResultsSpec, RoundedSpec, ShortChangesSpec, ShortLivesSpec
from penstock.physical.sequence_plan import NumberedSpec, PickSpec, SequenceSpec, Shape
from penstock.physical.step_plan import StepWindowSpec
from penstock.physical.user_plan import UserAggregateSpec, UserState
from penstock.tree import walk

#: Bytes of a value without a fixed width, and of the times and sign of an element.
TEXT, TIMES, SIGN = 16, 16, 8
#: Bytes of a slot beside its lanes and columns (the key's fingerprint), of a node of a tree of values, of a skyline's.
SLOT, TREE, SKYLINE = 16, 64, 64
#: Bytes of a row of a join in the index from its key (chains, and runs by a range about as much); of a row whose end is
#: found by an index.
INDEX, DUE = 40, 16
#: What a pickled Python object takes at the least.
OBJECT = 200


@dataclass(frozen=True)
class Given:
    """An input of an operator. lanes: of lane rows that are panes, their plan."""

    node: Algebra
    content: Content
    expected: Estimate
    types: tuple[pa.DataType, ...]
    lanes: LanePlan | None = None

    @property
    def size(self) -> float:
        """Rows that hold at one time."""
        return self.expected.size

    def values(self, columns: Sequence[int]) -> float:
        """Different values of some columns among them."""
        found = 1.0
        for column in columns:
            found *= self.expected.distinct[column] if column < len(self.expected.distinct) else self.size
        return max(1.0, min(self.size, found))


@dataclass(frozen=True)
class Part:
    """Some state. what: in the words of people."""

    what: str
    rows: float
    nbytes: float
    bound: Content


@dataclass(frozen=True)
class StepState:
    """The state of one step, all shards together."""

    step: Step
    parts: tuple[Part, ...]

    @property
    def name(self) -> str:
        return f"{self.step.id} {self.step.spec.title}"

    @property
    def rows(self) -> float:
        return sum(part.rows for part in self.parts)

    @property
    def nbytes(self) -> float:
        return sum(part.nbytes for part in self.parts)

    @property
    def bound(self) -> Content:
        return together(part.bound for part in self.parts)

    @property
    def horizon(self) -> float | None:
        """Seconds of its time after which it has its full size; None where it may never have."""
        return self.bound.length


def state_of(plan: Plan, nodes: Sequence[Algebra], statistics: Statistics) -> tuple[StepState, ...]:
    """The steps of `plan` that keep state; nodes: what each makes (`planner.planned`)."""
    given: dict[int, Given] = {}
    found = []
    fresh: set[int] = set()
    for step in plan.steps:
        inputs = tuple(given[edge.step] for edge in step.inputs)
        made = _given(step, nodes[step.id], inputs, statistics)
        given[step.id] = made
        parts = [*held(step.spec, inputs, made)]
        arrives = any(edge.step in fresh for edge in step.inputs)
        if step.stage == 0 or (arrives and isinstance(step.spec, _PASSING)):
            fresh.add(step.id)
        if arrives and isinstance(step.spec, _WAITING):
            parts.append(_ahead(step, inputs, plan))
        parts = [part for part in parts if part.rows > 0]
        if parts:
            found.append(StepState(step, tuple(parts)))
    return tuple(found)


def _given(step: Step, node: Algebra, inputs: tuple[Given, ...], statistics: Statistics) -> Given:
    made = Given(node, content(node), estimate(node, statistics), step.types)
    lanes = _panes(step.spec, inputs)
    if lanes is None or node.domain is None:
        return made
    # Elements that share group and interval are one: at most one a group and boundary.
    period = max(seconds(w.slide or 0, node.domain) for w in walk(node) if isinstance(w, Window))
    expected = made.expected
    rate = min(expected.rate, made.values(lanes.group) / period) if period else expected.rate
    return replace(made, expected=Estimate(rate, expected.length, expected.distinct), lanes=lanes)


def _panes(spec: Spec, inputs: tuple[Given, ...]) -> LanePlan | None:
    if isinstance(spec, LanesSpec):
        return spec.plan if spec.pre_aggregate else None
    if isinstance(spec, PanesSpec):
        return spec.plan
    # Panes of a finer window that several share, on their way to one of them.
    return inputs[0].lanes if isinstance(spec, specs.UnionSpec | specs.WindowSpec) else None


def _ahead(step: Step, inputs: Sequence[Given], plan: Plan) -> Part:
    """Elements that wait until the heartbeat has passed them: those within the slack of their source."""
    sources = [plan.sources[name] for name in sorted(step.sources) if plan.sources[name].slack]
    waits = max((seconds(s.slack, s.domain) for s in sources if s.domain), default=0.0)
    each = [(waits * one.expected.rate, _width(one.types) + TIMES) for one in inputs]
    names = ", ".join(source.name for source in sources)
    return Part(
        "elements ahead of the heartbeat",
        sum(rows for rows, _ in each),
        sum(rows * width for rows, width in each),
        Content(Grade.BOUNDED, f"ORDER WITHIN of {names}", length=waits),
    )


def _width(types: Sequence[pa.DataType]) -> int:
    """Bytes of a row of columns."""
    return sum(_fixed(type_) for type_ in types)


def _fixed(type_: pa.DataType) -> int:
    if pa.types.is_struct(type_):
        return _width([field.type for field in type_])
    try:
        return int(-(-type_.bit_width // 8))
    except ValueError:
        return TEXT


@singledispatch
def carries_ends(node: Algebra) -> bool:
    """Whether elements of `node` know when they end; else negative tuples end them, or nothing does."""
    return any(carries_ends(child) for child in node.inputs if not child.is_stream)


@carries_ends.register
def _window_ends(node: Window) -> bool:
    return node.kind is not WindowKind.UNBOUNDED


@carries_ends.register
def _row_window_ends(node: RowWindow) -> bool:
    return node.length is not None


@carries_ends.register(Aggregate)
@carries_ends.register(Announced)
@carries_ends.register(Except)
@carries_ends.register(Intersect)
@carries_ends.register(TopK)
@carries_ends.register(Internal)
def _no_ends(node: Algebra) -> bool:
    return False


@carries_ends.register
def _distinct_ends(node: Distinct) -> bool:
    return node.pattern is not Pattern.STRICT and carries_ends(node.input)


@singledispatch
def held(spec: Spec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    """The state that the operator of `spec` keeps of its inputs."""
    raise AssertionError(f"nobody says what state {type(spec).__name__} keeps")


@held.register(specs.ScanSpec)
@held.register(specs.StaticSpec)
@held.register(specs.FilterSpec)
@held.register(specs.ProjectSpec)
@held.register(specs.UnionSpec)
@held.register(specs.WindowSpec)
@held.register(RoundedSpec)
@held.register(specs.SampleSpec)
@held.register(LanesSpec)
@held.register(PanesSpec)
@held.register(PaneStoreSpec)
@held.register(CellsSpec)
@held.register(StampSpec)
@held.register(specs.LookupSpec)
@held.register(specs.LookupMatchSpec)
@held.register(ResultsSpec)
@held.register(specs.OutputSpec)
def _nothing(spec: Spec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    """They look at one element at a time, or at tables that every task has. What a store of panes keeps is what its
    windows read, and is told of each of them."""
    return ()


def _rows(one: Given, what: str, beside: int = TIMES) -> Part:
    """All rows that hold at one time. beside: bytes of a row beside its columns."""
    return Part(what, one.size, one.size * (_width(one.types) + beside), one.content)


def _ends(one: Given, what: str = "rows that will end") -> Iterable[Part]:
    """What is kept of rows until they end: nothing where they do not, or negative tuples tell."""
    return [_rows(one, what)] if carries_ends(one.node) else ()


def _slots(one: Given, lanes: int, what: str, beside: int = 0) -> Part:
    """A table with one slot for every different row. beside: bytes of a row beside lanes and columns."""
    every = tuple(range(len(one.types)))
    rows = one.values(every)
    bound = by_keys(one.node, tuple(range(len(one.node.schema))), one.content, "different rows")
    return Part(what, rows, rows * (SLOT + 8 * lanes + _width(one.types) + beside), bound)


@held.register
def _updates(spec: specs.UpdatesSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    rows = made.values(spec.key) if spec.rule is not specs.UpdateRule.BAG else made.size
    yield Part("the relation", rows, rows * (_width(made.types) + TIMES), made.content)
    if spec.once:
        hint = "without OPERATION BY keys are replaced, and none is remembered"
        bound = Content(Grade.KEYS, f"the keys that were deleted from {spec.source}", hint, spec.source, None)
        yield Part("keys deleted", rows, rows * (_width([made.types[k] for k in spec.key]) + TIMES), bound)


@held.register
def _negative(spec: specs.NegativeTuplesSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    return _ends(inputs[0])


@held.register
def _row_window(spec: specs.RowWindowSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    partitions = inputs[0].values(spec.partition)
    rows = min(made.size, partitions * (spec.rows + spec.step - 1))
    if made.content.grade is Grade.FIXED or not spec.partition:
        rows = min(rows, float(spec.rows + spec.step - 1))
    yield Part("the last rows", rows, rows * (24 + _width(made.types)) + 48 * partitions, made.content)


@held.register
def _step_window(spec: StepWindowSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    yield _rows(made, "rows of the window", TIMES + SIGN)


@held.register
def _pick(spec: PickSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    rows = inputs[0].values(spec.partition)
    bound = by_keys(inputs[0].node, spec.partition, inputs[0].content, "substreams")
    if spec.slot is None:
        yield Part("counts by substream", rows, rows * (SLOT + 8), bound)
    else:
        yield Part("the last element of each substream", rows, rows * (_width(made.types) + TIMES), bound)


@held.register
def _sequence(spec: SequenceSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    """Of every window its elements, and about as much again in the operators of the body that are over it, which keep
    relations with updates too."""
    for number, window in enumerate(spec.windows, 1):
        one = inputs[window.stream]
        rows, bound = _of_shape(window.shape, one)
        nbytes = rows * (_width(one.types) + TIMES)
        yield Part(f"elements of window {number}", rows, nbytes, bound)
        yield Part(f"what the body keeps of window {number}", rows, nbytes, bound)
    for one in inputs[len(spec.types) :]:
        yield Part("what the body keeps of a relation", one.size, one.size * (_width(one.types) + TIMES), one.content)


@held.register
def _numbered(spec: NumberedSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    """What the operators of the body keep of what the windows see."""
    shape = Shape(spec.rows, None, (), spec.every, False, None, 0)
    rows, bound = _of_shape(shape, inputs[0])
    yield Part("what the body keeps of its windows", rows, rows * (_width(inputs[0].types) + TIMES), bound)


def _of_shape(shape: Shape, one: Given) -> tuple[float, Content]:
    """The elements that a window of the sequence model holds, and what bounds them."""
    if shape.length is not None and one.node.domain is not None:
        length = seconds(shape.length + shape.slide if shape.slide else shape.length, one.node.domain)
        return one.expected.rate * length, Content(Grade.BOUNDED, "the window's RANGE", length=length)
    if shape.rows is not None:
        bound = Content(Grade.BOUNDED, f"RANGE {shape.rows} TUPLES", length=None)
        return min(one.size, shape.rows * one.values(shape.key)), (
            by_keys(one.node, shape.key, one.content, "substreams") if shape.key else bound
        )
    return one.size, one.content


@held.register(specs.AggregateSpec)
@held.register(BoundaryAggregateSpec)
@held.register(ProbeSpec)
def _aggregate(
    spec: specs.AggregateSpec | BoundaryAggregateSpec | ProbeSpec, inputs: tuple[Given, ...], made: Given
) -> Iterable[Part]:
    rows = inputs[-1]
    plan = spec.plan
    groups = rows.values(plan.group)
    keys = _width(spec.input_types[: len(plan.group)])
    bound = by_keys(rows.node, plan.group, rows.content, "groups") if isinstance(spec, ProbeSpec) else made.content
    yield Part("groups", groups, groups * (SLOT + 8 * (plan.integers + plan.floats) + keys), bound)
    yield from _ends(rows)
    for argument in plan.arguments:
        if argument.kind is Kind.SUMS:
            continue
        width = _fixed(argument.type)
        if argument.kind in (Kind.LEAST, Kind.GREATEST):
            # Of n rows in any order about log n are greater than all behind them.
            count = groups * math.log(rows.size / groups + math.e)
            yield Part("rows that may become an extreme", count, count * (SKYLINE + width), bound)
            continue
        per_row = _values_of(argument.expressions, rows)
        count = min(rows.size, groups * per_row)
        bound = by_keys(rows.node, (*plan.group, *_columns(argument.expressions)), rows.content, "different values")
        tree = TREE if argument.kind is Kind.BAG else 0
        yield Part("values by group", count, count * (2 * SLOT + 8 + width + tree), bound)


@held.register
def _boundary_sums(spec: BoundarySumsSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    return _ends(inputs[0], "panes of boundaries to come")


@held.register
def _window_sums(spec: WindowSumsSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    (panes,) = inputs
    assert isinstance(made.node, RelationToStream) and made.node.domain is not None
    window = made.node.input.inputs[0]
    # Sums are begun anew every so often: panes are kept until no such beginning needs them.
    kept = seconds(spec.length + -(-spec.length // spec.slide) * spec.slide, made.node.domain)
    rows = panes.expected.rate * kept
    lanes = spec.plan.integers + spec.plan.floats
    width = TIMES + 8 * lanes + _width(panes.types)
    yield Part("panes, shared with other windows", rows, rows * width, replace(content(window), length=kept))
    groups = panes.values(spec.plan.group)
    yield Part("sums of groups", groups, groups * (SLOT + 8 * lanes), content(made.node.input))


def _columns(expressions: Iterable[Expression]) -> tuple[int, ...]:
    return tuple(sorted({column for e in expressions for column in columns_of(e)}))


def _values_of(expressions: Iterable[Expression], rows: Given) -> float:
    return rows.values(_columns(expressions))


@held.register
def _user_aggregate(spec: UserAggregateSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    _, rows = inputs
    groups = made.size if spec.keys else 1.0
    yield Part("groups with the states of user code", groups, groups * OBJECT * (1 + len(spec.calls)), made.content)
    if any(call.state is UserState.LIVE for call in spec.calls):
        yield _rows(rows, "live rows")
    yield from _ends(rows)


@held.register
def _distinct(spec: specs.DistinctSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    yield _slots(inputs[0], 3, "different rows", 0 if spec.strict else DUE)
    if spec.strict:
        yield from _ends(inputs[0])
    elif spec.listed:
        yield _rows(inputs[0], "all rows")


@held.register
def _distinct_changes(spec: specs.DistinctChangesSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    return [_slots(inputs[0], 2, "different rows", DUE)]


@held.register
def _set_operation(spec: specs.SetOperationSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    for one in inputs:
        yield _slots(one, 4, "different rows with counts")
        yield from _ends(one)


@held.register
def _top(spec: specs.TopKSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    (one,) = inputs
    yield _slots(one, 2, "rows that may come first")
    yield from _ends(one)


@held.register
def _join(spec: specs.JoinSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    for one, side, strict in zip(inputs, ("left", "right"), spec.strict, strict=True):
        yield _rows(one, f"rows of the {side} side", TIMES + INDEX + (SIGN if strict else 0))


@held.register
def _multi_join(spec: specs.MultiJoinSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    for one, name, strict in zip(inputs, spec.names, spec.strict, strict=True):
        yield _rows(one, f"rows of {name}", TIMES + INDEX + (SIGN if strict else 0))


@held.register
def _nrr_join(spec: NRRJoinSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    yield _rows(inputs[1], "the relation")
    if spec.strict:
        yield _rows(made, "results that may be taken back", TIMES + SIGN)


@held.register
def _match(spec: specs.MatchSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    yield _slots(inputs[0], 2, "rows with their partners counted")
    for one in inputs:
        yield from _ends(one)


@held.register
def _changes(spec: specs.ChangesSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    return () if spec.netted and spec.kind is StreamKind.ISTREAM else _ends(inputs[0], "rows whose end is to be told")


@held.register
def _rstream(spec: specs.RStreamSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    return [_rows(inputs[0], "the relation")]


@held.register
def _short_lives(spec: ShortLivesSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    one = inputs[0]
    length = seconds(spec.slide, made.node.domain) if made.node.domain else 0.0
    rows = one.expected.rate * length
    yield Part("results until their boundary", rows, rows * (_width(one.types) + TIMES), _until_boundary(length))


def _until_boundary(length: float) -> Content:
    return Content(Grade.BOUNDED, "the SLIDE of RESTORE", length=length)


@held.register
def _short_changes(spec: ShortChangesSpec, inputs: tuple[Given, ...], made: Given) -> Iterable[Part]:
    yield _slots(inputs[0], 4, "different rows with counts")
    yield from _short_lives(ShortLivesSpec(spec.slide, spec.align), inputs, made)


#: Operators behind which elements are as far ahead as before.
_PASSING = (specs.UnionSpec, specs.ProjectSpec, specs.FilterSpec, specs.WindowSpec, LanesSpec, PanesSpec)
#: Operators that let elements ahead of the heartbeat wait; joins let them through.
_WAITING = (
    specs.UpdatesSpec, specs.NegativeTuplesSpec, specs.RowWindowSpec, StepWindowSpec, specs.AggregateSpec,
    BoundaryAggregateSpec, ProbeSpec, UserAggregateSpec, specs.DistinctSpec, specs.SetOperationSpec, specs.TopKSpec,
    NRRJoinSpec, specs.MatchSpec, specs.ChangesSpec, specs.DistinctChangesSpec, specs.RStreamSpec, PickSpec,
    SequenceSpec, NumberedSpec,
)  # fmt: skip
