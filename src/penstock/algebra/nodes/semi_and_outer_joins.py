"""Joins that ask whether a tuple has a partner: semi-joins and outer joins [semantics 4.2].

EXISTS and IN keep the tuples with a partner, NOT EXISTS those without, and both elsewhere than in a condition become a
column that says which; an outer join keeps those without a partner beside the pairs. The patterns are those of
[semantics 5]: where a tuple may have to go because a partner came, STR; a semi-join is as its join is `[golab 3.3]`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.base import NO_KEYS, Algebra, Keys, is_static
from penstock.algebra.nodes.join import Pairs, condition_text, joined_pattern
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.nodes import Expression
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

    left: Algebra
    right: Algebra
    equal: Pairs
    residual: Expression | None = None
    kind: SemiKind = SemiKind.SEMI

    @property
    def schema(self) -> Schema:
        mark = (Field("matched", pa.bool_()),) if self.kind is SemiKind.MARK else ()
        return Schema(self.left.schema.fields + mark)

    @property
    def pattern(self) -> Pattern:
        if self.kind is SemiKind.SEMI:
            return joined_pattern(self.left, self.right)
        return self.left.pattern if is_static(self.right) else Pattern.STRICT

    @property
    def keys(self) -> Keys:
        return self.left.keys

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

    left: Algebra
    right: Algebra
    equal: Pairs
    residual: Expression | None = None
    kind: OuterKind = OuterKind.LEFT
    single: str = ""

    @property
    def schema(self) -> Schema:
        return Schema(self.left.schema.fields + self.right.schema.fields)

    @property
    def pattern(self) -> Pattern:
        if self.kind is OuterKind.LEFT and is_static(self.right):
            return self.left.pattern
        return Pattern.STRICT

    @property
    def keys(self) -> Keys:
        if self.kind is OuterKind.FULL:
            return NO_KEYS  # a lone tuple of left and one of right may both be all NULL
        width = len(self.left.schema)
        pairs = frozenset(
            left | frozenset(width + c for c in right) for left in self.left.keys for right in self.right.keys
        )
        return pairs | self.left.keys if self.single or self._one_partner() else pairs

    def _one_partner(self) -> bool:
        """Return whether the equal columns hold a key of the right side."""
        reached = {j for _, j in self.equal}
        return any(key <= reached for key in self.right.keys)

    def describe(self) -> Mapping[str, str]:
        on = condition_text(self.left, self.right, self.equal, self.residual)
        return {"keeps": self.kind.value, "on": on, "single": self.single}
