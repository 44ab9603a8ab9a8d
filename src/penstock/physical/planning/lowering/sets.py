"""EXCEPT and INTERSECT, for which equal tuples of both sides must be in one shard; and the first rows, computed in
one."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import Algebra, Except, Intersect, Pattern, TopK, is_static
from penstock.physical.plan.inputs import StaticSpec
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.sets import CopyRule, SetOperationSpec, TopKSpec
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.lowering.aggregate_lookups import may_take_back
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower, meet

ONE_SHARD: frozenset[tuple[int, ...]] = frozenset({()})


@lower.register
def _except(node: Except, builder: Builder) -> Lowered:
    return _set_operation(node, builder, CopyRule.EXCEPT_ALL if node.every else CopyRule.EXCEPT)


@lower.register
def _intersect(node: Intersect, builder: Builder) -> Lowered:
    return _set_operation(node, builder, CopyRule.INTERSECT_ALL if node.every else CopyRule.INTERSECT)


def _set_operation(node: Except | Intersect, builder: Builder, kind: CopyRule) -> Lowered:
    every = tuple(range(len(node.schema)))
    if not builder.inputs_static and (is_static(node.left) or is_static(node.right)):
        stage, edges, part = _meet_static(node, builder, every)
    else:
        left, right = builder.lower(node.left), builder.lower(node.right)
        stage, edges, (part, _) = meet(left, right, every, every)
    step = builder.add(SetOperationSpec(kind, node.schema.types), edges, stage, node)
    return Lowered(step, stage, frozenset({part}))


def _meet_static(
    node: Except | Intersect, builder: Builder, every: tuple[int, ...]
) -> tuple[int, list[Edge], tuple[int, ...]]:
    """Return where a moving side and a static one meet: the static one is partitioned as the moving one is."""
    fixed_left = is_static(node.left)
    moving: Algebra = node.right if fixed_left else node.left
    fixed: Algebra = node.left if fixed_left else node.right
    edge, stage, partitions = builder.keyed(builder.lower(moving), every)
    part = min(p for p in partitions or () if set(p) <= set(every))
    table = Edge(builder.add(StaticSpec(builder.table(fixed), part), (), stage, fixed))
    return stage, [table, edge] if fixed_left else [edge, table], part


@lower.register
def _top_k(node: TopK, builder: Builder) -> Lowered:
    """Return the first rows in two steps where rows are in several shards: the first of all are among the first of
    their shard. The first of each part are computed in the shard of the part."""
    child = builder.lower(node.input)
    types = node.schema.types
    # Of an input that only grows, what is behind the last place stays there.
    lasting = node.input.pattern is Pattern.MONOTONIC
    # Where the end of a row is known on its arrival, rows that so many precede which end no earlier stay behind them.
    ending = builder.strategy is Strategy.PATTERN and not lasting and not may_take_back(node.input, builder)
    if node.partition:
        each = TopKSpec(
            node.total_order,
            node.limit,
            node.offset,
            types,
            partition=node.partition,
            lasting=lasting,
            ending=ending,
        )
        edge, stage, partitions = builder.keyed(child, node.partition)
        return Lowered(builder.add(each, [edge], stage, node), stage, partitions)
    final = TopKSpec(node.total_order, node.limit, node.offset, types)
    if child.stage > 0 and child.partitions is not None and () in child.partitions:
        only = replace(final, lasting=lasting, ending=ending)
        return Lowered(builder.add(only, [Edge(child.step)], child.stage, node), child.stage, ONE_SHARD)
    edge, stage, _ = builder.ordered(child)
    scattered = child.stage == 0 or child.partitions is None
    local = TopKSpec(
        node.total_order,
        node.limit + node.offset,
        0,
        types,
        "local",
        scattered=scattered,
        lasting=lasting,
        ending=ending,
    )
    first = builder.add(local, [edge], stage, replace(node, limit=local.limit, offset=0))
    return Lowered(builder.add(final, [Edge(first, Exchange(()))], stage + 1, node), stage + 1, ONE_SHARD)
