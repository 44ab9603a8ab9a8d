"""ARRAY_AGG: all values in order, as an array."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expressions.aggregates.arguments import atomic
from penstock.expressions.aggregates.contract import OrderedAnswer, OrderedFunction, Question, behind_keys
from penstock.expressions.nodes import AggregateCall, Expression


class ArrayAgg(OrderedFunction):
    """By the keys of ORDER BY, then ascending, so that the array does not depend on the order of the rows."""

    ordered: ClassVar[bool] = True

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        argument = atomic(self.name, arguments[0])
        return (argument,), pa.list_(argument.type)

    def question(self) -> Question:
        return Question.EVERY

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        members = answer.members()
        return members.lists(call.type, behind_keys(members.values))


ARRAY_AGG = ArrayAgg(
    "ARRAY_AGG",
    "value [ORDER BY key, ..]",
    "all values that are not NULL, in the order of the keys, then ascending",
    ("COLLECT_LIST",),
)
