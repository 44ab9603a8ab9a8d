"""WSTREAM's results, and RESTORE."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import Restored, Results
from penstock.physical.lowering.builder import Builder, Lowered, lower
from penstock.physical.lowering.streams import lower_changes
from penstock.physical.plan import Exchange, Input, ResultsSpec, ShortChangesSpec, ShortLivesSpec, UnionSpec


@lower.register
def _results(node: Results, builder: Builder) -> Lowered:
    edge, stage, partitions = builder.ordered(builder.lower(node.input))
    return Lowered(builder.add(ResultsSpec(), [edge], stage, node), stage, partitions)


@lower.register
def _restored(node: Restored, builder: Builder) -> Lowered:
    reported = builder.lower(node.reported)
    short = _short(node, builder)
    stage = max(reported.stage, short.stage)
    edges = [Input(one.step, None if one.stage == stage else Exchange(None)) for one in (reported, short)]
    return Lowered(builder.add(UnionSpec(), edges, stage, node), stage)


def _short(node: Restored, builder: Builder) -> Lowered:
    """The stream of short-lived results, at their boundaries."""
    if node.by_life:
        edge, stage, partitions = builder.ordered(builder.lower(node.continual))
        step = builder.add(ShortLivesSpec(node.slide, node.align), [edge], stage, node)
        return Lowered(step, stage, partitions)
    changes = lower_changes(builder, node, node.continual, None)
    spec = ShortChangesSpec(node.slide, node.align, node.schema.types)
    return replace(changes, step=builder.add(spec, [Input(changes.step)], changes.stage, node))
