"""+ - * / % and negation: over numbers, and over dates, times and intervals where that is meaningful.

Integers wrap, a zero divisor gives NULL, a decimal beyond 38 digits gives NULL, and so does a date, time or interval
beyond its type.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.coercion import (
    BIGINT,
    DATE,
    DURATION,
    INT,
    bounded,
    is_decimal,
    is_float,
)
from penstock.expressions.library.arithmetic_rules import (
    add_rule,
    divide_rule,
    has_positive_divisor,
    integer_divide_rule,
    modulo_rule,
    multiply_rule,
    negate_rule,
    subtract_rule,
)
from penstock.expressions.library.registry import Function
from penstock.expressions.values import decimals, gregorian
from penstock.expressions.values.datum import (
    Arguments,
    Datum,
    Kernel,
    arrays,
    from_numbers,
    is_scalar,
    null,
    null_unless,
    numbers,
    zero,
)
from penstock.types import TIMESTAMP, WALL_CLOCK

_DAY = 86_400_000_000


Operator: TypeAlias = Callable[[Datum, Datum], Datum]


def _wrapping(kernel: Operator, checked: Operator, exact: Callable[[Datum, Datum, pa.DataType], pa.Array]) -> Kernel:
    """Return an operator that is `exact` over decimals, NULL beyond the type of dates, times and intervals, and Arrow's
    `kernel`, which wraps, over everything else.

    Args:
        checked: The kernel that raises where `kernel` wraps.
    """

    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        left, right = arguments
        if is_decimal(type_):
            return exact(left, right, type_)
        if type_ in (DATE, DURATION, TIMESTAMP, WALL_CLOCK):
            return _shifted(kernel, checked, left, right, type_)
        return kernel(left, right)

    return run


def _shifted(kernel: Operator, checked: Operator, left: Datum, right: Datum, type_: pa.DataType) -> Datum:
    """Add, subtract or multiply days or microseconds as integers."""
    a, b = arrays([left, right])
    if type_ == DATE:
        days = from_numbers((numbers(b) // _DAY).astype(np.int32), INT, b) if b.type == DURATION else b
        return _or_null(kernel, checked, a.view(INT), days).view(DATE)
    if a.type == DATE:
        days = kernel(a.view(INT).cast(BIGINT), b.view(INT).cast(BIGINT))
        return gregorian.scaled(numbers(days), _DAY, 0, type_, days)
    return _or_null(kernel, checked, a.view(BIGINT), b.view(BIGINT)).view(type_)


def _or_null(kernel: Operator, checked: Operator, left: pa.Array, right: pa.Array) -> pa.Array:
    """Return integers of the type of both, NULL where the result is beyond it."""
    try:
        return checked(left, right)
    except pa.ArrowInvalid:
        wide, most = pa.decimal256(19, 0), 1 << (left.type.bit_width - 1)
        exact = kernel(left.cast(wide), right.cast(wide))
        low, high = (pa.scalar(Decimal(limit), exact.type) for limit in (-most, most - 1))
        return null_unless(pc.and_(pc.greater_equal(exact, low), pc.less_equal(exact, high)), exact).cast(left.type)


def _nonzero(divisor: Datum) -> Datum:
    """Return `divisor`, NULL where it is zero."""
    if is_scalar(divisor):
        return null(divisor.type) if divisor.is_valid and divisor.as_py() == 0 else divisor
    return pc.if_else(pc.equal(divisor, zero(divisor.type)), null(divisor.type), divisor)


def _divide(arguments: Arguments, type_: pa.DataType) -> Datum:
    left, right = arguments
    if is_decimal(type_):
        return decimals.divide(left, right, type_)
    return pc.divide(left, _nonzero(right))


def _integer_divide(arguments: Arguments, type_: pa.DataType) -> Datum:
    left, right = arguments
    if is_decimal(left.type):
        return decimals.divide_whole(left, right, type_)
    divisor = _nonzero(right)
    # Arrow gives 0 for the one quotient that overflows, MIN / -1, where Java wraps to MIN.
    negative = pc.equal(divisor, pa.scalar(-1, divisor.type))
    if is_scalar(negative) and negative.as_py() is not True:
        return pc.divide(left, divisor)
    return pc.if_else(negative, pc.negate(left), pc.divide(left, divisor))


def _modulo(arguments: Arguments, type_: pa.DataType) -> Datum:
    left, right = arguments
    if is_decimal(type_):
        return decimals.modulo(left, right, type_)
    return _over_numbers(np.fmod, left, right, type_)


def _positive_modulo(arguments: Arguments, type_: pa.DataType) -> Datum:
    left, right = arguments
    if is_decimal(type_):
        remainder = decimals.modulo(left, right, type_)
        shifted = decimals.modulo(
            decimals.add(remainder, right, bounded(type_.precision + 1, type_.scale)), right, type_
        )
        return pc.if_else(pc.less(remainder, zero(type_)), shifted, remainder)

    def run(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
        remainder = np.fmod(a, b)
        result: npt.NDArray[Any] = np.where(remainder < 0, np.fmod(remainder + b, b), remainder)
        return result

    return _over_numbers(run, left, right, type_)


def _over_numbers(
    run: Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any]], left: Datum, right: Datum, type_: pa.DataType
) -> pa.Array:
    """Apply `run` to NumPy values, NULL where the right one is zero."""
    a, b = arrays([left, right])
    divisors = numbers(b)
    nothing = divisors == 0
    with np.errstate(all="ignore"):
        values = run(numbers(a), np.where(nothing, divisors.dtype.type(1), divisors))
    return null_unless(~nothing, from_numbers(values, type_, a, b))


def _negate(arguments: Arguments, type_: pa.DataType) -> Datum:
    (argument,) = arguments
    if type_ == DURATION:
        zeros = pa.repeat(pa.scalar(0, BIGINT), len(argument))
        return _or_null(pc.subtract, pc.subtract_checked, zeros, argument.view(BIGINT)).view(DURATION)
    if is_float(type_):
        return pc.multiply(argument, pa.scalar(-1.0, type_))
    return pc.negate(argument)


FUNCTIONS = (
    Function(
        "ADD",
        "left, right",
        add_rule,
        _wrapping(pc.add, pc.add_checked, decimals.add),
        "sum; a date or time moved by an interval, a date by days",
        operator="left + right",
    ),
    Function(
        "SUB",
        "left, right",
        subtract_rule,
        _wrapping(pc.subtract, pc.subtract_checked, decimals.subtract),
        "difference; between dates or times an interval",
        operator="left - right",
    ),
    Function(
        "MUL",
        "left, right",
        multiply_rule,
        _wrapping(pc.multiply, pc.multiply_checked, decimals.multiply),
        "product",
        operator="left * right",
    ),
    Function(
        "DIV",
        "left, right",
        divide_rule,
        _divide,
        "DOUBLE, of decimals DECIMAL; NULL for a zero divisor",
        operator="left / right",
        rises_with=0,
        rises_if=has_positive_divisor,
    ),
    Function(
        "INT_DIV",
        "left, right",
        integer_divide_rule,
        _integer_divide,
        "truncated toward zero",
        operator="left DIV right",
        rises_with=0,
        rises_if=has_positive_divisor,
    ),
    Function("MOD", "left, right", modulo_rule, _modulo, "remainder, with the sign of `left`"),
    Function("PMOD", "left, right", modulo_rule, _positive_modulo, "remainder that is not negative"),
    Function("NEG", "number", negate_rule, _negate, "with the other sign", aliases=("NEGATIVE",), operator="-number"),
)
