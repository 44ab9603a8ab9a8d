"""The spec of a join that only looks groups of an aggregate up (`algebra/nodes/aggregate_lookup.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from penstock.expressions.nodes import Expression
from penstock.physical.plan.plan import Spec, queue_name
from penstock.physical.planning.aggregate_layout import AggregateLayout


@dataclass(frozen=True)
class AggregateLookupSpec(Spec):
    """Port 0 brings rows that live for one instant each, port 1 the lane rows of an aggregate. plan, fifo, input_types:
    as in `AggregateSpec`; key: the columns of port 0 that name the group, in the order of its columns; between: what is
    made of the aggregate's rows before they are joined, predicates and lists of expressions; found_types: of what that
    gives; left: port 0 is the left side; outer: its rows stay without a partner."""

    plan: AggregateLayout
    fifo: bool
    input_types: tuple[pa.DataType, ...]
    key: tuple[int, ...]
    between: tuple[Expression | tuple[Expression, ...], ...]
    found_types: tuple[pa.DataType, ...]
    residual: Expression | None
    left: bool
    outer: bool
    note: str = field(default="", compare=False)
    """why the plan has this join, for explain"""
    listed: bool = False

    def describe(self) -> dict[str, str]:
        found = {"state": queue_name(self.fifo, self.listed), "chosen": self.note}
        return {"keeps": "left", **found} if self.outer else found
