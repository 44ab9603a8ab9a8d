"""Grouping and duplicate elimination: equal keys must be in one shard."""

from __future__ import annotations

from penstock.algebra import Aggregate, Arrivals, Distinct, Pattern, Project, RelationToStream, TimeModelWindow
from penstock.algebra.nodes.panes import paned_blocks
from penstock.physical.plan.aggregates import AggregateSpec
from penstock.physical.plan.panes import IncrementalSlideSpec, RecomputedSlideSpec, WindowSumsSpec
from penstock.physical.plan.sets import DistinctSpec
from penstock.physical.plan.spec import Spec
from penstock.physical.plan.state.aggregate_layout import plan_lanes
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.physical.planning.lowering.estimated_sums import lower_estimated_sums
from penstock.physical.planning.lowering.frequent import lower_in_blocks
from penstock.physical.planning.lowering.grouped_sessions import lower_grouped_sessions
from penstock.physical.planning.lowering.lanes import lower_lanes, lower_store
from penstock.physical.planning.lowering.logs import lower_logged
from penstock.physical.planning.lowering.panes import paned_window
from penstock.physical.planning.lowering.user_aggregates import has_user_aggregates, lower_user_aggregates
from penstock.physical.planning.lowering.watched import OUTSIDE, outside_ranges, watched, watched_widths


@lower.register
def _distinct(node: Distinct, builder: Builder) -> Lowered:
    return distinct_rows(node, builder.lower(node.input), builder)


def distinct_rows(node: Distinct, child: Lowered, builder: Builder) -> Lowered:
    """Lower `node` over its lowered input, which may have fewer copies of a row than it says."""
    edge, stage, partitions = builder.equal_rows(child, len(node.schema))
    strict = node.input.pattern is Pattern.STRICT
    step = builder.add(DistinctSpec(node.schema.types, strict), [edge], stage, node)
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
    child = None if outside is None else watched(builder.lower(node.input), node.input, {OUTSIDE: outside}, builder)
    lanes = lower_lanes(node, builder, child=child)
    spec = AggregateSpec(lanes.plan, node.input.pattern <= Pattern.WEAKEST, lanes.types)
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
    child = None if outside is None else watched(builder.lower(rows), rows, {OUTSIDE: outside}, builder)
    lanes = lower_lanes(aggregate, builder, child=child)
    if hardly_overlaps(aggregate):
        spec = RecomputedSlideSpec(lanes.plan, slide, align, not _counts_elements(aggregate))
    else:
        fifo = aggregate.input.pattern <= Pattern.WEAKEST
        spec = IncrementalSlideSpec(lanes.plan, fifo, lanes.types, slide, align)
    found = Lowered(builder.add(spec, [lanes.edge], lanes.stage, node), lanes.stage, lanes.partitions)
    return watched_widths(found, node, aggregate, builder)
