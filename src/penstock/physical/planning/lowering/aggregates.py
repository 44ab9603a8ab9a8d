"""Grouping and duplicate elimination: equal keys must be in one shard."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.algebra import (
    Aggregate,
    Arrivals,
    Distinct,
    Pattern,
    Project,
    RelationToStream,
    SessionWindow,
    TimeModelWindow,
)
from penstock.algebra.nodes.panes import paned_blocks
from penstock.expressions.aggregates.contract import ArgumentState
from penstock.expressions.nodes import AggregateCall, Column, Expression, columns_of, is_low, substitute_all
from penstock.expressions.user import UserAggregateCall
from penstock.figures import VALUES_OUT_OF_RANGE
from penstock.physical.kernels.key_order import is_wide
from penstock.physical.plan.aggregates import AggregateSpec
from penstock.physical.plan.panes import IncrementalSlideSpec, RecomputedSlideSpec, WindowSumsSpec
from penstock.physical.plan.plan import Edge
from penstock.physical.plan.sets import DistinctSpec
from penstock.physical.plan.spec import Spec
from penstock.physical.plan.state.aggregate_layout import AggregateLayout, plan_lanes
from penstock.physical.plan.state.time_endings import time_endings
from penstock.physical.plan.strategies import Strategy
from penstock.physical.plan.temporal.grouped_sessions import GroupedSessionsSpec, SessionPiecesSpec
from penstock.physical.planning.lowering.aggregate_input import lane_names, lane_types, lower_lanes, lower_store
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.physical.planning.lowering.estimated_sums import lower_estimated_sums
from penstock.physical.planning.lowering.frequent import lower_in_blocks
from penstock.physical.planning.lowering.logs import lower_logged
from penstock.physical.planning.lowering.panes import paned_window
from penstock.physical.planning.lowering.user_aggregates import has_user_aggregates, lower_user_aggregates
from penstock.physical.planning.lowering.value_joins import lower_distinct_pairs
from penstock.physical.planning.lowering.watched import outside_ranges, watched, watched_widths

# --- Aggregates of sessions without their elements (`operators/temporal/grouped_sessions.py`).
#
# Where a group has only columns of the partition and the bounds of the session, all elements of a session are in one
# group, so their accumulators are added up as they come. That needs aggregates whose state is numbers: sums, and
# extremes of types that are no wider. Aggregates of anything else, and those that read the bounds, keep the elements.


def lower_grouped_sessions(node: Aggregate, builder: Builder) -> Lowered | None:
    """Return `node` where it is over sessions whose elements need not be kept; else None."""
    found = _over_sessions(node)
    if found is None or builder.strategy is not Strategy.PATTERN:
        return None
    sessions, columns, calls = found
    if sessions.budget is not None and not sessions.budget.compact:
        # Each element counts.
        return None
    width = len(sessions.input.schema) - 1
    places = {column: i for i, column in enumerate((*sessions.partition, width, width + 1))}
    if not set(columns) <= set(places) or any(columns_of(call) & {width, width + 1} for call in calls):
        return None
    plan = plan_lanes(sessions.partition, calls, strict=False)
    if not _is_numbers(plan):
        return None
    child, keys = builder.lower(sessions.input), len(sessions.partition)
    below = Aggregate(sessions.input, sessions.partition, calls, node.names)
    types = (*lane_types(below, plan), pa.int64())
    names = [*lane_names(below, types[:-1]), "end"]
    spec = SessionPiecesSpec(plan, sessions.at_most is not None or sessions.budget is not None)
    step = builder.add(spec, [Edge(child.step)], child.stage, sessions.input, types, names)
    sent = None
    if child.partitions is not None:
        positions = {column: i for i, column in enumerate(sessions.partition)}
        sent = frozenset(tuple(positions[c] for c in p) for p in child.partitions if set(p) <= set(positions)) or None
    key = tuple(range(keys)) if sessions.budget is None else ()
    edge, stage, _ = builder.keyed(Lowered(step, child.stage, sent), key)
    by = None if edge.exchange is None else frozenset({key})
    return _grouped(node, sessions, tuple(places[c] for c in columns), plan, edge, stage, by or sent, builder, types)


def _grouped(
    node: Aggregate,
    sessions: SessionWindow,
    group: tuple[int, ...],
    plan: AggregateLayout,
    edge: Edge,
    stage: int,
    partitions: frozenset[tuple[int, ...]] | None,
    builder: Builder,
    types: tuple[pa.DataType, ...],
) -> Lowered:
    """Return the step that has the sessions, and behind it the aggregate where a group may have several at one
    instant, or equal rows at two of them in a row."""
    keys = len(sessions.partition)
    finished = set(range(keys)) <= set(group) and bool({keys, keys + 1} & set(group))
    plan = replace(plan, group=node.group)
    moved = None
    if partitions is not None:
        positions = {column: i for i, column in reversed(list(enumerate(group)))}
        moved = frozenset(tuple(positions[c] for c in p) for p in partitions if set(p) <= set(positions)) or None
    spec = GroupedSessionsSpec(plan, types, keys, group, sessions.at_most, finished, sessions.budget)
    if finished:
        return Lowered(builder.add(spec, [edge], stage, node), stage, moved)
    rows = lane_types(node, plan)
    step = builder.add(spec, [edge], stage, node.input, rows, lane_names(node, rows))
    edge, stage, moved = builder.keyed(Lowered(step, stage, moved), tuple(range(len(group))))
    return Lowered(builder.add(AggregateSpec(plan, True, rows), [edge], stage, node), stage, moved)


def _over_sessions(node: Aggregate) -> tuple[SessionWindow, list[int], tuple[AggregateCall, ...]] | None:
    """Return the sessions that `node` is over, their columns by which it groups, and its calls over these columns."""
    below, group, calls = node.input, node.group, node.aggregates
    columns = list(group)
    if any(isinstance(call, UserAggregateCall) for call in calls):
        return None
    if isinstance(below, Project):
        keys: list[Expression] = [below.expressions[i] for i in group]
        columns = [key.index for key in keys if isinstance(key, Column)]
        moved = substitute_all(calls, below.expressions)
        calls = tuple(call for call in moved if isinstance(call, AggregateCall))
        if len(columns) < len(keys) or not is_low(moved):
            return None
        below = below.input
    if not isinstance(below, SessionWindow) or below.open:
        return None
    return below, columns, calls


def _is_numbers(plan: AggregateLayout) -> bool:
    """Return whether the state of the aggregates is numbers that combine."""
    return all(
        argument.kind is ArgumentState.SUMS
        or (argument.kind in (ArgumentState.LEAST, ArgumentState.GREATEST) and not is_wide(argument.type))
        for argument in plan.arguments
    )


@lower.register
def _distinct(node: Distinct, builder: Builder) -> Lowered:
    return distinct_rows(node, lower_distinct_pairs(node, builder) or builder.lower(node.input), builder)


def distinct_rows(node: Distinct, child: Lowered, builder: Builder) -> Lowered:
    """Lower `node` over its lowered input, which may have fewer copies of a row than the node has."""
    edge, stage, partitions = builder.equal_rows(child, len(node.schema))
    strict = node.input.pattern is Pattern.STRICT
    spec = DistinctSpec(node.schema.types, strict, ending=time_endings(node))
    step = builder.add(spec, [edge], stage, node)
    return Lowered(step, stage, partitions)


@lower.register
def _aggregate(node: Aggregate, builder: Builder) -> Lowered:
    return watched_widths(_lower_aggregate(node, builder), node, node, builder)


def _lower_aggregate(node: Aggregate, builder: Builder) -> Lowered:
    blocks = paned_blocks(node)
    if blocks is not None:
        return lower_in_blocks(node, blocks, builder)
    if has_user_aggregates(node):
        return lower_user_aggregates(node, builder)
    estimated = lower_estimated_sums(node, builder)
    if estimated is not None:
        return estimated
    logged = lower_logged(node, builder)
    if logged is not None:
        return logged
    grouped = lower_grouped_sessions(node, builder)
    if grouped is not None:
        return grouped
    outside = outside_ranges(node.aggregates)
    counted = {VALUES_OUT_OF_RANGE: outside}
    child = None if outside is None else watched(builder.lower(node.input), node.input, counted, builder)
    lanes = lower_lanes(node, builder, child=child)
    fifo = node.input.pattern <= Pattern.WEAKEST
    spec = AggregateSpec(lanes.plan, fifo, lanes.types, ending=time_endings(node))
    return Lowered(builder.add(spec, [lanes.edge], lanes.stage, node), lanes.stage, lanes.partitions)


#: Windows with at most so many overlaps are recomputed at each boundary; others are computed incrementally.
_FEW = 4


def can_tell_rows(node: Aggregate) -> bool:
    """Return whether one operator emits the rows of `node` at boundaries: no user-defined aggregates, and groups, or
    sums of which each boundary is known to have some."""
    return not has_user_aggregates(node) and (bool(node.group) or (_never_empty(node) and hardly_overlaps(node)))


def hardly_overlaps(node: Aggregate) -> bool:
    """Return whether `node` is better recomputed at each boundary: over a window that shows a row at few of them, with
    no values to be kept in order. Plain sums in time are as cheap to compute incrementally."""
    window = paned_window(node)
    if window is None or window.slide is None or window.lifetime is None:
        return False
    plan = plan_lanes(node.group, node.aggregates, strict=False)
    if plan.bags or plan.sketched or not (plan.distincts or plan.extremes or _counts_elements(node)):
        return False
    # The skyline of an extreme is cheaper to maintain than a row to read twice.
    often = 1 if plan.extremes and not plan.distincts else _FEW
    return window.lifetime <= often * window.slide


def _counts_elements(node: Aggregate) -> bool:
    window = paned_window(node)
    return window is not None and isinstance(window.input, Arrivals)


def _never_empty(node: Aggregate) -> bool:
    """Return whether the window below has an element at every boundary: where the elements are counted, each s-th is
    one."""
    below = node.input
    while isinstance(below, Project):
        below = below.input
    return isinstance(below, TimeModelWindow) and isinstance(below.input, Arrivals)


def lower_at_boundaries(
    node: RelationToStream, aggregate: Aggregate, slide: int, align: int, builder: Builder
) -> Lowered:
    """Return the RSTREAM `node` of an `aggregate` that `can_tell_rows`, evaluated at the boundaries align + k·slide."""
    spec: Spec
    window = paned_window(aggregate)
    if aggregate.group and not hardly_overlaps(aggregate) and window is not None and window.lifetime is not None:
        own = (window.slide, window.align) == (slide, align)
        store = lower_store(aggregate, builder) if own else None
        if store is not None:
            spec = WindowSumsSpec(store.plan, window.lifetime, slide, align)
            return Lowered(builder.add(spec, [store.edge], store.stage, node), store.stage, store.partitions)
    outside, rows = outside_ranges(aggregate.aggregates), aggregate.input
    child = None if outside is None else watched(builder.lower(rows), rows, {VALUES_OUT_OF_RANGE: outside}, builder)
    lanes = lower_lanes(aggregate, builder, child=child)
    if hardly_overlaps(aggregate):
        spec = RecomputedSlideSpec(lanes.plan, slide, align, not _counts_elements(aggregate))
    else:
        fifo = aggregate.input.pattern <= Pattern.WEAKEST
        spec = IncrementalSlideSpec(lanes.plan, fifo, lanes.types, slide, align)
    found = Lowered(builder.add(spec, [lanes.edge], lanes.stage, node), lanes.stage, lanes.partitions)
    return watched_widths(found, node, aggregate, builder)
