"""The typing of + - * / %: Spark's decimal precisions, and the result types of dates, times and intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from penstock.expressions.coercion import (
    BIGINT,
    DATE,
    DOUBLE,
    DURATION,
    INT,
    NULL,
    STRING,
    adjusted,
    cast_to,
    decimal_operand,
    is_decimal,
    is_float,
    is_integer,
    is_numeric,
    is_temporal,
    misfit,
    wider_number,
    wider_time,
)
from penstock.expressions.library.registry import Rule
from penstock.expressions.nodes import Cast, Expression, Literal
from penstock.types import TIMESTAMP, WALL_CLOCK

_DAY = 86_400_000_000

Typed = tuple[tuple[Expression, ...], pa.DataType]


def operands(name: str, arguments: Sequence[Expression]) -> tuple[Expression, ...]:
    """Return arguments of arithmetic as numbers: a string is a DOUBLE, a NULL has the type of the other."""
    types = [a.type for a in arguments]
    if not all(is_numeric(t) or t in (STRING, NULL) for t in types):
        raise misfit(name, types, hint=_lengths(types))
    known = [DOUBLE if t == STRING else t for t in types if t != NULL] or [DOUBLE]
    return tuple(
        cast_to(a, DOUBLE) if a.type == STRING else cast_to(a, known[0]) if a.type == NULL else a for a in arguments
    )


def _lengths(types: Sequence[pa.DataType]) -> str | None:
    """Return the hint where a length of time is missing beside an instant."""
    if TIMESTAMP not in types or not any(is_numeric(t) or t == STRING for t in types):
        return None
    return "a length of time is an interval: + INTERVAL 60 SECONDS, + INTERVAL '1' HOUR"


def _add_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(left.scale, right.scale)
    return adjusted(max(left.precision - left.scale, right.precision - right.scale) + scale + 1, scale)


def _mul_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    return adjusted(left.precision + right.precision + 1, left.scale + right.scale)


def _div_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(6, left.scale + right.precision + 1)
    return adjusted(left.precision - left.scale + right.scale + scale, scale)


def _mod_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(left.scale, right.scale)
    return adjusted(min(left.precision - left.scale, right.precision - right.scale) + scale, scale)


def _numeric(result: Callable[[pa.DataType, pa.DataType], pa.DataType]) -> Rule:
    """Return the rule of a binary operator over numbers whose decimal result type is `result`."""

    def rule(name: str, arguments: Sequence[Expression]) -> Typed:
        left, right = operands(name, arguments)
        wider = wider_number(left.type, right.type)
        if is_decimal(wider):
            types = decimal_operand(left), decimal_operand(right)
            return (cast_to(left, types[0]), cast_to(right, types[1])), result(*types)
        return (cast_to(left, wider), cast_to(right, wider)), wider

    return rule


def add_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    left, right = arguments
    if is_temporal(right.type) or (left.type == NULL and right.type == DURATION):
        left, right = right, left
    return _shift(left, right) or _numeric(_add_type)(name, arguments)


def subtract_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    left, right = arguments
    if is_temporal(right.type) and (is_temporal(left.type) or left.type == NULL):
        common = right.type if left.type == NULL else wider_time(left.type, right.type)
        if common is None:
            hint = "AT TIME ZONE 'Europe/Berlin' turns one into the other"
            raise misfit(name, [left.type, right.type], hint=hint)
        return (cast_to(left, common), cast_to(right, common)), DURATION
    if left.type == NULL and right.type == DURATION:
        left = cast_to(left, DURATION)
    return _shift(left, right) or _numeric(_add_type)(name, arguments)


def _shift(left: Expression, right: Expression) -> Typed | None:
    """Return the typing of a date, time or interval shifted by an interval or by days; None for anything else."""
    if left.type == DURATION and right.type in (DURATION, NULL):
        return (left, cast_to(right, DURATION)), DURATION
    if left.type == DATE and (is_integer(right.type) or right.type == NULL):
        return (left, cast_to(right, INT)), DATE
    if is_temporal(left.type) and right.type in (DURATION, NULL):
        # A DATE moved by whole days stays a DATE, otherwise it becomes a TIMESTAMP.
        days = isinstance(right, Literal) and right.value is not None and _whole_days(right)
        stays = DATE if left.type == DATE and days else wider_time(left.type, TIMESTAMP) or WALL_CLOCK
        return (cast_to(left, stays), cast_to(right, DURATION)), stays
    return None


def _whole_days(literal: Literal) -> bool:
    ticks = pa.scalar(literal.value, DURATION).cast(BIGINT).as_py()
    return bool(ticks % _DAY == 0)


def multiply_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    left, right = arguments
    if right.type == DURATION:
        left, right = right, left
    if left.type == DURATION and (is_integer(right.type) or right.type == NULL):
        return (left, cast_to(right, BIGINT)), DURATION
    return _numeric(_mul_type)(name, arguments)


def divide_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    left, right = operands(name, arguments)
    if is_decimal(wider_number(left.type, right.type)):
        return _numeric(_div_type)(name, (left, right))
    return (cast_to(left, DOUBLE), cast_to(right, DOUBLE)), DOUBLE


def integer_divide_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    left, right = operands(name, arguments)
    wider = wider_number(left.type, right.type)
    if all(a.type == NULL for a in arguments):
        wider = BIGINT
    if is_float(wider):
        raise misfit(name, [left.type, right.type], hint="CAST the quotient instead")
    if is_decimal(wider):
        return (cast_to(left, decimal_operand(left)), cast_to(right, decimal_operand(right))), BIGINT
    return (cast_to(left, BIGINT), cast_to(right, BIGINT)), BIGINT


def has_positive_divisor(arguments: Sequence[Expression]) -> bool:
    """Return whether integers, or DOUBLEs, are divided by a constant that is more than 0."""
    left, right = arguments
    constant = right.argument if isinstance(right, Cast) and right.type in (BIGINT, DOUBLE) else right
    positive = (
        isinstance(constant, Literal) and is_numeric(constant.type) and bool(constant.value and constant.value > 0)
    )
    return positive and not is_decimal(left.type)


def negate_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    if arguments[0].type == DURATION:
        return tuple(arguments), DURATION
    (argument,) = operands(name, arguments)
    return (argument,), argument.type


modulo_rule = _numeric(_mod_type)
