"""Comparisons of the length of a period: with an INTERVAL, and of one that is open [semantics 4.5].

LENGTH counts ticks; an INTERVAL beside it is converted to these. The length of an open period is known only from below:
`LENGTH(VALID(s)) >= constant`, joined by AND in WHERE, comes true at a known instant, which FROM carries out.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn

import pyarrow as pa
from sqlglot import exp

from penstock.expressions.calls.functions import build_call
from penstock.expressions.coercion import BIGINT, DATE
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.nodes import MIRRORED, Expression, Literal
from penstock.language.binder.context import Context
from penstock.language.binder.scalars import periods
from penstock.language.binder.scalars.binder import ScalarBinder
from penstock.language.binder.scalars.period_relations import TicksPeriod
from penstock.language.binder.scope import PeriodBound
from penstock.language.dialect import span_of
from penstock.language.queries import EmbeddedQuery
from penstock.types import LONGEST_TICKS, Unit

_NAMES: Mapping[type[exp.Expr], str] = {
    exp.LT: "LT",
    exp.GT: "GT",
    exp.LTE: "LE",
    exp.GTE: "GE",
    exp.EQ: "EQ",
    exp.NEQ: "NE",
}
_HINT = "say LENGTH(VALID(s)) >= 180, joined by AND in WHERE, or WHERE CLOSED(VALID(s)) for periods that have ended"


@dataclass(frozen=True)
class ComparedLength:
    """A comparison with a length. length: LENGTH(p) or CAST(p AS INTERVAL unit); operator: its name, with the length on
    its left; other: what it is compared with."""

    length: exp.Expr
    operator: str
    other: exp.Expr

    @property
    def period(self) -> exp.Expr:
        found: exp.Expr = self.length.expressions[0] if isinstance(self.length, exp.Anonymous) else self.length.this
        return found

    @property
    def alias(self) -> str | None:
        """Return the alias s, in lower case, of the period VALID(s); None for another period."""
        return periods.alias_of(self.period)

    @property
    def is_lower_bound(self) -> bool:
        """Return whether the length is at least a constant."""
        varies = self.other.find(exp.Column, EmbeddedQuery) is not None or isinstance(self.other, exp.Null)
        return self.operator in ("GT", "GE") and not varies


def comparison(node: exp.Expr) -> ComparedLength | None:
    """Return a comparison with the length of a period, None for another expression."""
    node = node.unnest()
    operator = _NAMES.get(type(node))
    if operator is None:
        return None
    left, right = node.this.unnest(), node.expression.unnest()
    if _is_length(left):
        return ComparedLength(left, operator, right)
    return ComparedLength(right, MIRRORED[operator], left) if _is_length(right) else None


def lower_bounds(condition: exp.Expr | None) -> Mapping[str, tuple[ComparedLength, ...]]:
    """Return, by alias in lower case, the lower bounds of lengths of VALID(alias) that all have to hold."""
    found: dict[str, tuple[ComparedLength, ...]] = {}
    for part in periods.anded(condition):
        compared = comparison(part)
        if compared is not None and compared.is_lower_bound and compared.alias is not None:
            found[compared.alias] = (*found.get(compared.alias, ()), compared)
    return found


def least_ticks(bounds: Iterable[ComparedLength], bound: PeriodBound, binder: ScalarBinder) -> int | None:
    """Return how many ticks open periods have to last, by all of these comparisons; None for none."""
    found = binder.context.each(lambda compared: _least(compared, bound, binder), list(bounds))
    return max(found, default=None)


def _least(compared: ComparedLength, bound: PeriodBound, binder: ScalarBinder) -> int:
    context = binder.context
    tick = binder.scope.tick_of(bound.type, bound.domain)
    size = tick
    if not isinstance(compared.length, exp.Anonymous):
        unit = Unit.parse(periods.unit_of(compared.length))
        if unit is None:
            _refuse(compared, context, "months differ in length: count days, as in CAST(VALID(s) AS INTERVAL DAY)")
        size = unit.value
    value = fold(binder.bind(compared.other))
    number = _number(value, tick)
    if number is None:
        _refuse(compared, context, _HINT)
    count = math.floor(number) + 1 if compared.operator == "GT" else math.ceil(number)
    least = max(0, math.ceil(Fraction(count * size, tick)))
    if least >= LONGEST_TICKS:
        context.fail("P0102", "this exceeds the range of time", span_of(compared.other))
    return least


def _number(value: Expression, tick: int) -> Fraction | None:
    """Return a constant length in ticks, or a constant number; None for anything else."""
    if not isinstance(value, Literal) or value.value is None or isinstance(value.value, bool | str):
        return None
    if isinstance(value.value, dt.timedelta):
        return Fraction(value.value // dt.timedelta(microseconds=1), tick)
    if isinstance(value.value, float) and not math.isfinite(value.value):
        return None
    try:
        return Fraction(value.value)
    except TypeError:
        return None


def compared(binder: ScalarBinder, node: exp.Expr) -> Expression | None:
    """Return a comparison of a length that is open, or with an INTERVAL; None where it is one of two values as any."""
    found = comparison(node)
    if found is None or not periods.is_period(binder, found.period):
        return None
    p = periods.period(binder, found.period)
    _warn_of_microseconds(binder, found, p)
    if p.open:
        return _of_open(binder, node, found, p)
    if not isinstance(found.length, exp.Anonymous):
        return None
    other = fold(binder.bind(found.other))
    if not pa.types.is_duration(other.type):
        return None
    tick = Unit.DAY.value if p.type == DATE else binder.scope.tick_of(p.type, p.domain)
    number = _number(other, tick)
    if number is None or number.denominator != 1:
        hint = "the length counts ticks: compare it with whole ones"
        binder.context.fail("P0303", "this is no constant number of ticks of the period", span_of(found.other), hint)
    return build_call(found.operator, [periods.length(p), Literal(BIGINT, int(number))])


def _warn_of_microseconds(binder: ScalarBinder, found: ComparedLength, p: TicksPeriod) -> None:
    """Warn of a small number beside LENGTH of a period of TIMESTAMPs, which counts microseconds."""
    of_timestamps = isinstance(found.length, exp.Anonymous) and p.is_calendar and p.type != DATE
    if not of_timestamps or not isinstance(found.other, exp.Literal) or found.other.is_string:
        return
    text = str(found.other.this)
    if 0 < Fraction(text) < Unit.SECOND.value:
        hint = f"name the unit: INTERVAL '{text}' SECONDS"
        message = f"LENGTH counts microseconds, the ticks of a TIMESTAMP: {text} of them"
        binder.context.warn(message, span_of(found.other), hint)


def _of_open(binder: ScalarBinder, node: exp.Expr, found: ComparedLength, p: TicksPeriod) -> Expression:
    """Return a lower bound of an open length, which FROM has carried out for periods that are open."""
    top = node
    while isinstance(top.parent, exp.And | exp.Paren):
        top = top.parent
    own = [e for e in binder.scope.entries if e.bound is not None and (e.qualifier or "").lower() == found.alias]
    carried_out = binder.aggregates == "WHERE" and top.parent is None and found.is_lower_bound and own
    bound = own[0].bound if own else None
    if not carried_out or bound is None:
        _refuse(found, binder.context, _HINT)
    least = _least(found, bound, binder)
    ticks = build_call("SUB", [build_call("NULLIF", [p.end, periods.never()]), p.begin])
    long = build_call("GE", [ticks, Literal(BIGINT, least)])
    return build_call("OR", [build_call("EQ", [p.end, periods.never()]), long])


def refuse_open(binder: ScalarBinder, node: exp.Expr) -> None:
    """Fail with P0373 where `node`, a side of BETWEEN or IN, is the length of an open period."""
    node = node.unnest()
    if _is_length(node):
        found = ComparedLength(node, "EQ", node)
        if periods.is_period(binder, found.period) and periods.period(binder, found.period).open:
            _refuse(found, binder.context, _HINT)


def _refuse(compared: ComparedLength, context: Context, hint: str) -> NoReturn:
    message = "the length of a period that is open is known from below only, against a constant"
    context.fail("P0373", message, span_of(compared.length), hint)


def _is_length(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast):
        return isinstance(node.args["to"].this, exp.Interval) or periods.unit_of(node) != ""
    return isinstance(node, exp.Anonymous) and str(node.this).upper() == "LENGTH" and len(node.expressions) == 1
