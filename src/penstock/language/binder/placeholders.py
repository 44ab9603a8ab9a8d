"""Placeholders in a bound expression for values from outside its row, until the enclosing query is built.

The binder replaces all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.expressions.nodes import Column, Expression, OuterColumn
from penstock.tree import Node, transform_up, walk, walk_once

#: The index of an OuterColumn for the left operand of IN; the operands of a row count down from it.
OPERAND = -1


@dataclass(frozen=True, eq=False)
class SubqueryValue(Expression):
    """The value of subquery `number` of this query. `position`: index of the column of its row."""

    number: int
    position: int = 0


def reads_outer(expression: Expression) -> bool:
    return any(isinstance(node, OuterColumn) for node in walk(expression))


def outer_columns(node: Node) -> list[OuterColumn]:
    """Return the columns of enclosing rows that `node`, an expression or a relation, reads, without repetitions."""
    return list(dict.fromkeys(n for n in walk_once(node) if isinstance(n, OuterColumn)))


def attached_in(expression: Expression) -> list[int]:
    """Return the numbers of the subqueries whose values `expression` reads."""
    return [node.number for node in walk(expression) if isinstance(node, SubqueryValue)]


def replace_attached(expression: Expression, value: Callable[[SubqueryValue], Expression]) -> Expression:
    return transform_up(expression, lambda node: value(node) if isinstance(node, SubqueryValue) else node)


def over_both(expression: Expression, width: int, outer: Callable[[OuterColumn], Expression]) -> Expression:
    """Return `expression` over the inner row as one over the outer row (of `width` columns) followed by the inner one.

    References to rows further out are one query nearer then.
    """

    def move(node: Node) -> Node:
        if isinstance(node, Column):
            return Column(node.type, node.index + width, node.name)
        if not isinstance(node, OuterColumn):
            return node
        return outer(node) if node.depth == 1 else nearer(node)

    return transform_up(expression, move)


def nearer(column: OuterColumn) -> OuterColumn:
    """Return `column` as seen from the enclosing query."""
    return OuterColumn(column.type, column.index, column.name, column.depth - 1)


@dataclass(frozen=True, eq=False)
class GroupingBits(Expression):
    """GROUPING(c, ..): a bit for each column, the first the highest, that is 1 where a row is not grouped by it. No
    columns are all those of GROUP BY. It becomes a constant in each grouping set."""

    columns: tuple[Expression, ...] = ()
