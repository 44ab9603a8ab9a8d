"""Mathematics: rounding exactly as in Spark (half up), and the usual functions over DOUBLE.

Outside its domain a function is NULL where Spark returns NULL (logarithms) and NaN where it returns NaN (SQRT, ACOS).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.expressions.coercion import (
    BIGINT,
    DOUBLE,
    DURATION,
    INT,
    bounded,
    cast_to,
    is_decimal,
    is_float,
    is_integer,
)
from penstock.expressions.library.arithmetic_rules import operands
from penstock.expressions.library.registry import Function, takes
from penstock.expressions.nodes import Call, Expression, Literal
from penstock.expressions.values import decimals
from penstock.expressions.values.casts import convert
from penstock.expressions.values.datum import Arguments, Datum, Kernel, arrays, from_numbers, null_unless, numbers

Typed = tuple[tuple[Expression, ...], pa.DataType]


def _same_number(name: str, arguments: Sequence[Expression]) -> Typed:
    if arguments[0].type == DURATION:
        return tuple(arguments), DURATION
    (argument,) = operands(name, arguments)
    return (argument,), argument.type


def _absolute(arguments: Arguments, type_: pa.DataType) -> Datum:
    (argument,) = arguments
    if type_ != DURATION:
        return pc.abs(argument)
    # The least length has no opposite: its absolute value wraps to itself.
    sizes = pc.abs(argument.view(BIGINT))
    return null_unless(numbers(sizes) >= 0, sizes).view(DURATION)


def _digits(name: str, arguments: Sequence[Expression]) -> int:
    """Return the second argument of ROUND and similar functions, which must be a constant."""
    if len(arguments) < 2:
        return 0
    argument, sign = arguments[1], 1
    if isinstance(argument, Call) and argument.function == "NEG":
        argument, sign = argument.arguments[0], -1
    if not isinstance(argument, Literal) or not isinstance(argument.value, int):
        raise PenstockError("P0203", f"the second argument of {name} must be a whole number literal")
    return sign * argument.value


def _round_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    (number,) = operands(name, arguments[:1])
    places = _digits(name, arguments)
    type_ = number.type
    if is_decimal(type_):
        whole = type_.precision - type_.scale + 1
        scale = min(type_.scale, max(places, 0))
        type_ = bounded(max(whole, 1 - places) if places < 0 else whole + scale, scale)
    return (number, *(Literal(INT, places) for _ in arguments[1:])), type_


def _rounding(half: str) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        number = arrays(arguments)[0]
        places = _places(arguments)
        if is_decimal(type_):
            wide = number.cast(pa.decimal256(76, number.type.scale))
            mode = "half_towards_infinity" if half == "up" else "half_to_even"
            return decimals.rescale(pc.round(wide, places, mode), type_)
        if is_integer(type_):
            return _round_integers(number, places, half) if places < 0 else number
        values = _round_doubles(numbers(number).astype(np.float64), places, half)
        return from_numbers(values.astype(type_.to_pandas_dtype()), type_, number)

    return run


def _places(arguments: Arguments) -> int:
    if len(arguments) == 1:
        return 0
    # A literal is an array of one row when all the arguments are literals.
    second = arguments[1]
    return int((second if isinstance(second, pa.Scalar) else second[0]).as_py())


def _round_integers(number: pa.Array, places: int, half: str) -> pa.Array:
    if places < -18:
        return from_numbers(np.zeros(len(number), number.type.to_pandas_dtype()), number.type, number)
    unit = 10**-places
    wide = numbers(number).astype(np.int64)
    rest = np.fmod(wide, unit)
    base = wide - rest
    over = (
        np.abs(rest) * 2 >= unit
        if half == "up"
        else (np.abs(rest) * 2 > unit) | ((np.abs(rest) * 2 == unit) & (base // unit % 2 != 0))
    )
    return from_numbers((base + np.sign(rest) * over * unit).astype(number.type.to_pandas_dtype()), number.type, number)


def _round_doubles(values: npt.NDArray[np.float64], places: int, half: str) -> npt.NDArray[np.float64]:
    """Round the shortest decimal text of each double: 2.675 to two places is 2.68."""
    counted, known = decimals.units(values, places, even=half == "even")
    power = 10.0 ** abs(places)
    with np.errstate(all="ignore"):
        return np.where(known, counted / power if places >= 0 else counted * power, values)


def _whole_rule(name: str, arguments: Sequence[Expression]) -> Typed:
    (number,) = operands(name, arguments)
    if is_decimal(number.type):
        return (number,), bounded(number.type.precision - number.type.scale + 1, 0)
    return (number if is_float(number.type) else cast_to(number, BIGINT),), BIGINT


def _whole(kernel: Callable[[Datum], Datum]) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        (number,) = arguments
        if is_decimal(number.type):
            return decimals.rescale(kernel(number.cast(pa.decimal256(76, number.type.scale))), type_)
        return convert(kernel(number), type_) if is_float(number.type) else number

    return run


def _unary(function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        (number,) = arguments
        with np.errstate(all="ignore"):
            return from_numbers(function(numbers(number)), type_, number)

    return run


def _binary(function: Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[Any]]) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        left, right = arrays(arguments)
        with np.errstate(all="ignore"):
            return from_numbers(function(numbers(left), numbers(right)), type_, left, right)

    return run


def _logarithm(function: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], above: float = 0.0) -> Kernel:
    """Return the kernel of a logarithm, NULL at or below `above`."""

    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        (number,) = arguments
        values = numbers(number)
        inside = ~(values <= above)
        with np.errstate(all="ignore"):
            return null_unless(inside, from_numbers(function(np.where(inside, values, 1.0)), type_, number))

    return run


def _log(arguments: Arguments, type_: pa.DataType) -> Datum:
    if len(arguments) == 1:
        return _logarithm(np.log)(arguments, type_)
    base, number = (_logarithm(np.log)((a,), type_) for a in arrays(arguments))
    with np.errstate(all="ignore"):
        return from_numbers(numbers(number) / numbers(base), type_, base, number)


def _constant(value: float) -> Kernel:
    def run(arguments: Arguments, type_: pa.DataType) -> Datum:
        return pa.scalar(value, type_)

    return run


def _double(name: str, signature: str, kernel: Kernel, help_: str, aliases: tuple[str, ...] = ()) -> Function:
    return Function(name, signature, takes(DOUBLE, DOUBLE), kernel, help_, aliases)


def _factorial(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    table = np.array([math.factorial(n) for n in range(21)], np.int64)
    result: npt.NDArray[Any] = table[np.clip(values, 0, 20)]
    return result


def _factorial_kernel(arguments: Arguments, type_: pa.DataType) -> Datum:
    (number,) = arguments
    values = numbers(number)
    return null_unless((values >= 0) & (values <= 20), from_numbers(_factorial(values), type_, number))


FUNCTIONS = (
    Function("ABS", "number", _same_number, _absolute, "absolute value"),
    Function("ROUND", "number [, places]", _round_rule, _rounding("up"), "rounded, halves away from zero"),
    Function("BROUND", "number [, places]", _round_rule, _rounding("even"), "rounded, halves to the even digit"),
    Function(
        "FLOOR",
        "number",
        _whole_rule,
        _whole(pc.floor),
        "greatest whole number that is not greater",
        rises_with=0,
    ),
    Function(
        "CEIL",
        "number",
        _whole_rule,
        _whole(pc.ceil),
        "least whole number that is not less",
        ("CEILING",),
        rises_with=0,
    ),
    _double("SQRT", "number", _unary(np.sqrt), "square root"),
    _double("CBRT", "number", _unary(np.cbrt), "cube root"),
    _double("POWER", "base, exponent", _binary(np.power), "base to the power of exponent", ("POW",)),
    _double("EXP", "number", _unary(np.exp), "e to the power of a number"),
    _double("EXPM1", "number", _unary(np.expm1), "EXP(number) - 1, exact near zero"),
    _double("LN", "number", _logarithm(np.log), "natural logarithm; NULL unless positive"),
    _double("LOG", "[base,] number", _log, "logarithm to a base, natural without one; NULL unless positive"),
    _double("LOG10", "number", _logarithm(np.log10), "decimal logarithm; NULL unless positive"),
    _double("LOG2", "number", _logarithm(np.log2), "binary logarithm; NULL unless positive"),
    _double("LOG1P", "number", _logarithm(np.log1p, -1.0), "LN(1 + number), exact near zero"),
    _double("SIGN", "number", _unary(np.sign), "-1.0, 0.0 or 1.0", ("SIGNUM",)),
    Function("FACTORIAL", "number", takes(BIGINT, INT), _factorial_kernel, "factorial of 0 to 20, else NULL"),
    _double("HYPOT", "x, y", _binary(np.hypot), "length of the vector (x, y)"),
    _double("SIN", "angle", _unary(np.sin), "sine of radians"),
    _double("COS", "angle", _unary(np.cos), "cosine of radians"),
    _double("TAN", "angle", _unary(np.tan), "tangent of radians"),
    _double("COT", "angle", _unary(lambda v: 1.0 / np.tan(v)), "cotangent of radians"),
    _double("ASIN", "number", _unary(np.arcsin), "inverse sine in radians"),
    _double("ACOS", "number", _unary(np.arccos), "inverse cosine in radians"),
    _double("ATAN", "number", _unary(np.arctan), "inverse tangent in radians"),
    _double("ATAN2", "y, x", _binary(np.arctan2), "angle of the point (x, y) in radians"),
    _double("SINH", "number", _unary(np.sinh), "hyperbolic sine"),
    _double("COSH", "number", _unary(np.cosh), "hyperbolic cosine"),
    _double("TANH", "number", _unary(np.tanh), "hyperbolic tangent"),
    _double("DEGREES", "angle", _unary(np.degrees), "radians as degrees"),
    _double("RADIANS", "angle", _unary(np.radians), "degrees as radians"),
    Function("PI", "", takes(DOUBLE), _constant(math.pi), "the number pi"),
    Function("E", "", takes(DOUBLE), _constant(math.e), "the number e"),
)
