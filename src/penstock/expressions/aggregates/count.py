"""COUNT: rows, values, and with DISTINCT combinations of values."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.expressions.aggregates.accumulators.contract import Accumulator
from penstock.expressions.aggregates.arguments import atomic
from penstock.expressions.aggregates.contract import AccumulatedFunction, AggregateInput, ArgumentSums
from penstock.expressions.coercion import BIGINT
from penstock.expressions.nodes import AggregateCall, Expression


class CountFunction(AccumulatedFunction):
    """No arguments stand for *."""

    of_rows: ClassVar[bool] = True
    of_nothing: ClassVar[int | None] = 0

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        return tuple(atomic(self.name, argument) for argument in arguments), BIGINT

    def build(self, read: AggregateInput) -> AggregateCall:
        name = self.name
        arguments = read.arguments
        if read.distinct and not arguments:
            raise PenstockError("P0204", f"{name}(DISTINCT *) is no aggregate", hint="name the columns to be counted")
        if len(arguments) > 1 and not read.distinct:
            raise PenstockError("P0204", f"{name} takes 1 argument, not {len(arguments)}", hint=f"{name}(* | value)")
        bound, type_ = self.bind(arguments)
        return AggregateCall(type_, name, bound, read.distinct, read.only)

    def accumulators(self, call: AggregateCall) -> tuple[Accumulator, ...]:
        return ()

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        return pa.array(sums.count, call.type)


COUNT = CountFunction("COUNT", "* | value", "rows, or values that are not NULL")


def count_rows(only: Expression | None = None) -> AggregateCall:
    """Return COUNT(*), with a FILTER if `only` is given."""
    return COUNT.build(AggregateInput(only=only))
