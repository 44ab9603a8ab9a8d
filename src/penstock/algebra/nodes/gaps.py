"""The gaps between the stretches of every value [semantics 4.5]: when it was not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.algebra.nodes.base import Algebra, ColumnPruning, Delay, Keys, Pruned, column_labels
from penstock.algebra.nodes.base.fields import in_data
from penstock.algebra.nodes.coalesce import Closing, Coalesce
from penstock.algebra.nodes.shed import Shed, StretchBudget
from penstock.algebra.nodes.stretch_chances import BudgetedRows, StretchChances
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs, everything
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.update_pattern import Pattern


@dataclass(frozen=True, eq=False)
class Gaps(BudgetedRows):
    """Of every value of a coalesced relation, whose last two columns are a period in ticks: the periods between its
    stretches, and, with an open end (END), the one from the end of the last stretch on, as soon as that is closed.

    closing: when a stretch is closed; where begins may be anything, it is taken for closed at its end. only_ended:
    without the open ones.
    """

    closing: Closing = field(default_factory=Closing)
    only_ended: bool = field(default=False, metadata=in_data("ended"))

    @property
    def value(self) -> tuple[int, ...]:
        """Return the positions of the columns that are not the period."""
        return tuple(range(len(self.schema) - 2))

    @property
    def drawn_columns(self) -> tuple[int, ...]:
        return self.value

    @property
    def emits_once(self) -> bool:
        return False

    @property
    def chosen_by(self) -> Shed | StretchBudget | None:
        return self.input.chosen_by if isinstance(self.input, BudgetedRows) else None

    def with_inclusion(self) -> Algebra | None:
        # Those of a value that is kept are all there.
        below = self.input.with_inclusion()
        return StretchChances(self) if isinstance(below, StretchChances) else below

    @property
    def in_order(self) -> bool:
        """Return whether stretches begin in the order of time and stay: only the last end of a value is state then."""
        return isinstance(self.input, Coalesce) and self.input.in_order

    @property
    def pattern(self) -> Pattern:
        """MON of gaps that have ended, where nothing leaves. Else STR: open ones are replaced, and gaps go with the
        stretches around them."""
        return Pattern.MONOTONIC if self.only_ended and self.in_order else Pattern.STRICT

    @property
    def is_plain_sql(self) -> bool:
        return False

    @property
    def varies_by_itself(self) -> bool:
        return not self.only_ended

    @property
    def keys(self) -> Keys:
        width = len(self.schema)
        return frozenset({frozenset((*self.value, width - 2)), frozenset((*self.value, width - 1))})

    @property
    def needs(self) -> Needs:
        return everything(self.source_names)

    @property
    def carries_ends(self) -> bool:
        return False

    @property
    def delays(self) -> tuple[Delay, ...]:
        return () if self.only_ended else (self.closing.delay,)

    @property
    def boundedness(self) -> Boundedness:
        below = self.input.boundedness
        if not self.in_order or not self.value:
            return below
        labels = column_labels(self.schema)
        of = ", ".join(labels[i] for i in self.value)
        return Boundedness(Grade.UNBOUNDED, f"the last end of every value of {of} of {', '.join(self.source_names)}")

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        # Which rows are equal depends on all columns.
        every = frozenset(range(len(self.schema)))
        return Pruned(replace(self, input=pruning.chosen(self.input, sorted(every), True)), {i: i for i in every})

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        return inputs[0].decided()

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.schema)
        found = {"of": ", ".join(labels[i] for i in self.value) or "anything"}
        return {**found, "only": "ended"} if self.only_ended else found
