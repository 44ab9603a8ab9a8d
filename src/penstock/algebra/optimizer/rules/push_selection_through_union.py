"""Selection in every member of a union."""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.nodes.set_operations import UnionAll
from penstock.algebra.optimizer.rules.support import is_volatile, select, split
from penstock.expressions.nodes import conjuncts


def push_selection_through_union(node: Algebra) -> Algebra:
    """σp(R ⊎ S) = σp(R) ⊎ σp(S).

    Law: σ is linear in multiplicities, also in those of negative tuples. The members agree by position and type, so p
    needs no change.
    Unsound for: volatile conjuncts, which stay above.
    """
    if not (isinstance(node, Select) and isinstance(node.input, UnionAll)):
        return node
    stay, move = split(conjuncts(node.predicate), is_volatile)
    if not move:
        return node
    return select(UnionAll(tuple(select(member, move) for member in node.input.members)), stay)
