"""CORR, COVAR_POP and COVAR_SAMP: how two numbers vary together.

A row counts if neither of its values is NULL. With n·Σxy - Σx·Σy = s(x, y): the covariance is s(x, y) / n², of a sample
s(x, y) / (n·(n - 1)), and the correlation s(x, y) / √(s(x, x)·s(y, y)).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.arrays import Bools
from penstock.compilation import loop
from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s, Int64s
from penstock.expressions.aggregates.accumulators.double_pairs import WIDE, add_pair, product
from penstock.expressions.aggregates.accumulators.limbs import LIMBS, PRODUCT_LIMBS, add_limbs
from penstock.expressions.aggregates.accumulators.products import (
    PAIR_SQUARES,
    PAIR_TOTALS,
    PRODUCT,
    TINIEST,
    joined,
    whole_products,
    whole_sum,
)
from penstock.expressions.aggregates.arguments import number
from penstock.expressions.aggregates.contract import AccumulatedFunction, ArgumentSums
from penstock.expressions.coercion import BIGINT, DOUBLE, cast_to, implicit, is_integer
from penstock.expressions.nodes import AggregateCall, Expression

#: A difference that is smaller than this part of what it is the difference of is computed again, with integers.
_CANCELLED = 2.0**-40


@dataclass(frozen=True)
class Covariance(AccumulatedFunction):
    """least: how many rows a value needs; the divisor is n·(n - least + 1)."""

    least: int = 1
    arguments: ClassVar[int] = 2

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        pair = [number(self.name, argument) for argument in arguments]
        if all(is_integer(argument.type) for argument in pair):
            return tuple(cast_to(argument, BIGINT) for argument in pair), DOUBLE
        return tuple(implicit(argument, DOUBLE, self.name) for argument in pair), DOUBLE

    def accumulators(self, call: AggregateCall) -> tuple[Accumulator, ...]:
        return (PAIR_TOTALS,)

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        count = sums.count
        none = count < self.least
        parts = np.maximum(count, self.least)
        divisors = (parts - self.least + 1).astype(object) * parts
        if _is_exact(sums):
            exact = _integer_spread(sums, 0)
            values = np.array([_ratio(s, d) for s, d in zip(exact, divisors, strict=True)], np.float64)
            return pa.array(values, DOUBLE, mask=none)
        near, sure = _near_spread(sums, 0)
        values = near / (parts - self.least + 1)
        for i in np.flatnonzero(~sure).tolist():
            values[i] = _ratio(_double_spread(sums, 0, i), int(divisors[i]) << 2 * TINIEST)
        return pa.array(_with_nan(sums, values), DOUBLE, mask=none)


@dataclass(frozen=True)
class Correlation(Covariance):
    """NULL where a value is the same in all rows, as of one row."""

    least: int = 2

    def accumulators(self, call: AggregateCall) -> tuple[Accumulator, ...]:
        return (PAIR_TOTALS, PAIR_SQUARES)

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        none = sums.count < self.least
        if _is_exact(sums):
            spreads = [_integer_spread(sums, which) for which in range(3)]
            values = np.array([_correlation(*row) for row in zip(*spreads, strict=True)], np.float64)
            return pa.array(values, DOUBLE, mask=none | np.isnan(values))
        (both, sure), (one, one_sure), (other, other_sure) = (_near_spread(sums, which) for which in range(3))
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.clip(both / np.sqrt(one) / np.sqrt(other), -1.0, 1.0)
        for i in np.flatnonzero(~(sure & one_sure & other_sure)).tolist():
            values[i] = _correlation(*(_double_spread(sums, which, i) for which in range(3)))
        return pa.array(_with_nan(sums, values), DOUBLE, mask=none | (np.isnan(values) & _finite(sums)))


COVAR_SAMP = Covariance("COVAR_SAMP", "number, number", "covariance of a sample (n - 1)", least=2)
COVAR_POP = Covariance("COVAR_POP", "number, number", "covariance of a population (n)")
CORR = Correlation(
    "CORR", "number, number", "correlation (Pearson), from -1 to 1; NULL where one of the two is the same in all rows"
)


def _ratio(above: int, below: int) -> float:
    """Return a quotient of integers, rounded once; infinite beyond the largest double."""
    try:
        return above / below
    except OverflowError:
        return math.inf if above > 0 else -math.inf


def _correlation(both: int, one: int, other: int) -> float:
    """Return the correlation from s(x, y), s(x, x) and s(y, y); NaN where one does not vary."""
    if one <= 0 or other <= 0:
        return math.nan
    size = math.sqrt(min(both * both / (one * other), 1.0))
    return size if both >= 0 else -size


# -- integers ----------------------------------------------------------------------------------------------------------


def _is_exact(sums: ArgumentSums) -> bool:
    return bool(pa.types.is_integer(sums.type.field(0).type))


def _integer_spread(sums: ArgumentSums, which: int) -> Any:
    """Return s(x, y), s(x, x) or s(y, y) of integers, as an array of Python integers."""
    lanes, _ = sums.parts[PAIR_TOTALS]
    x, y = joined(lanes[0:2]), joined(lanes[2:4])
    if which == 0:
        return sums.count.astype(object) * joined(lanes[4:8]) - x * y
    squares, _ = sums.parts[PAIR_SQUARES]
    total = x if which == 1 else y
    return sums.count.astype(object) * joined(squares[4 * which - 4 : 4 * which]) - total * total


# -- doubles -----------------------------------------------------------------------------------------------------------


def _finite(sums: ArgumentSums) -> Any:
    return sums.parts[PAIR_TOTALS][0][0] == 0


def _with_nan(sums: ArgumentSums, values: Float64s) -> Float64s:
    return np.where(_finite(sums), values, np.nan)


@dataclass(frozen=True)
class _Total:
    """Σx or Σy: its units, its limbs, and a pair."""

    units: Int64s
    limbs: list[Int64s]
    pair: list[Float64s]

    def near(self) -> tuple[Float64s, Float64s]:
        return add_limbs(self.limbs, *self.pair)

    def whole(self, row: int) -> int:
        return whole_sum(int(self.units[row]), _integers(self.limbs, row), *_floats(self.pair, row))


def _totals(sums: ArgumentSums) -> list[_Total]:
    integers, floats = sums.parts[PAIR_TOTALS]
    return [
        _Total(
            integers[1 + side],
            [integers[k] for k in range(3 + LIMBS * side, 3 + LIMBS * (side + 1))],
            [floats[2 * side], floats[2 * side + 1]],
        )
        for side in (0, 1)
    ]


def _lanes_of(sums: ArgumentSums, which: int) -> tuple[list[_Total], list[Int64s], list[Float64s]]:
    """Return, for s(x, y), s(x, x) or s(y, y): the sums of both factors, and the limbs and float lanes of the sum of
    products."""
    totals = _totals(sums)
    if which == 0:
        integers, floats = sums.parts[PAIR_TOTALS]
        limbs_at, floats_at = 3 + 2 * LIMBS, 4
    else:
        integers, floats = sums.parts[PAIR_SQUARES]
        limbs_at, floats_at = PRODUCT_LIMBS * (which - 1), PRODUCT * (which - 1)
        totals = [totals[which - 1]] * 2
    limbs = [integers[k] for k in range(limbs_at, limbs_at + PRODUCT_LIMBS)]
    return totals, limbs, [floats[k] for k in range(floats_at, floats_at + PRODUCT)]


def _near_spread(sums: ArgumentSums, which: int) -> tuple[Float64s, Any]:
    """Return s / n in doubles, and where that is right to the last bits."""
    (one, other), limbs, products = _lanes_of(sums, which)
    x, y = one.near(), other.near()
    values, sure = _spread(sums.count, *x, *y, *add_limbs(limbs, *products[:2]), *products[2:4])
    plain = (one.units == 0) & (other.units == 0)
    for lane in products[4::2]:
        plain = plain & (lane == 0)
    small = (np.abs(x[0]) < WIDE) & (np.abs(y[0]) < WIDE)
    return values, sure & plain & small


def _double_spread(sums: ArgumentSums, which: int, row: int) -> int:
    """Return s of one row as a multiple of 2**(-2·TINIEST), exactly."""
    (one, other), limbs, products = _lanes_of(sums, which)
    both = whole_products(_integers(limbs, row), _floats(products, row))
    return (int(sums.count[row]) * both << TINIEST) - one.whole(row) * other.whole(row)


def _integers(lanes: list[Int64s], row: int) -> list[int]:
    return [int(lane[row]) for lane in lanes]


def _floats(lanes: list[Float64s], row: int) -> list[float]:
    return [float(lane[row]) for lane in lanes]


@loop
def _spread(
    count: Int64s,
    x_high: Float64s,
    x_low: Float64s,
    y_high: Float64s,
    y_low: Float64s,
    near: Float64s,
    near_low: Float64s,
    rest: Float64s,
    rest_low: Float64s,
) -> tuple[Float64s, Bools]:
    """Return Σxy - Σx·Σy/n in pairs of doubles, and whether so much is left that rounding does not show."""
    size = count.shape[0]
    values = np.empty(size)
    sure = np.empty(size, np.bool_)
    for i in range(size):
        n = float(max(count[i], 1))
        high, low = add_pair(near[i], near_low[i], rest[i], rest_low[i])
        # With Σx = n·m + r and Σy = n·k + t: Σx·Σy/n = n·m·k + m·t + k·r + r·t/n.
        m, k = (x_high[i] + x_low[i]) / n, (y_high[i] + y_low[i]) / n
        p, p_error = product(m, n)
        r_high, r_low = add_pair(x_high[i], x_low[i], -p, -p_error)
        q, q_error = product(k, n)
        t_high, t_low = add_pair(y_high[i], y_low[i], -q, -q_error)
        r, t = r_high + r_low, t_high + t_low
        c, c_error = product(p, k)
        a, b = add_pair(high, low, -c, -(c_error + p_error * k))
        a, b = add_pair(a, b, -m * t - k * r, -r * t / n)
        values[i] = a + b
        largest = abs(high) + abs(c)
        sure[i] = largest == 0.0 or abs(values[i]) > _CANCELLED * largest
    return values, sure
