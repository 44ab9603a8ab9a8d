"""SELECT over INTERNAL windows: where it may stand, and the collection of its results (`algebra/internal.py`)."""

from __future__ import annotations

from typing import NoReturn

from penstock.algebra import Algebra, Internal, OuterJoin, SemiJoin
from penstock.algebra.internal import reaches_internal, what_forbids_internal
from penstock.algebra.pattern import Pattern
from penstock.algebra.results import has_lives
from penstock.language.binder.context import Context
from penstock.language.binder.inputs import Inputs
from penstock.language.text import Span
from penstock.tree import walk

_HINT = "make a view of the SELECT with the INTERNAL window: it is a stream, which can take a window of its own"


def collected(node: Algebra, inputs: Inputs, context: Context) -> Algebra:
    """`node`, the SELECT over `inputs`; with INTERNAL windows among them, the collection of its results. Fails with
    P0310 where these would have to expire."""
    places = [member.internal for member in inputs.members if member.internal is not None]
    if not places:
        return node
    forbidding = what_forbids_internal(node)
    if forbidding is not None:
        refuse_internal(type(forbidding).__name__.upper(), inputs, places[0], context)
    for member in inputs.members:
        if member.internal is None and member.node.pattern is not Pattern.MONOTONIC:
            message = "beside an INTERNAL window stands what loses tuples: the results would have to expire with these"
            context.fail("P0310", message, member.span, "make its window INTERNAL too, or leave out INTERNAL")
    return Internal(node, has_lives(node))


def refuse_internal(operator: str, inputs: Inputs | None, span: Span, context: Context) -> NoReturn:
    """Results of INTERNAL windows never expire, and under `operator` they would have to. The place is that of the word
    INTERNAL where it stands in the same SELECT, else `span`."""
    members = inputs.members if inputs is not None else ()
    place = next((member.internal for member in members if member.internal is not None), span)
    context.fail("P0310", f"INTERNAL under {operator}: its results would have to expire", place, _HINT)


def refuse_partners(node: Algebra, inputs: Inputs, span: Span, context: Context) -> None:
    """Fails with P0310 where an outer join, IN or EXISTS has results of INTERNAL windows on a side."""
    for found in walk(node):
        if isinstance(found, SemiJoin | OuterJoin) and any(reaches_internal(side) for side in found.inputs):
            what = "an outer join" if isinstance(found, OuterJoin) else "IN or EXISTS"
            refuse_internal(what, inputs, span, context)
