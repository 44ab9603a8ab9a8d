"""Rows that an approximate aggregate counts otherwise than their values say, counted as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.algebra import Aggregate, Algebra
from penstock.expressions.aggregates.estimate import range_of, upper_of
from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import DOUBLE
from penstock.expressions.nodes import AggregateCall, Column, Expression, Literal
from penstock.figures.figure import Figure
from penstock.physical.plan.plan import Edge
from penstock.physical.plan.rowwise import WatchedSpec
from penstock.physical.planning.lowering.builder import Builder, Lowered


def watched(child: Lowered, node: Algebra, conditions: Mapping[Figure, Expression | None], builder: Builder) -> Lowered:
    """Return the rows of `node`, which `child` computes, with those counted that satisfy each condition."""
    found = tuple((figure, condition) for figure, condition in conditions.items() if condition is not None)
    if not found:
        return child
    return replace(child, step=builder.add(WatchedSpec(found), [Edge(child.step)], child.stage, node))


def watched_widths(child: Lowered, node: Algebra, aggregate: Aggregate, builder: Builder) -> Lowered:
    """Return the rows of `aggregate`, which `child` computes as `node`, with the widths of their bounds of estimates
    watched."""
    places = {call: Column(DOUBLE, len(aggregate.group) + n) for n, call in enumerate(aggregate.aggregates)}
    widths = []
    for call, lower in places.items():
        other = upper_of(call)
        upper = None if other is None else places.get(other)
        if upper is not None:
            middle = build_call("ABS", [build_call("ADD", [upper, lower])])
            widths.append(build_call("DIV", [build_call("SUB", [upper, lower]), middle]))
    if not widths:
        return child
    return replace(child, step=builder.add(WatchedSpec((), tuple(widths)), [Edge(child.step)], child.stage, node))


def outside_ranges(calls: Sequence[AggregateCall]) -> Expression | None:
    """Return the condition of rows with a value outside of the range that a bound of an ESTIMATE gives for it."""
    parts: dict[Expression, None] = {}
    for call in calls:
        limits = range_of(call)
        if limits is None:
            continue
        value, (low, high) = call.arguments[0], (Literal(DOUBLE, limit) for limit in limits)
        outside = build_call(
            "NOT", [build_call("AND", [build_call("GE", [value, low]), build_call("LE", [value, high])])]
        )
        parts[_only(outside, call.filter)] = None
    return build_call("OR", list(parts)) if len(parts) > 1 else next(iter(parts), None)


def negative(call: AggregateCall) -> Expression | None:
    """Return the condition of rows whose value below 0 counts 0."""
    if call.function != "SUM":
        return None
    (value,) = call.arguments
    return _only(build_call("LT", [value, Literal(value.type, 0)]), call.filter)


def never_drawn(weight: Expression) -> Expression:
    """Return the condition of rows that no draw gives a place in a sample. weight: DOUBLE."""
    above = build_call(
        "AND", [build_call("GT", [weight, Literal(DOUBLE, 0.0)]), build_call("NOT", [build_call("ISNAN", [weight])])]
    )
    return build_call(
        "NOT", [build_call("COALESCE", [above, build_call("LT", [Literal(DOUBLE, 1.0), Literal(DOUBLE, 0.0)])])]
    )


def _only(condition: Expression, filter_: Expression | None) -> Expression:
    return condition if filter_ is None else build_call("AND", [condition, filter_])
