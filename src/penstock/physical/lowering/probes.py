"""Joins that only look groups of an aggregate up (`algebra/probes.py`): one operator for both."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import Algebra, Join, OuterJoin, Pattern, Project, Select
from penstock.algebra.probes import Probe, find_probe
from penstock.physical.lowering.builder import Builder, Lowered, meet
from penstock.physical.lowering.lanes import lower_lanes
from penstock.physical.lowering.user_aggregates import has_user_aggregates
from penstock.physical.probe_plan import ProbeSpec
from penstock.physical.strategies import Strategy


def probe_of(node: Join | OuterJoin, builder: Builder) -> Probe | None:
    """`node` as a look-up, where it is to be lowered as one. The baselines join with what an aggregate tells."""
    probe = find_probe(node) if builder.strategy is Strategy.PATTERN else None
    return None if probe is None or has_user_aggregates(probe.aggregate) else probe


def may_take_back(node: Algebra, builder: Builder) -> bool:
    """Whether the steps of `node` may tell negative tuples. A look-up takes nothing back, though what it stands for is
    strict."""
    if node.pattern is not Pattern.STRICT:
        return False
    if isinstance(node, Select | Project):
        return may_take_back(node.input, builder)
    if isinstance(node, Join | OuterJoin) and (probe := probe_of(node, builder)) is not None:
        return may_take_back(probe.asking, builder)
    return True


def lower_probe(node: Join | OuterJoin, probe: Probe, builder: Builder) -> Lowered:
    asking, lanes = builder.lower(probe.asking), lower_lanes(probe.aggregate, builder)
    # The lane rows as they lie before they are sent: whose place decides depends on the other side.
    told = Lowered(lanes.edge.step, lanes.stage, lanes.partitions)
    if lanes.edge.exchange is not None:
        told = replace(told, stage=lanes.stage - 1, partitions=None)
    groups = tuple(range(len(probe.key)))
    stage, edges, (part, _) = meet(asking, told, probe.key, groups)
    right = node.right if probe.left else node.left
    spec = ProbeSpec(
        lanes.plan, probe.aggregate.input.pattern <= Pattern.WEAKEST, lanes.types, probe.key,
        tuple(one.predicate if isinstance(one, Select) else one.expressions for one in probe.between),
        right.schema.types, node.residual, probe.left, isinstance(node, OuterJoin),
        builder.notes.get(node.fingerprint, ""),
    )  # fmt: skip
    shift = 0 if probe.left else len(right.schema)
    lie = frozenset({tuple(shift + c for c in part)})
    return Lowered(builder.add(spec, edges, stage, node), stage, lie)
