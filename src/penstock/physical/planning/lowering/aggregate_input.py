"""The input of an aggregate: lane rows, pre-aggregated to panes, and their way to the shard of their group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.algebra import Aggregate, FrequencyWindow, Pattern, Project, Select, Window, own_windows
from penstock.expressions.aggregates.contract import ArgumentState
from penstock.physical.plan.aggregates import AccumulatorRowsSpec
from penstock.physical.plan.panes import PanesSpec, PaneStoreSpec
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.rowwise import UnionSpec
from penstock.physical.plan.state.aggregate_layout import AggregateLayout, plan_lanes
from penstock.physical.plan.windows import TimeWindowSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered, Partitions, moved_partitions
from penstock.physical.planning.lowering.panes import over_panes, pane_key, paned_window
from penstock.physical.planning.lowering.preferences import lower_recorded_sums


@dataclass(frozen=True)
class AccumulatorInput:
    """Lane rows of an aggregate in the stage where equal groups meet: their edge, their partitions, the layout of the
    lanes and the types of the columns."""

    edge: Edge
    stage: int
    partitions: Partitions
    plan: AggregateLayout
    types: tuple[pa.DataType, ...]


def lower_lanes(
    node: Aggregate, builder: Builder, by: tuple[int, ...] | None = None, child: Lowered | None = None
) -> AccumulatorInput:
    """Return the input of `node`. by: which of the group columns decide where rows are sent, all of them for None;
    child: the steps of the input, where they are not the default ones."""
    grain = builder.grains.get(pane_key(node))
    return _own(node, builder, by, child) if grain is None else _from_panes(node, grain, builder)


def _own(
    node: Aggregate, builder: Builder, by: tuple[int, ...] | None = None, child: Lowered | None = None
) -> AccumulatorInput:
    strict = node.input.pattern is Pattern.STRICT
    plan = plan_lanes(node.group, node.aggregates, strict)
    types = lane_types(node, plan)
    names = lane_names(node, types)
    if by is None and child is None:
        recorded = lower_recorded_sums(node, plan, types, names, builder)
        if recorded is not None:
            edge, stage, partitions = builder.keyed(recorded, tuple(range(len(node.group))))
            return AccumulatorInput(edge, stage, partitions, plan, types)
    child = child or builder.lower(node.input)
    panes = any(w.slide is not None for w in own_windows(node)) if not strict else _jumps(node, plan)
    positions = {column: i for i, column in reversed(list(enumerate(node.group)))}
    if not panes:
        # Rows are narrower than the numbers that are computed from them.
        sent = node.group if by is None else tuple(node.group[i] for i in by)
        edge, stage, partitions = builder.keyed(child, node.group)
        if edge.exchange is not None:
            edge, partitions = Edge(edge.step, Exchange(sent)), frozenset({sent})
        step = builder.add(AccumulatorRowsSpec(plan, panes), [edge], stage, node.input, types, names)
        return AccumulatorInput(Edge(step), stage, moved_partitions(partitions, positions), plan, types)
    step = builder.add(AccumulatorRowsSpec(plan, panes), [Edge(child.step)], child.stage, node.input, types, names)
    lowered = Lowered(step, child.stage, moved_partitions(child.partitions, positions))
    edge, stage, partitions = builder.keyed(lowered, tuple(range(len(node.group))))
    return AccumulatorInput(edge, stage, partitions, plan, types)


def _jumps(node: Aggregate, plan: AggregateLayout) -> bool:
    """Return whether rows enter and leave in large numbers, at the evaluations of a window that jumps, and only sums
    are emitted: these numbers then add up with their signs."""
    below = node.input
    while isinstance(below, Select | Project):
        below = below.input
    sums = all(argument.kind is ArgumentState.SUMS for argument in plan.arguments)
    return isinstance(below, FrequencyWindow) and below.jumps and sums


def _from_panes(node: Aggregate, grain: int, builder: Builder) -> AccumulatorInput:
    """Return the panes of the node's window, from the finer ones that all aggregates of its kind are fed from."""
    window = paned_window(node)
    assert window is not None and window.slide is not None
    panes, plan, types = _shared(node, grain, builder)
    spec = TimeWindowSpec(window.lifetime, window.slide, window.align)
    step = builder.add(spec, [Edge(panes.step)], panes.stage, node.input, types, lane_names(node, types))
    if window.slide > grain:
        step = builder.add(PanesSpec(plan), [Edge(step)], panes.stage, node.input, types, lane_names(node, types))
    return AccumulatorInput(Edge(step), panes.stage, panes.partitions, plan, types)


def _shared(node: Aggregate, grain: int, builder: Builder) -> tuple[Lowered, AggregateLayout, tuple[pa.DataType, ...]]:
    """Return the panes that all aggregates of the node's kind are fed from."""
    shared = over_panes(node, grain)
    plan = plan_lanes(node.group, node.aggregates, strict=False)
    types = lane_types(node, plan)
    name = f"panes of {builder.known_as(shared)}"
    if name not in builder.known:
        fine = _own(shared, builder)
        met = builder.add(UnionSpec(), [fine.edge], fine.stage, shared.input, types, lane_names(node, types))
        builder.known[name] = Lowered(met, fine.stage, fine.partitions)
    return builder.known[name], plan, types


def lower_store(node: Aggregate, builder: Builder) -> AccumulatorInput | None:
    """Return the store of panes from which the sums of `node` are read, shared by all its windows; None where it shares
    none, or has other state than sums."""
    grain, window = builder.grains.get(pane_key(node)), paned_window(node)
    if grain is None or window is None or window.lifetime is None:
        return None
    if not plan_lanes(node.group, node.aggregates, strict=False).plain_sums:
        return None
    panes, plan, types = _shared(node, grain, builder)
    shared = over_panes(node, grain)
    name = f"store of {builder.known_as(shared)}"
    if name not in builder.known:
        spec = PaneStoreSpec(plan, types)
        step = builder.add(spec, [Edge(panes.step)], panes.stage, node.input, types, lane_names(node, types))
        builder.known[name] = replace(panes, step=step)
    place = builder.known[name].step - builder.first
    known = paned_window(replace(node, input=builder.nodes[place]))
    assert known is not None
    if _reach(window) > _reach(known):
        # The store computes the window that reaches back furthest.
        builder.nodes[place] = node.input
    return AccumulatorInput(Edge(builder.known[name].step), panes.stage, panes.partitions, plan, types)


def _reach(window: Window) -> int:
    return (window.lifetime or 0) + (window.slide or 0)


def lane_types(node: Aggregate, plan: AggregateLayout) -> tuple[pa.DataType, ...]:
    keys = [node.input.schema[i].type for i in node.group]
    values = [plan.arguments[i].type for i in plan.valued]
    integers, floats = plan.carried
    return (*keys, *[pa.int64()] * len(integers), *[pa.float64()] * len(floats), *values)


def lane_names(node: Aggregate, types: Sequence[pa.DataType]) -> list[str]:
    """Return the names of the columns of accumulator rows for EXPLAIN."""
    keys = [node.input.schema[i].name for i in node.group]
    return [*keys, *(f"lane{i}" for i in range(len(types) - len(keys)))]
