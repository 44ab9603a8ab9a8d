"""Constant folding."""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import Expression
from penstock.tree import Node


def fold_constants(node: Algebra) -> Algebra:
    """An expression without columns is the literal it evaluates to.

    Law: e over no column has one value v, so e = v in every row; and no row ever kills a query (1/0 is NULL), so
    evaluating early cannot raise what evaluating late would not.
    Unsound for: volatile functions (RAND() is not one number), which the folder leaves alone. An expression whose
    folded type differs is left as it was: the schema is fixed by binding.
    """
    return node.with_children(tuple(_folded(child) for child in node.children))


def _folded(child: Node) -> Node:
    if not isinstance(child, Expression):
        return child
    folded = fold(child)
    return folded if folded.type == child.type and folded != child else child
