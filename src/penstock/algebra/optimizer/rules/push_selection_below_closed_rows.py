"""Selection before CLOSED, which then holds fewer rows."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.promised import ClosedRows
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.optimizer.rules.support import is_volatile, select, split
from penstock.expressions.nodes import conjuncts


def push_selection_below_closed_rows(node: Algebra) -> Algebra:
    """σp(closed(R)) = closed(σp(R)).

    Law: a row enters at the closing of its value, which follows from the elements of the declared stream alone: rows
    that p drops count all the same.
    Unsound for volatile p.
    """
    if not (isinstance(node, Select) and isinstance(node.input, ClosedRows)):
        return node
    closed = node.input
    move, stay = split(conjuncts(node.predicate), lambda part: not is_volatile(part))
    return select(replace(closed, input=select(closed.input, move)), stay) if move else node
