"""Exact decimal arithmetic without Arrow's errors: 256-bit intermediates, HALF_UP rounding, NULL on overflow."""

from __future__ import annotations

import decimal
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.values.datum import Datum, arrays, from_numbers, null, null_unless, numbers, over_distinct

_WIDE = 76
#: Unscaled values up to this precision are exact in a double, and so is their quotient by a power of ten, rounded once.
_EXACT_DIGITS = 15
#: Unscaled values up to this precision are 64-bit integers.
_WORD_DIGITS = 18
#: Arrow's quotient has at least four decimals of its own.
_ARROW_SCALE = 4
#: Enough digits for every product and quotient of two decimals of 38 digits.
_PRECISE = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_UP)


def rescale(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert a decimal array of any width to `type_`: rounded half up, NULL where it does not fit."""
    source = array.type
    if source == type_:
        return array
    digits, scale = type_.precision - type_.scale, type_.scale
    if source.scale <= scale and source.precision - source.scale <= digits:
        return array.cast(type_)
    if digits + 1 + source.scale > _WIDE:
        return over_distinct(lambda v: exact(v, type_), [array], type_)
    wide = array.cast(pa.decimal256(_WIDE, source.scale))
    if source.scale > scale:
        wide = _rounded(wide, scale)
    bound = pa.array([decimal.Decimal(10) ** digits], pa.decimal256(digits + 1, 0)).cast(wide.type)[0]
    fits = pc.less(pc.abs(wide), bound)
    return pc.if_else(fits, wide, null(wide.type)).cast(type_)


def _rounded(wide: pa.Array, scale: int) -> pa.Array:
    """Round a decimal array of `_WIDE` digits half up to `scale` decimals, NULL for values of all these digits.

    Arrow's own `half_towards_infinity` compares the remainder wrongly for some values of 256 bits (in Arrow 26
    255999999999999999999.99999970369020624896 to 6 decimals), so a half is added and the rest cut off.
    """
    half = decimal.Decimal(5).scaleb(-scale - 1)
    narrow = pa.decimal256(_WIDE - 1, wide.type.scale)  # a sum has a digit more
    halves = pa.array([half, -half], narrow)
    bound = pa.scalar(decimal.Decimal(1).scaleb(_WIDE - 1 - wide.type.scale), wide.type)
    narrowed = pc.if_else(pc.less(pc.abs(wide), bound), wide, null(wide.type)).cast(narrow)
    terms = pc.if_else(pc.less(wide, pa.scalar(decimal.Decimal(0), wide.type)), halves[1], halves[0])
    return pc.round(pc.add(narrowed, terms), scale, "towards_zero")


def exact(value: decimal.Decimal, type_: pa.DataType) -> decimal.Decimal | None:
    """Return `value` rounded half up to `type_`, or None when it does not fit."""
    if not value.is_finite():
        return None
    rounded = value.quantize(decimal.Decimal(1).scaleb(-type_.scale), context=_PRECISE)
    return rounded if rounded.copy_abs() < decimal.Decimal(10) ** (type_.precision - type_.scale) else None


def add(left: Datum, right: Datum, type_: pa.DataType) -> pa.Array:
    return _sum(pc.add, _PRECISE.add, left, right, type_)


def subtract(left: Datum, right: Datum, type_: pa.DataType) -> pa.Array:
    return _sum(pc.subtract, _PRECISE.subtract, left, right, type_)


_Exact = Callable[[decimal.Decimal, decimal.Decimal], decimal.Decimal]


def _sum(
    kernel: Callable[[Datum, Datum], Datum], precisely: _Exact, left: Datum, right: Datum, type_: pa.DataType
) -> pa.Array:
    digits, scale = _common(left.type, right.type)
    # At most 38 + 38 digits and a carry: 256 bits nearly always suffice.
    if digits + scale + 1 > _WIDE:
        return _by_value(precisely, left, right, type_)
    wide = pa.decimal128(digits + scale, scale) if digits + scale < 38 else pa.decimal256(digits + scale, scale)
    return rescale(kernel(_as(left, wide), _as(right, wide)), type_)


def _as(datum: Datum, type_: pa.DataType) -> Datum:
    return datum if datum.type == type_ else datum.cast(type_)


def _common(left: pa.DataType, right: pa.DataType) -> tuple[int, int]:
    """Return (digits before the point, decimals) that hold the values of both types."""
    return max(left.precision - left.scale, right.precision - right.scale), max(left.scale, right.scale)


def _by_value(precisely: _Exact, left: Datum, right: Datum, type_: pa.DataType) -> pa.Array:
    return over_distinct(lambda a, b: exact(precisely(a, b), type_), [left, right], type_)


def multiply(left: Datum, right: Datum, type_: pa.DataType) -> pa.Array:
    digits = left.type.precision + right.type.precision + 1
    if digits <= 38:
        return rescale(pc.multiply(left, right), type_)
    if digits <= _WIDE:
        wide = (d.cast(pa.decimal256(d.type.precision, d.type.scale)) for d in (left, right))
        return rescale(pc.multiply(*wide), type_)
    return _by_value(_PRECISE.multiply, left, right, type_)


def divide(left: Datum, right: Datum, type_: pa.DataType) -> pa.Array:
    """Return `left / right`, NULL for a zero divisor."""
    # The numerator gets as many decimals as the quotient needs; both sides are then divided as whole numbers, by
    # relabelling their bits. Arrow truncates far enough after the last digit for correct HALF_UP rounding.
    scale = type_.scale + right.type.scale
    digits = left.type.precision - left.type.scale + scale
    if digits + _ARROW_SCALE > _WIDE or scale < left.type.scale:
        return _by_value(_PRECISE.divide, left, right, type_)
    numerators, divisors = arrays([left, right])
    zero = pa.scalar(decimal.Decimal(0), divisors.type)
    divisors = pc.if_else(pc.equal(divisors, zero), null(divisors.type), divisors)
    whole = numerators.cast(pa.decimal256(digits, scale)).view(pa.decimal256(digits, 0))
    by = divisors.cast(pa.decimal256(right.type.precision, right.type.scale)).view(pa.decimal256(1, 0))
    quotient = pc.divide(whole, by)
    return rescale(quotient.view(pa.decimal256(_WIDE, type_.scale + quotient.type.scale)), type_)


def divide_whole(left: Datum, right: Datum, type_: pa.DataType) -> pa.Array:
    """Return the quotient truncated to a BIGINT, NULL for a zero divisor or a quotient that does not fit."""

    def whole(a: decimal.Decimal, b: decimal.Decimal) -> int | None:
        result = int(_PRECISE.divide_int(a, b))
        return result if -(2**63) <= result < 2**63 else None

    return over_distinct(whole, [left, right], type_)


def modulo(left: Datum, right: Datum, type_: pa.DataType) -> pa.Array:
    """Return the remainder with the sign of `left`, NULL for a zero divisor."""
    digits, scale = _common(left.type, right.type)
    if digits + scale > _WORD_DIGITS:
        return _by_value(_PRECISE.remainder, left, right, type_)
    common = pa.decimal128(digits + scale, scale)
    a, b = (_as(d, common) for d in arrays([left, right]))
    numerators, divisors = words(a), words(b)
    zero = divisors == 0
    rest = np.fmod(numerators, np.where(zero, 1, divisors))
    return null_unless(~zero, from_words(rest, scale, type_, a, b))


def words(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the unscaled values of a DECIMAL of at most 18 digits, arbitrary at NULL rows."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), np.int64)
    halves = np.frombuffer(buffer, np.int64, count=2 * len(array), offset=16 * array.offset)
    return np.ascontiguousarray(halves[::2])


def from_words(values: npt.NDArray[np.int64], scale: int, type_: pa.DataType, *like: Datum) -> pa.Array:
    """Convert unscaled 64-bit `values` with `scale` decimals to `type_`, NULL where one of `like` is or it does not
    fit.
    """
    unscaled = from_numbers(values, pa.int64(), *like).cast(pa.decimal128(38, 0))
    return rescale(unscaled.view(pa.decimal128(38, scale)), type_)


def to_double(array: pa.Array) -> pa.Array:
    """Return the double nearest to each decimal; Arrow's own cast is sometimes off by one bit."""
    if array.type.precision <= _EXACT_DIGITS:
        return from_numbers(words(array) / 10.0**array.type.scale, pa.float64(), array)
    return array.cast(pa.string()).cast(pa.float64())


