"""Literals in conditions, where only TRUE passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.nonretroactive import NRRJoin
from penstock.algebra.nodes.rowwise import Select
from penstock.algebra.nodes.semi_and_outer_joins import OuterJoin, SemiJoin
from penstock.algebra.optimizer.rules.support import is_volatile, unique
from penstock.expressions.nodes import Call, Expression, Literal, conjunction, conjuncts

_FALSE = Literal(pa.bool_(), False)


def simplify_conditions(node: Algebra) -> Algebra:
    """In WHERE, HAVING and ON: a conjunct TRUE is dropped, one FALSE or NULL makes the whole FALSE, repetitions go.

    Law: a tuple passes iff the condition is TRUE, and p AND q is TRUE iff both are; so NULL is as good as FALSE.
    A conjunct of every alternative is one of the whole: (p AND q) OR (p AND r) is p AND (q OR r), which a join may find
    rows by.
    Unsound in: a projected condition (`SELECT a > 1 AND NULL`), where NULL and FALSE are different answers; hence only
    whole conditions of Select and joins are touched. A Select(FALSE) stays: its schema, its time line (t0 counts the
    elements it drops) and the one row of an ungrouped COUNT above it are all still there.
    """
    if isinstance(node, Select):
        condition = _simplified(node.predicate)
        if condition is None:
            return node.input
        return node if condition == node.predicate else replace(node, predicate=condition)
    if isinstance(node, Join | NRRJoin | SemiJoin | OuterJoin) and node.residual is not None:
        condition = _simplified(node.residual)
        return node if condition == node.residual else replace(node, residual=condition)
    return node


def _simplified(condition: Expression) -> Expression | None:
    """Return the simpler condition; None when it is always TRUE."""
    written = conjuncts(condition)
    parts = tuple(part for whole in written for part in _factored(whole))
    kept = unique(tuple(p for p in parts if not (isinstance(p, Literal) and p.value is True)))
    if any(isinstance(p, Literal) for p in kept):
        return _FALSE
    return condition if kept == written else conjunction(kept)


def _factored(part: Expression) -> tuple[Expression, ...]:
    """Return conjuncts that are together what `part` is, those of all its alternatives first."""
    if is_volatile(part):
        return (part,)
    alternatives = [{_ordered(p): p for p in conjuncts(one)} for one in _alternatives(part)]
    common = [p for p in alternatives[0] if all(p in one for one in alternatives[1:])]
    if len(alternatives) == 1 or not common:
        return (part,)
    rest = [conjunction(tuple(p for known, p in one.items() if known not in common)) for one in alternatives]
    differ = [one for one in rest if one is not None]
    stated = tuple(alternatives[0][p] for p in common)
    return (*stated, _disjunction(differ)) if len(differ) == len(rest) else stated  # p OR p AND q is p


def _ordered(part: Expression) -> Expression:
    """Return an equality with its sides in one order, anything else as it is."""
    if not (isinstance(part, Call) and part.function in ("EQ", "EQ_NULL_SAFE")):
        return part
    first, second = sorted(part.arguments, key=lambda side: side.fingerprint)
    return Call(part.type, part.function, (first, second))


def _disjunction(parts: Sequence[Expression]) -> Expression:
    """Return the OR of `parts`, at least one, as a tree of little height."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return Call(pa.bool_(), "OR", (_disjunction(parts[:middle]), _disjunction(parts[middle:])))


def _alternatives(condition: Expression) -> tuple[Expression, ...]:
    """Return the members of a chain of OR."""
    if isinstance(condition, Call) and condition.function == "OR":
        return tuple(one for argument in condition.arguments for one in _alternatives(argument))
    return (condition,)
