"""Coalescing, for which all rows of a value must be in one shard, as those of a partition must for its sessions; and
`[VALID]`."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import (
    Begins,
    Coalesce,
    EndedPeriods,
    Gaps,
    Lasting,
    Pattern,
    Project,
    Select,
    SessionWindow,
    StretchChances,
    UntilNext,
    ValidWindow,
    Window,
)
from penstock.physical.plan.plan import Edge
from penstock.physical.plan.spec import Spec
from penstock.physical.plan.strategies import Strategy
from penstock.physical.plan.temporal.coalesce import CoalesceSpec, StretchPiecesSpec
from penstock.physical.plan.temporal.gaps import GapsSpec
from penstock.physical.plan.temporal.granules import BudgetedRunsSpec, GranuleRunsSpec, OncePerLifeSpec
from penstock.physical.plan.temporal.sessions import SessionsSpec, ValidWindowSpec
from penstock.physical.plan.temporal.stretch_chances import StretchChancesSpec
from penstock.physical.plan.temporal.until_next import LastingSpec, UntilNextSpec
from penstock.physical.plan.temporal.window_stretches import WindowStretchesSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.physical.planning.lowering.estimated_sums import dropping_step


@lower.register
def _chances(node: StretchChances, builder: Builder) -> Lowered:
    refused = node.refusal()
    if refused is not None:
        raise refused
    if node.once:
        return _emitted_once(node, builder)
    child = builder.lower(node.input)
    budget = dropping_step(child.step, builder)
    edges = [Edge(child.step)] if budget == child.step else [Edge(child.step), Edge(budget)]
    spec = StretchChancesSpec(node.input.schema.types, node.drawn.drawn_columns, node.buckets, len(edges) - 1)
    return replace(child, step=builder.add(spec, edges, child.stage, node))


def _emitted_once(node: StretchChances, builder: Builder) -> Lowered:
    """Lower rows that are emitted once, with their inclusion records, which the operator with the budget writes."""
    below = node.input
    if isinstance(below, SessionWindow):
        return _lowered_sessions(below, builder, node)
    assert isinstance(below, Coalesce)
    return _coalesced(below, builder, None, node)


@lower.register
def _coalesce(node: Coalesce, builder: Builder) -> Lowered:
    window = node.granule_window if builder.strategy is Strategy.PATTERN else None
    return _coalesced(node, builder, window)


def _coalesced(
    node: Coalesce, builder: Builder, window: Window | None, recorded: StretchChances | None = None
) -> Lowered:
    """Lower coalescing. window: that of granules, whose rows become runs; None for any other. recorded: the node whose
    rows are made, with inclusion records; None for those of `node`."""
    child, pattern = builder.lower(node.input), builder.strategy is Strategy.PATTERN
    if pattern and child.stage == 0 and node.input.pattern is not Pattern.STRICT and not node.in_order:
        # What is exchanged has each value once for a period and a life.
        # A granule follows from the life of its rows.
        told_apart = None if window is None else len(node.value)
        step = builder.add(OncePerLifeSpec(told_apart), [Edge(child.step)], child.stage, node.input)
        child = replace(child, step=step)
    if pattern and child.stage == 0 and node.in_order and node.closed is not None and node.budget is None:
        # Only rows that are emitted once may grow by pieces: every change would be emitted at its own instant.
        step = builder.add(StretchPiecesSpec(), [Edge(child.step)], child.stage, node.input)
        child = replace(child, step=step)
    edge, stage, partitions = builder.keyed(child, node.value if node.budget is None else ())
    spec: Spec
    granules = node.granule_window
    if node.budget is not None and granules is not None and granules.slide is not None:
        spec = BudgetedRunsSpec(node.schema.types, granules.slide, granules.lifetime or granules.slide, node.budget)
    elif pattern and _leaves_in_order(node):
        spec = WindowStretchesSpec(node.schema.types, node.closed)
    elif window is None or window.slide is None or window.lifetime is None:
        in_order = node.closing if node.in_order else None
        spec = CoalesceSpec(node.schema.types, node.closed, in_order, budget=node.budget, records=recorded is not None)
    else:
        spec = GranuleRunsSpec(node.schema.types, window.slide, window.lifetime)
    return Lowered(builder.add(spec, [edge], stage, recorded or node), stage, partitions)


def _leaves_in_order(node: Coalesce) -> bool:
    """Return whether the periods of elements have one length, and they leave a window in time as they came."""
    below = node.input
    while isinstance(below, Select | Project):
        below = below.input
    if node.begins is not Begins.FIXED or not isinstance(below, Window):
        return False
    return below.domain is not None and below.lifetime is not None and below.input.is_stream


@lower.register
def _gaps(node: Gaps, builder: Builder) -> Lowered:
    below = node.input
    if isinstance(below, Coalesce) and below.granule_window is not None:
        # What runs show ends by its life; gaps follow insertions and retractions.
        child = _coalesced(below, builder, None)
    else:
        child = builder.lower(below)
    edge, stage, partitions = builder.keyed(child, node.value)
    spec = GapsSpec(node.schema.types, node.closing, node.only_ended, node.in_order)
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


@lower.register
def _sessions(node: SessionWindow, builder: Builder) -> Lowered:
    return _lowered_sessions(node, builder)


def _lowered_sessions(node: SessionWindow, builder: Builder, recorded: StretchChances | None = None) -> Lowered:
    key = node.partition if node.budget is None else ()
    edge, stage, partitions = builder.keyed(builder.lower(node.input), key)
    types, records = node.schema.types, recorded is not None
    spec = SessionsSpec(types, node.partition, node.at_most, node.open, node.budget, records)
    return Lowered(builder.add(spec, [edge], stage, recorded or node), stage, partitions)


@lower.register
def _valid(node: ValidWindow, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    return replace(child, step=builder.add(ValidWindowSpec(), [Edge(child.step)], child.stage, node))


@lower.register
def _until_next(node: UntilNext, builder: Builder) -> Lowered:
    edge, stage, partitions = builder.keyed(builder.lower(node.input), node.by)
    window = (node.length, node.slide, node.align)
    spec = UntilNextSpec(node.input.schema.types, node.by, node.at_most, node.lives, *window)
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


@lower.register
def _ended(node: EndedPeriods, builder: Builder) -> Lowered:
    edge, stage, partitions = builder.keyed(builder.lower(node.input), node.by)
    spec = UntilNextSpec(node.input.schema.types, node.by, node.at_most, None)
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


@lower.register
def _lasting(node: Lasting, builder: Builder) -> Lowered:
    child = builder.lower(node.input)
    spec = LastingSpec(node.least, node.slide, node.align)
    return replace(child, step=builder.add(spec, [Edge(child.step)], child.stage, node))
