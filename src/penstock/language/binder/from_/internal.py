"""SELECT over INTERNAL windows: where it is allowed, and the collection of its results
(`algebra/nodes/internal.py`).
"""

from __future__ import annotations

from typing import NoReturn

from penstock.algebra import Algebra, Internal, OuterJoin, SemiJoin
from penstock.algebra.nodes.base import has_lives, has_operator, operators
from penstock.algebra.nodes.internal import reaches_internal, what_forbids_internal
from penstock.algebra.properties.update_pattern import Pattern
from penstock.language.binder.context import Context
from penstock.language.binder.inputs.inputs import Inputs
from penstock.language.text import TextSpan

_HINT = "define the SELECT with the INTERNAL window as a view: it is a stream, which can have a window of its own"


def collected(node: Algebra, inputs: Inputs, context: Context) -> Algebra:
    """Return `node`, the SELECT over `inputs`; with INTERNAL windows among them, the collection of its results. Fails
    with P0310 where these would have to expire.
    """
    spans = [member.internal for member in inputs.members if member.internal is not None]
    if not spans:
        return node
    forbidding = what_forbids_internal(node)
    if forbidding is not None:
        refuse_internal(forbidding.worded, inputs, spans[0], context)
    for member in inputs.members:
        if member.internal is None and member.node.pattern is not Pattern.MONOTONIC:
            message = "an input beside an INTERNAL window loses tuples: the results would have to expire with these"
            context.fail("P0310", message, member.span, "make its window INTERNAL too, or leave out INTERNAL")
    return Internal(node, has_lives(node))


def refuse_internal(operator: str, inputs: Inputs | None, span: TextSpan, context: Context) -> NoReturn:
    """Fail: results of INTERNAL windows never expire, and under `operator` they would have to. The error is placed at
    the word INTERNAL if it is in the same SELECT, else at `span`.
    """
    members = inputs.members if inputs is not None else ()
    error_span = next((member.internal for member in members if member.internal is not None), span)
    context.fail("P0310", f"INTERNAL under {operator}: its results would have to expire", error_span, _HINT)


def refuse_partners(node: Algebra, inputs: Inputs, span: TextSpan, context: Context) -> None:
    """Fail with P0310 where an outer join, IN or EXISTS has results of INTERNAL windows on a side."""
    if not has_operator(node, Internal):
        return
    for operator in operators(node):
        if isinstance(operator, SemiJoin | OuterJoin) and any(reaches_internal(side) for side in operator.inputs):
            operator_text = "an outer join" if isinstance(operator, OuterJoin) else "IN or EXISTS"
            refuse_internal(operator_text, inputs, span, context)
