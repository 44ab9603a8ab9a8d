"""Which expressions rise with a column: a larger value of it never makes theirs smaller, so that the bounds of its
values give those of theirs.

Contract: where the column has values between two for which the expression is not NULL, it is not NULL for them either,
and lies between; unless an integer wrapped, which makes the first larger than the second.
"""

from __future__ import annotations

import pyarrow as pa

from penstock.expressions.calls.functions import row_of
from penstock.expressions.evaluation.value_ranges import widened
from penstock.expressions.nodes import Call, Cast, Column, Expression, columns_of
from penstock.types import TIMESTAMP


def rising_column(expression: Expression) -> int | None:
    """Return the position of the column with which `expression` rises; None where there is none."""
    if isinstance(expression, Column):
        return expression.index
    if isinstance(expression, Cast):
        return rising_column(expression.argument) if _rises(expression.argument.type, expression.type) else None
    row = row_of(expression.function) if isinstance(expression, Call) else None
    if row is None or row.rises_with is None or not isinstance(expression, Call):
        return None
    arguments = expression.arguments
    others = (one for place, one in enumerate(arguments) if place != row.rises_with)
    if any(columns_of(one) for one in others):
        return None
    return rising_column(arguments[row.rises_with])


def _rises(inner: pa.DataType, outer: pa.DataType) -> bool:
    """Return whether a cast keeps the order of all values."""
    return widened(inner, outer) or (pa.types.is_date(inner) and outer == TIMESTAMP)
