"""Periods that last until the next element [semantics 4.5], and rows that have lasted for so long.

The period of an element begins at its timestamp and ends at the next timestamp, later than its own, at which an element
with the same values of `by` arrives, `at_most` ticks after its begin at the latest. So its end is known at its end, and
not before.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.algebra.nodes.base import Algebra, ColumnPruning, Delay, Emitted, Pruned, Unary, column_labels
from penstock.algebra.nodes.base.checks import need_period, need_relations, need_stream
from penstock.algebra.nodes.base.fields import Align, Columns, Ticks, TicksOrNone
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs, everything
from penstock.algebra.properties.statistics import Statistics, seconds
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.coercion import BIGINT
from penstock.types import Field, Schema


class Lives(enum.Enum):
    """Which elements are in R(τ), and for how long."""

    #: As long as the window, from the timestamp on: first with an open period, then with its end.
    WINDOW = "in the window from the timestamp on"
    #: With an open period up to its end; then, with its end, as long as the window from there on.
    BOTH = "in the window from the end on, and before it while open"
    #: Up to the end of the period, which is open all the time.
    CURRENT = "until the end"


@dataclass(frozen=True, eq=False)
class UntilNext(Unary):
    """The elements of a stream with their periods, two more columns in ticks: begin and end; an open end is END.

    by: the columns of which the next element has the same values; at_most: the longest period; lives: which elements
    are in R(τ). length, slide, align: the window in time, as those of `Window`; length None: for ever.
    """

    in_language: ClassVar[str] = "VALID UNTIL NEXT"

    by: Columns = ()
    at_most: Ticks | None = None
    lives: Lives = Lives.WINDOW
    length: Ticks | None = None
    slide: Ticks | None = None
    align: Align = 0

    def __post_init__(self) -> None:
        need_stream(self.input)

    @property
    def schema(self) -> Schema:
        return with_period(self.input.schema)

    @property
    def pattern(self) -> Pattern:
        return Pattern.STRICT

    @property
    def needs(self) -> Needs:
        return everything(self.source_names)

    @property
    def varies_by_itself(self) -> bool:
        return True

    @property
    def carries_ends(self) -> bool:
        return False

    @property
    def delays(self) -> tuple[Delay, ...]:
        most, length = self.at_most or 0, self.length or 0
        if self.lives is Lives.BOTH:
            # The window counts from the end on.
            return (Delay(most + length, self.slide, self.align),)
        return (Delay(most, self.slide, self.align), Delay(length, self.slide, self.align))

    @property
    def boundedness(self) -> Boundedness:
        names = ", ".join(self.source_names)
        if self.lives is not Lives.CURRENT and self.length is None:
            return self.input.boundedness
        if self.at_most is None:
            labels = column_labels(self.input.schema)
            of = f" of every value of {', '.join(labels[i] for i in self.by)}" if self.by else ""
            return Boundedness(Grade.UNBOUNDED, f"the last element of {names}{of}")
        length = 0.0 if self.domain is None else seconds(self.at_most + (self.length or 0), self.domain)
        return Boundedness(Grade.BOUNDED, f"the elements of {names} whose period goes on", length=length)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        return _pruned(self, needed, pruning)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        found = replace(below, distinct=(*below.distinct, below.rate, below.rate)).decided()
        return replace(found, taken=found.rate)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        return {**described(self.input, self.by, self.at_most), "there": self.lives.value}


@dataclass(frozen=True, eq=False)
class EndedPeriods(Emitted, Unary):
    """The stream of the elements whose period has ended: each arrives at its end, with its period in two more columns.
    Fields as those of `UntilNext`."""

    in_language: ClassVar[str] = "VALID UNTIL NEXT"

    by: Columns = ()
    at_most: Ticks | None = None

    def __post_init__(self) -> None:
        need_stream(self.input)

    @property
    def schema(self) -> Schema:
        return with_period(self.input.schema)

    @property
    def needs(self) -> Needs:
        return everything(self.source_names)

    @property
    def delays(self) -> tuple[Delay, ...]:
        return () if self.at_most is None else (Delay(self.at_most, None, 0),)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        return _pruned(self, needed, pruning)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        return replace(below, distinct=(*below.distinct, below.rate, below.rate))

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        return described(self.input, self.by, self.at_most)


@dataclass(frozen=True, eq=False)
class Lasting(Unary):
    """The rows of a relation whose period, the last two columns in ticks, has lasted for `least` ticks: those that have
    ended if they are so long, the open ones from begin + `least` on, of which nothing arrives.

    slide, align: the boundaries at which R(τ) changes, None for every tick.
    """

    least: TicksOrNone = 1
    slide: Ticks | None = None
    align: Align = 0

    def __post_init__(self) -> None:
        need_relations(self.inputs)
        need_period(self.input, "what lasts")

    @property
    def pattern(self) -> Pattern:
        return Pattern.STRICT

    @property
    def varies_by_itself(self) -> bool:
        return True

    @property
    def needs(self) -> Needs:
        return everything(self.source_names)

    @property
    def carries_ends(self) -> bool:
        return False

    @property
    def delays(self) -> tuple[Delay, ...]:
        return (Delay(self.least, self.slide, self.align),)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        width = len(self.schema)
        kept = sorted({*needed, width - 2, width - 1})
        below = pruning.chosen(self.input, kept, named=True)
        return Pruned(replace(self, input=below), {old: new for new, old in enumerate(kept)})

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        return inputs[0].decided()

    def describe(self) -> Mapping[str, str]:
        show = self.domain.show_length if self.domain else str
        return {"for": show(self.least)}


def with_period(schema: Schema) -> Schema:
    return Schema((*schema.fields, Field("begin", BIGINT), Field("end", BIGINT)))


def described(below: Algebra, by: tuple[int, ...], at_most: int | None) -> dict[str, str]:
    labels = column_labels(below.schema)
    found = {"next of": ", ".join(labels[i] for i in by) or "all"}
    if at_most is not None:
        found["at most"] = (below.domain.show_length if below.domain else str)(at_most)
    return found


def _pruned(node: UntilNext | EndedPeriods, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
    """Return the node without the columns of its input that neither are needed nor distinguish values."""
    width = len(node.input.schema)
    kept = sorted({i for i in needed if i < width} | set(node.by)) or [0]
    below = pruning.chosen(node.input, kept, named=True)
    places = {old: new for new, old in enumerate(kept)}
    narrow = replace(node, input=below, by=tuple(places[i] for i in node.by))
    return Pruned(narrow, {**places, width: len(kept), width + 1: len(kept) + 1})
