"""Negation above a join instead of below it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.optimizer.rules.above_join import key_and_condition, pulled_above
from penstock.algebra.optimizer.rules.negation import Negation, negation, unprojected
from penstock.algebra.optimizer.rules.support import column
from penstock.expressions.nodes import Column, Expression, columns_of, is_small, remap, substitute
from penstock.types import Field


def pull_negation_above_join(node: Algebra) -> tuple[Algebra, ...]:
    """(R ▷ N) ⋈ S = (R ⋈ S) ▷ N, on either side of the join; likewise for marks and R ⟕ N.

    Law: whether r has a partner in N is decided by r and N alone, so it is the same for all that r is joined with. The
    join below then knows when its results end, and only operators above it handle negative tuples `[golab 3.5.3]`. A
    projection between the two is applied above, and the join computes what it reads of it anew: not where that would
    repeat large expressions (`is_small`).
    Unsound for: a join on the mark or on columns of N (a padded NULL joins nothing, and N's do not exist below ⟕);
    volatile conditions; a scalar subquery that is checked to have one row, since r that joins nothing is checked too.
    """
    return pulled_above(node, _pulled)


def _pulled(join: Join, from_left: bool) -> Algebra | None:
    """Return the negation over the new join, in whose rows the left side begins at `start` and the other at `aside`."""
    below, values = unprojected(join.left if from_left else join.right)
    below_join = negation(below)
    if below_join is None:
        return None
    other = join.right if from_left else join.left
    keys, condition = key_and_condition(join, from_left, values)
    own = len(below_join.left.schema)
    if any(c >= own for expression in (*keys, *condition) for c in columns_of(expression)):
        return None
    left, key_columns = _with_keys(below_join.left, keys)
    start, aside = (0, len(left.schema)) if from_left else (len(other.schema), 0)
    width = len(left.schema) + len(other.schema)

    def place(i: int) -> int:
        return start + i if i < own else width + i - own

    moved = tuple(remap(value, place) for value in values)
    kept = tuple(column(field, aside + i) for i, field in enumerate(other.schema))
    columns = (*moved, *kept) if from_left else (*kept, *moved)
    pairs = zip(key_columns, ((j if from_left else i) for i, j in join.equal), strict=True)
    equal = tuple((p, o) if from_left else (o, p) for p, o in pairs)
    residual = None if join.residual is None else substitute(join.residual, columns)
    if residual is not None and join.residual is not None and not is_small(residual, join.residual, columns):
        return None
    sides = (left, other) if from_left else (other, left)
    negated = _negated(below_join, Join(*sides, equal, residual), start, place)
    return Project(negated, columns, join.schema.fields)


def _negated(node: Negation, left: Algebra, start: int, position: Callable[[int], int]) -> Algebra:
    residual = None if node.residual is None else remap(node.residual, position)
    return replace(node, left=left, equal=tuple((start + i, j) for i, j in node.equal), residual=residual)


def _with_keys(node: Algebra, keys: list[Expression]) -> tuple[Algebra, list[int]]:
    """Return `node` with a column for each of `keys`, and their positions."""
    computed = [key for key in keys if not isinstance(key, Column)]
    if not computed:
        return node, [key.index for key in keys if isinstance(key, Column)]
    width = len(node.schema)
    fields = (*node.schema.fields, *(Field(f"key{n}", key.type) for n, key in enumerate(computed, 1)))
    columns = tuple(column(field, i) for i, field in enumerate(node.schema))
    new_columns = iter(range(width, width + len(computed)))
    key_columns = [key.index if isinstance(key, Column) else next(new_columns) for key in keys]
    return Project(node, (*columns, *computed), fields), key_columns
