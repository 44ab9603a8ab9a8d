"""ORDER BY ... LIMIT: sort keys over the select list or the columns of FROM, and the first rows.

How it is written is in docs/language/queries.md. Names refer to output columns first, then to columns of the FROM
clause, as in Spark; a number is a position. A key that is no output column is computed in a column of its own, which
the last projection drops.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
from sqlglot import exp

from penstock.algebra import Algebra, Except, Project, SemiJoin, SortKey, TopK
from penstock.errors import counted
from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import cast_to
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Column, Expression, Literal, conjunction
from penstock.language.binder.context import Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scope import Entry, Scope
from penstock.language.dialect import span_of
from penstock.language.queries import AllItems, OrderItem, SortedQuery
from penstock.types import Field


@dataclass(frozen=True)
class Limits:
    """Number of rows returned, and of rows skipped before them.

    Args:
        ties: whether the rows follow whose sort keys are those of the last one.
        in_order: whether the answer has the order of the keys.
        dropped: whether the ORDER BY is checked, and has no effect.
    """

    limit: int
    offset: int
    ties: bool = False
    in_order: bool = False
    dropped: bool = False


class OrderRule(enum.Enum):
    """What ORDER BY without LIMIT means, by the place of the query."""

    REFUSED = "an answer comes in order of time"
    KEPT = "it is the order of an answer that is computed once"
    DROPPED = "a relation has no order"


#: Stands for limits that failed, so that the rest is bound and reports its errors.
NO_LIMITS = Limits(0, 0)


#: More rows than a relation in memory has: the LIMIT of a query without one.
_ALL = 2**31 - 1


def limits_of(tree: SortedQuery, context: Context, rule: OrderRule) -> Limits:
    """Return the LIMIT and OFFSET. Raises BindingFailed after P0331 or P0332.

    Args:
        rule: what ORDER BY alone means here.
    """
    in_order = rule is OrderRule.KEPT
    if tree.limit is None and tree.offset is None and rule is OrderRule.DROPPED:
        hint = "leave it out, or add LIMIT: the order of an answer is that of the outermost query"
        context.warn("ORDER BY without LIMIT has no effect here: a relation has no order", tree.order_span, hint)
        return Limits(_ALL, 0, dropped=True)
    if tree.limit is None and (in_order or tree.offset is not None):
        return Limits(_ALL, _count("OFFSET", tree.offset, context), in_order=in_order)
    if tree.limit is None:
        hint = "add LIMIT: an answer is emitted in order of time, which ORDER BY alone cannot change"
        context.fail("P0331", "ORDER BY without LIMIT", tree.order_span, hint)
    if tree.ties is not None and not tree.order:
        hint = "add ORDER BY: rows are ties that agree in its keys"
        context.fail("P0331", "WITH TIES without ORDER BY", tree.ties.span, hint)
    parts = [("LIMIT", tree.limit), ("OFFSET", tree.offset)]
    limit, offset = context.each(lambda part: _count(*part, context), parts)
    return Limits(limit, offset, tree.ties is not None, in_order)


def _count(word: str, node: exp.Expr | None, context: Context) -> int:
    if node is None:
        return 0
    value = fold(ExpressionBinder(Scope(()), context, word).bind(node))
    if not (isinstance(value, Literal) and pa.types.is_integer(value.type) and value.value is not None):
        context.fail("P0332", f"{word} needs a constant whole number", span_of(node))
    if not 0 <= value.value < 2**31:
        context.fail("P0332", f"{word} {value.value}: a count of rows is 0 to {2**31 - 1}", span_of(node))
    return int(value.value)


def refuse_stream(tree: SortedQuery, context: Context) -> None:
    """Fail with P0331: a stream has no first rows."""
    word, span = ("ORDER BY", tree.order_span) if tree.order else ("LIMIT", tree.limit_span)
    hint = "put it inside the operator, as in ISTREAM(SELECT ... ORDER BY ... LIMIT ...)"
    context.fail("P0331", f"{word} over a stream: it needs a relation", span, hint)


def sort_keys(tree: SortedQuery) -> tuple[OrderItem, ...]:
    """Return the sort keys; of ORDER BY ALL none, before `all_items` has made them."""
    return () if isinstance(tree.order, AllItems) else tree.order


def all_items(tree: SortedQuery, width: int) -> SortedQuery:
    """Return ORDER BY ALL as the positions of the select list, which has `width`; another ORDER BY as it is."""
    if not isinstance(tree.order, AllItems):
        return tree
    every = tree.order

    def key(position: int) -> OrderItem:
        value = exp.Literal.number(position)
        value.meta["span"] = every.span
        return OrderItem(value, every.descending, every.nulls_first, every.span)

    return replace(tree, order=tuple(map(key, range(1, width + 1))))


def ordinal(text: str, length: int) -> int | None:
    """Return the position, from 0, of the element of `length` that a text of ORDER BY or GROUP BY numbers from 1."""
    digits = text.lstrip("0")
    number = int(digits) if digits.isdecimal() and len(digits) <= len(str(length)) else 0
    return number - 1 if 1 <= number <= length else None


def bind_keys(
    tree: SortedQuery, outputs: Sequence[tuple[str, Expression]], binder: ExpressionBinder, complete: bool = True
) -> list[Expression]:
    """Return the sort keys over the columns visible to `binder`.

    Args:
        outputs: the select list over the same columns.
        complete: whether all of it could be bound.
    """

    def bind(node: exp.Expr) -> Expression:
        if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdecimal():
            if not complete:
                binder.context.fail_silently()
            position = ordinal(str(node.this), len(outputs))
            if position is None:
                message = f"ORDER BY {node.this}: the result has {counted(len(outputs), 'column')}"
                binder.context.fail("P0304", message, span_of(node))
            bound = outputs[position][1]
        else:
            bound = binder.bind(node)
        if pa.types.is_null(bound.type):
            return cast_to(bound, pa.string())
        return bound

    return binder.context.each(bind, [key.value for key in sort_keys(tree)])


def place_keys(
    keys: Sequence[Expression], outputs: list[Expression], distinct: SortedQuery | None, context: Context
) -> tuple[list[Expression], list[Expression]]:
    """Return the keys over a select list's columns, and the columns to append to it for them.

    Args:
        distinct: the ORDER BY of a SELECT DISTINCT, whose keys must follow from the select list.
    """
    placed: list[Expression] = []
    hidden: list[Expression] = []
    for number, key in enumerate(keys):
        if key in outputs:
            placed.append(Column(key.type, outputs.index(key)))
        elif distinct is not None:
            position = _over_outputs(key, outputs)
            if position is None:
                message = "with SELECT DISTINCT, ORDER BY takes columns of the select list"
                context.fail("P0304", message, span_of(sort_keys(distinct)[number].value))
            placed.append(position)
        else:
            placed.append(Column(key.type, len(outputs) + len(hidden)))
            hidden.append(key)
    return placed, hidden


def _over_outputs(expression: Expression, outputs: Sequence[Expression]) -> Expression | None:
    """Return `expression` over the select list's columns, None where it needs others."""
    if expression in outputs:
        return Column(expression.type, outputs.index(expression))
    if isinstance(expression, Column):
        return None
    children = [_over_outputs(cast(Expression, child), outputs) for child in expression.children]
    if any(child is None for child in children):
        return None
    return expression.with_children(tuple(child for child in children if child is not None))


