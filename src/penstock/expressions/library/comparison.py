"""Comparisons and IN. NaN equals NaN and is greater than every number; -0.0 equals 0.0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.expressions.coercion import (
    BOOLEAN,
    DOUBLE,
    NULL,
    STRING,
    cast_to,
    comparison_type,
    is_atomic,
    is_float,
    misfit,
)
from penstock.expressions.library.registry import Function
from penstock.expressions.nodes import Expression
from penstock.expressions.text_equality import equals_text
from penstock.expressions.values.datum import Arguments, Datum, Kernel, is_scalar, length_of, to_array
from penstock.types import TIMESTAMP, WALL_CLOCK, type_name

Typed = tuple[tuple[Expression, ...], pa.DataType]


def comparable(what: str, arguments: Sequence[Expression], equality: bool = False) -> tuple[Expression, ...]:
    """Return `arguments` in the one type in which they are compared. equality: as in `comparison_type`.

    Raises:
        PenstockError: P0203, there is none.
    """
    common = NULL
    for argument in arguments:
        found = comparison_type(common, argument.type, equality)
        if found is None or not is_atomic(found):
            types = list(dict.fromkeys(a.type for a in arguments))
            hint = "CAST one side to the type of the other" if len(types) == 2 else None
            if {TIMESTAMP, WALL_CLOCK} <= set(types):
                hint = "AT TIME ZONE 'Europe/Berlin' turns one into the other"
            raise misfit(what, types, hint=hint)
        common = found
    return tuple(cast_to(a, common) for a in arguments)


def _rule(name: str, arguments: Sequence[Expression]) -> Typed:
    return comparable(name, arguments), BOOLEAN


def _equality_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    return comparable(name, arguments, equality=True), BOOLEAN


def equal(left: Datum, right: Datum) -> Datum:
    result = pc.equal(left, right)
    if not is_float(left.type) or _ordinary(left) or _ordinary(right):
        return result
    return pc.or_(result, pc.and_(pc.is_nan(left), pc.is_nan(right)))


def greater(left: Datum, right: Datum) -> Datum:
    if not is_float(left.type) or _ordinary(left):
        return pc.greater(left, right) if not is_float(left.type) else pc.and_(pc.greater(left, right), _number(right))
    # A NaN on the left is not <= anything, and so compares as greater; only a NaN on the right needs a check.
    result = pc.invert(pc.less_equal(left, right))
    return result if _ordinary(right) else pc.and_(result, _number(right))


def _ordinary(datum: Datum) -> bool:
    """Return whether `datum` is a literal number, hence not NaN in any row."""
    return is_scalar(datum) and datum.is_valid and not np.isnan(datum.as_py())


def _number(datum: Datum) -> Datum:
    return pc.invert(pc.is_nan(datum))


def _not(kernel: Callable[[Datum, Datum], Datum], left: Datum, right: Datum) -> Datum:
    return pc.invert(kernel(left, right))


def _kernel(compare: Callable[[Datum, Datum], Datum], plain: Callable[[Datum, Datum], Datum]) -> Kernel:
    """Return `compare` for types in which NaN can occur, Arrow's own `plain` kernel for others."""

    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        left, right = arguments
        if left.type == NULL:
            return pa.nulls(length_of(arguments), BOOLEAN)
        return compare(left, right) if is_float(left.type) else plain(left, right)

    return run


def _plain_equal(left: Datum, right: Datum) -> Datum:
    if left.type == STRING:
        if is_scalar(left):
            left, right = right, left
        if is_scalar(right) and right.is_valid:
            return equals_text(left, right.as_py().encode())
    return pc.equal(left, right)


def _plain_not_equal(left: Datum, right: Datum) -> Datum:
    return _not(_plain_equal, left, right) if left.type == STRING else pc.not_equal(left, right)


def _equal_null_safe(arguments: Arguments, type_: pa.DataType) -> Datum:
    left, right = arguments
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    if left.type == NULL:
        return both
    return pc.or_(pc.fill_null(equal(left, right), False), both)


def _in(arguments: Arguments, type_: pa.DataType) -> Datum:
    value, *members = arguments
    length = length_of(arguments)
    if value.type == NULL:
        return pa.nulls(length, BOOLEAN)
    if is_scalar(value) or not all(is_scalar(m) for m in members):
        value = to_array(value, length)
        return reduce(pc.or_kleene, (equal(value, m) for m in members))
    known = pa.array([m for m in members if m.is_valid], value.type)
    if is_float(value.type):
        # Hashing distinguishes -0.0 from 0.0; adding 0.0 makes them equal.
        value, known = pc.add(value, pa.scalar(0.0, value.type)), pc.add(known, pa.scalar(0.0, value.type))
    found = pc.is_in(value, value_set=known)
    unknown = pa.scalar(None, BOOLEAN)
    if len(known) < len(members):
        return pc.if_else(found, pa.scalar(True), unknown)
    return pc.if_else(pc.is_valid(value), found, unknown) if value.null_count else found


def _is_nan_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    (argument,) = arguments
    if argument.type == NULL:
        return (cast_to(argument, DOUBLE),), BOOLEAN
    if not is_float(argument.type):
        raise PenstockError("P0203", f"ISNAN takes FLOAT or DOUBLE, not {type_name(argument.type)}")
    return tuple(arguments), BOOLEAN


def _is_nan(arguments: Arguments, type_: pa.DataType) -> Datum:
    return pc.fill_null(pc.is_nan(arguments[0]), False)


FUNCTIONS = (
    Function(
        "EQ",
        "left, right",
        _equality_rule,
        _kernel(equal, _plain_equal),
        "equal; NaN equals NaN",
        operator="left = right",
        compares=True,
    ),
    Function(
        "NE",
        "left, right",
        _equality_rule,
        _kernel(lambda a, b: _not(equal, a, b), _plain_not_equal),
        "not equal",
        operator="left <> right",
        compares=True,
    ),
    Function(
        "LT",
        "left, right",
        _rule,
        _kernel(lambda a, b: greater(b, a), pc.less),
        "less; NaN is the greatest number",
        operator="left < right",
        compares=True,
    ),
    Function(
        "LE",
        "left, right",
        _rule,
        _kernel(lambda a, b: _not(greater, a, b), pc.less_equal),
        "less or equal",
        operator="left <= right",
        compares=True,
    ),
    Function(
        "GT",
        "left, right",
        _rule,
        _kernel(greater, pc.greater),
        "greater; NaN is the greatest number",
        operator="left > right",
        compares=True,
    ),
    Function(
        "GE",
        "left, right",
        _rule,
        _kernel(lambda a, b: _not(greater, b, a), pc.greater_equal),
        "greater or equal",
        operator="left >= right",
        compares=True,
    ),
    Function(
        "EQ_NULL_SAFE",
        "left, right",
        _equality_rule,
        _equal_null_safe,
        "as `=`, but NULL equals NULL",
        aliases=("EQUAL_NULL",),
        operator="left <=> right",
        never_null=True,
        compares=True,
    ),
    Function(
        "IN",
        "value, member, ...",
        _rule,
        _in,
        "NULL when a NULL leaves it open",
        operator="value IN (member, ...)",
        compares=True,
    ),
    Function(
        "IS_NAN",
        "number",
        _is_nan_rule,
        _is_nan,
        "whether a number is NaN; FALSE for NULL",
        aliases=("ISNAN",),
        never_null=True,
        compares=True,
    ),
)
