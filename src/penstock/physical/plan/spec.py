"""The base classes of the specs of physical operators; the specs themselves are in the files beside this one."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self, TypeAlias, TypeVar

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.algebra.nodes.summary_definition import SummaryDefinition
from penstock.expressions.nodes import Expression
from penstock.physical.elements import Elements
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.plan.state.state_parts import StateInput, StatePart, all_rows
from penstock.physical.plan.step_choices import SynopsisKinds
from penstock.types import TimeDomain

#: Returns the rows with ticks in (after, until] that a check has rejected; None for none.
RecordedRejections: TypeAlias = Callable[[int, int], Elements | None]
#: Returns the verdicts of a check by the names of the stream and of the promise.
Verdicts: TypeAlias = Callable[[str, str], RecordedRejections]


@dataclass(frozen=True)
class Ticks:
    """A length of time among the parameters for EXPLAIN, which shows it in the units of the plan's time domain."""

    count: int

    def show(self, domain: TimeDomain | None) -> str:
        """Return the length: as an interval of the calendar, such as `1 MINUTE`, else in ticks."""
        calendar = domain is not None and domain.calendar
        return domain.show_length(self.count) if calendar and domain else f"{self.count} ticks"


#: A parameter for EXPLAIN; parts of a tuple are separated by commas.
Parameter: TypeAlias = str | Ticks | tuple[str | Ticks, ...]


class Feed(enum.Enum):
    """What the ingest feeds into an operator."""

    ELEMENTS = "elements"
    #: Those that a punctuation rejects too, valid at no instant.
    ACCEPTED = "accepted"
    PUNCTUATIONS = "punctuations"


class Memory(enum.Enum):
    """What of the past the later output of an operator depends on, to the bit. Operators of two queries that began at
    different times become one where that is the same for both (`planning/sharing.py`)."""

    #: Nothing: the output for a batch follows from this batch.
    NOTHING = "nothing"
    #: The live tuples of its inputs, and the heartbeat: whatever was there before has left no trace, neither in what it
    #: keeps nor in how the rows that are valid now were emitted.
    LIVE = "the live tuples"
    #: The same but for the rounding of floating point; nothing that it emits is retracted.
    ROUNDED = "the live tuples, rounded"
    #: What came of its source since something was declared of it: all queries have the same, whenever they begin.
    DECLARED = "the source since a declaration"
    #: More than that.
    HISTORY = "its history"


@dataclass(frozen=True)
class Spec:
    """The description of one operator. Specs of operators with expirations in their state have a field `listed`:
    whether it is a list that is scanned (`strategies.py`) instead of the structure that fits the update pattern."""

    #: Whether the operator reads the state of its inputs in place, not their output; they share its stage.
    reads: ClassVar[bool] = False
    #: Whether it keeps rows for operators that read it in place, each those of its own window, and emits nothing. Two
    #: of them become one if one has all rows that the readers of both need (`planning/sharing.py`).
    keeps_rows: ClassVar[bool] = False
    #: Whether elements ahead of the heartbeat wait in the operator until it has passed them.
    holds_early: ClassVar[bool] = True
    #: Whether it cuts panes to lists of items, which the next operator keeps.
    lists_items: ClassVar[bool] = False
    #: Whether elements behind the operator are as far ahead of the heartbeat as before it.
    forwards_early: ClassVar[bool] = False
    #: Whether the output for a batch of its one input follows from this batch alone, and time adds nothing: rows then
    #: pass through the operator as soon as they are produced.
    streams_batches: ClassVar[bool] = False
    #: Whether each row that it emits has the times of a row that came, and nothing else depends on when that ends. So a
    #: window may as well be applied behind it (`planning/late_windows.py`).
    keeps_times: ClassVar[bool] = False
    #: Whether a result does not end by itself when its row leaves the window, but by a negative tuple.
    takes_back: ClassVar[bool] = False
    #: The fields whose values are names that users may change: no part of the identity of the operator's state.
    names_only: ClassVar[frozenset[str]] = frozenset()
    #: The fields that say how long rows count, at which grain, or which of them: operators that differ in nothing else
    #: are nearly the same (`EXPLAIN SHARING`).
    varying: ClassVar[frozenset[str]] = frozenset()
    #: Whether the whole operator consists of no more than that, so that a plan without it is nearly the same.
    only_varies: ClassVar[bool] = False

    @property
    def divides(self) -> bool:
        """Return whether it may emit far more rows than it received, at many instants: an advance is then divided, and
        what exceeds its part of `max_batch_answers` in a round is emitted in later ones (`Operator.portion`)."""
        return False

    def judged(self, verdicts: Verdicts) -> Self:
        """Return the operator over a past that checks of promises have judged already."""
        return self

    @property
    def summary_parts(self) -> Mapping[str, SummaryDefinition]:
        """Return the summaries of streams that it keeps, by the name of the operator's synopsis."""
        return {}

    @property
    def scanned(self) -> Source | None:
        """Return the source whose rows the ingest feeds into this operator; None for one that has inputs."""
        return None

    @property
    def feed(self) -> Feed:
        """Return what of `scanned` the operator receives."""
        return Feed.ELEMENTS

    @property
    def scanned_columns(self) -> tuple[int, ...]:
        """Return the positions of the declared columns of `scanned` that the operator receives."""
        return ()

    @property
    def condition(self) -> Expression | None:
        """Return the condition of the rows that the operator passes on, where it is a selection and nothing else."""
        return None

    @property
    def answered(self) -> str | None:
        """Return the name of the query whose answer the rows of this operator are; None for all but the root of a
        query."""
        return None

    @property
    def waits(self) -> bool:
        """Return whether the operator emits results of an instant only when all elements of it have arrived. False
        where the results for some of them are valid whatever else arrives at the instant: it then passes on elements at
        the frontier."""
        return True

    @property
    def memory(self) -> Memory:
        """Return what of the past its later output depends on: its whole history unless a subclass needs less."""
        return Memory.HISTORY

    @property
    def sets_ends_alone(self) -> bool:
        """Return whether the operator only decides until when its input is valid. So what keeps rows for windows of any
        length is the same behind it (`identity.py`)."""
        return False

    @property
    def cores(self) -> float | None:
        """Return the cores that the queries of the operator may use, None for any."""
        return None

    @property
    def shares_state_limit(self) -> bool:
        """Return whether the operator holds at most its part of `state_limit`."""
        return False

    @property
    def drops_values(self) -> bool:
        """Return whether the operator drops values by their hashes, below thresholds that others may read in place."""
        return False

    @property
    def is_granted_units(self) -> bool:
        """Return whether each round grants the operator units of work."""
        return False

    @property
    def follows_decisions(self) -> bool:
        """Return whether the operator follows decisions (`Moment.decided`)."""
        return False

    def reads_port(self, port: int) -> bool:
        """Return whether the operator reads the state of the input `port` in place."""
        return self.reads

    def read_length(self, port: int) -> int | None:
        """Return the length in ticks of the window whose rows the operator reads in the state of the input `port`."""
        return None

    @property
    def title(self) -> str:
        return type(self).__name__.removesuffix("Spec")

    @property
    def static_tables(self) -> tuple[str, ...]:
        """Return the names of the static relations that the operator reads."""
        return ()

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        """Return the parts of state that the operator stores of its inputs, and what bounds each. made: its result. By
        default all rows of the inputs."""
        return [all_rows(one, "rows of the input") for one in inputs]

    def panes(self, inputs: Sequence[StateInput]) -> AggregateLayout | None:
        """Return the layout of the accumulators where the results are panes: rows of one group and interval are one."""
        return None

    @property
    def grouped(self) -> AggregateLayout | None:
        """Return the layout of the groups that it stores, None where it stores none."""
        return None

    def passed_on(self, inputs: Sequence[StateInput], made: StateInput) -> StateInput:
        """Return the rows that come out, where they are others than what `made.node` is estimated to compute."""
        return made

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        """Return the parts of its state for which there is more than one kind of synopsis, by name."""
        return {}

    def with_kinds(self, kinds: Mapping[str, str]) -> Self:
        """Return the operator with other kinds of synopses; its answers are the same. kinds: by part, some of those
        that are possible."""
        return self

    def describe(self) -> Mapping[str, Parameter]:
        """Return the parameters for EXPLAIN."""
        return {}

    def expressions_text(self, inputs: Sequence[Sequence[str]], made: Sequence[str]) -> dict[str, str]:
        """Return further parameters for EXPLAIN, which name columns. inputs, made: the names of the columns of the
        inputs and of the result."""
        return {}


