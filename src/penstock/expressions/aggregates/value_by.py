"""MIN_BY and MAX_BY: the value of the row in which another value is the least or the greatest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.expressions.aggregates.arguments import atomic
from penstock.expressions.aggregates.contract import DistinctRule, NullRule, OrderedFunction, Question
from penstock.expressions.coercion import NULL, STRING, cast_to
from penstock.expressions.nodes import AggregateCall, Expression


@dataclass(frozen=True)
class ValueBy(OrderedFunction):
    """Rows are stored by the value that orders them, then by the value that is returned, which decides between rows
    that are equal in the first: MIN_BY returns their least, MAX_BY their greatest value. A NULL is the least."""

    side: Question = Question.LEAST
    arguments: ClassVar[int] = 2
    distinct: ClassVar[DistinctRule] = DistinctRule.NO_EFFECT
    nulls: ClassVar[NullRule] = NullRule.SKIP_UNORDERED

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        value, by = (atomic(self.name, argument) for argument in arguments)
        return (value, cast_to(by, STRING) if by.type == NULL else by), value.type

    def values(self, call: AggregateCall) -> tuple[Expression, ...]:
        value, *by = call.arguments
        return (*by, value)

    def question(self) -> Question:
        return self.side


MIN_BY = ValueBy("MIN_BY", "value, by", "value of the row with the least `by`; of several the least, NULL first")
MAX_BY = ValueBy(
    "MAX_BY",
    "value, by",
    "value of the row with the greatest `by`; of several the greatest, NULL last",
    side=Question.GREATEST,
)
