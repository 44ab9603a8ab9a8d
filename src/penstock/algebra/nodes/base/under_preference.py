"""The base of operators under a preference (`nodes/preferences.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.algebra.nodes.base.algebra import Algebra, ColumnPruning, Pruned
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs, everything

#: The name of what the draws of a preference are of begins with this; then comes its query's.
PREFERENCE_DRAWS = "/preference/"


@dataclass(frozen=True, eq=False)
class UnderPreference(Algebra):
    """An operator under a preference: its results depend on all arrivals before, and on all columns."""

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

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        # Draws and ties depend on all columns.
        return pruning.whole(self)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)
