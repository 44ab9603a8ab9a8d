"""WITH PREFERENCE: rows with equal keys meet, in the order in which they arrive."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra import Algebra, PreferringJoin, PreferringLookUp, PreferringSelection, Window
from penstock.algebra.nodes.base import is_static
from penstock.algebra.properties.arrival_order import in_arrival_order
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.preferences.queries import (
    PreferringJoinSpec,
    PreferringLookUpSpec,
    PreferringNRRLookUpSpec,
    PreferringSelectionSpec,
)
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower


def _in_order(side: Algebra) -> tuple[Algebra, bool]:
    """Return an equivalent of a windowed stream, and whether its elements come in order of arrival; if they do, they
    must come straight from their ingest."""
    if isinstance(side, Window):
        plain = in_arrival_order(side.input)
        if plain is not None:
            return replace(side, input=plain), True
    elif len(side.inputs) == 1 and side.is_elementwise:
        (below,) = side.inputs
        ordered, in_order = _in_order(below)
        return (side.with_children((ordered,)), True) if in_order else (side, False)
    return side, False


@lower.register
def _preferring_join(node: PreferringJoin, builder: Builder) -> Lowered:
    (left, left_order), (right, right_order) = _in_order(node.left), _in_order(node.right)
    left_key, right_key = (tuple(pair[k] for pair in node.equal) for k in (0, 1))
    spread = tuple(tuple(pair[k] for pair in node.sharding) for k in (0, 1))
    lowered = [builder.lower(left), builder.lower(right)]
    # Elements go through an exchange of their own, which keeps the order in which they arrive.
    edges = [Edge(one.step, Exchange(key)) for one, key in zip(lowered, spread, strict=True)]
    orders = [left_order, right_order]
    for stream, ahead in zip(node.later, node.ahead, strict=True):
        below, in_order = _in_order(stream)
        lowered.append(builder.lower(below))
        orders.append(in_order)
        # By the same values, in the same order, as the rows of the join.
        spread_by = tuple(ahead.summarised[ahead.keys.index(pair)] for pair in node.sharding)
        edges.append(Edge(lowered[-1].step, Exchange(spread_by)))
    stage = max(one.stage for one in lowered) + 1
    spec = PreferringJoinSpec(
        node.left.schema.types, node.preference, tuple(orders), node.right.schema.types, left_key,
        right_key, node.residual, node.filters, node.summaries, node.summarised, node.into,
        (node.reads_partner(0), node.reads_partner(1)), node.ahead,
    )  # fmt: skip
    width = len(node.left.schema)
    parts = frozenset({spread[0], tuple(width + c for c in spread[1])})
    return Lowered(builder.add(spec, edges, stage, node), stage, parts)


@lower.register
def _preferring_selection(node: PreferringSelection, builder: Builder) -> Lowered:
    below, in_order = _in_order(node.input)
    child = builder.lower(below)
    key = node.summarised or tuple(range(len(node.input.schema)))
    spec = PreferringSelectionSpec(
        node.input.schema.types, node.preference, (in_order,), node.condition, node.filter, node.summary,
        node.summarised, node.expressions,
    )  # fmt: skip
    step = builder.add(spec, [Edge(child.step, Exchange(key))], child.stage + 1, node)
    return Lowered(step, child.stage + 1, frozenset({key}))


@lower.register
def _preferring_look_up(node: PreferringLookUp, builder: Builder) -> Lowered:
    if not is_static(node.right):
        return _looked_up_as_of(node, builder)
    below, in_order = _in_order(node.left)
    child = builder.lower(below)
    key = node.sharding
    spec = PreferringLookUpSpec(
        node.left.schema.types, node.preference, (in_order,), builder.table(node.right), node.right.schema.types,
        tuple(pair[0] for pair in node.equal), tuple(pair[1] for pair in node.equal), node.residual, node.filter,
        node.summary, node.summarised, node.expressions, node.reads_partner,
    )  # fmt: skip
    step = builder.add(spec, [Edge(child.step, Exchange(key))], child.stage + 1, node)
    return Lowered(step, child.stage + 1, frozenset({key}))


def _looked_up_as_of(node: PreferringLookUp, builder: Builder) -> Lowered:
    """Lower the join with a NON RETROACTIVE relation, whose updates go to the shards of the elements."""
    below, in_order = _in_order(node.left)
    child, relation = builder.lower(below), builder.lower(node.right)
    key, table_key = (tuple(pair[k] for pair in node.equal) for k in (0, 1))
    spread = node.sharding
    table_spread = tuple(table_key[key.index(column)] for column in spread)
    stage = max(child.stage, relation.stage) + 1
    edges = [Edge(child.step, Exchange(spread)), Edge(relation.step, Exchange(table_spread))]
    spec = PreferringNRRLookUpSpec(
        node.left.schema.types, node.preference, (in_order,), node.right.schema.types, key, table_key, node.residual,
        node.filter, node.summary, node.summarised, node.expressions, node.reads_partner,
    )  # fmt: skip
    width = len(node.left.schema)
    parts = frozenset({spread, tuple(width + c for c in table_spread)})
    return Lowered(builder.add(spec, edges, stage, node), stage, parts)
