"""The gap of Spark's `session_window` where it is computed of the row, read as a length in a unit of time.

A length is a text such as '5 seconds', an INTERVAL, a number of them (`wait * INTERVAL '1' SECOND`), or a text that is
put together (`CONCAT(wait, ' seconds')`); CASE, IF and COALESCE choose among lengths. All become whole numbers of the
largest unit that divides them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from penstock.language.dialect import span_of
from penstock.language.queries import Duration, Length
from penstock.types import Interval, Unit


@dataclass(frozen=True)
class _Multiple:
    """`value` times `interval`, or the interval alone; at: what is written there."""

    interval: Interval
    at: exp.Expr
    value: exp.Expr | None = None

    @property
    def micros(self) -> int | None:
        """Return the interval in microseconds; None where it is no whole number of them."""
        found = self.interval.amount * self.interval.unit.value
        return found.numerator if found.denominator == 1 else None


def gap_of(written: exp.Expr) -> Duration | Length | None:
    """Return the length that is the value of an expression; None where it is none."""
    constant = _constant(written.unnest())
    if constant is not None:
        return Duration(constant, span_of(written))
    found = list(_multiples(written))
    sizes = [one.micros if one is not None else None for one in found]
    if not found or None in sizes:
        return None
    units = (unit for unit in reversed(Unit) if all(size is not None and size % unit.value == 0 for size in sizes))
    unit = next(units)
    return Length(_in_units(written, unit), unit, span_of(written))


def _constant(node: exp.Expr) -> Interval | None:
    if isinstance(node, exp.Literal) and node.is_string:
        return Interval.parse(node.this)
    unit = node.args.get("unit") if isinstance(node, exp.Interval) else None
    if unit is not None and isinstance(node.this, exp.Literal):
        return Interval.parse(f"{node.this.this} {unit.name}")
    return None


def _multiple(node: exp.Expr) -> _Multiple | None:
    """Return the multiple that a node without a choice stands for."""
    constant = _constant(node)
    if constant is not None:
        return _Multiple(constant, node)
    if isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            constant = _constant(other.unnest()) if isinstance(other.unnest(), exp.Interval) else None
            if constant is not None:
                return _Multiple(constant, node, one)
    parts = [node.this, node.expression] if isinstance(node, exp.DPipe) else _arguments(node, "CONCAT")
    if len(parts) == 2 and isinstance(parts[1], exp.Literal) and parts[1].is_string:
        unit = Unit.parse(str(parts[1].this).strip())
        if unit is not None:
            return _Multiple(Interval(Fraction(1), unit), node, parts[0])
    return None


def _arguments(node: exp.Expr, name: str) -> list[exp.Expr]:
    return list(node.expressions) if isinstance(node, exp.Anonymous) and str(node.this).upper() == name else []


def _multiples(node: exp.Expr) -> Iterator[_Multiple | None]:
    """Return the lengths among which an expression chooses; None for what is none."""
    node = node.unnest()
    if isinstance(node, exp.Null):
        return
    branches = _branches(node)
    if not branches:
        yield _multiple(node)
    for branch in branches:
        yield from _multiples(branch)


def _branches(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        return [choice.args["true"] for choice in node.args["ifs"]] + ([] if default is None else [default])
    chosen = _arguments(node, "IF")
    return chosen[1:] if chosen else _arguments(node, "COALESCE")


def _in_units(node: exp.Expr, unit: Unit) -> exp.Expr:
    """Return a copy of an expression with whole numbers of `unit` in place of its lengths."""
    whole = node.copy()
    _replace(whole, lambda one: _number(one, unit))
    # What stands alone is replaced by itself.
    alone = _multiple(whole.unnest())
    return whole if alone is None else _number(alone, unit)


def _replace(node: exp.Expr, read: Callable[[_Multiple], exp.Expr]) -> None:
    for branch in _branches(node.unnest()):
        found = _multiple(branch.unnest())
        if found is not None:
            branch.replace(read(found))
        else:
            _replace(branch, read)


def _number(one: _Multiple, unit: Unit) -> exp.Expr:
    assert one.micros is not None
    count: exp.Expr = exp.Literal.number(one.micros // unit.value)
    count.meta["span"] = span_of(one.at)
    if one.value is None:
        return count
    if one.micros == unit.value:
        return one.value
    product = exp.Mul(this=one.value.copy(), expression=count)
    product.meta["span"] = span_of(one.at)
    return product