def from_double(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Convert by the shortest decimal text of each double, as Java's BigDecimal.valueOf: 0.285 becomes 0.29."""
    counted, known = units(numbers(array), type_.scale)
    if known.all():
        return from_words(counted.astype(np.int64), type_.scale, type_, array)
    return over_distinct(lambda v: exact(decimal.Decimal(repr(v)), type_), [array], type_)


def units(
    values: npt.NDArray[np.float64], places: int, even: bool = False
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return (the number of units of 10^-places in each value, halves rounded away from zero or to even; where that is
    exact).

    A tie of the shortest text is recognised by division: (k + 0.5) / 10^places, rounded once, is the double nearest to
    the decimal tie. Beyond 2^52 units a double has no decimals left to round and is not counted.
    """
    power = 10.0 ** abs(places)
    with np.errstate(all="ignore"):
        size = np.abs(values)
        scaled = size * power if places >= 0 else size / power
        known = scaled < 2.0**52
        floor = np.floor(np.where(known, scaled, 0.0))
        tie = (floor + 0.5) / power if places >= 0 else (floor + 0.5) * power
        up = (size > tie) | ((size == tie) & (np.fmod(floor, 2) == 1)) if even else size >= tie
        return np.copysign(np.where(known, floor + up, 0.0), values), known
