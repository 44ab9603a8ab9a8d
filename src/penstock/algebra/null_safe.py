"""Null-safe equality as equalities: NULL equals NULL, as in DISTINCT, GROUP BY and `<=>`.

A value is described by two values that are never NULL, its *key*: itself, or the zero of its type where it is NULL, and
whether it is NULL. Two values are the same exactly where both parts of their keys are equal, so that what finds rows by
plain equality (an equi-join, a shard, an index) finds them too.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

from penstock.expressions.calls.functions import build_call, row_of
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Call, Cast, Expression, Literal

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def may_be_null(expression: Expression) -> bool:
    """Return whether `expression` may be NULL in some row, as far as the expression itself decides: any column may."""
    if isinstance(expression, Cast) and isinstance(expression.argument, Literal):
        expression = fold(expression)
    if isinstance(expression, Literal):
        return expression.value is None
    if not isinstance(expression, Call):
        return True
    row = row_of(expression.function)
    if row is not None and row.never_null:
        return False
    return expression.function != "COALESCE" or all(map(may_be_null, expression.arguments))


def without_null(expression: Expression) -> Expression:
    """Return `expression`, or the zero of its type where it is NULL; the type has one (`zero_of`)."""
    return build_call("COALESCE", [expression, Literal(expression.type, zero_of(expression.type))])


def same_keys(first: Expression, second: Expression) -> tuple[tuple[Expression, Expression], ...] | None:
    """Return pairs of expressions all of which are equal exactly where `first` and `second` are the same value, NULL
    like NULL; None where values of their type cannot be compared. One of the two that is never NULL leaves one pair.
    """
    if not (may_be_null(first) and may_be_null(second)):
        return ((first, second),)
    if first.type != second.type or zero_of(first.type) is None:
        return None
    gaps = build_call("IS_NULL", [first]), build_call("IS_NULL", [second])
    return (without_null(first), without_null(second)), gaps


def same(first: Expression, second: Expression) -> list[Expression]:
    """Return equalities that hold exactly where two values of a type that has a zero are the same, NULL like NULL."""
    pairs = same_keys(first, second)
    assert pairs is not None, "values of this type can be compared"
    return [build_call("EQ", pair) for pair in pairs]


def zero_of(type_: pa.DataType) -> object:
    """Return some value of the type; None where its values cannot be compared."""
    if pa.types.is_string(type_):
        return ""
    if pa.types.is_binary(type_):
        return b""
    if pa.types.is_boolean(type_):
        return False
    if pa.types.is_decimal(type_):
        return Decimal(0)
    if pa.types.is_date(type_):
        return _EPOCH.date()
    if pa.types.is_timestamp(type_):
        return _EPOCH
    if pa.types.is_duration(type_):
        return dt.timedelta(0)
    if pa.types.is_floating(type_):
        return 0.0
    return 0 if pa.types.is_integer(type_) else None
