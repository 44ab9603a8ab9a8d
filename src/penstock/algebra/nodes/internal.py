"""INTERNAL windows: used to bound state only, while the results of the query never expire `[golab 3.3.2]`.

A SELECT over INTERNAL windows computes the same results as over ordinary ones, and all its results are collected: each
enters at the same instant, and stays. These are the results that WSTREAM windows (`results.py`), and the state
below is that of ordinary windows.

Not for duplicate elimination and negation, whose results would be wrong if they stayed, nor beside anything else that
loses tuples: then a result would have to expire with that, and not with the INTERNAL window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.algebra.nodes.base import Algebra, TimeModelWindow, Unary, has_operator
from penstock.algebra.nodes.base.checks import need_relations
from penstock.algebra.properties.boundedness import Boundedness, Grade
from penstock.algebra.properties.update_pattern import Pattern
from penstock.tree import reached


@dataclass(frozen=True, eq=False)
class Internal(Unary):
    """The relation of all results so far of its input, which never loses a tuple.

    by_life: the input's results have validity intervals, and each result counts; else its ISTREAM is collected, R(τ) −
    R(τ−1) at every τ.
    """

    by_life: bool

    def __post_init__(self) -> None:
        need_relations(self.inputs)

    @property
    def pattern(self) -> Pattern:
        return Pattern.MONOTONIC

    @property
    def boundedness(self) -> Boundedness:
        names = ", ".join(self.source_names)
        hint = "read it as a stream, or without INTERNAL"
        text = f"all results of INTERNAL windows of {names}"
        return Boundedness(Grade.UNBOUNDED, text, hint, names.split(", ")[0], None)

    @property
    def carries_ends(self) -> bool:
        return False

    @property
    def may_be_kept(self) -> bool:
        return True


def what_forbids_internal(node: Algebra) -> Algebra | None:
    """Return the first operator below `node`, down to its windows, that may not be over INTERNAL ones; None for
    none."""
    if isinstance(node, TimeModelWindow | Internal) or not node.inputs:
        return None
    if not node.may_stand_over_internal:
        return node
    forbidding = (what_forbids_internal(child) for child in node.inputs)
    return next((operator for operator in forbidding if operator is not None), None)


def own_operators(node: Algebra) -> Iterator[Algebra]:
    """Return `node` and the operators below it that are not inside a stream below it, each once."""
    return reached(node, lambda operator: tuple(child for child in operator.inputs if not child.is_stream))


def reaches_internal(node: Algebra) -> bool:
    """Return whether the relation `node` is made of results of INTERNAL windows. A stream made of them does not count:
    it is append-only by itself."""
    return has_operator(node, Internal) and any(isinstance(operator, Internal) for operator in own_operators(node))
