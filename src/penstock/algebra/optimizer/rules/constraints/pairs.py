"""The equalities of a join, and the promises of its two sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.base.fields import Pairs
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.properties.promises import PassedPromise
from penstock.expressions.nodes import Cast, Column, Expression

#: The digits of the largest integer, by bits.
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


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


def compared_columns(left: Algebra, right: Algebra, equal: Pairs) -> frozenset[tuple[int, int]]:
    """Return the pairs of columns that a join compares; of one that is computed by widening, what is widened."""
    return frozenset((_origin(left, a), _origin(right, b)) for a, b in equal)


def _origin(side: Algebra, column: int) -> int:
    expression = side.expressions[column] if isinstance(side, Project) else None
    if not isinstance(side, Project) or not isinstance(expression, Cast):
        return column
    plain = plain_column(expression)
    placed = [i for i, e in enumerate(side.expressions) if isinstance(e, Column) and e.index == plain]
    return placed[0] if placed else column


def plain_column(expression: Expression) -> int | None:
    """Return the column that an expression is, or that it widens; None for another expression."""
    if isinstance(expression, Cast) and isinstance(expression.argument, Column):
        return expression.argument.index if _widens(expression.argument.type, expression.type) else None
    return expression.index if isinstance(expression, Column) else None


def _widens(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether every number of one type is one of the other, and different ones stay different."""
    if pa.types.is_integer(narrow):
        if pa.types.is_integer(wide):
            return bool(narrow.bit_width <= wide.bit_width)
        if pa.types.is_floating(wide):
            return bool(2 * narrow.bit_width <= wide.bit_width)
        return bool(pa.types.is_decimal(wide) and wide.precision - wide.scale >= _DIGITS[narrow.bit_width])
    if pa.types.is_decimal(narrow):
        whole = narrow.precision - narrow.scale
        fits = pa.types.is_decimal(wide) and wide.precision - wide.scale >= whole and wide.scale >= narrow.scale
        return bool(fits)
    return bool(pa.types.is_floating(narrow) and pa.types.is_floating(wide) and narrow.bit_width <= wide.bit_width)
