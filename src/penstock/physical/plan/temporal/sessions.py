"""The specs of session windows and of `[VALID]`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.shed import StretchBudget
from penstock.physical.plan.spec import Memory, Parameter, PassingSpec, Ticks
from penstock.physical.plan.state.state_parts import TIMES, StateInput, StatePart, all_rows
from penstock.physical.plan.temporal.shedding import BudgetedSpec


@dataclass(frozen=True)
class SessionsSpec(BudgetedSpec):
    """The elements of sessions, as in the algebra's `SessionWindow`. types: of the columns that are passed on; records:
    whether inclusion records are emitted as a last column."""

    types: tuple[pa.DataType, ...]
    partition: tuple[int, ...]
    at_most: int | None
    open: bool
    budget: StretchBudget | None = None
    records: bool = False

    @property
    def drops_values(self) -> bool:
        return self.budget is not None and self.open

    def describe(self) -> Mapping[str, Parameter]:
        found: dict[str, Parameter] = {"emitted": "while they are open" if self.open else "at their end"}
        found = found if self.at_most is None else {**found, "at most": Ticks(self.at_most)}
        found = {**found, "records": "of inclusion"} if self.records else found
        return found if self.budget is None else {**found, **self.budget.describe()}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        yield all_rows(made, "rows of sessions that go on", TIMES)


@dataclass(frozen=True)
class ValidWindowSpec(PassingSpec):
    """Validity from the period in the last two columns; stateless."""

    @property
    def memory(self) -> Memory:
        return Memory.NOTHING
