"""Session windows [semantics 4.5]: the elements of the sessions that end at an instant, or of those that go on; and the
window `[VALID]`, in which a row lives during its period.

A session is a stretch of the periods [ts, ts + gap) of the elements of a partition; with `at_most` an element so long
after the first one begins a new session, and the one before has ended by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from penstock.algebra.nodes.base import Algebra, ColumnPruning, Delay, Pruned, Unary, column_labels
from penstock.algebra.nodes.base.checks import need_period, need_stream, refused
from penstock.algebra.nodes.base.fields import Columns, Ticks
from penstock.algebra.nodes.shed import StretchBudget
from penstock.algebra.nodes.stretch_chances import BudgetedRows
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs, everything
from penstock.algebra.properties.statistics import Statistics, seconds
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.coercion import BIGINT
from penstock.types import Field, Schema


@dataclass(frozen=True, eq=False)
class SessionWindow(BudgetedRows):
    """The elements of a stream by sessions. The last column of the input is the gap of each in ticks, BIGINT; without
    one, or with one that is not positive, an element is left out. In its place the result has the begin and the end of
    the session.

    An element is in R(τ) while τ is the end of its session; of `open` ones from its timestamp up to that end, and their
    end is not known yet. partition: columns whose values have sessions of their own; gap: that of every element,
    None where they differ; at_most: how long a session may be; budget: of those that go on.
    """

    in_language: ClassVar[str] = "[SESSION ..]"

    partition: Columns = ()
    gap: Ticks | None = None
    at_most: Ticks | None = None
    open: bool = False
    budget: StretchBudget | None = None

    def __post_init__(self) -> None:
        need_stream(self.input)
        if self.input.schema[-1].type != BIGINT:
            raise refused("the last column of a stream with sessions is a gap in ticks, BIGINT")

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields[:-1], Field("begin", BIGINT), Field("end", BIGINT)))

    @property
    def pattern(self) -> Pattern:
        return Pattern.STRICT if self.open else Pattern.WEAKEST

    @property
    def drawn_columns(self) -> tuple[int, ...]:
        return self.partition

    @property
    def emits_once(self) -> bool:
        return not self.open

    @property
    def needs(self) -> Needs:
        return everything(self.source_names)

    @property
    def longest(self) -> int | None:
        """Return how long after its last element a session ends at the latest; None where that depends on the
        elements."""
        return min((n for n in (self.gap, self.at_most) if n is not None), default=None)

    @property
    def delays(self) -> tuple[Delay, ...]:
        return (Delay(None if self.longest is None else self.longest + 1),)

    @property
    def carries_ends(self) -> bool:
        return not self.open

    @property
    def results_have_lives(self) -> bool:
        return not self.open

    @property
    def boundedness(self) -> Boundedness:
        if self.at_most is None and self.gap is None:
            return Boundedness(Grade.UNBOUNDED, f"the sessions of {', '.join(self.source_names)} that go on")
        length = 0.0 if self.domain is None else seconds(self.at_most or self.gap or 0, self.domain)
        return Boundedness(Grade.BOUNDED, f"the sessions of {', '.join(self.source_names)} that go on", length=length)

    def lives_an_instant(self, holds: Callable[[Algebra], bool]) -> bool:
        return not self.open

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return not self.open

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        width = len(self.input.schema) - 1
        kept = sorted({i for i in needed if i < width} | set(self.partition))
        below = pruning.chosen(self.input, [*kept, width], named=True)
        places = {old: new for new, old in enumerate(kept)}
        node = replace(self, input=below, partition=tuple(places[i] for i in self.partition))
        return Pruned(node, {**places, width: len(kept), width + 1: len(kept) + 1})

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        return replace(below, distinct=(*below.distinct[:-1], below.rate, below.rate)).decided()

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.input.schema)
        domain = self.domain
        show = domain.show_length if domain else str
        found = {"gap": "of the row" if self.gap is None else show(self.gap)}
        if self.partition:
            found["of each"] = ", ".join(labels[i] for i in self.partition)
        if self.at_most is not None:
            found["at most"] = show(self.at_most)
        found["emitted"] = "while they are open" if self.open else "at their end"
        return found if self.budget is None else {**found, **self.budget.describe()}


@dataclass(frozen=True, eq=False)
class ValidWindow(Unary):
    """`[VALID]`: the rows of a stream, or of a relation, while they are in their period, the last two columns in
    ticks: from the begin, at the earliest when the row is there, up to the end. longest: the length of all periods,
    which begin at the timestamp; None where it is not known."""

    in_language: ClassVar[str] = "[VALID]"

    longest: Ticks | None = None

    def __post_init__(self) -> None:
        need_period(self.input, "what is under VALID")

    @property
    def varies_by_itself(self) -> bool:
        return True

    @property
    def pattern(self) -> Pattern:
        if self.input.is_stream or self.input.pattern <= Pattern.WEAK:
            return Pattern.WEAK
        return Pattern.STRICT

    @property
    def carries_ends(self) -> bool:
        return self.pattern is Pattern.WEAK

    @property
    def results_have_lives(self) -> bool:
        return self.pattern is Pattern.WEAK

    @property
    def needs(self) -> Needs:
        return everything(self.source_names)

    @property
    def boundedness(self) -> Boundedness:
        if not self.input.is_stream:
            return self.input.boundedness
        names, length = ", ".join(self.source_names), self.longest
        if length is not None and self.domain is not None:
            shown = f"the rows of {names} whose period of {self.domain.show_length(length)} goes on"
            return Boundedness(Grade.BOUNDED, shown, length=seconds(length, self.domain))
        text = f"the rows of {names} whose period goes on, and those that begin in the future"
        return Boundedness(Grade.UNBOUNDED, text, source=self.source_names[0] if self.source_names else "", length=None)

    @property
    def delays(self) -> tuple[Delay, ...]:
        return (Delay(self.longest),)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        return inputs[0].decided()

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        if not self.input.is_stream:
            return pruning.whole(self)
        width = len(self.schema)
        kept = sorted({*needed, width - 2, width - 1})
        below = pruning.chosen(self.input, kept, named=True)
        return Pruned(replace(self, input=below), {old: new for new, old in enumerate(kept)})
