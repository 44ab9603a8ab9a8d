"""Periods in expressions [semantics 4.5]: VALID(s), PERIOD(b, e), what is made of them, and predicates of two.

A period is two expressions, its begin and its end in ticks, BIGINT. An end that is never reached is END; a period that
is NULL has bounds that are NULL. Predicates are comparisons of the bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from penstock.errors import nearest
from penstock.expressions.calls.functions import build_call, build_cast
from penstock.expressions.coercion import BIGINT, DATE, is_integer
from penstock.expressions.nodes import Column, Expression, Literal
from penstock.language.binder.context import Context
from penstock.language.binder.scalars.binder import Binding, ScalarBinder, name_of
from penstock.language.binder.scalars.period_relations import (
    ALLEN,
    PREDICATES,
    TicksPeriod,
    and_,
    compare,
    equals,
    overlaps,
)
from penstock.language.dialect import is_period_text, span_of
from penstock.language.queries import Name, OrderItem
from penstock.language.text import TextSpan
from penstock.types import END, TIMESTAMP, Unit, type_name

_DAY = Unit.DAY.value
#: Hint for periods that cannot be compared.
TWO_DOMAINS = "convert the bounds of one: PERIOD(b, e) of columns of the type that the other has"
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


def never() -> Literal:
    """Return the end that is never reached."""
    return Literal(BIGINT, END)


def ticks_of(value: Expression) -> Expression:
    """Return an instant, a TIMESTAMP, DATE or integer, in ticks."""
    if pa.types.is_timestamp(value.type):
        return build_call("UNIX_MICROS", [value])
    if value.type == DATE:
        return build_call("UNIX_MICROS", [build_cast(value, TIMESTAMP)])
    return value if value.type == BIGINT else build_cast(value, BIGINT)


def instant(ticks: Expression, type_: pa.DataType) -> Expression:
    """Return ticks as an instant of `type_`."""
    if is_integer(type_):
        return ticks if type_ == BIGINT else build_cast(ticks, type_)
    when = build_call("TIMESTAMP_MICROS", [ticks])
    return build_cast(when, DATE) if type_ == DATE else when


def begin_of(period: TicksPeriod) -> Expression:
    return instant(period.begin, period.type)


def end_of(period: TicksPeriod) -> Expression:
    return instant(build_call("NULLIF", [period.end, never()]), period.type)


def is_period(binder: ScalarBinder, node: exp.Expr) -> bool:
    """Return whether `node` is a period; a function of the user's goes before those of this name."""
    node = node.unnest()
    return is_period_text(node) and binder.context.catalog.function(str(node.this)) is None


def period(binder: ScalarBinder, node: exp.Expr) -> TicksPeriod:
    """Return the period that `node` is. Raises BindingFailed with the errors recorded."""
    if not is_period(binder, node):
        bound = binder.bind(node)
        hint = "a period is VALID(s), PERIOD(begin, end), INTERSECTION(p, q) or SPAN(p, q)"
        if is_integer(bound.type) or bound.type == DATE or pa.types.is_timestamp(bound.type):
            hint = f"{hint}; an instant follows CONTAINS, as in VALID(s) CONTAINS at"
        binder.context.fail("P0203", f"this is no period, it is {type_name(bound.type)}", span_of(node), hint)
    node = node.unnest()
    name, arguments = str(node.this).upper(), node.expressions
    if name == "VALID":
        if not arguments:
            binder.context.fail("P0204", "VALID takes the alias of a source", span_of(node), "as in VALID(s)")
        found = [_valid(binder, argument) for argument in arguments]
        whole = found[0]
        for other in found[1:]:
            whole = _intersection(*_alike(binder, node, whole, other))
        return whole
    if len(arguments) != 2:
        shown = "a begin and an end" if name == "PERIOD" else "two periods"
        example = "PERIOD(b, e)" if name == "PERIOD" else f"{name}(VALID(s), VALID(t))"
        binder.context.fail("P0204", f"{name} takes {shown}", span_of(node), f"as in {example}")
    if name == "PERIOD":
        return _of_bounds(binder, node)
    pair = _alike(binder, node, *binder.context.each(lambda part: period(binder, part), arguments))
    return _intersection(*pair) if name == "INTERSECTION" else _span(*pair)


