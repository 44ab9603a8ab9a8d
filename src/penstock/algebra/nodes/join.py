"""Joins of two relations; validity intervals intersect [semantics 2]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.algebra.nodes.base import Algebra, Keys, is_static
from penstock.algebra.properties.update_pattern import Pattern
from penstock.expressions.nodes import Call, Expression, conjuncts
from penstock.expressions.text import to_sql
from penstock.types import Schema

#: Columns that must be equal: (position in the left input, position in the right one).
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Join(Algebra):
    """Inner join. Columns: the left ones, then the right ones.

    equal: pairs (left position, right position in the right input) of the equi-join; the two columns have the same
    type. residual: any further condition over the joined row, or None.
    """

    left: Algebra
    right: Algebra
    equal: Pairs
    residual: Expression | None = None

    @property
    def schema(self) -> Schema:
        return Schema(self.left.schema.fields + self.right.schema.fields)

    @property
    def pattern(self) -> Pattern:
        return joined_pattern(self.left, self.right)

    @property
    def keys(self) -> Keys:
        width = len(self.left.schema)
        return frozenset(
            left | frozenset(width + c for c in right) for left in self.left.keys for right in self.right.keys
        )

    def describe(self) -> Mapping[str, str]:
        return {"on": condition_text(self.left, self.right, self.equal, self.residual)}


def condition_text(left: Algebra, right: Algebra, equal: Pairs, residual: Expression | None) -> str:
    """Return the condition under which two relations are joined, as SQL."""
    names = left.schema.names + right.schema.names
    width = len(left.schema)
    labels = [
        name if names.count(name) == 1 else f"{'left' if i < width else 'right'}.{name}" for i, name in enumerate(names)
    ]
    parts = [f"{labels[i]} = {labels[width + j]}" for i, j in equal]
    for part in () if residual is None else conjuncts(residual):
        text = to_sql(part, labels)
        parts.append(f"({text})" if isinstance(part, Call) and part.function == "OR" else text)
    return " AND ".join(parts) or "every pair"


def joined_pattern(left: Algebra, right: Algebra) -> Pattern:
    """The pattern of what lives as long as a tuple of either side does [semantics 5]: MON of MON and MON, else WK."""
    inputs = (left.pattern, right.pattern)
    if Pattern.STRICT in inputs:
        return Pattern.STRICT
    # What never changes does not add to the other's pattern.
    for side, other in ((left, right), (right, left)):
        if is_static(side):
            return other.pattern
    return Pattern.MONOTONIC if max(inputs) is Pattern.MONOTONIC else Pattern.WEAK