def sorted_relation(tree: SortedQuery, node: Algebra, limits: Limits, context: Context) -> Algebra:
    """Return the first rows of the relation `node`, whose columns are the only ones that the keys can name."""
    entries = tuple(Entry(i, f.name, f.type) for i, f in enumerate(node.schema))
    tree = all_items(tree, len(entries))
    outputs = [(e.name, e.column()) for e in entries]
    keys = bind_keys(tree, outputs, ExpressionBinder(Scope(entries), context, "ORDER BY"))
    return first_rows(tree, node, keys, len(entries), limits)


def first_rows(tree: SortedQuery, node: Algebra, keys: Sequence[Expression], width: int, limits: Limits) -> Algebra:
    """Return the first rows of `node` by `keys`, its columns from `width` on dropped."""
    columns: list[Expression] = [Column(f.type, i, f.name) for i, f in enumerate(node.schema)]
    computed = [key for key in keys if not isinstance(key, Column)]
    if computed:
        fields = tuple(Field(f"order {i + 1}", key.type) for i, key in enumerate(computed))
        node = Project(node, (*columns, *computed), node.schema.fields + fields)
    positions = iter(range(len(columns), len(columns) + len(computed)))
    order = tuple(
        SortKey(
            key.index if isinstance(key, Column) else next(positions),
            order_item.descending,
            not order_item.descending if order_item.nulls_first is None else order_item.nulls_first,
        )
        for key, order_item in zip(keys, sort_keys(tree), strict=True)
    )
    if limits.dropped:
        first = node
    elif limits.ties and limits.limit:
        first = _with_ties(node, order, limits)
    else:
        first = TopK(node, order, limits.limit, limits.offset)
    if len(node.schema) == width:
        return first
    return Project(first, tuple(columns[:width]), node.schema.fields[:width])


def _with_ties(node: Algebra, order: tuple[SortKey, ...], limits: Limits) -> Algebra:
    """Return the first rows of `node`, and those that agree with the last of them in the sort keys.

    Rows that agree with one of the first in all keys are among the first, or are ties of the last.
    """
    until = TopK(node, order, limits.offset + limits.limit)
    places = tuple(dict.fromkeys(key.column for key in order))
    keys = [Column(node.schema[place].type, place) for place in places]
    partners = Project(until, tuple(keys), tuple(node.schema[place] for place in places))
    width = len(node.schema)
    agree = [build_call("EQ_NULL_SAFE", [key, Column(key.type, width + i)]) for i, key in enumerate(keys)]
    rows: Algebra = SemiJoin(node, partners, residual=conjunction(tuple(agree)))
    if limits.offset:
        rows = Except(rows, TopK(node, order, limits.offset), True)
    return TopK(rows, order, _ALL) if limits.in_order else rows
