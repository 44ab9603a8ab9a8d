"""BOOL_AND and BOOL_OR: whether all or some values are TRUE."""

from __future__ import annotations

import pyarrow as pa

from penstock.expressions.aggregates.accumulators.bits import Bits
from penstock.expressions.aggregates.arguments import condition
from penstock.expressions.aggregates.bits import IdempotentBits, some
from penstock.expressions.aggregates.contract import ArgumentSums
from penstock.expressions.coercion import BOOLEAN
from penstock.expressions.nodes import AggregateCall, Expression


class BoolAggregate(IdempotentBits):
    """A bit aggregate of values of one bit."""

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        return (condition(self.name, arguments[0]),), BOOLEAN

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        (trues,), _ = sums.parts[Bits(call.type.bit_width)]
        return pa.array(self.chosen(trues, sums.count), BOOLEAN, mask=sums.absent)


BOOL_AND = BoolAggregate("BOOL_AND", "condition", "whether every value that is not NULL is TRUE", ("EVERY",))
BOOL_OR = BoolAggregate("BOOL_OR", "condition", "whether some value is TRUE; NULLs do not count", chosen=some)
