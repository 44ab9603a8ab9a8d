"""Row windows, samples and the results of INTERNAL windows."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import Internal, RelationToStream, Results, RowWindow, Sample, StreamKind
from penstock.algebra.arrival import in_arrival_order
from penstock.physical.lowering.builder import Builder, Lowered, lower
from penstock.physical.plan import Input, RowWindowSpec, SampleSpec
from penstock.physical.step_plan import StepWindowSpec


@lower.register
def _row_window(node: RowWindow, builder: Builder) -> Lowered:
    """Rows meet by partition; without one, all in one shard. A stream that has an order of arrival comes straight from
    its ingest, so that the order is not lost in a stage between."""
    plain = in_arrival_order(node.input)
    child = builder.lower(node.input if plain is None else plain)
    edge, stage, partitions = builder.keyed(child, node.partition)
    if node.rows is None:
        moved = StepWindowSpec(node.schema.types, node.length, node.step or 1, plain is not None)
        return Lowered(builder.add(moved, [edge], stage, node), stage, partitions)
    spec = RowWindowSpec(
        node.schema.types, node.rows, node.step or 1, node.partition, node.length, node.slide, node.align,
        plain is not None,
    )  # fmt: skip
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


@lower.register
def _sample(node: Sample, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    spec = SampleSpec(node.percent, node.seed, node.name)
    return replace(child, step=builder.add(spec, [Input(child.step)], child.stage, node))


@lower.register
def _internal(node: Internal, builder: Builder) -> Lowered:
    """Elements of a stream have no end: as a relation they are the collection that INTERNAL asks for."""
    results = Results(node.input) if node.by_life else RelationToStream(node.input, StreamKind.ISTREAM)
    return builder.lower(results)
