"""STRING_AGG: all texts, one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.aggregates.arguments import text
from penstock.expressions.aggregates.contract import AggregateInput, OrderedAnswer, OrderedFunction, Question
from penstock.expressions.coercion import STRING, implicit
from penstock.expressions.nodes import AggregateCall, Expression, Literal


class StringAgg(OrderedFunction):
    """Ordered by the timestamps of their rows, then by value; by value alone where rows have no timestamp, and with
    DISTINCT, since a text in several rows has no single timestamp."""

    arguments: ClassVar[int] = 2
    timed: ClassVar[bool] = True

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        return (implicit(arguments[0], STRING, self.name), text(self.name, arguments[1])), STRING

    def build(self, read: AggregateInput) -> AggregateCall:
        call = super().build(read)
        if read.order is None or read.distinct:
            return call
        return replace(call, arguments=(*call.arguments, read.order))

    def values(self, call: AggregateCall) -> tuple[Expression, ...]:
        value, _, *order = call.arguments
        return (*order, value)

    def question(self) -> Question:
        return Question.EVERY

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        members = answer.members()
        values = members.values if len(call.arguments) == 2 else members.values.flatten()[1]
        separator = call.arguments[1]
        assert isinstance(separator, Literal)
        return pc.binary_join(members.lists(pa.list_(STRING), values), separator.value)


STRING_AGG = StringAgg(
    "STRING_AGG",
    "text, separator",
    "all texts that are not NULL with the separator between them, by the timestamps of their rows, then by value; by"
    " value alone with DISTINCT and where rows have no timestamp",
    ("LISTAGG",),
)
