"""Coalescing, for which all rows of a value must be in one shard."""

from __future__ import annotations

from penstock.algebra import Coalesce
from penstock.physical.plan.temporal.coalesce import CoalesceSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower


@lower.register
def _coalesce(node: Coalesce, builder: Builder) -> Lowered:
    edge, stage, partitions = builder.keyed(builder.lower(node.input), node.value)
    spec = CoalesceSpec(node.schema.types, node.closed)
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)
