"""Control relations beside the catalogs: their columns as PostgreSQL has them, and their rows as DuckDB takes them.

What a statement reads of them is read once, by a SELECT of the language, before the statement is carried out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import pyarrow as pa
from sqlglot import exp

from penstock.control.entities.relations import CONTROL_RELATIONS
from penstock.language.queries import CONTROL_SCHEMA
from penstock.pgwire.values.arrow_types import wire_type_of
from penstock.pgwire.values.wire_types import WireType

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


def control_rows(table: pa.Table) -> dict[str, list[object]]:
    """Return the rows of a control relation by column, as DuckDB takes them."""
    return {name: table.column(name).to_pylist() for name in table.column_names}
