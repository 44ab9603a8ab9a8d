"""Semi-joins, anti-joins, marks and outer joins, defined by which tuples have a partner."""

from __future__ import annotations

from penstock.algebra import OuterJoin, OuterKind, SemiJoin, SemiKind
from penstock.algebra.nodes.base.fields import Pairs
from penstock.errors import PenstockError
from penstock.expressions.nodes import Expression
from penstock.testing.definitions.base import Bag, Relation, World, denote, relation, values_of
from penstock.testing.definitions.results import Life, _lives, lives
from penstock.testing.scalars.values import Row, key_of
from penstock.types import CALENDAR


def partners(left: Bag, right: Bag, equal: Pairs, residual: Expression | None) -> list[list[int]]:
    """Return, for every row of `left`, the positions of its partners in `right`. A NULL key has none."""

    def agree(one: Row, other: Row) -> bool:
        keys = [(one[i], other[j]) for i, j in equal]
        return all(a is not None and b is not None and key_of((a,)) == key_of((b,)) for a, b in keys)

    found: list[list[int]] = []
    for row in left:
        places = [place for place, other in enumerate(right) if agree(row, other)]
        if residual is not None:
            values = values_of(residual, [row + right[place] for place in places])
            places = [place for place, value in zip(places, values, strict=True) if value is True]
        found.append(places)
    return found


@denote.register
def _(node: SemiJoin, world: World) -> Relation:
    left, right = relation(node.left, world), relation(node.right, world)

    def at(tau: int) -> Bag:
        rows = left.at(tau)
        matched = [bool(places) for places in partners(rows, right.at(tau), node.equal, node.residual)]
        if node.kind is SemiKind.MARK:
            return [(*row, mark) for row, mark in zip(rows, matched, strict=True)]
        return [row for row, mark in zip(rows, matched, strict=True) if mark is (node.kind is SemiKind.SEMI)]

    return Relation(left.instants | right.instants, at)


@_lives.register(SemiJoin)
@_lives.register(OuterJoin)
def _(node: SemiJoin | OuterJoin, world: World) -> list[Life]:
    """Return the lives of the left side; each of its rows is matched with the static right side separately."""
    below = lives(node.left, world)
    if isinstance(node, OuterJoin) and node.single:
        whole = relation(node, world)
        for tau in sorted(whole.instants):
            whole.at(tau)  # fails where a row has two partners
    others = relation(node.right, world).at(0)
    found = partners([row for _, _, row in below], others, node.equal, node.residual)
    made: list[Life] = []
    for (begin, end, row), places in zip(below, found, strict=True):
        if isinstance(node, OuterJoin):
            pad = (None,) * len(node.right.schema)
            made += [(begin, end, row + other) for other in ([others[place] for place in places] or [pad])]
        elif node.kind is SemiKind.MARK:
            made.append((begin, end, (*row, bool(places))))
        elif bool(places) is (node.kind is SemiKind.SEMI):
            made.append((begin, end, row))
    return made


@denote.register
def _(node: OuterJoin, world: World) -> Relation:
    left, right = relation(node.left, world), relation(node.right, world)
    pad = {side: (None,) * len(side.schema) for side in (node.left, node.right)}

    def at(tau: int) -> Bag:
        rows, others = left.at(tau), right.at(tau)
        found = partners(rows, others, node.equal, node.residual)
        if node.single and tau <= world.final and (most := max(map(len, found), default=0)) > 1:
            when = (node.domain or CALENDAR).show(tau)
            raise PenstockError("P0612", f"{node.single} has {most} rows at {when} where one is needed")
        pairs = [row + others[place] for row, places in zip(rows, found, strict=True) for place in places]
        pairs += [row + pad[node.right] for row, places in zip(rows, found, strict=True) if not places]
        if node.kind is OuterKind.FULL:
            met = {place for places in found for place in places}
            pairs += [pad[node.left] + other for place, other in enumerate(others) if place not in met]
        return pairs

    return Relation(left.instants | right.instants, at)
