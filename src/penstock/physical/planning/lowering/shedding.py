"""Load shedding: all tuples of a budget are in one shard, so that answers do not depend on the number of shards."""

from __future__ import annotations

from penstock.algebra.nodes.shed import Shed
from penstock.physical.plan.temporal.shedding import ShedSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower


@lower.register
def _shed(node: Shed, builder: Builder) -> Lowered:
    edge, stage, partitions = builder.keyed(builder.lower(node.input), ())
    spec = ShedSpec(
        node.schema.types, node.policy, node.budget, node.in_bytes, node.buckets, node.compact, node.least,
        node.ordered, node.sample, node.query, node.every, node.at_least, node.fails,
        node.cpu, node.shares_limit,
    )  # fmt: skip
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)
