"""HAVING on group columns is WHERE."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.aggregate import Aggregate
from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.optimizer.rules.support import is_volatile, same_for_equal, select, split
from penstock.expressions.nodes import Expression, columns_of, conjuncts, remap


def push_selection_through_aggregate(node: Algebra) -> Algebra:
    """σp(γ_G;a(R)) = γ_G;a(σp(R)) when p reads only columns of G and G is not empty.

    Law: p is the same for all tuples of a group (NULL groups too), so it keeps or drops whole groups, and a group that
    lost all its tuples has no row.
    Unsound below an ungrouped aggregate: σ FALSE (COUNT(*)(R)) has no row, COUNT(*)(σ FALSE (R)) has the row 0. Unsound
    for conjuncts over an aggregate's value, volatile ones, and those that distinguish equal floats.
    """
    if not (isinstance(node, Select) and isinstance(node.input, Aggregate) and node.input.group):
        return node
    aggregate = node.input
    width = len(aggregate.group)

    def movable(part: Expression) -> bool:
        return not is_volatile(part) and all(c < width for c in columns_of(part)) and same_for_equal(part)

    move, stay = split(conjuncts(node.predicate), movable)
    if not move:
        return node
    below = select(aggregate.input, tuple(remap(p, lambda i: aggregate.group[i]) for p in move))
    return select(replace(aggregate, input=below), stay)
