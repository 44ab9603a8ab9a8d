"""The inclusion records of stretches, gaps and sessions under a budget of which whole values go [tls III].

Such a budget keeps the values whose hash of 63 bits is below the *threshold* of their bucket, which only falls: T(τ) is
the threshold once all that arrives up to τ has been taken. The draw of a row is the hash of its value, whatever the
query, so rows of one value are kept or dropped together, as under `SAMPLE(p BY ..)`.

- Rows that are retracted when their value is dropped have at τ π = T(τ) / 2⁶³: they are replaced at every instant at
  which the threshold of their bucket falls.
- A row that is emitted once, for a closed stretch or an ended session, does not change: its π is T(c) / 2⁶³ of the
  instant c at which it is emitted. Where an arrival at c begins the next stretch of its value, no later arrival can
  drop the row, so T is the threshold before that arrival.

Whether the threshold falls below t follows from the hashes above t, so that (kept below T) / T is a martingale in the
falling T, and x / π an unbiased estimate.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.algebra.nodes.base import RECORD, Algebra, Keys, Unary, column_labels, is_static
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.shed import Shed, StretchBudget
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs, everything
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError
from penstock.expressions.nodes import Column
from penstock.types import Schema


class BudgetedRows(Unary):
    """An operator of whose rows a budget may leave some out: its own, or that of the tuples below."""

    @property
    @abstractmethod
    def drawn_columns(self) -> tuple[int, ...]:
        """Return the columns by whose values a budget drops."""

    @property
    def recorded_columns(self) -> tuple[int, ...]:
        """Return columns such that rows which agree on them have one inclusion record, whatever the instant."""
        return self.drawn_columns

    @property
    @abstractmethod
    def emits_once(self) -> bool:
        """Return whether each row is emitted once, and stays when its value is dropped later."""

    @property
    def chosen_by(self) -> Shed | StretchBudget | None:
        """Return the budget, None where nothing is left out."""
        own: StretchBudget | None = vars(self).get("budget")
        return own or (self.input if isinstance(self.input, Shed) else None)

    def with_inclusion(self) -> Algebra | None:
        if is_static(self):
            return None
        # Which budget there is, if any, is known when the query is.
        return super().with_inclusion() or StretchChances(self)


@dataclass(frozen=True, eq=False)
class StretchChances(Unary):
    """The rows of coalescing, of gaps, or of session windows, with their inclusion records as a last column."""

    @property
    def drawn(self) -> BudgetedRows:
        """Return the operator whose rows they are."""
        assert isinstance(self.input, BudgetedRows), "only stretches and sessions have budgets"
        return self.input

    @property
    def shed(self) -> Shed | None:
        """Return the budget of tuples, None where there is none."""
        budget = self.drawn.chosen_by
        return budget if isinstance(budget, Shed) else None

    @property
    def buckets(self) -> int:
        """Return the number of parts of the budget, each with a threshold of its own."""
        budget = self.drawn.chosen_by
        return 1 if budget is None else budget.buckets

    @property
    def once(self) -> bool:
        """Return whether each row is emitted once, with its record of that instant."""
        return self.drawn.emits_once

    def refusal(self) -> PenstockError | None:
        """Return why the rows have no inclusion records, P0355; None where they have."""
        if self.drawn.chosen_by is None:
            message = "ESTIMATE of stretches or sessions of which no budget leaves any out: the aggregate is exact"
            hint = "leave ESTIMATE out, or give the query a budget: WITH (memory '10000 TUPLES', shed 'value')"
            return PenstockError("P0355", message, hint=hint)
        if self.shed is None or self.shed.draws_values:
            return None
        message = (
            f"ESTIMATE under shed '{self.shed.policy}', which drops tuples of a value with no known probability, not"
            " whole values"
        )
        hint = (
            "write shed 'value', or leave ESTIMATE out: the metrics exact and coverage_at_least say what a budget"
            " leaves out"
        )
        return PenstockError("P0355", message, hint=hint)

    @property
    def schema(self) -> Schema:
        return Schema((*self.input.schema.fields, RECORD))

    @property
    def pattern(self) -> Pattern:
        return self.input.pattern if self.once else Pattern.STRICT

    @property
    def keys(self) -> Keys:
        return self.input.keys

    @property
    def needs(self) -> Needs:
        return everything(self.source_names)

    @property
    def carries_ends(self) -> bool:
        return self.once and self.input.carries_ends

    @property
    def results_have_lives(self) -> bool:
        return self.once and self.input.results_have_lives

    def lives_an_instant(self, holds: Callable[[Algebra], bool]) -> bool:
        return self.once and self.input.lives_an_instant(holds)

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.input)

    def with_inclusion(self) -> Algebra | None:
        return self

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        return replace(below, distinct=(*below.distinct, math.inf))

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.input.schema)
        by = ", ".join(labels[i] for i in self.drawn.drawn_columns) or "nothing"
        return {"drawn by": by, "chance": "when it is emitted" if self.once else "now"}


def recorded_columns(node: Algebra) -> frozenset[int] | None:
    """Return columns of selected and computed rows under a budget such that those which agree on them have one
    inclusion record; None where not all of them are there, or for other rows."""
    if isinstance(node, BudgetedRows):
        return frozenset(node.recorded_columns)
    if isinstance(node, Select):
        return recorded_columns(node.input)
    below = recorded_columns(node.input) if isinstance(node, Project) else None
    if below is None or not isinstance(node, Project):
        return None
    places = {e.index: i for i, e in enumerate(node.expressions) if isinstance(e, Column)}
    return frozenset(places[i] for i in below) if below <= places.keys() else None
