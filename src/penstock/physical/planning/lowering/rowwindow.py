"""Row windows, samples and the results of INTERNAL windows."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.algebra import (
    Algebra,
    ArrivalTime,
    IndividualResults,
    Internal,
    RelationToStream,
    RowWindow,
    Sample,
    StreamKind,
    WindowSample,
)
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.row_draws import RowDraws, drawn_by_pane
from penstock.figures import ROWS_NEVER_DRAWN
from penstock.physical.plan.joins.specs import StampSpec
from penstock.physical.plan.plan import Edge
from penstock.physical.plan.windows import RowDrawsSpec, RowWindowSpec, SampleSpec, StepWindowSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.physical.planning.lowering.frequent import lower_in_blocks
from penstock.physical.planning.lowering.watched import never_drawn, watched


@lower.register
def _row_window(node: RowWindow, builder: Builder) -> Lowered:
    return row_window(node, node, builder)


def row_window(window: RowWindow, node: Algebra, builder: Builder) -> Lowered:
    """Return the step of a row window: rows are partitioned; without PARTITION BY, all are in one shard. A stream that
    has an order of arrival comes straight from its ingest, so that a stage between does not lose the order. node: the
    purpose of the step; where it is `ArrivalTime`, elements carry their timestamps."""
    plain = in_arrival_order(window.input)
    below = window.input if plain is None else plain
    child = builder.lower(below)
    if isinstance(node, ArrivalTime):
        child = stamped(below, child, builder)
    edge, stage, partitions = builder.keyed(child, window.partition)
    if window.rows is None:
        moved = StepWindowSpec(node.schema.types, window.length, window.step or 1, plain is not None)
        return Lowered(builder.add(moved, [edge], stage, node), stage, partitions)
    spec = RowWindowSpec(
        node.schema.types,
        window.rows,
        window.step or 1,
        window.partition,
        window.length,
        window.slide,
        window.align,
        plain is not None,
    )
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


def stamped(node: Algebra, child: Lowered, builder: Builder) -> Lowered:
    """Return the elements of `child`, which computes the stream `node`, with their timestamps as a last column."""
    types, names = (*node.schema.types, pa.int64()), (*node.schema.names, "came")
    return replace(child, step=builder.add(StampSpec(), [Edge(child.step)], child.stage, node, types, names))


@lower.register
def _sample(node: Sample, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    spec = SampleSpec(node.percent, node.seed, node.name, node.by, node.records)
    return replace(child, step=builder.add(spec, [Edge(child.step)], child.stage, node))


@lower.register
def _window_sample(node: WindowSample, builder: Builder) -> Lowered:
    if node.blocks is not None:
        return lower_in_blocks(node, node.blocks, builder)
    return builder.lower(node.expanded)


@lower.register
def _row_draws(node: RowDraws, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    if node.weight is not None:
        child = watched(child, node.input, {ROWS_NEVER_DRAWN: never_drawn(node.weight)}, builder)
    if node.per:
        edge, stage, partitions = builder.keyed(child, node.per)
    else:
        edge, stage, partitions = builder.equal_rows(child, len(node.input.schema))
    spec = RowDrawsSpec(node.input.schema.types, node.seed, node.name, not drawn_by_pane(node.input))
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


@lower.register
def _internal(node: Internal, builder: Builder) -> Lowered:
    """Return the results of INTERNAL windows: elements of a stream never expire, so as a relation they are all
    results."""
    results = IndividualResults(node.input) if node.by_life else RelationToStream(node.input, StreamKind.ISTREAM)
    return builder.lower(results)
