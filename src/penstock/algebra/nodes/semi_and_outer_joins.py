"""Joins that test whether a tuple has a partner: semi-joins and outer joins [semantics 4.2].

EXISTS and IN keep the tuples with a partner, NOT EXISTS those without, and both outside of a condition become a column
with the result; an outer join keeps those without a partner beside the pairs. The patterns are those of [semantics 5]:
STR where the arrival of a partner may retract a tuple; a semi-join has the pattern of its join `[golab 3.3]`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from penstock.algebra.nodes.base import (
    NO_KEYS,
    Algebra,
    ColumnPruning,
    Keys,
    Pruned,
    has_lives,
    is_static,
    stays_or_passes,
    stored_sides,
)
from penstock.algebra.nodes.base.checks import need_equal_types, refused
from penstock.algebra.nodes.base.fields import Condition, Pairs
from penstock.algebra.nodes.join import condition_text, estimated_pairs, joined_pattern, joins_at_once, pruned_sides
from penstock.algebra.properties.boundedness import Boundedness
from penstock.algebra.properties.cardinality import (
    PROBED_FOR_PARTNERS,
    STORED_AND_LOOKED_UP,
    Estimate,
    Partners,
    partners,
)
from penstock.algebra.properties.statistics import Statistics
from penstock.algebra.properties.timestamps import NO_RISINGS, Risings
from penstock.algebra.properties.update_pattern import Pattern
from penstock.types import Field, Schema


class SemiKind(enum.Enum):
    SEMI = "with a partner"
    ANTI = "without a partner"
    MARK = "marked"


@dataclass(frozen=True, eq=False)
class SemiJoin(Algebra):
    """The tuples of `left`, as often as they occur there, that have (SEMI) or lack (ANTI) a partner in `right`. MARK:
    all of them, with a last column that is TRUE for those with a partner, else FALSE; never NULL.

    A partner agrees in `equal` (a NULL agrees with nothing) and makes `residual`, a condition over the columns of left
    and right, TRUE.
    """

    in_language: ClassVar[str] = "IN or EXISTS"

    left: Algebra
    right: Algebra
    equal: Pairs = ()
    residual: Condition | None = None
    kind: SemiKind = SemiKind.SEMI

    def __post_init__(self) -> None:
        need_equal_types(self.left, self.right, self.equal)

    @property
    def is_plain_sql(self) -> bool:
        return True

    @property
    def schema(self) -> Schema:
        mark = (Field("matched", pa.bool_()),) if self.kind is SemiKind.MARK else ()
        return Schema(self.left.schema.fields + mark)

    @property
    def negated_inputs(self) -> tuple[Algebra, ...]:
        return () if self.kind is SemiKind.SEMI else (self.right,)

    @property
    def pattern(self) -> Pattern:
        if self.kind is SemiKind.SEMI:
            return joined_pattern(self.left, self.right)
        if self.is_complete_at_once:
            return Pattern.MONOTONIC
        return self.left.pattern if is_static(self.right) else Pattern.STRICT

    @property
    def is_complete_at_once(self) -> bool:
        """Return whether partners enter together, and no row leaves."""
        return joins_at_once(self.left, self.right, self.equal)

    @property
    def rising(self) -> Risings:
        return self.left.rising if decides_at_once(self) else NO_RISINGS

    @property
    def keys(self) -> Keys:
        return self.left.keys

    @property
    def stored(self) -> tuple[Boundedness, ...]:
        return stored_sides(self.inputs)

    @property
    def boundedness(self) -> Boundedness:
        return self.left.boundedness

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        # A tuple of the left side lives within its own window; that of a semi-join also within its partner's.
        return holds(self.left) or (self.kind is SemiKind.SEMI and holds(self.right))

    @property
    def results_have_lives(self) -> bool:
        # A row that is looked up is decided once and for all.
        return is_static(self.right) and has_lives(self.left)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        width = len(self.left.schema)
        read = frozenset(i for i in needed if i < width)
        below = pruned_sides((self.left, self.right), self.equal, self.residual, read, pruning)
        left, right = below.left.node, below.right.node
        kept = replace(self, left=left, right=right, equal=below.equal, residual=below.residual)
        return Pruned(kept, dict(below.left.positions) | {width: len(left.schema)})  # the mark is last

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        partners = self._partners(inputs)
        if self.kind is SemiKind.ANTI:
            return partners.lone
        if self.kind is SemiKind.SEMI:
            # As that of a join, its expiration is known: that of the tuple or of its partner.
            return partners.matched if self.pattern is Pattern.STRICT else replace(partners.matched, taken=0.0)
        rate, size = partners.lone.rate + partners.matched.rate, inputs[0].size
        taken = partners.lone.taken + partners.matched.taken
        return Estimate(rate, size / rate, (*inputs[0].distinct, 2.0), taken)

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        """Return the cost of a join with the distinct partners; where tuples without one are computed, these are also
        compared with the pairs, which contain the tuples again."""
        left = _received(self.left, inputs[0])
        if is_static(self.right):
            return left + own.emitted
        stored = STORED_AND_LOOKED_UP * self.received(inputs) + own.emitted
        if self.kind is SemiKind.SEMI:
            return stored
        pairs = self._partners(inputs).matched.emitted
        return stored + (PROBED_FOR_PARTNERS - STORED_AND_LOOKED_UP) * left + pairs

    def _partners(self, inputs: Sequence[Estimate]) -> Partners:
        return partners(inputs[0], inputs[1], self.equal, self.residual, is_static(self.right))

    def describe(self) -> Mapping[str, str]:
        return {"keeps": self.kind.value, "on": condition_text(self.left, self.right, self.equal, self.residual)}


class OuterKind(enum.Enum):
    LEFT = "left"
    FULL = "both"


@dataclass(frozen=True, eq=False)
class OuterJoin(Algebra):
    """The pairs of the inner join; beside them every tuple of `left` without a partner, NULL in the columns of `right`,
    and with FULL every tuple of `right` without a partner, NULL in those of `left`. `equal`, `residual` as in `Join`.

    single: where not empty, the text of the scalar subquery that `right` stands for. A tuple of left with two partners
    is then an error of the run (P0612).
    """

    in_language: ClassVar[str] = "an outer join"

    left: Algebra
    right: Algebra
    equal: Pairs = ()
    residual: Condition | None = None
    kind: OuterKind = OuterKind.LEFT
    single: str = ""

    def __post_init__(self) -> None:
        need_equal_types(self.left, self.right, self.equal)
        if self.single and self.kind is not OuterKind.LEFT:
            raise refused("single belongs to the kind LEFT", "P0106", at=("single",))

    @property
    def is_plain_sql(self) -> bool:
        return True

    @property
    def schema(self) -> Schema:
        return Schema(self.left.schema.fields + self.right.schema.fields)

    @property
    def negated_inputs(self) -> tuple[Algebra, ...]:
        return (self.left, self.right) if self.kind is OuterKind.FULL else (self.right,)

    @property
    def stored(self) -> tuple[Boundedness, ...]:
        return stored_sides(self.inputs)

    @property
    def pattern(self) -> Pattern:
        if self.is_complete_at_once:
            return Pattern.MONOTONIC
        if self.kind is OuterKind.LEFT and is_static(self.right):
            return self.left.pattern
        return Pattern.STRICT

    @property
    def is_complete_at_once(self) -> bool:
        """Return whether partners enter together, and no row leaves."""
        return joins_at_once(self.left, self.right, self.equal)

    @property
    def rising(self) -> Risings:
        known = self.kind is OuterKind.LEFT and decides_at_once(self)
        return self.left.rising if known else NO_RISINGS

    @property
    def keys(self) -> Keys:
        if self.kind is OuterKind.FULL:
            return NO_KEYS  # a lone tuple of left and one of right may both be all NULL
        width = len(self.left.schema)
        pairs = frozenset(
            left | frozenset(width + c for c in right) for left in self.left.keys for right in self.right.keys
        )
        return pairs | self.left.keys if self.single or self._one_partner() else pairs

    def lives_within(self, holds: Callable[[Algebra], bool]) -> bool:
        return holds(self.left) and (self.kind is OuterKind.LEFT or holds(self.right))

    @property
    def results_have_lives(self) -> bool:
        # A row that is looked up is decided once and for all.
        return is_static(self.right) and self.kind is not OuterKind.FULL and has_lives(self.left)

    def pruned(self, needed: frozenset[int], pruning: ColumnPruning) -> Pruned:
        below = pruned_sides((self.left, self.right), self.equal, self.residual, needed, pruning)
        left, right = below.left.node, below.right.node
        return Pruned(
            replace(self, left=left, right=right, equal=below.equal, residual=below.residual), below.positions
        )

    def estimate_from(self, inputs: Sequence[Estimate], statistics: Statistics) -> Estimate:
        left, right = inputs
        pairs = self._pairs(inputs)
        lone = [partners(left, right, self.equal, self.residual, is_static(self.right)).lone]
        if self.kind is OuterKind.FULL:
            turned = tuple((j, i) for i, j in self.equal)
            lone.append(partners(right, left, turned, None, is_static(self.left)).lone)
        rate, size = (pairs.rate + sum(e.rate for e in lone), pairs.size + sum(e.size for e in lone))
        return Estimate(rate, size / rate, pairs.distinct, pairs.taken + sum(e.taken for e in lone))

    def cost_from(self, inputs: Sequence[Estimate], own: Estimate) -> float:
        left = _received(self.left, inputs[0])
        if is_static(self.right) and self.kind is OuterKind.LEFT:
            return left + own.emitted
        probes = self.received(inputs) if self.kind is OuterKind.FULL else left
        sides = 2 if self.kind is OuterKind.FULL else 1
        more = (PROBED_FOR_PARTNERS - STORED_AND_LOOKED_UP) * probes + self._pairs(inputs).emitted * sides
        return STORED_AND_LOOKED_UP * self.received(inputs) + more + own.emitted

    def _pairs(self, inputs: Sequence[Estimate]) -> Estimate:
        return estimated_pairs(self.left, self.right, self.equal, self.residual, inputs)

    def _one_partner(self) -> bool:
        """Return whether the equal columns hold a key of the right side."""
        reached = {j for _, j in self.equal}
        return any(key <= reached for key in self.right.keys)

    def describe(self) -> Mapping[str, str]:
        on = condition_text(self.left, self.right, self.equal, self.residual)
        return {"keeps": self.kind.value, "on": on, "single": self.single}


def _received(side: Algebra, expected: Estimate) -> float:
    """Return the elements per second that arrive from `side`; a static one is a table, from which none arrive."""
    return 0.0 if is_static(side) else expected.emitted


def decides_at_once(node: SemiJoin | OuterJoin) -> bool:
    """Return whether the partners of a row of `left` are there when it enters, all of them."""
    return is_static(node.right) or joins_at_once(node.left, node.right, node.equal, stays_or_passes)
