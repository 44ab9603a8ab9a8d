"""Helpers of the rules about negation: the operators that emit tuples without a partner, and their columns.

A negation here is NOT EXISTS (▷), the mark with whether there is a partner, and LEFT JOIN (⟕): each passes on the
tuples of its left side, and has the STR pattern, since the arrival of a partner may retract a tuple. Columns that it
adds (the mark, the partner's) are the last ones.
"""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind, SemiJoin, SemiKind
from penstock.algebra.optimizer.rules.support import column, is_volatile
from penstock.expressions.nodes import Expression

Negation = SemiJoin | OuterJoin


def negation(node: Algebra) -> Negation | None:
    """Return `node` if it is a negation that may move; a scalar subquery that is checked to have one row may not: the
    tuples that are checked are part of its meaning."""
    if isinstance(node, SemiJoin):
        moves = node.kind is not SemiKind.SEMI
    elif isinstance(node, OuterJoin):
        moves = node.kind is OuterKind.LEFT and not node.single
    else:
        return None
    return None if not moves or (node.residual is not None and is_volatile(node.residual)) else node


def added_columns(node: Negation) -> int:
    """Return how many columns it adds to those of its left side."""
    return len(node.schema) - len(node.left.schema)


def unprojected(node: Algebra) -> tuple[Algebra, tuple[Expression, ...]]:
    """Return the node below the projection `node`, if it is one, and its expressions; volatile ones stay."""
    if isinstance(node, Project) and not any(map(is_volatile, node.expressions)):
        return node.input, node.expressions
    return node, tuple(column(field, i) for i, field in enumerate(node.schema))
