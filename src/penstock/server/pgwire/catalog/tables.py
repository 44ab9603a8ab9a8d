"""The tables of `pg_catalog` and `information_schema`, filled with what is declared.

All tables and columns of PostgreSQL 15 are there (`relations.txt`); those for which this server has nothing are empty.
They are built once for a state of the declarations, as databases of SQLite in memory, and each connection gets a copy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from penstock.server.pgwire.catalog.declared import (
    DATABASE,
    DATABASE_OID,
    OWNER_OID,
    PUBLIC,
    SCHEMA_OIDS,
    DeclaredRelation,
    Oids,
    shown_type,
)
from penstock.server.pgwire.values.wire_types import WireType, all_types, type_named, wire_type

SCHEMAS = ("pg_catalog", "information_schema")
_FILE = Path(__file__).with_name("relations.txt")
_WHOLE = frozenset({"int2", "int4", "int8", "oid", "xid", "bool"})
_REALS = frozenset({"float4", "float8", "numeric"})
_HEAP, _BTREE = 2, 403


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


@dataclass(frozen=True)
class CatalogImage:
    """The tables as SQLite's bytes, by schema, and what functions look up.

    Args:
        relations: what is declared, by oid.
        schemas: their names by oid.
        keyed: by the oid of a primary key's constraint, or of its index, the relation.
    """

    databases: Mapping[str, bytes]
    relations: Mapping[int, DeclaredRelation]
    schemas: Mapping[int, str]
    keyed: Mapping[int, DeclaredRelation]

    def named(self, name: str, schema: str | None = None) -> DeclaredRelation | None:
        """Return a declared relation by its name, in any case of letters. schema: `public` where none is given."""
        lower = name.lower()
        for one in self.relations.values():
            if one.name.lower() == lower and one.schema == (schema or PUBLIC):
                return one
        return None


def catalog_image(relations: Sequence[DeclaredRelation], oids: Oids) -> CatalogImage:
    """Return the tables of a state of the declarations."""
    schemas = dict(SCHEMA_OIDS)
    for one in relations:
        if one.schema not in schemas:
            schemas[one.schema] = oids.of("schema", one.schema)
    filler = _Filler(relations, schemas, oids)
    filler.fill()
    by_oid = {one.oid: one for one in relations}
    keyed = {oids.of(kind, str(one.oid)): one for one in relations if one.key for kind in ("constraint", "index")}
    return CatalogImage(filler.serialized(), by_oid, {oid: name for name, oid in schemas.items()}, keyed)


class _Filler:
    def __init__(self, relations: Sequence[DeclaredRelation], schemas: Mapping[str, int], oids: Oids) -> None:
        self._relations, self._schemas, self._oids = relations, schemas, oids
        self._databases: dict[str, sqlite3.Connection] = {}
        for schema in SCHEMAS:
            database = self._databases[schema] = sqlite3.connect(":memory:", isolation_level=None)
            # There are many small tables, and every connection has a copy.
            database.execute("PRAGMA page_size=512")
            database.execute("PRAGMA journal_mode=OFF")
            database.execute("BEGIN")
            for (owner, table), columns in system_columns().items():
                if owner == schema:
                    declared = ", ".join(f'"{name}" {_affinity(type_)}' for name, type_ in columns.items())
                    database.execute(f'CREATE TABLE "{table}" ({declared})')

    def serialized(self) -> dict[str, bytes]:
        """Return all of it, and close it."""
        found: dict[str, bytes] = {}
        for schema, database in self._databases.items():
            database.execute("COMMIT")
            found[schema] = database.serialize()
            database.close()
        return found

    def _add(self, table: str, rows: Iterable[Mapping[str, Any]], schema: str = "pg_catalog") -> None:
        rows = list(rows)
        if not rows:
            return
        names = list(rows[0])
        marks = ", ".join("?" for _ in names)
        text = f'INSERT INTO "{table}" ({", ".join(names)}) VALUES ({marks})'
        self._databases[schema].executemany(text, [[row[name] for name in names] for row in rows])

    def fill(self) -> None:
        self._fixed()
        self._classes()
        self._columns()
        self._keys()
        self._listed()
        self._standard()

    # -- what is the same at every server ----------------------------------------------------------------------

    def _fixed(self) -> None:
        self._add(
            "pg_database",
            [
                {
                    "oid": DATABASE_OID,
                    "datname": DATABASE,
                    "datdba": OWNER_OID,
                    "encoding": 6,
                    "datlocprovider": "c",
                    "datistemplate": 0,
                    "datallowconn": 1,
                    "datconnlimit": -1,
                    "datfrozenxid": 0,
                    "datminmxid": 1,
                    "dattablespace": 1663,
                    "datcollate": "C",
                    "datctype": "C",
                    "datacl": None,
                }
            ],
        )
        self._add(
            "pg_namespace",
            [
                {"oid": oid, "nspname": name, "nspowner": OWNER_OID, "nspacl": None}
                for name, oid in self._schemas.items()
            ],
        )
        self._add(
            "pg_am",
            [
                {"oid": _HEAP, "amname": "heap", "amhandler": "heap_tableam_handler", "amtype": "t"},
                {"oid": _BTREE, "amname": "btree", "amhandler": "bthandler", "amtype": "i"},
            ],
        )
        self._add("pg_tablespace", [{"oid": 1663, "spcname": "pg_default", "spcowner": OWNER_OID}])
        self._add(
            "pg_collation",
            [
                {
                    "oid": 100,
                    "collname": "default",
                    "collnamespace": 11,
                    "collowner": OWNER_OID,
                    "collprovider": "d",
                    "collisdeterministic": 1,
                    "collencoding": -1,
                }
            ],
        )
        self._add(
            "pg_language", [{"oid": 14, "lanname": "sql", "lanowner": OWNER_OID, "lanispl": 0, "lanpltrusted": 1}]
        )
        self._add("pg_type", [_type_row(one) for one in all_types()])

    def _listed(self) -> None:
        """Fill what lists relations in other words."""
        by_kind: dict[str, list[DeclaredRelation]] = {}
        for one in self._relations:
            by_kind.setdefault(one.kind, []).append(one)
        self._add(
            "pg_tables",
            [
                {
                    "schemaname": one.schema,
                    "tablename": one.name,
                    "tableowner": "penstock",
                    "hasindexes": int(bool(one.key)),
                    "hasrules": 0,
                    "hastriggers": 0,
                    "rowsecurity": 0,
                }
                for one in by_kind.get("r", ())
            ],
        )
        self._add(
            "pg_views",
            [
                {"schemaname": one.schema, "viewname": one.name, "viewowner": "penstock", "definition": one.definition}
                for one in by_kind.get("v", ())
            ],
        )
        self._add(
            "pg_matviews",
            [
                {
                    "schemaname": one.schema,
                    "matviewname": one.name,
                    "matviewowner": "penstock",
                    "hasindexes": 0,
                    "ispopulated": 1,
                    "definition": one.definition,
                }
                for one in by_kind.get("m", ())
            ],
        )
        servers = sorted({one.connector for one in by_kind.get("f", ())})
        self._add(
            "pg_foreign_data_wrapper",
            [
                {
                    "oid": self._oids.of("wrapper"),
                    "fdwname": "penstock",
                    "fdwowner": OWNER_OID,
                    "fdwhandler": 0,
                    "fdwvalidator": 0,
                }
            ],
        )
        self._add(
            "pg_foreign_server",
            [
                {
                    "oid": self._oids.of("server", name),
                    "srvname": name.lower(),
                    "srvowner": OWNER_OID,
                    "srvfdw": self._oids.of("wrapper"),
                }
                for name in servers
            ],
        )
        self._add(
            "pg_foreign_table",
            [{"ftrelid": one.oid, "ftserver": self._oids.of("server", one.connector)} for one in by_kind.get("f", ())],
        )
        self._add(
            "pg_description",
            [
                {"objoid": one.oid, "classoid": 1259, "objsubid": 0, "description": one.comment}
                for one in self._relations
                if one.comment
            ],
        )

    # -- relations and columns ---------------------------------------------------------------------------------

    def _classes(self) -> None:
        rows = [
            self._class_row(
                system_oids()[schema, table],
                table,
                SCHEMA_OIDS[schema],
                "v" if schema == "information_schema" else "r",
                len(columns),
            )
            for (schema, table), columns in system_columns().items()
        ]
        for one in self._relations:
            row = self._class_row(one.oid, one.name, self._schemas[one.schema], one.kind, len(one.columns))
            rows.append(row | {"relhasindex": int(bool(one.key)), "relhasrules": int(one.kind in "vm")})
            if one.key:
                index = self._class_row(
                    self._oids.of("index", str(one.oid)),
                    f"{one.name}_pkey",
                    self._schemas[one.schema],
                    "i",
                    len(one.key),
                )
                rows.append(index | {"relam": _BTREE})
        self._add("pg_class", rows)

    def _class_row(self, oid: int, name: str, schema: int, kind: str, columns: int) -> dict[str, Any]:
        return {
            "oid": oid,
            "relname": name,
            "relnamespace": schema,
            "reltype": 0,
            "reloftype": 0,
            "relowner": OWNER_OID,
            "relam": _HEAP if kind in "rm" else 0,
            "relfilenode": 0,
            "reltablespace": 0,
            "relpages": 0,
            "reltuples": -1.0,
            "relallvisible": 0,
            "reltoastrelid": 0,
            "relhasindex": 0,
            "relisshared": 0,
            "relpersistence": "p",
            "relkind": kind,
            "relnatts": columns,
            "relchecks": 0,
            "relhasrules": 0,
            "relhastriggers": 0,
            "relhassubclass": 0,
            "relrowsecurity": 0,
            "relforcerowsecurity": 0,
            "relispopulated": 1,
            "relreplident": "n",
            "relispartition": 0,
            "relrewrite": 0,
            "relfrozenxid": 0,
            "relminmxid": 0,
        }

    def _columns(self) -> None:
        rows = []
        for key, columns in system_columns().items():
            oid = system_oids()[key]
            rows += [_attribute(oid, n, name, type_) for n, (name, type_) in enumerate(columns.items(), 1)]
        for one in self._relations:
            rows += [
                _attribute(one.oid, number, column.name, column.type, column.modifier, column.is_key)
                for number, column in enumerate(one.columns, 1)
            ]
            index = self._oids.of("index", str(one.oid)) if one.key else 0
            rows += [
                _attribute(index, n, one.columns[number - 1].name, one.columns[number - 1].type)
                for n, number in enumerate(one.key, 1)
            ]
        self._add("pg_attribute", rows)

    def _keys(self) -> None:
        keyed = [one for one in self._relations if one.key]
        self._add(
            "pg_index",
            [
                {
                    "indexrelid": self._oids.of("index", str(one.oid)),
                    "indrelid": one.oid,
                    "indnatts": len(one.key),
                    "indnkeyatts": len(one.key),
                    "indisunique": 1,
                    "indnullsnotdistinct": 0,
                    "indisprimary": 1,
                    "indisexclusion": 0,
                    "indimmediate": 1,
                    "indisclustered": 0,
                    "indisvalid": 1,
                    "indcheckxmin": 0,
                    "indisready": 1,
                    "indislive": 1,
                    "indisreplident": 0,
                    "indkey": _array(one.key),
                    "indcollation": _array([0] * len(one.key)),
                    "indclass": _array([0] * len(one.key)),
                    "indoption": _array([0] * len(one.key)),
                }
                for one in keyed
            ],
        )
        self._add(
            "pg_constraint",
            [
                {
                    "oid": self._oids.of("constraint", str(one.oid)),
                    "conname": f"{one.name}_pkey",
                    "connamespace": self._schemas[one.schema],
                    "contype": "p",
                    "condeferrable": 0,
                    "condeferred": 0,
                    "convalidated": 1,
                    "conrelid": one.oid,
                    "contypid": 0,
                    "conindid": self._oids.of("index", str(one.oid)),
                    "conparentid": 0,
                    "confrelid": 0,
                    "conislocal": 1,
                    "coninhcount": 0,
                    "connoinherit": 1,
                    "conkey": _array(one.key),
                }
                for one in keyed
            ],
        )

    # -- information_schema ------------------------------------------------------------------------------------

    def _standard(self) -> None:
        def add(table: str, rows: Iterable[Mapping[str, Any]]) -> None:
            self._add(table, rows, "information_schema")

        add("information_schema_catalog_name", [{"catalog_name": DATABASE}])
        add(
            "schemata",
            [{"catalog_name": DATABASE, "schema_name": name, "schema_owner": "penstock"} for name in self._schemas],
        )
        words = {"r": "BASE TABLE", "f": "FOREIGN", "v": "VIEW", "m": "VIEW"}
        add(
            "tables",
            [
                {
                    "table_catalog": DATABASE,
                    "table_schema": one.schema,
                    "table_name": one.name,
                    "table_type": words[one.kind],
                    "is_insertable_into": "YES" if one.kind in "rf" and one.schema == PUBLIC else "NO",
                    "is_typed": "NO",
                }
                for one in self._relations
            ],
        )
        add(
            "views",
            [
                {
                    "table_catalog": DATABASE,
                    "table_schema": one.schema,
                    "table_name": one.name,
                    "view_definition": one.definition,
                    "check_option": "NONE",
                    "is_updatable": "NO",
                    "is_insertable_into": "NO",
                }
                for one in self._relations
                if one.kind in "vm"
            ],
        )
        add("columns", [_standard_column(one, number) for one in self._relations for number in range(len(one.columns))])
        keyed = [one for one in self._relations if one.key]
        add(
            "table_constraints",
            [
                {
                    "constraint_catalog": DATABASE,
                    "constraint_schema": one.schema,
                    "constraint_name": f"{one.name}_pkey",
                    "table_catalog": DATABASE,
                    "table_schema": one.schema,
                    "table_name": one.name,
                    "constraint_type": "PRIMARY KEY",
                    "is_deferrable": "NO",
                    "initially_deferred": "NO",
                    "enforced": "YES",
                }
                for one in keyed
            ],
        )
        add(
            "key_column_usage",
            [
                {
                    "constraint_catalog": DATABASE,
                    "constraint_schema": one.schema,
                    "constraint_name": f"{one.name}_pkey",
                    "table_catalog": DATABASE,
                    "table_schema": one.schema,
                    "table_name": one.name,
                    "column_name": one.columns[number - 1].name,
                    "ordinal_position": position,
                }
                for one in keyed
                for position, number in enumerate(one.key, 1)
            ],
        )


def _affinity(type_: WireType) -> str:
    return "INTEGER" if type_.name in _WHOLE else "REAL" if type_.name in _REALS else "TEXT"


def _array(values: Iterable[int]) -> str:
    return "[" + ",".join(map(str, values)) + "]"


#: Types whose functions have an underscore in their names, and those that take a length or precision.
_UNDERSCORED = frozenset({"json", "jsonb", "pg_node_tree", "date", "time", "timestamp", "timestamptz", "interval",
                          "numeric", "record", "anyarray", "void", "uuid"})  # fmt: skip
_MODIFIED = frozenset({"bpchar", "varchar", "time", "timestamp", "timestamptz", "interval", "numeric"})


def _type_row(one: WireType) -> dict[str, Any]:
    row = one.row
    is_array = one.name.startswith("_")
    prefix = "array_" if is_array else f"{one.name}_" if one.name in _UNDERSCORED else one.name
    in_binary = one.name != "aclitem"
    modified = one.name.removeprefix("_")
    collation = {"name": 950, "pg_node_tree": 100}.get(
        modified, 100 if modified in ("text", "bpchar", "varchar") else 0
    )
    subscripts = {"name": "raw_array_subscript_handler", "jsonb": "jsonb_subscript_handler"}
    return {
        "oid": one.oid,
        "typname": one.name,
        "typnamespace": 11,
        "typowner": OWNER_OID,
        "typlen": one.size,
        "typbyval": int(row[3]),
        "typtype": row[4],
        "typcategory": row[5],
        "typispreferred": int(row[6]),
        "typisdefined": 1,
        "typdelim": row[7],
        "typrelid": 0,
        "typsubscript": "array_subscript_handler" if one.element else subscripts.get(one.name, "-"),
        "typelem": int(row[8]),
        "typarray": one.array,
        "typinput": f"{prefix}in",
        "typoutput": f"{prefix}out",
        "typreceive": f"{prefix}recv" if in_binary else "-",
        "typsend": f"{prefix}send" if in_binary else "-",
        "typmodin": f"{modified}typmodin" if modified in _MODIFIED else "-",
        "typmodout": f"{modified}typmodout" if modified in _MODIFIED else "-",
        "typanalyze": "array_typanalyze" if is_array else "-",
        "typalign": row[10],
        "typstorage": row[11],
        "typnotnull": 0,
        "typbasetype": 0,
        "typtypmod": -1,
        "typndims": 0,
        "typcollation": collation,
    }


def _attribute(
    relation: int, number: int, name: str, type_: WireType, modifier: int = -1, is_key: bool = False
) -> dict[str, Any]:
    return {
        "attrelid": relation,
        "attname": name,
        "atttypid": type_.oid,
        "attstattarget": -1,
        "attlen": type_.size,
        "attnum": number,
        "attndims": int(bool(type_.element)),
        "attcacheoff": -1,
        "atttypmod": modifier,
        "attbyval": int(type_.row[3]),
        "attalign": type_.row[10],
        "attstorage": type_.row[11],
        "attcompression": "",
        "attnotnull": int(is_key),
        "atthasdef": 0,
        "atthasmissing": 0,
        "attidentity": "",
        "attgenerated": "",
        "attisdropped": 0,
        "attislocal": 1,
        "attinhcount": 0,
        "attcollation": 100 if type_.row[5] == "S" else 0,
    }


def _standard_column(one: DeclaredRelation, index: int) -> dict[str, Any]:
    column = one.columns[index]
    bits = {"int2": 16, "int4": 32, "int8": 64, "float4": 24, "float8": 53}.get(column.type.name)
    is_decimal = column.type.name == "numeric" and column.modifier >= 4
    scale = column.modifier - 4 & 0xFFFF if is_decimal else 0 if bits and column.type.name.startswith("int") else None
    return {
        "table_catalog": DATABASE,
        "table_schema": one.schema,
        "table_name": one.name,
        "column_name": column.name,
        "ordinal_position": index + 1,
        "is_nullable": "NO" if column.is_key else "YES",
        "data_type": "ARRAY" if column.type.element else shown_type(column.type),
        "numeric_precision": column.modifier - 4 >> 16 if is_decimal else bits,
        "numeric_precision_radix": 10 if is_decimal else 2 if bits else None,
        "numeric_scale": scale,
        "datetime_precision": 6 if column.type.name.startswith(("timestamp", "interval")) else None,
        "udt_catalog": DATABASE,
        "udt_schema": "pg_catalog",
        "udt_name": column.type.name,
        "dtd_identifier": str(index + 1),
        "is_self_referencing": "NO",
        "is_identity": "NO",
        "is_generated": "NEVER",
        "is_updatable": "YES" if one.kind == "r" else "NO",
    }
