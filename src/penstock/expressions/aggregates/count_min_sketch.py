"""COUNT_MIN_SKETCH: how often values occur, as an image that Spark reads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates.accumulators.contract import Int64s
from penstock.expressions.aggregates.arguments import between, whole
from penstock.expressions.aggregates.bounds import Accuracy, Bounds
from penstock.expressions.aggregates.cells import CellEncoder
from penstock.expressions.aggregates.contract import OrderedAnswer, Question
from penstock.expressions.aggregates.sketch import CellFunction, constant
from penstock.expressions.coercion import BINARY, STRING, is_integer, misfit
from penstock.expressions.nodes import AggregateCall, Expression
from penstock.expressions.sketches import count_min

_EXAMPLE = "COUNT_MIN_SKETCH(x, 0.001, 0.99)"
#: The counters of a sketch take at most 2**27 bytes.
_MOST_CELLS = 1 << 24


@dataclass(frozen=True)
class CounterCells(CellEncoder):
    """One counter of every row of the sketch."""

    eps: float
    confidence: float
    seed: int

    @property
    def shape(self) -> count_min.Shape:
        return count_min.shape_of(self.eps, self.confidence, self.seed)

    def encode(self, column: pa.Array) -> tuple[Int64s, pa.Array]:
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        shape = self.shape
        found = count_min.columns_of(column.drop_null(), shape)
        cells = found + shape.width * np.arange(shape.depth)[:, None]
        return np.repeat(rows, shape.depth), pa.array(cells.T.reshape(-1))

    def expected(self, values: float) -> float:
        shape = self.shape
        return -math.expm1(-values / shape.width) * shape.cells


class CountMinSketch(CellFunction):
    """The counters in the binary format of Spark's CountMinSketch."""

    least: ClassVar[int] = 3
    most: ClassVar[int] = 4

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        value = arguments[0]
        if not (is_integer(value.type) or value.type in (STRING, BINARY) or pa.types.is_null(value.type)):
            raise misfit(self.name, [value.type], hint="it takes integers, STRING and BINARY: cast the value")
        eps, confidence = (between(self.name, a, _EXAMPLE) for a in arguments[1:3])
        if count_min.shape_of(eps.value, confidence.value, 0).cells > _MOST_CELLS:
            message = f"a sketch of {self.name} with eps {eps.value:g} has more than {_MOST_CELLS:,} counters"
            raise PenstockError("P0203", message, hint="write a greater eps, such as 0.001")
        seed = tuple(whole(self.name, a, -(2**31), 2**31 - 1, f"{_EXAMPLE[:-1]}, 7)") for a in arguments[3:])
        return (value, eps, confidence, *seed), BINARY

    def cells(self, call: AggregateCall) -> CellEncoder | None:
        return _cells(call)

    def question(self) -> Question:
        return Question.COUNTS

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        members, shape = answer.members(), _cells(call).shape
        cells = members.values.to_numpy(zero_copy_only=False)
        images: list[bytes | None] = []
        for row, empty in enumerate(members.none.tolist()):
            own = slice(members.offsets[row], members.offsets[row + 1])
            counts = members.counts[own]
            total = int(counts.sum()) // shape.depth
            images.append(None if empty else count_min.image(shape, cells[own], counts, total))
        return pa.array(images, BINARY)

    def accuracy(self, call: AggregateCall) -> Accuracy | None:
        cells = _cells(call)
        algorithm = f"count-min of {cells.shape.depth} rows of {cells.shape.width:,} counters"
        error = f"counts never too small, too large by at most {cells.eps:g} n with confidence {cells.confidence:g}"
        return Accuracy(algorithm, error, certain=False)

    def bounds(self, call: AggregateCall, confidence: float) -> Bounds:
        hint = "a bound is of a count: write LOWER_BOUND(COUNT_MIN_ESTIMATE(sketch, value))"
        raise PenstockError("P0355", f"{self.name} is a sketch and has no bounds", hint=hint)


def _cells(call: AggregateCall) -> CounterCells:
    return CounterCells(constant(call, 1, 0.001), constant(call, 2, 0.99), int(constant(call, 3, 0)))


COUNT_MIN_SKETCH = CountMinSketch(
    "COUNT_MIN_SKETCH",
    "value, eps, confidence[, seed]",
    "how often integers, texts or bytes occur, as BINARY for COUNT_MIN_ESTIMATE and for Spark's CountMinSketch; eps and"
    " confidence constants between 0 and 1",
)