def without_valid_time(name: str, columns: Sequence[str]) -> str:
    """Return the hint of P0370 for a source with these columns."""
    begins = [c for c in columns if c.lower().endswith("_from") and f"{c.lower()[:-5]}_to" in map(str.lower, columns)]
    if len(set(begins)) > 1:
        ends = next(c for c in columns if c.lower() == f"{begins[0].lower()[:-5]}_to")
        return f"it has the periods of {', '.join(begins)}: say which, as in {name} VALID FROM {begins[0]} TO {ends}"
    if len(begins) > 1:
        return (
            f"{begins[0]} is several columns: give each period a name, as in VALID(s) AS x, which makes x_from and x_to"
        )
    either = f"say VALID FOR 1 MINUTE behind {name}, or VALID FROM a TO b in its declaration"
    return f"{either}; under SLIDE the granule serves"


def _valid(binder: ScalarBinder, node: exp.Expr) -> TicksPeriod:
    """Return the valid time of the source whose alias `node` is."""
    context, scope = binder.context, binder.scope
    plain = isinstance(node, exp.Column) and node.args.get("table") is None and isinstance(node.this, exp.Identifier)
    name = name_of(node.this) if plain else Name("", span=span_of(node))
    bounds = [e for e in scope.bounds() if plain and e.qualifier is not None and name.matches(e.qualifier)]
    if len(bounds) >= 2:
        begin, end = (bound.column() for bound in bounds[:2])
        for column in (begin, end):
            if isinstance(column, Column):
                binder.column_spans.append((column, span_of(node)))
        assert bounds[0].bound is not None
        if bounds[0].bound.of_row:
            context.uncoalesced.append(name.text)
        return TicksPeriod(begin, end, bounds[0].bound.type, bounds[0].bound.domain, bounds[0].bound.open)
    known = scope.all_qualifiers()
    if scope.may_be_lost(name if plain else None):
        context.fail_silently()
    if plain and any(name.matches(q) for q in known):
        columns = [e.name for e in scope.entries if e.named and e.qualifier is not None and name.matches(e.qualifier)]
        missing = without_valid_time(name.text, columns)
        context.fail("P0370", f"{name.text} has no valid time", span_of(node), missing)
    hint = nearest(name.text, known) if plain else f"known: {', '.join(known)}"
    return context.fail("P0372", "VALID takes the alias of a source, not a column", span_of(node), hint)


def _of_bounds(binder: ScalarBinder, node: exp.Expr) -> TicksPeriod:
    """Return PERIOD(b, e), NULL unless b < e."""
    begin, end = binder.bind_all(node.expressions)
    types = [bound.type for bound in (begin, end) if not pa.types.is_null(bound.type)]
    fits = [is_integer(t) or t == DATE or pa.types.is_timestamp(t) for t in types]
    if not types or not all(fits) or len({is_integer(t) for t in types}) != 1:
        shown = " and ".join(type_name(bound.type) for bound in (begin, end))
        message = f"PERIOD takes two instants, TIMESTAMP, DATE or integers: these are {shown}"
        texts = any(pa.types.is_string(t) for t in types)
        hint = "as in PERIOD(DATE '2020-01-01', DATE '2021-01-01'), or with TIMESTAMP" if texts else None
        binder.context.fail("P0203", message, span_of(node), hint)
    type_ = types[0] if len(set(types)) == 1 else BIGINT if is_integer(types[0]) else TIMESTAMP
    first, last = (build_cast(b, types[0]) if pa.types.is_null(b.type) else b for b in (begin, end))
    low, high = ticks_of(first), build_call("COALESCE", [ticks_of(last), never()])
    there = build_call("LT", [low, high])
    return TicksPeriod(_where(there, low), _where(there, high), type_, None)


