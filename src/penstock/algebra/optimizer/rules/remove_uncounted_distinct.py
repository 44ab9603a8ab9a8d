"""DISTINCT below operators that do not count how often a tuple occurs."""

from __future__ import annotations

from dataclasses import replace

from penstock.algebra.nodes.aggregate import Aggregate, Distinct
from penstock.algebra.nodes.base import Algebra
from penstock.algebra.nodes.join import Join
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.nodes.semi_and_outer_joins import SemiJoin
from penstock.algebra.nodes.set_operations import Except, Intersect, UnionAll
from penstock.algebra.optimizer.rules.support import is_volatile, over_inputs, same_for_equal
from penstock.expressions.aggregates import same_with_duplicates
from penstock.expressions.nodes import AggregateCall, Column, Expression


def remove_uncounted_distinct(node: Algebra) -> tuple[Algebra, ...]:
    """δ(.. δ(R) ..) = δ(.. R ..); likewise below EXCEPT and INTERSECT without ALL, on the side of a semi-join, a ▷ or a
    mark that is probed for partners, and below aggregates that are the same with duplicates (MIN, those
    with DISTINCT).

    Law: none of these distinguishes R from δ(R), and between them and the δ stand only operators for which a tuple
    occurs in the result where tuples occur in the inputs: σ, π, ⋈, ∪ ALL and the left side of semi-joins.
    Unsound for: δ below COUNT(*), SUM, a RelationToStream, a window, EXCEPT ALL or an outer join; below volatile
    expressions, which would be drawn for every copy; and below operators that distinguish equal values, of which δ
    keeps one (-0.0 and 0.0, as text).
    """
    if isinstance(node, Distinct):
        changed: Algebra = replace(node, input=_bare(node.input))
    elif isinstance(node, SemiJoin) and _blind(node):
        changed = replace(node, right=_bare(node.right))
    elif isinstance(node, Except | Intersect) and not node.every:
        changed = replace(node, left=_bare(node.left), right=_bare(node.right))
    elif isinstance(node, Aggregate) and all(map(_of_values, node.aggregates)):
        changed = replace(node, input=_bare(node.input))
    else:
        return ()
    return () if changed == node else (changed,)


def _of_values(call: AggregateCall) -> bool:
    """Return whether it is the same however often each value occurs."""
    own = (*call.arguments, *(() if call.filter is None else (call.filter,)))
    return same_with_duplicates(call) and all(map(_is_blind, own))


def _bare(node: Algebra) -> Algebra:
    """Return a relation of the same tuples, each at least once."""
    return _bared(node, {})


def _bared(node: Algebra, known: dict[int, Algebra]) -> Algebra:
    """known: by identity, the results for nodes below the first one; a node with several parents is visited once."""
    if id(node) not in known:
        known[id(node)] = _bared_anew(node, known)
    return known[id(node)]


def _bared_anew(node: Algebra, known: dict[int, Algebra]) -> Algebra:
    if isinstance(node, Distinct):
        return _bared(node.input, known)
    if isinstance(node, SemiJoin):
        return replace(node, left=_bared(node.left, known)) if _blind(node) else node
    if isinstance(node, UnionAll) or (isinstance(node, Project | Select | Join) and _blind(node)):
        return over_inputs(node, lambda child: _bared(child, known))
    return node


def _blind(node: Algebra) -> bool:
    """Return whether its expressions are the same for equal tuples."""
    return all(_is_blind(e) for e in node.children if isinstance(e, Expression))


def _is_blind(expression: Expression) -> bool:
    return not is_volatile(expression) and (isinstance(expression, Column) or same_for_equal(expression))
