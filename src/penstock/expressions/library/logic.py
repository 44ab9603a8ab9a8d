"""AND, OR, NOT by Kleene's tables, and the tests for NULL."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.expressions.coercion import BOOLEAN, NULL, cast_to, is_atomic, misfit
from penstock.expressions.library.registry import Function, needs
from penstock.expressions.nodes import Expression
from penstock.expressions.values.datum import Arguments, Datum

Typed = tuple[tuple[Expression, ...], pa.DataType]


def boolean(name: str, arguments: Sequence[Expression]) -> Typed:
    """Return the rule of a function of truth values."""
    if not all(a.type in (BOOLEAN, NULL) for a in arguments):
        several = f"each side of {name} is a condition: a = 1 {name} a = 2" if name in ("AND", "OR") else None
        raise misfit(name, [a.type for a in arguments], several and several + ", or a IN (1, 2)" * (name == "OR"))
    return tuple(cast_to(a, BOOLEAN) for a in arguments), BOOLEAN


def _any(name: str, arguments: Sequence[Expression]) -> Typed:
    needs(name, arguments, is_atomic)
    return tuple(arguments), BOOLEAN


def _and(arguments: Arguments, type_: pa.DataType) -> Datum:
    return pc.and_kleene(*arguments)


def _or(arguments: Arguments, type_: pa.DataType) -> Datum:
    return pc.or_kleene(*arguments)


def _not(arguments: Arguments, type_: pa.DataType) -> Datum:
    return pc.invert(arguments[0])


def _is_null(arguments: Arguments, type_: pa.DataType) -> Datum:
    return pc.is_null(arguments[0])


def _is_not_null(arguments: Arguments, type_: pa.DataType) -> Datum:
    return pc.is_valid(arguments[0])


FUNCTIONS = (
    Function("AND", "left, right", boolean, _and, "FALSE wins over NULL", operator="left AND right"),
    Function("OR", "left, right", boolean, _or, "TRUE wins over NULL", operator="left OR right"),
    Function("NOT", "condition", boolean, _not, "NULL stays NULL", operator="NOT condition"),
    Function(
        "IS_NULL", "value", _any, _is_null, "`value IS NULL`", aliases=("ISNULL",), never_null=True, compares=True
    ),
    Function(
        "IS_NOT_NULL",
        "value",
        _any,
        _is_not_null,
        "`value IS NOT NULL`",
        aliases=("ISNOTNULL",),
        never_null=True,
        compares=True,
    ),
)
