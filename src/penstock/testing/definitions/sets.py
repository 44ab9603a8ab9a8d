"""EXCEPT, INTERSECT and the k first rows: bags compared and ordered, recomputed at every instant."""

from __future__ import annotations

from collections import Counter

from penstock.algebra import Except, Intersect, TopK
from penstock.testing.definitions.base import Bag, Relation, World, denote, minus, relation
from penstock.testing.scalars.values import Place, Row, key_of


@denote.register
def _(node: Except, world: World) -> Relation:
    left, right = relation(node.left, world), relation(node.right, world)

    def at(tau: int) -> Bag:
        if node.every:
            return minus(left.at(tau), right.at(tau))
        taken = {key_of(row) for row in right.at(tau)}
        return [row for row in _once(left.at(tau)) if key_of(row) not in taken]

    return Relation(left.instants | right.instants, at)


@denote.register
def _(node: Intersect, world: World) -> Relation:
    left, right = relation(node.left, world), relation(node.right, world)

    def at(tau: int) -> Bag:
        there = Counter(key_of(row) for row in right.at(tau))
        if not node.every:
            return [row for row in _once(left.at(tau)) if there[key_of(row)]]
        both = []
        for row in left.at(tau):
            if there[key_of(row)]:
                there[key_of(row)] -= 1
                both.append(row)
        return both

    return Relation(left.instants | right.instants, at)


@denote.register
def _(node: TopK, world: World) -> Relation:
    below = relation(node.input, world)
    last = node.offset + node.limit

    def place(row: Row) -> list[object]:
        return [Place(row[key.column], key) for key in node.total_order]

    def at(tau: int) -> Bag:
        parts: dict[Row, Bag] = {}
        for row in below.at(tau):
            parts.setdefault(key_of(tuple(row[i] for i in node.partition)), []).append(row)
        return [row for part in parts.values() for row in sorted(part, key=place)[node.offset : last]]

    return Relation(below.instants, at)


def _once(rows: Bag) -> Bag:
    return list({key_of(row): row for row in rows}.values())
