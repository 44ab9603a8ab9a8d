"""Which expressions rise with a column: a larger value of it never makes theirs smaller, so that the bounds of its
values give those of theirs.

Contract: where the column has values between two for which the expression is not NULL, it is not NULL for them either,
and lies between.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.expressions.calls.functions import row_of
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.coercion import DATE
from penstock.expressions.evaluation.value_ranges import widened
from penstock.expressions.nodes import Call, Cast, Column, Expression, columns_of
from penstock.types import TIMESTAMP


def rising_column(expression: Expression) -> int | None:
    """Return the position of the column with which `expression` rises; None where there is none."""
    if isinstance(expression, Column):
        return expression.index
    argument = rising_argument(expression)
    return None if argument is None else rising_column(argument)


def rising_argument(expression: Expression) -> Expression | None:
    """Return the part of an expression with which it rises, all others being constants; None where there is none."""
    if isinstance(expression, Cast):
        return expression.argument if _rises(expression.argument.type, expression.type) else None
    row = row_of(expression.function) if isinstance(expression, Call) and not volatile(expression) else None
    if row is None or row.rises_with is None or not isinstance(expression, Call):
        return None
    arguments = expression.arguments
    if row.rises_if is not None and not row.rises_if(arguments):
        return None
    others = (one for place, one in enumerate(arguments) if place != row.rises_with)
    return None if any(columns_of(one) for one in others) else arguments[row.rises_with]


def _rises(inner: pa.DataType, outer: pa.DataType) -> bool:
    """Return whether a cast keeps the order of all values."""
    if pa.types.is_integer(inner) and pa.types.is_floating(outer):
        return True
    return widened(inner, outer) or (inner, outer) in ((DATE, TIMESTAMP), (TIMESTAMP, DATE))
