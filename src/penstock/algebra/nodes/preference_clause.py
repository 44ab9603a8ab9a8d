"""WITH PREFERENCE without its expressions: order, budget and fading. The operators: `preferences.py`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from penstock.algebra.nodes.base import PREFERENCE_DRAWS
from penstock.algebra.nodes.base.checks import refused
from penstock.algebra.nodes.base.fields import Between, Seed, Ticks
from penstock.quantities import LARGEST_BIGINT

#: Units of a budget: their square, and their product with the elements of an instant, are 64-bit integers.
MOST_UNITS = 3_000_000_000
#: Ticks of a budget's interval; times the shards they are a 64-bit integer.
MOST_BUDGET_TICKS = 2**48
#: Joins of a query under a preference.
MOST_JOINS = 2**10


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
    units: Annotated[int, Between(1, MOST_UNITS)] = 1
    ticks: Annotated[int, Between(1, MOST_BUDGET_TICKS)] = 1
    joins: Annotated[int, Between(1, MOST_JOINS)] = 1

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
    per: Ticks | None = None
    seed: Seed = 0
    query: str = ""
    queue: Annotated[int, Between(1, LARGEST_BIGINT)] = 1_000_000
    records: bool = False
    place: Annotated[int, Between(0, MOST_JOINS)] = 0

    def __post_init__(self) -> None:
        if not 0 < self.fade <= 1:
            raise refused("a fade is above 0 and at most 1", "P0203", at=("fade",))
        if self.records and self.order is not PreferenceOrder.WEIGHTED:
            raise refused("inclusion records are those of WEIGHTED alone", "P0355", at=("records",))

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
