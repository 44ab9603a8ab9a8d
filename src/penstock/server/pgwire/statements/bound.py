"""The values of `$1`, `$2` of a statement, as literals in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from penstock.language.statements.values import WrittenValue
from penstock.server.pgwire.protocol.errors import WireError
from penstock.server.pgwire.statements.parameters import Value, literal
from penstock.server.pgwire.values.wire_types import WireType

#: Values of `$1`, `$2`, with their types.
Values = Sequence[tuple[Value, WireType]]
#: Types whose literal needs none.
_UNTYPED = frozenset({"text", "varchar", "bpchar", "char", "name", "unknown", "bytea"})


def cql_values(values: Values) -> list[WrittenValue]:
    """Return the literals of `$1`, `$2` in the language."""
    return [literal(*value) for value in values]


def plain_values(values: Values) -> Callable[[int], str]:
    """Return what returns the literal of `$n` in PostgreSQL's words, given n."""

    def value_of(number: int) -> str:
        value, type_ = _of(values, number)
        if value is None:
            return null_of(type_)
        if isinstance(value, list):
            content = json.dumps([one if isinstance(one, int | float | str) else str(one) for one in value])
            return f"{_quoted(content)}::{type_.name}"
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        text = _quoted("\\x" + value.hex() if isinstance(value, bytes) else str(value))
        # A text is one of any type, as where the client declares none.
        return text if type_.name in _UNTYPED else f"{text}::{type_.name}"

    return value_of


def null_of(type_: WireType) -> str:
    """Return NULL as a value of a type."""
    return "NULL" if type_.name in _UNTYPED else f"NULL::{type_.name}"


def _of(values: Values, number: int) -> tuple[Value, WireType]:
    if not 0 < number <= len(values):
        raise WireError("42P02", f"there is no value for ${number}", code="P0203")
    return values[number - 1]


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
