"""Variances and standard deviations, of a sample (n - 1) or a population (n)."""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.arrays import Bools, Int64s
from penstock.compilation import loop
from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s
from penstock.expressions.aggregates.accumulators.double_pairs import UNIT, add_pair, product
from penstock.expressions.aggregates.accumulators.expansions import WIDTH, distil, two_sum
from penstock.expressions.aggregates.accumulators.squares import LARGE_SCALE, SCALE, SQUARE, SQUARES
from penstock.expressions.aggregates.accumulators.total import TOTAL
from penstock.expressions.aggregates.arguments import number
from penstock.expressions.aggregates.contract import AccumulatedFunction, ArgumentSums
from penstock.expressions.coercion import DOUBLE, implicit
from penstock.expressions.nodes import AggregateCall, Expression

#: A spread that is smaller than this part of the squares is computed again, without rounding.
_CANCELLED = 2.0**-40
#: A unit on the scale of large values, and what brings the squares of others to that scale: its root, so that it is a
#: double.
_UNIT_SCALED = UNIT * LARGE_SCALE
_TO_LARGE = LARGE_SCALE / SCALE


@dataclass(frozen=True)
class Variance(AccumulatedFunction):
    """sample: whether the divisor is n - 1; root: whether the result is the square root."""

    sample: bool = False
    root: bool = False

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        return (implicit(number(self.name, arguments[0]), DOUBLE, self.name),), DOUBLE

    def accumulators(self, call: AggregateCall) -> tuple[Accumulator, ...]:
        return (TOTAL, SQUARES)

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        count = sums.count
        (nan, down, _), _ = sums.parts[TOTAL]
        none = count <= (1 if self.sample else 0)
        divisor = np.where(none, 1, count - 1 if self.sample else count).astype(np.float64)
        values = np.where((nan > 0) | (down > 0), np.nan, _variances(sums, divisor))
        return pa.array(np.sqrt(values) if self.root else values, call.type, mask=none)


def _variances(sums: ArgumentSums, divisor: Float64s) -> Float64s:
    """Return Σ(x - mean)² / divisor, infinite beyond the largest double."""
    (_, _, units), total = sums.parts[TOTAL]
    _, squares = sums.parts[SQUARES]
    values, large = _deviations(sums.count, units, np.ascontiguousarray(total), np.ascontiguousarray(squares))
    values /= divisor
    scaled: Float64s = values / SCALE / SCALE
    if not large.any():
        return scaled
    with np.errstate(over="ignore"):
        return np.where(large, values / LARGE_SCALE / LARGE_SCALE, scaled)


@loop
def _deviations(count: Int64s, units: Int64s, total: Float64s, squares: Float64s) -> tuple[Float64s, Bools]:
    """Return Σ(x - mean)² = Σx² - (Σx)²/n on the scale of the squares, and whether that is the scale of large ones."""
    size = count.shape[0]
    result, large = np.zeros(size), np.zeros(size, np.bool_)
    for i in range(size):
        if count[i] < 2:
            continue
        n = float(count[i])
        large[i] = units[i] != 0
        for k in range(SQUARE, 2 * SQUARE):
            large[i] |= squares[k, i] != 0.0
        if not large[i]:
            high, low = _nearest_pair(total, i)
            result[i] = _near_spread(n, squares, i, high * SCALE, low * SCALE)
        if large[i] or result[i] < 0.0:
            result[i], large[i] = _exact_spread(n, units[i], total, squares, i)
    return result, large


@nb.njit(inline="always")
def _nearest_pair(lanes: Float64s, row: int) -> tuple[float, float]:
    """Return the two doubles whose sum is nearest to that of an expansion."""
    high, low = two_sum(lanes[0, row], lanes[1, row])
    if lanes[2, row] != 0.0 or lanes[3, row] != 0.0:
        terms = np.empty(WIDTH)
        for lane in range(WIDTH):
            terms[lane] = lanes[lane, row]
        count = distil(terms, WIDTH)
        high = terms[count - 1] if count > 0 else 0.0
        low = terms[count - 2] if count > 1 else 0.0
    return high, low


@nb.njit(inline="always")
def _near_spread(n: float, squares: Float64s, row: int, high: float, low: float) -> float:
    """Return Σx² - (Σx)²/n of ordinary values in pairs of doubles, from the pair Σx; -1 if little is left of Σx²."""
    first, second = squares[0, row], squares[1, row]
    square_high = first + second
    v = square_high - first
    square_low = (first - (square_high - v)) + (second - v) + (squares[2, row] + squares[3, row])
    mean = (high + low) / n
    p, error = product(mean, n)
    rest_high, rest_low = add_pair(high, low, -p, -error)
    # With s = n·m + r: Σx² - s²/n = Σx² - (n·m² + 2·m·r + r²/n).
    r = rest_high + rest_low
    q, q_error = product(p, mean)
    a, b = add_pair(square_high, square_low, -q, -(q_error + error * mean))
    a, b = add_pair(a, b, -2.0 * mean * r, -r * r / n)
    sure = abs(square_low) <= _CANCELLED * square_high and a + b > _CANCELLED * square_high
    return a + b if sure else -1.0


@nb.njit
def _exact_spread(n: float, units: int, total: Float64s, squares: Float64s, row: int) -> tuple[float, bool]:
    """Return (n·Σx² - (Σx)²)/n, rounded at the end only, and whether it is on the scale of large squares."""
    terms, roots = np.empty(2 * SQUARE), np.empty(WIDTH + 2)
    for k in range(SQUARE):
        terms[k] = squares[SQUARE + k, row]
    # Of large squares that are gone, doubles may be left that cancel.
    parts = distil(terms, SQUARE)
    large = units != 0 or parts > 0
    for k in range(SQUARE):
        terms[parts + k] = squares[k, row] * _TO_LARGE * _TO_LARGE if large else squares[k, row]
    scale = LARGE_SCALE if large else SCALE
    for k in range(WIDTH):
        roots[k] = total[k, row] * scale
    upper = float(units)
    roots[WIDTH], roots[WIDTH + 1] = upper * _UNIT_SCALED, float(units - np.int64(upper)) * _UNIT_SCALED
    parts, summands = distil(terms, parts + SQUARE), distil(roots, WIDTH + 2)
    products = np.empty(2 * parts + summands * (summands + 1))
    size = 0
    for k in range(parts):
        products[size], products[size + 1] = product(terms[k], n)
        size += 2
    for k in range(summands):
        for j in range(k + 1):
            near, rest = product(roots[k], roots[j])
            weight = -1.0 if j == k else -2.0
            products[size], products[size + 1] = weight * near, weight * rest
            size += 2
    size = distil(products, size)
    return (max(products[size - 1], 0.0) / n if size else 0.0), large


STDDEV_SAMP = Variance(
    "STDDEV_SAMP", "number", "standard deviation of a sample (n - 1)", ("STDDEV", "STD"), sample=True, root=True
)
STDDEV_POP = Variance("STDDEV_POP", "number", "standard deviation of a population (n)", root=True)
VAR_SAMP = Variance("VAR_SAMP", "number", "variance of a sample (n - 1)", ("VARIANCE",), sample=True)
VAR_POP = Variance("VAR_POP", "number", "variance of a population (n)")
