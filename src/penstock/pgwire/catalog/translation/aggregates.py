"""Aggregates of PostgreSQL as texts for DuckDB.

What collects values, or adds them exactly, is a list of them for DuckDB, and a function of the list.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from penstock.pgwire.catalog.translation.functions import AGGREGATES
from penstock.pgwire.catalog.translation.operations import as_json, check_typed, json_value
from penstock.pgwire.catalog.translation.scopes import SqlColumn
from penstock.pgwire.catalog.translation.typed_values import (
    BIGINT,
    FLOATING,
    INTERVAL,
    NUMERIC,
    REAL,
    TEXT,
    cast,
    is_number,
    name_of,
    shown,
)
from penstock.pgwire.protocol.errors import WireError, unsupported
from penstock.pgwire.values.wire_types import type_of_oid, wire_type

_OF_JSON = {"json_agg": "json", "jsonb_agg": "jsonb", "json_object_agg": "json", "jsonb_object_agg": "jsonb"}
#: Those that are no aggregates of DuckDB's.
NAMES = frozenset({"sum", "avg", "array_agg", "string_agg", *_OF_JSON})


def direction_of(node: exp.Expr) -> str:
    """Return what stands behind a key of ORDER BY: NULL is last there, with DESC first, unless the key has it."""
    down = bool(node.args.get("desc"))
    first = node.args.get("nulls_first")
    return f"{' DESC' if down else ''} NULLS {'FIRST' if (down if first is None else first) else 'LAST'}"


def called(name: str, distinct: bool, inner: Sequence[SqlColumn], keys: Sequence[tuple[SqlColumn, str]]) -> SqlColumn:
    """Return an aggregate of its arguments `inner`.

    Args:
        distinct: whether equal ones count once, which are in order then where they are collected.
        keys: those of ORDER BY inside of the parentheses, each with its direction.

    Raises:
        WireError: 42P10, 42883.
    """
    if name in AGGREGATES:
        result, given = AGGREGATES[name]
        if given == "float8" and any(name_of(one) == "numeric" for one in inner):
            raise unsupported(f"{name} of a numeric is not known over the catalogs", "cast it to float8")
        if result == "float8" and any(name_of(one) in ("int2", "int4", "int8") for one in inner):
            raise unsupported(f"{name} of whole numbers is not known over the catalogs", "cast them to float8")
        kept = given and not (given == "int8" and inner[0].type is not None)
        texts = [(cast(one, wire_type(given)) if kept else one).text for one in inner]
        text = f"{ {'every': 'bool_and'}.get(name, name) }({'DISTINCT ' * distinct}{', '.join(texts)})"
        return SqlColumn(text, wire_type(result) if result else inner[0].type)
    return _summed(name, distinct, inner[0]) if name in ("sum", "avg") else _collected(name, distinct, inner, keys)


def _summed(name: str, distinct: bool, one: SqlColumn) -> SqlColumn:
    mark = "DISTINCT " * distinct
    if name_of(one) == "interval":
        around = f"px_interval_total({{}}, '{name}')::INTERVAL"
        return SqlColumn(f"list({mark}{one.text}::VARCHAR)", INTERVAL, around=around)
    if one.type is None or not is_number(one.type):
        state = "42725" if one.type is None else "42883"
        raise WireError(state, f"there is no {name} of these values", "cast them to a type", code="P0204")
    if one.type.name in FLOATING:
        if name == "sum" and one.type.name == "float4":
            return SqlColumn(f"sum({mark}{one.text})", one.type, around="{}::FLOAT")
        return SqlColumn(f"{name}({mark}{one.text})", REAL)
    if name == "sum" and one.type.name in ("int2", "int4"):
        return SqlColumn(f"sum({mark}{one.text})", BIGINT, around="{}::BIGINT")
    return SqlColumn(f"list({mark}{one.text})", NUMERIC, around=f"px_{name}({{}})")


def _collected(
    name: str, distinct: bool, inner: Sequence[SqlColumn], keys: Sequence[tuple[SqlColumn, str]]
) -> SqlColumn:
    if len(inner) != (2 if "object" in name or name == "string_agg" else 1):
        raise WireError("42883", f"{name} has another number of arguments", code="P0204")
    if distinct and name_of(inner[0]) == "json":
        raise WireError("42883", "values of type json cannot be compared", "cast them to text", code="P0204")
    if distinct and not {key.text for key, _ in keys} <= {one.text for one in inner}:
        hint = "order by an argument, or leave DISTINCT out"
        raise WireError("42P10", f"{name}(DISTINCT ..) is ordered by its arguments alone", hint, code="P0205")
    result = TEXT
    if name == "array_agg":
        value, around, result = inner[0].text, "", type_of_oid((inner[0].type or TEXT).array) or TEXT
    elif name == "string_agg":
        value, separator = shown(inner[0]).text, shown(inner[1]).text
        around = f"px_joined({{}}, coalesce({separator}, ''))"
        if not separator.startswith("'") and separator != "NULL":
            value, around = f"{{'v': {value}, 's': {separator}}}", "px_collected({})"
    else:
        result = wire_type(_OF_JSON[name])
        if "object" in name:
            value, around = f"{{'k': {shown(inner[0]).text}, 'v': {as_json(inner[1])}}}", "px_json_object_agg({})"
        else:
            check_typed(name, inner[0])
            value, type_ = json_value(inner[0])
            around = f"px_json_agg({{}}, '{type_}')"
        around = f"px_jsonb({around})" if result.name == "jsonb" else around
    ordering = [f"{key.text}{direction}" for key, direction in keys]
    if distinct:
        # DuckDB orders different values by the value alone.
        ordering = [f"{value}{direction}" for _, direction in keys[:1]] or [value]
    order = f" ORDER BY {', '.join(ordering)}" if ordering else ""
    return SqlColumn(f"list({'DISTINCT ' * distinct}{value}{order})", result, around=around)
