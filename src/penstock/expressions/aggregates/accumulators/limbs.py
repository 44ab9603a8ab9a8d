"""Sums of doubles in fixed point: the bits of a fixed range, in 32-bit limbs that integer lanes add up without error.

The lowest limb of values begins at 2**-128 and the highest ends at 2**64, which holds every bit of a value from 1e-22
to 1.8e19; the limbs of products begin and end at the squares of these. What lies below the limbs is left over as a
double, and a value that is too large for them is left over whole.
"""

from __future__ import annotations

import math

import numba as nb
import numpy as np

from penstock.compilation import loop
from penstock.expressions.aggregates.accumulators.contract import Float64s, Int64s
from penstock.expressions.aggregates.accumulators.double_pairs import add_pair

#: Limbs of values, and of products.
LIMBS, PRODUCT_LIMBS = 6, 12
_MASK32 = np.int64(0xFFFFFFFF)


@nb.njit(inline="always")
def lowest_bit(size: int) -> int:
    """Return the exponent of the lowest bit of `size` limbs: a third of them stands before the point."""
    return -32 * (size - size // 3)


@nb.njit
def cut_limbs(value: float, count: int, lowest: int, limbs: Int64s, row: int) -> float:
    """Add a value that is small enough, `count` times, to limbs[:, row]; return what lies below them."""
    if value == 0.0:
        return 0.0
    k = (math.frexp(value)[1] - 1 - lowest) >> 5
    while k >= 0 and value != 0.0:
        unit = math.ldexp(1.0, lowest + 32 * k)
        whole = np.trunc(value / unit)
        limbs[k, row] += np.int64(whole) * count
        value -= whole * unit
        k -= 1
    return value


@loop
def limbs_of(values: Float64s, counts: Int64s) -> tuple[Int64s, Float64s]:
    """Return values * counts as limbs, by (limb, row), and of each value what is left over."""
    size = values.shape[0]
    limbs = np.zeros((LIMBS, size), np.int64)
    left = values.copy()
    lowest = lowest_bit(LIMBS)
    limit = 2.0 ** (lowest + 32 * LIMBS)
    for i in range(size):
        if abs(values[i]) < limit:
            left[i] = cut_limbs(values[i], counts[i], lowest, limbs, i)
    return limbs, left


@loop
def _add_limbs(limbs: Int64s, highs: Float64s, lows: Float64s) -> tuple[Float64s, Float64s]:
    size = limbs.shape[0]
    lowest = lowest_bit(size)
    carried = np.empty(size, np.int64)
    high, low = np.empty(highs.shape[0]), np.empty(highs.shape[0])
    for i in range(highs.shape[0]):
        carry = np.int64(0)
        for k in range(size):
            carry += limbs[k, i]
            carried[k] = carry & _MASK32
            carry >>= 32
        a, b = float(carry) * math.ldexp(1.0, lowest + 32 * size), 0.0
        # Of a negative sum all limbs but the highest are positive: they cancel without error.
        for k in range(size - 1, -1, -1):
            a, b = add_pair(a, b, float(carried[k]) * math.ldexp(1.0, lowest + 32 * k), 0.0)
        high[i], low[i] = add_pair(a, b, highs[i], lows[i])
    return high, low


def add_limbs(limbs: list[Int64s], high: Float64s, low: Float64s) -> tuple[Float64s, Float64s]:
    """Return sums as pairs of doubles, rounded once from their limbs and the pairs beside them."""
    pair: tuple[Float64s, Float64s] = _add_limbs(np.array(limbs), high, low)
    return pair
