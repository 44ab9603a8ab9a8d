"""LOWER_BOUND, UPPER_BOUND, ERROR_BOUND and MISSED_BOUND: certain or probable bounds of an approximate value.

A bound is an `AggregateCall` named after it, of the call that it bounds; what it is computed from is decided where rows
are grouped. None of them is left in a plan.
"""

from __future__ import annotations

from typing import NoReturn

from sqlglot import exp

from penstock.expressions.coercion import DOUBLE
from penstock.expressions.nodes import AggregateCall
from penstock.language.binder.context import Context
from penstock.language.binder.scalars.binder import ScalarBinder
from penstock.language.dialect import span_of
from penstock.language.text import TextSpan

LOWER, UPPER, ERROR, MISSED = "LOWER_BOUND", "UPPER_BOUND", "ERROR_BOUND", "MISSED_BOUND"
BOUNDS = frozenset({LOWER, UPPER, ERROR, MISSED})


def bound_of(binder: ScalarBinder, node: exp.Expr, name: str) -> AggregateCall:
    """Bind a call of one of `BOUNDS`. Raises BindingFailed after P0204, P0304 or P0355."""
    context, arguments = binder.context, list(node.expressions)
    if binder.aggregates is not None or binder.inside:
        place = binder.aggregates or "another aggregate"
        context.fail("P0304", f"{name} bounds an aggregate, not allowed in {place}", span_of(node))
    if name == MISSED:
        if arguments:
            context.fail("P0204", f"{name} takes no arguments", span_of(node), f"{name}()")
        if binder.frequent is None:
            context.fail("P0355", f"{MISSED} belongs to GROUP BY .. FREQUENT", span_of(node))
        return AggregateCall(binder.frequent.type, name, ())
    if len(arguments) != 1:
        context.fail("P0204", f"{name} takes 1 argument, not {len(arguments)}", span_of(node), f"{name}(COUNT(*))")
    (call,) = binder.bind_all(arguments)
    if not isinstance(call, AggregateCall) or call.function in BOUNDS:
        hint = f"write {name}(COUNT(*)) over GROUP BY .. FREQUENT"
        context.fail("P0355", f"{name} of what is no approximate aggregate", span_of(node), hint)
    return AggregateCall(DOUBLE if name == ERROR else call.type, name, (call,))


def refuse_bound(call: AggregateCall, span: TextSpan, context: Context) -> NoReturn:
    """Raise BindingFailed after P0355: what `call` bounds is exact."""
    (bounded,) = call.arguments
    assert isinstance(bounded, AggregateCall)
    if bounded.function == "APPROX_TOP_K":
        hint = "GROUP BY .. FREQUENT k tells each item with its bounds"
        context.fail("P0355", f"{call.function} of an array", span, hint)
    hint = "leave the bound out: the value is exact"
    context.fail("P0355", f"{call.function} of {bounded.function}, which is exact", span, hint)
