"""INTERVAL: lengths of time as values, and months, which move a date or a time.

A length in weeks and smaller units is a value. Months have no fixed length: they are allowed after + and - only, and
move their left operand by the calendar, as ADD_MONTHS does.
"""

from __future__ import annotations

import datetime as dt
import re
from fractions import Fraction

import pyarrow as pa
from sqlglot import exp

from penstock.expressions.nodes import Expression, Literal
from penstock.language.binder.scalars.binder import Binding, ScalarBinder
from penstock.language.dialect import span_of
from penstock.types import Unit, exact

_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_HINT = "write INTERVAL 10 SECOND"
#: '1 day 2 hours', as Spark reads it.
_PART = re.compile(r"\s*([+-]?\s*\d+(?:\.\d+)?)\s+([A-Za-z]+)")


def interval(binder: ScalarBinder, node: exp.Expr) -> Expression:
    """Return a length of time, a value of type DURATION."""
    if _months(node) is not None:
        hint = "months have no fixed length: they follow + or -, as in at + INTERVAL 1 MONTH"
        binder.context.fail("P0203", f"{_unit(node)} is used as a length of time", span_of(node), hint)
    parts = _parts(node)
    if any(unit.upper().removesuffix("S") in _MONTHS for _, unit in parts) and len(parts) > 1:
        hint = "add one after the other, as in at + INTERVAL 1 MONTH + INTERVAL 2 DAYS"
        binder.context.fail("P0102", "months and days in one interval", span_of(node), hint)
    units = [(amount, Unit.parse(unit)) for amount, unit in parts]
    microseconds = Fraction(0)
    for amount, unit in units:
        if unit is None or amount is None:
            binder.context.fail("P0102", "this is not an interval", span_of(node), _HINT)
        microseconds += amount * unit.value
    if abs(microseconds) >= 2**63:
        binder.context.fail("P0102", "this exceeds the range of time", span_of(node), "the maximum is 292,000 years")
    try:
        if microseconds.denominator != 1 or not parts:
            raise ValueError
        length = dt.timedelta(microseconds=int(microseconds))
    except (ValueError, OverflowError):
        binder.context.fail("P0102", "this is not an interval", span_of(node), _HINT)
    return Literal(pa.duration("us"), length)


def moved(name: str) -> Binding:
    """Return the binding of ADD or SUB; for months, that of the function that moves a date or a time by them."""

    def bind(binder: ScalarBinder, node: exp.Expr) -> Expression:
        left, right = node.this, node.expression
        if name == "ADD" and _months(left) is not None:
            left, right = right, left
        months = _months(right)
        if months is None:
            return binder.call(name, node, binder.bind_all([left, right]))
        count = Literal(pa.int32(), months if name == "ADD" else -months)
        return binder.call("PLUS_MONTHS", node, [binder.bind(left), count])

    return bind


def _unit(node: exp.Expr) -> str:
    unit = node.args.get("unit")
    return unit.name.upper() if unit is not None else ""


def _months(node: exp.Expr) -> int | None:
    """Return the months of an interval; None for another node or other units."""
    if not isinstance(node, exp.Interval):
        return None
    parts = _parts(node)
    months = Fraction(0)
    for amount, unit in parts:
        factor = _MONTHS.get(unit.upper().removesuffix("S"))
        if factor is None or amount is None:
            return None
        months += amount * factor
    return int(months) if parts and months.denominator == 1 and abs(months) < 2**31 else None


def _parts(node: exp.Expr) -> list[tuple[Fraction | None, str]]:
    """Return (amount, unit) of an interval; several where its text has several."""
    negative = isinstance(node.this, exp.Neg)
    text = (node.this.this if negative else node.this).name
    if not _unit(node):
        matches = _PART.findall(text)
        whole = "".join(_PART.split(text)[::3]).strip() == ""
        return [(_amount(amount.replace(" ", "")), unit) for amount, unit in matches] if whole else []
    amount = _amount(text)
    return [(-amount if negative and amount is not None else amount, _unit(node))]


def _amount(text: str) -> Fraction | None:
    try:
        return exact(text)
    except ValueError:
        return None
