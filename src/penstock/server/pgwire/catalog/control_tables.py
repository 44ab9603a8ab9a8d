"""Control relations beside the catalogs: their columns as PostgreSQL has them, and their rows as SQLite has them.

What a statement reads of them is read once, by a SELECT of the language, before the statement is carried out.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Mapping
from functools import cache

import pyarrow as pa
from sqlglot import exp

from penstock.control.entities.relations import CONTROL_RELATIONS
from penstock.language.queries import CONTROL_SCHEMA
from penstock.server.pgwire.catalog.moments import moment_text
from penstock.server.pgwire.catalog.numeric_casts import NOT_A_NUMBER
from penstock.server.pgwire.values.wire_types import WireType, wire_type_of

#: By name, which columns of a control relation a statement reads.
ControlReads = Mapping[str, tuple[str, ...]]


@cache
def control_columns() -> dict[str, dict[str, WireType]]:
    """Return the columns of every control relation, by its name without the schema."""
    return {
        one.name: {attribute.name: wire_type_of(attribute.type) for attribute in one.attributes}
        for one in CONTROL_RELATIONS
    }


def is_control_table(schema: str, name: str) -> bool:
    """Return whether a table is a control relation."""
    return schema == CONTROL_SCHEMA and name in control_columns()


def control_reads(tree: exp.Expr) -> ControlReads:
    """Return the columns of control relations that a query may read: those with a name that stands in it, or all."""
    named = {(str(one.db).lower(), str(one.name).lower()) for one in tree.find_all(exp.Table)}
    tables = {name for schema, name in named if is_control_table(schema, name)}
    if not tables:
        return {}
    names = {str(one.name).lower() for one in tree.find_all(exp.Identifier)}
    is_natural = any(str(one.args.get("method") or "").upper() == "NATURAL" for one in tree.find_all(exp.Join))
    reads_all = is_natural or tree.find(exp.Star) is not None or any(_renames(one) for one in tree.find_all(exp.Table))
    found = {}
    for table in sorted(tables):
        columns = tuple(control_columns()[table])
        found[table] = columns if reads_all else tuple(one for one in columns if one in names) or columns[:1]
    return found


def _renames(table: exp.Table) -> bool:
    alias = table.args.get("alias")
    return alias is not None and bool(alias.args.get("columns"))


def control_query(table: str, columns: Iterable[str]) -> str:
    """Return the SELECT of the language that reads columns of a control relation."""
    return f"SELECT {', '.join(f'`{one}`' for one in columns)} FROM {CONTROL_SCHEMA}.{table}"


def fill(connection: sqlite3.Connection, rows: Mapping[str, pa.Table]) -> None:
    """Put the rows of control relations into their tables, in place of those of the statement before; a column that was
    not read is NULL."""
    for name in rows:
        declared = ", ".join(f'"{column}"' for column in control_columns()[name])
        connection.execute(f"DROP TABLE IF EXISTS {CONTROL_SCHEMA}.[{name}]")
        connection.execute(f"CREATE TABLE {CONTROL_SCHEMA}.[{name}] ({declared})")
    for name, table in rows.items():
        columns = ", ".join(f'"{one}"' for one in table.column_names)
        marks = ", ".join("?" for _ in table.column_names)
        values = [[_value(one) for one in column.to_pylist()] for column in table.columns]
        text = f"INSERT INTO {CONTROL_SCHEMA}.[{name}] ({columns}) VALUES ({marks})"
        connection.executemany(text, zip(*values, strict=True))


def _value(value: object) -> object:
    if isinstance(value, float):
        return NOT_A_NUMBER if math.isnan(value) else value
    if value is None or isinstance(value, str | int):
        return value
    return moment_text(value)  # type: ignore[arg-type]
