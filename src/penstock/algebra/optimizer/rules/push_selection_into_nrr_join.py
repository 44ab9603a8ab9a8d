"""A selection over a join with a NON RETROACTIVE relation goes to the side that decides it, or into its condition."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.nonretroactive import NRRJoin
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.optimizer.rules.support import is_volatile, select, split, unique
from penstock.expressions.nodes import columns_of, conjunction, conjuncts, remap


def push_selection_into_nrr_join(node: Algebra) -> Algebra:
    """σ(p(S) AND q(N) AND θ)(S ⋈nrr N) = σp(S) ⋈nrr,θ σq(N).

    Law: the join pairs every element of S with the rows of N as of one instant and keeps a pair iff its condition is
    TRUE; p and q look at one half of the pair. Elements of S that p drops live in the same window, above which the
    selection stays.
    Unsound for: volatile conjuncts. A row of N that q drops still counts for its primary key: the relation is kept
    below q.
    """
    if not (isinstance(node, Select) and isinstance(node.input, NRRJoin)):
        return node
    stay, move = split(conjuncts(node.predicate), is_volatile)
    if not move:
        return node
    join = node.input
    width = len(join.left.schema)
    left, remaining = split(move, lambda p: all(c < width for c in columns_of(p)))
    right, both = split(remaining, lambda p: all(c >= width for c in columns_of(p)))
    known = () if join.residual is None else conjuncts(join.residual)
    moved = replace(
        join,
        left=select(join.left, left),
        right=select(join.right, tuple(remap(p, lambda i: i - width) for p in right)),
        residual=conjunction(unique(known + both)),
    )
    return select(moved, stay)
