"""ESTIMATE(COUNT(*)|COUNT(x)|SUM(x)|AVG(x)): aggregates of what was sampled, with their bounds (`estimates.py`).

The calls read the value and the hidden inclusion record of each row. A query writes ESTIMATE(SUM(x)); the binder makes
the calls here of it, and puts the record in where rows are grouped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates.accumulators.contract import Accumulator
from penstock.expressions.aggregates.accumulators.total import TOTAL, total_of_doubles
from penstock.expressions.aggregates.contract import (
    AccumulatedFunction,
    AggregateFunction,
    ArgumentSums,
    DistinctRule,
    Members,
    OrderedAnswer,
    OrderedFunction,
    Question,
)
from penstock.expressions.coercion import DOUBLE, cast_to
from penstock.expressions.nodes import AggregateCall, Call, Column, Expression, Literal
from penstock.expressions.sampling.estimates import Estimated, Float64s, Int64s, estimates, half_widths, range_widths
from penstock.expressions.sampling.inclusion import INCLUSION, Inclusion, unpacked


def _bound(name: str, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
    value, record, *constants = arguments
    if record.type not in (INCLUSION, pa.null()) or not all(isinstance(c, Literal) for c in constants):
        raise PenstockError("P0203", f"{name} takes a value and an inclusion record")
    return (cast_to(value, DOUBLE), record, *constants), DOUBLE


@dataclass(frozen=True)
class SampleEstimate(AccumulatedFunction):
    """Arguments: the value, the inclusion record. A sum of x/π, to which a row is added and from which it is taken."""

    arguments: ClassVar[int] = 2
    distinct: ClassVar[DistinctRule] = DistinctRule.REFUSED

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        return _bound(self.name, arguments)

    def values(self, call: AggregateCall) -> tuple[Expression, ...]:
        value, record = call.arguments
        return (Call(DOUBLE, "DIV", (value, Call(DOUBLE, "INCLUSION_CHANCE", (record,)))),)

    def accumulators(self, call: AggregateCall) -> tuple[Accumulator, ...]:
        return (TOTAL,)

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        integers, pairs = sums.parts[TOTAL]
        return pa.array(total_of_doubles(*integers, *pairs), mask=sums.absent)


def scaled_value(expressions: Sequence[Expression]) -> tuple[Expression, int] | None:
    """Return x and the column of the record where an argument is x/π of a row; None for others."""
    match expressions:
        case (Call(function="DIV", arguments=(x, Call(function="INCLUSION_CHANCE", arguments=(Column() as record,)))),):
            return x, record.index
    return None


@dataclass(frozen=True)
class CountEstimate(SampleEstimate):
    """Of nothing it is 0."""

    of_nothing: ClassVar[int | None] = 0

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        return super().finalize(call, sums).fill_null(0.0)


@dataclass(frozen=True)
class SampleEstimateBound(OrderedFunction):
    """A bound of an estimate, from all rows. Arguments: the value, the inclusion record, the confidence, and where a
    range is given the least and greatest value, and whether all rows of the sample are in the group. side: -1 for the
    lower, 1 for the upper bound."""

    of: Estimated = Estimated.SUM
    side: int = 1
    distinct: ClassVar[DistinctRule] = DistinctRule.REFUSED

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        return _bound(self.name, arguments)

    def check_count(self, arguments: object) -> None:
        """Any number is right: the binder makes the calls."""

    def values(self, call: AggregateCall) -> tuple[Expression, ...]:
        return call.arguments[:2]

    def question(self) -> Question:
        return Question.EVERY

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        members = answer.members()
        rows = _rows(members)
        confidence, *limits = (float(c.value) for c in call.arguments[2:] if isinstance(c, Literal))
        if limits:
            low, high, every = limits
            width = range_widths(self.of, *rows, confidence, low, high, bool(every))
        else:
            width = half_widths(self.of, *rows, confidence)
        values = estimates(self.of, *rows) + self.side * width
        return pa.array(values, mask=np.isnan(values))


def range_of(call: AggregateCall) -> tuple[float, float] | None:
    """Return the range in which a bound takes the values of `call` to be; None where it takes them as they are."""
    limits = [float(c.value) for c in call.arguments[2:] if isinstance(c, Literal)] if call.function in _BOUNDS else []
    return (limits[1], limits[2]) if len(limits) > 1 else None


def upper_of(call: AggregateCall) -> AggregateCall | None:
    """Return the upper bound whose lower one `call` is; None for other calls."""
    if call.function not in _BOUNDS or not call.function.endswith("_LOWER"):
        return None
    return replace(call, function=call.function.replace("_LOWER", "_UPPER"))


def _rows(members: Members) -> tuple[Int64s, int, Float64s, Inclusion]:
    """Return (group of each value, number of groups, values, records)."""
    counts = np.diff(members.offsets)
    values, records = members.values.flatten()
    groups = np.repeat(np.arange(len(counts)), counts)
    return groups, len(counts), values.to_numpy(zero_copy_only=False), unpacked(records)


_BOUNDS = frozenset(f"ESTIMATE_{of}_{word}" for of in ("COUNT", "SUM", "AVG") for word in ("LOWER", "UPPER"))
#: What ESTIMATE becomes, and its bounds: callable, so that a plan can be written as text, but not documented. An
#: average is the quotient of two sums.
ESTIMATES: tuple[AggregateFunction, ...] = (
    CountEstimate("ESTIMATE_COUNT", "value, inclusion", "an estimate"),
    SampleEstimate("ESTIMATE_SUM", "value, inclusion", "an estimate"),
    *(
        SampleEstimateBound(f"ESTIMATE_{name}_{word}", "value, inclusion, confidence", "its bound", of=of, side=side)
        for name, of in (("COUNT", Estimated.SUM), ("SUM", Estimated.SUM), ("AVG", Estimated.AVG))
        for word, side in (("LOWER", -1), ("UPPER", 1))
    ),
)
