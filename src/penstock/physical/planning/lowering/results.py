"""WSTREAM's results, and RESTORE."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import IndividualResults, Pattern, Restored, StreamKind, UnionAll, own_windows
from penstock.algebra.nodes.base import has_operator
from penstock.algebra.nodes.r2s import updated_relations
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.rowwise import UnionSpec
from penstock.physical.plan.streams import (
    IndividualResultsSpec,
    RestoredInsertionsSpec,
    RoundedSpec,
    ShortChangesSpec,
    ShortLivesSpec,
)
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower, meet
from penstock.physical.planning.lowering.streams import lower_changes


@lower.register
def _results(node: IndividualResults, builder: Builder) -> Lowered:
    edge, stage, partitions = builder.ordered(builder.lower(node.input))
    return Lowered(builder.add(IndividualResultsSpec(), [edge], stage, node), stage, partitions)


@lower.register
def _restored(node: Restored, builder: Builder) -> Lowered:
    relation = node.reported.input
    if node.reported.kind is StreamKind.ISTREAM and _only_at_boundaries(node):
        return _insertions(node, builder)
    if builder.known_as(relation) not in builder.known and _only_rounded(node):
        # One operator tree computes both: SLIDE rounds the results as it would round the rows they are made of.
        continual = builder.lower(node.continual)
        spec = RoundedSpec(node.slide, node.align)
        step = builder.add(spec, [Edge(continual.step)], continual.stage, node.continual)
        builder.known[builder.known_as(relation)] = replace(continual, step=step)
    if node.reported.kind is StreamKind.ISTREAM:
        return _insertions(node, builder)
    reported = builder.lower(node.reported)
    short = _short(node, builder)
    stage = max(reported.stage, short.stage)
    edges = [Edge(child.step, None if child.stage == stage else Exchange(None)) for child in (reported, short)]
    return Lowered(builder.add(UnionSpec(), edges, stage, node), stage)


def _insertions(node: Restored, builder: Builder) -> Lowered:
    """Return the insertions of the continual query, at their boundaries."""
    spec = RestoredInsertionsSpec(node.slide, node.align)
    continual = lower_changes(builder, node, node.continual, StreamKind.ISTREAM)
    if _only_at_boundaries(node):
        edge, stage, partitions = builder.ordered(continual)
        return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)
    every = tuple(range(len(node.schema)))
    stage, edges, parts = meet(continual, builder.lower(node.reported), every, every)
    return Lowered(builder.add(spec, edges, stage, node), stage, frozenset(parts[:1]))


def _only_at_boundaries(node: Restored) -> bool:
    """Return whether the reported relation is empty before the first boundary and changes at boundaries alone: each of
    its rows is made of rows of windows that have this SLIDE."""
    return _only_rounded(node) and not has_operator(node.continual, UnionAll)


def _only_rounded(node: Restored) -> bool:
    """Return whether the reported relation is the continual one with every validity interval rounded to the boundaries:
    true where intervals begin and end with rows of windows that have this SLIDE. [max up(ts), min up(exp)) = [up(max
    ts), up(min exp))."""
    windows = list(own_windows(node.reported))
    slid = all(w.judges_alone and (w.slide, w.align) == (node.slide, node.align) for w in windows)
    known = node.by_life and node.continual.pattern is not Pattern.STRICT
    return known and slid and bool(windows) and not any(updated_relations(node.reported))


def _short(node: Restored, builder: Builder) -> Lowered:
    """Return the stream of short-lived results, at their boundaries."""
    if node.by_life:
        edge, stage, partitions = builder.ordered(builder.lower(node.continual))
        step = builder.add(ShortLivesSpec(node.slide, node.align), [edge], stage, node)
        return Lowered(step, stage, partitions)
    changes = lower_changes(builder, node, node.continual, None)
    spec = ShortChangesSpec(node.slide, node.align, node.schema.types)
    return replace(changes, step=builder.add(spec, [Edge(changes.step)], changes.stage, node))
