"""Joins of two relations; validity intervals intersect (DESIGN 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.algebra.nodes import Algebra, Keys, is_static
from penstock.algebra.pattern import Pattern
from penstock.expressions.nodes import Call, Expression, conjuncts
from penstock.expressions.text import to_sql
from penstock.types import Schema


@dataclass(frozen=True, eq=False)
class Join(Algebra):
    """Inner join. Columns: the left ones, then the right ones.

    equal: pairs (left position, right position in the right input) of the equi-join; the two columns have the same
    type. residual: any further condition over the joined row, or None.
    """

    left: Algebra
    right: Algebra
    equal: tuple[tuple[int, int], ...]
    residual: Expression | None = None

    @property
    def schema(self) -> Schema:
        return Schema(self.left.schema.fields + self.right.schema.fields)

    @property
    def pattern(self) -> Pattern:
        inputs = (self.left.pattern, self.right.pattern)
        if Pattern.STRICT in inputs:
            return Pattern.STRICT
        # LANGUAGE 5: join of MON and MON is MON, else WK. What never changes does not add to the other's pattern.
        for side, other in ((self.left, self.right), (self.right, self.left)):
            if is_static(side):
                return other.pattern
        return Pattern.MONOTONIC if max(inputs) is Pattern.MONOTONIC else Pattern.WEAK

    @property
    def keys(self) -> Keys:
        width = len(self.left.schema)
        return frozenset(
            left | frozenset(width + c for c in right) for left in self.left.keys for right in self.right.keys
        )

    def describe(self) -> Mapping[str, str]:
        names = self.schema.names
        width = len(self.left.schema)
        labels = [
            name if names.count(name) == 1 else f"{'left' if i < width else 'right'}.{name}"
            for i, name in enumerate(names)
        ]
        parts = [f"{labels[left]} = {labels[width + right]}" for left, right in self.equal]
        for part in () if self.residual is None else conjuncts(self.residual):
            text = to_sql(part, labels)
            parts.append(f"({text})" if isinstance(part, Call) and part.function == "OR" else text)
        return {"on": " AND ".join(parts) or "every pair"}
