"""Selection of values before coalescing."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.coalesce import Coalesce
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.optimizer.rules.support import is_volatile, same_for_equal, select, split
from penstock.expressions.nodes import Expression, columns_of, conjuncts


def push_selection_below_coalesce(node: Algebra) -> Algebra:
    """σp(coal_C(R)) = coal_C(σp(R)) for a p that reads nothing but C.

    Law: the stretches of a value follow from the rows of that value alone, and p keeps or drops a value whole.
    Unsound for:
    - a p on the period: of [1, 3) and [3, 9), LENGTH(VALID) >= 7 drops both, and holds of [1, 9);
    - coalescing under a budget: what p drops counts in it, and pushes out others;
    - volatile p, and a p that distinguishes equal values: -0.0 and 0.0 are one value, and differ as text.
    """
    if not (isinstance(node, Select) and isinstance(node.input, Coalesce)) or node.input.budget is not None:
        return node
    coalesced = node.input
    value = frozenset(coalesced.value)

    def movable(part: Expression) -> bool:
        return columns_of(part) <= value and not is_volatile(part) and same_for_equal(part)

    move, stay = split(conjuncts(node.predicate), movable)
    return select(replace(coalesced, input=select(coalesced.input, move)), stay) if move else node
