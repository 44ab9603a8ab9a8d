"""Variances and standard deviations, of a sample (n - 1) or a population (n)."""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s
from penstock.expressions.aggregates.accumulators.double_pairs import UNIT, WIDE, add_pair, product
from penstock.expressions.aggregates.accumulators.squares import SCALE, SQUARES
from penstock.expressions.aggregates.accumulators.total import TOTAL
from penstock.expressions.aggregates.arguments import number
from penstock.expressions.aggregates.contract import AccumulatedFunction, ArgumentSums
from penstock.expressions.coercion import DOUBLE, implicit
from penstock.expressions.nodes import AggregateCall, Expression

#: On the scale of wide squares: of a unit, and the part of the squares below which a spread is nothing but rounding.
_UNIT_SCALED = UNIT * SCALE
_ROUNDING = 2.0**-96


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
    (_, _, units), (high, low) = sums.parts[TOTAL]
    _, squares = sums.parts[SQUARES]
    wide = (squares[2] != 0) | (units != 0) | (np.abs(high) >= WIDE)
    values: Float64s = _deviations(sums.count, high, low, squares[0], squares[1]) / divisor
    if not wide.any():
        return values
    scaled = _wide_deviations(sums.count, units, high, low, *(squares[k] for k in range(4))) / divisor
    with np.errstate(over="ignore"):
        return np.where(wide, scaled / SCALE / SCALE, values)


@nb.njit(cache=True)
def _deviations(count, high, low, square_high, square_low):  # type: ignore[no-untyped-def]
    """Return Σ(x - mean)² = Σx² - (Σx)²/n, in pairs of doubles so that a small spread around a large mean is exact."""
    result = np.empty_like(high)
    for i in range(high.shape[0]):
        n = float(max(count[i], 1))
        mean_high = (high[i] + low[i]) / n
        p, error = product(mean_high, n)
        rest_high, rest_low = add_pair(high[i], low[i], -p, -error)
        # With s = n·m + r: Σx² - s²/n = Σx² - (n·m² + 2·m·r + r²/n).
        r = rest_high + rest_low
        q, q_error = product(p, mean_high)
        a, b = add_pair(square_high[i], square_low[i], -q, -(q_error + error * mean_high))
        a, b = add_pair(a, b, -2.0 * mean_high * r, -r * r / n)
        result[i] = max(a + b, 0.0)
    return result


@nb.njit(cache=True)
def _wide_deviations(count, units, high, low, square_high, square_low, wide_high, wide_low):  # type: ignore[no-untyped-def]
    """Return the same for sums with terms whose squares are scaled; the result is scaled like these."""
    size = count.shape[0]
    sums, rests, squares, square_rests = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    for i in range(size):
        upper = float(units[i])
        lower = float(units[i] - np.int64(upper))
        sums[i], rests[i] = add_pair(upper * _UNIT_SCALED, lower * _UNIT_SCALED, high[i] * SCALE, low[i] * SCALE)
        squares[i], square_rests[i] = add_pair(
            wide_high[i], wide_low[i], square_high[i] * SCALE * SCALE, square_low[i] * SCALE * SCALE
        )
    result = _deviations(count, sums, rests, squares, square_rests)
    for i in range(size):
        if result[i] <= _ROUNDING * squares[i]:
            result[i] = 0.0
    return result


STDDEV_SAMP = Variance(
    "STDDEV_SAMP", "number", "standard deviation of a sample (n - 1)", ("STDDEV", "STD"), sample=True, root=True
)
STDDEV_POP = Variance("STDDEV_POP", "number", "standard deviation of a population (n)", root=True)
VAR_SAMP = Variance("VAR_SAMP", "number", "variance of a sample (n - 1)", ("VARIANCE",), sample=True)
VAR_POP = Variance("VAR_POP", "number", "variance of a population (n)")
