"""WITH PREFERENCE without its expressions: order, budget and fading. The operators: `preferences.py`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fractions import Fraction

from penstock.algebra.nodes.base import PREFERENCE_DRAWS


class PreferenceOrder(enum.Enum):
    """Which priorities come first."""

    DESC = "DESC"
    ASC = "ASC"
    WEIGHTED = "WEIGHTED"


class BudgetKind(enum.Enum):
    """What grants units of work."""

    PER_TUPLE = "PER TUPLE"
    PER_TIME = "PER"
    AUTO = "AUTO"


@dataclass(frozen=True)
class Budget:
    """Units of work: `units` per tuple, or per `ticks`; both are 1 for AUTO. joins: of how many that share it this is
    one."""

    kind: BudgetKind
    units: int = 1
    ticks: int = 1
    joins: int = 1

    def rate(self, shards: int) -> Fraction:
        """Return the units per tick of each of `shards`."""
        return Fraction(self.units, self.ticks * shards * self.joins)

    @property
    def text(self) -> str:
        part = "" if self.joins == 1 or self.kind is BudgetKind.PER_TUPLE else f", one of {self.joins} equal parts"
        if self.kind is BudgetKind.AUTO:
            return f"AUTO{part}"
        ticks = f" {self.ticks} ticks" if self.kind is BudgetKind.PER_TIME else ""
        return f"{self.units:,} {self.kind.value}{ticks}{part}"


@dataclass(frozen=True)
class Preference:
    """The clause without its expressions.

    Args:
        order: which priorities come first.
        budget: what grants units. UNLIMITED is the plain query, and under an ESTIMATE a budget that nothing exceeds.
        fade: the factor a, 0 < a <= 1; 1 does not fade.
        per: ticks of PER: fading by age; None: by granularity.
        seed: of the draws of WEIGHTED.
        query: name of the query, which salts the draws; empty for one without a name.
        queue: entries that may wait in a shard.
        records: a last column of the results has their inclusion records.
        place: of the joins of the query, which one this is, from 0.
    """

    order: PreferenceOrder
    budget: Budget
    fade: Fraction = Fraction(1)
    per: int | None = None
    seed: int = 0
    query: str = ""
    queue: int = 1_000_000
    records: bool = False
    place: int = 0

    def salt(self, side: int) -> str:
        """Return the salt of the draws of elements of a side."""
        return f"{PREFERENCE_DRAWS}{self.query}/{2 * self.place + side}"

    @property
    def fades(self) -> bool:
        return self.fade != 1


def preference_text(preference: Preference) -> dict[str, str]:
    """Return what EXPLAIN shows of the clause."""
    found = {"order": preference.order.value, "budget": preference.budget.text}
    if preference.fades:
        by = "granularity" if preference.per is None else f"{preference.per} ticks of age"
        found["fade"] = f"{float(preference.fade):g} per {by}"
    if preference.order is PreferenceOrder.WEIGHTED:
        found["seed"] = str(preference.seed)
    if preference.records:
        found["inclusion"] = "π of each result, for ESTIMATE"
    return found


def fade_factor(fade: Fraction, steps: int) -> float:
    """Return a ** steps of DOUBLEs; the oracle and the operator compute the same bits by it."""
    return float(float(fade) ** steps)
