"""Typed expressions from a function's name and bound arguments: overloads and implicit casts are resolved here.

Raises PenstockError P0203 (types do not fit) and P0204 (unknown function, wrong number of arguments), without a
position: the binder adds the position of the call.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import PenstockError, nearest
from penstock.expressions.aggregates import build_aggregate, is_aggregate, known_aggregates
from penstock.expressions.coercion import is_integer
from penstock.expressions.library import TABLE
from penstock.expressions.library.registry import Function
from penstock.expressions.nodes import Call, Cast, Expression
from penstock.expressions.values.casts import converter
from penstock.types import type_name

__all__ = ["build_aggregate", "build_call", "build_cast", "function", "is_aggregate", "known_functions", "row_of"]


def function(name: str) -> Function:
    """Return the entry of the table for `name` or one of its aliases.

    Raises:
        PenstockError: P0204, there is none.
    """
    found = TABLE.get(name) or TABLE.get(name.upper())
    if found is None:
        raise PenstockError("P0204", f"unknown function {name}", hint=nearest(name, known_functions()))
    return found


def row_of(name: str) -> Function | None:
    """Return the entry of the table for a canonical name, None for an unknown name."""
    return TABLE.get(name)


def known_functions() -> list[str]:
    """Return the names a query may call, aggregates among them, in alphabetical order."""
    named = {name for name, row in TABLE.items() if not row.operator}
    return sorted(named | set(known_aggregates()))


def build_call(
    name: str, arguments: Sequence[Expression], integer_division: bool = False, written: str | None = None
) -> Expression:
    """Return the call of a scalar function or operator.

    Args:
        integer_division: `/` between integers truncates.
        written: the operator in messages, as the query has it; None for the usual notation.
    """
    row = function(name)
    row.check_count(len(arguments))
    if row.name == "DIV" and integer_division and all(is_integer(a.type) for a in arguments):
        row = function("INT_DIV")
    coerced, type_ = row.rule(written or row.shown, arguments)
    return Call(type_, row.name, coerced)


def build_cast(argument: Expression, type: pa.DataType, try_: bool = False) -> Expression:  # noqa: A002
    """Return CAST(argument AS type), or TRY_CAST, which is NULL also where a CAST would wrap or saturate."""
    if argument.type == type:
        return argument
    if converter(argument.type, type) is None:
        raise PenstockError("P0203", f"{type_name(argument.type)} cannot be cast to {type_name(type)}")
    return Call(type, "TRY_CAST", (argument,)) if try_ else Cast(type, argument)
