"""The specs of aggregates over windows that slide: panes that several windows share, answers at
boundaries only, and frequent items."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import pyarrow as pa

from penstock.algebra.nodes.frequent import Measure
from penstock.algebra.nodes.r2s import RelationToStream
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.statistics import seconds
from penstock.expressions.sketches import draws
from penstock.physical.plan.aggregates import grouped_state
from penstock.physical.plan.spec import (
    Memory,
    Parameter,
    ReducingSpec,
    Spec,
    Ticks,
    has_one_form,
    queue_kinds,
    queue_name,
    with_queue,
)
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.plan.state.state_parts import SIGN, SLOT, TIMES, StateInput, StatePart, pending_ends, width
from penstock.physical.plan.step_choices import SynopsisKinds


@dataclass(frozen=True)
class PanesSpec(ReducingSpec):
    """Lane rows of one group and one validity become one: panes of a finer window are merged in a coarser one."""

    plan: AggregateLayout

    def panes(self, inputs: Sequence[StateInput]) -> AggregateLayout | None:
        return self.plan


@dataclass(frozen=True)
class IncrementalSlideSpec(Spec):
    """RSTREAM of a grouped aggregate at the boundaries align + k·slide: its rows there, emitted without its changes."""

    #: Groups leave with their rows.
    ending: ClassVar[tuple[()]] = ()
    varying: ClassVar[frozenset[str]] = frozenset({"slide", "align"})

    plan: AggregateLayout
    fifo: bool
    input_types: tuple[pa.DataType, ...]
    slide: int
    align: int
    listed: bool = False

    @property
    def divides(self) -> bool:
        return True

    @property
    def memory(self) -> Memory:
        return _sums_of_live(self.plan, self.input_types)

    @property
    def grouped(self) -> AggregateLayout | None:
        return self.plan

    @property
    def kinds(self) -> Mapping[str, SynopsisKinds]:
        return queue_kinds(self.fifo, self.listed)

    def with_kinds(self, kinds: Mapping[str, str]) -> Self:
        return with_queue(self, kinds)

    def describe(self) -> Mapping[str, Parameter]:
        return {"slide": Ticks(self.slide), "state": queue_name(self.fifo, self.listed)}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return grouped_state(self.plan, inputs[-1], self.input_types, made.content)


def _sums_of_live(plan: AggregateLayout, types: Sequence[pa.DataType]) -> Memory:
    """Return what sums remember of which nothing is retracted."""
    return Memory.LIVE if not plan.floats and has_one_form(types) else Memory.ROUNDED


@dataclass(frozen=True)
class PaneStoreSpec(Spec):
    """The panes of all windows that differ in length and slide alone, stored once. types: of lane rows."""

    holds_early: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True

    plan: AggregateLayout
    types: tuple[pa.DataType, ...]

    @property
    def memory(self) -> Memory:
        # The panes that its readers may read. In which order the rows of one came is a matter of rounding.
        return _sums_of_live(self.plan, self.types)

    def describe(self) -> dict[str, str]:
        return {"state": "panes, read by every window over them"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        # The size of the store depends on its windows: each of them declares its part.
        return ()


@dataclass(frozen=True)
class WindowSumsSpec(Spec):
    """As `IncrementalSlideSpec`, of sums alone over a window of `length` ticks; the panes are in a `PaneStoreSpec`."""

    reads: ClassVar[bool] = True
    holds_early: ClassVar[bool] = False
    varying: ClassVar[frozenset[str]] = frozenset({"length", "slide", "align"})

    plan: AggregateLayout
    length: int
    slide: int
    align: int

    @property
    def divides(self) -> bool:
        return True

    @property
    def memory(self) -> Memory:
        # Its sums follow from the panes, and it takes nothing back.
        return _sums_of_live(self.plan, ())

    def describe(self) -> Mapping[str, Parameter]:
        return {"length": Ticks(self.length), "slide": Ticks(self.slide), "state": "sums of the panes below"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (panes,) = inputs
        assert isinstance(made.node, RelationToStream) and made.node.domain is not None
        window = made.node.input.inputs[0]
        # Sums are restarted regularly: panes are stored until no such restart needs them.
        kept = seconds(self.length + -(-self.length // self.slide) * self.slide, made.node.domain)
        rows = panes.expected.rate * kept
        lanes = self.plan.integers + self.plan.floats
        nbytes = rows * (TIMES + 8 * lanes + width(panes.types))
        yield StatePart("panes, shared with other windows", rows, nbytes, replace(window.boundedness, length=kept))
        groups = panes.values(self.plan.group)
        yield StatePart("sums of groups", groups, groups * (SLOT + 8 * lanes), made.node.input.boundedness)


@dataclass(frozen=True)
class RecomputedSlideSpec(Spec):
    """As `IncrementalSlideSpec`, over windows with few overlaps: each boundary is recomputed. timed: of windows in
    time; else the numbers of elements are time, so there is none before the first."""

    holds_early: ClassVar[bool] = False
    varying: ClassVar[frozenset[str]] = frozenset({"slide", "align"})

    plan: AggregateLayout
    slide: int
    align: int
    timed: bool

    def describe(self) -> Mapping[str, Parameter]:
        return {"slide": Ticks(self.slide), "state": "panes of boundaries to come"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        return pending_ends(inputs[0], "panes of boundaries to come")


#: How many times as many items a queue holds as are different, while the rows of a pane arrive.
_REPEATED = 1.25


class FrequentRule(enum.IntEnum):
    """What the count of an item is compared with: δ, a number, a fraction of all counts of the window."""

    DELTA = 0
    NUMBER = 1
    SHARE = 2


@dataclass(frozen=True)
class FrequentCandidatesSpec(Spec):
    """The first `keep` items of each pane in this shard, with the sum of all. per: positions among the group columns;
    plan: of the accumulator rows, with one call."""

    lists_items: ClassVar[bool] = True

    plan: AggregateLayout
    per: tuple[int, ...]
    keep: int

    @property
    def memory(self) -> Memory:
        return Memory.LIVE

    def describe(self) -> dict[str, str]:
        return {"of each pane": f"{self.keep} items", "state": "panes ahead of the heartbeat"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (rows,) = inputs
        # Chunks of the queue that have not been merged yet repeat some of them.
        items = min(rows.expected.rate * rows.elements * max(1.0, rows.period), _REPEATED * self._items(rows))
        bound = Boundedness(Grade.BOUNDED, "the items of a pane") if rows.period else rows.content
        yield StatePart("items of the next boundary", items, items * (TIMES + SIGN + width(rows.types)), bound)

    def passed_on(self, inputs: Sequence[StateInput], made: StateInput) -> StateInput:
        (rows,) = inputs
        if not rows.period:
            return made
        listed = min(self._items(rows), self.keep * rows.values(tuple(self.plan.group[i] for i in self.per)))
        distinct = (
            *(rows.expected.distinct[i] for i in self.plan.group),
            *made.expected.distinct[len(self.plan.group) :],
        )
        return replace(
            made, expected=Estimate(listed / rows.period, rows.expected.length, distinct), period=rows.period
        )

    def _items(self, rows: StateInput) -> float:
        """Return how many different items a pane is expected to have."""
        of_pane = rows.expected.rate * rows.elements * rows.period
        return draws.of_names(of_pane, rows.expected.combinations(self.plan.group))


@dataclass(frozen=True)
class FrequentItemsSpec(Spec):
    """The frequent items of the live lists. keys: types of the group columns; per: positions among them; k: items of a
    list; number: the pair (`kernels/wide.py`) or the numerator and denominator of the rule; type: of the measures."""

    keys: tuple[pa.DataType, ...]
    per: tuple[int, ...]
    k: int
    thesis: bool
    rule: FrequentRule
    number: tuple[int, int]
    possibly: bool
    measures: tuple[Measure, ...]
    type: pa.DataType

    @property
    def memory(self) -> Memory:
        return Memory.LIVE if has_one_form(self.keys) else Memory.HISTORY

    def describe(self) -> dict[str, str]:
        return {"lists": f"{self.k} items of each pane", "state": "lists of live panes, calendar queue"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (rows,) = inputs
        # Which items are frequent changes from pane to pane, as it does in draws.
        items = (
            draws.of_names(rows.size, rows.expected.combinations(range(len(self.keys)))) if rows.period else made.size
        )
        yield StatePart("listed items", items, items * (SLOT + 56 + width(self.keys)), made.content)
        yield StatePart("items of live lists", rows.size, rows.size * (TIMES + 88), rows.content)
