"""ANY_VALUE: some value of the group, independent of the order of its rows."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.expressions.aggregates.contract import AggregateInput
from penstock.expressions.aggregates.extremes import MIN, Extreme
from penstock.expressions.nodes import AggregateCall


@dataclass(frozen=True)
class AnyValue(Extreme):
    """A call is MIN: of all values that it might return, the one that no order of the rows changes."""

    def build(self, read: AggregateInput) -> AggregateCall:
        self.check_count(read.arguments)
        self.bind(read.arguments)
        return MIN.build(read)


ANY_VALUE = AnyValue("ANY_VALUE", "value", "some value that is not NULL: the least")
