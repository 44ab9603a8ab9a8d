"""The values of `$1`, `$2` of a statement, as literals in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from sqlglot import exp

from penstock.language.statements.values import WrittenValue, replace_nodes
from penstock.pgwire.catalog.engine import parsed
from penstock.pgwire.protocol.errors import WireError
from penstock.pgwire.statements.parameters import Value, literal
from penstock.pgwire.values.texts import array_text
from penstock.pgwire.values.wire_types import WireType

#: Values of `$1`, `$2`, with their types.
Values = Sequence[tuple[Value, WireType]]
#: Types whose literal needs none.
_UNTYPED = frozenset({"text", "varchar", "bpchar", "char", "name", "unknown", "bytea"})


def cql_values(values: Values) -> list[WrittenValue]:
    """Return the literals of `$1`, `$2` in the language."""
    return [literal(*value) for value in values]


def plain_values(values: Values) -> Callable[[int], exp.Expr]:
    """Return what returns the literal of `$n` in PostgreSQL's grammar, given n."""

    def value_of(number: int) -> exp.Expr:
        value, type_ = _of(values, number)
        if value is None:
            return null_of(type_)
        if isinstance(value, list):
            return _cast(exp.Literal.string(array_text(value, _element)), type_.name)
        if isinstance(value, bool):
            return exp.Boolean(this=value)
        text = exp.Literal.string("\\x" + value.hex() if isinstance(value, bytes) else str(value))
        # A text is one of any type, as where the client declares none.
        return text if type_.name in _UNTYPED else _cast(text, type_.name)

    return value_of


def null_of(type_: WireType) -> exp.Expr:
    """Return NULL as a value of a type."""
    return exp.Null() if type_.name in _UNTYPED else _cast(exp.Null(), type_.name)


def with_plain_values(tree: exp.Expr, value_of: Callable[[int], exp.Expr]) -> exp.Expr:
    """Return the tree of a query with the literals of `$n`, which `value_of` returns."""
    whole = tree.copy()
    replace_nodes([(one, value_of(int(one.name))) for one in whole.find_all(exp.Parameter)])
    return whole


def _cast(value: exp.Expr, type_: str) -> exp.Expr:
    made = _cast_to(type_).copy()
    made.set("this", value)
    return made


@cache
def _cast_to(type_: str) -> exp.Expr:
    tree = parsed(f"SELECT NULL::{type_}")
    assert tree is not None, "it is a type of PostgreSQL"
    found: exp.Expr = tree.expressions[0]
    return found


def _element(value: Value) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    return "\\x" + value.hex() if isinstance(value, bytes) else str(value)


def _of(values: Values, number: int) -> tuple[Value, WireType]:
    if not 0 < number <= len(values):
        raise WireError("42P02", f"there is no value for ${number}", code="P0203")
    return values[number - 1]
