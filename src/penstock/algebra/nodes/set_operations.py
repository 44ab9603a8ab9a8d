"""Bag and set operations on relations with the same columns [semantics 4.2]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import ClassVar

from penstock.algebra.nodes.base import (
    Algebra,
    ColumnPruning,
    Compared,
    Keys,
    Pruned,
    TimeModelWindow,
    has_lives,
    is_static,
    operators,
    stays_or_passes,
)
from penstock.algebra.nodes.base.checks import need_alike
from penstock.algebra.properties.boundedness import Boundedness
from penstock.algebra.properties.cardinality import Estimate, partners
from penstock.algebra.properties.domains import Domains
from penstock.algebra.properties.promises import Promises, promises_of_union
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.timestamps import NO_RISINGS, Risings, common_columns, only_exact
from penstock.algebra.properties.update_pattern import Pattern, worst
from penstock.types import Schema


@dataclass(frozen=True, eq=False)
class UnionAll(Algebra):
    """The sum of bags. All inputs have the same column types; names are the first one's."""

    in_language: ClassVar[str] = "UNION ALL"

    members: tuple[Algebra, ...]

    def __post_init__(self) -> None:
        need_alike(self.members)

    @property
    def is_plain_sql(self) -> bool:
        return True

    @property
    def schema(self) -> Schema:
        return self.members[0].schema

    @property
    def pattern(self) -> Pattern:
        pattern = worst(m.pattern for m in self.members)
        if pattern is Pattern.WEAKEST:
            windows = (node for m in self.members for node in operators(m) if isinstance(node, TimeModelWindow))
            orders = {window.order_of_ends for window in windows if window.order_of_ends is not None}
            # Elements of windows of different length or boundaries do not expire in order of arrival.
            return Pattern.WEAKEST if len(orders) == 1 else Pattern.WEAK
        return pattern

    @property
    def promises(self) -> Promises:
        return promises_of_union([member.promises for member in self.members])

    @property
    def domains(self) -> Domains:
        return tuple(reduce(or_, each) for each in zip(*(member.domains for member in self.members), strict=True))

    @property
    def enters_with_elements(self) -> bool:
        return all(member.enters_with_elements for member in self.members)

    @property
    def rising(self) -> Risings:
        return common_columns([member.rising for member in self.members])

    def with_arrival_time(self) -> Algebra:
        return UnionAll(tuple(member.with_arrival_time() for member in self.members))

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return all(map(holds, self.members))

    def lives_an_instant(self, holds: Callable[[Algebra], bool]) -> bool:
        return all(map(holds, self.members))

    @property
    def results_have_lives(self) -> bool:
        return all(map(has_lives, self.members))

    @property
    def may_be_kept(self) -> bool:
        return True

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        kept = sorted(needed) or [0]
        # The first member gives the union its names.
        members = tuple(pruning.chosen(m, kept, named=number == 0) for number, m in enumerate(self.members))
        return Pruned(UnionAll(members), {old: new for new, old in enumerate(kept)})

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        distinct = tuple(max(m.distinct[i] for m in inputs) for i in range(len(self.schema)))
        rate = sum(m.rate for m in inputs)
        return Estimate(rate, sum(m.size for m in inputs) / rate, distinct, sum(m.taken for m in inputs))


@dataclass(frozen=True, eq=False)
class Except(Compared):
    """The tuples of `left` that `right` does not cancel: max(l - r, 0) copies; as sets, where l > 0 and r = 0."""

    @property
    def negated_inputs(self) -> tuple[Algebra, ...]:
        return (self.right,)

    @property
    def pattern(self) -> Pattern:
        # A tuple of `right` ends one of `left` when it enters, which is not known before.
        return Pattern.MONOTONIC if is_static(self) or self.is_complete_at_once else Pattern.STRICT

    @property
    def rising(self) -> Risings:
        both = only_exact(common_columns([self.left.rising, self.right.rising]))
        return both if all(map(stays_or_passes, self.inputs)) else NO_RISINGS

    @property
    def keys(self) -> Keys:
        return self.left.keys if self.every else self.left.keys | self.whole

    @property
    def boundedness(self) -> Boundedness:
        return self.left.boundedness

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.left)

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        left = inputs[0] if self.every else inputs[0].distinct_rows()
        equal = tuple((i, i) for i in range(len(self.schema)))
        return partners(left, inputs[1], equal, None, is_static(self.right)).lone


@dataclass(frozen=True, eq=False)
class Intersect(Compared):
    """The tuples that both sides have: min(l, r) copies; as sets, where l > 0 and r > 0."""

    @property
    def pattern(self) -> Pattern:
        """MON of monotonic inputs: min(l, r) and (l > 0 and r > 0) grow with l and r. Else STR: a tuple is in the
        answer as long as both sides hold a copy. When it enters that end is not known, since either side may still get
        more copies; they are counted, and a negative tuple ends it."""
        both = worst((self.left.pattern, self.right.pattern))
        return Pattern.MONOTONIC if both is Pattern.MONOTONIC else Pattern.STRICT

    @property
    def rising(self) -> Risings:
        return only_exact(common_columns([self.left.rising, self.right.rising]))

    @property
    def keys(self) -> Keys:
        keys = self.left.keys | self.right.keys
        return keys if self.every else keys | self.whole

    @property
    def boundedness(self) -> Boundedness:
        return min((self.left.boundedness, self.right.boundedness), key=lambda bound: bound.grade)

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.left) or holds(self.right)
