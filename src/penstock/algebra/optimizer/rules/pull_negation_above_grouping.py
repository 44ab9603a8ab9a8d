"""Negation above DISTINCT or GROUP BY instead of below it."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Project
from penstock.algebra.nodes.semi_and_outer_joins import SemiJoin, SemiKind
from penstock.algebra.optimizer.rules.negation import negation, unprojected
from penstock.algebra.optimizer.rules.support import same_for_equal
from penstock.expressions.nodes import Column, columns_of, remap


def pull_negation_above_grouping(node: Algebra) -> tuple[Algebra, ...]:
    """δ(R ▷ N) = δ(R) ▷ N, and γg(R ▷ N) = γg(R) ▷ N where the condition of ▷ reads columns of g only.

    Law: tuples that δ or γ take together agree in all columns that ▷ reads, so all of them have partners or none has.
    Below ▷ duplicates are known to end, and δ is δ* `[golab 3.5.2, 3.5.3]`.
    Unsound for: conditions that read other columns than δ keeps or γ groups by; ungrouped aggregates (COUNT(*) of
    nothing is a tuple); conditions that distinguish equal values (-0.0 and 0.0, as text); volatile ones; marks and ⟕,
    which have columns that δ would have to keep.
    """
    if not isinstance(node, Distinct | Aggregate) or (isinstance(node, Aggregate) and not node.group):
        return ()
    below, values = unprojected(node.input)
    negated = negation(below)
    if not isinstance(negated, SemiJoin) or negated.kind is not SemiKind.ANTI:
        return ()
    residual = negated.residual
    if residual is not None and not same_for_equal(residual):
        return ()
    own = len(negated.left.schema)
    read = {i for i, _ in negated.equal} | ({c for c in columns_of(residual) if c < own} if residual else set())
    positions = _places(node, values)
    if not all(c in positions for c in read):
        return ()
    projected = negated.left if below is node.input else Project(negated.left, values, node.input.schema.fields)
    grouped = replace(node, input=projected)
    width = len(grouped.schema)
    if residual is not None:
        residual = remap(residual, lambda i: positions[i] if i < own else width + i - own)
    equal = tuple((positions[i], j) for i, j in negated.equal)
    return (replace(negated, left=grouped, equal=equal, residual=residual),)


def _places(node: Distinct | Aggregate, values: tuple[object, ...]) -> dict[int, int]:
    """Return the positions of columns of the negated relation among those that `node` groups by."""
    group = tuple(range(len(values))) if isinstance(node, Distinct) else node.group
    return {
        value.index: position
        for position, c in reversed(list(enumerate(group)))
        if isinstance(value := values[c], Column)
    }
