"""Sums of pairs of numbers (x, y): Σx, Σy and Σxy, and Σx² and Σy² beside them.

Of integers all are exact, in 32-bit limbs. A product of doubles is cut without error into two doubles, its nearest and
the rest. Of these and of the values, the bits of a fixed range are summed in 32-bit limbs too, so that what expires
leaves nothing behind (`limbs.py`). Values and products that are too large for the limbs, and the bits below them, are
summed as pairs of doubles. Ordinary, large and huge products have pairs of their own, each on its scale. Pairs (x, y)
of which one is not finite are counted in a lane.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.compilation import loop
from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s, Int64s
from penstock.expressions.aggregates.accumulators.double_pairs import (
    HUGE,
    UNIT_EXPONENT,
    cut_units,
    product,
    times,
    within,
)
from penstock.expressions.aggregates.accumulators.limbs import LIMBS, PRODUCT_LIMBS, cut_limbs, limbs_of, lowest_bit

#: Products of 2**LARGE and more are multiplied by 2**-LARGE_SHIFT, those of 2**HUGE_PRODUCT and more by
#: 2**-HUGE_SHIFT. A product of one value near the largest double is large, one of two is huge.
LARGE, LARGE_SHIFT = 600, 1000
HUGE_PRODUCT, HUGE_SHIFT = 1400, 1700
#: The product of two values smaller than this is not large.
_SMALL = 2.0**300
#: Limbs of a 64-bit integer, and of a product of two.
_SINGLE, _DOUBLE = 2, 4
#: Float lanes of a sum of products: pairs of the nearest doubles and of the rests, on each of the three scales.
PRODUCT = 12
#: Every double is a whole multiple of 2**-TINIEST.
TINIEST = 1074
_MASK32 = np.int64(0xFFFFFFFF)


@dataclass(frozen=True)
class PairTotals(Accumulator):
    """Σx, Σy and Σxy. Integer lanes of doubles: pairs that are not finite, units of x, units of y, limbs of x, of y and
    of xy."""

    rank: ClassVar[int] = 3

    def integers(self, type_: pa.DataType) -> int:
        return 3 + 2 * LIMBS + PRODUCT_LIMBS if _of_doubles(type_) else 2 * _SINGLE + _DOUBLE

    def floats(self, type_: pa.DataType) -> int:
        return 4 + PRODUCT if _of_doubles(type_) else 0

    def lanes(self, column: pa.Array, counts: Int64s) -> tuple[list[Int64s], list[Float64s]]:
        if not _of_doubles(column.type):
            one, other = _integers(column)
            return [limb * counts for limb in (*_limbs(one), *_limbs(other), *_product_limbs(one, other))], []
        x, y, bad = _doubles(column)
        weights = counts.astype(np.float64)
        units = [np.zeros(len(counts), np.int64)] * 2
        limbs, products = _products(x, y, counts)
        if not (within(x, HUGE) and within(y, HUGE)):
            (x_units, x), (y_units, y) = cut_units(x), cut_units(y)
            units = [x_units * counts, y_units * counts]
        (x_limbs, x), (y_limbs, y) = limbs_of(x, counts), limbs_of(y, counts)
        return (
            [np.where(bad, counts, 0), *units, *x_limbs, *y_limbs, *limbs],
            [*times(x, weights), *times(y, weights), *products],
        )


@dataclass(frozen=True)
class PairSquares(Accumulator):
    """Σx² and Σy²."""

    rank: ClassVar[int] = 4

    def integers(self, type_: pa.DataType) -> int:
        return 2 * (PRODUCT_LIMBS if _of_doubles(type_) else _DOUBLE)

    def floats(self, type_: pa.DataType) -> int:
        return 2 * PRODUCT if _of_doubles(type_) else 0

    def lanes(self, column: pa.Array, counts: Int64s) -> tuple[list[Int64s], list[Float64s]]:
        if not _of_doubles(column.type):
            return [limb * counts for v in _integers(column) for limb in _product_limbs(v, v)], []
        x, y, _ = _doubles(column)
        (x_limbs, x_products), (y_limbs, y_products) = _products(x, x, counts), _products(y, y, counts)
        return [*x_limbs, *y_limbs], [*x_products, *y_products]


PAIR_TOTALS = PairTotals()
PAIR_SQUARES = PairSquares()


def _of_doubles(type_: pa.DataType) -> bool:
    return bool(pa.types.is_floating(type_.field(0).type))


def _integers(column: pa.Array) -> list[Int64s]:
    return [part.fill_null(0).to_numpy(zero_copy_only=False) for part in column.flatten()]


def _doubles(column: pa.Array) -> tuple[Float64s, Float64s, np.ndarray]:
    """Return x and y, both 0 where one is not finite; and where that is."""
    x, y = (np.asarray(part.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64) for part in column.flatten())
    bad = ~(np.isfinite(x) & np.isfinite(y))
    return (np.where(bad, 0.0, x), np.where(bad, 0.0, y), bad) if bad.any() else (x, y, bad)


# -- integers ----------------------------------------------------------------------------------------------------------


def _limbs(values: Int64s) -> list[Int64s]:
    """Return the limbs of integers, lowest first; the highest carries the sign."""
    return [values & _MASK32, values >> 32]


def _product_limbs(x: Int64s, y: Int64s) -> list[Int64s]:
    """Return the limbs of x * y, all but the highest from 0 to 2**32 - 1."""
    (x_low, x_high), (y_low, y_high) = _limbs(x), _limbs(y)
    lowest = x_low.view(np.uint64) * y_low.view(np.uint64)
    second = (lowest >> np.uint64(32)).view(np.int64)
    crossed = [x_high * y_low, y_high * x_low]
    highest = x_high * y_high
    second = second + sum(c & _MASK32 for c in crossed)
    third = (second >> 32) + sum(c >> 32 for c in crossed) + (highest & _MASK32)
    fourth = (third >> 32) + (highest >> 32)
    return [(lowest & np.uint64(0xFFFFFFFF)).view(np.int64), second & _MASK32, third & _MASK32, fourth]


def joined(limbs: Iterable[Int64s]) -> np.ndarray:
    """Return the integers of limbs as Python integers, an array of objects."""
    whole, shift = 0, 0
    for limb in limbs:
        whole = whole + limb.astype(object) * 2**shift
        shift += 32
    return np.asarray(whole, object)


# -- doubles -----------------------------------------------------------------------------------------------------------


@loop
def _products(x: Float64s, y: Float64s, counts: Int64s) -> tuple[Int64s, Float64s]:
    """Return x * y * counts as `PRODUCT_LIMBS` integer lanes and `PRODUCT` float lanes."""
    size = x.shape[0]
    limbs = np.zeros((PRODUCT_LIMBS, size), np.int64)
    made = np.zeros((PRODUCT, size))
    lowest = lowest_bit(PRODUCT_LIMBS)
    limit = 2.0 ** (lowest + 32 * PRODUCT_LIMBS)
    for i in range(size):
        at = 0
        if abs(x[i]) < _SMALL and abs(y[i]) < _SMALL:
            near, rest = product(x[i], y[i])
        else:
            a, a_exponent = math.frexp(x[i])
            b, b_exponent = math.frexp(y[i])
            near, rest = product(a, b)
            exponent = a_exponent + b_exponent
            if exponent >= HUGE_PRODUCT:
                at = 8
                exponent -= HUGE_SHIFT
            elif exponent >= LARGE:
                at = 4
                exponent -= LARGE_SHIFT
            near, rest = math.ldexp(near, exponent), math.ldexp(rest, exponent)
        if at == 0 and abs(near) < limit:
            near = cut_limbs(near, counts[i], lowest, limbs, i)
            rest = cut_limbs(rest, counts[i], lowest, limbs, i)
        weight = float(counts[i])
        made[at, i], made[at + 1, i] = product(near, weight)
        made[at + 2, i], made[at + 3, i] = product(rest, weight)
    return limbs, made


def whole_units(*doubles: float) -> int:
    """Return the sum of doubles as a multiple of 2**-TINIEST, exactly."""
    total = 0
    for value in doubles:
        above, below = value.as_integer_ratio()
        total += above << (TINIEST + 1 - below.bit_length())
    return total


def whole_sum(units: int, limbs: Sequence[int], high: float, low: float) -> int:
    """Return a sum of doubles as a multiple of 2**-TINIEST, exactly."""
    return (units << (UNIT_EXPONENT + TINIEST)) + _whole_limbs(limbs) + whole_units(high, low)


def whole_products(limbs: Sequence[int], lanes: list[float]) -> int:
    """Return a sum of products as a multiple of 2**-TINIEST, exactly."""
    ordinary, large, huge = (whole_units(*lanes[k : k + 4]) for k in (0, 4, 8))
    return _whole_limbs(limbs) + ordinary + (large << LARGE_SHIFT) + (huge << HUGE_SHIFT)


def _whole_limbs(limbs: Sequence[int]) -> int:
    whole = sum(limb << 32 * k for k, limb in enumerate(limbs))
    lowest: int = lowest_bit(len(limbs))
    return whole << (TINIEST + lowest)
