"""Sums of pairs of numbers (x, y): Σx, Σy and Σxy, and Σx² and Σy² beside them.

Of integers all are exact, in 32-bit limbs. Of doubles a product is cut without error into two doubles, its nearest and
the rest, and each of these is summed as a pair: Σxy is as exact as Σx is. Ordinary, large and huge products have pairs
of their own, each on its scale, so that a product of values near the largest double leaves nothing behind beside the
others. Pairs (x, y) of which one is not finite are counted in a lane.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s, Int64s
from penstock.expressions.aggregates.accumulators.double_pairs import (
    HUGE,
    UNIT_EXPONENT,
    cut_units,
    product,
    times,
    within,
)

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
    """Σx, Σy and Σxy. Integer lanes of doubles: pairs that are not finite, units of x, units of y."""

    rank: ClassVar[int] = 3

    def integers(self, type_: pa.DataType) -> int:
        return 3 if _of_doubles(type_) else 2 * _SINGLE + _DOUBLE

    def floats(self, type_: pa.DataType) -> int:
        return 4 + PRODUCT if _of_doubles(type_) else 0

    def lanes(self, column: pa.Array, counts: Int64s) -> tuple[list[Int64s], list[Float64s]]:
        if not _of_doubles(column.type):
            one, other = _integers(column)
            return [limb * counts for limb in (*_limbs(one), *_limbs(other), *_product_limbs(one, other))], []
        x, y, bad = _doubles(column)
        weights = counts.astype(np.float64)
        units = [np.zeros(len(counts), np.int64)] * 2
        products = _products(x, y, weights)
        if not (within(x, HUGE) and within(y, HUGE)):
            (x_units, x), (y_units, y) = cut_units(x), cut_units(y)
            units = [x_units * counts, y_units * counts]
        return [np.where(bad, counts, 0), *units], [*times(x, weights), *times(y, weights), *products]


@dataclass(frozen=True)
class PairSquares(Accumulator):
    """Σx² and Σy²."""

    rank: ClassVar[int] = 4

    def integers(self, type_: pa.DataType) -> int:
        return 0 if _of_doubles(type_) else 2 * _DOUBLE

    def floats(self, type_: pa.DataType) -> int:
        return 2 * PRODUCT if _of_doubles(type_) else 0

    def lanes(self, column: pa.Array, counts: Int64s) -> tuple[list[Int64s], list[Float64s]]:
        if not _of_doubles(column.type):
            return [limb * counts for v in _integers(column) for limb in _product_limbs(v, v)], []
        x, y, _ = _doubles(column)
        weights = counts.astype(np.float64)
        return [], [*_products(x, x, weights), *_products(y, y, weights)]


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


@nb.njit(cache=True)
def _products(x, y, weights):  # type: ignore[no-untyped-def]
    """Return x * y * weights as `PRODUCT` float lanes."""
    size = x.shape[0]
    made = np.zeros((PRODUCT, size))
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
        made[at, i], made[at + 1, i] = product(near, weights[i])
        made[at + 2, i], made[at + 3, i] = product(rest, weights[i])
    return made


def whole_units(*doubles: float) -> int:
    """Return the sum of doubles as a multiple of 2**-TINIEST, exactly."""
    total = 0
    for value in doubles:
        above, below = value.as_integer_ratio()
        total += above << (TINIEST + 1 - below.bit_length())
    return total


def whole_sum(units: int, high: float, low: float) -> int:
    """Return a sum of doubles as a multiple of 2**-TINIEST, exactly."""
    return (units << (UNIT_EXPONENT + TINIEST)) + whole_units(high, low)


def whole_products(lanes: list[float]) -> int:
    """Return a sum of products as a multiple of 2**-TINIEST, exactly."""
    ordinary, large, huge = (whole_units(*lanes[k : k + 4]) for k in (0, 4, 8))
    return ordinary + (large << LARGE_SHIFT) + (huge << HUGE_SHIFT)
