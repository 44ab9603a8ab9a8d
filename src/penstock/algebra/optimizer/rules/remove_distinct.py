"""DISTINCT of a relation without duplicates."""

from __future__ import annotations

from penstock.algebra.nodes.aggregate import Distinct
from penstock.algebra.nodes.base import Algebra


def remove_distinct(node: Algebra) -> Algebra:
    """δ(R) = R when R has a key.

    Law: `keys` holds sets of columns that are unique in R(τ) at every τ, so no tuple occurs twice at any instant.
    Unsound for: what is unique among the elements of each stream but not in R(τ) of their union or join without the
    other side's key; such relations derive no key.
    """
    return node.input if isinstance(node, Distinct) and node.input.keys else node
