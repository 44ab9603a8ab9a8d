"""PERCENTILE_CONT and PERCENTILE_DISC: SQL's quantiles, whose values stand in WITHIN GROUP."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import ClassVar

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates.arguments import atomic, fraction
from penstock.expressions.aggregates.contract import (
    AggregateFunction,
    AggregateInput,
    DistinctRule,
    OrderedFunction,
    Question,
    WrittenCall,
    within_group,
)
from penstock.expressions.aggregates.quantile import QUANTILE, Quantile
from penstock.expressions.coercion import DOUBLE
from penstock.expressions.nodes import AggregateCall, Expression, KeyDirection, Literal

_FORM = "({:g}) WITHIN GROUP (ORDER BY x)"


class Percentile(AggregateFunction):
    """A call has its value in WITHIN GROUP."""

    distinct: ClassVar[DistinctRule] = DistinctRule.REFUSED

    @property
    def usage(self) -> str:
        return f"{self.name}(q) WITHIN GROUP (ORDER BY {self.signature})"

    def build(self, read: AggregateInput) -> AggregateCall:
        message = f"{self.name} takes the value that it reads in WITHIN GROUP"
        raise PenstockError("P0204", message, hint=f"write {self.name}{_FORM.format(0.5)}")


class Continuous(Percentile, Quantile):
    """A call is QUANTILE; of descending values with the fraction from the other end."""

    def build_within(self, read: AggregateInput) -> AggregateCall:
        value, descending = within_group(self, read, 1)
        share = fraction(self.name, read.arguments[0], _FORM)
        (number, _), _ = self.bind((value, share))
        if descending is not None:
            # As decimals are written: 1 - 0.9 is 0.1.
            share = Literal(DOUBLE, float(1 - Decimal(repr(share.value))))
        return QUANTILE.build(replace(read, arguments=(number, share), by=None))


class Discrete(Percentile, OrderedFunction):
    """A call reads the value and the fraction, and of descending values the value as the key of their order."""

    arguments: ClassVar[int] = 2

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        value = atomic(self.name, arguments[0])
        return (value, fraction(self.name, arguments[1], _FORM)), value.type

    def build_within(self, read: AggregateInput) -> AggregateCall:
        value, descending = within_group(self, read, 1)
        return OrderedFunction.build(self, replace(read, arguments=(value, *read.arguments), by=descending))

    def written(self, call: AggregateCall) -> WrittenCall:
        value, share = call.own
        return WrittenCall((share,), ((value, call.order[0] if call.order else KeyDirection()),), True)

    def question(self) -> Question:
        return Question.RANK

    def parameters(self, call: AggregateCall) -> tuple[float, float, float]:
        share = call.arguments[1]
        assert isinstance(share, Literal)
        return float(share.value), 1.0, 0.0


PERCENTILE_CONT = Continuous("PERCENTILE_CONT", "number", "QUANTILE(number, q), and with DESC QUANTILE(number, 1 - q)")
PERCENTILE_DISC = Discrete(
    "PERCENTILE_DISC",
    "value",
    "the first value in that order that a part q of the values precedes or equals; q from 0 to 1",
)
