"""APPROX_COUNT_DISTINCT: the number of different values by HyperLogLog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates.accumulators.contract import Accumulator, Float64s, Int64s
from penstock.expressions.aggregates.arguments import atomic, within
from penstock.expressions.aggregates.bounds import CONFIDENCE, Accuracy, Bounds, percent
from penstock.expressions.aggregates.cells import CellEncoder
from penstock.expressions.aggregates.contract import (
    AccumulatedFunction,
    ArgumentState,
    ArgumentSums,
    DistinctRule,
)
from penstock.expressions.aggregates.sketch import SketchFunction, constant, divided, quantile_of_normal
from penstock.expressions.coercion import BIGINT, is_decimal, is_float, is_integer
from penstock.expressions.nodes import AggregateCall, Expression, Literal
from penstock.expressions.sketches import hyperloglog as hll

_EXAMPLE = "APPROX_COUNT_DISTINCT(x, 0.02)"
#: The relative standard errors of 2**18 and of 2**4 registers, with some room.
LEAST_RSD, MOST_RSD = 0.0021, 0.3
DEFAULT_RSD = 0.01625


@dataclass(frozen=True)
class RegisterCells(CellEncoder):
    """The register and rank of a value, among 2**lg registers."""

    rank_bits: ClassVar[int] = hll.RANK_BITS
    lg: int

    def encode(self, column: pa.Array) -> tuple[Int64s, pa.Array]:
        if not column.null_count:
            return np.arange(len(column)), pa.array(hll.cells_of(column, self.lg))
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        return rows, pa.array(hll.cells_of(column.take(pa.array(rows)), self.lg))

    def expected(self, values: float) -> float:
        return hll.hit(self.lg, values)

    def expected_counted(self, values: float) -> float:
        # A rank is half as likely as the one below it.
        return sum(hll.hit(self.lg, values / 2**rank) for rank in range(1, 40))


@dataclass(frozen=True)
class RegisterSums(Accumulator):
    """The sums over registers that an estimate needs. They follow from the greatest ranks, not from rows."""

    rank: ClassVar[int] = 5

    def integers(self, type_: pa.DataType) -> int:
        return 3

    def floats(self, type_: pa.DataType) -> int:
        return 0

    def lanes(self, column: pa.Array, counts: Int64s) -> tuple[list[Int64s], list[Float64s]]:
        return [np.zeros(len(column), np.int64)] * 3, []


REGISTER_SUMS = RegisterSums()


class ApproxCountDistinct(SketchFunction, AccumulatedFunction):
    """Of one or more columns; a last argument that is a constant number is the relative standard error."""

    distinct: ClassVar[DistinctRule] = DistinctRule.NO_EFFECT
    of_nothing: ClassVar[int | None] = 0

    def check_count(self, arguments: Sequence[Expression]) -> None:
        if not arguments:
            raise PenstockError("P0204", f"{self.name} takes an argument", hint=f"{self.name}({self.signature})")

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        last = arguments[-1]
        if len(arguments) > 1 and isinstance(last, Literal) and is_integer(last.type):
            within(self.name, last, LEAST_RSD, MOST_RSD, _EXAMPLE)  # no whole number is in the range
        columns = tuple(atomic(self.name, a) for a in _columns(arguments))
        return (
            *columns,
            *(within(self.name, a, LEAST_RSD, MOST_RSD, _EXAMPLE) for a in arguments[len(columns) :]),
        ), BIGINT

    def values(self, call: AggregateCall) -> tuple[Expression, ...]:
        return _columns(call.arguments)

    def state(self, distinct: bool, negative: bool) -> ArgumentState:
        return ArgumentState.REGISTER_COUNTS if negative else ArgumentState.REGISTERS

    def cells(self, call: AggregateCall) -> CellEncoder | None:
        return RegisterCells(_lg(call))

    def accumulators(self, call: AggregateCall) -> tuple[Accumulator, ...]:
        return (REGISTER_SUMS,)

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        (hit, low, high), _ = sums.parts[REGISTER_SUMS]
        found = hll.estimates(_lg(call), np.asarray(hit), np.asarray(low), np.asarray(high))
        return pa.array(np.floor(found + 0.5).astype(np.int64))

    def accuracy(self, call: AggregateCall) -> Accuracy | None:
        lg = _lg(call)
        error = f"standard error {percent(hll.standard_error(lg))}"
        width = quantile_of_normal(CONFIDENCE) * hll.standard_error(lg)
        return Accuracy(f"HyperLogLog of {1 << lg:,} registers", error, certain=False, width=width)

    def bounds(self, call: AggregateCall, confidence: float) -> Bounds:
        spread = quantile_of_normal(confidence) * hll.standard_error(_lg(call))
        return Bounds(divided(call, 1.0 + spread), divided(call, 1.0 - spread))


def _columns(arguments: tuple[Expression, ...]) -> tuple[Expression, ...]:
    last = arguments[-1]
    given = len(arguments) > 1 and isinstance(last, Literal) and (is_float(last.type) or is_decimal(last.type))
    return arguments[:-1] if given else arguments


def _lg(call: AggregateCall) -> int:
    return hll.registers_for(constant(call, len(_columns(call.arguments)), DEFAULT_RSD))


APPROX_COUNT_DISTINCT = ApproxCountDistinct(
    "APPROX_COUNT_DISTINCT",
    "value[, rsd]",
    "about how many different values, or combinations of values: HyperLogLog with a relative standard error of at most"
    " rsd, a constant from 0.0021 to 0.3 (0.01625)",
    ("APPROX_DISTINCT",),
)
