"""FIRST and LAST: the value of the first and of the last row by keys or by timestamp."""

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
class InOrder(ValueBy):
    """The value of the first and of the last row by the keys of ORDER BY, or else by the timestamp, which the binder
    passes to a call as its second argument."""

    arguments: ClassVar[int] = 1
    nulls: ClassVar[NullRule] = NullRule.KEEP
    timed: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        argument = atomic(self.name, arguments[0])
        return (argument,), argument.type

    def build(self, read: AggregateInput) -> AggregateCall:
        call = super().build(read)
        if read.by is not None:
            return call
        if read.order is None:
            hint = f"write {self.name}(value ORDER BY key); without a stream rows have no order of their own"
            message = f"{self.name} needs the timestamps of a stream that stands in FROM"
            raise PenstockError("P0304", message, hint=hint)
        return replace(call, arguments=(*call.arguments, read.order))


FIRST = InOrder(
    "FIRST",
    "value [ORDER BY key, ..]",
    "value of the row with the least keys, or else timestamp; of several the least",
    ("FIRST_VALUE",),
)
LAST = InOrder(
    "LAST",
    "value [ORDER BY key, ..]",
    "value of the row with the greatest keys, or else timestamp; of several the greatest",
    ("LAST_VALUE",),
    Question.GREATEST,
)
