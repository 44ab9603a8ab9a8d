"""What the rules about negation share: which operators tell of tuples without a partner, and how they are put together.

A negation here is NOT EXISTS (▷), the mark that says whether there is a partner, and LEFT JOIN (⟕): each hands on the
tuples of its left side, and has the STR pattern, since a tuple may have to go because a partner comes. Columns that it
adds (the mark, the partner's) stand last.
"""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, OuterKind, SemiJoin, SemiKind
from penstock.algebra.optimizer.rules.support import column, is_volatile
from penstock.expressions.nodes import Expression

Negation = SemiJoin | OuterJoin


def negation(node: Algebra) -> Negation | None:
    """`node` where it is one that may move; a scalar subquery that is checked to have one row may not: which tuples are
    checked is part of what it says."""
    if isinstance(node, SemiJoin):
        moves = node.kind is not SemiKind.SEMI
    elif isinstance(node, OuterJoin):
        moves = node.kind is OuterKind.LEFT and not node.single
    else:
        return None
    return None if not moves or (node.residual is not None and is_volatile(node.residual)) else node


def added_columns(node: Negation) -> int:
    """How many columns it adds to those of its left side."""
    return len(node.schema) - len(node.left.schema)


def unprojected(node: Algebra) -> tuple[Algebra, tuple[Expression, ...]]:
    """`node` as expressions over the columns of what stands below its projection, if it is one; volatile ones stay."""
    if isinstance(node, Project) and not any(map(is_volatile, node.expressions)):
        return node.input, node.expressions
    return node, tuple(column(field, i) for i, field in enumerate(node.schema))
