"""Bound expressions: typed trees over the columns of one input, by position.

Every expression knows its Arrow type. Columns are positions in the row of the operator that holds the expression (a
join sees the left columns, then the right ones). Functions and operators alike are `Call`s by canonical upper-case
name; the table from name to kernel is `library/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.tree import Node, derived, transform_up, transform_up_all

#: The comparisons by order with their sides exchanged, and all comparisons.
FLIPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
MIRRORED = {"EQ": "EQ", "NE": "NE", **FLIPPED}


@dataclass(frozen=True, eq=False)
class Expression(Node):
    """A scalar expression. `type` is the Arrow type of its value; every value may be NULL."""

    type: pa.DataType


@dataclass(frozen=True, eq=False)
class Column(Expression):
    """The value of the input's column at `index` (0-based). `name` is only for display."""

    index: int
    name: str = field(default="", metadata={"transparent": True})


@dataclass(frozen=True, eq=False)
class OuterColumn(Expression):
    """A column of an enclosing row while a subquery is bound, `depth` queries further out.

    The binder replaces all of them when it unnests subqueries.
    """

    index: int
    name: str
    depth: int = 1


@dataclass(frozen=True, eq=False)
class Literal(Expression):
    """A constant. `value` is the Python value of an Arrow `type` (None for NULL)."""

    value: Any


@dataclass(frozen=True, eq=False)
class Call(Expression):
    """A function or operator by canonical name, e.g. ADD, EQ, AND, LIKE, CASE, UPPER; arguments already coerced."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, eq=False)
class Cast(Expression):
    """`argument` cast to `type`; a value that does not convert is NULL."""

    argument: Expression


@dataclass(frozen=True)
class KeyDirection:
    """How the values of one key of an ORDER BY are ordered; NaN is the greatest number."""

    descending: bool = False
    nulls_first: bool = True

    @property
    def text(self) -> str:
        """Return what is written behind the key; where NULLs are is left out where it follows."""
        text = " DESC" if self.descending else ""
        usual = self.nulls_first is not self.descending
        return text if usual else f"{text} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


@dataclass(frozen=True, eq=False)
class AggregateCall(Expression):
    """An aggregate by canonical name (COUNT, SUM, AVG, MIN, MAX, STDDEV_SAMP, ...) over the rows of a group.

    `arguments` is empty for COUNT(*). `filter` is FILTER (WHERE ...), or None. Occurs only in `Aggregate` nodes.
    `in_place_of`: the exact aggregate that the setting `approximate_aggregates` has replaced by it, for display.
    `order`: the directions of the keys of its ORDER BY, which are the last of `arguments`.
    """

    function: str
    arguments: tuple[Expression, ...]
    distinct: bool = False
    filter: Expression | None = None
    in_place_of: str = field(default="", metadata={"transparent": True})
    order: tuple[KeyDirection, ...] = ()

    @property
    def own(self) -> tuple[Expression, ...]:
        """Return the arguments without the keys of ORDER BY."""
        return self.arguments[: len(self.arguments) - len(self.order)]

    @property
    def keys(self) -> tuple[Expression, ...]:
        """Return the keys of ORDER BY."""
        return self.arguments[len(self.arguments) - len(self.order) :]


@dataclass(frozen=True, eq=False)
class SummaryEstimate(Expression):
    """How often the values of `columns` occur in a zone of a summary: COUNT (BIGINT) or SHARE (DOUBLE, of the zone's
    elements). Occurs only in the preferences of `algebra/nodes/preferences.py`, which are evaluated once per zone.

    columns: in the order of the summary's columns, of the row whose values are estimated.
    """

    quantity: str
    summary: str
    columns: tuple[Column, ...]


def columns_of(expression: Expression) -> frozenset[int]:
    """Return the positions of the input columns that `expression` reads."""
    return _columns_of(expression)


@derived
def _columns_of(node: Node) -> frozenset[int]:
    """Return the columns below `node`, stored in each node: rules ask repeatedly, and expressions share their parts."""
    if isinstance(node, Column):
        return frozenset((node.index,))
    return frozenset().union(*map(_columns_of, node.children))


def remap(expression: Expression, position: Callable[[int], int]) -> Expression:
    """Return `expression` with every column position mapped by `position`."""

    def move(node: Node) -> Node:
        if isinstance(node, Column):
            return Column(node.type, position(node.index), node.name)
        return node

    return transform_up(expression, move)


def substitute(expression: Expression, values: tuple[Expression, ...]) -> Expression:
    """Return `expression` with column i replaced by `values[i]`, which merges two projections."""
    return substitute_all((expression,), values)[0]


def substitute_all(expressions: tuple[Expression, ...], values: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Return the result of `substitute` for each of `expressions`; parts that they share are shared by the results."""
    return transform_up_all(expressions, lambda node: values[node.index] if isinstance(node, Column) else node)


def with_estimates(expression: Expression, count: int, share: int) -> Expression:
    """Return `expression` with estimates read from the columns at `count` (BIGINT) and `share` (DOUBLE)."""

    def placed(node: Node) -> Node:
        if isinstance(node, SummaryEstimate):
            return Column(node.type, count if node.quantity == "COUNT" else share)
        return node

    return transform_up(expression, placed)


def conjuncts(expression: Expression) -> tuple[Expression, ...]:
    """Return the operands of nested ANDs, left to right; the expression itself when it is not an AND."""
    if isinstance(expression, Call) and expression.function == "AND":
        return tuple(part for argument in expression.arguments for part in conjuncts(argument))
    return (expression,)


def conjunction(parts: tuple[Expression, ...]) -> Expression | None:
    """Return the AND of `parts`, or None if there are none."""
    if not parts:
        return None
    if len(parts) > _IN_A_ROW:  # as two halves, so that a thousand conditions do not form a tree a thousand levels deep
        middle = len(parts) // 2
        halves = conjunction(parts[:middle]), conjunction(parts[middle:])
        return Call(pa.bool_(), "AND", tuple(half for half in halves if half is not None))
    result = parts[0]
    for part in parts[1:]:
        result = Call(pa.bool_(), "AND", (result, part))
    return result


#: Largest number of conditions in a linear AND; more are balanced.
_IN_A_ROW = 16

#: Levels of an expression that rewriting may produce. Its evaluation recurses three times per level.
MAX_HEIGHT = 150

#: Nodes of an expression that rewriting may produce by repeating parts.
MAX_SIZE = 100


def is_low(expressions: Iterable[Expression]) -> bool:
    """Return whether these are no deeper than rewriting may produce."""
    return all(expression.height <= MAX_HEIGHT for expression in expressions)


def is_small(result: Expression, before: Expression, values: tuple[Expression, ...]) -> bool:
    """Return whether rewriting may substitute `values` into `before`, which makes `result`.

    It must not be too deep, and if it is large it must repeat none of the values: a column that every view of a chain
    reads twice would double in each.
    """
    return are_small((result,), (before,), values)


def are_small(results: tuple[Expression, ...], before: tuple[Expression, ...], values: tuple[Expression, ...]) -> bool:
    """Return whether rewriting may substitute `values` into `before`, which makes `results`, side by side.

    As for `is_small`, and a value that two of the expressions read is repeated too: in `a + b AS a, a - b AS b` each
    expression reads each column once, and yet the two double in every view of a chain.
    """
    if not is_low(results):
        return False
    if all(result.size <= MAX_SIZE for result in results):
        return True
    read = frozenset[int]().union(*map(columns_of, before))
    once = sum(e.size for e in before) + sum(values[i].size for i in read)
    return sum(e.size for e in results) <= once
