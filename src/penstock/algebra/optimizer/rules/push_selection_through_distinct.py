"""Selection before duplicate elimination."""

from __future__ import annotations

from penstock.algebra.nodes.aggregate import Distinct
from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.optimizer.rules.support import is_volatile, same_for_equal, select, split
from penstock.expressions.nodes import Expression, conjuncts


def push_selection_through_distinct(node: Algebra) -> Algebra:
    """σp(δ(R)) = δ(σp(R)).

    Law: all duplicates of a tuple pass or fail together, since they are equal and p is decided by the tuple.
    Unsound for: volatile p; and for a p that distinguishes equal floats (-0.0 and 0.0 are one tuple to δ, but
    CAST(x AS STRING) = '0.0' is true of one of them), see `same_for_equal`.
    """
    if not (isinstance(node, Select) and isinstance(node.input, Distinct)):
        return node
    move, stay = split(conjuncts(node.predicate), _movable)
    return select(Distinct(select(node.input.input, move)), stay) if move else node


def _movable(part: Expression) -> bool:
    return not is_volatile(part) and same_for_equal(part)
