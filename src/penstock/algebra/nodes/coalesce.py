"""Coalescing [semantics 4.5]: of rows that are equal but for their periods, the maximal periods that these cover.

The last two columns of the input are the begin and the end of a period `[begin, end)` in ticks, BIGINT; an end that is
never reached is END. The other columns are the value. A row without a period (NULL, or not begin < end) is left out.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt

from penstock.algebra.nodes.base import (
    ColumnPruning,
    Delay,
    Keys,
    Pruned,
    column_labels,
    is_static,
    operators,
)
from penstock.algebra.nodes.base.checks import need_period, need_relations, refused
from penstock.algebra.nodes.base.fields import Align, Between, Ticks, TicksOrNone, in_data
from penstock.algebra.nodes.negative_tuples import NegativeTuples
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.shed import StretchBudget
from penstock.algebra.nodes.stretch_chances import BudgetedRows
from penstock.algebra.nodes.until_next import UntilNext
from penstock.algebra.nodes.windows import Window
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs, everything
from penstock.algebra.properties.statistics import Statistics, seconds
from penstock.algebra.properties.update_pattern import Pattern
from penstock.types import END


class Begins(enum.Enum):
    """What is known of the begins of the periods of elements, by which a strategy is chosen and ends become final."""

    #: The begin is the timestamp of the element, and every period has the same length.
    FIXED = "timestamps, one length"
    #: The begin is the timestamp of the element.
    TIMESTAMP = "timestamps"
    #: The period is the granule of the element, between two boundaries of SLIDE.
    GRANULE = "granules"
    #: The begin is the timestamp of the element; the end comes with the next one, and is open until then.
    UNTIL_NEXT = "timestamps, until the next element"
    #: Anything.
    ANY = "any"


@dataclass(frozen=True)
class Closing:
    """When a stretch that ends at `end` is known to grow no more: at the first boundary align + k·`slide` (without a
    slide: the first instant) that is not before end + `later`. A granule that ends at a boundary may still be touched
    by the one that becomes visible there, so `later` is 1 for these. longest: the length of a period, None where it
    depends on the element."""

    slide: Ticks | None = None
    align: Align = 0
    later: Annotated[int, Between(0, 1)] = 0
    longest: TicksOrNone | None = None

    def closes(self, end: int) -> int:
        """Return the instant from which on a stretch that ends at `end` is closed; END where it never is."""
        if end >= END - self.later:
            return END
        from_here = end + self.later
        if self.slide is None:
            return from_here
        return min(END, self.align - (self.align - from_here) // self.slide * self.slide)

    def instants(self, ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the same of many ends."""
        later = np.minimum(ends, END - self.later) + self.later
        if self.slide is not None:
            later = np.minimum(self.align - (self.align - later) // self.slide * self.slide, END)
        return np.where(ends >= END - self.later, END, later)

    @property
    def delay(self) -> Delay:
        """Return how long after an element its stretch is closed at the latest."""
        return Delay(None if self.longest is None else self.longest + self.later, self.slide, self.align)

    def last_ends(self, ticks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the same as `last_end` of many ticks."""
        if self.slide is not None:
            ticks = (ticks - self.align) // self.slide * self.slide + self.align
        return ticks - self.later

    def last_end(self, tick: int) -> int:
        """Return the last end of a stretch that is closed at `tick`."""
        if self.slide is not None:
            tick = (tick - self.align) // self.slide * self.slide + self.align
        return tick - self.later


@dataclass(frozen=True, eq=False)
class Coalesce(BudgetedRows):
    """`coal_C(R)(τ)`: every value once for every maximal period that its rows in R(τ) cover, a set. Rows without a
    period are left out.

    begins: what is known of them; closing: when stretches are closed, None where they never are; only_closed: whether
    the others are left out; budget: of open stretches, where only closed ones are emitted and nothing leaves, or of
    runs of granules.
    """

    begins: Begins = Begins.ANY
    closing: Closing | None = None
    only_closed: bool = field(default=False, metadata=in_data("closed"))
    budget: StretchBudget | None = None

    def __post_init__(self) -> None:
        need_relations(self.inputs)
        need_period(self.input, "what is coalesced")
        if self.closing is not None and self.begins is Begins.ANY:
            raise refused("periods may begin at any time, so none is ever closed", "P0373")

    @property
    def closed(self) -> Closing | None:
        """Return when the stretches are closed that the relation has; None where it has all."""
        return self.closing if self.only_closed else None

    @property
    def granule_window(self) -> Window | None:
        """Return the window where the period of each row is the granule that ends when the row enters, and rows leave
        as many granules later, so that the rows of a value are runs of granules; None for any other."""
        below = self.input
        while isinstance(below, Select | Project | NegativeTuples):
            below = below.input
        if self.begins is not Begins.GRANULE or self.closed is not None or not isinstance(below, Window):
            return None
        if below.domain is None or below.slide is None or below.lifetime is None or below.lifetime % below.slide:
            return None
        return below

    @property
    def value(self) -> tuple[int, ...]:
        """Return the positions of the columns that are not the period."""
        return tuple(range(len(self.schema) - 2))

    @property
    def drawn_columns(self) -> tuple[int, ...]:
        return self.value

    @property
    def recorded_columns(self) -> tuple[int, ...]:
        # A row that is emitted once keeps its record of that instant.
        return (*self.value, len(self.value)) if self.emits_once else self.value

    @property
    def emits_once(self) -> bool:
        return self.closed is not None and self.in_order

    @property
    def in_order(self) -> bool:
        """Return whether periods begin in the order in which elements arrive, and none of them ever leaves: only the
        open stretches are state then."""
        return self.closing is not None and self.input.pattern is Pattern.MONOTONIC

    @property
    def pattern(self) -> Pattern:
        """MON of static rows, and of closed stretches where nothing leaves: no arrival undoes them. Else STR: an
        arrival replaces the stretches that it touches, an expiry cuts, splits or ends one."""
        if is_static(self.input) or (self.closed is not None and (self.in_order or self._loses_nothing)):
            return Pattern.MONOTONIC
        return Pattern.STRICT

    @property
    def _loses_nothing(self) -> bool:
        """Return whether elements stay after their period has ended. A stretch that has an end keeps it: what begins
        later does not touch it, and what was open at its end is part of it."""
        below = [node for node in operators(self.input) if isinstance(node, UntilNext)]
        return self.begins is Begins.UNTIL_NEXT and bool(below) and all(node.length is None for node in below)

    @property
    def is_plain_sql(self) -> bool:
        return self.closed is None and self.budget is None

    @property
    def keys(self) -> Keys:
        width = len(self.schema)
        # Stretches of one value are disjoint: any two differ in both begin and end.
        return frozenset({frozenset((*self.value, width - 2)), frozenset((*self.value, width - 1))})

    @property
    def needs(self) -> Needs:
        # What was dropped under a budget depends on all arrivals before.
        whole = self.closed is not None or self.budget is not None
        return everything(self.source_names) if whole else super().needs

    @property
    def boundedness(self) -> Boundedness:
        return self.input.boundedness

    @property
    def open_boundedness(self) -> Boundedness:
        """Return what bounds the stretches that may grow, where periods begin in order and nothing leaves: those of the
        values that came within a period of a known length, else one for every value."""
        if not self.value or self.closing is None or self.closing.longest is None or self.domain is None:
            return self.bounded_by_keys(self.value, super().boundedness, "values")
        labels = column_labels(self.schema)
        of = f"the values of {', '.join(labels[i] for i in self.value)} of {', '.join(self.source_names)}"
        ticks = self.closing.longest + (self.closing.slide or 0)
        text = f"{of} that came within {self.domain.show_length(ticks)}"
        return Boundedness(Grade.BOUNDED, text, length=seconds(ticks, self.domain))

    @property
    def carries_ends(self) -> bool:
        return False

    @property
    def delays(self) -> tuple[Delay, ...]:
        return () if self.closed is None else (self.closed.delay,)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        # Which rows are equal depends on all columns.
        everything_read = frozenset(range(len(self.schema)))
        return Pruned(
            replace(self, input=pruning.chosen(self.input, sorted(everything_read), True)),
            {i: i for i in everything_read},
        )

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        distinct = tuple(below.distinct[i] if i < len(below.distinct) else math.inf for i in range(len(self.schema)))
        taken = 0.0 if self.pattern is Pattern.MONOTONIC else below.rate
        return Estimate(below.rate, below.length, distinct, taken)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.schema)
        found = {"by": ", ".join(labels[i] for i in self.value) or "nothing", "begins": self.begins.value}
        found = found if self.closed is None else {**found, "only": "closed"}
        return found if self.budget is None else {**found, **self.budget.describe()}
