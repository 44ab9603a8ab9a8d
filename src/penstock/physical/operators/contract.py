"""What every physical operator promises to the executor.

In each round the executor gives an operator all input there is (`process`, any number of times), then tells it how
far time is known (`advance`). What an operator returns over all rounds depends on the elements and the last heartbeat
alone, never on how they were cut into rounds. Elements may carry a ts beyond the heartbeat; an operator that needs
order keeps them until it comes. After `advance(moment)`, no element with ts ≤ moment.heartbeat is given any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.physical.elements import Elements
from penstock.physical.synopses.contract import Synopsis


@dataclass(frozen=True)
class Moment:
    """How far time is known to an operator. heartbeat: every element with ts ≤ heartbeat has been given;
    start: the first instant of the operator's inputs, None while none is known; shard: which shard this is."""

    heartbeat: int
    start: int | None
    shard: int = 0


@dataclass(frozen=True)
class Rejection:
    """An update that its relation could not take: whose it is, its timestamp in ticks, its columns, and why."""

    source: str
    ts: int
    record: str
    reason: str


class Operator:
    """One operator in one shard. Ports are numbered by input."""

    def process(self, port: int, elements: Elements) -> list[Elements]:
        """Take `elements`; return what can be said already."""
        return []

    def advance(self, moment: Moment) -> Iterable[Elements]:
        """Time has come to `moment.heartbeat`; return what follows. What is long may be told in pieces that are made as
        they are taken; all are taken before anything else is asked of the operator."""
        return []

    def attach(self, inputs: Sequence[Operator]) -> None:
        """Told once, before anything else, where `Spec.reads` says so: the operators of the inputs, in this stage and
        shard, whose state this one reads where it lies. In a round they have advanced before it does."""

    def rejections(self) -> list[Rejection]:
        """What the rounds since the last call had to reject; told once."""
        return []

    def synopses(self) -> Mapping[str, Synopsis]:
        """The state to keep, by a name that is unique in the operator."""
        return {}

    def marks(self) -> dict[str, Any]:
        """Small state beside the synopses, as plain JSON."""
        return {}

    def restore_marks(self, marks: dict[str, Any]) -> None:
        """Take back what `marks` gave."""
