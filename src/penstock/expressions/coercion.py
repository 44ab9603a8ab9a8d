"""Compatible types: common types, decimal precision and implicit casts, as in Spark with ANSI mode off.

The order of widening is TINYINT < SMALLINT < INT < BIGINT < DECIMAL < FLOAT < DOUBLE. All functions here operate on
bound expressions at planning time and raise PenstockError P0203, without a position, that names the types.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.nodes import Cast, Expression, Literal
from penstock.types import TIMESTAMP, WALL_CLOCK, type_name

BOOLEAN, STRING, BINARY, DATE, NULL = pa.bool_(), pa.string(), pa.binary(), pa.date32(), pa.null()
TINYINT, SMALLINT, INT, BIGINT = pa.int8(), pa.int16(), pa.int32(), pa.int64()
FLOAT, DOUBLE = pa.float32(), pa.float64()
DURATION = pa.duration("us")

MAX_PRECISION = 38
#: Minimum number of decimals of a result whose precision is cut to 38 digits (Spark's allowPrecisionLoss).
MIN_SCALE = 6

_INTEGERS = {TINYINT: 3, SMALLINT: 5, INT: 10, BIGINT: 20}
_RANK = {TINYINT: 0, SMALLINT: 1, INT: 2, BIGINT: 3, FLOAT: 5, DOUBLE: 6}


def is_integer(type_: pa.DataType) -> bool:
    return type_ in _INTEGERS


def is_decimal(type_: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(type_))


def is_float(type_: pa.DataType) -> bool:
    return type_ in (FLOAT, DOUBLE)


def is_numeric(type_: pa.DataType) -> bool:
    return is_integer(type_) or is_decimal(type_) or is_float(type_)


def is_temporal(type_: pa.DataType) -> bool:
    return type_ in (DATE, TIMESTAMP, WALL_CLOCK)


def is_atomic(type_: pa.DataType) -> bool:
    """Return whether `type_` is a type of the language [semantics 3], a duration or NULL: not a list or struct."""
    return is_numeric(type_) or type_ in (BOOLEAN, STRING, BINARY, DATE, TIMESTAMP, WALL_CLOCK, DURATION, NULL)


#: The hint of arithmetic over texts.
TEXTS_JOINED = "texts are joined by ||: a || '-' || b"


def misfit(what: str, types: Sequence[pa.DataType], hint: str | None = None) -> PenstockError:
    """Return the P0203 for `what`, which does not accept `types`."""
    *rest, last = (type_name(t) for t in types)
    shown = f"{', '.join(rest)} and {last}" if rest else last
    return PenstockError("P0203", f"{what} does not take {shown}", hint=hint)


def cast_to(expression: Expression, type_: pa.DataType) -> Expression:
    """Return `expression` as `type_`: unchanged when it has that type, a retyped NULL literal, else a Cast."""
    if expression.type == type_:
        return expression
    if isinstance(expression, Literal) and expression.value is None:
        return Literal(type_, None)
    return Cast(type_, expression)


def bounded(precision: int, scale: int) -> pa.DataType:
    """Return DECIMAL(precision, scale) cut to 38 digits."""
    return pa.decimal128(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def adjusted(precision: int, scale: int) -> pa.DataType:
    """Return DECIMAL(precision, scale); beyond 38 digits, decimals (down to six) are removed before digits."""
    if precision <= MAX_PRECISION:
        return pa.decimal128(precision, scale)
    return pa.decimal128(MAX_PRECISION, max(MAX_PRECISION - (precision - scale), min(scale, MIN_SCALE)))


def as_decimal(type_: pa.DataType) -> pa.DataType:
    """Return the decimal type that holds every value of an integer or decimal type."""
    return type_ if is_decimal(type_) else pa.decimal128(_INTEGERS[type_], 0)


def decimal_operand(expression: Expression) -> pa.DataType:
    """Return the decimal type of an operand: an integer literal has the digits it is written with."""
    if isinstance(expression, Literal) and is_integer(expression.type) and expression.value is not None:
        return pa.decimal128(len(str(abs(expression.value))), 0)
    return as_decimal(expression.type)


def wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(left.scale, right.scale)
    return bounded(max(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def wider_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the common type of two numeric types."""
    if is_float(left) or is_float(right):
        if is_decimal(left) or is_decimal(right):
            return DOUBLE
        return max(left, right, key=lambda t: _RANK[t])
    if is_decimal(left) or is_decimal(right):
        return wider_decimal(as_decimal(left), as_decimal(right))
    return max(left, right, key=lambda t: _RANK[t])


def wider_time(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the common type of two of DATE, TIMESTAMP and TIMESTAMP_NTZ; None for the latter two: the instant at which
    clocks show a time depends on the zone."""
    if DATE in (left, right):
        return right if left == DATE else left
    return left if left == right else None


def common_type(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return the type of a CASE, COALESCE or UNION over values of `types`, or None. Strings take precedence over other
    atomic types.
    """
    result = NULL
    for type_ in types:
        wider = _wider(result, type_)
        if wider is None:
            return None
        result = wider
    return result


def _wider(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if is_numeric(left) and is_numeric(right):
        return wider_number(left, right)
    if is_temporal(left) and is_temporal(right):
        return wider_time(left, right)
    if STRING in (left, right) and not {BOOLEAN, BINARY, DURATION} & {left, right}:
        other = right if left == STRING else left
        return STRING if is_atomic(other) else None
    return None


def comparison_type(left: pa.DataType, right: pa.DataType, equality: bool = False) -> pa.DataType | None:
    """Return the type in which two operands are compared, or None. A string is cast to the type of the other operand.

    Args:
        equality: whether they are compared for equality alone. Then a BOOLEAN may meet a number, as 1 or 0.
    """
    if left == right or right == NULL:
        return left
    if left == NULL:
        return right
    if STRING in (left, right):
        other = right if left == STRING else left
        if is_numeric(other):
            return DOUBLE
        return other if is_temporal(other) or other in (BOOLEAN, BINARY) else None
    if equality and BOOLEAN in (left, right):
        other = right if left == BOOLEAN else left
        return other if is_numeric(other) else None
    return _wider(left, right)


def implicit(expression: Expression, type_: pa.DataType, what: str) -> Expression:
    """Return `expression` cast to a function's parameter type `type_`.

    Raises:
        PenstockError: P0203, Spark has no such implicit cast.
    """
    source = expression.type
    if source in (type_, NULL) or (is_numeric(source) and is_numeric(type_)):
        return cast_to(expression, type_)
    if source == STRING and (is_numeric(type_) or is_temporal(type_) or type_ == BINARY):
        return cast_to(expression, type_)
    if type_ == STRING and (is_atomic(source) and source != DURATION):
        return cast_to(expression, type_)
    if is_temporal(source) and is_temporal(type_) and wider_time(source, type_) is not None:
        return cast_to(expression, type_)
    instant = {source, type_} == {TIMESTAMP, WALL_CLOCK}
    hint = "AT TIME ZONE 'Europe/Berlin' turns one into the other" if instant else "CAST the argument"
    raise misfit(what, [source], hint=f"it takes {type_name(type_)} here; {hint}")
