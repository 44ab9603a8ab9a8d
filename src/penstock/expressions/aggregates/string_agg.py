"""STRING_AGG: all texts, one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.aggregates.arguments import text
from penstock.expressions.aggregates.contract import (
    AggregateInput,
    OrderedAnswer,
    OrderedFunction,
    Question,
    behind_keys,
)
from penstock.expressions.coercion import STRING, implicit
from penstock.expressions.nodes import AggregateCall, Expression, Literal


class StringAgg(OrderedFunction):
    """Ordered by the keys of ORDER BY, else by the timestamps of their rows, then by value; by value alone where rows
    have no timestamp, and with DISTINCT, since a text in several rows has no single timestamp."""

    arguments: ClassVar[int] = 2
    timed: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        return (implicit(arguments[0], STRING, self.name), text(self.name, arguments[1])), STRING

    def build(self, read: AggregateInput) -> AggregateCall:
        call = super().build(read)
        if read.order is None or read.distinct or read.by is not None:
            return call
        return replace(call, arguments=(*call.arguments, read.order))

    def build_within(self, read: AggregateInput) -> AggregateCall:
        return self.build(read)

    def values(self, call: AggregateCall) -> tuple[Expression, ...]:
        value, _, *order = call.arguments
        return (*order, value)

    def question(self) -> Question:
        return Question.EVERY

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        members = answer.members()
        separator = call.arguments[1]
        assert isinstance(separator, Literal)
        return pc.binary_join(members.lists(pa.list_(STRING), behind_keys(members.values)), separator.value)


STRING_AGG = StringAgg(
    "STRING_AGG",
    "text, separator [ORDER BY key, ..]",
    "all texts that are not NULL with the separator between them, by the keys, or else the timestamps of their rows,"
    " then by value; without keys by value alone with DISTINCT and where rows have no timestamp. WITHIN GROUP (ORDER BY"
    " key, ..) may have the keys",
    ("LISTAGG",),
)
