"""Two selections are one."""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.optimizer.rules.support import is_volatile, select
from penstock.expressions.nodes import conjuncts


def merge_selections(node: Algebra) -> Algebra:
    """σp(σq(R)) = σ(q AND p)(R).

    Law: a tuple passes both iff q and p are both TRUE, which is when q AND p is; multiplicities and validity are
    untouched. With NULL: q NULL drops the tuple on either side.
    Unsound for: volatile p, which would be drawn for tuples that q dropped and so draw other values for the rest.
    """
    if not (isinstance(node, Select) and isinstance(node.input, Select)):
        return node
    inner = node.input
    if is_volatile(node.predicate) or is_volatile(inner.predicate):
        return node
    return select(inner.input, conjuncts(inner.predicate) + conjuncts(node.predicate))
