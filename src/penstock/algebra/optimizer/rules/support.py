"""Helpers of the rules: which expressions may move, and small builders."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Select
from penstock.expressions.calls.functions import row_of
from penstock.expressions.calls.volatile import volatile
from penstock.expressions.nodes import Call, Column, Expression, conjunction
from penstock.types import Field


def is_volatile(expression: Expression) -> bool:
    """Return whether two evaluations over equal rows may differ. No rule moves, copies or merges such an expression:
    RAND() drawn once for a column that is read twice is not RAND() drawn twice, nor a draw before a join one after
    it."""
    return volatile(expression)


def is_trivial(expression: Expression) -> bool:
    """Return whether evaluating `expression` twice costs nothing."""
    return not expression.children


def same_for_equal(expression: Expression) -> bool:
    """Return whether equal column values give equal results.

    True of everything but floats: -0.0 and 0.0 are one key, yet CAST(x AS STRING) differs. A float column is accepted
    only directly below a comparison, where they are equal.
    """
    if isinstance(expression, Column):
        return not pa.types.is_floating(expression.type)
    row = row_of(expression.function) if isinstance(expression, Call) else None
    compared = row is not None and row.compares
    return all(
        (compared and isinstance(child, Column)) or same_for_equal(child)
        for child in expression.children
        if isinstance(child, Expression)
    )


def unique(parts: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """Return `parts` without repetitions of deterministic ones, in the order of their first occurrence."""
    seen: dict[str, Expression] = {}
    for number, part in enumerate(parts):
        seen.setdefault(f"{number}" if is_volatile(part) else part.fingerprint, part)
    return tuple(seen.values())


def select(node: Algebra, parts: tuple[Expression, ...]) -> Algebra:
    """Return `node` under a selection by the AND of `parts`; `node` itself for none."""
    predicate = conjunction(unique(parts))
    return node if predicate is None else Select(node, predicate)


def split(
    parts: tuple[Expression, ...], chosen: Callable[[Expression], bool]
) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """Return the parts that are `chosen`, and the rest."""
    return tuple(p for p in parts if chosen(p)), tuple(p for p in parts if not chosen(p))


def column(field: Field, index: int) -> Column:
    """Return a reference to the input column `field` at `index`."""
    return Column(field.type, index, field.name)


def over_inputs(node: Algebra, function: Callable[[Algebra], Algebra]) -> Algebra:
    """Return `node` with `function` applied to the algebra nodes directly below."""
    return node.with_children(tuple(function(c) if isinstance(c, Algebra) else c for c in node.children))
