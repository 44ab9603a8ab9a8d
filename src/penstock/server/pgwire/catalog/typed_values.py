"""Texts for SQLite of values with types: of one type, as a number, as PostgreSQL writes them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.server.pgwire.catalog.moments import MOMENT_TYPES
from penstock.server.pgwire.catalog.numeric_casts import INTEGERS, REALS, keeps_values
from penstock.server.pgwire.catalog.scopes import SqlColumn
from penstock.server.pgwire.protocol.errors import WireError, unsupported
from penstock.server.pgwire.values.wire_types import WireType, type_of_oid, wire_type

BOOL, TEXT, INT, BIGINT = wire_type("bool"), wire_type("text"), wire_type("int4"), wire_type("int8")
#: Types that stand for an oid, and what they are of.
REGISTERS = frozenset({"regclass", "regtype", "regnamespace"})
#: Types of numbers: several values are of the last type that one of them has.
_RANKS = ("int2", "int4", "int8", "numeric", "float4", "float8")
_FLOATING = frozenset({"float4", "float8"})
#: Functions that change a number alone.
ROUNDING = frozenset({"abs", "round", "ceil", "ceiling", "floor", "trunc"})


def alike(left: SqlColumn, right: SqlColumn) -> tuple[SqlColumn, SqlColumn]:
    """Return two values of which a text without a type has become a value of the other's type."""
    if left.type is not None and right.type is not None and {left.type.name, right.type.name} & _FLOATING:
        # Whole numbers are compared as floating point numbers then.
        double = wire_type("float8")
        return _common(left, double), _common(right, double)
    return as_type(left, right.type), as_type(right, left.type)


def of_one_type(given: Sequence[SqlColumn]) -> tuple[list[SqlColumn], WireType | None]:
    """Return values as those of one type, and the type: None where all are texts without one."""
    type_: WireType | None = None
    for one in given:
        if type_ is None or (one.type is not None and is_number(type_) and is_number(one.type)):
            ranks = {name: rank for rank, name in enumerate(_RANKS)}
            type_ = one.type if type_ is None else max(type_, one.type, key=lambda each: ranks.get(each.name, -1))
    return [as_type(one, type_) if type_ is None else _common(one, type_) for one in given], type_


def _common(one: SqlColumn, type_: WireType) -> SqlColumn:
    """Return a value as one of the type that it has in common with others."""
    if one.type is not None and one.type.name != type_.name and is_number(one.type) and is_number(type_):
        return as_number_of(one, type_)
    return as_type(one, type_)


def as_type(one: SqlColumn, type_: WireType | None) -> SqlColumn:
    """Return a text without a type as a value of a type; another value as it is."""
    if one.type is not None or type_ is None or one.text == "NULL":
        return one
    if type_.name in INTEGERS or type_.name in REALS:
        return as_number_of(one, type_)
    if type_.name in REGISTERS:
        return SqlColumn(f"pg_fn_pg_{type_.name}({one.text})", type_)
    if type_.name == "bool":
        return SqlColumn(f"pg_fn_pg_bool({one.text})", type_)
    if type_.name in MOMENT_TYPES:
        return SqlColumn(f"pg_fn_pg_moment({one.text}, '{type_.name}')", type_)
    return SqlColumn(f"pg_fn_pg_array({one.text})", type_) if type_.element else one


def as_number_of(inner: SqlColumn, target: WireType) -> SqlColumn:
    """Return a value as a number of a type."""
    is_whole = target.name in INTEGERS
    real = inner.type.name if inner.type is not None and inner.type.name in REALS else ""
    if keeps_values(inner.type, target):
        # What is no number is a text for SQLite, which a cast would make 0.
        kept = inner.text if real else f"CAST({inner.text} AS {'INTEGER' if is_whole else 'REAL'})"
        return SqlColumn(kept, target)
    if not is_whole:
        name = "pg_float4" if target.name == "float4" else "pg_real"
        return SqlColumn(f"pg_fn_{name}({inner.text})", target)
    return SqlColumn(f"pg_fn_pg_{target.name}({inner.text}, '{real}')", target)


def shown(one: SqlColumn) -> SqlColumn:
    """Return a value as PostgreSQL writes it as a text."""
    if one.type is not None and one.type.name in REGISTERS:
        return SqlColumn(f"pg_fn_pg_{one.type.name}_name({one.text})", TEXT)
    if one.type is not None and one.type.name in REALS:
        return SqlColumn(f"pg_fn_pg_real_text({one.text}, '{one.type.name}')", TEXT)
    if one.type is not None and one.type.name in ("timestamp", "timestamptz"):
        return SqlColumn(f"pg_fn_pg_moment_text({one.text})", TEXT)
    if one.type is not None and one.type.element:
        element = type_of_oid(one.type.element)
        return SqlColumn(f"pg_fn_pg_array_text({one.text}, '{element.name if element else ''}')", TEXT)
    if one.type is BOOL:
        return SqlColumn(f"CASE {one.text} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END", TEXT)
    return one


def rounded(name: str, inner: Sequence[SqlColumn]) -> SqlColumn:
    """Return what a function gives that rounds, or takes the sign away."""
    if not 1 <= len(inner) <= (2 if name in ("round", "trunc") else 1):
        raise WireError("42883", f"{name} cannot be called with {len(inner)} values", code="P0204")
    one = as_type(inner[0], wire_type("float8"))
    type_ = one.type or wire_type("float8")
    if name == "abs":
        return SqlColumn(f"pg_fn_pg_absolute({one.text}, '{number_type(type_)}')", type_)
    digits = ", " + inner[1].text if len(inner) > 1 else ""
    result = type_ if type_.name in REALS else wire_type("numeric" if digits else "float8")
    text = f"pg_fn_pg_rounded({one.text}, '{number_type(result)}', '{name}'{digits})"
    return SqlColumn(text, result)


def is_vector(type_: WireType | None) -> bool:
    """Return whether the values of a type are arrays that are counted from 0, as those of `pg_index`."""
    return type_ is not None and type_.name in ("int2vector", "oidvector")


def is_number(type_: WireType) -> bool:
    """Return whether the values of a type are numbers."""
    return type_.name in INTEGERS or type_.name in REALS


def widest(left: WireType | None, right: WireType | None) -> WireType | None:
    """Return the type of what two numbers give."""
    names = [one.name for one in (left, right) if one is not None]
    if "float4" in names and len({*names}) > 1:
        return wire_type("float8")
    return next((wire_type(n) for n in ("float8", "numeric", "int8", "int4") if n in names), left or right)


def number_type(type_: WireType) -> str:
    """Return the name of a type of numbers. Raises WireError 0A000 for another."""
    if not is_number(type_):
        raise unsupported(f"arithmetic with {type_.shown} is not known over the catalogs")
    return type_.name
