"""Two projections are one."""

from __future__ import annotations

from collections import Counter

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.optimizer.rules.support import is_trivial, is_volatile
from penstock.expressions.nodes import Column, is_low, substitute_all
from penstock.tree import walk


def merge_projections(node: Algebra) -> Algebra:
    """π_e(π_f(R)) = π_e[f](R): the outer expressions with the inner ones put in.

    Law: a projection maps every tuple by itself, keeps its multiplicity and validity, and maps compose.
    Not done when an inner expression that costs something is read more than once (it would be computed again each
    time), or where the expressions would become too deep. Unsound for volatile inner ones: π_(x+x)(π_(RAND() AS x)(R))
    is always even, RAND() + RAND() is not.
    """
    if not (isinstance(node, Project) and isinstance(node.input, Project)):
        return node
    inner = node.input
    reads = Counter(c.index for e in node.expressions for c in walk(e) if isinstance(c, Column))
    for index, expression in enumerate(inner.expressions):
        if is_volatile(expression) or (reads[index] > 1 and not is_trivial(expression)):
            return node
    merged = substitute_all(node.expressions, inner.expressions)
    return Project(inner.input, merged, node.fields) if is_low(merged) else node