def last_of(period: TicksPeriod) -> Expression:
    """Return the last instant of a period, a tick before its end; of DATEs the last day. NULL without an end."""
    before = build_call("SUB", [build_call("NULLIF", [period.end, never()]), Literal(BIGINT, 1)])
    return instant(before, period.type)


def _where(condition: Expression, value: Expression) -> Expression:
    """Return `value` where the condition is TRUE, else NULL."""
    return build_call("IF", [condition, value, Literal(BIGINT, None)])


def _alike(binder: ScalarBinder, node: exp.Expr, p: TicksPeriod, q: TicksPeriod) -> tuple[TicksPeriod, TicksPeriod]:
    """Return two periods of one time domain, or fail with P0302."""
    differ = p.domain is not None and q.domain is not None and p.domain != q.domain
    if p.is_calendar != q.is_calendar or (differ and not p.is_calendar):
        message = f"periods of different time domains: {type_name(p.type)} and {type_name(q.type)}"
        binder.context.fail("P0302", message, span_of(node), TWO_DOMAINS)
    return p, q


def _common_type(p: TicksPeriod, q: TicksPeriod) -> pa.DataType:
    if p.type == q.type:
        return p.type
    return TIMESTAMP if p.is_calendar else BIGINT


def _intersection(p: TicksPeriod, q: TicksPeriod) -> TicksPeriod:
    there = overlaps(p, q)
    begin = build_call("GREATEST", [p.begin, q.begin])
    end = build_call("LEAST", [p.end, q.end])
    return _made(p, q, _where(there, begin), _where(there, end))


def _span(p: TicksPeriod, q: TicksPeriod) -> TicksPeriod:
    there = and_(*(build_call("IS_NOT_NULL", [one.begin]) for one in (p, q)))
    begin = build_call("LEAST", [p.begin, q.begin])
    end = build_call("GREATEST", [p.end, q.end])
    return _made(p, q, _where(there, begin), _where(there, end))


def _made(p: TicksPeriod, q: TicksPeriod, begin: Expression, end: Expression) -> TicksPeriod:
    return TicksPeriod(begin, end, _common_type(p, q), p.domain or q.domain, p.open or q.open)


def predicate(binder: ScalarBinder, node: exp.Expr) -> Expression:
    """Return a predicate between two periods; CONTAINS also takes an instant."""
    name = str(node.this).upper()
    left, right = node.expressions
    if name == "CONTAINS" and not is_period(binder, right):
        p = period(binder, left)
        at = _instant_for(binder, right, p)
        return and_(compare("LE", p.begin, at), compare("LT", at, p.end))
    p, q = binder.context.each(lambda part: period(binder, part), [left, right])
    return PREDICATES[name](*_alike(binder, node, p, q))


def _instant_for(binder: ScalarBinder, node: exp.Expr, p: TicksPeriod) -> Expression:
    """Return an instant in the ticks of `p`."""
    bound = binder.bind(node)
    if pa.types.is_string(bound.type) and p.is_calendar:
        bound = binder.context.guard(span_of(node), lambda: build_cast(bound, TIMESTAMP))
    fits = is_integer(bound.type) != p.is_calendar and (
        is_integer(bound.type) or bound.type == DATE or pa.types.is_timestamp(bound.type)
    )
    if not fits:
        message = f"CONTAINS takes a period or an instant such as the bounds: this is {type_name(bound.type)}"
        hint = f"periods of {type_name(p.type)} contain instants of that type, such as BEGIN(VALID(s))"
        binder.context.fail("P0203", message, span_of(node), hint)
    return ticks_of(bound)


def equal(binder: ScalarBinder, node: exp.Expr) -> Expression | None:
    """Return `p = q` of two periods, or `p <> q`; None where neither side is one."""
    for one, other in ((node.this, node.expression), (node.expression, node.this)):
        _warn_of_relation(binder, one.unnest(), other.unnest())
    if not (is_period(binder, node.this) or is_period(binder, node.expression)):
        return None
    p, q = binder.context.each(lambda part: period(binder, part), [node.this, node.expression])
    return equals(*_alike(binder, node, p, q))


