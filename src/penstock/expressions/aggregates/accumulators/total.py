"""The sum of values: of integers and intervals one lane, of decimals four 32-bit limbs, of doubles an expansion."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.compilation import loop
from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s, Int64s
from penstock.expressions.aggregates.accumulators.double_pairs import HUGE, UNIT, cut_units, times, within
from penstock.expressions.aggregates.accumulators.expansions import WIDTH, nearest

#: Weight of +inf in the lane that counts NaN.
UP = 1 << 32

_MASK32 = np.uint64(0xFFFFFFFF)
_S32 = np.uint64(32)
#: Fewer units than these are a double, to which the rest of a sum is added without overflow.
_MOST_UNITS = 1 << 32
#: The factor by which sums of more units are scaled down, and the size of a unit on that scale.
_DOWN = 2.0**-64
_UNIT_DOWN = UNIT * _DOWN
_LEAST = 5e-324


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
        return WIDTH if pa.types.is_floating(type_) else 0

    def widths(self, type_: pa.DataType) -> tuple[int, ...]:
        return (WIDTH,) if pa.types.is_floating(type_) else ()

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
    none = np.zeros(len(values))
    if bool(np.all(counts == 1)):
        return marks, [left, *[none] * (WIDTH - 1)]
    return marks, [*times(left, counts.astype(np.float64)), *[none] * (WIDTH - 2)]


def _special_values(values: Float64s, counts: Int64s) -> tuple[list[Int64s], Float64s]:
    """Return the lanes of NaN and +inf, of -inf and of units; and what is left of the finite values."""
    nan, up, down = (np.where(test, counts, 0) for test in (np.isnan(values), values == np.inf, values == -np.inf))
    units, left = cut_units(np.where(np.isfinite(values), values, 0.0))
    return [nan + up * UP, down, units * counts], left


def total_of_doubles(marks: Int64s, down: Int64s, units: Int64s, *lanes: Float64s) -> Float64s:
    """Return sums of doubles, rounded once: infinite beyond the largest double; NaN or infinite if a term is."""
    high, low, *rest = lanes
    values: Float64s = high + low
    wide = np.zeros(len(values), np.bool_)
    for lane in (units, *rest):
        if lane.any():
            wide |= lane != 0
    chosen = np.flatnonzero(wide)
    if len(chosen):
        values[chosen] = _rounded(units[chosen], np.array([lane[chosen] for lane in lanes]).T.copy())
    if not (marks.any() or down.any()):
        return values
    nan, up = marks & (UP - 1), marks >> 32
    values = np.where(up > 0, np.inf, np.where(down > 0, -np.inf, values))
    return np.where((nan > 0) | ((up > 0) & (down > 0)), np.nan, values)


@loop
def _rounded(units: Int64s, lanes: Float64s) -> Float64s:
    values = np.empty(units.shape[0])
    for i in range(units.shape[0]):
        values[i] = rounded_sum(units[i], lanes, i, 0)
    return values


@nb.njit
def rounded_sum(units: int, sums: Float64s, slot: int, first: int) -> float:
    """Return units * UNIT and the expansion that begins at sums[slot, first], rounded once."""
    terms = np.empty(WIDTH + 2)
    scale, unit = (1.0, UNIT) if -_MOST_UNITS < units < _MOST_UNITS else (_DOWN, _UNIT_DOWN)
    for lane in range(WIDTH):
        value = sums[slot, first + lane]
        terms[lane] = value * scale
        if terms[lane] == 0.0 and value != 0.0:
            # Beside so many units its sign alone matters.
            terms[lane] = math.copysign(_LEAST, value)
    # Two doubles hold 64 bits.
    upper = float(units)
    terms[WIDTH] = upper * unit
    terms[WIDTH + 1] = float(units - np.int64(upper)) * unit
    return float(nearest(terms, WIDTH + 2) / scale)


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
