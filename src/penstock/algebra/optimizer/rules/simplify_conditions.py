"""Literals in conditions, where only TRUE passes."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.optimizer.rules.support import unique
from penstock.expressions.nodes import Expression, Literal, conjunction, conjuncts

_FALSE = Literal(pa.bool_(), False)


def simplify_conditions(node: Algebra) -> Algebra:
    """In WHERE, HAVING and ON: a conjunct TRUE is dropped, one FALSE or NULL makes the whole FALSE, repetitions go.

    Law: a tuple passes iff the condition is TRUE, and p AND q is TRUE iff both are; so NULL is as good as FALSE.
    Unsound in: a projected condition (`SELECT a > 1 AND NULL`), where NULL and FALSE are different answers; hence only
    whole conditions of Select and Join are touched. A Select(FALSE) stays: its schema, its time line (t0 counts the
    elements it drops) and the one row of an ungrouped COUNT above it are all still there.
    """
    if isinstance(node, Select):
        condition = _simplified(node.predicate)
        if condition is None:
            return node.input
        return node if condition == node.predicate else replace(node, predicate=condition)
    if isinstance(node, Join) and node.residual is not None:
        condition = _simplified(node.residual)
        return node if condition == node.residual else replace(node, residual=condition)
    return node


def _simplified(condition: Expression) -> Expression | None:
    """Return the simpler condition; None when it is always TRUE."""
    parts = conjuncts(condition)
    kept = unique(tuple(p for p in parts if not (isinstance(p, Literal) and p.value is True)))
    if any(isinstance(p, Literal) for p in kept):
        return _FALSE
    return condition if len(kept) == len(parts) else conjunction(kept)
