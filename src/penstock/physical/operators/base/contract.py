"""The contract between physical operators and the executor.

In each round the executor passes an operator all input available (`process`, any number of times), then advances the
heartbeat (`advance`). The output of an operator over all rounds depends only on the elements and the last heartbeat,
never on how the input was cut into rounds. Elements may have a ts beyond the heartbeat; an operator that needs order
keeps them until the heartbeat reaches it. After `advance(moment)`, no element with ts ≤ moment.heartbeat arrives.

An operator whose results at an instant depend on all elements of that instant waits for the heartbeat. An operator
that retracts nothing when a further element of the instant arrives (`Spec.waits` is False) processes elements up to
`moment.frontier`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.figures.figure import FigureValues
from penstock.physical.decisions import NO_DECISIONS, Decisions
from penstock.physical.elements import Elements
from penstock.physical.plan.plan import Plan
from penstock.physical.synopses.contract import Synopsis
from penstock.storage.documents import Document, Json


@dataclass(frozen=True)
class Moment:
    """How far time is known to an operator.

    heartbeat: every element with ts ≤ heartbeat has been passed to `process`; start: the first instant of the
    operator's inputs, None while it is unknown; shard: the number of this shard; open: time continues after the
    heartbeat, so elements of the instant after it may have arrived already; decided: what was decided before the round
    for the queries of the operator, where its spec follows decisions (`Spec.follows_decisions`)."""

    heartbeat: int
    start: int | None
    shard: int = 0
    open: bool = False
    decided: Decisions = NO_DECISIONS

    @property
    def frontier(self) -> int:
        """The largest ts that an operator may emit which does not wait for its instants to be complete."""
        return self.heartbeat + self.open


@dataclass(frozen=True)
class Rejection:
    """An update that could not be applied to its relation, or an element that breaks a promise that is CHECKED.

    Args:
        ts: its timestamp in ticks.
        record: its columns, as text.
        element: of an element, the same for those that are equal to the bit.
        order: of an element, a number that rises with the promises in order of declaration.
        step: the number of the step that rejected it.
    """

    source: str
    ts: int
    record: str
    reason: str
    element: str = ""
    order: int = 0
    step: int = 0


@dataclass(frozen=True)
class JointAdvance:
    """How several operators advance in one call.

    Args:
        emitted: by position, the output of those that advance; the others are to advance alone.
        settle: gives those the state that follows. What can fail is computed before: if this fails, the state of each
            may be neither the one nor the other.
    """

    emitted: Mapping[int, list[Elements]]
    settle: Callable[[], None]


class Operator:
    """One operator in one shard. Ports are numbered by input."""

    def process(self, port: int, elements: Elements) -> list[Elements]:
        """Accept `elements` at input `port`; return the output that is already final."""
        return []

    def advance(self, moment: Moment) -> Iterable[Elements]:
        """Advance the heartbeat to `moment.heartbeat`; return the output that follows. Long output may be a
        generator of batches; the caller exhausts it before it calls any other method of the operator."""
        return []

    def portion(self, moment: Moment, rows: int) -> int:
        """Return up to which instant the operator advances next, where it should emit about `rows` rows at most:
        `moment.heartbeat`, or an earlier instant, but one that is later than that to which it has advanced.

        Only for specs with `Spec.divides`; all input has been passed to `process`. What it emits follows from the
        elements and the instants alone, so dividing an advance does not change the output."""
        return moment.heartbeat

    def joint_key(self) -> Hashable | None:
        """Return what the operators of one class have in common that can advance in one call; None where it advances
        alone."""
        return None

    @staticmethod
    def advance_jointly(operators: Sequence[Any], moments: Sequence[Moment]) -> JointAdvance:
        """Compute how some operators with one joint key advance, by what costs less than a call for each of them.

        Their state stays as it is, whether this fails or not: what they have received is still to be processed.

        Args:
            moments: of each operator; they have one heartbeat.
        """
        return JointAdvance({}, lambda: None)

    def attach(self, inputs: Sequence[Operator]) -> None:
        """Receive the operators of the inputs, in this stage and shard, whose state this operator reads in place.

        Called before any other method, if `Spec.reads` is set, and again, after `detach`, when the plan has others in
        their places; the operator's own state then remains. In each round the inputs advance before this operator does.
        When a reader has been attached or detached, what is read is advanced once, also where nothing has changed."""

    def detach(self) -> None:
        """Stop reading the state of others in place: the plan has no such step any more, or another one is read."""

    def rejections(self) -> list[Rejection]:
        """Return the updates rejected in the rounds since the last call; each is returned once."""
        return []

    def figures(self) -> FigureValues:
        """Return the figures of the operator, a fixed number of them, for EXPLAIN ANALYZE and metrics."""
        return {}

    def synopses(self) -> Mapping[str, Synopsis]:
        """Return the state to keep, by a name that is unique in the operator."""
        return {}

    def marks(self) -> Document:
        """Return small state that is not in the synopses, as plain JSON."""
        return {}

    def restore_marks(self, marks: Document) -> None:
        """Restore what `marks` returned."""


#: Static relations by name.
Tables = Mapping[str, Elements]


class InnerRun(Protocol):
    """A plan that runs inside of an operator, on the operator's own instants."""

    def run(self, given: Mapping[str, Elements], reached: int) -> list[Elements]:
        """Return the answers at instants up to `reached`. given: new elements by source."""

    def synopses(self) -> dict[str, Synopsis]:
        """Return the state of the plan's operators, by names that are unique in the plan."""

    def figures(self) -> FigureValues:
        """Return the figures of the operators of the plan as those of one."""

    def marks(self) -> Sequence[Json]:
        """Return small state beside the synopses, as plain JSON."""

    def restore_marks(self, marks: Sequence[Json]) -> None:
        """Restore what `marks` returned."""


#: Start a plan inside of an operator. The executor provides it, so that operators do not import it.
RunPlan = Callable[[Plan, Tables], InnerRun]


def refuse_inner_plan(plan: Plan, tables: Tables) -> InnerRun:
    """Stand in for a `RunPlan` where no operator has a plan inside of it."""
    raise AssertionError("no executor was passed that runs inner plans")


@dataclass(frozen=True)
class OperatorContext:
    """What an operator may need beside its spec. shards: how many there are."""

    tables: Tables
    shards: int
    run_plan: RunPlan = refuse_inner_plan
