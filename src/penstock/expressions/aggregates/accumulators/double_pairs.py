"""Pairs of doubles (hi, lo), of which sums of products are made, and doubles that are cut into parts without error.

Values of `HUGE` and more are cut in two: whole multiples of `UNIT`, which an integer lane adds up, and what is left
over. So a sum beyond the largest double is right again when terms of it go.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from penstock.compilation import loop
from penstock.expressions.aggregates.accumulators.contract import Float64s, Int64s

#: Values with this magnitude or more are counted in units of `UNIT`. 2**31 smaller values do not overflow a double, and
#: 2**31 of the largest values do not overflow the integer lane of units.
HUGE = 2.0**989
UNIT_EXPONENT = 990
UNIT = 2.0**UNIT_EXPONENT
#: The units of the largest double, cut off: one more are no double.
MOST_UNITS = 2.0**34 - 1.0
#: Values with this magnitude or more have squares that are kept on another scale.
WIDE = 2.0**480


@loop
def within(values: Float64s, limit: float) -> bool:
    """Return whether all values are smaller than `limit` in size; NaN is not."""
    inside = True
    for i in range(values.shape[0]):
        inside &= abs(values[i]) < limit
    return inside


def cut_units(values: Float64s) -> tuple[Int64s, Float64s]:
    """Return the units of finite values, and their remainders."""
    units = np.where(np.abs(values) < HUGE, 0.0, np.clip(np.rint(values / UNIT), -MOST_UNITS, MOST_UNITS))
    return units.astype(np.int64), values - units * UNIT


@loop
def times(values: Float64s, weights: Float64s) -> tuple[Float64s, Float64s]:
    """Return values * weights as (hi, lo), without rounding."""
    high = np.empty_like(values)
    low = np.empty_like(values)
    for i in range(values.shape[0]):
        high[i], low[i] = product(values[i], weights[i])
    return high, low


@nb.njit(inline="always")
def product(a: float, b: float) -> tuple[float, float]:
    """Return a * b as (hi, lo), without rounding (Dekker)."""
    p = a * b
    if b == 1.0 or b == -1.0 or not np.isfinite(p) or abs(a) > 1e299 or abs(b) > 1e299:
        return p, 0.0
    c = 134217729.0 * a
    ah = c - (c - a)
    al = a - ah
    c = 134217729.0 * b
    bh = c - (c - b)
    bl = b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


@nb.njit(inline="always")
def add_pair(high: float, low: float, more_high: float, more_low: float) -> tuple[float, float]:
    """Return (high, low) + (more_high, more_low) as a normalised pair (Knuth's two-sum on both parts)."""
    s = high + more_high
    v = s - high
    e = (high - (s - v)) + (more_high - v)
    t = low + more_low
    v = t - low
    f = (low - (t - v)) + (more_low - v)
    e += t
    h = s + e
    e = e - (h - s)
    e += f
    r = h + e
    return r, e - (r - h)
