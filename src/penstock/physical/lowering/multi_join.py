"""Joins of many inputs: one pipelined operator, or a tree of binary joins, whichever costs less.

Where a class of equal columns reaches all inputs, rows are cut over the shards by it and the join is pipelined. Where
none does (a chain of joins on different columns, a join without equalities), a pipeline must have all rows in one
shard; a tree of binary joins cuts every join's rows by its own key, and stores intermediate results. Both are ordered
by the heuristic of `algebra/join_order.py`, and explain shows what was chosen and why.
"""

from __future__ import annotations

from penstock.algebra import Algebra, Join, MultiJoin, Pattern, Project
from penstock.algebra.estimates import estimate, kept
from penstock.algebra.join_order import (
    JoinGraph,
    Member,
    Order,
    choose_order,
    probing_cost,
    probing_order,
    tree_cost,
)
from penstock.algebra.rules.support import column, is_volatile
from penstock.algebra.statistics import Statistics
from penstock.expressions.nodes import columns_of, conjunction, conjuncts, remap
from penstock.physical.lowering.builder import Builder, Lowered, lower
from penstock.physical.plan import Exchange, Input, MultiJoinSpec


@lower.register
def _multi_join(node: MultiJoin, builder: Builder) -> Lowered:
    graph = join_graph(node, builder.statistics)
    order = choose_order(graph)
    orders = tuple(probing_order(graph, order, i) for i in range(len(node.members)))
    pipeline = probing_cost(graph, orders)
    if node.common:
        return _pipelined(node, builder, order, orders, pipeline, "")
    linked = (order[0], *probing_order(graph, order, order[0]))
    tree = tree_cost(graph, linked, builder.statistics.shards)
    compared = f"cost in one shard {pipeline:.4g}, as a tree of joins {tree:.4g} tuples/s"
    if pipeline <= tree:
        return _pipelined(node, builder, order, orders, pipeline, compared)
    root = as_tree(node, linked)
    joins = root.input if isinstance(root, Project) else root
    names = ", ".join(member_names(node)[i] for i in linked)
    builder.notes[joins.fingerprint] = f"tree in the order {names}; {compared}"
    return builder.lower(root)


def join_graph(node: MultiJoin, statistics: Statistics) -> JoinGraph:
    """What is expected of the inputs of `node`, for the cost model."""
    found = [estimate(member, statistics) for member in node.members]
    members = tuple(
        Member(e.rate, e.length, tuple(None if p[i] is None else e.distinct[p[i]] for p in node.classes), None)  # type: ignore[index]
        for i, e in enumerate(found)
    )
    distinct = tuple(value for e in found for value in e.distinct)
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
    """What explain calls the inputs: by their source or alias, numbered where that is no name for one."""
    names = [next((f.qualifier for f in member.schema if f.qualifier), "input") for member in node.members]
    return tuple(n if names.count(n) == 1 and n != "input" else f"{n}#{i}" for i, n in enumerate(names, 1))


def _pipelined(
    node: MultiJoin, builder: Builder, order: Order, orders: tuple[Order, ...], cost: float, note: str
) -> Lowered:
    children = [builder.lower(member) for member in node.members]
    keys = [tuple(p for n in node.common if (p := node.classes[n][i]) is not None) for i in range(len(children))]
    stage, edges, parts = _meet(children, keys)
    spec = MultiJoinSpec(
        tuple(member.schema.types for member in node.members), member_names(node),
        tuple(member.pattern is Pattern.STRICT for member in node.members),
        orders, node.classes, node.residual, order, cost, note,
    )  # fmt: skip
    step = builder.add(spec, edges, stage, node)
    lying = zip(parts, node.offsets, strict=True)
    return Lowered(step, stage, frozenset(tuple(start + c for c in part) for part, start in lying))


def _meet(children: list[Lowered], keys: list[tuple[int, ...]]) -> tuple[int, list[Input], list[tuple[int, ...]]]:
    """Where all inputs meet: (stage, edges, by input the columns that rows then lie by)."""
    top = max(child.stage for child in children)
    for child, key in zip(children, keys, strict=True):
        if child.stage == top and child.meets(key):
            for part in sorted(p for p in child.partitions or () if set(p) <= set(key)):
                places = [key.index(c) for c in part]
                parts = [tuple(k[p] for p in places) for k in keys]
                pairs = list(zip(children, parts, strict=True))
                if all(c.stage < top or p in (c.partitions or ()) for c, p in pairs):
                    return top, [Input(c.step, None if c.stage == top else Exchange(p)) for c, p in pairs], parts
    edges = [Input(child.step, Exchange(key)) for child, key in zip(children, keys, strict=True)]
    return top + 1, edges, keys


def as_tree(node: MultiJoin, order: Order) -> Algebra:
    """The same join as a left-deep tree of binary joins in `order`, its columns put back where they were."""
    starts = node.offsets
    waiting = [] if node.residual is None else list(conjuncts(node.residual))
    tree: Algebra = node.members[order[0]]
    place = {starts[order[0]] + c: c for c in range(len(tree.schema))}
    bound = {order[0]}
    for j in order[1:]:
        equal = []
        for places in node.classes:
            own = places[j]
            other = next((starts[b] + p for b in sorted(bound) if (p := places[b]) is not None), None)
            if own is not None and other is not None:
                equal.append((place[other], own))
        width = len(tree.schema)
        place |= {starts[j] + c: width + c for c in range(len(node.members[j].schema))}
        bound.add(j)
        last = len(bound) == len(order)
        due = [p for p in waiting if last or (columns_of(p) <= place.keys() and columns_of(p) and not is_volatile(p))]
        waiting = [p for p in waiting if p not in due]
        residual = conjunction(tuple(remap(p, place.__getitem__) for p in due))
        tree = Join(tree, node.members[j], tuple(equal), residual)
    fields = node.schema.fields
    if [place[i] for i in range(len(fields))] == list(range(len(fields))):
        return tree
    return Project(tree, tuple(column(field, place[i]) for i, field in enumerate(fields)), fields)
