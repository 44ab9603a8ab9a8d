"""A query in FROM that reads the sources before it: joined with them row by row (LATERAL, docs/language/subqueries.md).

It is a subquery of the rows on the left of its join, and is joined back to each of these rows. Until then, columns of
the left side are `OuterColumn`s of depth 1, and those of the enclosing queries are one level deeper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa

from penstock.algebra import Algebra
from penstock.expressions.nodes import Expression, OuterColumn
from penstock.language.binder.context import Context
from penstock.language.binder.from_.internal import refuse_internal
from penstock.language.binder.inputs.inputs import Inputs
from penstock.language.binder.inputs.joins import build_joins
from penstock.language.binder.placeholders import nearer, outer_columns
from penstock.language.binder.rows import Inner, whole
from penstock.language.binder.scope import Entry
from penstock.language.binder.subqueries.on_subqueries import made_of_pairs, picked_pairs
from penstock.language.binder.subqueries.unplacing import Applied, ClauseSubqueries, Subquery
from penstock.language.queries import JoinedSource, JoinKind, QueryTree
from penstock.tree import Node, transform_up
from penstock.types import Field

T = TypeVar("T", bound=Node)


def reads_beside(rows: Inner) -> bool:
    return any(column.depth == 1 for column in rows.outer_columns())


def rows_beside(right: Inputs, context: Context) -> Inner | None:
    """Return the right side of a join if it reads the left one, else None. Raises BindingFailed, as
    `build_joins` does.
    """
    if right.rows is not None or right.failed:
        return right.rows
    parts = (*(member.node for member in right.members), *right.conditions)
    if not any(column.depth == 1 for part in parts for column in outer_columns(part)):
        return None
    return whole(build_joins(right, None, context))


def come_nearer(right: Inputs) -> Inputs:
    """Return the right side of a join that does not read the left one, with the depths of outer columns as outside of
    the join.
    """
    members = tuple(replace(member, node=_nearer(member.node)) for member in right.members)
    return replace(right, members=members, conditions=tuple(_nearer(c) for c in right.conditions))


def joined_beside(
    join: JoinedSource,
    left: Inputs,
    rows: Inner,
    names: Sequence[str],
    parts: Sequence[Expression],
    subqueries: ClauseSubqueries,
) -> Algebra:
    """Return the join of the left side with the rows for each of its tuples, under the conditions `parts`. Raises
    BindingFailed after P0310 or P0312.
    """
    context = subqueries.context
    if join.kind in (JoinKind.RIGHT, JoinKind.FULL):
        hint = "it has no rows without one of the left side; write LEFT JOIN"
        message = f"the right side of a {join.kind.value} JOIN reads the left one"
        context.fail("P0312", message, join.kind_span, hint)
    if any(member.internal is not None for member in left.members):
        refuse_internal("a query in FROM that reads the sources beside it", left, join.span, context)
    node = build_joins(left, None, context)
    beside = ClauseSubqueries(context, left.entries, _none_inside)
    beside.found.append(Subquery(rows, "ROWS", pa.null(), join.right.span, ""))
    fields = tuple(Field(name, item.type) for name, item in zip(names, rows.items, strict=True))
    pairs = picked_pairs(Applied(node, beside).paired(0, fields), parts, subqueries)
    return made_of_pairs(join.kind, node, None, pairs, context, join.span)


def _none_inside(tree: QueryTree, entries: tuple[Entry, ...]) -> Inner:
    raise AssertionError("the rows of a query in FROM are bound already")


def _nearer(node: T) -> T:
    if not outer_columns(node):
        return node
    return transform_up(node, lambda n: nearer(n) if isinstance(n, OuterColumn) else n)
