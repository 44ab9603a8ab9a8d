"""Aggregates of sessions without their elements (`operators/temporal/grouped_sessions.py`).

Where a group has only columns of the partition and the bounds of the session, all elements of a session are in one
group, so their accumulators are added up as they come. That needs aggregates whose state is numbers: sums, and extremes
of types that are no wider. Aggregates of anything else, and those that read the bounds, keep the elements.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.algebra import Aggregate, Project, SessionWindow
from penstock.expressions.aggregates.contract import ArgumentState
from penstock.expressions.nodes import AggregateCall, Column, Expression, columns_of, is_low, substitute_all
from penstock.expressions.user import UserAggregateCall
from penstock.physical.kernels.key_order import is_wide
from penstock.physical.plan.aggregates import AggregateSpec
from penstock.physical.plan.plan import Edge
from penstock.physical.plan.state.aggregate_layout import AggregateLayout, plan_lanes
from penstock.physical.plan.strategies import Strategy
from penstock.physical.plan.temporal.grouped_sessions import GroupedSessionsSpec, SessionPiecesSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered
from penstock.physical.planning.lowering.lanes import lane_names, lane_types


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
