"""The sum of squares of doubles: a pair, and another of scaled squares of large values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numba as nb
import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s, Int64s
from penstock.expressions.aggregates.accumulators.double_pairs import WIDE, product, within

#: Values of `WIDE` and more are scaled by this before they are squared.
SCALE = 2.0**-600


@dataclass(frozen=True)
class Squares(Accumulator):
    """Σx² of the finite values, in pairs: those smaller than `WIDE`, and the others times SCALE²."""

    rank: ClassVar[int] = 2

    def integers(self, type_: pa.DataType) -> int:
        return 0

    def floats(self, type_: pa.DataType) -> int:
        return 4

    def lanes(self, column: pa.Array, counts: Int64s) -> tuple[list[Int64s], list[Float64s]]:
        values = np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
        weights = counts.astype(np.float64)
        if within(values, WIDE):
            return [], [*_squares(values, weights), np.zeros(len(values)), np.zeros(len(values))]
        values = np.where(np.isfinite(values), values, 0.0)
        wide = np.abs(values) >= WIDE
        return [], [
            *_squares(np.where(wide, 0.0, values), weights),
            *_squares(np.where(wide, values * SCALE, 0.0), weights),
        ]


SQUARES = Squares()


@nb.njit(cache=True)
def _squares(values, weights):  # type: ignore[no-untyped-def]
    """Return values² * weights as (hi, lo)."""
    high = np.empty_like(values)
    low = np.empty_like(values)
    for i in range(values.shape[0]):
        square, rest = product(values[i], values[i])
        high[i], low[i] = square * weights[i], rest * weights[i]
    return high, low
