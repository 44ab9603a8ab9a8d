"""What state a plan will keep, said before it runs: whether it is bounded, by what, and about how many bytes.

`state_of` walks the steps of a plan; `held` says of each kind of operator which parts of state it keeps, mirroring the
synopses of its operator. Sizes follow from what is expected of the inputs (`algebra/optimizer/statistics.py`): rates,
lengths of windows and numbers of distinct values; they are good for an order of magnitude. What is bounded by the
number of some values is as large as the statistics have these values; what is unbounded is given as it is after an
hour."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import singledispatch

import pyarrow as pa

from penstock.algebra import Aggregate, Distinct, Except, Internal, Intersect, NegativeTuples, RowWindow, TopK, Window
from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.r2s import RelationToStream, StreamKind
from penstock.algebra.nodes.windows import WindowKind
from penstock.algebra.optimizer.estimates import Estimate, estimate
from penstock.algebra.optimizer.statistics import Statistics, seconds
from penstock.algebra.properties.boundedness import Boundedness, Grade, by_keys, content
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.aggregates.contract import ArgumentState
from penstock.expressions.nodes import Expression, columns_of
from penstock.physical.plan import plan as specs
from penstock.physical.plan.aggregate_lookup import AggregateLookupSpec
from penstock.physical.plan.bands import BandPartitionerSpec
from penstock.physical.plan.nonretroactive import NRRJoinSpec, StampSpec
from penstock.physical.plan.panes import (
    IncrementalSlideSpec,
    PanesSpec,
    PaneStoreSpec,
    RecomputedSlideSpec,
    WindowSumsSpec,
)
from penstock.physical.plan.plan import AccumulatorRowsSpec, Plan, Spec, Step
from penstock.physical.plan.results import IndividualResultsSpec, RoundedSpec, ShortChangesSpec, ShortLivesSpec
from penstock.physical.plan.row_slides import StepWindowSpec
from penstock.physical.plan.sequence import CountTimeSpec, FrequencySpec, SequenceModelSpec, WindowShape
from penstock.physical.plan.user_aggregates import UserAggregateSpec, UserState
from penstock.physical.planning.aggregate_layout import AggregateLayout
from penstock.physical.planning.state_size.parts import StateInput, StatePart, StepState
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


def state_of(plan: Plan, nodes: Sequence[Algebra], statistics: Statistics) -> tuple[StepState, ...]:
    """Return the steps of `plan` that keep state; nodes: what each makes (`planner.planned`)."""
    given: dict[int, StateInput] = {}
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


def _given(step: Step, node: Algebra, inputs: tuple[StateInput, ...], statistics: Statistics) -> StateInput:
    made = StateInput(node, content(node), estimate(node, statistics), step.types)
    lanes = _panes(step.spec, inputs)
    if lanes is None or node.domain is None:
        return made
    # Elements that share group and interval are one: at most one a group and boundary.
    period = max(seconds(w.slide or 0, node.domain) for w in walk(node) if isinstance(w, Window))
    expected = made.expected
    rate = min(expected.rate, made.values(lanes.group) / period) if period else expected.rate
    return replace(made, expected=Estimate(rate, expected.length, expected.distinct), lanes=lanes)


def _panes(spec: Spec, inputs: tuple[StateInput, ...]) -> AggregateLayout | None:
    if isinstance(spec, AccumulatorRowsSpec):
        return spec.plan if spec.pre_aggregate else None
    if isinstance(spec, PanesSpec):
        return spec.plan
    # Panes of a finer window that several share, on their way to one of them.
    return inputs[0].lanes if isinstance(spec, specs.UnionSpec | specs.TimeWindowSpec) else None


def _ahead(step: Step, inputs: Sequence[StateInput], plan: Plan) -> StatePart:
    """Elements that wait until the heartbeat has passed them: those within the slack of their source."""
    sources = [plan.sources[name] for name in sorted(step.sources) if plan.sources[name].slack]
    waits = max((seconds(s.slack, s.domain) for s in sources if s.domain), default=0.0)
    each = [(waits * one.expected.rate, _width(one.types) + TIMES) for one in inputs]
    names = ", ".join(source.name for source in sources)
    return StatePart(
        "elements ahead of the heartbeat",
        sum(rows for rows, _ in each),
        sum(rows * width for rows, width in each),
        Boundedness(Grade.BOUNDED, f"ORDER WITHIN of {names}", length=waits),
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
    """Return whether elements of `node` know when they end; else negative tuples end them, or nothing does."""
    return any(carries_ends(child) for child in node.inputs if not child.is_stream)


@carries_ends.register
def _window_ends(node: Window) -> bool:
    return node.kind is not WindowKind.UNBOUNDED


@carries_ends.register
def _row_window_ends(node: RowWindow) -> bool:
    return node.length is not None


@carries_ends.register(Aggregate)
@carries_ends.register(NegativeTuples)
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
def held(spec: Spec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    """Return the state that the operator of `spec` keeps of its inputs."""
    raise AssertionError(f"nobody says what state {type(spec).__name__} keeps")


@held.register(specs.ScanSpec)
@held.register(specs.StaticSpec)
@held.register(specs.FilterSpec)
@held.register(specs.ProjectSpec)
@held.register(specs.UnionSpec)
@held.register(specs.TimeWindowSpec)
@held.register(RoundedSpec)
@held.register(specs.SampleSpec)
@held.register(AccumulatorRowsSpec)
@held.register(PanesSpec)
@held.register(PaneStoreSpec)
@held.register(BandPartitionerSpec)
@held.register(StampSpec)
@held.register(specs.LookupSpec)
@held.register(specs.StaticPartnerCountsSpec)
@held.register(IndividualResultsSpec)
@held.register(specs.OutputSpec)
def _nothing(spec: Spec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    """They look at one element at a time, or at tables that every task has. What a store of panes keeps is what its
    windows read, and is told of each of them."""
    return ()


def _rows(one: StateInput, what: str, beside: int = TIMES) -> StatePart:
    """Return all rows that hold at one time. beside: bytes of a row beside its columns."""
    return StatePart(what, one.size, one.size * (_width(one.types) + beside), one.content)


def _ends(one: StateInput, what: str = "rows that will end") -> Iterable[StatePart]:
    """What is kept of rows until they end: nothing where they do not, or negative tuples tell."""
    return [_rows(one, what)] if carries_ends(one.node) else ()


def _slots(one: StateInput, lanes: int, what: str, beside: int = 0) -> StatePart:
    """Return a table with one slot for every different row. beside: bytes of a row beside lanes and columns."""
    every = tuple(range(len(one.types)))
    rows = one.values(every)
    bound = by_keys(one.node, tuple(range(len(one.node.schema))), one.content, "different rows")
    return StatePart(what, rows, rows * (SLOT + 8 * lanes + _width(one.types) + beside), bound)


@held.register
def _updates(spec: specs.UpdatesSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    rows = made.values(spec.key) if spec.rule is not specs.UpdateRule.BAG else made.size
    yield StatePart("the relation", rows, rows * (_width(made.types) + TIMES), made.content)
    if spec.once:
        hint = "without OPERATION BY keys are replaced, and none is remembered"
        bound = Boundedness(Grade.KEYS, f"the keys that were deleted from {spec.source}", hint, spec.source, None)
        yield StatePart("keys deleted", rows, rows * (_width([made.types[k] for k in spec.key]) + TIMES), bound)


@held.register
def _negative(spec: specs.NegativeTuplesSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    return _ends(inputs[0])


@held.register
def _row_window(spec: specs.RowWindowSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    partitions = inputs[0].values(spec.partition)
    rows = min(made.size, partitions * (spec.rows + spec.step - 1))
    if made.content.grade is Grade.FIXED or not spec.partition:
        rows = min(rows, float(spec.rows + spec.step - 1))
    yield StatePart("the last rows", rows, rows * (24 + _width(made.types)) + 48 * partitions, made.content)


@held.register
def _step_window(spec: StepWindowSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    yield _rows(made, "rows of the window", TIMES + SIGN)


@held.register
def _pick(spec: FrequencySpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    rows = inputs[0].values(spec.partition)
    bound = by_keys(inputs[0].node, spec.partition, inputs[0].content, "substreams")
    if spec.slot is None:
        yield StatePart("counts by substream", rows, rows * (SLOT + 8), bound)
    else:
        yield StatePart("the last element of each substream", rows, rows * (_width(made.types) + TIMES), bound)


@held.register
def _sequence(spec: SequenceModelSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    """Of every window its elements, and about as much again in the operators of the body that are over it, which keep
    relations with updates too."""
    for number, window in enumerate(spec.windows, 1):
        one = inputs[window.stream]
        rows, bound = _of_shape(window.shape, one)
        nbytes = rows * (_width(one.types) + TIMES)
        yield StatePart(f"elements of window {number}", rows, nbytes, bound)
        yield StatePart(f"what the body keeps of window {number}", rows, nbytes, bound)
    for one in inputs[len(spec.types) :]:
        yield StatePart(
            "what the body keeps of a relation", one.size, one.size * (_width(one.types) + TIMES), one.content
        )


@held.register
def _numbered(spec: CountTimeSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    """What the operators of the body keep of what the windows see."""
    shape = WindowShape(spec.rows, None, (), spec.every, False, None, 0)
    rows, bound = _of_shape(shape, inputs[0])
    yield StatePart("what the body keeps of its windows", rows, rows * (_width(inputs[0].types) + TIMES), bound)


def _of_shape(shape: WindowShape, one: StateInput) -> tuple[float, Boundedness]:
    """Return the elements that a window of the sequence model holds, and what bounds them."""
    if shape.length is not None and one.node.domain is not None:
        length = seconds(shape.length + shape.slide if shape.slide else shape.length, one.node.domain)
        return one.expected.rate * length, Boundedness(Grade.BOUNDED, "the window's RANGE", length=length)
    if shape.rows is not None:
        bound = Boundedness(Grade.BOUNDED, f"RANGE {shape.rows} TUPLES", length=None)
        return min(one.size, shape.rows * one.values(shape.key)), (
            by_keys(one.node, shape.key, one.content, "substreams") if shape.key else bound
        )
    return one.size, one.content


@held.register(specs.AggregateSpec)
@held.register(IncrementalSlideSpec)
@held.register(AggregateLookupSpec)
def _aggregate(
    spec: specs.AggregateSpec | IncrementalSlideSpec | AggregateLookupSpec,
    inputs: tuple[StateInput, ...],
    made: StateInput,
) -> Iterable[StatePart]:
    rows = inputs[-1]
    plan = spec.plan
    groups = rows.values(plan.group)
    keys = _width(spec.input_types[: len(plan.group)])
    bound = (
        by_keys(rows.node, plan.group, rows.content, "groups")
        if isinstance(spec, AggregateLookupSpec)
        else made.content
    )
    yield StatePart("groups", groups, groups * (SLOT + 8 * (plan.integers + plan.floats) + keys), bound)
    yield from _ends(rows)
    for argument in plan.arguments:
        if argument.kind is ArgumentState.SUMS:
            continue
        width = _fixed(argument.type)
        if argument.kind in (ArgumentState.LEAST, ArgumentState.GREATEST):
            # Of n rows in any order about log n are greater than all behind them.
            count = groups * math.log(rows.size / groups + math.e)
            yield StatePart("rows that may become an extreme", count, count * (SKYLINE + width), bound)
            continue
        per_row = _values_of(argument.expressions, rows)
        count = min(rows.size, groups * per_row)
        bound = by_keys(rows.node, (*plan.group, *_columns(argument.expressions)), rows.content, "different values")
        tree = TREE if argument.kind is ArgumentState.BAG else 0
        yield StatePart("values by group", count, count * (2 * SLOT + 8 + width + tree), bound)


@held.register
def _boundary_sums(spec: RecomputedSlideSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    return _ends(inputs[0], "panes of boundaries to come")


@held.register
def _window_sums(spec: WindowSumsSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    (panes,) = inputs
    assert isinstance(made.node, RelationToStream) and made.node.domain is not None
    window = made.node.input.inputs[0]
    # Sums are begun anew every so often: panes are kept until no such beginning needs them.
    kept = seconds(spec.length + -(-spec.length // spec.slide) * spec.slide, made.node.domain)
    rows = panes.expected.rate * kept
    lanes = spec.plan.integers + spec.plan.floats
    width = TIMES + 8 * lanes + _width(panes.types)
    yield StatePart("panes, shared with other windows", rows, rows * width, replace(content(window), length=kept))
    groups = panes.values(spec.plan.group)
    yield StatePart("sums of groups", groups, groups * (SLOT + 8 * lanes), content(made.node.input))


def _columns(expressions: Iterable[Expression]) -> tuple[int, ...]:
    return tuple(sorted({column for e in expressions for column in columns_of(e)}))


def _values_of(expressions: Iterable[Expression], rows: StateInput) -> float:
    return rows.values(_columns(expressions))


@held.register
def _user_aggregate(spec: UserAggregateSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    _, rows = inputs
    groups = made.size if spec.keys else 1.0
    yield StatePart(
        "groups with the states of user code", groups, groups * OBJECT * (1 + len(spec.calls)), made.content
    )
    if any(call.state is UserState.LIVE for call in spec.calls):
        yield _rows(rows, "live rows")
    yield from _ends(rows)


@held.register
def _distinct(spec: specs.DistinctSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    yield _slots(inputs[0], 3, "different rows", 0 if spec.strict else DUE)
    if spec.strict:
        yield from _ends(inputs[0])
    elif spec.listed:
        yield _rows(inputs[0], "all rows")


@held.register
def _distinct_changes(
    spec: specs.DistinctChangesSpec, inputs: tuple[StateInput, ...], made: StateInput
) -> Iterable[StatePart]:
    return [_slots(inputs[0], 2, "different rows", DUE)]


@held.register
def _set_operation(
    spec: specs.SetOperationSpec, inputs: tuple[StateInput, ...], made: StateInput
) -> Iterable[StatePart]:
    for one in inputs:
        yield _slots(one, 4, "different rows with counts")
        yield from _ends(one)


@held.register
def _top(spec: specs.TopKSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    (one,) = inputs
    yield _slots(one, 2, "rows that may come first")
    yield from _ends(one)


@held.register
def _join(spec: specs.JoinSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    for one, side, strict in zip(inputs, ("left", "right"), spec.strict, strict=True):
        yield _rows(one, f"rows of the {side} side", TIMES + INDEX + (SIGN if strict else 0))


@held.register
def _multi_join(spec: specs.MultiJoinSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    for one, name, strict in zip(inputs, spec.names, spec.strict, strict=True):
        yield _rows(one, f"rows of {name}", TIMES + INDEX + (SIGN if strict else 0))


@held.register
def _nrr_join(spec: NRRJoinSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    yield _rows(inputs[1], "the relation")
    if spec.strict:
        yield _rows(made, "results that may be taken back", TIMES + SIGN)


@held.register
def _match(spec: specs.PartnerCountsSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    yield _slots(inputs[0], 2, "rows with their partners counted")
    for one in inputs:
        yield from _ends(one)


@held.register
def _changes(spec: specs.ChangesSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    return () if spec.netted and spec.kind is StreamKind.ISTREAM else _ends(inputs[0], "rows whose end is to be told")


@held.register
def _rstream(spec: specs.RStreamSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    return [_rows(inputs[0], "the relation")]


@held.register
def _short_lives(spec: ShortLivesSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    one = inputs[0]
    length = seconds(spec.slide, made.node.domain) if made.node.domain else 0.0
    rows = one.expected.rate * length
    yield StatePart("results until their boundary", rows, rows * (_width(one.types) + TIMES), _until_boundary(length))


def _until_boundary(length: float) -> Boundedness:
    return Boundedness(Grade.BOUNDED, "the SLIDE of RESTORE", length=length)


@held.register
def _short_changes(spec: ShortChangesSpec, inputs: tuple[StateInput, ...], made: StateInput) -> Iterable[StatePart]:
    yield _slots(inputs[0], 4, "different rows with counts")
    yield from _short_lives(ShortLivesSpec(spec.slide, spec.align), inputs, made)


#: Operators behind which elements are as far ahead as before.
_PASSING = (specs.UnionSpec, specs.ProjectSpec, specs.FilterSpec, specs.TimeWindowSpec, AccumulatorRowsSpec, PanesSpec)
#: Operators that let elements ahead of the heartbeat wait; joins let them through.
_WAITING = (
    specs.UpdatesSpec, specs.NegativeTuplesSpec, specs.RowWindowSpec, StepWindowSpec, specs.AggregateSpec,
    IncrementalSlideSpec, AggregateLookupSpec, UserAggregateSpec, specs.DistinctSpec, specs.SetOperationSpec,
    specs.TopKSpec, NRRJoinSpec, specs.PartnerCountsSpec, specs.ChangesSpec, specs.DistinctChangesSpec,
    specs.RStreamSpec, FrequencySpec, SequenceModelSpec, CountTimeSpec,
)  # fmt: skip
