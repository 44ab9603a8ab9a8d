"""Joins of many inputs: one pipelined operator, or a tree of binary joins, whichever costs less.

Where a class of equal columns reaches all inputs, rows are cut over the shards by it and the join is pipelined. Where
none does (a chain of joins on different columns, a join without equalities), a pipeline must have all rows in one
shard; a tree of binary joins cuts every join's rows by its own key, and stores intermediate results. Both are ordered
by the heuristic of `algebra/optimizer/join_order.py`, and explain shows what was chosen and why.
"""

from __future__ import annotations

from penstock.algebra import Algebra, Join, MultiJoin, Pattern, Project
from penstock.algebra.optimizer.estimates import estimate
from penstock.algebra.optimizer.join_order import (
    JoinGraph,
    JoinInput,
    Order,
    choose_order,
    probing_cost,
    probing_order,
    tree_cost,
)
from penstock.algebra.optimizer.rules.support import column, is_volatile
from penstock.algebra.properties.cardinality import kept
from penstock.algebra.properties.statistics import Statistics
from penstock.expressions.nodes import Column, Expression, columns_of, conjunction, conjuncts, remap
from penstock.physical.plan.joins.ranges import find_ranges
from penstock.physical.plan.joins.specs import MultiJoinSpec
from penstock.physical.plan.plan import Edge, Exchange
from penstock.physical.plan.plan_choices import step_operator
from penstock.physical.plan.step_choices import JOIN_ORDER, JoinOrder, order_named
from penstock.physical.planning.lowering.builder import Builder, Lowered, lower
from penstock.types import Field


@lower.register
def _multi_join(node: MultiJoin, builder: Builder) -> Lowered:
    graph = join_graph(node, builder.statistics)
    order = _order(node, graph, builder)
    orders = tuple(probing_order(graph, order, i) for i in range(len(node.members)))
    pipeline = probing_cost(graph, orders)
    if node.common:
        return _pipelined(node, builder, order, orders, pipeline, "")
    linked, why = _tree(node, builder, graph, order, pipeline)
    if linked is None:
        return _pipelined(node, builder, order, orders, pipeline, why)
    fields = node.schema.fields
    return _as_tree(node, linked, tuple(column(f, i) for i, f in enumerate(fields)), fields, why, builder)


def _order(node: MultiJoin, graph: JoinGraph, builder: Builder) -> Order:
    """Return the order that is chosen for a join, or else the cheapest one."""
    operator, names = step_operator(node, "JoinOrder"), member_names(node)
    text = builder.choices.value(operator, JOIN_ORDER)
    chosen = None if text is None else order_named(text, names)
    order = choose_order(graph) if chosen is None else chosen
    builder.orders[node.fingerprint] = JoinOrder(operator, names, order, chosen is not None)
    return order


def projected_tree(above: Project, builder: Builder) -> Lowered | None:
    """Return the projection `above` of a multi-join as a tree of joins that pass on only what it reads; None where the
    join does not run as a tree, or where another query has it whole."""
    node = above.input
    if not isinstance(node, MultiJoin) or node.common or builder.known_as(node) in builder.known:
        return None
    graph = join_graph(node, builder.statistics)
    order = _order(node, graph, builder)
    pipeline = probing_cost(graph, tuple(probing_order(graph, order, i) for i in range(len(node.members))))
    linked, why = _tree(node, builder, graph, order, pipeline)
    return None if linked is None else _as_tree(node, linked, above.expressions, above.fields, why, builder)


def _tree(
    node: MultiJoin, builder: Builder, graph: JoinGraph, order: Order, pipeline: float
) -> tuple[Order | None, str]:
    """Return the order of a tree of binary joins where that is better than a pipeline, else None; and why."""
    linked = (order[0], *probing_order(graph, order, order[0]))
    if _by_range(join_tree(node, linked, frozenset())[0]):
        return linked, "ranges are searched join by join"
    tree = tree_cost(graph, linked, builder.statistics.shards)
    compared = f"cost in one shard {pipeline:.4g}, as a tree of joins {tree:.4g} tuples/s"
    return None if pipeline <= tree else linked, compared


def _by_range(node: Algebra) -> bool:
    """Return whether a join of the tree finds its pairs by a range alone that is bounded on both sides, where a
    pipeline would read every pair. With one bound so many pairs pass that storing them is not better."""
    if isinstance(node, Project):
        return _by_range(node.input)
    if not isinstance(node, Join):
        return False
    ranges = None if node.equal else find_ranges(node.residual, len(node.left.schema))
    return (ranges is not None and ranges.closed) or _by_range(node.left)


def _as_tree(
    node: MultiJoin, linked: Order, items: tuple[Expression, ...], fields: tuple[Field, ...], why: str, builder: Builder
) -> Lowered:
    """Return the `items` over the joined row."""
    tree, positions = join_tree(node, linked, frozenset(c for item in items for c in columns_of(item)))
    joined: Algebra = tree
    while isinstance(joined, Project | Join) and joined not in node.members:
        if isinstance(joined, Join):
            builder.orders[joined.fingerprint] = builder.orders[node.fingerprint]
        joined = joined.input if isinstance(joined, Project) else joined.left
    names = ", ".join(member_names(node)[i] for i in linked)
    builder.notes[tree.fingerprint] = f"tree in the order {names}; {why}"
    moved = tuple(remap(item, positions.__getitem__) for item in items)
    if all(isinstance(e, Column) and e.index == i for i, e in enumerate(moved)) and len(moved) == len(tree.schema):
        return builder.lower(tree)
    return builder.lower(Project(tree, moved, fields))


