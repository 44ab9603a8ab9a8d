"""Selection before projection."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.optimizer.rules.support import is_volatile, select, split
from penstock.expressions.nodes import conjuncts, is_low, substitute


def push_selection_through_projection(node: Algebra) -> Algebra:
    """σp(π_f(R)) = π_f(σp[f](R)).

    Law: both judge each tuple by itself, and p over the projected tuple is p[f] over the tuple; also where f is NULL.
    Unsound when the projection draws a volatile value: σ(x > 0.5)(π_(RAND() AS x)(R)) would judge one draw and show
    another, and fewer rows would be drawn for; such projections are no passage, and volatile conjuncts stay above.
    """
    if not (isinstance(node, Select) and isinstance(node.input, Project)):
        return node
    project = node.input
    if any(is_volatile(e) for e in project.expressions):
        return node
    stay, move = split(conjuncts(node.predicate), is_volatile)
    if not move:
        return node
    moved = tuple(substitute(p, project.expressions) for p in move)
    if not is_low(moved):
        return node
    below = select(project.input, moved)
    return select(replace(project, input=below), stay)
