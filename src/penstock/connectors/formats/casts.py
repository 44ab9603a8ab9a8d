"""Typed file columns (parquet, arrow) as declared types: which pairs fit without loss, and the cast.

Contract: `misfit` is decided by the two types alone, so that a schema that does not fit is refused before the start
(P0402). Widening fits; narrowing, text to number and time to date do not. A type that fits may still fail for a row (a
date outside the years of a TIMESTAMP, bytes that are not UTF-8): only that row is rejected.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.connectors.formats import cells

_T = pa.types
#: Decimal digits that hold every value of an integer type of this many bits.
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}


def misfit(stored: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether a column stored as `stored` cannot be read as `declared`."""
    if _T.is_dictionary(stored):
        stored = stored.value_type
    if stored == declared or _T.is_null(stored):
        return False
    if _T.is_integer(declared):
        return not (_T.is_integer(stored) and _holds(stored, declared))
    if _T.is_floating(declared):
        narrows = _T.is_floating(stored) and stored.bit_width > declared.bit_width
        return narrows or not (_T.is_integer(stored) or _T.is_floating(stored))
    if _T.is_decimal(declared):
        return not _decimal_holds(stored, declared)
    if _T.is_timestamp(declared):
        return not (_T.is_timestamp(stored) or _T.is_date(stored))
    if _T.is_date(declared):
        return not _T.is_date(stored)
    is_text = _T.is_string(stored) or _T.is_large_string(stored) or _T.is_string_view(stored)
    is_binary = _T.is_binary(stored) or _T.is_large_binary(stored) or _T.is_binary_view(stored)
    if _T.is_string(declared):
        return not (is_text or is_binary)
    return not (_T.is_binary(declared) and (is_text or is_binary or _T.is_fixed_size_binary(stored)))


def fit(values: pa.Array, declared: pa.DataType) -> cells.Converted:
    """Cast `values` to `declared`; the types fit (`misfit` is false)."""
    if values.type == declared:
        return cells.Converted(values, np.zeros(len(values), dtype=bool))
    if _T.is_dictionary(values.type):
        values = values.dictionary_decode()
    if _T.is_timestamp(declared) and _T.is_timestamp(values.type) and values.type.unit == "ns":
        # Finer than a tick: round down to a tick, also before 1970.
        values = _whole_microseconds(values)
    return cells.attempt_cast(values, declared)


def _whole_microseconds(values: pa.Array) -> pa.Array:
    """Round nanoseconds down to microseconds."""
    ticks = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False) // 1_000
    microseconds = pa.array(ticks, mask=values.is_null().to_numpy(zero_copy_only=False))
    return microseconds.cast(pa.timestamp("us")).cast(pa.timestamp("us", values.type.tz))


def sure(stored: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether a column that fits cannot fail in any row."""
    if _T.is_dictionary(stored):
        stored = stored.value_type
    if stored == declared or _T.is_null(stored) or (_T.is_integer(stored) and _T.is_integer(declared)):
        return True
    if _T.is_timestamp(declared):
        return bool(_T.is_timestamp(stored) and stored.unit in ("us", "ns"))
    if _T.is_floating(declared):
        # An integer of more bits than the mantissa may have no equal.
        exact = 16 if declared.bit_width == 32 else 32
        return bool(_T.is_floating(stored) or (_T.is_integer(stored) and stored.bit_width <= exact))
    if _T.is_decimal(declared):
        return True
    return bool(_T.is_string(declared) and (_T.is_large_string(stored) or _T.is_string_view(stored)))


def ticks_per_unit(stored: pa.DataType) -> tuple[int, int] | None:
    """Return (multiplier, divisor) from the raw integers of `stored` to ticks of the declared column; None when they
    have no order of their own.
    """
    if _T.is_timestamp(stored):
        return {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}[stored.unit]
    if stored == pa.date32():
        return (86_400_000_000, 1)
    return (1, 1) if _T.is_signed_integer(stored) else None


def _holds(stored: pa.DataType, declared: pa.DataType) -> bool:
    if _T.is_unsigned_integer(stored):
        return bool(stored.bit_width < declared.bit_width)
    return bool(stored.bit_width <= declared.bit_width)


def _decimal_holds(stored: pa.DataType, declared: pa.DataType) -> bool:
    integer_digits = declared.precision - declared.scale
    if _T.is_integer(stored):
        return bool(integer_digits >= _DIGITS[stored.bit_width])
    if _T.is_decimal(stored):
        return bool(declared.scale >= stored.scale and integer_digits >= stored.precision - stored.scale)
    return False
