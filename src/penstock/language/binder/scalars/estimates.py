"""ESTIMATE(aggregate) and its bounds, over a sample (`expressions/aggregates/estimate.py`)."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from penstock.algebra import Algebra, Project, Sample, StretchChances, WindowSample
from penstock.algebra.nodes.base import operators
from penstock.errors import PenstockError
from penstock.expressions.aggregates.arguments import between
from penstock.expressions.aggregates.bounds import Bounds
from penstock.expressions.aggregates.estimate import ESTIMATES
from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import DOUBLE, cast_to, is_numeric
from penstock.expressions.nodes import AggregateCall, Column, Expression, Literal
from penstock.expressions.sampling.inclusion import INCLUSION
from penstock.language.binder.scalars.binder import ScalarBinder
from penstock.language.dialect import span_of

ESTIMATE = "ESTIMATE"
_SHOWN = "ESTIMATE(COUNT(*)), ESTIMATE(SUM(x)) or ESTIMATE(AVG(x))"
_NAMES = frozenset(one.name for one in ESTIMATES)
#: Stands for the inclusion record until rows are grouped.
_RECORD = Literal(INCLUSION, None)
_BOUND = "LOWER_BOUND(ESTIMATE(AVG(x)), 0.95, 0, 100)"
#: The constants of a bound with a range: confidence, least, greatest, whether all rows are read.
_WITH_RANGE = 4


def estimate(binder: ScalarBinder, node: exp.Expr) -> Expression:
    """Return the call `node` of ESTIMATE. Raises BindingFailed after P0204, P0304 or P0355."""
    call = _call(binder, node)
    if call.function != f"{ESTIMATE}_AVG":
        return call
    # An average is the quotient of two sums, to which rows are added and from which they are taken.
    value, record = call.arguments
    ones = build_call("IF", [build_call("ISNULL", [value]), Literal(DOUBLE, None), Literal(DOUBLE, 1.0)])
    total, number = (replace(call, function=f"{ESTIMATE}_SUM", arguments=(v, record)) for v in (value, ones))
    return build_call("DIV", [total, number])


def _call(binder: ScalarBinder, node: exp.Expr) -> AggregateCall:
    """Return ESTIMATE of an aggregate as one call."""
    context, span = binder.context, span_of(node)
    if binder.inside or binder.aggregates is not None:
        place = binder.aggregates or "another aggregate"
        hint = "write it in the select list, and compare it in HAVING or in a query around this one"
        context.fail("P0304", f"ESTIMATE is of an aggregate, not allowed in {place}", span, hint)
    if len(node.expressions) != 1:
        context.fail("P0204", f"ESTIMATE takes 1 argument, not {len(node.expressions)}", span, _SHOWN)
    call = binder.bind(node.expressions[0])
    if not isinstance(call, AggregateCall) or call.function not in ("COUNT", "SUM", "AVG") or call.distinct:
        context.fail("P0355", "ESTIMATE of what has no formula", span, _SHOWN)
    value = context.guard(span, lambda: _value(call))
    return AggregateCall(DOUBLE, f"{ESTIMATE}_{call.function}", (value, _RECORD), False, call.filter)


def _value(call: AggregateCall) -> Expression:
    """Return what is added up for a row."""
    if not call.arguments:
        return Literal(DOUBLE, 1.0)
    if len(call.arguments) > 1:
        raise PenstockError("P0355", "ESTIMATE of a COUNT of several columns", hint=_SHOWN)
    (value,) = call.arguments
    if call.function == "COUNT":
        return build_call("IF", [build_call("ISNULL", [value]), Literal(DOUBLE, None), Literal(DOUBLE, 1.0)])
    if not is_numeric(value.type):
        raise PenstockError("P0355", f"ESTIMATE of {call.function} over what is no number", hint=_SHOWN)
    return cast_to(value, DOUBLE)


def of_estimate(binder: ScalarBinder, node: exp.Expr, constants: tuple[Literal, ...]) -> Bounds | None:
    """Return the bounds of an ESTIMATE: at a confidence, 0.95 by default, for values in a range where that is given."""
    if not isinstance(node, exp.Anonymous) or node.name.upper() != ESTIMATE:
        return None
    call = _call(binder, node)
    if len(constants) not in (0, 1, 3):
        raise PenstockError(
            "P0204", "bounds of ESTIMATE take a confidence, and a least and greatest value", hint=_BOUND
        )
    confidence = Literal(DOUBLE, float(between("a bound", constants[0], _BOUND).value) if constants else 0.95)
    limits = tuple(_limit(constant) for constant in constants[1:])
    if limits and not limits[0].value < limits[1].value:
        raise PenstockError("P0203", "the least value of a range is below its greatest", hint=_BOUND)
    # Whether all rows of the sample are in the group is known when rows are grouped.
    arguments = (*call.arguments, confidence, *limits, *(() if not limits else (Literal(DOUBLE, 0.0),)))
    sides = (replace(call, function=f"{call.function}_{side}", arguments=arguments) for side in ("LOWER", "UPPER"))
    return Bounds(*sides)


def _limit(constant: Literal) -> Literal:
    if constant.value is None or not is_numeric(constant.type):
        raise PenstockError("P0203", "the range of a bound is two numbers", hint=_BOUND)
    return Literal(DOUBLE, float(constant.value))


def is_estimate(call: AggregateCall) -> bool:
    return call.function in _NAMES


def with_records(
    node: Algebra, calls: list[AggregateCall], grouped: bool = False
) -> tuple[Algebra, list[AggregateCall]]:
    """Return the rows with their inclusion records, and the calls that read them. grouped: by columns. Raises
    PenstockError P0355."""
    if not any(map(is_estimate, calls)):
        return node, calls
    sampled = node.with_inclusion()
    if sampled is None:
        hint = (
            "sample the stream, as in FROM s SAMPLE(10), or leave ESTIMATE out: the aggregate is exact, over a view"
            " WITH PREFERENCE .. BUDGET UNLIMITED too"
        )
        raise PenstockError("P0355", "ESTIMATE of rows that are not sampled, whose aggregate is exact", hint=hint)
    record = Column(INCLUSION, len(node.schema), "inclusion")

    def placed(call: AggregateCall) -> AggregateCall:
        if not is_estimate(call):
            return call
        rest = call.arguments[2:]
        if len(rest) == _WITH_RANGE:
            every = _check_range(node, sampled, call) and not grouped and call.filter is None
            rest = (*rest[:-1], Literal(DOUBLE, float(every)))
        return replace(call, arguments=(call.arguments[0], record, *rest))

    return sampled, [placed(call) for call in calls]


def _check_range(node: Algebra, sampled: Algebra, call: AggregateCall) -> bool:
    """Return whether all rows of the sample are read. Raises PenstockError P0355 where a range of values bounds nothing
    for certain."""
    samples = [o for o in operators(node) if isinstance(o, Sample | WindowSample)]
    average = call.function.startswith(f"{ESTIMATE}_AVG")
    if any(isinstance(one, StretchChances) for one in operators(sampled)):
        message, hint = "of a budget", "leave the range out"
    elif not samples:
        message, hint = "of a preference", "leave the range out"
    elif len(samples) != 1:
        message, hint = "of joined samples", "leave the range out"
    elif isinstance(samples[0], WindowSample) and (samples[0].weight is not None or samples[0].per):
        message, hint = "of a sample with PER or WEIGHT", "sample SAMPLE(100 ROWS), or leave the range out"
    elif isinstance(samples[0], Sample) and samples[0].by:
        message, hint = "of SAMPLE(p BY ..)", "leave the range out"
    elif isinstance(samples[0], Sample) and not average:
        message, hint = "of a total over SAMPLE(p)", "sample SAMPLE(100 ROWS), or bound the average"
    else:
        below = node
        while isinstance(below, Project):
            below = below.input
        return isinstance(below, WindowSample)
    raise PenstockError("P0355", f"a bound by a range of values {message}, which has none", hint=hint)
