"""Scans, selection, projection, windows and union: they stay in the stage of their input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch

from penstock.algebra import (
    Algebra,
    Constant,
    NegativeTuples,
    Pattern,
    Project,
    RelationScan,
    Select,
    TimeModelWindow,
    UnionAll,
    Window,
)
from penstock.algebra.analysis.column_origins import deciding
from penstock.algebra.nodes.scans import AcceptedScan, PunctuationScan, Source
from penstock.expressions.nodes import Column
from penstock.physical.plan.inputs import (
    AcceptedScanSpec,
    ConstantSpec,
    PunctuationScanSpec,
    ScanSpec,
    UpdatesSpec,
    update_rule,
)
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.rowwise import FilterSpec, ProjectSpec, UnionSpec
from penstock.physical.plan.windows import NegativeTuplesSpec, TimeWindowSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered, Partitions, lower, moved_partitions
from penstock.physical.planning.lowering.multi_join import projected_tree


@lower.register(RelationScan)
def _scan(node: RelationScan, builder: Builder) -> Lowered:
    source = node.source
    if node.fingerprint in builder.applied:
        source = Source(node.fingerprint, False, node.schema, "")
        return Lowered(builder.add(ScanSpec(source, tuple(range(len(node.schema)))), (), 0, node), 0)
    scan = Lowered(builder.add(ScanSpec(source, node.columns), (), 0, node), 0)
    if not source.loses_rows:
        return scan
    apart = (*source.time_columns, source.operation)
    named = source.primary_key or tuple(c for c in node.columns if c not in apart)
    key = tuple(node.columns.index(c) for c in named)
    spec = UpdatesSpec(source.name, key, node.schema.names, node.schema.types, *update_rule(source))
    edge, stage, partitions = builder.keyed(scan, key)
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


@lower.register
def _accepted_scan(node: AcceptedScan, builder: Builder) -> Lowered:
    return Lowered(builder.add(AcceptedScanSpec(node.source, node.columns), (), 0, node), 0)


@lower.register
def _punctuation_scan(node: PunctuationScan, builder: Builder) -> Lowered:
    return Lowered(builder.add(PunctuationScanSpec(node.source, ()), (), 0, node), 0)


@lower.register
def _constant(node: Constant, builder: Builder) -> Lowered:
    assert builder.inputs_static, "a static relation has a plan of its own"
    step = builder.add(ConstantSpec(node.rows, tuple(node.schema.types)), (), 1, node)
    return Lowered(step, 1, frozenset({()}))


@lower.register
def _select(node: Select, builder: Builder) -> Lowered:
    return selected(node, builder.lower(node.input), builder)


def selected(node: Select, child: Lowered, builder: Builder) -> Lowered:
    """Return the selection of `node` over `child`."""
    step = builder.add(FilterSpec(node.predicate), [Edge(child.step)], child.stage, node)
    return replace(child, step=step)


@lower.register
def _project(node: Project, builder: Builder) -> Lowered:
    tree = projected_tree(node, builder)
    return tree if tree is not None else projected(node, builder.lower(node.input), builder)


def projected(node: Project, child: Lowered, builder: Builder) -> Lowered:
    """Return the projection of `node` over `child`."""
    step = builder.add(ProjectSpec(node.expressions), [Edge(child.step)], child.stage, node)
    positions = {e.index: i for i, e in reversed(list(enumerate(node.expressions))) if isinstance(e, Column)}
    known = {*(child.partitions or ()), *child.colocated}
    # Where a key is dropped, the columns it is computed of may stay: of a.id % 10 = b.id % 10 the column a.id.
    colocated = frozenset(deciders for part in known if (deciders := deciding(node, part)) is not None)
    return Lowered(step, child.stage, moved_partitions(child.partitions, positions), colocated)


@lower.register
def _window(node: TimeModelWindow, builder: Builder) -> Lowered:
    return windowed(node, node, builder.lower(node.input), builder)


@singledispatch
def windowed(window: TimeModelWindow, node: Algebra, child: Lowered, builder: Builder) -> Lowered:
    """Return the elements of `child` with their validity in `window`, which decides about each of them alone; they are
    then those of `node`. Registered by kind of window."""
    raise AssertionError(f"{type(window).__name__} has no lowering")


@windowed.register
def _time_window(window: Window, node: Algebra, child: Lowered, builder: Builder) -> Lowered:
    spec = TimeWindowSpec(window.lifetime, window.slide, window.align)
    step = builder.add(spec, [Edge(child.step)], child.stage, node)
    return replace(child, step=step)


@lower.register
def _announced(node: NegativeTuples, builder: Builder) -> Lowered:
    edge, stage, partitions = builder.ordered(builder.lower(node.input))
    fifo = node.input.pattern <= Pattern.WEAKEST
    return Lowered(builder.add(NegativeTuplesSpec(fifo), [edge], stage, node), stage, partitions)


@lower.register
def _union(node: UnionAll, builder: Builder) -> Lowered:
    return unite(builder, [builder.lower(member) for member in node.members], node)


def unite(builder: Builder, members: Sequence[Lowered], node: Algebra) -> Lowered:
    """Return the rows of all `members`, in the stage of the last of them."""
    stage = max(m.stage for m in members)
    edges = [Edge(m.step, None if m.stage == stage else Exchange(None)) for m in members]
    partitions: Partitions = None
    if all(m.stage == stage and m.partitions is not None for m in members):
        common = frozenset.intersection(*(m.partitions for m in members if m.partitions is not None))
        partitions = common or None
    return Lowered(builder.add(UnionSpec(), edges, stage, node), stage, partitions)
