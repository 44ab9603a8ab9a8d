"""CAST between the types of the language, as in Spark with ANSI mode off: what does not convert is NULL.

Integers narrow by wrapping, doubles truncate and saturate, decimals round half up; numbers are seconds as timestamps.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.coercion import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    FLOAT,
    INT,
    NULL,
    STRING,
    is_decimal,
    is_float,
    is_integer,
    is_numeric,
)
from penstock.expressions.values import decimals, gregorian, intervals, text_casts
from penstock.expressions.values.datum import from_numbers, null_unless, numbers, over_distinct, zero
from penstock.types import TIMESTAMP, WALL_CLOCK

Converter: TypeAlias = Callable[[pa.Array, pa.DataType], pa.Array]

_SECOND = 1_000_000
#: Digits of the largest value of an integer type.
_DIGITS = {pa.int8(): 3, pa.int16(): 5, INT: 10, BIGINT: 19}
_DAY = 86_400 * _SECOND


def convert(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast `array` to `type_`. The pair of types must be one for which `converter` returns a function."""
    if array.type == type_:
        return array
    found = converter(array.type, type_)
    assert found is not None, f"{array.type} -> {type_}"
    return found(array, type_)


def converter(source: pa.DataType, target: pa.DataType) -> Converter | None:
    """Return the cast from `source` to `target`, or None when the language has none."""
    if source == target:
        return _same
    if source == NULL:
        return _from_null
    for fits_source, fits_target, convert_ in _TABLE:
        if fits_source(source) and fits_target(target):
            return convert_
    return None


def out_of_range(array: pa.Array, type_: pa.DataType) -> pa.Array | None:
    """Return a mask of the numbers that an integer `type_` cannot hold once truncated, or None when every number of the
    array's type fits.
    """
    if not is_integer(type_) or not is_numeric(array.type):
        return None
    bits = type_.bit_width
    if is_float(array.type):
        values = np.trunc(numbers(array).astype(np.float64))
        return pa.array(~((values >= -(2.0 ** (bits - 1))) & (values < 2.0 ** (bits - 1))))
    if is_integer(array.type) and array.type.bit_width <= bits:
        return None
    wide = decimals.rescale(_truncated(array), pa.decimal128(38, 0)) if is_decimal(array.type) else array
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    least, most = (pa.scalar(Decimal(v) if is_decimal(wide.type) else v, wide.type) for v in (low, high))
    return pc.or_(pc.less(wide, least), pc.greater(wide, most))


