"""The equalities of a join, and the promises of its two sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.properties.promises import PassedPromise


@dataclass(frozen=True)
class ComparedInputs:
    """Two inputs of a join, and the pairs of plain columns of them that `=` compares: (left, right)."""

    left: Algebra
    right: Algebra
    pairs: frozenset[tuple[int, int]]

    @property
    def sides(self) -> tuple[Algebra, Algebra]:
        return self.left, self.right

    def exchanged(self, side: int) -> frozenset[tuple[int, int]]:
        """Return the pairs as (column of `side`, column of the other side)."""
        return self.pairs if side == 0 else frozenset((b, a) for a, b in self.pairs)

    def compared(self, side: int, promise: PassedPromise) -> tuple[int, ...] | None:
        """Return the columns of `side` that are compared with those of a promise of the other one; None where one of
        these is compared with none."""
        found: list[int] = []
        for column in promise.columns:
            own = sorted(mine for mine, theirs in self.exchanged(side) if theirs == column)
            if not own:
                return None
            found.append(own[0])
        return tuple(found)


def promises_of_other(inputs: ComparedInputs, kind: type) -> Iterator[tuple[int, PassedPromise, tuple[int, ...]]]:
    """Yield (side, promise of the other side, columns of the side compared with it) for the promises of a class."""
    for side in (0, 1):
        for promise in inputs.sides[1 - side].promises:
            columns = inputs.compared(side, promise) if isinstance(promise.promise, kind) else None
            if columns is not None:
                yield side, promise, columns
