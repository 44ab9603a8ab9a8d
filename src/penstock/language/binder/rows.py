"""The rows of a query that may read the enclosing row, and its conditions over the two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.algebra import Algebra
from penstock.expressions.aggregates import value_of_nothing
from penstock.expressions.calls.functions import build_call
from penstock.expressions.nodes import AggregateCall, Call, Column, Expression, Literal, OuterColumn
from penstock.language.binder.placeholders import SubqueryValue, outer_columns, reads_outer
from penstock.tree import walk


@dataclass(frozen=True)
class Inner:
    """The rows of a subquery.

    `conditions`: those of its WHERE that read the enclosing query; `items`: its select list; both over `node` and, as
    OuterColumns, over the enclosing row. `always`: it is an ungrouped aggregate, which has its one row also where
    `node` has none for the enclosing row; `having`: its HAVING, in that case. `one_row`: it has at most one row.

    `node` may read the enclosing row too; then it is unnested when that row is known.
    """

    node: Algebra
    items: tuple[Expression, ...]
    conditions: tuple[Expression, ...] = ()
    always: bool = False
    having: Expression | None = None
    one_row: bool = False

    def outer_columns(self) -> list[OuterColumn]:
        """Return all columns of enclosing rows that any part of it reads."""
        parts = (*self.items, *self.conditions, *(() if self.having is None else (self.having,)))
        return list(dict.fromkeys(c for part in (self.node, *parts) for c in outer_columns(part)))


def whole(node: Algebra) -> Inner:
    """Return all of `node`, as rows."""
    return Inner(node, tuple(Column(f.type, i, f.name) for i, f in enumerate(node.schema)))


def without_rows(expression: Expression, calls: Sequence[AggregateCall], start: int) -> Expression:
    """Return `expression` over an outer join with a grouped aggregate, with the values for empty groups.

    The calls, at the columns from `start` on, have their values over no rows there.
    """
    values = {start + n: value for n, call in enumerate(calls) if (value := value_of_nothing(call)) is not None}

    def rewrite(node: Expression) -> Expression:
        if isinstance(node, Column):
            if node.index not in values:
                return node
            return build_call("COALESCE", [node, Literal(node.type, values[node.index])])
        return node.with_children(tuple(rewrite(c) for c in node.children if isinstance(c, Expression)))

    return rewrite(expression)


def key_of_correlation(condition: Expression) -> tuple[Expression, Expression] | None:
    """Return (inner side, outer side) of an equality between a subquery and its enclosing query."""
    if not (isinstance(condition, Call) and condition.function == "EQ"):
        return None
    for inner, outer in (condition.arguments, reversed(condition.arguments)):
        reads_inner = any(isinstance(n, Column | SubqueryValue) for n in walk(outer))
        if not reads_outer(inner) and reads_outer(outer) and not reads_inner and inner.type == outer.type:
            return inner, outer
    return None