def _warn_of_relation(binder: ScalarBinder, node: exp.Expr, text: exp.Expr) -> None:
    """Warn of a text that ALLEN(..) never is."""
    if isinstance(node, exp.Anonymous) and str(node.this).upper() == "ALLEN" and isinstance(text, exp.Literal):
        named = str(text.this)
        if text.is_string and named not in ALLEN:
            hint = nearest(named.lower(), tuple(ALLEN)) or f"it is one of {', '.join(ALLEN)}"
            binder.context.warn(f"ALLEN(..) is never {named!r}", span_of(text), hint)


def length(p: TicksPeriod) -> Expression:
    """Return the length of a period in ticks, of DATEs in days; NULL without an end."""
    ticks = build_call("SUB", [build_call("NULLIF", [p.end, never()]), p.begin])
    return build_call("INT_DIV", [ticks, Literal(BIGINT, _DAY)]) if p.type == DATE else ticks


def whole_units(binder: ScalarBinder, node: exp.Expr) -> Expression | None:
    """Return CAST(p AS INTERVAL unit), the largest n with BEGIN + n units ≤ END; None where `node` casts no period."""
    if not is_period(binder, node.this):
        return None
    target = node.args["to"]
    unit = unit_of(node)
    if not unit:
        hint = "as in CAST(VALID(s) AS INTERVAL MINUTE)"
        binder.context.fail("P0203", "a period is cast to INTERVAL with a unit", span_of(node), hint)
    p = period(binder, node.this)
    months = _MONTHS.get(unit.removesuffix("S"))
    if months is not None:
        return _months(binder, p, months, unit, span_of(target))
    known = Unit.parse(unit)
    if known is None:
        binder.context.fail(
            "P0102", f"{unit} is no unit of time", span_of(target), "as in CAST(VALID(s) AS INTERVAL MINUTE)"
        )
    end = build_call("NULLIF", [p.end, never()])
    ticks = build_call("SUB", [end, p.begin])
    size, tick = known.value, binder.scope.tick_of(p.type, p.domain)
    if size % tick == 0:
        return build_call("INT_DIV", [ticks, Literal(BIGINT, size // tick)])
    return build_call("MUL", [ticks, Literal(BIGINT, tick // size)])


def unit_of(cast: exp.Expr) -> str:
    """Return the unit of CAST(.. AS INTERVAL unit); empty for another type."""
    target = cast.args["to"]
    unit = target.this.args.get("unit") if isinstance(target.this, exp.Interval) else None
    return unit.name.upper() if unit is not None else ""


def _months(binder: ScalarBinder, p: TicksPeriod, months: int, unit: str, span: TextSpan) -> Expression:
    if not p.is_calendar:
        hint = "its bounds are integers; months are counted by the calendar"
        binder.context.fail("P0203", f"{unit} needs periods of TIMESTAMP or DATE", span, hint)
    begin, end = (instant(t, TIMESTAMP) for t in (p.begin, build_call("NULLIF", [p.end, never()])))

    def counted(at: Expression) -> Expression:
        years = build_call("MUL", [build_call("YEAR", [at]), Literal(pa.int32(), 12)])
        return build_call("ADD", [years, build_call("MONTH", [at])])

    most = build_call("SUB", [counted(end), counted(begin)])
    past = build_call("GT", [build_call("PLUS_MONTHS", [begin, build_cast(most, pa.int32())]), end])
    less = build_call("SUB", [most, Literal(pa.int32(), 1)])
    found = build_call("IF", [past, less, most])
    whole = found if months == 1 else build_call("INT_DIV", [found, Literal(pa.int32(), months)])
    return build_cast(whole, BIGINT)


def _of_period(compute: Callable[[TicksPeriod], Expression]) -> Callable[[ScalarBinder, exp.Expr], Expression]:
    def bind(binder: ScalarBinder, node: exp.Expr) -> Expression:
        if len(node.expressions) != 1:
            name = str(node.this).upper()
            binder.context.fail("P0204", f"{name} takes a period", span_of(node), f"as in {name}(VALID(s))")
        return compute(period(binder, node.expressions[0]))

    return bind


def _allen(binder: ScalarBinder, node: exp.Expr) -> Expression:
    if len(node.expressions) != 2:
        binder.context.fail(
            "P0204", "ALLEN takes two periods", span_of(node), "as in ALLEN(VALID(s), VALID(t)) = 'before'"
        )
    p, q = binder.context.each(lambda part: period(binder, part), node.expressions)
    _alike(binder, node, p, q)
    return allen(p, q)


def allen(p: TicksPeriod, q: TicksPeriod) -> Expression:
    """Return which of Allen's relations holds, as text; NULL where a period is."""
    found: Expression = Literal(pa.string(), None)
    for name, holds in reversed(list(ALLEN.items())):
        found = build_call("IF", [holds(p, q), Literal(pa.string(), name), found])
    return found


def anded(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the parts of a condition that all have to hold."""
    found: list[exp.Expr] = []
    rest = [] if condition is None else [condition]
    while rest:
        node = rest.pop().unnest()
        if isinstance(node, exp.And):
            rest += [node.expression, node.this]
        else:
            found.append(node)
    return found


def closed_alias(node: exp.Expr) -> str | None:
    """Return the alias s, in lower case, of CLOSED(VALID(s)); None for another condition."""
    if not (isinstance(node, exp.Anonymous) and str(node.this).upper() == "CLOSED" and len(node.expressions) == 1):
        return None
    return alias_of(node.expressions[0])


def closed_columns(node: exp.Expr) -> list[exp.Expr] | None:
    """Return the columns of CLOSED(c, ..); None for another condition, of periods too."""
    if not (isinstance(node, exp.Anonymous) and str(node.this).upper() == "CLOSED" and node.expressions):
        return None
    columns: list[exp.Expr] = node.expressions
    return columns if all(isinstance(one.unnest(), exp.Column) for one in columns) else None


def alias_of(of: exp.Expr) -> str | None:
    """Return the alias s, in lower case, of VALID(s); None for another expression."""
    of = of.unnest()
    if not (is_period_text(of) and str(of.this).upper() == "VALID" and len(of.expressions) == 1):
        return None
    alias = of.expressions[0]
    plain = isinstance(alias, exp.Column) and alias.args.get("table") is None
    return str(alias.name).lower() if plain else None


def _closed(binder: ScalarBinder, node: exp.Expr) -> Expression:
    """Bind CLOSED(VALID(s)), which FROM has carried out: TRUE of what is there, NULL beside a row that an outer join
    has not found a partner for. Anywhere but at the top of WHERE it is refused."""
    context = binder.context
    if closed_columns(node) is not None and not _names_periods(binder, node):
        return _closed_by_promises(binder, node)
    if len(node.expressions) != 1:
        context.fail("P0204", "CLOSED takes a period", span_of(node), "as in WHERE CLOSED(VALID(s))")
    if not is_period(binder, node.expressions[0]):
        context.fail("P0203", "CLOSED takes the period of a source", span_of(node), "as in WHERE CLOSED(VALID(s))")
    top = node
    while isinstance(top.parent, exp.And | exp.Paren):
        top = top.parent
    alias = closed_alias(node)
    if binder.aggregates != "WHERE" or top.parent is not None or alias is None:
        hint = "as in WHERE CLOSED(VALID(s)) AND LENGTH(VALID(s)) > 10"
        if isinstance(node.parent, exp.Not):
            hint = "without CLOSED all stretches are emitted as they change; [SESSION 5 MINUTES OPEN] has the open ones"
        context.fail("P0373", "CLOSED(VALID(s)) is a condition of its own, joined by AND in WHERE", span_of(node), hint)
    p = period(binder, node.expressions[0])
    if not any(e.closes for e in binder.scope.bounds() if (e.qualifier or "").lower() == alias and not e.depth):
        hint = f"name the columns on which it is: {alias} (a, b)"
        context.fail("P0373", f"{alias} is not coalesced, so it has no period that closes", span_of(node), hint)
    return build_call("IS_NOT_NULL", [p.begin])


def _names_periods(binder: ScalarBinder, node: exp.Expr) -> bool:
    """Return whether CLOSED(s) names a source that has periods, in place of VALID(s)."""
    one = node.expressions[0].unnest()
    if len(node.expressions) > 1 or one.args.get("table") is not None or binder.scope.can_resolve(name_of(one.this)):
        return False
    return any((e.qualifier or "").lower() == one.name.lower() for e in binder.scope.bounds())


def _closed_by_promises(binder: ScalarBinder, node: exp.Expr) -> Expression:
    """Bind CLOSED(c, ..), which WHERE and HAVING have carried out: TRUE of what is there. Anywhere but at the top of
    these it is refused."""
    top = node
    while isinstance(top.parent, exp.And | exp.Paren):
        top = top.parent
    if not binder.closes or top.parent is not None:
        hint = "as in WHERE CLOSED(o.id) AND o.amount > 10, or GROUP BY id HAVING CLOSED(id)"
        message = "CLOSED(c, ..) is a condition of its own, joined by AND in WHERE or HAVING"
        binder.context.fail("P0373", message, span_of(node), hint)
    return Literal(pa.bool_(), True)


#: function -> its binding. LENGTH goes by the type of its argument.
FUNCTIONS: Mapping[str, Binding] = {
    "BEGIN": _of_period(begin_of),
    "END": _of_period(end_of),
    "LENGTH": _of_period(length),
    "WINDOW_TIME": _of_period(last_of),
    "ALLEN": _allen,
    "CLOSED": _closed,
}


def function(binder: ScalarBinder, node: exp.Expr, name: str) -> Expression | None:
    """Return the call of a function or predicate of periods; None for any other call."""
    if binder.context.catalog.function(name) is not None:
        return None
    of_periods = any(is_period(binder, part) for part in node.expressions)
    if name in PREDICATES and len(node.expressions) == 2 and of_periods:
        return predicate(binder, node)
    if name in FUNCTIONS and (name != "LENGTH" or of_periods):
        return FUNCTIONS[name](binder, node)
    if name in ("VALID", "PERIOD", "INTERSECTION", "SPAN"):
        hint = "select it alone, or take BEGIN(..), END(..) or LENGTH(..) of it"
        binder.context.fail("P0203", f"{name}(..) is a period, which is no value", span_of(node), hint)
    return None


def items(binder: ScalarBinder, node: exp.Expr, alias: str | None) -> list[tuple[str, Expression]]:
    """Return the two columns of a period in a select list."""
    p = period(binder, node)
    name = alias or "valid"
    return [(f"{name}_from", begin_of(p)), (f"{name}_to", end_of(p))]


def order_of(key: OrderItem, context: Context) -> list[OrderItem]:
    """Return the sort keys that a sort key is: of a period its begin and its end, which is greatest where it does not
    come."""
    if not is_period_text(key.value) or context.catalog.function(str(key.value.unnest().this)) is not None:
        return [key]
    found = []
    for name, nulls_first in (("BEGIN", key.nulls_first), ("END", key.descending)):
        bound = exp.Anonymous(this=name, expressions=[key.value.copy()])
        bound.meta["span"] = span_of(key.value)
        found.append(replace(key, value=bound, nulls_first=nulls_first))
    return found


def bounds_of(binder: ScalarBinder, node: exp.Expr) -> list[Expression] | None:
    """Return the bounds of a period by which rows are grouped or ordered; None for another expression."""
    node = binder.aliased_item(node)
    if not is_period(binder, node):
        return None
    p = period(binder, node)
    return [p.begin, p.end]
