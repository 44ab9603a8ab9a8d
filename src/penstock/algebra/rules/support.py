"""What the rules share: which expressions may move, and small builders."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from penstock.algebra.nodes import Algebra
from penstock.algebra.rowwise import Select
from penstock.expressions.nodes import Call, Column, Expression, conjunction
from penstock.expressions.user import volatile
from penstock.tree import walk
from penstock.types import Field

#: Functions whose value is not decided by their arguments. No rule moves, copies or merges them: RAND() drawn once for
#: a column that is read twice is not RAND() drawn twice, and a draw before a join is not a draw after it.
VOLATILE = frozenset({
    "RAND", "RANDN", "RANDOM", "UUID", "SHUFFLE", "MONOTONICALLY_INCREASING_ID",
    "NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "LOCALTIMESTAMP", "UNIX_TIMESTAMP",
})  # fmt: skip

_COMPARISONS = frozenset({"EQ", "NE", "LT", "LE", "GT", "GE", "EQ_NULL_SAFE", "IN", "IS_NULL", "IS_NOT_NULL", "IS_NAN"})


def is_volatile(expression: Expression) -> bool:
    """Whether two evaluations over equal rows may differ."""
    drawn = any(isinstance(node, Call) and node.function in VOLATILE for node in walk(expression))
    return drawn or volatile(expression)


def is_trivial(expression: Expression) -> bool:
    """Whether evaluating `expression` twice costs nothing."""
    return not expression.children


def same_for_equal(expression: Expression) -> bool:
    """Whether equal column values give equal results.

    True of everything but floats: -0.0 and 0.0 are one key, yet CAST(x AS STRING) tells them apart. A float column is
    let pass only right below a comparison, which does not.
    """
    if isinstance(expression, Column):
        return not pa.types.is_floating(expression.type)
    compared = isinstance(expression, Call) and expression.function in _COMPARISONS
    return all(
        (compared and isinstance(child, Column)) or same_for_equal(child)
        for child in expression.children
        if isinstance(child, Expression)
    )


def unique(parts: tuple[Expression, ...]) -> tuple[Expression, ...]:
    """`parts` without repetitions of deterministic ones, in the order of their first occurrence."""
    seen: dict[str, Expression] = {}
    for number, part in enumerate(parts):
        seen.setdefault(f"{number}" if is_volatile(part) else part.fingerprint, part)
    return tuple(seen.values())


def select(node: Algebra, parts: tuple[Expression, ...]) -> Algebra:
    """`node` under a selection by the AND of `parts`; `node` itself for none."""
    predicate = conjunction(unique(parts))
    return node if predicate is None else Select(node, predicate)


def split(
    parts: tuple[Expression, ...], chosen: Callable[[Expression], bool]
) -> tuple[tuple[Expression, ...], tuple[Expression, ...]]:
    """The parts that are `chosen`, and the rest."""
    return tuple(p for p in parts if chosen(p)), tuple(p for p in parts if not chosen(p))


def column(field: Field, index: int) -> Column:
    """A reference to the input column `field` at `index`."""
    return Column(field.type, index, field.name)


def over_inputs(node: Algebra, function: Callable[[Algebra], Algebra]) -> Algebra:
    """`node` with `function` applied to the algebra nodes directly below."""
    return node.with_children(tuple(function(c) if isinstance(c, Algebra) else c for c in node.children))
