"""Bag and set operations on relations with the same columns (LANGUAGE 4.2)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algebra.nodes import Algebra
from penstock.algebra.pattern import Pattern, worst
from penstock.algebra.windows import Window
from penstock.tree import walk
from penstock.types import Schema


@dataclass(frozen=True, eq=False)
class UnionAll(Algebra):
    """The sum of bags. All inputs have the same column types; names are the first one's."""

    members: tuple[Algebra, ...]

    @property
    def schema(self) -> Schema:
        return self.members[0].schema

    @property
    def pattern(self) -> Pattern:
        found = worst(m.pattern for m in self.members)
        if found is Pattern.WEAKEST:
            lengths = {
                (node.kind, node.length, node.slide, node.align)
                for m in self.members
                for node in walk(m)
                if isinstance(node, Window)
            }
            # Elements of windows of different length or boundaries do not leave in the order they came.
            return Pattern.WEAKEST if len(lengths) == 1 else Pattern.WEAK
        return found
