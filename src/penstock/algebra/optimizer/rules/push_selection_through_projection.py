"""Selection before projection."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.optimizer.rules.support import is_volatile, select
from penstock.expressions.nodes import Expression, conjuncts, is_small, substitute_all


def push_selection_through_projection(node: Algebra) -> Algebra:
    """σp(π_f(R)) = π_f(σp[f](R)).

    Law: both judge each tuple by itself, and p over the projected tuple is p[f] over the tuple; also where f is NULL.
    Unsound when the projection draws a volatile value: σ(x > 0.5)(π_(RAND() AS x)(R)) would judge one draw and show
    another, and fewer rows would be drawn for; such projections are no passage, and volatile conjuncts stay above.
    Not done for conjuncts that would become too deep or, by repeating what they read, too large.
    """
    if not (isinstance(node, Select) and isinstance(node.input, Project)):
        return node
    project = node.input
    if any(is_volatile(e) for e in project.expressions):
        return node
    moved: list[Expression] = []
    stay: list[Expression] = []
    parts = conjuncts(node.predicate)
    for part, below in zip(parts, substitute_all(parts, project.expressions), strict=True):
        if is_volatile(part) or not is_small(below, part, project.expressions):
            stay.append(part)
        else:
            moved.append(below)
    if not moved:
        return node
    return select(replace(project, input=select(project.input, tuple(moved))), tuple(stay))
