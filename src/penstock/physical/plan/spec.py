"""What every spec of a physical operator says of it; the specs themselves are in the files beside this one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from penstock.physical.plan.state import StateInput, StatePart, all_rows
from penstock.physical.planning.aggregate_layout import AggregateLayout


@dataclass(frozen=True)
class Spec:
    """What one operator does. Specs of operators with expirations in their state have a field `listed`: whether it lies
    in a list that is looked through (`strategies.py`) instead of the structure that fits the update pattern."""

    #: Whether the operator reads the state of its inputs where it lies, and not what they tell; they share its stage.
    reads: ClassVar[bool] = False
    #: Whether elements ahead of the heartbeat wait in the operator until it has passed them.
    holds_early: ClassVar[bool] = True
    #: Whether elements behind the operator are as far ahead of the heartbeat as before it.
    forwards_early: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        """Whether the operator emits results of an instant only when all elements of it have come. False where what it
        emits for some of them holds whatever else comes at the instant: it then passes on elements at the frontier."""
        return True

    @property
    def title(self) -> str:
        return type(self).__name__.removesuffix("Spec")

    @property
    def static_tables(self) -> tuple[str, ...]:
        """The names of the static relations that the operator reads."""
        return ()

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        """Return the parts of state that the operator keeps of its inputs, and what bounds each. made: its result. By
        default all rows of the inputs."""
        return [all_rows(one, "rows of the input") for one in inputs]

    def panes(self, inputs: Sequence[StateInput]) -> AggregateLayout | None:
        """Return the layout of the accumulators where the result are panes: rows of one group and interval are one."""
        return None

    def describe(self) -> dict[str, str]:
        """Parameters for explain."""
        return {}

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        """Return further parameters for explain, which name columns. inputs, made: the names of the columns of the
        inputs and of the result."""
        return {}


@dataclass(frozen=True)
class PassingSpec(Spec):
    """An operator that looks at every element, or every pair of elements, by itself and emits results as they come. It
    keeps nothing, unless it says otherwise."""

    holds_early: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        return False

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return ()


def queue_name(fifo: bool, listed: bool) -> str:
    """Return what explain calls the queue of expirations that `synopses.queues.make_queue` makes."""
    return "list" if listed else "FIFO" if fifo else "calendar queue"
