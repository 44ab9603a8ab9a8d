"""A selection over a join is a join condition."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.optimizer.rules.support import is_volatile, select, split, unique
from penstock.expressions.nodes import conjunction, conjuncts


def selection_into_join(node: Algebra) -> Algebra:
    """σp(R ⋈θ S) = R ⋈(θ AND p) S, for the inner join.

    Law: both keep exactly the pairs for which θ and p are TRUE. `split_join_condition` then takes the condition apart.
    Unsound for: outer joins (WHERE drops a padded tuple, ON pads it) and volatile conjuncts.
    """
    if not (isinstance(node, Select) and isinstance(node.input, Join)):
        return node
    stay, move = split(conjuncts(node.predicate), is_volatile)
    if not move:
        return node
    join = node.input
    known = () if join.residual is None else conjuncts(join.residual)
    return select(replace(join, residual=conjunction(unique(known + move))), stay)
