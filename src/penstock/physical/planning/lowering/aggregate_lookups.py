"""Joins that only look groups of an aggregate up (`algebra/nodes/aggregate_lookup.py`): one operator for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.algebra import (
    Algebra,
    Join,
    OuterJoin,
    Pattern,
    Project,
    Select,
    StreamScan,
    TimeModelWindow,
    own_windows,
)
from penstock.algebra.nodes.aggregate_lookup import AggregateLookup, find_probe
from penstock.algebra.optimizer.rules.support import column
from penstock.expressions.nodes import Column
from penstock.physical.plan.joins.specs import AggregateLookupSpec
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.rowwise import UnionSpec
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.lowering.aggregate_input import AccumulatorInput, lower_lanes
from penstock.physical.planning.lowering.builder import Builder, Lowered, meet
from penstock.physical.planning.lowering.panes import pane_key
from penstock.physical.planning.lowering.rowwise import projected, selected, windowed
from penstock.physical.planning.lowering.user_aggregates import has_user_aggregates


def probe_of(node: Join | OuterJoin, builder: Builder) -> AggregateLookup | None:
    """Return `node` as a look-up, if it is to be lowered as one. The baselines join with the changes of an
    aggregate."""
    probe = find_probe(node) if builder.strategy is Strategy.PATTERN else None
    return None if probe is None or has_user_aggregates(probe.aggregate) else probe


def may_take_back(node: Algebra, builder: Builder) -> bool:
    """Return whether the steps of `node` may emit negative tuples. A look-up retracts nothing, though the join that it
    replaces is strict."""
    if node.pattern is not Pattern.STRICT:
        return False
    if isinstance(node, Select | Project):
        return may_take_back(node.input, builder)
    if isinstance(node, Join | OuterJoin) and (probe := probe_of(node, builder)) is not None:
        return may_take_back(probe.asking, builder)
    return True


def lower_probe(node: Join | OuterJoin, probe: AggregateLookup, builder: Builder) -> Lowered:
    asking, lanes = _sides(probe, builder)
    # The partitions of the lane rows before they are sent: which side moves depends on the other one.
    accumulators = Lowered(lanes.edge.step, lanes.stage, lanes.partitions)
    if lanes.edge.exchange is not None:
        accumulators = replace(accumulators, stage=lanes.stage - 1, partitions=None)
    stage, edges, (part, _) = meet(asking, accumulators, probe.key, tuple(range(len(probe.key))))
    right = node.right if probe.left else node.left
    spec = AggregateLookupSpec(
        lanes.plan,
        probe.aggregate.input.pattern <= Pattern.WEAKEST,
        lanes.types,
        probe.key,
        tuple(n.predicate if isinstance(n, Select) else n.expressions for n in probe.between),
        right.schema.types,
        node.residual,
        probe.left,
        isinstance(node, OuterJoin),
        builder.notes.get(node.fingerprint, ""),
    )
    shift = 0 if probe.left else len(right.schema)
    lie = frozenset({tuple(shift + c for c in part)})
    return Lowered(builder.add(spec, edges, stage, node), stage, lie)


def _sides(probe: AggregateLookup, builder: Builder) -> tuple[Lowered, AccumulatorInput]:
    """Return the steps of the probing rows, and of the lane rows of the aggregate."""
    aggregate = probe.aggregate
    shared = _one_scan(probe, builder)
    if shared is not None:
        asking, rows = (_over(side, scan, builder) for side, scan in zip(probe.inputs, shared, strict=True))
        return asking, lower_lanes(aggregate, builder, child=rows)
    asking = builder.lower(probe.asking)
    # Where the probing rows are partitioned by some of their key, the others are sent to them.
    lie = sorted(p for p in asking.partitions or () if p and set(p) <= set(probe.key)) if asking.stage else []
    return asking, lower_lanes(aggregate, builder, tuple(probe.key.index(c) for c in lie[0]) if lie else None)


def _one_scan(probe: AggregateLookup, builder: Builder) -> tuple[Lowered, Lowered] | None:
    """Return the scans of both sides where both are rows of one stream that are sent once. None where they are not, or
    where each side drops rows before they are sent."""
    chains = [_chain(side) for side in probe.inputs]
    scans = [chain[-1] for chain in chains]
    probing, grouped = scans
    if not (
        isinstance(probing, StreamScan)
        and isinstance(grouped, StreamScan)
        and probing.source.name == grouped.source.name
        and replace(probing, columns=()) == replace(grouped, columns=())
    ):
        return None
    if all(any(isinstance(step, Select) for step in chain) for chain in chains):
        return None
    if pane_key(probe.aggregate) in builder.grains or any(w.slide is not None for w in own_windows(probe.aggregate)):
        return None
    keys = [_scanned(chain, column) for chain, column in zip(chains, (probe.key, probe.aggregate.group), strict=True)]
    if keys[0] is None or keys[0] != keys[1]:
        return None
    both = replace(probing, columns=tuple(sorted({*probing.columns, *grouped.columns})))
    key = tuple(both.columns.index(c) for c in keys[0])
    name = f"sent by {key} {builder.known_as(both)}"
    if name not in builder.known:
        scan = builder.lower(both)
        step = builder.add(UnionSpec(together=True), [Edge(scan.step, Exchange(key))], scan.stage + 1, both)
        builder.known[name] = Lowered(step, scan.stage + 1, frozenset({key}))
    met = builder.known[name]
    columns = [
        tuple(column(both.schema[both.columns.index(c)], both.columns.index(c)) for c in s.columns)
        for s in (probing, grouped)
    ]
    first, second = (
        projected(Project(both, c, s.schema.fields), met, builder)
        for c, s in zip(columns, (probing, grouped), strict=True)
    )
    return first, second


def _chain(node: Algebra) -> list[Algebra]:
    """Return `node` and the operators below it, as long as each has one input that is read row by row."""
    chain = [node]
    top = node
    while isinstance(top, Select | Project) or (isinstance(top, TimeModelWindow) and top.judges_alone):
        top = top.input
        chain.append(top)
    return chain


def _scanned(chain: Sequence[Algebra], key: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the declared columns of the scan below `chain` that equal its columns `key`, None where one is
    computed."""
    for step in chain:
        if isinstance(step, Project):
            computed = [step.expressions[c] for c in key]
            if not all(isinstance(e, Column) for e in computed):
                return None
            key = tuple(e.index for e in computed if isinstance(e, Column))
    scan = chain[-1]
    assert isinstance(scan, StreamScan)
    return tuple(scan.columns[c] for c in key)


def _over(node: Algebra, scan: Lowered, builder: Builder) -> Lowered:
    """Return the steps of a chain over the rows of `scan`."""
    if isinstance(node, Select):
        return selected(node, _over(node.input, scan, builder), builder)
    if isinstance(node, Project):
        return projected(node, _over(node.input, scan, builder), builder)
    if isinstance(node, TimeModelWindow):
        return windowed(node, node, _over(node.input, scan, builder), builder)
    return scan
