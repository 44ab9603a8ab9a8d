"""The join with a NON RETROACTIVE relation, element by element `[golab 3.3.1]`."""

from __future__ import annotations

from penstock.algebra import Algebra, NRRJoin, Project, Select, Window
from penstock.expressions.nodes import Expression
from penstock.testing.denotation.base import Relation, Stream, World, denote, relation, values_of, windowed
from penstock.testing.denotation.core import validity
from penstock.testing.values import Row, key_of

Element = tuple[int, tuple[int, int], Row]


@denote.register
def _(node: NRRJoin, world: World) -> Relation:
    return windowed(elements(node, world))


def elements(node: Algebra, world: World) -> list[Element]:
    """The elements of a time window: (timestamp, validity, row), or what selections, projections and NRRs make of
    each. The NRR is asked as of the timestamp, with the updates of that very instant."""
    if isinstance(node, Window):
        below = denote(node.input, world)
        assert isinstance(below, Stream)
        return [(ts, validity(node, ts), row) for ts, row in below.elements]
    if isinstance(node, NRRJoin):
        right = relation(node.right, world)
        pairs = [
            (ts, lives, row + other)
            for ts, lives, row in elements(node.left, world)
            for other in right.at(ts)
            if all(_same(row[i], other[j]) for i, j in node.equal)
        ]
        return pairs if node.residual is None else _kept(node.residual, pairs)
    assert isinstance(node, Select | Project)
    given = elements(node.input, world)
    if isinstance(node, Select):
        return _kept(node.predicate, given)
    columns = [values_of(expression, [row for _, _, row in given]) for expression in node.expressions]
    rows = list(zip(*columns, strict=True)) if columns else [()] * len(given)
    return [(ts, lives, row) for (ts, lives, _), row in zip(given, rows, strict=True)]


def _kept(predicate: Expression, given: list[Element]) -> list[Element]:
    values = values_of(predicate, [row for _, _, row in given])
    return [element for element, value in zip(given, values, strict=True) if value is True]


def _same(one: object, other: object) -> bool:
    return one is not None and other is not None and key_of((one,)) == key_of((other,))