@dataclass(frozen=True)
class PassingSpec(Spec):
    """An operator that processes every element, or every pair of elements, by itself and emits results at once. It is
    stateless, unless it overrides `state`."""

    holds_early: ClassVar[bool] = False

    @property
    def waits(self) -> bool:
        return False

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return ()


@dataclass(frozen=True)
class ReducingSpec(Spec):
    """An operator that makes fewer rows of those of a batch, each as far ahead of the heartbeat as before, and keeps
    none: what reads it adds them up further."""

    holds_early: ClassVar[bool] = False
    forwards_early: ClassVar[bool] = True

    @property
    def memory(self) -> Memory:
        return Memory.NOTHING

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return ()


def has_one_form(types: Iterable[pa.DataType]) -> bool:
    """Return whether equal values of each of these types are equal to the bit. Of floating point 0.0 equals -0.0, so
    which of them a group shows depends on which came first."""
    return all(_has_one_form(one) for one in types)


def _has_one_form(one: pa.DataType) -> bool:
    if pa.types.is_nested(one):
        return has_one_form(one.field(i).type for i in range(one.num_fields))
    return not pa.types.is_floating(one)


#: The part of the state that is a queue of what is to expire.
LIVE = "live"


def queue_kinds(fifo: bool, listed: bool) -> dict[str, SynopsisKinds]:
    """Return the kinds of the queue of expirations that `synopses.queues.make_queue` makes. fifo: whether what it gets
    expires in order of arrival."""
    possible = ("FifoQueue", "CalendarQueue", "ListQueue") if fifo else ("CalendarQueue", "ListQueue")
    return {LIVE: SynopsisKinds("ListQueue" if listed else possible[0], possible)}


SpecT = TypeVar("SpecT", bound=Spec)


def with_queue(spec: SpecT, kinds: Mapping[str, str]) -> SpecT:
    """Return a spec, which has a field `listed`, with another kind of the queue of expirations."""
    if LIVE not in kinds:
        return spec
    changes: dict[str, bool] = {"listed": kinds[LIVE] == "ListQueue"}
    if kinds[LIVE] == "CalendarQueue" and any(one.name == "fifo" for one in fields(spec)):
        changes["fifo"] = False
    return replace(spec, **changes)


def queue_name(fifo: bool, listed: bool) -> str:
    """Return the name in EXPLAIN of the queue of expirations that `synopses.queues.make_queue` makes."""
    return "list" if listed else "FIFO" if fifo else "calendar queue"
