"""Values that the estimate of a plan's state is made of: inputs of operators, parts of their state, state by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.properties.boundedness import Boundedness, together
from penstock.algebra.properties.cardinality import Estimate
from penstock.physical.plan.plan import Step
from penstock.physical.planning.aggregate_layout import AggregateLayout


@dataclass(frozen=True)
class StateInput:
    """An input of an operator. lanes: the layout of its accumulators where its rows are panes."""

    node: Algebra
    content: Boundedness
    expected: Estimate
    types: tuple[pa.DataType, ...]
    lanes: AggregateLayout | None = None

    @property
    def size(self) -> float:
        """Rows that hold at one time."""
        return self.expected.size

    def values(self, columns: Sequence[int]) -> float:
        """Different values of some columns among them."""
        found = 1.0
        for column in columns:
            found *= self.expected.distinct[column] if column < len(self.expected.distinct) else self.size
        return max(1.0, min(self.size, found))


@dataclass(frozen=True)
class StatePart:
    """State of one kind that an operator keeps. what: its description for users."""

    what: str
    rows: float
    nbytes: float
    bound: Boundedness


@dataclass(frozen=True)
class StepState:
    """The state of one step, all shards together."""

    step: Step
    parts: tuple[StatePart, ...]

    @property
    def name(self) -> str:
        return f"{self.step.id} {self.step.spec.title}"

    @property
    def rows(self) -> float:
        return sum(part.rows for part in self.parts)

    @property
    def nbytes(self) -> float:
        return sum(part.nbytes for part in self.parts)

    @property
    def bound(self) -> Boundedness:
        return together(part.bound for part in self.parts)

    @property
    def horizon(self) -> float | None:
        """Seconds of its time after which it has its full size; None where it may never have."""
        return self.bound.length
