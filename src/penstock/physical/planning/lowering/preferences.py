"""WITH PREFERENCE: rows with equal keys meet, in the order in which they arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch

import pyarrow as pa

from penstock.algebra import (
    Aggregate,
    Algebra,
    PreferringJoin,
    PreferringLookUp,
    PreferringSelection,
    Project,
    Select,
    Window,
)
from penstock.algebra.nodes.base import is_static
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.expressions.aggregates.estimate import scaled_value
from penstock.expressions.nodes import Column, Expression
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.preferences.queries import (
    PreferringJoinSpec,
    PreferringLookUpSpec,
    PreferringNRRLookUpSpec,
    PreferringSelectionSpec,
)
from penstock.physical.plan.preferences.records import RecordedRowsSpec, RecordedSumsSpec
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower, moved_partitions


def _in_order(side: Algebra) -> tuple[Algebra, bool]:
    """Return an equivalent of a windowed stream, and whether its elements come in order of arrival; if they do, they
    must come straight from their ingest."""
    if isinstance(side, Window):
        plain = in_arrival_order(side.input)
        if plain is not None:
            return replace(side, input=plain), True
    elif len(side.inputs) == 1 and side.is_elementwise:
        (below,) = side.inputs
        ordered, in_order = _in_order(below)
        return (_over(side, below, ordered), True) if in_order else (side, False)
    return side, False


def _over(node: Algebra, below: Algebra, instead: Algebra) -> Algebra:
    """Return `node` with the input `instead` in place of `below`. Its expressions are children too."""
    return node.with_children(tuple(instead if child is below else child for child in node.children))


_Summaries = tuple[SummaryDefinition | None, SummaryDefinition | None]


@lower.register(PreferringJoin)
@lower.register(PreferringSelection)
@lower.register(PreferringLookUp)
def _preference(node: PreferringJoin | PreferringSelection | PreferringLookUp, builder: Builder) -> Lowered:
    below = _own_step(node, builder)
    if not node.preference.records:
        return below
    summaries, alone = _summaries(node)
    spec = RecordedRowsSpec(node.preference, summaries, alone, node.schema.types[:-1])
    return replace(below, step=builder.add(spec, [Edge(below.step)], below.stage, node))


def lower_recorded_sums(
    node: Aggregate, plan: AggregateLayout, types: Sequence[pa.DataType], names: Sequence[str], builder: Builder
) -> Lowered | None:
    """Return the accumulator rows of sums over a preference with inclusion records, which are not written for each
    result; None for any other input, and for aggregates that are not sums.

    Args:
        types: of the columns of the accumulator rows.
        names: of the same columns.
    """
    steps: list[Expression | tuple[Expression, ...]] = []
    below = node.input
    while isinstance(below, Select | Project):
        steps.append(below.predicate if isinstance(below, Select) else below.expressions)
        below = below.input
    if not isinstance(below, PreferringJoin | PreferringSelection | PreferringLookUp) or plan.valued:
        return None
    found = ((place, scaled_value(one.expressions)) for place, one in enumerate(plan.arguments))
    scaled = tuple((place, *one) for place, one in found if one is not None)
    record = len(below.schema) - 1
    if not below.preference.records or not scaled or any(_origin(column, steps) != record for _, _, column in scaled):
        return None
    results = _own_step(below, builder)
    spec = RecordedSumsSpec(
        below.preference,
        *_summaries(below),
        plan,
        tuple(types),
        tuple(reversed(steps)),
        tuple((place, x) for place, x, _ in scaled),
    )
    step = builder.add(spec, [Edge(results.step)], results.stage, node.input, types, names)
    partitions = results.partitions
    for one in reversed(steps):
        if isinstance(one, tuple):
            kept = [(e.index, i) for i, e in enumerate(one) if isinstance(e, Column)]
            partitions = moved_partitions(partitions, dict(reversed(kept)))
    positions = {column: i for i, column in reversed(list(enumerate(node.group)))}
    return Lowered(step, results.stage, moved_partitions(partitions, positions))


def _origin(column: int, steps: Sequence[Expression | tuple[Expression, ...]]) -> int | None:
    """Return which column of the results it is that projections pass on; None for one that they compute. steps: the
    last first."""
    for step in steps:
        if isinstance(step, tuple):
            passed = step[column]
            if not isinstance(passed, Column):
                return None
            column = passed.index
    return column


def _own_step(node: PreferringJoin | PreferringSelection | PreferringLookUp, builder: Builder) -> Lowered:
    """Return the step of the operator itself, whose results with inclusion records are messages."""
    name = f"results of {builder.known_as(node)}"
    if name not in builder.known:
        builder.known[name] = _step(node, builder)
    return builder.known[name]


def _summaries(node: PreferringJoin | PreferringSelection | PreferringLookUp) -> tuple[_Summaries, bool]:
    """Return the summaries by probed side, and whether the preference is of one stream."""
    return (node.summaries, False) if isinstance(node, PreferringJoin) else ((None, node.summary), True)


@singledispatch
def _step(node: Algebra, builder: Builder) -> Lowered:
    raise AssertionError(f"{type(node).__name__} is no preference")


@_step.register
def _preferring_join(node: PreferringJoin, builder: Builder) -> Lowered:
    (left, left_order), (right, right_order) = _in_order(node.left), _in_order(node.right)
    left_key, right_key = (tuple(pair[k] for pair in node.equal) for k in (0, 1))
    spread = tuple(tuple(pair[k] for pair in node.sharding) for k in (0, 1))
    lowered = [builder.lower(left), builder.lower(right)]
    # Elements go through an exchange of their own, which keeps the order in which they arrive.
    edges = [Edge(one.step, Exchange(key)) for one, key in zip(lowered, spread, strict=True)]
    orders = [left_order, right_order]
    for stream, ahead in zip(node.later, node.ahead, strict=True):
        below, in_order = _in_order(stream)
        lowered.append(builder.lower(below))
        orders.append(in_order)
        # By the same values, in the same order, as the rows of the join.
        spread_by = tuple(ahead.summarised[ahead.keys.index(pair)] for pair in node.sharding)
        edges.append(Edge(lowered[-1].step, Exchange(spread_by)))
    stage = max(one.stage for one in lowered) + 1
    spec = PreferringJoinSpec(
        node.left.schema.types,
        node.preference,
        tuple(orders),
        node.right.schema.types,
        left_key,
        right_key,
        node.residual,
        node.filters,
        node.summaries,
        node.summarised,
        node.into,
        (node.reads_partner(0), node.reads_partner(1)),
        node.ahead,
    )
    width = len(node.left.schema)
    parts = frozenset({spread[0], tuple(width + c for c in spread[1])})
    return Lowered(builder.add(spec, edges, stage, node), stage, parts)


@_step.register
def _preferring_selection(node: PreferringSelection, builder: Builder) -> Lowered:
    below, in_order = _in_order(node.input)
    child = builder.lower(below)
    key = node.summarised or tuple(range(len(node.input.schema)))
    spec = PreferringSelectionSpec(
        node.input.schema.types,
        node.preference,
        (in_order,),
        node.condition,
        node.filter,
        node.summary,
        node.summarised,
        node.expressions,
    )
    step = builder.add(spec, [Edge(child.step, Exchange(key))], child.stage + 1, node)
    return Lowered(step, child.stage + 1, frozenset({key}))


@_step.register
def _preferring_look_up(node: PreferringLookUp, builder: Builder) -> Lowered:
    if not is_static(node.right):
        return _looked_up_as_of(node, builder)
    below, in_order = _in_order(node.left)
    child = builder.lower(below)
    key = node.sharding
    spec = PreferringLookUpSpec(
        node.left.schema.types,
        node.preference,
        (in_order,),
        builder.table(node.right),
        node.right.schema.types,
        tuple(pair[0] for pair in node.equal),
        tuple(pair[1] for pair in node.equal),
        node.residual,
        node.filter,
        node.summary,
        node.summarised,
        node.expressions,
        node.reads_partner,
    )
    step = builder.add(spec, [Edge(child.step, Exchange(key))], child.stage + 1, node)
    return Lowered(step, child.stage + 1, frozenset({key}))


def _looked_up_as_of(node: PreferringLookUp, builder: Builder) -> Lowered:
    """Lower the join with a NON RETROACTIVE relation, whose updates go to the shards of the elements."""
    below, in_order = _in_order(node.left)
    child, relation = builder.lower(below), builder.lower(node.right)
    key, table_key = (tuple(pair[k] for pair in node.equal) for k in (0, 1))
    spread = node.sharding
    table_spread = tuple(table_key[key.index(column)] for column in spread)
    stage = max(child.stage, relation.stage) + 1
    edges = [Edge(child.step, Exchange(spread)), Edge(relation.step, Exchange(table_spread))]
    spec = PreferringNRRLookUpSpec(
        node.left.schema.types,
        node.preference,
        (in_order,),
        node.right.schema.types,
        key,
        table_key,
        node.residual,
        node.filter,
        node.summary,
        node.summarised,
        node.expressions,
        node.reads_partner,
    )
    width = len(node.left.schema)
    parts = frozenset({spread, tuple(width + c for c in table_spread)})
    return Lowered(builder.add(spec, edges, stage, node), stage, parts)
