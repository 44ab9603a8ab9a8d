"""QUANTILE and MEDIAN: a value at a place among the sorted values."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.aggregates.arguments import fraction, number
from penstock.expressions.aggregates.contract import AggregateInput, OrderedAnswer, OrderedFunction, Question
from penstock.expressions.coercion import DOUBLE, implicit
from penstock.expressions.nodes import AggregateCall, Expression, Literal


class Quantile(OrderedFunction):
    """The second argument is a constant from 0 to 1."""

    arguments: ClassVar[int] = 2

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        value = implicit(number(self.name, arguments[0]), DOUBLE, self.name)
        return (value, *(fraction(self.name, a) for a in arguments[1:])), DOUBLE

    def question(self) -> Question:
        return Question.QUANTILE

    def parameter(self, call: AggregateCall) -> float:
        (share,) = call.arguments[1:]
        assert isinstance(share, Literal)
        return float(share.value)

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        """Return low + share · (high - low), exactly low where both are equal."""
        low, share = answer.value(), answer.share
        one, other = (
            np.asarray(c.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64) for c in (low, answer.other())
        )
        with np.errstate(invalid="ignore"):
            mixed = np.where((share == 0) | (one == other), one, (1.0 - share) * one + share * other)
        return pa.array(mixed, pa.float64(), mask=pc.is_null(low).to_numpy(zero_copy_only=False))


class Median(Quantile):
    """A call is QUANTILE(x, 0.5)."""

    arguments: ClassVar[int] = 1

    def build(self, read: AggregateInput) -> AggregateCall:
        self.check_count(read.arguments)
        bound, _ = self.bind(read.arguments)
        return QUANTILE.build(replace(read, arguments=(*bound, Literal(DOUBLE, 0.5))))


MEDIAN = Median("MEDIAN", "number", "the value in the middle, or the mean of the two: QUANTILE(x, 0.5)")
QUANTILE = Quantile(
    "QUANTILE",
    "number, q",
    "the value at place (n - 1)·q of the sorted values, between two neighbours by their distances; q from 0 to 1",
    ("PERCENTILE",),
)
