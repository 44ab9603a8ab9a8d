"""The specs of coalescing and of session windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.coalesce import Closing, Coalesce
from penstock.algebra.nodes.shed import StretchBudget
from penstock.physical.plan.spec import Parameter, ReducingSpec, Ticks
from penstock.physical.plan.state.state_parts import StateInput, StatePart, pending_ends, slots, width
from penstock.physical.plan.temporal.shedding import BudgetedSpec


@dataclass(frozen=True)
class StretchPiecesSpec(ReducingSpec):
    """The stretches of the rows of a batch, each at the first of its timestamps: coalescing of stretches
    that begin in order and are emitted when they are closed gives the same over such pieces."""


@dataclass(frozen=True)
class CoalesceSpec(BudgetedSpec):
    """The maximal periods of every value. types: of the columns, of which the last two are the period; closed: when
    stretches are closed where only closed ones are emitted, else None; in_order: where periods begin in the order of
    time and none leaves: when stretches are closed; budget: of open ones; records: whether inclusion records are
    emitted as a last column."""

    types: tuple[pa.DataType, ...]
    closed: Closing | None = None
    in_order: Closing | None = None
    listed: bool = False
    budget: StretchBudget | None = None
    records: bool = False

    @property
    def title(self) -> str:
        return "Coalesce"

    def describe(self) -> Mapping[str, Parameter]:
        state = "periods of every value in order" if self.in_order is None else "the last stretch of every value"
        found: dict[str, Parameter] = {"state": state}
        if self.closed is not None:
            slide = self.closed.slide
            found["closed at"] = "the end" if slide is None else ("the boundary from the end on, every", Ticks(slide))
        found = {**found, "records": "of inclusion"} if self.records else found
        return found if self.budget is None else {**found, **self.budget.describe()}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (one,) = inputs
        if self.in_order is not None:
            values = one.values(tuple(range(len(self.types) - 2)))
            bound = made.node.open_boundedness if isinstance(made.node, Coalesce) else made.content
            yield StatePart("stretches that may grow", values, values * (72 + width(self.types)), bound)
            return
        yield slots(one, 3, "different periods", 160)
        yield from pending_ends(one)
