"""The spec of load shedding below coalescing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from penstock.algebra.nodes.shed import ENTRY_BYTES, NO_BUDGET, StretchBudget, budget_words
from penstock.physical.plan.spec import Parameter, Spec
from penstock.physical.plan.state.state_parts import StateInput, StatePart, all_rows


@dataclass(frozen=True)
class ShedSpec(Spec):
    """At most `budget` tuples, or bytes, are held. Fields as those of `algebra.nodes.shed.Shed`; types: of the columns,
    of which the last two are the period."""

    types: tuple[pa.DataType, ...]
    policy: str
    budget: int
    in_bytes: bool
    buckets: int
    compact: bool
    least: int
    ordered: bool
    sample: int
    query: str
    every: int
    at_least: int
    fails: bool
    cpu: int = 0
    shares_limit: bool = False

    names_only: ClassVar[frozenset[str]] = frozenset({"query"})

    @property
    def cores(self) -> float | None:
        return self.cpu / 1e6 if self.cpu else None

    @property
    def shares_state_limit(self) -> bool:
        return self.shares_limit

    @property
    def follows_decisions(self) -> bool:
        return bool(self.cpu) or self.shares_limit

    @property
    def drops_values(self) -> bool:
        return True

    @property
    def title(self) -> str:
        return "Shed"

    def describe(self) -> Mapping[str, Parameter]:
        return {
            "policy": self.policy,
            "budget": budget_words(self.budget, self.in_bytes, self.cpu, self.shares_limit),
            "buckets": f"{self.buckets}",
        }

    def state(self, inputs: Sequence[StateInput], made: StateInput) -> Iterable[StatePart]:
        (one,) = inputs
        most = "" if self.budget == NO_BUDGET else f", at most {self._most():,}"
        return [all_rows(one, f"tuples held{most}")]

    def _most(self) -> int:
        return self.budget // ENTRY_BYTES if self.in_bytes else self.budget


class BudgetedSpec(Spec):
    """The spec of an operator that may have a budget of stretches, or sessions, that go on: its field `budget`."""

    budget: StretchBudget | None

    @property
    def cores(self) -> float | None:
        return self.budget.cpu / 1e6 if self.budget is not None and self.budget.cpu else None

    @property
    def shares_state_limit(self) -> bool:
        return self.budget is not None and self.budget.shares_limit

    @property
    def follows_decisions(self) -> bool:
        return self.budget is not None and self.budget.follows_decisions


@dataclass(frozen=True)
class ShedRowsSpec(ShedSpec):
    """The same of the last rows of a stream, all of which come, with whether they are selected as a last column. types:
    without it; rows: of the window."""

    rows: int = 1

    def describe(self) -> Mapping[str, Parameter]:
        return {**super().describe(), "window": f"the last {self.rows:,} rows"}
