"""Selection on both sides of EXCEPT and INTERSECT."""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.nodes.set_operations import Except, Intersect
from penstock.algebra.optimizer.rules.support import is_volatile, same_for_equal, select, split
from penstock.expressions.nodes import Expression, conjuncts


def push_selection_through_except_intersect(node: Algebra) -> Algebra:
    """σp(R − S) = σp(R) − σp(S), and σp(R ∩ S) = σp(R) ∩ σp(S), with ALL and without.

    Law: the copies of a tuple in the result are f(l, r) of its copies on either side, and f(0, 0) = 0. Where p holds,
    neither count changes; where it does not, both become 0.
    Unsound for: volatile p; and for a p that distinguishes equal floats: {0.0} − {-0.0} is empty, but were only one of
    the two to pass CAST(x AS STRING) = '0.0', the difference of what is left would not be (`same_for_equal`).
    """
    if not (isinstance(node, Select) and isinstance(node.input, Except | Intersect)):
        return node
    move, stay = split(conjuncts(node.predicate), _movable)
    if not move:
        return node
    below = node.input
    return select(type(below)(select(below.left, move), select(below.right, move), below.every), stay)


def _movable(part: Expression) -> bool:
    return not is_volatile(part) and same_for_equal(part)
