"""Frequent items: exact counts next to the readers, candidates by item, lists by the PER columns `[golab 6]`."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.algebra import (
    Aggregate,
    Algebra,
    Arrivals,
    FrequencyWindow,
    Frequent,
    Project,
    Select,
    Window,
    WindowSample,
)
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.frequent import Blocks, blocks_of_rows, counted
from penstock.algebra.nodes.windows import WindowKind
from penstock.errors import PenstockError
from penstock.figures import NEGATIVE_VALUES
from penstock.physical.plan.panes import FrequentCandidatesSpec, FrequentItemsSpec, FrequentRule
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.sequence import ARRIVALS, CountTimeSpec
from penstock.physical.planning.lowering.aggregate_input import lower_lanes
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.physical.planning.lowering.frequency import plan_inside
from penstock.physical.planning.lowering.watched import negative, watched


@lower.register
def _frequent(node: Frequent, builder: Builder) -> Lowered:
    blocks = blocks_of_rows(node.input)
    if blocks is not None:
        return lower_in_blocks(node, blocks, builder)
    child = watched(builder.lower(node.input), node.input, {NEGATIVE_VALUES: negative(node.aggregate)}, builder)
    counts = Aggregate(node.input, node.group, (counted(node.aggregate),), ("count",))
    lanes = lower_lanes(counts, builder, child=child)
    candidates = FrequentCandidatesSpec(lanes.plan, node.per, node.k + 1)
    keys = tuple(node.input.schema[i].type for i in node.group)
    types, names = (*keys, *[pa.int64()] * 4), [*node.schema.names[: len(keys)], "high", "low", "all_high", "all_low"]
    step = builder.add(candidates, [lanes.edge], lanes.stage, node, types, names)
    alone = lanes.partitions is not None and any(set(p) <= set(node.per) for p in lanes.partitions)
    edge = Edge(step) if alone else Edge(step, Exchange(node.per))
    stage = lanes.stage if alone else lanes.stage + 1
    rule, number = _rule(node)
    spec = FrequentItemsSpec(
        keys, node.per, node.k, node.thesis, rule, number, node.possibly, node.measures, node.aggregate.type
    )
    partitions = lanes.partitions if alone else frozenset({node.per})
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


def _rule(node: Frequent) -> tuple[FrequentRule, tuple[int, int]]:
    if node.threshold is not None:
        return FrequentRule.SHARE, node.threshold
    if node.limit is not None:
        return FrequentRule.NUMBER, (node.limit >> 32, node.limit & 0xFFFFFFFF)
    return FrequentRule.DELTA, (0, 0)


def lower_in_blocks(node: Frequent | Aggregate | WindowSample, blocks: Blocks, builder: Builder) -> Lowered:
    """Return what is computed from panes over the last elements of a stream with their numbers as time: there a
    block is a pane like any other, which ends at the number of its last element."""
    window, step = blocks
    if isinstance(window, FrequencyWindow):
        hint = "write the part with FREQUENT as a view, and read the view"
        raise PenstockError("P0352", "FREQUENT beside other windows of a query with FREQUENCY", hint=hint)
    stream = window.input
    plain = in_arrival_order(stream)
    edge, stage, partitions = builder.keyed(builder.lower(stream if plain is None else plain), ())
    arrivals = Arrivals(0, stream.schema, stream.domain)
    numbered = Window(arrivals, WindowKind.RANGE, window.rows, step)

    def over_numbers(relation: Algebra) -> Algebra:
        if isinstance(relation, Select | Project):
            return replace(relation, input=over_numbers(relation.input))
        return numbered

    moved = replace(node, input=over_numbers(node.input))
    body = moved.expanded if isinstance(moved, WindowSample) else moved
    columns, inner = tuple(range(len(stream.schema))), plan_inside(body, builder)
    spec = CountTimeSpec(columns, plain is not None, ARRIVALS, window.rows, step, inner, ((step, 0, 0),), True)
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)
