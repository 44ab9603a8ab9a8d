"""Functions, aggregates and the functions with a syntax of their own: EXTRACT, TRIM, SUBSTRING, POSITION."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from penstock.errors import PenstockError
from penstock.expressions.aggregates import aggregate_function, function_of
from penstock.expressions.aggregates.arguments import between
from penstock.expressions.aggregates.bounds import BOUNDED, CONFIDENCE, Bounds
from penstock.expressions.aggregates.contract import RowOrder
from penstock.expressions.aggregates.hll_sketch import HLL_SKETCH_AGG, lg_of
from penstock.expressions.aggregates.sketch import divided, quantile_of_normal
from penstock.expressions.calls.functions import build_aggregate, build_call, function, is_aggregate
from penstock.expressions.coercion import BIGINT, DOUBLE, cast_to
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.evaluation.fold import fold as fold_constant
from penstock.expressions.nodes import AggregateCall, Call, Column, Expression, KeyDirection, Literal
from penstock.expressions.sketches.hyperloglog import standard_error
from penstock.expressions.user import (
    UserAggregate,
    UserAggregateCall,
    UserFunction,
    build_user_aggregate,
    build_user_call,
)
from penstock.language.binder.context import BindingFailed
from penstock.language.binder.placeholders import GroupingBits, reads_outer
from penstock.language.binder.scalars import periods
from penstock.language.binder.scalars.approximations import approximated
from penstock.language.binder.scalars.binder import Binding, ScalarBinder, name_of
from penstock.language.binder.scalars.estimates import ESTIMATE, estimate, of_estimate
from penstock.language.binder.scalars.frequent_bounds import MISSED_BOUND, missed_bound, of_frequent
from penstock.language.binder.scalars.intervals import interval
from penstock.language.binder.scalars.local_time import cast_in, casts_in
from penstock.language.binder.scalars.summary_estimates import summary_estimate
from penstock.language.binder.scope import Role, Scope
from penstock.language.catalog import Catalog
from penstock.language.dialect import span_of
from penstock.language.elsewhere import FUNCTIONS, OTHER_CALLS
from penstock.language.hints import WINDOW_FUNCTIONS
from penstock.language.places import WINDOW
from penstock.language.queries import StreamOperator
from penstock.language.text import TextSpan
from penstock.tree import walk
from penstock.types import parse_type

# --- LOWER_BOUND, UPPER_BOUND and ERROR_BOUND: what the exact value of an approximate call is between.
#
# A rule bounds the calls of one kind: it takes the call as it was parsed and the constants behind it, and returns the
# two bounds, or None where the call is not of its kind. The rules are tried in order.

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


#: Types whose names cast, as in INT(x).
_TYPES = frozenset(
    ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "STRING", "BINARY")
)
#: Functions whose first argument is a unit, written as a word.
_OF_UNITS = ("TIMESTAMPADD", "TIMESTAMP_ADD", "TIMESTAMPDIFF", "TIMESTAMP_DIFF")
OPERATOR_WORDS = frozenset(operator.value for operator in StreamOperator)


_EXTRACTED = {
    "YEAR": "YEAR",
    "QUARTER": "QUARTER",
    "MONTH": "MONTH",
    "WEEK": "WEEKOFYEAR",
    "DAY": "DAY",
    "DOW": "DAYOFWEEK",
    "DAYOFWEEK": "DAYOFWEEK",
    "DOY": "DAYOFYEAR",
    "HOUR": "HOUR",
    "MINUTE": "MINUTE",
    "SECOND": "SECOND",
}


#: Functions of a row among others, which in WITHIN GROUP are those of a row that is not there.
_RANKS = frozenset(("RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST"))

#: What to do instead, by the clause that takes no aggregates.
_WITHOUT_AGGREGATES = {
    "WHERE": "a condition over groups belongs in HAVING",
    "a list of columns": "coalesce a stream of results: WITH t AS (RSTREAM(SELECT ..)) SELECT .. FROM t (k) VALID ..",
    "WITH PREFERENCE": "prefer by columns of FROM and by estimates of summaries",
}


def _extract(binder: ScalarBinder, node: exp.Expr) -> Expression:
    field_name = node.this.name.upper()
    if field_name == "EPOCH":
        # Seconds since 1970, with what is behind the point.
        seconds = exp.Anonymous(this="UNIX_MICROS", expressions=[node.expression.copy()])
        seconds.meta.update(node.meta)
        return binder.bind(exp.Div(this=seconds, expression=exp.Literal.number("1000000")))
    function = _EXTRACTED.get(field_name) or _EXTRACTED.get(field_name.removesuffix("S"))
    if function is None:
        shown = ", ".join([*_EXTRACTED, "EPOCH"])
        binder.context.fail("P0204", f"EXTRACT has no unit {node.this.name}", span_of(node), f"known: {shown}")
    return binder.call(function, node, [binder.bind(node.expression)])


def _trim(binder: ScalarBinder, node: exp.Expr) -> Expression:
    name = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}.get(node.args.get("position") or "", "TRIM")
    characters = node.args.get("expression")
    return binder.call(name, node, binder.bind_all([node.this, *([characters] if characters is not None else [])]))


def _substring(binder: ScalarBinder, node: exp.Expr) -> Expression:
    parts = [node.args.get(key) for key in ("this", "start", "length")]
    return binder.call("SUBSTRING", node, binder.bind_all([p for p in parts if p is not None]))


def _position(binder: ScalarBinder, node: exp.Expr) -> Expression:
    parts = [node.args.get(key) for key in ("substr", "this", "position")]
    return binder.call("LOCATE", node, binder.bind_all([p for p in parts if p is not None]))


def function_name(node: exp.Expr) -> str:
    this = node.this
    return str(this.name if isinstance(this, exp.Expr) else this)


def name_span(node: exp.Expr) -> TextSpan:
    """Return the span of the name of a called function."""
    span = span_of(node)
    return TextSpan(span.start, span.start + len(function_name(node)))


def _function(binder: ScalarBinder, node: exp.Expr) -> Expression:
    name = function_name(node).upper()
    if name in OPERATOR_WORDS:
        hint = f"write {name}(SELECT ...) or SELECT {name}(item, ...) FROM ..."
        binder.context.fail("P0304", f"{name} encloses a query or a whole select list", name_span(node), hint)
    ordered = [argument for argument in node.expressions if isinstance(argument, exp.Order)]
    if ordered and not called_aggregate(node, binder.context.catalog):
        binder.context.fail("P0304", "ORDER BY follows FROM or is last in an aggregate", span_of(ordered[0]))
    if name == ESTIMATE and binder.context.catalog.function(name) is None:
        return estimate(binder, node)
    if name == MISSED_BOUND:
        return missed_bound(binder, node)
    of_periods = periods.function(binder, node, name)
    if of_periods is not None:
        return of_periods
    if name in ("GROUPING", "GROUPING_ID") and binder.aggregates is None and not binder.inside:
        return GroupingBits(BIGINT, tuple(replace(binder, aggregates="GROUPING").bind_all(node.expressions)))
    if called_aggregate(node, binder.context.catalog):
        return _aggregate(binder, node, None)
    if name in BOUND_FUNCTIONS and binder.context.catalog.function(name) is None:
        return bound_function(binder, node, name)
    if node.expressions and isinstance(node.expressions[0], exp.Distinct):
        message = "DISTINCT follows SELECT or is first in an aggregate"
        binder.context.fail("P0304", message, span_of(node.expressions[0]))
    user = binder.context.catalog.function(name)
    unbound = binder.context.catalog.unbound_functions.get(name.lower())
    if user is None and unbound is not None:
        message = f"{unbound.name} cannot be bound: {unbound.reason}"
        binder.context.fail("P0204", message, name_span(node), unbound.hint)
    elsewhere = WINDOW if name in WINDOW_FUNCTIONS else FUNCTIONS.get(name)
    if binder.aggregates == "VALUES" and elsewhere is FUNCTIONS.get("NOW"):
        elsewhere = "write the instant, or declare the source with SYSTEM TIME, which stamps rows as they arrive"
    if elsewhere is not None and user is None:
        binder.context.fail("P0204", f"unknown function {name}", name_span(node), elsewhere)
    if name in _TYPES and user is None and len(node.expressions) == 1:
        argument = binder.bind(node.expressions[0])
        return binder.context.guard(name_span(node), lambda: cast_in(binder.context.zone, argument, parse_type(name)))
    known = (
        isinstance(user, UserFunction)
        or name.lower() in binder.context.failed
        or bool(binder.context.attempt(lambda: binder.context.guard(name_span(node), lambda: function(name))))
    )
    if known and user is None:
        _refuse_elsewhere(binder, node, name)
    arguments = binder.bind_all([*_unit_as_text(name, node), *node.expressions[1:]])
    if not known:
        raise BindingFailed
    if isinstance(user, UserFunction):
        called = binder.context.guard(name_span(node), lambda: build_user_call(user, arguments))
        return casts_in(binder.context.zone, called, arguments)
    if name.lower() in binder.context.failed:
        binder.context.fail_silently()
    return binder.call(name, node, arguments, name_span(node))


def _unit_as_text(name: str, node: exp.Expr) -> list[exp.Expr]:
    """Return the first argument of a call, in a list; a unit, which stands there as a word, as a text."""
    first: list[exp.Expr] = node.expressions[:1]
    if name not in _OF_UNITS or not first or not isinstance(first[0], exp.Column) or first[0].args.get("table"):
        return first
    unit = exp.Literal.string(first[0].name)
    unit.meta.update(first[0].meta)
    return [unit]


def _refuse_elsewhere(binder: ScalarBinder, node: exp.Expr, name: str) -> None:
    """Refuse, with P0204, a call as other systems have it of a function that has this name, and other arguments."""
    first = node.expressions[0] if node.expressions else None
    unit = first.name.upper() if isinstance(first, exp.Column) else ""
    of_unit = unit.removesuffix("S") in _EXTRACTED and first is not None and not binder.scope.knows(name_of(first.this))
    for count, begins_with_unit, hint in OTHER_CALLS.get(name, ()):
        if len(node.expressions) == count and (of_unit or not begins_with_unit):
            binder.context.fail("P0204", f"{name} does not have these arguments", name_span(node), hint)


def called_aggregate(node: exp.Expr, catalog: Catalog) -> bool:
    """Return whether a call is of an aggregate, built in or user-defined."""
    name = function_name(node)
    return is_aggregate(name) or isinstance(catalog.function(name), UserAggregate)


def _filter(binder: ScalarBinder, node: exp.Expr) -> Expression:
    inner, condition = node.this, node.expression.this
    if isinstance(inner, exp.WithinGroup):
        return _within_group(binder, inner, condition)
    if not isinstance(inner, exp.Anonymous) or not called_aggregate(inner, binder.context.catalog):
        binder.context.fail("P0304", "FILTER belongs to an aggregate", span_of(node))
    return _aggregate(binder, inner, condition)


def _within_group(binder: ScalarBinder, node: exp.Expr, condition: exp.Expr | None = None) -> Expression:
    inner = node.this
    name = function_name(inner).upper() if isinstance(inner, exp.Anonymous) else ""
    if name in _RANKS:
        hint = "COUNT(*) FILTER (WHERE x < 5) + 1 is the rank of 5"
        binder.context.fail("P0901", f"{name} with WITHIN GROUP is not supported yet", name_span(inner), hint)
    if not isinstance(inner, exp.Anonymous) or not called_aggregate(inner, binder.context.catalog):
        binder.context.fail("P0304", "WITHIN GROUP belongs to an aggregate", span_of(node))
    return _aggregate(binder, inner, condition, node.expression)


def _order(binder: ScalarBinder, node: exp.Expr) -> RowOrder:
    """Return the keys of ORDER BY in a call."""
    if any(isinstance(ordered.this, exp.Var) for ordered in node.expressions):
        hint = "name the values by which rows are ordered"
        binder.context.fail("P0304", "ORDER BY ALL is of a query: a call has no items", span_of(node), hint)
    keys = binder.bind_all([ordered.this for ordered in node.expressions])
    directions = [KeyDirection(bool(o.args.get("desc")), bool(o.args.get("nulls_first"))) for o in node.expressions]
    return RowOrder(tuple(keys), tuple(directions))


def _aggregate(
    binder: ScalarBinder, node: exp.Expr, condition: exp.Expr | None, group: exp.Expr | None = None
) -> Expression:
    """Return the call of an aggregate. condition: of its FILTER; group: the ORDER BY of its WITHIN GROUP."""
    context = binder.context
    name = function_name(node).upper()
    if binder.inside:
        other = "make the inner one a column of a query in FROM, and aggregate that"
        context.fail("P0304", f"{name} inside another aggregate", name_span(node), other)
    if binder.aggregates is not None:
        hint = _WITHOUT_AGGREGATES.get(binder.aggregates)
        context.fail("P0304", f"{name} is an aggregate, not allowed in {binder.aggregates}", name_span(node), hint)
    arguments, order_by = list(node.expressions), group
    if arguments and isinstance(arguments[-1], exp.Order):
        if group is not None:
            message = f"{name} has an ORDER BY in its parentheses and one in WITHIN GROUP"
            context.fail("P0304", message, span_of(arguments[-1]), "leave one of them out")
        order_by = arguments[-1]
        arguments[-1] = order_by.this
    distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if distinct:
        arguments = list(arguments[0].expressions)
    known = aggregate_function(name)
    if known is not None and known.of_rows:
        if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            arguments = []
        elif not arguments:
            context.fail("P0204", f"{name} takes an argument", name_span(node), f"{name}(*) counts rows")
    if known is not None and known.cell_constants and any(_is_list(argument) for argument in arguments[1:]):
        hint = f"call {name} once for each; calls over the same values share their state"
        context.fail("P0901", f"a list of fractions in {name} is not supported yet", name_span(node), hint)
    inner = replace(binder, aggregates=None, aliases={}, outputs=(), inside=True)
    where = None if condition is None else context.attempt(lambda: inner.predicate(condition, "FILTER"))
    bound = inner.bind_all(arguments)
    by = None if order_by is None else _order(inner, order_by)
    if condition is not None and where is None:
        raise BindingFailed
    read = [*bound, *(() if by is None else by.keys)]
    if any(reads_outer(b) for b in read) and not any(isinstance(n, Column) for b in read for n in walk(b)):
        hint = "as in SQL it counts the rows of that query: write it there, and read its value here"
        context.fail("P0312", f"{name} over columns of only the enclosing query belongs to it", name_span(node), hint)
    user = context.catalog.function(name)
    if isinstance(user, UserAggregate):
        if order_by is not None:
            message = f"{user.name} is a function of your own, which reads rows in any order"
            context.fail("P0304", message, span_of(order_by), "leave ORDER BY out")
        return context.guard(name_span(node), lambda: build_user_aggregate(user, bound, distinct, where))
    within = group is not None
    # The value is first in the parentheses, or the first key of WITHIN GROUP; what else stands there is constant.
    value, constants = bound[:1], bound[1:]
    if by is not None and within and known is not None and not known.ordered:
        value, constants = [], bound
    bound = value + [fold_constant(b) for b in constants]
    order = time_of(binder.scope) if known is not None and known.timed else None
    call: AggregateCall = context.guard(name_span(node), lambda: _call(name, bound, distinct, where, order, by, within))
    call = casts_in(context.zone, call, [*read, *([] if order is None else [order])])
    first = (value or read)[:1]
    if first and call.arguments and pa.types.is_string(first[0].type) and call.arguments[0].type != first[0].type:
        hint = "declare the column as a number, or write CAST(.. AS DOUBLE), which means the same"
        context.warn(f"{name} over a text: what is no number in it is NULL and left out", name_span(node), hint)
    return approximated(context, call, name_span(node))


def _is_list(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and function_name(node).upper() == "ARRAY"


def _call(
    name: str,
    arguments: list[Expression],
    distinct: bool,
    where: Expression | None,
    order: Expression | None,
    by: RowOrder | None,
    within: bool,
) -> AggregateCall:
    try:
        return build_aggregate(name, arguments, distinct, where, order, by, within)
    except PenstockError as error:
        error.hint = error.hint or FUNCTIONS.get(name)
        raise


def time_of(scope: Scope) -> Expression | None:
    """Return the timestamp of a row of FROM: the greatest of those of the stream elements in it. None when there is no
    stream, or one whose elements have no timestamp column.
    """
    streams = {e.qualifier for e in scope.entries if e.role is not Role.RELATION}
    stamps = [e for e in scope.entries if e.role is Role.TIMESTAMP]
    if not streams or streams != {e.qualifier for e in stamps}:
        return None
    columns: list[Expression] = [e.column() for e in stamps]
    return columns[0] if len(columns) == 1 else build_call("GREATEST", columns)


CALLS: Mapping[type[exp.Expr], Binding] = {
    exp.Interval: interval,
    exp.Extract: _extract,
    exp.Trim: _trim,
    exp.Substring: _substring,
    exp.StrPosition: _position,
    exp.Anonymous: _function,
    exp.Dot: summary_estimate,
    exp.Filter: _filter,
    exp.WithinGroup: _within_group,
}
