"""The join with a NON RETROACTIVE relation, element by element `[golab 3.3.1]`."""

from __future__ import annotations

from collections.abc import Callable

from penstock.algebra import (
    Algebra,
    ArrivalTime,
    FrequencyWindow,
    Join,
    MultiJoin,
    NRRJoin,
    PreferringJoin,
    PreferringLookUp,
    Project,
    RowWindow,
    Select,
    TimeModelWindow,
)
from penstock.algebra.nodes.base import is_static
from penstock.expressions.nodes import Expression
from penstock.testing.definitions.base import Relation, Stream, World, denote, relation, values_of, windowed
from penstock.testing.definitions.core import boundaries, validity
from penstock.testing.definitions.frequency import arrived_lives
from penstock.testing.definitions.results import Life, _lives
from penstock.testing.definitions.rowwindow import partitioned
from penstock.testing.scalars.values import Row, key_of
from penstock.types import BEGIN, END

Element = tuple[int, tuple[int, int], Row]


@denote.register
def _(node: NRRJoin, world: World) -> Relation:
    return windowed(elements(node, world))


@_lives.register
def _(node: NRRJoin, world: World) -> list[Life]:
    return [(*lives, row) for _, lives, row in elements(node, world)]


@denote.register
def _(node: ArrivalTime, world: World) -> Relation:
    return windowed([(ts, lives, (*row, ts)) for ts, lives, row in elements(node.input, world)])


def elements(node: Algebra, world: World) -> list[Element]:
    """Return the elements of windows, (timestamp, validity, row), or those of selections, projections, joins and NRRs
    on them.

    The non-retroactive relation is evaluated as of the timestamp, including the updates of that instant. On the line of
    the sequence model timestamps are instants.
    """
    if isinstance(node, FrequencyWindow):
        return [(arrived, (start, end), row) for arrived, (start, end, row) in arrived_lives(node, world)]
    if isinstance(node, RowWindow):
        return [e for members in partitioned(node, world) for e in _counted(node, members)]
    if isinstance(node, Join):
        sides = [elements(child, world) for child in (node.left, node.right)]
        return _joined(sides, lambda row, other: all(_same(row[i], other[j]) for i, j in node.equal), node.residual)
    if isinstance(node, MultiJoin):
        found = _joined([elements(member, world) for member in node.members], lambda row, other: True, node.residual)
        classes = [tuple(node.class_columns(n)) for n in range(len(node.classes))]
        return [e for e in found if all(_same(e[2][c[0]], e[2][i]) for c in classes for i in c)]
    if isinstance(node, PreferringJoin | PreferringLookUp):
        return [(start, (start, end), row) for start, end, row in _lives(node, world)]
    if is_static(node):
        return [(BEGIN, (BEGIN, END), row) for row in relation(node, world).at(0)]
    if isinstance(node, TimeModelWindow):
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


def _counted(node: RowWindow, members: list[tuple[int, Row]]) -> list[Element]:
    """Return the elements of one partition: each is valid until enough later ones have arrived, or its RANGE has
    passed.
    """
    assert node.rows is not None, "a window that moves by rows is not joined with an NRR"
    found = []
    for place, (ts, row) in enumerate(members):
        last = place + node.rows
        ends = [members[last][0]] if last < len(members) else []
        ends += [] if node.length is None else [ts + node.length]
        found.append((ts, boundaries(node, ts, min(ends, default=END)), row))
    return found


def _joined(sides: list[list[Element]], fits: Callable[[Row, Row], bool], residual: Expression | None) -> list[Element]:
    """Join several inputs: a result arrives with the latest of its elements, and is valid while all of them are."""
    found = sides[0]
    for side in sides[1:]:
        found = [
            (max(ts, at), (max(lives[0], here[0]), min(lives[1], here[1])), row + other)
            for ts, lives, row in found
            for at, here, other in side
            if fits(row, other)
        ]
    return found if residual is None else _kept(residual, found)


def _kept(predicate: Expression, given: list[Element]) -> list[Element]:
    values = values_of(predicate, [row for _, _, row in given])
    return [element for element, value in zip(given, values, strict=True) if value is True]


def _same(one: object, other: object) -> bool:
    return one is not None and other is not None and key_of((one,)) == key_of((other,))
