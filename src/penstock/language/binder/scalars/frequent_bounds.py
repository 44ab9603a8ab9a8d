"""The bounds of an item under GROUP BY .. FREQUENT: calls that stand for a measure until rows are grouped."""

from __future__ import annotations

from sqlglot import exp

from penstock.errors import PenstockError
from penstock.expressions.aggregates.bounds import Bounds
from penstock.expressions.nodes import AggregateCall, Literal
from penstock.language.binder.scalars.binder import ScalarBinder
from penstock.language.dialect import span_of

MISSED_BOUND = "MISSED_BOUND"
#: What stands for the upper bound of the call that is its argument.
UPPER_OF_ITEM = "UPPER_OF_ITEM"


def of_frequent(binder: ScalarBinder, node: exp.Expr, constants: tuple[Literal, ...]) -> Bounds | None:
    """Return the bounds of an aggregate of a query with FREQUENT. They are certain, at any confidence."""
    if binder.frequent is None:
        return None
    if constants:
        raise PenstockError("P0204", "bounds of FREQUENT are certain", hint="leave the confidence out")
    call = binder.bind(node)
    if not isinstance(call, AggregateCall):
        return None
    return Bounds(call, AggregateCall(call.type, UPPER_OF_ITEM, (call,)))


def missed_bound(binder: ScalarBinder, node: exp.Expr) -> AggregateCall:
    """Return the call `node` of MISSED_BOUND, which has the type of the aggregate by which items are frequent."""
    context, span = binder.context, span_of(node)
    if node.expressions:
        context.fail("P0204", f"{MISSED_BOUND} takes no arguments", span, f"{MISSED_BOUND}()")
    if binder.frequent is None or binder.inside or binder.aggregates is not None:
        message = f"{MISSED_BOUND} belongs to a select list or HAVING with GROUP BY .. FREQUENT"
        context.fail("P0355", message, span, "write GROUP BY x FREQUENT 10, or leave it out")
    assert binder.frequent is not None
    return AggregateCall(binder.frequent.type, MISSED_BOUND, ())
