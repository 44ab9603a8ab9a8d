"""Semi-joins and outer joins, built from joins, δ and partner counts.

A semi-join is a join with the distinct partners: R ⋉ S = R ⋈[k] δ(π_k(S)), and with a further condition R ⋉[θ] S = R
⋈[all columns, NULL as NULL] δ(π_R(R ⋈[θ] S)), so its pattern is the join's. Results for tuples without a partner are
computed by `PartnerCounts` from the tuples and the pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from penstock.algebra import (
    Algebra,
    Distinct,
    Join,
    OuterJoin,
    OuterKind,
    Pattern,
    Project,
    SemiJoin,
    SemiKind,
    is_static,
)
from penstock.algebra.optimizer.rules.split_join_condition import split_join_condition
from penstock.algebra.optimizer.rules.support import is_volatile, split
from penstock.expressions.nodes import Column, Expression, Literal, columns_of, conjunction, conjuncts
from penstock.physical.plan.joins.ranges import find_ranges
from penstock.physical.plan.joins.specs import JoinSpec, Keep, PartnerCountsSpec, PartneredSpec, StaticPartnerCountsSpec
from penstock.physical.plan.plan import Edge
from penstock.physical.plan.rowwise import ProjectSpec
from penstock.physical.planning.lowering.aggregate_lookups import lower_probe, probe_of
from penstock.physical.planning.lowering.aggregates import distinct_rows
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower, meet
from penstock.physical.planning.lowering.joins import stores_both_sides
from penstock.physical.planning.lowering.ranges import in_cells, lower_in_cells
from penstock.physical.planning.lowering.rowwise import unite
from penstock.types import CALENDAR, Field

_KEEP = {SemiKind.SEMI: Keep.MATCHED, SemiKind.ANTI: Keep.LONE, SemiKind.MARK: Keep.MARKED}


@lower.register
def _semi(node: SemiJoin, builder: Builder) -> Lowered:
    if is_static(node.right) and not builder.inputs_static:
        return _lookup(node, builder, _KEEP[node.kind], "")
    joined, once = _pairs(node)
    # Partners that differ in the key alone are at most one at a time.
    partners = builder.lower(joined) if once else _partners(joined, builder)
    if node.kind is not SemiKind.SEMI:
        return _match(builder, node, node.left, partners, _KEEP[node.kind], "")
    if once:
        return partners
    left, right = builder.lower(node.left), distinct_rows(Distinct(joined), partners, builder)
    every, types = tuple(range(len(node.left.schema))), node.left.schema.types
    stage, edges, parts = meet(left, right, every, every)
    strict = (node.left.pattern is Pattern.STRICT, joined.pattern is Pattern.STRICT)
    spec = JoinSpec(every, every, types, types, None, strict, null_safe=True)
    both = Join(node.left, joined, tuple((i, i) for i in every))
    step = builder.add(spec, edges, stage, both)
    kept = builder.add(ProjectSpec(_columns(node.left)), [Edge(step)], stage, node)
    return Lowered(kept, stage, frozenset({parts[0]}))


@lower.register
def _outer(node: OuterJoin, builder: Builder) -> Lowered:
    if node.kind is OuterKind.LEFT and is_static(node.right) and not builder.inputs_static:
        return _lookup(node, builder, Keep.PADDED, node.single)
    if (probe := probe_of(node, builder)) is not None:
        return lower_probe(node, probe, builder)
    width = len(node.left.schema)
    join = split_join_condition(Join(node.left, node.right, node.equal, node.residual))
    pairs = Project(join, _columns(node.left), node.left.schema.fields)
    lone = _match(builder, node.left, node.left, builder.lower(pairs), Keep.LONE, node.single)
    members = [builder.lower(join), _projected(builder, node, lone, (*_columns(node.left), *_nulls(node.right)))]
    if node.kind is OuterKind.FULL:
        columns = tuple(Column(f.type, width + i, f.name) for i, f in enumerate(node.right.schema))
        pairs = Project(join, columns, node.right.schema.fields)
        lone = _match(builder, node.right, node.right, builder.lower(pairs), Keep.LONE, "")
        members.append(_projected(builder, node, lone, (*_nulls(node.left), *_columns(node.right))))
    return unite(builder, members, node)


def _pairs(node: SemiJoin) -> tuple[Project, bool]:
    """Return the left tuples once per partner, and whether that is at most once: where partners differ in the key
    alone. Conjuncts of the condition on one side alone limit the rows of that side that are paired."""
    pairs = split_join_condition(Join(node.left, node.right, node.equal, node.residual))
    assert isinstance(pairs, Join), "conditions move below the join"
    once = pairs.residual is None or max(columns_of(pairs.residual), default=-1) < len(node.left.schema)
    if once:
        columns: tuple[Expression, ...] = tuple(_columns(node.right)[j] for _, j in pairs.equal)
        fields = tuple(node.right.schema[j] for _, j in pairs.equal)
        if not columns:
            columns, fields = (Literal(pa.bool_(), True),), (Field("any", pa.bool_()),)
        right = Distinct(Project(pairs.right, columns, fields))
        pairs = replace(pairs, right=right, equal=tuple((i, n) for n, (i, _) in enumerate(pairs.equal)))
    return Project(pairs, _columns(node.left), node.left.schema.fields), once


def _partners(node: Project, builder: Builder) -> Lowered:
    """Return the left tuples of a join, of which `node` consists, at least once wherever they have a partner; all of
    them where the join shares its state, or has none."""
    join = node.input
    assert isinstance(join, Join), "tuples have partners in a join"
    if not stores_both_sides(join, builder):
        return builder.lower(node)
    ranges = find_ranges(join.residual, len(join.left.schema))
    if ranges is not None and in_cells(join, ranges, builder):
        return lower_in_cells(join, ranges, builder, partnered=node)
    types = join.left.schema.types, join.right.schema.types
    left_key, right_key = tuple(i for i, _ in join.equal), tuple(j for _, j in join.equal)
    stage, edges, parts = meet(builder.lower(join.left), builder.lower(join.right), left_key, right_key)
    strict = (join.left.pattern is Pattern.STRICT, join.right.pattern is Pattern.STRICT)
    spec = PartneredSpec(left_key, right_key, *types, join.residual, strict, ranges=ranges)
    return Lowered(builder.add(spec, edges, stage, node), stage, frozenset({parts[0]}))


def _match(builder: Builder, node: Algebra, left: Algebra, partners: Lowered, keep: Keep, single: str) -> Lowered:
    probing = builder.lower(left)
    every = tuple(range(len(left.schema)))
    stage, edges, parts = meet(probing, partners, every, every)
    step = builder.add(PartnerCountsSpec(left.schema.types, keep, single, node.domain or CALENDAR), edges, stage, node)
    return Lowered(step, stage, frozenset({parts[0]}))


def _lookup(node: SemiJoin | OuterJoin, builder: Builder, keep: Keep, single: str) -> Lowered:
    child = builder.lower(node.left)
    key, table_key = tuple(i for i, _ in node.equal), tuple(j for _, j in node.equal)
    table, width = builder.table(node.right), len(node.left.schema)
    parts = () if node.residual is None else conjuncts(node.residual)
    alone, of_both = split(parts, lambda p: not is_volatile(p) and all(c < width for c in columns_of(p)))
    residual = conjunction(of_both)
    spec = StaticPartnerCountsSpec(
        table,
        node.right.schema.types,
        key,
        table_key,
        residual,
        keep,
        single,
        node.domain or CALENDAR,
        find_ranges(residual, width),
        conjunction(alone),
    )
    step = builder.add(spec, [Edge(child.step)], child.stage, node)
    return Lowered(step, child.stage, child.partitions)


def _projected(builder: Builder, node: Algebra, child: Lowered, columns: Iterable[Expression]) -> Lowered:
    step = builder.add(ProjectSpec(tuple(columns)), [Edge(child.step)], child.stage, node)
    return Lowered(step, child.stage)


def _columns(node: Algebra) -> tuple[Column, ...]:
    return tuple(Column(f.type, i, f.name) for i, f in enumerate(node.schema))


def _nulls(node: Algebra) -> tuple[Literal, ...]:
    return tuple(Literal(f.type, None) for f in node.schema)
