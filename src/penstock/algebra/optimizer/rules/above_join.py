"""Helpers of the rules that pull an operator from one side of a join above it."""

from __future__ import annotations

from collections.abc import Callable

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.optimizer.rules.support import is_volatile
from penstock.expressions.nodes import Expression, columns_of


def pulled_above(node: Algebra, pulled: Callable[[Join, bool], Algebra | None]) -> tuple[Algebra, ...]:
    """Return the plans that `pulled` makes of a join from its left (True) and from its right."""
    if not isinstance(node, Join) or (node.residual is not None and is_volatile(node.residual)):
        return ()
    plans = (pulled(node, from_left) for from_left in (True, False))
    return tuple(plan for plan in plans if plan is not None)


def key_and_condition(
    join: Join, from_left: bool, values: tuple[Expression, ...]
) -> tuple[list[Expression], list[Expression]]:
    """Return which of one side's columns, which are `values`, a join reads in its equalities, in their order, and in
    its further condition."""
    keys = [values[i if from_left else j] for i, j in join.equal]
    first = 0 if from_left else len(join.left.schema)
    read = () if join.residual is None else columns_of(join.residual)
    return keys, [values[i - first] for i in read if first <= i < first + len(values)]
