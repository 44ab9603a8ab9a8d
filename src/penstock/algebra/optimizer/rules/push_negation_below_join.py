"""Negation below a join instead of above it."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.optimizer.rules.negation import Negation, added_columns, negation, unprojected
from penstock.algebra.optimizer.rules.support import column
from penstock.expressions.nodes import Column, Expression, columns_of, is_small, remap, substitute


def push_negation_below_join(node: Algebra) -> tuple[Algebra, ...]:
    """(R ⋈ S) ▷ N = (R ▷ N) ⋈ S where the condition of ▷ reads columns of R only, and likewise for S; so for marks
    and ⟕.

    Law: that of `pull_negation_above_join`, read the other way. It pays where the join makes much of what few tuples of
    R are left of. A projection between the two is applied above; not where the condition would repeat large expressions
    of it (`is_small`).
    Unsound for: a condition over columns of both sides (a pair may lack a partner that r has); volatile conditions; and
    a scalar subquery that is checked to have one row, since r that joins nothing would be checked too.
    """
    negated = negation(node)
    if negated is None:
        return ()
    join, values = unprojected(negated.left)
    if not isinstance(join, Join):
        return ()
    plans = (_pushed(negated, join, values, to_left) for to_left in (True, False))
    return tuple(plan for plan in plans if plan is not None)


def _pushed(negated: Negation, join: Join, values: tuple[Expression, ...], to_left: bool) -> Algebra | None:
    own, added = len(negated.left.schema), added_columns(negated)
    width = len(join.left.schema)
    side = join.left if to_left else join.right
    start = 0 if to_left else width
    keys = [values[i] for i, _ in negated.equal]
    read = () if negated.residual is None else columns_of(negated.residual)
    decisive = [*keys, *(values[i] for i in read if i < own)]
    inside = range(start, start + len(side.schema))
    if not all(isinstance(key, Column) for key in keys):
        return None
    if not all(c in inside for expression in decisive for c in columns_of(expression)):
        return None
    equal = tuple((next(iter(columns_of(key))) - start, j) for key, (_, j) in zip(keys, negated.equal, strict=True))
    over_side = _condition(negated, values, side, start)
    if over_side is not None and negated.residual is not None:
        partners = tuple(column(field, own + j) for j, field in enumerate(negated.right.schema))
        if not is_small(over_side, negated.residual, values + partners):
            return None
    below = replace(negated, left=side, equal=equal, residual=over_side)

    def place(i: int) -> int:
        return i + added if to_left and i >= width else i

    condition = None if join.residual is None else remap(join.residual, place)
    joined = replace(join, left=below if to_left else join.left, right=join.right if to_left else below)
    moved = tuple(remap(value, place) for value in values)
    first = start + len(side.schema)
    extra = tuple(column(field, first + n) for n, field in enumerate(negated.schema.fields[own:]))
    return Project(replace(joined, residual=condition), (*moved, *extra), negated.schema.fields)


def _condition(negated: Negation, values: tuple[Expression, ...], side: Algebra, start: int) -> Expression | None:
    """Return the residual of `negated` over `side` and the partners."""
    if negated.residual is None:
        return None
    left = tuple(remap(value, lambda i: i - start) for value in values)
    right = tuple(column(field, len(side.schema) + j) for j, field in enumerate(negated.right.schema))
    return substitute(negated.residual, left + right)
