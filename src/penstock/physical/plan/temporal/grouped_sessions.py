"""The specs of sessions of which only aggregates are read: no element is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.shed import StretchBudget
from penstock.physical.plan.spec import Parameter, ReducingSpec, Ticks
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.plan.state.state_parts import SLOT, StateInput, StatePart, width
from penstock.physical.plan.temporal.shedding import BudgetedSpec


@dataclass(frozen=True)
class SessionPiecesSpec(ReducingSpec):
    """The accumulators of the elements of a batch, added up for each piece of a session: rows of (partition, lanes, end
    of the piece) at the first tick of the piece. The last column of the input is the gap. same_tick: whether only
    elements of one tick are a piece, where sessions are bounded or have a budget."""

    plan: AggregateLayout
    same_tick: bool


@dataclass(frozen=True)
class GroupedSessionsSpec(BudgetedSpec):
    """The aggregates of sessions at their end, from pieces.

    Args:
        types: of the rows of the input.
        group: the positions of the group's columns in (partition, begin, end).
        finished: the result has the values of aggregates; else accumulator rows, which further grouping adds up.
        budget: of the sessions that go on.
    """

    plan: AggregateLayout
    types: tuple[pa.DataType, ...]
    partition: int
    group: tuple[int, ...]
    at_most: int | None
    finished: bool
    budget: StretchBudget | None = None

    def describe(self) -> Mapping[str, Parameter]:
        found: dict[str, Parameter] = {"state": "accumulators of sessions that go on"}
        found = found if self.at_most is None else {**found, "at most": Ticks(self.at_most)}
        return found if self.budget is None else {**found, **self.budget.describe()}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (one,) = inputs
        sessions = one.values(tuple(range(self.partition)))
        lanes = 3 + self.plan.integers + self.plan.floats + 2 * len(self.plan.extremes)
        nbytes = SLOT + 8 * lanes + width(self.types[: self.partition])
        yield StatePart("sessions that go on", sessions, sessions * nbytes, made.content)
