"""MIN and MAX: the least and the greatest value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.expressions.aggregates.arguments import atomic
from penstock.expressions.aggregates.contract import ArgumentState, DistinctRule, OrderedFunction, Question
from penstock.expressions.nodes import Expression


@dataclass(frozen=True)
class Extreme(OrderedFunction):
    """Stored as a skyline where the expiration of a row is known on arrival, else as all values in order."""

    side: Question = Question.LEAST
    distinct: ClassVar[DistinctRule] = DistinctRule.NO_EFFECT

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        argument = atomic(self.name, arguments[0])
        return (argument,), argument.type

    def question(self) -> Question:
        return self.side

    def state(self, distinct: bool, negative: bool) -> ArgumentState:
        if negative:
            return ArgumentState.BAG
        return ArgumentState.LEAST if self.side is Question.LEAST else ArgumentState.GREATEST


MIN = Extreme("MIN", "value", "least value; NaN is the greatest")
MAX = Extreme("MAX", "value", "greatest value; NaN is the greatest", side=Question.GREATEST)
