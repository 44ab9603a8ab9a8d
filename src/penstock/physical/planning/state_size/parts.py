"""The state of one step of a plan, as it is estimated before the run."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algebra.properties.boundedness import Boundedness, together
from penstock.physical.plan.plan import Step
from penstock.physical.plan.state.state_parts import StatePart


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
        """Return the seconds of its time after which it has its full size; None where it may never have."""
        return self.bound.length
