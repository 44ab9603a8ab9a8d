"""APPROX_TOP_K: the most frequent values, counted in the lists of the panes of a window `[golab 6]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates.accumulators.contract import Int64s
from penstock.expressions.aggregates.arguments import atomic, whole
from penstock.expressions.aggregates.bounds import Accuracy, Bounds
from penstock.expressions.aggregates.cells import CellEncoder
from penstock.expressions.aggregates.contract import OrderedAnswer, Question
from penstock.expressions.aggregates.frequent import MostFrequent
from penstock.expressions.aggregates.sketch import CellFunction, constant
from penstock.expressions.coercion import BIGINT
from penstock.expressions.nodes import AggregateCall, Expression

_EXAMPLE = "APPROX_TOP_K(x, 5, 50)"
_MOST = 1_000_000
_CAPACITY = 2


@dataclass(frozen=True)
class PaneLists(CellEncoder):
    """The values themselves. Of a complete pane the `capacity` most frequent remain, equal counts by value."""

    cut: ClassVar[bool] = True
    capacity: int

    def type(self, values: pa.DataType) -> pa.DataType:
        return values

    def encode(self, column: pa.Array) -> tuple[Int64s, pa.Array]:
        return np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)), column.drop_null()

    def expected(self, values: float) -> float:
        return min(values, float(self.capacity))


class ApproxTopK(CellFunction):
    """The k values with the greatest sums of their counts in the lists that hold them."""

    least: ClassVar[int] = 2
    most: ClassVar[int] = 3

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        value = atomic(self.name, arguments[0])
        numbers = tuple(whole(self.name, a, 1, _MOST, _EXAMPLE) for a in arguments[1:])
        if len(numbers) == _CAPACITY and numbers[1].value < numbers[0].value:
            message = f"{self.name} needs a capacity of k at least, not {numbers[1].value} for k = {numbers[0].value}"
            raise PenstockError("P0203", message, hint=_EXAMPLE)
        return (value, *numbers), pa.list_(pa.struct([("value", value.type), ("count", BIGINT)]))

    def cells(self, call: AggregateCall) -> CellEncoder | None:
        return PaneLists(int(constant(call, _CAPACITY, min(_MOST, 10 * constant(call, 1, 1)))))

    def question(self) -> Question:
        return Question.TOP

    def parameter(self, call: AggregateCall) -> float:
        return constant(call, 1, 1)

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        return MostFrequent.finalize(self, call, answer)  # type: ignore[arg-type]  # it reads only what both have

    def accuracy(self, call: AggregateCall) -> Accuracy | None:
        capacity = int(constant(call, _CAPACITY, 10 * constant(call, 1, 1)))
        error = f"counts too low by at most the count of item {capacity + 1:,} of each pane"
        return Accuracy(f"lists of {capacity:,} values of each pane", error, certain=True)

    def bounds(self, call: AggregateCall, confidence: float) -> Bounds:
        hint = "GROUP BY .. FREQUENT k has a row for each item, with its bounds"
        raise PenstockError("P0355", f"a bound of {self.name}, which is an array", hint=hint)


APPROX_TOP_K = ApproxTopK(
    "APPROX_TOP_K",
    "value, k[, capacity]",
    "the k most frequent values as an array of (value, count), as TOP_K, counted in the lists of the `capacity` (10 k)"
    " most frequent values of each pane: a count is never too high; over a window with SLIDE",
)
