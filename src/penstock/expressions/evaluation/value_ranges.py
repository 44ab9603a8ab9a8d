"""Whether a condition can hold for any of many rows, decided from the smallest and largest values of their columns.

Contract: `may_be` errs on one side only. False means that the condition has the requested truth value in no row; True
is no information. What is not handled here (a function, a comparison of two columns, a DOUBLE, which may be NaN outside
of all statistics) may have any value. NULL is neither true nor false, as in SQL, so NOT is pushed down to comparisons.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.expressions.calls.volatile import volatile
from penstock.expressions.nodes import MIRRORED, Call, Cast, Column, Expression, Literal
from penstock.types import TIMESTAMP

_T = pa.types


@dataclass(frozen=True)
class ValueRange:
    """The values of one column in some rows.

    `low`, `high`: bounds of those that are not NULL, in the form of `plain`, None if unknown; `nulls`, `some`: whether
    there may be NULLs, and other values.
    """

    low: Any = None
    high: Any = None
    nulls: bool = True
    some: bool = True


UNKNOWN = ValueRange()
Look = Callable[[int], ValueRange]


def plain(value: Any, type_: pa.DataType) -> Any:
    """Return `value` of `type_` as an object that Python orders like the language; None where there is none."""
    if value is None or _T.is_floating(type_):
        return None
    if _T.is_timestamp(type_):
        return pa.scalar(value, type_).cast(TIMESTAMP).cast(pa.int64()).as_py()
    return value if _ordered(type_) else None


def only(value: object, type_: pa.DataType) -> ValueRange:
    """Return the range of rows that all have `value`."""
    if value is None:
        return ValueRange(some=False)
    known = plain(value, type_)
    return ValueRange(known, known, nulls=False)


def may_pass(condition: Expression, look: Look) -> bool:
    """Return whether `condition` may be true for a row whose columns have the ranges of `look`.

    A condition with a random draw is computed for every row, so that all draws stay the same.
    """
    return volatile(condition) or may_be(condition, True, look)


def may_be(condition: Expression, truth: bool, look: Look) -> bool:
    """Return whether `condition` may be `truth` (and not NULL) for one of the rows."""
    if isinstance(condition, Literal):
        return condition.value is truth
    if isinstance(condition, Column):
        return _compared("EQ", look(condition.index), truth)
    if not isinstance(condition, Call):
        return True
    name, arguments = condition.function, condition.arguments
    if name == "NOT":
        return may_be(arguments[0], not truth, look)
    if name in ("AND", "OR"):
        needs_all = (name == "AND") == truth
        return (all if needs_all else any)(may_be(part, truth, look) for part in arguments)
    if name in ("IS_NULL", "IS_NOT_NULL"):
        inner = arguments[0]
        found = look(inner.index) if isinstance(inner, Column) else None
        return found is None or (found.nulls if (name == "IS_NULL") == truth else found.some)
    return _call(name, arguments, truth, look)


_DENIED = {"EQ": "NE", "NE": "EQ", "LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT"}


def _call(name: str, arguments: tuple[Expression, ...], truth: bool, look: Look) -> bool:
    """Decide a comparison, IN, `<=>` or LIKE with literals; any other function may have any value."""
    if name in MIRRORED and isinstance(arguments[0], Literal):
        name, arguments = MIRRORED[name], arguments[::-1]
    values, literals = _column(arguments[0], look) if arguments else None, arguments[1:]
    if values is None or not literals or not all(isinstance(member, Literal) for member in literals):
        return True
    members = [member.value for member in literals if isinstance(member, Literal)]
    known = [plain(member.value, member.type) for member in literals if isinstance(member, Literal)]
    if any(member is not None and found is None for member, found in zip(members, known, strict=True)):
        return True
    if name in MIRRORED:
        return known[0] is not None and _compared(name if truth else _DENIED[name], values, known[0])
    if name == "IN":
        hits = any(_compared("EQ", values, member) for member in known if member is not None)
        return hits if truth else values.some
    if name == "EQ_NULL_SAFE" and truth:
        return values.nulls if known[0] is None else _compared("EQ", values, known[0])
    if name == "LIKE" and truth and len(members) == 1:
        return isinstance(members[0], str) and values.some and _like(members[0], values)
    return True


def _compared(name: str, values: ValueRange, other: Any) -> bool:
    """Return whether some value may be in the relation `name` to `other`."""
    low, high = values.low, values.high
    if not values.some or low is None or high is None:
        return values.some
    if name == "EQ":
        return bool(low <= other <= high)
    if name == "NE":
        return not (low == other == high)
    if name in ("LT", "LE"):
        return bool(low < other if name == "LT" else low <= other)
    return bool(high > other if name == "GT" else high >= other)


def _like(pattern: str, values: ValueRange) -> bool:
    """Decide LIKE by the text before the first wildcard."""
    if values.low is None or values.high is None or "\\" in pattern:
        return True
    start = min(place if (place := pattern.find(wildcard)) >= 0 else len(pattern) for wildcard in "%_")
    prefix = pattern[:start]
    return bool(values.low[: len(prefix)] <= prefix and values.high >= prefix)


def _column(expression: Expression, look: Look) -> ValueRange | None:
    """Return the range of a column, also of one that is widened to a type with the same order; None for anything
    else.
    """
    if isinstance(expression, Cast):
        inner = expression.argument
        return _column(inner, look) if widened(inner.type, expression.type) else None
    return look(expression.index) if isinstance(expression, Column) and _ordered(expression.type) else None


def widened(inner: pa.DataType, outer: pa.DataType) -> bool:
    """Return whether every value of `inner` is one of `outer`, and Python compares the two without conversion."""
    if _T.is_integer(inner) and _T.is_integer(outer):
        return bool(inner.bit_width <= outer.bit_width)
    if _T.is_decimal(inner) and _T.is_decimal(outer):
        return bool(inner.scale <= outer.scale and inner.precision - inner.scale <= outer.precision - outer.scale)
    return False


def _ordered(type_: pa.DataType) -> bool:
    return bool(
        _T.is_integer(type_)
        or _T.is_string(type_)
        or _T.is_boolean(type_)
        or _T.is_date(type_)
        or _T.is_timestamp(type_)
        or _T.is_decimal(type_)
    )
