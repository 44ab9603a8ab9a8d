"""Joins: rows with equal keys meet, or a static side is looked up."""

from __future__ import annotations

from penstock.algebra import (
    Algebra,
    Join,
    Pattern,
    is_static,
)
from penstock.physical.plan.joins.ranges import Ranges, find_ranges
from penstock.physical.plan.joins.specs import (
    INDEX_KINDS,
    SIDES,
    STORED,
    JoinSpec,
    LookupSpec,
    StoreJoinSpec,
    TakingBackJoinSpec,
)
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.plan_choices import step_operator
from penstock.physical.plan.step_choices import KIND, KindChoice, kind_named
from penstock.physical.planning.lowering.aggregate_lookups import lower_probe, probe_of
from penstock.physical.planning.lowering.builder import Builder, Lowered, Partitions, lower, meet, moved_partitions
from penstock.physical.planning.lowering.ranges import in_cells, lower_in_cells, one_row
from penstock.physical.planning.lowering.retracting_joins import choice_of
from penstock.physical.planning.lowering.stores import StoredSide, arriving, stored_side, window_store
from penstock.physical.planning.lowering.value_joins import lower_value_join, value_join


@lower.register
def _join(node: Join, builder: Builder) -> Lowered:
    width = len(node.left.schema)
    if not builder.inputs_static:
        if is_static(node.right):
            return _lookup(node, builder, node.left, node.right)
        if is_static(node.left):
            return _lookup(node, builder, node.right, node.left)
    if (probe := probe_of(node, builder)) is not None:
        return lower_probe(node, probe, builder)
    if (by_value := value_join(node, builder)) is not None:
        return lower_value_join(node, by_value, builder)
    ranges = find_ranges(node.residual, width)
    if ranges is not None and in_cells(node, ranges, builder):
        return lower_in_cells(node, ranges, builder)
    chosen = _chosen_kinds(node, builder)
    stored: list[StoredSide | None] = [None, None] if chosen else _stored_sides(node, builder)
    left, right = (
        builder.lower(side if store is None else arriving(store, side, builder))
        for side, store in zip((node.left, node.right), stored, strict=True)
    )
    left_key, right_key = tuple(pair[0] for pair in node.equal), tuple(pair[1] for pair in node.equal)
    if not node.equal and (one_row(node.left) or one_row(node.right)):
        stage, edges, lie = _spread(node, left, right)
    else:
        stage, edges, parts = meet(left, right, left_key, right_key)
        lie = frozenset({parts[0], tuple(width + c for c in parts[1])})
    spec = JoinSpec(
        left_key,
        right_key,
        node.left.schema.types,
        node.right.schema.types,
        node.residual,
        (node.left.pattern is Pattern.STRICT, node.right.pattern is Pattern.STRICT),
        builder.notes.get(node.fingerprint, ""),
        ranges=ranges,
    )
    if any(stored):
        for port, (side, store) in enumerate(zip((node.left, node.right), stored, strict=True)):
            if store is not None:
                edges[port] = Edge(window_store(store, edges[port], stage, side, builder))
        lengths = [None if store is None else store.length for store in stored]
        kind = TakingBackJoinSpec if choice_of(node) in builder.grains else StoreJoinSpec
        spec = kind(**{**vars(spec), "windows": tuple(lengths)})
    step = builder.add(spec, edges, stage, node, chosen=chosen)
    return Lowered(step, stage, lie)


def stores_both_sides(node: Join, builder: Builder) -> bool:
    """Return whether a join of two relations that change, or of two that do not, stores both itself, in the way that is
    planned by default: neither is looked up, sent everywhere or read in a store."""
    if not builder.inputs_static and (is_static(node.left) or is_static(node.right)):
        return False
    if probe_of(node, builder) is not None or (not node.equal and (one_row(node.left) or one_row(node.right))):
        return False
    if value_join(node, builder) is not None:
        return False
    return not _chosen_kinds(node, builder) and not any(_stored_sides(node, builder))


def _chosen_kinds(node: Join, builder: Builder) -> dict[str, KindChoice]:
    """Return the kinds that are chosen for the sides of a join, by name of the side: of the join itself, or of a store
    that it would read otherwise. A join for which one is chosen stores both of its sides itself."""
    found: dict[str, KindChoice] = {}
    operator = step_operator(node, "Join")
    for name, side in zip(SIDES, _stored_sides(node, builder), strict=True):
        goes_by = [(operator, KIND + name)]
        if side is not None:
            goes_by.append((side.operator, KIND + STORED))
        for by, attribute in goes_by:
            word = builder.choices.value(by, attribute)
            kind = None if word is None else kind_named(word, INDEX_KINDS)
            if kind is not None and not (by != operator and kind == INDEX_KINDS[0]):
                found[name] = KindChoice(name, by, attribute, kind, INDEX_KINDS[:2], True)
                break
    return found


def _stored_sides(node: Join, builder: Builder) -> list[StoredSide | None]:
    """Return by side how the join reads it in a store, None where it stores the side itself."""
    sides = [stored_side(node, port) for port in (0, 1)]
    return [side if side is not None and side.name in builder.grains else None for side in sides]


def _spread(node: Join, left: Lowered, right: Lowered) -> tuple[int, list[Edge], Partitions]:
    """Return the exchange of a join with a relation of one row, which goes to every shard; the other input stays
    partitioned."""
    one_left = not one_row(node.right)
    single, partitioned, spread = (left, right, node.right) if one_left else (right, left, node.left)
    start = len(node.left.schema) if one_left else 0
    if partitioned.stage > single.stage and partitioned.partitions is not None:
        stage, edge, lie = partitioned.stage, Edge(partitioned.step), partitioned.partitions
    else:
        # Negative tuples must go to the shard of their tuples, so all columns decide.
        every = tuple(range(len(spread.schema)))
        stage, edge, lie = (
            max(single.stage, partitioned.stage) + 1,
            Edge(partitioned.step, Exchange(every)),
            frozenset({every}),
        )
    single_edge = Edge(single.step, Exchange((), everywhere=True))
    moved = frozenset(tuple(start + c for c in part) for part in lie)
    return stage, [single_edge, edge] if one_left else [edge, single_edge], moved


def _lookup(node: Join, builder: Builder, moving: Algebra, fixed: Algebra) -> Lowered:
    child = builder.lower(moving)
    static_left = fixed is node.left
    key = tuple(pair[1 if static_left else 0] for pair in node.equal)
    table_key = tuple(pair[0 if static_left else 1] for pair in node.equal)
    ranges = find_ranges(node.residual, len(node.left.schema))
    if ranges is not None and static_left:
        ranges = Ranges(ranges.right, ranges.left)
    spec = LookupSpec(builder.table(fixed), key, table_key, node.residual, static_left, ranges)
    step = builder.add(spec, [Edge(child.step)], child.stage, node)
    shift = len(fixed.schema) if static_left else 0
    positions = {i: i + shift for i in range(len(moving.schema))}
    return Lowered(step, child.stage, moved_partitions(child.partitions, positions))
