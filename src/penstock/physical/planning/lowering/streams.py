"""Relation to stream, and the changes of a relation that is the answer."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import (
    Aggregate,
    Algebra,
    Distinct,
    Except,
    Intersect,
    Pattern,
    Project,
    RelationToStream,
    Select,
    StreamKind,
    TopK,
    arrivals_of,
    evaluation_period,
    is_static,
    own_sessions,
)
from penstock.algebra.nodes.panes import paned_blocks
from penstock.expressions.nodes import Column, Expression
from penstock.expressions.user import UserCall
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.rowwise import ProjectSpec
from penstock.physical.plan.state.time_endings import time_endings
from penstock.physical.plan.strategies import Strategy
from penstock.physical.plan.streams import ChangesSpec, DistinctChangesSpec, RStreamSpec, StreamMode
from penstock.physical.planning.lowering.aggregate_lookups import may_take_back
from penstock.physical.planning.lowering.aggregates import can_tell_rows, lower_at_boundaries
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.physical.planning.lowering.retracting_joins import taken_back
from penstock.physical.planning.lowering.value_joins import lower_distinct_pairs
from penstock.tree import walk


@lower.register
def _relation_to_stream(node: RelationToStream, builder: Builder) -> Lowered:
    if node.kind is StreamKind.RSTREAM:
        return _rstream(node, builder)
    return lower_changes(builder, node, node.input, node.kind)


def lower_changes(builder: Builder, node: Algebra, relation: Algebra, kind: StreamKind | None) -> Lowered:
    if _tells_itself(relation, builder):
        return _distinct_changes(builder, node, relation, kind)
    child = builder.lower(relation)
    netted = never_cancels(relation)
    width = len(relation.schema)
    edge, stage, partitions = builder.ordered(child) if netted else builder.equal_rows(child, width)
    fifo = relation.pattern <= Pattern.WEAKEST
    grows = relation.pattern is not Pattern.STRICT
    spec = ChangesSpec(
        kind, relation.schema.types, netted, fifo, grows=grows, taken_back=_taken_back(relation, builder)
    )
    step = builder.add(spec, [edge], stage, node)
    return Lowered(step, stage, partitions)


def _taken_back(relation: Algebra, builder: Builder) -> bool:
    """Return whether `relation` consists of the results of a join that retracts them."""
    join = taken_back(relation, builder.grains)
    return join is not None and builder.steps[builder.lower(join).step - builder.first].spec.takes_back


def _distinct_changes(builder: Builder, node: Algebra, relation: Algebra, kind: StreamKind | None) -> Lowered:
    """Return one step for all queries that need it."""
    name = f"{kind} of {relation.fingerprint}{builder.choices.variant(node)}"
    if name not in builder.known:
        below = lower_distinct_pairs(relation, builder) if isinstance(relation, Distinct) else None
        below = below or builder.lower(relation.inputs[0])
        edge, stage, partitions = builder.equal_rows(below, len(relation.schema))
        ending = time_endings(relation) if isinstance(relation, Distinct) else ()
        step = builder.add(DistinctChangesSpec(kind, relation.schema.types, ending), [edge], stage, node)
        builder.known[name] = Lowered(step, stage, partitions)
    return builder.known[name]


def _tells_itself(node: Algebra, builder: Builder) -> bool:
    """Return whether `node` is a DISTINCT that may emit itself when its tuples enter and leave: δ*, without another
    reader so far."""
    if not isinstance(node, Distinct) or builder.strategy is not Strategy.PATTERN or is_static(node):
        return False
    return node.input.pattern is not Pattern.STRICT and builder.known_as(node) not in builder.known


def never_cancels(node: Algebra) -> bool:
    """Return whether equal tuples can never come and go at one instant: true where nothing leaves, and where every
    change gives a key a different row, or is emitted once per tuple and instant. Not of an aggregate in the time of
    numbers, of which several are one instant: a group may change to another row and back."""
    if isinstance(node, Aggregate) and paned_blocks(node) is not None:
        return False
    if node.pattern is Pattern.MONOTONIC or isinstance(node, Aggregate | Except | Intersect | TopK):
        return True
    if isinstance(node, Distinct):
        return node.input.pattern is Pattern.STRICT
    if isinstance(node, Select):
        return never_cancels(node.input)
    if isinstance(node, Project):
        kept = {e.index for e in node.expressions if isinstance(e, Column)}
        return len(kept) == len(node.input.schema) and never_cancels(node.input)
    return False


def _rstream(node: RelationToStream, builder: Builder) -> Lowered:
    period = evaluation_period(node)
    if period is not None and builder.strategy is Strategy.PATTERN:
        if isinstance(node.input, Aggregate) and can_tell_rows(node.input):
            return lower_at_boundaries(node, node.input, *period, builder)
        if (raised := _above_rstream(node)) is not None:
            return builder.lower(raised)
    child = builder.lower(node.input)
    strict = may_take_back(node.input, builder)
    types = node.schema.types
    if period is None and not node.input.is_instantaneous:
        return _rstream_at_instants(node, builder, child, strict)
    edge, stage, partitions = builder.equal_rows(child, len(types)) if strict else builder.ordered(child)
    if period is not None:
        spec = RStreamSpec(types, StreamMode.BOUNDARIES, period[0], period[1], strict)
    else:
        spec = RStreamSpec(types, StreamMode.TICKS, strict=strict)
    return Lowered(builder.add(spec, [edge], stage, node), stage, partitions)


def _above_rstream(node: RelationToStream) -> Algebra | None:
    """Return `node` with the selections and projections between it and a grouped aggregate above it: they decide about
    every row alone, whatever the instant."""
    between: list[Select | Project] = []
    below = node.input
    while isinstance(below, Select | Project):
        between.append(below)
        below = below.input
    if not (isinstance(below, Aggregate) and can_tell_rows(below)):
        return None
    if any(isinstance(e, UserCall) for operator in between for own in _expressions(operator) for e in walk(own)):
        return None  # the cost of a call is unknown: it is made once a row, not once a row and boundary
    raised: Algebra = replace(node, input=below)
    for operator in reversed(between):
        raised = replace(operator, input=raised)
    return raised


def _expressions(node: Select | Project) -> tuple[Expression, ...]:
    return (node.predicate,) if isinstance(node, Select) else node.expressions


def _rstream_at_instants(node: RelationToStream, builder: Builder, child: Lowered, strict: bool) -> Lowered:
    """Return the RSTREAM: every change makes it emit the whole relation, so it runs in one shard; the arrivals of the
    streams are further inputs."""
    streams: dict[str, Algebra] = {stream.fingerprint: stream for stream, _ in arrivals_of(node)}
    clocks: list[Lowered] = []
    # Elements in session windows enter R(τ) where sessions end, and in open ones where they arrive.
    sessions = {window.fingerprint: window for window in own_sessions(node)}
    for stream in (*streams.values(), *sessions.values()):
        lowered = builder.lower(stream)
        step = builder.add(ProjectSpec(()), [Edge(lowered.step)], lowered.stage, stream, (), ())
        clocks.append(replace(lowered, step=step, partitions=None))
    one_shard = frozenset({()})
    stage = child.stage if child.partitions == one_shard and child.stage > 0 else child.stage + 1
    stage = max([stage, *(c.stage + 1 for c in clocks)])
    edges = [Edge(c.step, None if c.stage == stage else Exchange(())) for c in (child, *clocks)]
    spec = RStreamSpec(node.schema.types, StreamMode.INSTANTS, strict=strict)
    return Lowered(builder.add(spec, edges, stage, node), stage, one_shard)
