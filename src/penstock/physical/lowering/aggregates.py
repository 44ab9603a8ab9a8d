"""Grouping and duplicate elimination: equal keys must meet."""

from __future__ import annotations

from penstock.algebra import Aggregate, Distinct, Pattern, RelationToStream
from penstock.physical.lowering.builder import Builder, Lowered, lower
from penstock.physical.lowering.lanes import lower_lanes
from penstock.physical.lowering.user_aggregates import has_user_aggregates, lower_user_aggregates
from penstock.physical.pane_plan import BoundaryAggregateSpec
from penstock.physical.plan import AggregateSpec, DistinctSpec


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
    lanes = lower_lanes(node, builder)
    spec = AggregateSpec(lanes.plan, node.input.pattern <= Pattern.WEAKEST, lanes.types)
    return Lowered(builder.add(spec, [lanes.edge], lanes.stage, node), lanes.stage, lanes.partitions)


def can_tell_rows(node: Aggregate) -> bool:
    """Whether one operator tells the rows of `node` at boundaries: groups, and no code of the user's."""
    return bool(node.group) and not has_user_aggregates(node)


def lower_at_boundaries(
    node: RelationToStream, aggregate: Aggregate, slide: int, align: int, builder: Builder
) -> Lowered:
    """The RSTREAM `node` of a grouped `aggregate`, evaluated at the boundaries align + k·slide."""
    lanes = lower_lanes(aggregate, builder)
    fifo = aggregate.input.pattern <= Pattern.WEAKEST
    spec = BoundaryAggregateSpec(lanes.plan, fifo, lanes.types, slide, align)
    return Lowered(builder.add(spec, [lanes.edge], lanes.stage, node), lanes.stage, lanes.partitions)
