"""The types of DuckDB that values of PostgreSQL's types have there. What it has no type for is a text."""

from __future__ import annotations

from penstock.pgwire.values.wire_types import WireType, type_of_oid

#: Types that stand for an oid, and what they are of.
REGISTERS = frozenset({"regclass", "regtype", "regnamespace"})
_DUCK = {
    "bool": "BOOLEAN", "int2": "SMALLINT", "int4": "INTEGER", "float4": "FLOAT", "float8": "DOUBLE", "date": "DATE",
    "timestamp": "TIMESTAMP", "timestamptz": "TIMESTAMPTZ", "interval": "INTERVAL",
    **dict.fromkeys(("int8", "oid", "xid", *REGISTERS), "BIGINT"),
}  # fmt: skip


def duck_type(type_: WireType | None) -> str:
    """Return the type that DuckDB has values of a type in. None: a text without one."""
    if type_ is not None and type_.element:
        return f"{duck_type(type_of_oid(type_.element))}[]"
    return "VARCHAR" if type_ is None else _DUCK.get(type_.name, "VARCHAR")
