"""A join's condition taken apart: what one side decides, equal columns, the rest."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.null_safe import same_keys
from penstock.algebra.optimizer.rules.support import is_volatile, same_for_equal, select, unique
from penstock.expressions.nodes import Call, Column, Expression, columns_of, conjunction, conjuncts, remap

Pairs = tuple[tuple[int, int], ...]


def split_join_condition(node: Algebra) -> Algebra:
    """R ⋈(p(R) AND q(S) AND r.k = s.k AND θ) S = σp(R) ⋈[k = k; θ] σq(S).

    Law: a pair is kept iff every conjunct is TRUE; one without columns goes to both sides, which then store nothing if
    it is FALSE. A NULL key makes r.k = s.k NULL, and NULL keys never join.
    Across equal columns: of pairs with r.k = s.k, p(r.k) holds iff p(s.k) does, so p is copied to the other side
    (`a.k = b.k AND a.k = 5` reads only b.k = 5 of b); for floats only as far as `same_for_equal` goes. So for r.k <=>
    s.k, as `compute_join_keys` leaves it: p is the same for two NULLs too.
    Unsound for: outer joins (the padded side must not be filtered); volatile conjuncts; r.k = s.k of different types.
    """
    if not isinstance(node, Join) or node.residual is None:
        return node
    width = len(node.left.schema)
    parts = conjuncts(node.residual)
    fixed = tuple(p for p in parts if not is_volatile(p))
    pairs = {p: _pair(p, width) for p in fixed}
    equal = tuple(dict.fromkeys((*node.equal, *(pair for pair in pairs.values() if pair is not None))))
    left = tuple(p for p in fixed if all(c < width for c in columns_of(p)))
    right = tuple(remap(p, lambda i: i - width) for p in fixed if all(c >= width for c in columns_of(p)))
    remaining = tuple(p for p in parts if is_volatile(p) or (pairs[p] is None and _crosses(p, width)))
    if len(remaining) == len(parts):
        return node
    alike = (*equal, *_null_safe_pairs(node.left, node.right, equal))
    flipped = tuple((r, s) for s, r in alike)
    return Join(
        select(node.left, unique(left + tuple(_copies(right, flipped)))),
        select(node.right, unique(right + tuple(_copies(left, alike)))),
        equal,
        conjunction(remaining),
    )


def _crosses(part: Expression, width: int) -> bool:
    columns = columns_of(part)
    return any(c < width for c in columns) and any(c >= width for c in columns)


def _pair(part: Expression, width: int) -> tuple[int, int] | None:
    """Return the equi-join pair that `part` states, if it does."""
    if not (isinstance(part, Call) and part.function == "EQ" and _crosses(part, width)):
        return None
    first, second = part.arguments
    if not (isinstance(first, Column) and isinstance(second, Column)) or first.type != second.type:
        return None
    return min(first.index, second.index), max(first.index, second.index) - width


def _null_safe_pairs(left: Algebra, right: Algebra, equal: Pairs) -> Iterable[tuple[int, int]]:
    """Yield the columns that are equal, NULL like NULL, as the computed keys `equal` of two projections say."""
    if not (isinstance(left, Project) and isinstance(right, Project)):
        return
    keys = {(left.expressions[i], right.expressions[j]) for i, j in equal}
    for i, first in enumerate(left.expressions):
        for j, second in enumerate(right.expressions):
            if isinstance(first, Column) and isinstance(second, Column) and first.type == second.type:
                same = same_keys(first, second)
                if same is not None and keys.issuperset(same):
                    yield i, j


def _copies(parts: tuple[Expression, ...], pairs: Pairs) -> Iterable[Expression]:
    """Return, for each of `parts` over one equal column, the same condition on the other side's column."""
    for part in parts:
        columns = columns_of(part)
        if len(columns) == 1 and same_for_equal(part):
            for own, equal in pairs:
                if own in columns:
                    yield remap(part, lambda _, to=equal: to)  # type: ignore[misc]  # a default is a parameter to the checker
