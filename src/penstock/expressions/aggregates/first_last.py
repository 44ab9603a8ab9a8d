"""FIRST and LAST: the value of the row with the least and with the greatest timestamp."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates.arguments import atomic
from penstock.expressions.aggregates.contract import AggregateInput, NullRule, Question
from penstock.expressions.aggregates.value_by import ValueBy
from penstock.expressions.nodes import AggregateCall, Expression


@dataclass(frozen=True)
class InTime(ValueBy):
    """MIN_BY and MAX_BY of the timestamp, which the binder passes to a call as its second argument."""

    arguments: ClassVar[int] = 1
    nulls: ClassVar[NullRule] = NullRule.KEEP
    timed: ClassVar[bool] = True

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        argument = atomic(self.name, arguments[0])
        return (argument,), argument.type

    def build(self, read: AggregateInput) -> AggregateCall:
        call = super().build(read)
        if read.order is None:
            hint = "MIN(ts) and MAX(ts) say when; without a stream there is no order among rows"
            message = f"{self.name} needs the timestamps of a stream that stands in FROM"
            raise PenstockError("P0304", message, hint=hint)
        return replace(call, arguments=(*call.arguments, read.order))


FIRST = InTime("FIRST", "value", "value of the row with the least timestamp; of several the least", ("FIRST_VALUE",))
LAST = InTime(
    "LAST",
    "value",
    "value of the row with the greatest timestamp; of several the greatest",
    ("LAST_VALUE",),
    Question.GREATEST,
)
