"""ESTIMATE(COUNT(*)|COUNT(x)|SUM(x)|AVG(x)): aggregates of what was sampled, with their bounds (`estimates.py`).

The calls read the value and the hidden inclusion record of each row. A query writes ESTIMATE(SUM(x)); the binder makes
the calls here of it, and puts the record in where rows are grouped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates.contract import DistinctRule, Members, OrderedAnswer, OrderedFunction, Question
from penstock.expressions.coercion import DOUBLE, cast_to
from penstock.expressions.nodes import AggregateCall, Expression, Literal
from penstock.expressions.sampling.estimates import Estimated, Float64s, Int64s, estimates, half_widths, range_widths
from penstock.expressions.sampling.inclusion import INCLUSION, Inclusion, unpacked


@dataclass(frozen=True)
class SampleEstimate(OrderedFunction):
    """Arguments: the value, the inclusion record. of: what is estimated; counts: of nothing it is 0."""

    of: Estimated = Estimated.SUM
    counts: bool = False
    arguments: ClassVar[int] = 2
    distinct: ClassVar[DistinctRule] = DistinctRule.REFUSED

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        value, record, *constants = arguments
        if record.type not in (INCLUSION, pa.null()) or not all(isinstance(c, Literal) for c in constants):
            raise PenstockError("P0203", f"{self.name} takes a value and an inclusion record")
        return (cast_to(value, DOUBLE), record, *constants), DOUBLE

    def values(self, call: AggregateCall) -> tuple[Expression, ...]:
        return call.arguments[:2]

    def question(self) -> Question:
        return Question.EVERY

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        members = answer.members()
        return self._column(estimates(self.of, *_rows(members)), members)

    def _column(self, values: Float64s, members: Members) -> pa.Array:
        if self.counts:
            return pa.array(values)
        return pa.array(values, mask=members.none)


@dataclass(frozen=True)
class SampleEstimateBound(SampleEstimate):
    """A bound of an estimate. Further arguments: the confidence, and where a range is given the least and greatest
    value, and whether all rows of the sample are in the group. side: -1 for the lower, 1 for the upper bound."""

    side: int = 1

    def check_count(self, arguments: object) -> None:
        """Any number is right: the binder makes the calls."""

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


def _rows(members: Members) -> tuple[Int64s, int, Float64s, Inclusion]:
    """Return (group of each value, number of groups, values, records)."""
    counts = np.diff(members.offsets)
    values, records = members.values.flatten()
    groups = np.repeat(np.arange(len(counts)), counts)
    return groups, len(counts), values.to_numpy(zero_copy_only=False), unpacked(records)


_NAMES = (("ESTIMATE_COUNT", Estimated.SUM, True), ("ESTIMATE_SUM", Estimated.SUM, False),
          ("ESTIMATE_AVG", Estimated.AVG, False))  # fmt: skip
_BOUNDS = frozenset(f"{name}_{word}" for name, *_ in _NAMES for word in ("LOWER", "UPPER"))
#: What ESTIMATE becomes, and its bounds: callable, so that a plan can be written as text, but not documented.
ESTIMATES: tuple[SampleEstimate, ...] = tuple(
    SampleEstimate(name, "value, inclusion", "an estimate", of=of, counts=counts) for name, of, counts in _NAMES
) + tuple(
    SampleEstimateBound(f"{name}_{word}", "value, inclusion, confidence", "its bound", of=of, side=side)
    for name, of, _ in _NAMES
    for word, side in (("LOWER", -1), ("UPPER", 1))
)