def join_graph(node: MultiJoin, statistics: Statistics) -> JoinGraph:
    """Return the estimates of the inputs of `node`, for the cost model."""
    estimates = [estimate(member, statistics) for member in node.members]
    members = tuple(
        JoinInput(e.rate, e.length, tuple(None if p[i] is None else e.distinct[p[i]] for p in node.classes), None)  # type: ignore[index]  # the index was tested, of another p[i]
        for i, e in enumerate(estimates)
    )
    distinct = tuple(value for e in estimates for value in e.distinct)
    starts = node.offsets
    conditions = tuple(
        (
            frozenset(max(n for n, start in enumerate(starts) if start <= c) for c in columns_of(part)),
            kept(part, distinct),
        )
        for part in (() if node.residual is None else conjuncts(node.residual))
    )
    return JoinGraph(members, conditions)


def member_names(node: MultiJoin) -> tuple[str, ...]:
    """Return the names of the inputs in EXPLAIN: their source or alias, numbered where that is not unique."""
    names = [next((f.qualifier for f in member.schema if f.qualifier), "input") for member in node.members]
    return tuple(n if names.count(n) == 1 and n != "input" else f"{n}#{i}" for i, n in enumerate(names, 1))


def _pipelined(
    node: MultiJoin, builder: Builder, order: Order, orders: tuple[Order, ...], cost: float, note: str
) -> Lowered:
    children = [builder.lower(member) for member in node.members]
    keys = [tuple(p for n in node.common if (p := node.classes[n][i]) is not None) for i in range(len(children))]
    stage, edges, parts = _meet(children, keys)
    spec = MultiJoinSpec(
        tuple(member.schema.types for member in node.members),
        member_names(node),
        tuple(member.pattern is Pattern.STRICT for member in node.members),
        orders,
        node.classes,
        node.residual,
        order,
        cost,
        note,
    )
    step = builder.add(spec, edges, stage, node)
    lying = zip(parts, node.offsets, strict=True)
    return Lowered(step, stage, frozenset(tuple(start + c for c in part) for part, start in lying))


def _meet(children: list[Lowered], keys: list[tuple[int, ...]]) -> tuple[int, list[Edge], list[tuple[int, ...]]]:
    """Return where all inputs meet: (stage, edges, by input the columns that rows then lie by)."""
    top = max(child.stage for child in children)
    for child, key in zip(children, keys, strict=True):
        if child.stage == top and child.meets(key):
            for part in sorted(p for p in child.partitions or () if set(p) <= set(key)):
                part_positions = [key.index(c) for c in part]
                parts = [tuple(k[p] for p in part_positions) for k in keys]
                pairs = list(zip(children, parts, strict=True))
                if all(c.stage < top or p in (c.partitions or ()) for c, p in pairs):
                    return top, [Edge(c.step, None if c.stage == top else Exchange(p)) for c, p in pairs], parts
    edges = [Edge(child.step, Exchange(key)) for child, key in zip(children, keys, strict=True)]
    return top + 1, edges, keys


def join_tree(node: MultiJoin, order: Order, needed: frozenset[int]) -> tuple[Algebra, dict[int, int]]:
    """Return the same join as a left-deep tree of binary joins in `order`; and, for the columns `needed` of the joined
    row, their positions in it. Columns that neither these nor a later join reads are dropped at once."""
    starts = node.offsets
    waiting = [] if node.residual is None else list(conjuncts(node.residual))
    tree: Algebra = node.members[order[0]]
    positions = {starts[order[0]] + c: c for c in range(len(tree.schema))}
    bound = {order[0]}
    for j in order[1:]:
        equal = []
        for n, columns in enumerate(node.classes):
            own = columns[j]
            other = next((c for c in sorted(node.class_columns(n)) if c in positions), None)
            if own is not None and other is not None:
                equal.append((positions[other], own))
        width = len(tree.schema)
        positions |= {starts[j] + c: width + c for c in range(len(node.members[j].schema))}
        bound.add(j)
        last = len(bound) == len(order)
        due = [
            p for p in waiting if last or (columns_of(p) <= positions.keys() and columns_of(p) and not is_volatile(p))
        ]
        waiting = [p for p in waiting if p not in due]
        residual = conjunction(tuple(remap(p, positions.__getitem__) for p in due))
        tree = Join(tree, node.members[j], tuple(equal), residual)
        if not last:
            tree, positions = _thin(tree, positions, needed | _read_later(node, bound, positions, waiting))
    return tree, positions


def _read_later(
    node: MultiJoin, bound: set[int], positions: dict[int, int], waiting: list[Expression]
) -> frozenset[int]:
    """Return the columns of the joined row that further joins of the tree read: of conditions, and one of each
    class."""
    read = {c for part in waiting for c in columns_of(part)}
    for n, columns in enumerate(node.classes):
        if any(own is not None and member not in bound for member, own in enumerate(columns)):
            read.update([c for c in sorted(node.class_columns(n)) if c in positions][:1])
    return frozenset(read)


def _thin(tree: Algebra, positions: dict[int, int], read: frozenset[int]) -> tuple[Algebra, dict[int, int]]:
    """Return `tree` with the columns `read` and no other, at least one; and their positions."""
    kept = sorted(positions[c] for c in read if c in positions) or [0]
    if len(kept) == len(tree.schema):
        return tree, positions
    fields = tuple(tree.schema[i] for i in kept)
    thin = Project(tree, tuple(column(f, i) for f, i in zip(fields, kept, strict=True)), fields)
    return thin, {c: kept.index(old) for c, old in positions.items() if old in kept}
