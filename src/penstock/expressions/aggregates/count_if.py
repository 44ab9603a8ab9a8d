"""COUNT_IF: rows for which a condition is TRUE."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from penstock.expressions.aggregates.accumulators.contract import Accumulator
from penstock.expressions.aggregates.arguments import condition
from penstock.expressions.aggregates.contract import AccumulatedFunction, AggregateInput, ArgumentSums, DistinctRule
from penstock.expressions.aggregates.count import COUNT, count_rows
from penstock.expressions.coercion import BIGINT
from penstock.expressions.nodes import AggregateCall, Expression, conjunction


class CountIf(AccumulatedFunction):
    """A call is COUNT(*) FILTER (WHERE condition), with which it shares its state."""

    distinct: ClassVar[DistinctRule] = DistinctRule.REFUSED

    def bind(self, arguments: tuple[Expression, ...]) -> tuple[tuple[Expression, ...], pa.DataType]:
        return (condition(self.name, arguments[0]),), BIGINT

    def build(self, read: AggregateInput) -> AggregateCall:
        self.check_count(read.arguments)
        self.check_distinct(read.distinct)
        (counted,), _ = self.bind(read.arguments)
        return count_rows(counted if read.only is None else conjunction((read.only, counted)))

    def accumulators(self, call: AggregateCall) -> tuple[Accumulator, ...]:
        return COUNT.accumulators(call)

    def finalize(self, call: AggregateCall, sums: ArgumentSums) -> pa.Array:
        return COUNT.finalize(call, sums)


COUNT_IF = CountIf("COUNT_IF", "condition", "rows for which the condition is TRUE; 0 over none")
