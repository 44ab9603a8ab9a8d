"""LOWER_BOUND, UPPER_BOUND and ERROR_BOUND: what the exact value of an approximate call is between.

A rule bounds the calls of one kind: it takes the call as it was parsed and the constants behind it, and
returns the two bounds, or None where the call is not of its kind. The rules are tried in order.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from penstock.errors import PenstockError
from penstock.expressions.aggregates import function_of
from penstock.expressions.aggregates.arguments import between
from penstock.expressions.aggregates.bounds import BOUNDED, CONFIDENCE, Bounds
from penstock.expressions.aggregates.hll_sketch import HLL_SKETCH_AGG, lg_of
from penstock.expressions.aggregates.sketch import divided, quantile_of_normal
from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import DOUBLE, cast_to
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import AggregateCall, Call, Expression, Literal
from penstock.expressions.sketches.hyperloglog import standard_error
from penstock.expressions.user import UserAggregateCall
from penstock.language.binder.scalars.binder import ScalarBinder
from penstock.language.binder.scalars.estimates import of_estimate
from penstock.language.binder.scalars.frequent_bounds import of_frequent
from penstock.language.dialect import span_of

BOUND_FUNCTIONS = frozenset({"LOWER_BOUND", "UPPER_BOUND", "ERROR_BOUND"})

#: (binder, the call, the constants behind it) -> its bounds; None where the rule is not for it. Raises PenstockError.
BoundRule = Callable[[ScalarBinder, exp.Expr, tuple[Literal, ...]], Bounds | None]


def _of_call(binder: ScalarBinder, node: exp.Expr, constants: tuple[Literal, ...]) -> Bounds | None:
    """Return the bounds of an aggregate, of COUNT_MIN_ESTIMATE or of HLL_SKETCH_ESTIMATE."""
    value = binder.bind(node)
    confidence = _confidence(constants)
    if isinstance(value, AggregateCall) and not isinstance(value, UserAggregateCall):
        return function_of(value).bounds(value, confidence)
    if isinstance(value, Call) and value.function == "COUNT_MIN_ESTIMATE":
        error = build_call("COUNT_MIN_ERROR", value.arguments[:1])
        least = build_call("SUB", [cast_to(value, DOUBLE), error])
        # GREATEST passes over NULL, which is no bound of a sketch or value that is NULL.
        positive = build_call("GREATEST", [least, Literal(DOUBLE, 0.0)])
        unknown = [build_call("ISNULL", [least]), Literal(DOUBLE, None), positive]
        return Bounds(build_call("IF", unknown), cast_to(value, DOUBLE))
    if isinstance(value, Call) and value.function == "HLL_SKETCH_ESTIMATE":
        sketch = value.arguments[0]
        if isinstance(sketch, AggregateCall) and sketch.function == HLL_SKETCH_AGG.name:
            spread = quantile_of_normal(confidence) * standard_error(lg_of(sketch))
            return Bounds(divided(value, 1.0 + spread), divided(value, 1.0 - spread))
        return _of_image(value, sketch, confidence)
    return None


def _of_image(value: Call, sketch: Expression, confidence: float) -> Bounds:
    """Return the bounds of the estimate of an image, whose number of registers is known when it is."""
    error = build_call("HLL_SKETCH_ERROR", [sketch])
    spread = build_call("MUL", [error, Literal(DOUBLE, quantile_of_normal(confidence))])
    one, estimate = Literal(DOUBLE, 1.0), cast_to(value, DOUBLE)
    upper = build_call("DIV", [estimate, build_call("SUB", [one, spread])])
    infinite = build_call("ADD", [estimate, Literal(DOUBLE, float("inf"))])
    lower = build_call("DIV", [estimate, build_call("ADD", [one, spread])])
    return Bounds(lower, build_call("IF", [build_call("GE", [spread, one]), infinite, upper]))


#: In the order in which they are tried.
RULES: tuple[BoundRule, ...] = (of_estimate, of_frequent, _of_call)


def bound_function(binder: ScalarBinder, node: exp.Expr, name: str) -> Expression:
    """Return the call `node` of LOWER_BOUND, UPPER_BOUND or ERROR_BOUND."""
    context, span = binder.context, span_of(node)
    if not node.expressions:
        context.fail("P0204", f"{name} takes an approximate call", span, BOUNDED)
    called, *rest = node.expressions
    constants = [fold(constant) for constant in binder.bind_all(rest)]
    if not all(isinstance(constant, Literal) for constant in constants):
        context.fail("P0203", f"{name} takes constants behind the call", span, f"write {name}(call, 0.95)")
    literals = tuple(constant for constant in constants if isinstance(constant, Literal))
    found: Bounds | None = None
    for rule in RULES:
        found = context.guard(span, lambda: rule(binder, called, literals))  # noqa: B023
        if found is not None:
            break
    if found is None:
        context.fail("P0355", f"{name} of an expression that has no bounds", span_of(called), BOUNDED)
    assert found is not None
    if name != "ERROR_BOUND":
        return found.lower if name == "LOWER_BOUND" else found.upper
    lower, upper = found.lower, found.upper
    return context.guard(span, lambda: build_call("DIV", [build_call("SUB", [upper, lower]), Literal(DOUBLE, 2.0)]))


def _confidence(constants: tuple[Literal, ...]) -> float:
    if len(constants) > 1:
        raise PenstockError("P0204", "a bound takes one constant, its confidence", hint="LOWER_BOUND(call, 0.95)")
    if not constants:
        return CONFIDENCE
    return float(between("a bound", constants[0], "LOWER_BOUND(call, 0.95)").value)
