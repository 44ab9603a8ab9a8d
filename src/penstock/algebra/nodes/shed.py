"""Load shedding below coalescing [tls III]: a relation of which at most so much is held at any instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from penstock.algebra.nodes.base import ColumnPruning, Keys, Pruned, Unary, column_labels
from penstock.algebra.nodes.base.arrival_order import in_arrival_order
from penstock.algebra.nodes.base.checks import need_period, need_relations, refused
from penstock.algebra.nodes.base.fields import Between, OneOf, in_data
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.windows import RowWindow
from penstock.algebra.properties.cardinality import Estimate
from penstock.algebra.properties.need import Needs, everything
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.update_pattern import Pattern
from penstock.shedding.policies import POLICIES
from penstock.types import END, LONGEST_TICKS

#: Of budgets: tuples or bytes; instants; millionths; ticks between two judgements; millionths of a core.
Budget = Annotated[int, Between(1, END)]
Instant = Annotated[int, Between(0, END)]
Millionths = Annotated[int, Between(0, 10**6)]
Every = Annotated[int, Between(1, LONGEST_TICKS)]
Cores = Annotated[int, Between(0, 10**12)]


def need_buckets(buckets: int, budget: int) -> None:
    """Raise PenstockError P0106 for more parts of a budget than it has."""
    if not 1 <= buckets <= budget:
        raise refused(f"this number is not between 1 and {budget}", "P0106", at=("buckets",))


@dataclass(frozen=True, eq=False)
class Shed(Unary):
    """H(τ) ⊆ R(τ): the tuples of `input` that are held under a budget. A drop is a negative tuple at the timestamp of
    the arrival that caused it.

    The last two columns are a period, as for `Coalesce`; rows without one are left out. Arrivals of one instant are
    taken in the order of (begin, hash of the value, end, expiration), so what is dropped depends on the tuples alone;
    under a window that counts rows, in the order of arrival.

    Args:
        policy: which tuple goes first.
        budget: tuples, or bytes, that are held at most.
        in_bytes: whether the budget counts bytes: `ENTRY_BYTES` and those of the value per tuple.
        buckets: parts of the budget, by hash of the value.
        compact: whether equal tuples (value, period, life) count once.
        least: the constant of a conjunct LENGTH >= constant in ticks, 0 without one.
        ordered: whether periods begin in the order in which they arrive.
        sample: millionths of the values that are also held unshed, to estimate accuracy.
        misses_only: whether the query can only miss rows by it, not invent some.
        query: its name, for messages.
        every: ticks between two instants at which accuracy is judged.
        at_least: millionths of accuracy below which the query warns, or fails.
        cpu: millionths of a core that the query may use, 0 for any; a run decides what is kept by measuring.
        shares_limit: whether its budget is its part of `state_limit`, which a run decides by measuring.
    """

    policy: Annotated[str, OneOf(tuple(POLICIES))]
    budget: Budget
    in_bytes: bool = field(default=False, metadata=in_data("bytes"))
    buckets: Budget = 1
    compact: bool = True
    least: Instant = 0
    ordered: bool = False
    sample: Millionths = 50_000
    misses_only: bool = False
    query: str = ""
    every: Every = 60
    at_least: Millionths = 0
    fails: bool = False
    cpu: Cores = 0
    shares_limit: bool = False

    def __post_init__(self) -> None:
        need_relations(self.inputs)
        need_period(self.input, "what is shed")
        need_buckets(self.buckets, self.budget)

    @property
    def row_window(self) -> RowWindow | None:
        """Return the window of the last rows of a stream whose tuples these are, selected and computed; None for
        another. The operator takes it in itself, by number of arrival, so that rows are not held twice."""
        below = self.input
        while isinstance(below, Select | Project):
            below = below.input
        return below if isinstance(below, RowWindow) and counts_alone(below) else None

    @property
    def draws_values(self) -> bool:
        """Return whether what is dropped are whole values, those with the largest hashes."""
        return self.policy == "value" or (self.budget == NO_BUDGET and not self.shares_limit)

    @property
    def value(self) -> tuple[int, ...]:
        """Return the positions of the columns that are not the period."""
        return tuple(range(len(self.schema) - 2))

    @property
    def pattern(self) -> Pattern:
        return Pattern.STRICT

    @property
    def keys(self) -> Keys:
        return self.input.keys

    @property
    def is_plain_sql(self) -> bool:
        return False

    @property
    def needs(self) -> Needs:
        # What was dropped depends on all arrivals before.
        return everything(self.source_names)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        # Which tuples are dropped depends on all columns.
        return pruning.whole(self)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        (below,) = inputs
        return Estimate(below.rate, below.length, below.distinct, below.rate)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        return self.cost_with_state(inputs, own)

    def describe(self) -> Mapping[str, str]:
        labels = column_labels(self.schema)
        found = {
            "policy": self.policy,
            "budget": budget_words(self.budget, self.in_bytes, self.cpu, self.shares_limit),
            "by": ", ".join(labels[i] for i in self.value) or "nothing",
            "error": "misses only" if self.misses_only else "both ways",
        }
        if self.buckets > 1:
            found["buckets"] = str(self.buckets)
        if self.at_least:
            found["accuracy at least"] = floor_words(self.at_least, self.fails)
        if self.least:
            found["least length"] = f"{self.least} ticks"
        return found


@dataclass(frozen=True)
class StretchBudget:
    """The budget of an operator that knows of every value the stretch, or session, that goes on: so many of them, or so
    many bytes. Beyond it the value with the largest hash is dropped: what goes on of it is forgotten, and refused from
    then on, whatever the policy, since a part of a stretch would be wrong. What has ended stays.

    Under SLIDE entries are runs of granules. Before any value goes a run that has ended and is shorter than `least`.

    Args:
        budget, in_bytes, buckets, cpu, shares_limit, least, query, every, at_least, fails: as those of `Shed`.
        compact: whether a stretch counts once, else each of its elements does.
    """

    budget: Budget
    in_bytes: bool = field(default=False, metadata=in_data("bytes"))
    buckets: Budget = 1
    cpu: Cores = 0
    shares_limit: bool = False
    least: Instant = field(default=0, metadata=in_data("least_length"))
    query: str = ""
    every: Every = 60
    at_least: Millionths = 0
    fails: bool = False
    compact: bool = True

    def __post_init__(self) -> None:
        need_buckets(self.buckets, self.budget)

    @property
    def follows_decisions(self) -> bool:
        return bool(self.cpu) or self.shares_limit

    def describe(self) -> dict[str, str]:
        words = budget_words(self.budget, self.in_bytes, self.cpu, self.shares_limit)
        if self.compact:
            words = words.replace("tuples", "stretches")
        found = {"budget": words, "error": "whole values missing"}
        found = {**found, "buckets": str(self.buckets)} if self.buckets > 1 else found
        if self.at_least:
            found["accuracy at least"] = floor_words(self.at_least, self.fails)
        return {**found, "least length": f"{self.least} ticks"} if self.least else found


def floor_words(at_least: int, fails: bool) -> str:
    """Return what happens below so many millionths of accuracy, for people."""
    return f"{at_least / 1e6:g}, or it {'fails' if fails else 'warns'}"


def counts_alone(window: RowWindow) -> bool:
    """Return whether an element leaves a window when so many have arrived behind it, whatever they are: so it is known
    which one leaves first."""
    plain = window.rows is not None and window.step is None and window.length is None and window.slide is None
    return plain and not window.partition and in_arrival_order(window.input) is not None


def budget_words(budget: int, in_bytes: bool, cpu: int, shares_limit: bool) -> str:
    """Return a budget for people."""
    words = [] if budget == NO_BUDGET else [f"{budget:,} {'bytes' if in_bytes else 'tuples'}"]
    words += [f"{cpu / 1e6:g} cores"] if cpu else []
    return ", ".join([*words, "its part of state_limit"] if shares_limit else words)


def bucket_budgets(budget: int, buckets: int) -> list[int]:
    """Return the budget of each bucket: equal parts, the rest in the first ones."""
    part, rest = divmod(budget, buckets)
    return [part + (k < rest) for k in range(buckets)]


#: What a held tuple counts in bytes, beside its value.
ENTRY_BYTES = 88
#: The budget where memory is not limited.
NO_BUDGET = END
