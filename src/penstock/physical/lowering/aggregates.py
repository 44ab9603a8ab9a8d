"""Grouping and duplicate elimination: equal keys must meet."""

from __future__ import annotations

import pyarrow as pa

from penstock.algebra import (
    Aggregate,
    Distinct,
    Pattern,
    own_windows,
)
from penstock.physical.lane_plan import LanePlan, plan_lanes
from penstock.physical.lowering.builder import Builder, Lowered, lower, moved_partitions
from penstock.physical.lowering.user_aggregates import has_user_aggregates, lower_user_aggregates
from penstock.physical.plan import (
    AggregateSpec,
    DistinctSpec,
    Input,
    LanesSpec,
)


@lower.register
def _distinct(node: Distinct, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    edge, stage, partitions = builder.keyed(child, tuple(range(len(node.schema))))
    strict = node.input.pattern is Pattern.STRICT
    step = builder.add(DistinctSpec(node.schema.types, strict), [edge], stage, node)
    return Lowered(step, stage, partitions)


@lower.register
def _aggregate(node: Aggregate, builder: Builder) -> Lowered:
    if has_user_aggregates(node):
        return lower_user_aggregates(node, builder)
    child = builder.lower(node.input)
    strict = node.input.pattern is Pattern.STRICT
    plan = plan_lanes(node.group, node.aggregates, strict)
    panes = not strict and any(w.slide is not None for w in own_windows(node))
    types = _lane_types(node, plan)
    names = [
        *(node.input.schema[i].name for i in node.group),
        *(f"lane{i}" for i in range(len(types) - len(node.group))),
    ]
    lanes = builder.add(LanesSpec(plan, panes), [Input(child.step)], child.stage, node.input, types, names)
    places = {column: i for i, column in reversed(list(enumerate(node.group)))}
    made = Lowered(lanes, child.stage, moved_partitions(child.partitions, places))
    edge, stage, partitions = builder.keyed(made, tuple(range(len(node.group))))
    fifo = node.input.pattern <= Pattern.WEAKEST
    step = builder.add(AggregateSpec(plan, fifo, types), [edge], stage, node)
    return Lowered(step, stage, partitions)


def _lane_types(node: Aggregate, plan: LanePlan) -> tuple[pa.DataType, ...]:
    keys = [node.input.schema[i].type for i in node.group]
    values = [plan.arguments[i].type for i in plan.valued]
    return (*keys, *[pa.int64()] * plan.integers, *[pa.float64()] * plan.floats, *values)
