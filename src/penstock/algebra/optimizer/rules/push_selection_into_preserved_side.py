"""Selection below a join that keeps every tuple of its left side."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind, SemiJoin
from penstock.algebra.optimizer.rules.support import is_volatile, select, split
from penstock.expressions.nodes import Expression, columns_of, conjuncts


def push_selection_into_preserved_side(node: Algebra) -> Algebra:
    """σp(R ⟕ S) = σp(R) ⟕ S and σp(R ⋉ S) = σp(R) ⋉ S, also for ▷ and marks, when p reads columns of R only.

    Law: whether a tuple of R has partners is decided by it and S alone, and p is the same for all that comes of it.
    Unsound for: p over columns of S below ⟕ or the mark (`WHERE s.b IS NULL` keeps padded tuples, σ(S) makes more of
    them); FULL joins (a lone tuple of S has NULL in R's columns, and p of NULL decides, not p of any tuple of R);
    volatile conjuncts; and a scalar subquery that is checked to have one row, since p may hide the tuple that fails.
    """
    if not isinstance(node, Select):
        return node
    join = node.input
    if isinstance(join, OuterJoin):
        if join.kind is not OuterKind.LEFT or join.single:
            return node
    elif not isinstance(join, SemiJoin):
        return node
    width = len(join.left.schema)

    def movable(part: Expression) -> bool:
        return not is_volatile(part) and all(c < width for c in columns_of(part))

    move, stay = split(conjuncts(node.predicate), movable)
    return select(replace(join, left=select(join.left, move)), stay) if move else node