def _same(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array


def _from_null(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return pa.nulls(len(array), type_)


def _arrow(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array.cast(type_, safe=False)


def _float_to_integer(array: pa.Array, type_: pa.DataType) -> pa.Array:
    # Java: to INT (or BIGINT) truncating and saturating, NaN is 0; narrower types wrap from INT.
    values = numbers(array).astype(np.float64)
    width = np.int64 if type_ == BIGINT else np.int32
    limits = np.iinfo(width)
    values = np.where(np.isnan(values), 0.0, values)
    inside = np.clip(values, float(limits.min), float(limits.max))
    with np.errstate(invalid="ignore"):
        whole = inside.astype(width)
    # 2**63 - 1 is not a double: clipping to 2**63 would wrap to the smallest value.
    whole[values >= float(limits.max)] = limits.max
    return from_numbers(whole.astype(type_.to_pandas_dtype()), type_, array)


def _truncated(array: pa.Array) -> pa.Array:
    wide = array.cast(pa.decimal256(76, array.type.scale))
    return pc.round(wide, 0, "towards_zero").cast(pa.decimal256(76, 0), safe=False)


def _decimal_to_integer(array: pa.Array, type_: pa.DataType) -> pa.Array:
    # The low 64 bits, as Java's BigDecimal.longValue: a decimal beyond BIGINT wraps.
    wide = _truncated(array)
    low = np.frombuffer(wide.buffers()[1], np.int64, offset=32 * wide.offset)[: 4 * len(array) : 4]
    return from_numbers(low.astype(type_.to_pandas_dtype()), type_, array)


def _integer_to_decimal(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if type_.precision - type_.scale >= _DIGITS[array.type]:
        return array.cast(type_)
    return decimals.rescale(array.cast(BIGINT).cast(pa.decimal128(19, 0)), type_)


def _float_to_decimal(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == FLOAT:
        # The text of a FLOAT is shorter than that of the DOUBLE of the same value.
        array = array.cast(STRING).cast(DOUBLE)
    return decimals.from_double(array, type_)


def _decimal_to_float(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return decimals.to_double(array).cast(type_, safe=False)


def _to_boolean(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return pc.not_equal(array, zero(array.type))


def _decimal_from_boolean(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return _integer_to_decimal(array.cast(INT), type_)


def _integer_to_timestamp(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return gregorian.scaled(numbers(array).astype(np.int64), _SECOND, 0, type_, array)


def _float_to_timestamp(array: pa.Array, type_: pa.DataType) -> pa.Array:
    values = numbers(array).astype(np.float64)
    ticks = np.where(np.abs(values) < 1e13, values, np.inf) * _SECOND
    fits = (ticks >= -(2.0**63)) & (ticks < 2.0**63)
    return null_unless(fits, from_numbers(np.where(fits, ticks, 0.0).astype(np.int64), type_, array))


def _decimal_to_timestamp(array: pa.Array, type_: pa.DataType) -> pa.Array:
    # Exact: a double holds microseconds up to the year 2255 only.
    wide = array.cast(pa.decimal256(76, max(array.type.scale, 6)))
    micros = pc.round(wide, 6, "towards_zero").cast(pa.decimal256(76, 6), safe=False).view(pa.decimal256(76, 0))
    fits = pc.invert(out_of_range(micros, BIGINT))
    return null_unless(fits, _decimal_to_integer(micros, BIGINT).view(type_))


def _timestamp_to_integer(array: pa.Array, type_: pa.DataType) -> pa.Array:
    seconds = np.floor_divide(numbers(array), _SECOND)
    return from_numbers(seconds.astype(type_.to_pandas_dtype()), type_, array)


def _timestamp_to_float(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return from_numbers((numbers(array) / _SECOND).astype(type_.to_pandas_dtype()), type_, array)


def _timestamp_to_decimal(array: pa.Array, type_: pa.DataType) -> pa.Array:
    ticks = from_numbers(numbers(array), BIGINT, array).cast(pa.decimal128(19, 0))
    return decimals.rescale(ticks.cast(pa.decimal128(25, 6)).view(pa.decimal128(25, 12)), type_)


def _timestamp_to_date(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return from_numbers(np.floor_divide(numbers(array), _DAY).astype(np.int32), DATE, array)


def _date_to_timestamp(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return gregorian.scaled(numbers(array).astype(np.int64), _DAY, 0, type_, array)


def _same_bits(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """An instant and what clocks show at it in UTC are one number."""
    return array.view(type_)


def _binary_to_string(array: pa.Array, type_: pa.DataType) -> pa.Array:
    try:
        return array.cast(STRING)
    except pa.ArrowInvalid:
        return over_distinct(lambda v: v.decode("utf-8", "replace"), [array], STRING)


def _is(*types: pa.DataType) -> Callable[[pa.DataType], bool]:
    return lambda type_: type_ in types


#: (source, target, converter); the first matching entry is used.
_TABLE: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool], Converter], ...] = (
    (is_integer, is_integer, _arrow),
    (is_integer, is_float, _arrow),
    (is_integer, is_decimal, _integer_to_decimal),
    (is_float, is_float, _arrow),
    (is_float, is_integer, _float_to_integer),
    (is_float, is_decimal, _float_to_decimal),
    (is_decimal, is_decimal, decimals.rescale),
    (is_decimal, is_integer, _decimal_to_integer),
    (is_decimal, is_float, _decimal_to_float),
    (is_numeric, _is(BOOLEAN), _to_boolean),
    (_is(BOOLEAN), is_decimal, _decimal_from_boolean),
    (_is(BOOLEAN), is_numeric, _arrow),
    (is_integer, _is(TIMESTAMP), _integer_to_timestamp),
    (is_float, _is(TIMESTAMP), _float_to_timestamp),
    (is_decimal, _is(TIMESTAMP), _decimal_to_timestamp),
    (_is(TIMESTAMP, DURATION), is_integer, _timestamp_to_integer),
    (_is(TIMESTAMP, DURATION), is_float, _timestamp_to_float),
    (_is(TIMESTAMP, DURATION), is_decimal, _timestamp_to_decimal),
    (_is(TIMESTAMP, WALL_CLOCK), _is(DATE), _timestamp_to_date),
    (_is(DATE), _is(TIMESTAMP, WALL_CLOCK), _date_to_timestamp),
    (_is(TIMESTAMP, WALL_CLOCK), _is(TIMESTAMP, WALL_CLOCK), _same_bits),
    (is_float, _is(STRING), text_casts.float_to_string),
    (_is(TIMESTAMP, WALL_CLOCK), _is(STRING), text_casts.timestamp_to_string),
    (_is(DURATION), _is(STRING), lambda array, type_: intervals.to_text(array)),
    (_is(DATE), _is(STRING), text_casts.date_to_string),
    (lambda t: is_numeric(t) or t == BOOLEAN, _is(STRING), _arrow),
    (_is(BINARY), _is(STRING), _binary_to_string),
    (_is(STRING), _is(BINARY), _arrow),
    (_is(STRING), is_integer, text_casts.string_to_integer),
    (_is(STRING), _is(DOUBLE, FLOAT), text_casts.string_to_float),
    (_is(STRING), is_decimal, text_casts.string_to_decimal),
    (_is(STRING), _is(BOOLEAN), text_casts.string_to_boolean),
    (_is(STRING), _is(DATE), text_casts.string_to_date),
    (_is(STRING), _is(TIMESTAMP), text_casts.string_to_timestamp),
    (_is(STRING), _is(WALL_CLOCK), text_casts.string_to_wall_clock),
)
