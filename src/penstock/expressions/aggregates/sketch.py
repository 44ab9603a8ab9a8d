"""What aggregates over sketches have in common: optional constants, and no DISTINCT where it would change something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates.contract import (
    AggregateFunction,
    ArgumentState,
    DistinctRule,
    OrderedFunction,
)
from penstock.expressions.coercion import BINARY, DOUBLE, cast_to
from penstock.expressions.nodes import AggregateCall, Call, Expression, Literal


class SketchFunction(AggregateFunction):
    """A function whose constants stand behind the value. least, most: how many arguments it takes."""

    least: ClassVar[int] = 1
    most: ClassVar[int] = 1
    distinct: ClassVar[DistinctRule] = DistinctRule.REFUSED
    cell_constants: ClassVar[bool] = True

    def check_count(self, arguments: Sequence[Expression]) -> None:
        if not self.least <= len(arguments) <= self.most:
            counts = " or ".join(map(str, range(self.least, self.most + 1)))
            message = f"{self.name} takes {counts} argument{'s' if self.most > 1 else ''}, not {len(arguments)}"
            raise PenstockError("P0204", message, hint=f"{self.name}({self.signature})")

    def check_distinct(self, distinct: bool) -> None:
        if distinct and self.distinct is DistinctRule.REFUSED:
            message = f"{self.name} does not take DISTINCT: it depends on how often values occur"
            raise PenstockError("P0304", message, hint="leave DISTINCT out")

    def values(self, call: AggregateCall) -> tuple[Expression, ...]:
        return call.arguments[:1]


class CellFunction(SketchFunction, OrderedFunction):
    """A function of how often something fell into each cell."""

    def state(self, distinct: bool, negative: bool) -> ArgumentState:
        return ArgumentState.CELLS


def constant(call: AggregateCall, position: int, default: float) -> float:
    """Return the constant at a position of the arguments, or the default where the call ends before."""
    if len(call.arguments) <= position:
        return default
    literal = call.arguments[position]
    assert isinstance(literal, Literal)
    return float(literal.value)


def quantile_of_normal(confidence: float) -> float:
    """Return z such that a normal deviate is between -z and z with this probability."""
    return NormalDist().inv_cdf((1.0 + confidence) / 2.0)


def divided(value: Expression, by: float) -> Expression:
    """Return value / by as DOUBLE; infinite where `by` is not positive, of 0 too; NULL stays NULL."""
    if by <= 0.0:
        return Call(DOUBLE, "ADD", (cast_to(value, DOUBLE), Literal(DOUBLE, float("inf"))))
    return Call(DOUBLE, "DIV", (cast_to(value, DOUBLE), Literal(DOUBLE, by)))


def renamed(call: AggregateCall, function: str, more: tuple[Expression, ...]) -> AggregateCall:
    """Return a call of another function with the same input, and so the same state."""
    return replace(call, function=function, arguments=(*call.arguments, *more))


def binary_rows(rows: npt.NDArray[np.uint8], empty: npt.NDArray[np.bool_]) -> pa.Array:
    """Return (row, byte) as a column of BINARY, NULL where a row is empty."""
    kept = rows if not empty.any() else rows[~empty]
    offsets = np.concatenate([[0], np.cumsum(~empty)]).astype(np.int64) * rows.shape[1]
    buffers = [None if not empty.any() else pa.array(~empty).buffers()[1], pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(BINARY, len(rows), [*buffers, pa.py_buffer(np.ascontiguousarray(kept))])
