"""The tables of `pg_catalog` and `information_schema`: all tables and columns of PostgreSQL 15 are there
(`relations.txt`). What they have is in `catalog.sql`; those that are not there are empty."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from penstock.pgwire.values.wire_types import WireType, type_named, wire_type

SCHEMAS = ("pg_catalog", "information_schema")
_FILE = Path(__file__).parents[1] / "relations.txt"


@cache
def system_columns() -> dict[tuple[str, str], dict[str, WireType]]:
    """Return the columns of every table, by schema and name."""
    found: dict[tuple[str, str], dict[str, WireType]] = {}
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        name, *columns = line.split(" ")
        schema, _, table = name.partition(".")
        parts = [column.partition(":") for column in columns]
        types = {column: type_named(type_.replace("_", " ")) or type_named(type_) for column, _, type_ in parts}
        found[schema, table] = {column: type_ or wire_type("text") for column, type_ in types.items()}
    return found


@cache
def system_oids() -> dict[tuple[str, str], int]:
    """Return the oid of every table of the catalogs."""
    known = {
        "pg_class": 1259,
        "pg_type": 1247,
        "pg_attribute": 1249,
        "pg_proc": 1255,
        "pg_namespace": 2615,
        "pg_constraint": 2606,
        "pg_database": 1262,
        "pg_roles": 12_000,
        "pg_description": 2609,
    }
    names = sorted(system_columns())
    return {key: known.get(key[1], 13_100 + index) for index, key in enumerate(names)}
