"""Rules on the arguments of aggregates that several of them share. Each raises PenstockError P0203."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.expressions.coercion import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    NULL,
    STRING,
    cast_to,
    is_atomic,
    is_integer,
    is_numeric,
    misfit,
)
from penstock.expressions.nodes import Expression, Literal
from penstock.types import type_name

_PERCENT = 100


def number(name: str, argument: Expression) -> Expression:
    """Return the argument as a number: strings count as doubles, as in arithmetic."""
    if argument.type in (STRING, NULL):
        return cast_to(argument, DOUBLE)
    if not is_numeric(argument.type):
        raise misfit(name, [argument.type], hint="it takes numbers: read a column of numbers, or cast the value")
    return argument


def only_number(name: str, argument: Expression, hint: str) -> Expression:
    """Return the argument as a number: of a text each value that is no number would silently be left out."""
    if not (argument.type == NULL or is_numeric(argument.type)):
        raise misfit(name, [argument.type], hint=hint)
    return cast_to(argument, DOUBLE)


def atomic(name: str, argument: Expression) -> Expression:
    """Return the argument, which has an order: no array or struct."""
    if not is_atomic(argument.type):
        raise misfit(name, [argument.type], hint="it takes values that have an order: read a field or an element")
    return argument


def condition(name: str, argument: Expression) -> Expression:
    """Return the argument as BOOLEAN."""
    if argument.type not in (BOOLEAN, NULL):
        raise PenstockError("P0203", f"{name} needs BOOLEAN, not {type_name(argument.type)}")
    return cast_to(argument, BOOLEAN)


def fraction(name: str, argument: Expression, form: str = "(x, {:g})") -> Literal:
    """Return a constant from 0 to 1. form: of a call, for the hint."""
    value = argument.value if isinstance(argument, Literal) and is_numeric(argument.type) else None
    if value is None or not 0 <= value <= 1:
        # Elsewhere 95 is the 95th percentile.
        example = float(value) / _PERCENT if value is not None and 1 < value <= _PERCENT and value % 1 == 0 else 0.9
        hint = f"write {name}{form.format(example)}"
        raise PenstockError("P0203", f"{name} takes a constant from 0 to 1 there", hint=hint)
    return Literal(DOUBLE, float(value))


def length(name: str, argument: Expression) -> Literal:
    """Return a constant number from 1."""
    value = argument.value if isinstance(argument, Literal) and is_integer(argument.type) else None
    if value is None or value < 1:
        raise PenstockError("P0203", f"{name} takes a constant number from 1 there", hint=f"write {name}(x, 10)")
    return Literal(BIGINT, value)


def text(name: str, argument: Expression) -> Literal:
    """Return a constant text."""
    value = argument.value if isinstance(argument, Literal) and argument.type == STRING else None
    if value is None:
        raise PenstockError("P0203", f"{name} takes a constant text there", hint=f"write {name}(x, ', ')")
    return Literal(STRING, value)


def within(name: str, argument: Expression, least: float, most: float, example: str) -> Literal:
    """Return a constant from `least` to `most`."""
    value = argument.value if isinstance(argument, Literal) and is_numeric(argument.type) else None
    if value is None or not least <= float(value) <= most:
        raise PenstockError(
            "P0203", f"{name} takes a constant from {least:g} to {most:g} there", hint=f"write {example}"
        )
    return Literal(DOUBLE, float(value))


def whole(name: str, argument: Expression, least: int, most: int, example: str) -> Literal:
    """Return a constant integer from `least` to `most`."""
    value = argument.value if isinstance(argument, Literal) and is_integer(argument.type) else None
    if value is None or not least <= value <= most:
        raise PenstockError(
            "P0203", f"{name} takes a constant integer from {least} to {most} there", hint=f"write {example}"
        )
    return Literal(BIGINT, int(value))


def side(name: str, argument: Expression, example: str) -> Literal:
    """Return a constant that is -1, for a lower bound, or 1, for an upper one."""
    value = argument.value if isinstance(argument, Literal) and is_integer(argument.type) else None
    if value not in (-1, 1):
        raise PenstockError("P0203", f"{name} takes -1 or 1 there, for a lower or upper bound", hint=f"write {example}")
    return Literal(BIGINT, value)


def between(name: str, argument: Expression, example: str) -> Literal:
    """Return a constant between 0 and 1, neither of them."""
    value = argument.value if isinstance(argument, Literal) and is_numeric(argument.type) else None
    if value is None or not 0 < value < 1:
        raise PenstockError("P0203", f"{name} takes a constant between 0 and 1 there", hint=f"write {example}")
    return Literal(DOUBLE, float(value))
