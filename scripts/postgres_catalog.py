"""Writes the columns of PostgreSQL's catalogs, and its types, as the PostgreSQL door lists them.

    python scripts/postgres_catalog.py

It asks a PostgreSQL 15 that it starts and ends (`tests/servers/postgres.py`), and writes
`src/penstock/pgwire/catalog/relations.txt` and `types.txt`.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "src" / "penstock" / "server" / "pgwire" / "catalog"

#: Domains stand as the types below them.
RELATIONS = """
SELECT n.nspname, c.relname, string_agg(a.attname || ':' || replace(format_type(
         CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END, NULL), ' ', '_'), ' ' ORDER BY a.attnum)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
     JOIN pg_type t ON t.oid = a.atttypid
WHERE n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v')
  AND c.relname !~ '^(_pg_|pg_toast|pg_statistic$|pg_shadow|pg_authid|pg_user_mapping$)'
GROUP BY 1, 2 ORDER BY 1, 2
"""
_NAMED = (
    "bool bytea char name int8 int2 int4 regproc text oid xid json float4 float8 bpchar varchar date time timestamp"
    " timestamptz interval numeric regclass regtype regnamespace unknown record anyarray pg_node_tree aclitem"
    " int2vector"
    " oidvector uuid jsonb void"
)
TYPES = f"""
SELECT oid, typname, typlen, typbyval, typtype, typcategory, typispreferred, typdelim, typelem, typarray, typalign,
       typstorage, replace(format_type(oid, NULL), ' ', '_')
FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND (
  typname IN ('{"', '".join(_NAMED.split())}') OR typelem IN (SELECT oid FROM pg_type WHERE typname IN (
    '{"', '".join(_NAMED.split())}')) AND typcategory = 'A') ORDER BY oid
"""


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.servers.postgres import server

    database = server()
    lines = [f"{schema}.{name} {columns}" for schema, name, columns in database.execute(RELATIONS)]
    (FOLDER / "relations.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines = [" ".join(_shown(value) for value in row) for row in database.execute(TYPES)]
    (FOLDER / "types.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _shown(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main()
