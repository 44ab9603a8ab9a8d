"""The sum of values: of integers and intervals one lane, of decimals four 32-bit limbs, of doubles a pair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s, Int64s
from penstock.expressions.aggregates.accumulators.double_pairs import HUGE, UNIT, add_pair, cut_units, times, within
from penstock.loops import loop

#: Weight of +inf in the lane that counts NaN.
UP = 1 << 32

_MASK32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
#: The factor by which sums beyond the largest double are scaled down, and the size of a unit on that scale.
_DOWN = 2.0**-64
_UNIT_DOWN = UNIT * _DOWN


@dataclass(frozen=True)
class SumOfValues(Accumulator):
    """Σx. Of doubles the integer lanes count NaN and, `UP` times over, +inf; -inf; and units of huge values."""

    rank: ClassVar[int] = 0

    def integers(self, type_: pa.DataType) -> int:
        if pa.types.is_integer(type_) or pa.types.is_duration(type_):
            return 1
        if pa.types.is_decimal(type_):
            return 4
        return 3 if pa.types.is_floating(type_) else 0

    def floats(self, type_: pa.DataType) -> int:
        return 2 if pa.types.is_floating(type_) else 0

    def is_plain(self, type_: pa.DataType) -> bool:
        return not pa.types.is_decimal(type_)

    def lanes(self, column: pa.Array, counts: Int64s) -> tuple[list[Int64s], list[Float64s]]:
        kind = column.type
        if pa.types.is_floating(kind):
            return _double_lanes(column, counts)
        if pa.types.is_decimal(kind):
            return [limb * counts for limb in _limbs(column)], []
        if pa.types.is_duration(kind):
            column = column.view(pa.int64())
        if not pa.types.is_integer(column.type):
            return [], []
        filled = column.fill_null(0) if column.null_count else column
        whole = filled if filled.type == pa.int64() else filled.cast(pa.int64())
        return [whole.to_numpy(zero_copy_only=False) * counts], []


TOTAL = SumOfValues()


def _double_lanes(column: pa.Array, counts: Int64s) -> tuple[list[Int64s], list[Float64s]]:
    filled = column.fill_null(0.0) if column.null_count else column
    values = np.asarray(filled.to_numpy(zero_copy_only=False), np.float64)
    left = values
    if within(values, HUGE):
        marks = [np.zeros(len(values), np.int64)] * 3
    else:
        marks, left = _special_values(values, counts)
    if bool(np.all(counts == 1)):
        return marks, [left, np.zeros(len(values))]
    return marks, [*times(left, counts.astype(np.float64))]


def _special_values(values: Float64s, counts: Int64s) -> tuple[list[Int64s], Float64s]:
    """Return the lanes of NaN and +inf, of -inf and of units; and what is left of the finite values."""
    nan, up, down = (np.where(test, counts, 0) for test in (np.isnan(values), values == np.inf, values == -np.inf))
    units, left = cut_units(np.where(np.isfinite(values), values, 0.0))
    return [nan + up * UP, down, units * counts], left


def total_of_doubles(marks: Int64s, down: Int64s, units: Int64s, high: Float64s, low: Float64s) -> Float64s:
    """Return sums of doubles: infinite beyond the largest double; NaN or infinite if a term is."""
    values: Float64s = high + low
    if units.any():
        values = np.where(units == 0, values, _with_units(units, high, low))
    if not (marks.any() or down.any()):
        return values
    nan, up = marks & (UP - 1), marks >> 32
    values = np.where(up > 0, np.inf, np.where(down > 0, -np.inf, values))
    return np.where((nan > 0) | ((up > 0) & (down > 0)), np.nan, values)


@loop
def _with_units(units, high, low):  # type: ignore[no-untyped-def]
    """Return units * UNIT + high + low, added on a scale on which nothing overflows."""
    result = np.empty_like(high)
    for i in range(high.shape[0]):
        # Two doubles hold 64 bits; the first is the nearest double, as `add_pair` requires.
        upper = float(units[i])
        lower = float(units[i] - np.int64(upper))
        a, b = add_pair(upper * _UNIT_DOWN, lower * _UNIT_DOWN, high[i] * _DOWN, low[i] * _DOWN)
        result[i] = (a + b) / _DOWN
    return result


def _limbs(column: pa.Array) -> list[Int64s]:
    """Return a decimal128 column as four 32-bit limbs, lowest first; the highest carries the sign."""
    column = column.fill_null(0) if column.null_count else column
    if column.type.bit_width != 128:
        column = column.cast(pa.decimal128(column.type.precision, column.type.scale))
    raw = np.frombuffer(column.buffers()[1], np.uint64)[2 * column.offset : 2 * (column.offset + len(column))]
    low, high = raw[0::2], raw[1::2]
    return [
        (low & _MASK32).astype(np.int64),
        (low >> _S32).astype(np.int64),
        (high & _MASK32).astype(np.int64),
        high.view(np.int64) >> 32 if high.flags.c_contiguous else np.ascontiguousarray(high).view(np.int64) >> 32,
    ]
