"""The sum of squares of doubles: an expansion, and another of the squares of large values, which are scaled down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.compilation import loop
from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s, Int64s
from penstock.expressions.aggregates.accumulators.double_pairs import product, times, within
from penstock.expressions.aggregates.accumulators.expansions import WIDTH

#: Float lanes of each of the two sums.
SQUARE = WIDTH
#: Values with this magnitude or more have squares that are kept on another scale.
LARGE = 2.0**400
#: The factors of ordinary and of large values before they are squared. So no square overflows, and what is lost below
#: the smallest double is too small for a variance to show.
SCALE, LARGE_SCALE = 2.0**64, 2.0**-600


@dataclass(frozen=True)
class Squares(Accumulator):
    """Σx² of the finite values: of those smaller than `LARGE` times SCALE², and of the others times LARGE_SCALE²."""

    rank: ClassVar[int] = 2

    def integers(self, type_: pa.DataType) -> int:
        return 0

    def floats(self, type_: pa.DataType) -> int:
        return 2 * SQUARE

    def widths(self, type_: pa.DataType) -> tuple[int, ...]:
        return SQUARE, SQUARE

    def lanes(self, column: pa.Array, counts: Int64s) -> tuple[list[Int64s], list[Float64s]]:
        values = np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
        if within(values, LARGE):
            return [], [*_lanes(values, counts, SCALE), *[np.zeros(len(values))] * SQUARE]
        values = np.where(np.isfinite(values), values, 0.0)
        large = np.abs(values) >= LARGE
        return [], [
            *_lanes(np.where(large, 0.0, values), counts, SCALE),
            *_lanes(np.where(large, values, 0.0), counts, LARGE_SCALE),
        ]


SQUARES = Squares()


def _lanes(values: Float64s, counts: Int64s, scale: float) -> list[Float64s]:
    """Return (values * scale)² * counts as `SQUARE` lanes, without rounding."""
    high, low = _squares(values, scale, counts)
    if bool(np.all(np.abs(counts) <= 1)):
        return [high, low, *[np.zeros(len(values))] * (SQUARE - 2)]
    weights = counts.astype(np.float64)
    high, low = _squares(values, scale, np.ones(len(counts), np.int64))
    return [*times(high, weights), *times(low, weights)]


@loop
def _squares(values: Float64s, scale: float, counts: Int64s) -> tuple[Float64s, Float64s]:
    """Return (values * scale)² * counts as (hi, lo), without rounding where a count is -1, 0 or 1."""
    high = np.empty_like(values)
    low = np.empty_like(values)
    for i in range(values.shape[0]):
        scaled = values[i] * scale
        square, rest = product(scaled, scaled)
        high[i], low[i] = square * counts[i], rest * counts[i]
    return high, low
