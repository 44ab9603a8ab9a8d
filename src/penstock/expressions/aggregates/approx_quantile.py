"""APPROX_QUANTILE: a quantile within a share of its value, by DDSketch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.aggregates.accumulators.contract import Float64s, Int64s
from penstock.expressions.aggregates.arguments import fraction, only_number, side, within
from penstock.expressions.aggregates.bounds import Accuracy, Bounds, percent
from penstock.expressions.aggregates.cells import CellEncoder
from penstock.expressions.aggregates.contract import OrderedAnswer, Question
from penstock.expressions.aggregates.sketch import CellFunction, constant, renamed
from penstock.expressions.coercion import BIGINT, DOUBLE
from penstock.expressions.nodes import AggregateCall, Expression, Literal
from penstock.expressions.sketches import dd_sketch, draws

_EXAMPLE = "APPROX_QUANTILE(x, 0.99, 0.01)"
_OTHERS = (
    "it takes numbers: cast a text to DOUBLE; over a window with SLIDE, APPROX_PERCENTILE(x, 0.5) takes any values that"
    " have an order"
)
DEFAULT_ACCURACY = 0.01
_A, _SIDE = 2, 3


@dataclass(frozen=True)
class BucketCells(CellEncoder):
    """The bucket of a number, with a relative accuracy."""

    accuracy: float

    def encode(self, column: pa.Array) -> tuple[Int64s, pa.Array]:
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        values = np.asarray(column.drop_null().to_numpy(zero_copy_only=False), np.float64)
        return rows, pa.array(dd_sketch.buckets(values, self.accuracy))

    def expected(self, values: float) -> float:
        return dd_sketch.expected_buckets(values, self.accuracy)

    def different(self, rows: float, values: float) -> float:
        return max(1.0, draws.of_numbers(rows, values))


class ApproxQuantile(CellFunction):
    """The middle of the bucket of the value with the rank 1 + ⌊q·(n - 1)⌋."""

    least: ClassVar[int] = 2
    most: ClassVar[int] = 3

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        value = only_number(self.name, arguments[0], _OTHERS)
        near = tuple(within(self.name, a, 1e-6, 0.5, _EXAMPLE) for a in arguments[2:3])
        return (value, fraction(self.name, arguments[1]), *near), DOUBLE

    def cells(self, call: AggregateCall) -> CellEncoder | None:
        return BucketCells(_accuracy(call))

    def question(self) -> Question:
        return Question.RANK

    def parameter(self, call: AggregateCall) -> float:
        return constant(call, 1, 0.5)

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        codes = answer.value()
        values = dd_sketch.values_of(codes.fill_null(0).to_numpy(zero_copy_only=False), _accuracy(call))
        return pa.array(self._moved(call, values), DOUBLE, mask=pc.is_null(codes).to_numpy(zero_copy_only=False))

    def _moved(self, call: AggregateCall, values: Float64s) -> Float64s:
        return values

    def accuracy(self, call: AggregateCall) -> Accuracy | None:
        share = _accuracy(call)
        return Accuracy("DDSketch", f"at most {percent(share)} of the value", certain=True, width=share)

    def bounds(self, call: AggregateCall, confidence: float) -> Bounds:
        near = Literal(DOUBLE, _accuracy(call))
        full = AggregateCall(call.type, call.function, (*call.arguments[:_A], near), False, call.filter)
        lower, upper = (renamed(full, BOUND.name, (Literal(BIGINT, sign),)) for sign in (-1, 1))
        return Bounds(lower, upper)


class QuantileBound(ApproxQuantile):
    """What an exact value is at least or at most, from its estimate: est/(1 + a) and est/(1 - a), for a negative one
    the other way round, each moved outwards to the next double."""

    least: ClassVar[int] = 4
    most: ClassVar[int] = 4

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        bound, type_ = super().bind(arguments[:_SIDE])
        return (*bound, side(self.name, arguments[_SIDE], f"{self.name}(x, 0.5, 0.01, 1)")), type_

    def _moved(self, call: AggregateCall, values: Float64s) -> Float64s:
        near, sign = _accuracy(call), constant(call, _SIDE, 0)
        outwards = np.where((values > 0) == (sign > 0), 1.0 - near, 1.0 + near)
        with np.errstate(over="ignore"):
            moved = np.nextafter(values / outwards, np.inf * sign)
        return np.where(np.isfinite(values) & (values != 0.0), moved, values)


def _accuracy(call: AggregateCall) -> float:
    return constant(call, _A, DEFAULT_ACCURACY)


APPROX_QUANTILE = ApproxQuantile(
    "APPROX_QUANTILE",
    "number, q[, a]",
    "about the value with the rank 1 + ⌊q·(n - 1)⌋ of n: within a times that value, for certain; q a constant from 0 to"
    " 1, a from 0.000001 to 0.5 (0.01)",
)
BOUND = QuantileBound(
    "APPROX_QUANTILE_BOUND",
    "number, q, a, side",
    "the LOWER_BOUND (side -1) or UPPER_BOUND (side 1) of APPROX_QUANTILE",
)
