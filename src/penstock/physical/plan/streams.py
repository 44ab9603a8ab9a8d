"""The specs of relation-to-stream operators and of changes."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import pyarrow as pa

from penstock.algebra.nodes.r2s import StreamKind
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.statistics import seconds
from penstock.physical.plan.spec import Memory, PassingSpec, Spec, has_one_form, queue_kinds, with_queue
from penstock.physical.plan.state.state_parts import (
    DUE,
    TIMES,
    StateInput,
    StatePart,
    all_rows,
    pending_ends,
    slots,
    width,
)
from penstock.physical.plan.state.time_endings import TimeEnding, shown_endings, until_final
from penstock.physical.plan.step_choices import SynopsisKinds


class StreamMode(enum.Enum):
    """How an RSTREAM is evaluated."""

    BOUNDARIES = "boundaries"
    TICKS = "ticks"
    INSTANTS = "instants"


@dataclass(frozen=True)
class ChangesSpec(Spec):
    """ISTREAM, DSTREAM or (kind None) all changes. netted: equal tuples never come and go at one instant; grows: the
    relation emits no negative tuples; taken_back: its tuples end by negative tuples alone; both as derived from the
    plan below."""

    kind: StreamKind | None
    types: tuple[pa.DataType, ...]
    netted: bool
    fifo: bool
    listed: bool = False
    grows: bool = field(default=False, metadata={"transparent": True})
    taken_back: bool = field(default=False, metadata={"transparent": True})

    @property
    def waits(self) -> bool:
        return not (self.kind is StreamKind.ISTREAM and self.grows)

    @property
    def memory(self) -> Memory:
        return Memory.LIVE if has_one_form(self.types) else Memory.HISTORY

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        return queue_kinds(self.fifo, self.listed)

    def with_kinds(self, kinds: Mapping[str, str]) -> Self:
        return with_queue(self, kinds)

    def describe(self) -> dict[str, str]:
        netting = "skipped (equal tuples never come and go at one instant)" if self.netted else "yes"
        found = {"kind": self.kind.value if self.kind else "changes", "netting": netting}
        return found | ({"state": "list"} if self.listed else {})

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        emits_ends = not (self.netted and self.kind is StreamKind.ISTREAM) and not self.taken_back
        return pending_ends(inputs[0], "rows with a pending expiration") if emits_ends else ()


@dataclass(frozen=True)
class DistinctChangesSpec(Spec):
    """ISTREAM, DSTREAM or (kind None) all changes of a DISTINCT whose input's expirations are known. ending: as of
    `DistinctSpec`."""

    kind: StreamKind | None
    types: tuple[pa.DataType, ...]
    ending: tuple[TimeEnding, ...] = ()

    @property
    def waits(self) -> bool:
        return self.kind is not StreamKind.ISTREAM

    @property
    def memory(self) -> Memory:
        # Of a tuple that is there, the latest end of its live copies; it was emitted when it came and is when it goes,
        # not in pieces.
        return Memory.LIVE if has_one_form(self.types) else Memory.HISTORY

    def describe(self) -> dict[str, str]:
        return {"kind": self.kind.value if self.kind else "changes", "state": "δ*", **shown_endings(self.ending)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return until_final([slots(inputs[0], 2, "different rows", DUE)], self.ending, "different rows")


@dataclass(frozen=True)
class RStreamSpec(Spec):
    """RSTREAM. Port 0 is the relation; in mode `instants`, further ports have the elements whose arrival is an
    evaluation instant; changes: changes of the relation are evaluation instants too, and, where it begins with them,
    its beginning."""

    types: tuple[pa.DataType, ...]
    mode: StreamMode
    slide: int = 1
    align: int = 0
    strict: bool = False
    begins: bool = True
    changes: bool = True

    @property
    def divides(self) -> bool:
        return True

    @property
    def waits(self) -> bool:
        return self.strict or self.mode is not StreamMode.TICKS

    @property
    def memory(self) -> Memory:
        return Memory.LIVE if has_one_form(self.types) else Memory.HISTORY

    def describe(self) -> dict[str, str]:
        return {"evaluated": self.mode.value}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return [all_rows(inputs[0], "the relation")]


@dataclass(frozen=True)
class IndividualResultsSpec(PassingSpec):
    """The stream of all results of a relation as they begin."""


@dataclass(frozen=True)
class ShortLivesSpec(Spec):
    """The elements without a boundary align + k·slide in their validity, at the boundary behind them."""

    holds_early: ClassVar[bool] = False

    slide: int
    align: int

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return until_boundary(self.slide, inputs[0], made)


@dataclass(frozen=True)
class ShortChangesSpec(Spec):
    """As ShortLives, of a relation's netted changes."""

    holds_early: ClassVar[bool] = False

    slide: int
    align: int
    types: tuple[pa.DataType, ...]

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        yield slots(inputs[0], 4, "different rows with counts")
        yield from until_boundary(self.slide, inputs[0], made)


@dataclass(frozen=True)
class RestoredInsertionsSpec(Spec):
    """The insertions of port 0, each at the boundary align + k·slide at or behind it. What port 1 emits between
    boundaries is emitted there, in place of the same insertion of its instant."""

    holds_early: ClassVar[bool] = False

    slide: int
    align: int

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return until_boundary(self.slide, inputs[0], made)


@dataclass(frozen=True)
class RoundedSpec(PassingSpec):
    """The elements with both ends put off to the next boundary align + k·slide."""

    slide: int
    align: int


def until_boundary(slide: int, one: StateInput, made: StateInput) -> Iterable[StatePart]:
    """Return the results that are kept until the next boundary of a RESTORE every `slide` ticks."""
    length = seconds(slide, made.node.domain) if made.node.domain else 0.0
    rows = one.expected.rate * length
    bound = Boundedness(Grade.BOUNDED, "the SLIDE of RESTORE", length=length)
    yield StatePart("results until their boundary", rows, rows * (width(one.types) + TIMES), bound)
