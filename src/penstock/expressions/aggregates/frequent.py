"""MODE and TOP_K: the most frequent values."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from penstock.expressions.aggregates.arguments import atomic, length
from penstock.expressions.aggregates.contract import (
    AggregateInput,
    OrderedAnswer,
    OrderedFunction,
    Question,
    WrittenCall,
    within_group,
)
from penstock.expressions.coercion import BIGINT
from penstock.expressions.nodes import AggregateCall, Expression, Literal


class Mode(OrderedFunction):
    """The value with the greatest count. MODE() WITHIN GROUP (ORDER BY value) is a call of the value."""

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        argument = atomic(self.name, arguments[0])
        return (argument,), argument.type

    def build_within(self, read: AggregateInput) -> AggregateCall:
        value, descending = within_group(self, read, 0)
        return self.build(replace(read, arguments=(value,), by=descending))

    def written(self, call: AggregateCall) -> WrittenCall:
        written = super().written(call)
        return WrittenCall((), written.keys, True) if written.keys else written

    def question(self) -> Question:
        return Question.MODE


class MostFrequent(OrderedFunction):
    """The second argument is a constant, how many values are returned."""

    arguments: ClassVar[int] = 2

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        value, count = atomic(self.name, arguments[0]), length(self.name, arguments[1])
        return (value, count), pa.list_(pa.struct([("value", value.type), ("count", BIGINT)]))

    def question(self) -> Question:
        return Question.TOP

    def parameter(self, call: AggregateCall) -> float:
        (count,) = call.arguments[1:]
        assert isinstance(count, Literal)
        return float(count.value)

    def finalize(self, call: AggregateCall, answer: OrderedAnswer) -> pa.Array:
        members = answer.members()
        counts = pa.array(members.counts)
        pairs = pa.StructArray.from_arrays([members.values, counts], fields=list(call.type.value_type))
        return members.lists(call.type, pairs)


MODE = Mode(
    "MODE",
    "value",
    "the most frequent value; of several the least, or the first by WITHIN GROUP: MODE() WITHIN GROUP (ORDER BY value"
    " DESC)",
)
TOP_K = MostFrequent(
    "TOP_K", "value, k", "the k most frequent values as an array of (value, count), by count, equal counts by value"
)
