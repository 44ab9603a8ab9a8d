"""The base of operators under a preference (`nodes/preferences.py`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.algebra.nodes.base.algebra import Algebra, ColumnPruning, Pruned
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs, everything
from penstock.algebra.properties.update_pattern import Pattern
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.algebra.nodes.preferences import Preference

#: The name of what the draws of a preference are of begins with this; then comes its query's.
PREFERENCE_DRAWS = "/preference/"


@dataclass(frozen=True, eq=False)
class UnderPreference(Algebra):
    """An operator under a preference: its results depend on all arrivals before, and on all columns."""

    @property
    def clause(self) -> Preference:
        """Return the preference, which is a field of all of them."""
        found: Preference = vars(self)["preference"]
        return found

    @property
    def needs(self) -> Needs:
        # What waits depends on all arrivals before.
        return everything(self.source_names)

    @property
    def may_be_kept(self) -> bool:
        return True

    @property
    def may_stand_over_internal(self) -> bool:
        return True

    @property
    def keys_may_age(self) -> bool:
        """Return whether FADE .. PER changes the key of an entry while its candidates are examined."""
        return False

    def with_inclusion(self) -> Algebra | None:
        preference = self.clause
        if preference.order.value != "WEIGHTED":
            hint = "write WITH PREFERENCE WEIGHTED, under which every result has a chance, or leave ESTIMATE out"
            message = f"ESTIMATE over WITH PREFERENCE {preference.order.value}, whose results have no known probability"
            raise PenstockError("P0355", message, hint=hint)
        if preference.budget.joins > 1:
            hint = "put the join of two under WITH PREFERENCE into a view, and ESTIMATE over its join with the others"
            raise PenstockError("P0355", "ESTIMATE over WITH PREFERENCE over more than two inputs", hint=hint)
        if any(child.with_inclusion() is not None for child in self.inputs):
            hint = "leave SAMPLE out, or say BUDGET UNLIMITED"
            raise PenstockError("P0355", "ESTIMATE over WITH PREFERENCE over a sample", hint=hint)
        if self.keys_may_age and preference.fades and preference.per is not None:
            hint = "read columns of both streams in the preference, so that each pair waits by itself, or leave PER out"
            message = "ESTIMATE over a preference that fades by age while the partners of a row are examined"
            raise PenstockError("P0355", message, hint=hint)
        changed: dict[str, Preference] = {"preference": replace(preference, records=True)}
        return replace(self, **changed)

    @property
    def drawn_by(self) -> tuple[str, int] | None:
        preference = self.clause
        weighted = preference.order.value == "WEIGHTED"
        return (f"{PREFERENCE_DRAWS}{preference.query.lower()}", preference.seed) if weighted else None

    def recorded_pattern(self, pattern: Pattern) -> Pattern:
        """Return the update pattern: with inclusion records, which change, rows are replaced."""
        return Pattern.STRICT if self.clause.records else pattern

    def recorded_estimate(self, found: Estimate) -> Estimate:
        """Return the estimate of the results, with the column of the inclusion records where there is one."""
        return replace(found, distinct=(*found.distinct, math.inf)) if self.clause.records else found

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        # Draws and ties depend on all columns.
        return pruning.whole(self)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)
