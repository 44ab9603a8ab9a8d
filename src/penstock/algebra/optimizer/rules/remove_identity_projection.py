"""A projection that changes nothing."""

from __future__ import annotations

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.rowwise import Project
from penstock.expressions.nodes import Column


def remove_identity_projection(node: Algebra) -> Algebra:
    """π of all columns, in order and under their own names, is its input.

    Unsound when a name differs (`SELECT a AS b`): at the root of a query the names are part of the result.
    """
    if not isinstance(node, Project):
        return node
    columns = [e.index if isinstance(e, Column) else None for e in node.expressions]
    if columns == list(range(len(node.input.schema))) and node.schema.names == node.input.schema.names:
        return node.input
    return node
