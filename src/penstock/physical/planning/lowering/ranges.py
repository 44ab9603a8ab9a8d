"""Band joins without an equality, spread over shards: the axis is cut into cells, and a cell is a key as any other.

R ⋈[θ] S = π(cells(R) ⋈[cell = cell; θ AND (one is in its first cell)] cells(S)). Law: two rows that pass θ have spans
that overlap, so they share cells, in exactly one of which one of both spans begins
(`physical/operators/joins/band_partitioner.py`). Which rows go where is decided by their values, so negative tuples
follow their tuples."""

from __future__ import annotations

import pyarrow as pa

from penstock.algebra import Algebra, Distinct, Join, Pattern, Project
from penstock.expressions.nodes import Call, Column, columns_of, conjunction, remap
from penstock.physical.plan.joins.ranges import Ranges, RangeSpan
from penstock.physical.plan.joins.specs import BandPartitionerSpec, JoinSpec, PartneredSpec
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.rowwise import ProjectSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered


def one_row(node: Algebra) -> bool:
    """Return whether the relation never has two rows: by its keys, or as DISTINCT over constants."""
    if isinstance(node, Distinct) and isinstance(node.input, Project):
        return not any(columns_of(e) for e in node.input.expressions)
    return frozenset() in node.keys


def in_cells(node: Join, ranges: Ranges, builder: Builder) -> bool:
    """Return whether `node` is a band join that cells spread over shards: without an equality, and not with a single
    row, which is sent to all of them."""
    alone = builder.inputs_static or builder.statistics.shards < 2
    return not (alone or node.equal or ranges.cell is None or one_row(node.left) or one_row(node.right))


def lower_in_cells(node: Join, ranges: Ranges, builder: Builder, partnered: Algebra | None = None) -> Lowered:
    """Return the join `node` in cells; partnered: in its place, the left tuples that have a partner in it."""
    assert ranges.cell is not None
    left, left_types = _cells(node.left, ranges.left, ranges.cell, builder)
    right, right_types = _cells(node.right, ranges.right, ranges.cell, builder)
    width, wider = len(node.left.schema), len(left_types)
    left_key, right_key = (wider - 2,), (len(right_types) - 2,)
    first = Call(pa.bool_(), "OR", (Column(pa.bool_(), wider - 1), Column(pa.bool_(), wider + len(right_types) - 1)))
    assert node.residual is not None
    residual = conjunction((first, remap(node.residual, lambda i: i if i < width else i + wider - width)))
    stage = max(left.stage, right.stage) + 1
    edges = [Edge(left.step, Exchange(left_key)), Edge(right.step, Exchange(right_key))]
    made, kind = (node, JoinSpec) if partnered is None else (partnered, PartneredSpec)
    spec = kind(
        left_key,
        right_key,
        left_types,
        right_types,
        residual,
        (node.left.pattern is Pattern.STRICT, node.right.pattern is Pattern.STRICT),
        builder.notes.get(node.fingerprint, ""),
        ranges=ranges,
    )
    types, names = left_types, (*node.left.schema.names, "cell", "first")
    kept = [*range(width)]
    if partnered is None:
        types, names = (*types, *right_types), (*names, *node.right.schema.names, "cell", "first")
        kept += range(wider, wider + len(node.right.schema))
    joined = builder.add(spec, edges, stage, made, types, names)
    columns = tuple(Column(f.type, i, f.name) for f, i in zip(made.schema, kept, strict=True))
    return Lowered(builder.add(ProjectSpec(columns), [Edge(joined)], stage, made), stage)


def _cells(node: Algebra, span: RangeSpan, width: float, builder: Builder) -> tuple[Lowered, tuple[pa.DataType, ...]]:
    """Return the elements of `node` in their cells, and the types of their columns."""
    child = builder.lower(node)
    types = (*node.schema.types, pa.int64(), pa.bool_())
    names = (*node.schema.names, "cell", "first")
    step = builder.add(BandPartitionerSpec(span, width), [Edge(child.step)], child.stage, node, types, names)
    return Lowered(step, child.stage), types
