"""The spec of coalescing of granules, and of its reduction before rows are exchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.algebra.nodes.shed import ENTRY_BYTES, NO_BUDGET, StretchBudget
from penstock.physical.plan.spec import Parameter, ReducingSpec, Spec
from penstock.physical.plan.state.state_parts import SLOT, StateInput, StatePart, width
from penstock.physical.plan.temporal.shedding import BudgetedSpec


@dataclass(frozen=True)
class OncePerLifeSpec(ReducingSpec):
    """Rows that are equal, with one period and one life, are one: coalescing takes no notice of duplicates. told_apart:
    the number of leading columns that distinguish rows of one life; None for all."""

    told_apart: int | None = None


@dataclass(frozen=True)
class GranuleRunsSpec(Spec):
    """The maximal periods of every value, where the period of each row is the granule of SLIDE that ends when the row
    enters the window.

    Args:
        types: of the columns, of which the last two are the period.
        slide: the length of a granule in ticks.
        length: that of the window, a multiple of `slide`.
    """

    varying: ClassVar[frozenset[str]] = frozenset({"length", "slide"})

    types: tuple[pa.DataType, ...]
    slide: int
    length: int

    @property
    def title(self) -> str:
        return "Coalesce"

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": "runs of granules of every value"}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (one,) = inputs
        values = one.values(tuple(range(len(self.types) - 2)))
        nbytes = SLOT + 24 + width(self.types)
        yield StatePart("runs that may grow", values, values * nbytes, made.content)
        # At worst every second granule has a row.
        runs = min(one.size, values * self.length / self.slide) / 2
        yield StatePart("runs that have ended", runs, runs * nbytes, made.content)


@dataclass(frozen=True)
class BudgetedRunsSpec(BudgetedSpec):
    """The same under a budget of runs: whole values are dropped, and runs that are too short. types, slide, length: as
    those of `GranuleRunsSpec`."""

    varying: ClassVar[frozenset[str]] = frozenset({"length", "slide"})

    types: tuple[pa.DataType, ...]
    slide: int
    length: int
    budget: StretchBudget

    @property
    def drops_values(self) -> bool:
        return True

    @property
    def title(self) -> str:
        return "Coalesce"

    def describe(self) -> Mapping[str, Parameter]:
        return {"state": "runs of granules of every value", **self.budget.describe()}

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (one,) = inputs
        values = one.values(tuple(range(len(self.types) - 2)))
        runs = min(one.size, values * self.length / self.slide) / 2 + values
        if self.budget.budget < NO_BUDGET:
            runs = min(runs, self.budget.budget // (ENTRY_BYTES if self.budget.in_bytes else 1))
        yield StatePart("runs held", runs, runs * (24 + width(self.types)), made.content)
