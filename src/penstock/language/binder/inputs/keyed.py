"""The two inputs of a join with the columns that its conditions equate; computed ones follow the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.algebra import Algebra, Project
from penstock.algebra.nodes.base.fields import Pairs
from penstock.expressions.calls.text import to_sql
from penstock.expressions.nodes import Call, Column, Expression, Literal, columns_of, conjunction, remap
from penstock.types import Field


@dataclass
class _Side:
    """One input of a join, and the key columns computed for it."""

    node: Algebra
    computed: list[Expression]

    @property
    def width(self) -> int:
        return len(self.node.schema)

    def key(self, expression: Expression) -> int:
        """Return the position of `expression` among this side's columns; computed ones follow the others."""
        if isinstance(expression, Column):
            return expression.index
        if expression not in self.computed:
            self.computed.append(expression)
        return self.width + self.computed.index(expression)

    def projected(self) -> Algebra:
        if not self.computed:
            return self.node
        names = self.node.schema.names
        fields = tuple(Field(to_sql(e, names), e.type) for e in self.computed)
        kept = columns(self.node, range(self.width))
        return Project(self.node, (*kept, *self.computed), self.node.schema.fields + fields)


@dataclass(frozen=True)
class KeyedSides:
    """Two inputs with their key columns computed. width: of the left input without them."""

    left: Algebra
    right: Algebra
    equal: Pairs
    residual: Expression | None
    width: int
    right_places: range
    """positions of the right input's own columns in left + right"""

    def without_keys(self, node: Algebra, kept: list[int]) -> Algebra:
        """Return `node` with its columns `kept` only."""
        if kept == list(range(len(node.schema))):
            return node
        return Project(node, columns(node, kept), tuple(node.schema[i] for i in kept))


def keyed_sides(left: Algebra, right: Algebra, conditions: Iterable[Expression]) -> KeyedSides:
    """Return two inputs with the columns that `conditions` over both equate; computed ones follow the others."""
    first, second = _Side(left, []), _Side(right, [])
    equal: list[tuple[int, int]] = []
    residual: list[Expression] = []
    for condition in conditions:
        pair = _equality(condition, first.width)
        if isinstance(condition, Literal) and condition.value is True:
            continue
        if pair is None:
            residual.append(condition)
        elif (keys := (first.key(pair[0]), second.key(pair[1]))) not in equal:
            equal.append(keys)
    extra = len(first.computed)
    width = first.width
    moved = [remap(c, lambda i: i if i < width else i + extra) for c in residual]
    right_columns = range(width + extra, width + extra + second.width)
    return KeyedSides(
        first.projected(), second.projected(), tuple(equal), conjunction(tuple(moved)), width, right_columns
    )


def _equality(condition: Expression, width: int) -> tuple[Expression, Expression] | None:
    """Return (left expression, right expression over the right input) when `condition` equates two values
    of one type.
    """
    if not isinstance(condition, Call) or condition.function != "EQ":
        return None
    first, second = condition.arguments
    if first.type != second.type:
        return None
    sides = [{c >= width for c in columns_of(e)} for e in (first, second)]
    if sides == [{True}, {False}]:
        first, second = second, first
    elif sides != [{False}, {True}]:
        return None
    return first, remap(second, lambda i: i - width)


def columns(node: Algebra, positions: Iterable[int]) -> tuple[Column, ...]:
    return tuple(Column(node.schema[i].type, i, node.schema[i].name) for i in positions)
