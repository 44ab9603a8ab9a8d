"""+ - * / % and negation: over numbers, and over dates, times and intervals where that is meaningful.

Integers wrap, a zero divisor gives NULL, a decimal beyond 38 digits gives NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    is_integer,
)
from penstock.expressions.library.arithmetic_rules import (
    add_rule,
    divide_rule,
    integer_divide_rule,
    modulo_rule,
    multiply_rule,
    negate_rule,
    subtract_rule,
)
from penstock.expressions.registry import Function
from penstock.expressions.values import decimals
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
from penstock.types import TIMESTAMP

_DAY = 86_400_000_000


def _wrapping(
    kernel: Callable[[Datum, Datum], Datum], exact: Callable[[Datum, Datum, pa.DataType], pa.Array]
) -> Kernel:
    """Return an operator that is `exact` over decimals and Arrow's `kernel`, which wraps, over everything else."""

    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        left, right = arguments
        if is_decimal(type_):
            return exact(left, right, type_)
        if type_ in (DATE, DURATION, TIMESTAMP):
            return _shifted(kernel, left, right, type_)
        return kernel(left, right)

    return run


def _shifted(kernel: Callable[[Datum, Datum], Datum], left: Datum, right: Datum, type_: pa.DataType) -> Datum:
    """Add or subtract ticks as integers: Arrow's own kernels raise where a sum of times overflows."""
    a, b = arrays([left, right])
    if type_ == DATE:
        if b.type == DURATION:
            b = from_numbers((numbers(b) // _DAY).astype(np.int32), INT, b)
        return kernel(_ticks(a), b).cast(INT, safe=False).view(DATE)
    unit = _DAY if a.type == DATE else 1
    return pc.multiply(kernel(_ticks(a).cast(BIGINT), _ticks(b).cast(BIGINT)), unit).view(type_)


def _ticks(array: pa.Array) -> pa.Array:
    if is_integer(array.type):
        return array
    return array.view(INT if array.type == DATE else BIGINT)


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
        return pc.negate(argument.view(BIGINT)).view(DURATION)
    if is_float(type_):
        return pc.multiply(argument, pa.scalar(-1.0, type_))
    return pc.negate(argument)


FUNCTIONS = (
    Function(
        "ADD",
        "left, right",
        add_rule,
        _wrapping(pc.add, decimals.add),
        "sum; a date or time moved by an interval, a date by days",
        operator="left + right",
    ),
    Function(
        "SUB",
        "left, right",
        subtract_rule,
        _wrapping(pc.subtract, decimals.subtract),
        "difference; between dates or times an interval",
        operator="left - right",
    ),
    Function(
        "MUL",
        "left, right",
        multiply_rule,
        _wrapping(pc.multiply, decimals.multiply),
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
    ),
    Function(
        "INT_DIV",
        "left, right",
        integer_divide_rule,
        _integer_divide,
        "truncated toward zero",
        operator="left DIV right",
    ),
    Function("MOD", "left, right", modulo_rule, _modulo, "remainder, with the sign of `left`"),
    Function("PMOD", "left, right", modulo_rule, _positive_modulo, "remainder that is not negative"),
    Function("NEG", "number", negate_rule, _negate, "with the other sign", aliases=("NEGATIVE",), operator="-number"),
)
