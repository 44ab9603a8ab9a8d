"""`SET approximate_aggregates`: approximate aggregates in place of exact ones that store every value."""

from __future__ import annotations

from dataclasses import replace

from penstock.expressions.aggregates import build_aggregate, function_of
from penstock.expressions.coercion import DOUBLE
from penstock.expressions.nodes import AggregateCall, Literal
from penstock.language.binder.context import Context
from penstock.language.text import TextSpan


def approximated(context: Context, call: AggregateCall, span: TextSpan) -> AggregateCall:
    """Return the approximate call that the settings put in place of `call`, with a warning; `call` itself if none."""
    errors = dict(context.settings["approximate_aggregates"])
    found = _in_place_of(call, errors) if errors else None
    if found is None:
        if call.function == "QUANTILE" and call.distinct and "accuracy" in errors:
            context.warn("QUANTILE(DISTINCT) stays exact: no sketch leaves out equal values", span)
        return call
    accuracy = function_of(found).accuracy(found)
    assert accuracy is not None
    name = f"{call.function}(DISTINCT)" if call.distinct else call.function
    hint = "SET approximate_aggregates = 'none' computes it exactly"
    context.warn(f"{name} is approximate here: {found.function}, {accuracy.text}", span, hint)
    return replace(found, in_place_of=name)


def _in_place_of(call: AggregateCall, errors: dict[str, float]) -> AggregateCall | None:
    if call.function == "COUNT" and call.distinct and "rsd" in errors:
        arguments = (*call.arguments, Literal(DOUBLE, errors["rsd"]))
        return build_aggregate("APPROX_COUNT_DISTINCT", arguments, filter=call.filter)
    if call.function == "QUANTILE" and not call.distinct and "accuracy" in errors:
        arguments = (*call.arguments, Literal(DOUBLE, errors["accuracy"]))
        return build_aggregate("APPROX_QUANTILE", arguments, filter=call.filter)
    return None
