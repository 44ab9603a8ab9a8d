"""VALUES: rows of constants, which hold from the beginning of time (docs/language/queries.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from penstock.algebra import Constant
from penstock.errors import PenstockError, counted
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.coercion import common_type
from penstock.expressions.evaluation.evaluate import cast_together, literal_of
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.language.binder.context import BindingFailed, Context
from penstock.language.binder.scalars.expressions import ExpressionBinder
from penstock.language.binder.scalars.local_time import cast_in
from penstock.language.binder.scope import Scope
from penstock.language.dialect import span_of
from penstock.language.queries import ValuesQuery
from penstock.types import Field, type_name

#: What takes the values, for messages.
ROW_OF_VALUES = "a row of VALUES"


def bind_values(tree: ValuesQuery, context: Context) -> Constant:
    """Return the rows of VALUES, with columns `col1`, `col2`, ... of common types. Raises BindingFailed with the errors
    recorded."""
    width = len(tree.rows[0])
    for row, span in zip(tree.rows, tree.row_spans, strict=True):
        if len(row) != width:
            message = f"{counted(len(row), 'value')} in a row of VALUES whose first has {counted(width, 'value')}"
            context.note(PenstockError("P0305", message), span)
    binder = ExpressionBinder(Scope(()), context, ROW_OF_VALUES)
    bound = context.each(lambda row: context.each(lambda value: _constant(value, binder, context), row), tree.rows)
    if any(len(row) != width for row in bound):
        raise BindingFailed
    columns = context.each(lambda i: _column([row[i] for row in bound], i, tree, context), range(width))
    fields = tuple(Field(f"col{i}", type_) for i, (type_, _) in enumerate(columns, 1))
    return Constant(tuple(zip(*(values for _, values in columns), strict=True)), fields)


def bare_nulls(tree: ValuesQuery) -> frozenset[int]:
    """Return the columns in which every value is a bare NULL, and which so have no type of their own."""
    return frozenset(
        i for i in range(len(tree.rows[0])) if all(i < len(row) and isinstance(row[i], exp.Null) for row in tree.rows)
    )


def _constant(value: exp.Expr, binder: ExpressionBinder, context: Context) -> Expression:
    """Return a value of a row as one literal, so that it is the same whenever the query is bound again."""
    bound = binder.bind(value)
    if volatile(bound):
        hint = "write SELECT .. UNION ALL SELECT .., which is computed when the query is answered"
        context.fail("P0321", f"{context.source.slice(span_of(value))} in {ROW_OF_VALUES}", span_of(value), hint)
    return context.guard(span_of(value), lambda: literal_of(bound))


def _column(
    values: Sequence[Expression], position: int, tree: ValuesQuery, context: Context
) -> tuple[pa.DataType, list[Any]]:
    """Return the type of a column, which its values have in common, and the values in it."""
    common = common_type([value.type for value in values])
    if common is None:
        shown = " and ".join(dict.fromkeys(type_name(value.type) for value in values))
        context.fail("P0305", f"column {position + 1} of VALUES is {shown}", tree.span, "CAST one of them")
    type_ = pa.string() if pa.types.is_null(common) else common
    literals = [Literal(type_, None) if pa.types.is_null(value.type) else literal_of(value) for value in values]
    return type_, cast_together(literals, lambda kind, _: cast_in(context.zone, Column(kind, 0, ""), type_))
