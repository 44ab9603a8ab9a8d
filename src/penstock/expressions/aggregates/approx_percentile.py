"""APPROX_PERCENTILE: a value that occurs, whose rank is near the requested one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Int64s
from penstock.expressions.aggregates.arguments import atomic, fraction, side, whole
from penstock.expressions.aggregates.bounds import Accuracy, Bounds
from penstock.expressions.aggregates.cells import CellEncoder
from penstock.expressions.aggregates.contract import AggregateInput, Question
from penstock.expressions.aggregates.extremes import MAX, MIN
from penstock.expressions.aggregates.sketch import CellFunction, constant, renamed
from penstock.expressions.coercion import BIGINT
from penstock.expressions.nodes import AggregateCall, Call, Expression, Literal

_EXAMPLE = "APPROX_PERCENTILE(x, 0.99, 10000)"
DEFAULT_ACCURACY = 10_000
_MOST_ACCURACY = 1_000_000
_ACCURACY, _SIDE = 2, 3


@dataclass(frozen=True)
class PaneBlocks(CellEncoder):
    """The values themselves. Of a complete pane with n of them, blocks of ⌊2n/accuracy⌋ become one value each."""

    cut: ClassVar[bool] = True
    accuracy: int

    def type(self, values: pa.DataType) -> pa.DataType:
        return values

    def encode(self, column: pa.Array) -> tuple[Int64s, pa.Array]:
        return np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)), column.drop_null()

    def expected(self, values: float) -> float:
        return min(values, self.accuracy / 2 + 1)


class ApproxPercentile(CellFunction):
    """The least kept value whose summed weight reaches max(1, ⌈q·n⌉)."""

    least: ClassVar[int] = 2
    most: ClassVar[int] = 3

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        value = atomic(self.name, arguments[0])
        accuracy = tuple(whole(self.name, a, 1, _MOST_ACCURACY, _EXAMPLE) for a in arguments[2:3])
        return (value, fraction(self.name, arguments[1]), *accuracy), value.type

    def cells(self, call: AggregateCall) -> CellEncoder | None:
        return PaneBlocks(_accuracy(call))

    def question(self) -> Question:
        return Question.RANK

    def parameters(self, call: AggregateCall) -> tuple[float, float, float]:
        return constant(call, 1, 0.5), 1.0, constant(call, _SIDE, 0) * _accuracy(call)

    def accuracy(self, call: AggregateCall) -> Accuracy | None:
        accuracy = _accuracy(call)
        return Accuracy("blocks of the values of each pane", f"rank off by at most n/{accuracy:,}", certain=True)

    def bounds(self, call: AggregateCall, confidence: float) -> Bounds:
        accuracy = Literal(BIGINT, _accuracy(call))
        full = AggregateCall(call.type, call.function, (*call.arguments[:_ACCURACY], accuracy), False, call.filter)
        read = AggregateInput(call.arguments[:1], only=call.filter)
        lower, upper = (
            Call(call.type, "COALESCE", (renamed(full, BOUND.name, (Literal(BIGINT, sign),)), extreme.build(read)))
            for sign, extreme in ((-1, MIN), (1, MAX))
        )
        return Bounds(lower, upper)


class PercentileBound(ApproxPercentile):
    """The kept value n/accuracy ranks lower or higher; NULL where no kept value has that rank."""

    least: ClassVar[int] = 4
    most: ClassVar[int] = 4

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        bound, type_ = super().bind(arguments[:_SIDE])
        return (*bound, side(self.name, arguments[_SIDE], f"{self.name}(x, 0.5, 100, 1)")), type_


def _accuracy(call: AggregateCall) -> int:
    return int(constant(call, _ACCURACY, DEFAULT_ACCURACY))


APPROX_PERCENTILE = ApproxPercentile(
    "APPROX_PERCENTILE",
    "value, q[, accuracy]",
    "a value whose rank among n is at most n/accuracy from ⌈q·n⌉, for certain; over a window with SLIDE; q a constant"
    " from 0 to 1, accuracy from 1 to 1000000 (10000)",
    ("PERCENTILE_APPROX",),
)
BOUND = PercentileBound(
    "APPROX_PERCENTILE_BOUND",
    "value, q, accuracy, side",
    "the kept value n/accuracy ranks below (side -1) or above (side 1) that of APPROX_PERCENTILE; NULL beyond the first"
    " and last rank, where LOWER_BOUND and UPPER_BOUND are the least and the greatest value",
)
