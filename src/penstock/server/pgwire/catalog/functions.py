"""The functions of PostgreSQL that statements over the catalogs call.

Each is a function of SQLite's: one of its own, or one in Python. Arrays are JSON texts, booleans 0 and 1, and an oid
stands for what it names: `regclass` and its like are numbers until they are shown.
"""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa

from penstock import __version__
from penstock.errors import PenstockError
from penstock.server.pgwire.catalog.arithmetic import DecimalAverage, DecimalSum, RealAverage, RealSum
from penstock.server.pgwire.catalog.declared import DATABASE, DATABASE_OID, OWNER_OID, PUBLIC, shown_type
from penstock.server.pgwire.catalog.moments import IntervalAverage, IntervalSum, moment_text
from penstock.server.pgwire.catalog.operations import JSON_AGGREGATES, JSON_FUNCTIONS
from penstock.server.pgwire.catalog.pure_functions import (
    COLLECTING,
    PURE,
    SETS,
    CatalogFunction,
    OrderedAggregate,
    RowsAggregate,
    array_text,
    constantly,
    elements,
    parse_ident,
    quote_ident,
    shown,
)
from penstock.server.pgwire.catalog.tables import CatalogImage, system_oids
from penstock.server.pgwire.protocol.errors import WireError
from penstock.server.pgwire.values.decimals import compared
from penstock.server.pgwire.values.intervals import compared_intervals
from penstock.server.pgwire.values.wire_types import type_named, type_of_oid

#: The version of PostgreSQL whose catalogs these are.
SERVER_VERSION, SERVER_VERSION_NUMBER = "15.0", 150_000
VERSION = f"PostgreSQL {SERVER_VERSION} (Penstock {__version__})"
_STARTED = time.time()


class SessionFacts(Protocol):
    """What functions report of the connection: its user, its number, and whether it may change anything."""

    @property
    def user(self) -> str: ...

    @property
    def backend(self) -> int: ...

    @property
    def can_write(self) -> bool: ...

    def setting(self, name: str) -> str | None:
        """Return the value of a setting, None for one that is unknown."""

    def settings(self) -> Mapping[str, str]:
        """Return all settings."""

    def set(self, name: str, value: str) -> str:
        """Set a setting; return its value. Raises WireError."""


def functions(facts: SessionFacts, image: CatalogImage | None, began: Callable[[], str]) -> dict[str, CatalogFunction]:
    """Return all functions by name, for a connection. image: None where no table is read; began: returns when the
    statement began."""
    found = {name: CatalogFunction(result, native=native) for name, (result, native) in _NATIVE.items()}
    found |= {name: CatalogFunction(result, call) for name, (result, call) in PURE.items()}
    found |= {name: CatalogFunction(result, None, fixed=True) for name, result in _AGGREGATES.items()}
    found |= {name: CatalogFunction(result, constantly(value)) for name, (result, value) in _CONSTANT.items()}
    found |= {name: CatalogFunction(result) for name, result in JSON_FUNCTIONS.items()}
    found |= SETS
    found |= {
        name: CatalogFunction(result, call, fixed=False) for name, (result, call) in _of_session(facts, began).items()
    }
    found["pg_show_all_settings"] = CatalogFunction(
        "record",
        lambda: array_text([{"name": name, "setting": value, **_SETTING} for name, value in facts.settings().items()]),
        is_set=True,
        fixed=False,
        fields=_SETTING_FIELDS,
    )
    if image is not None:
        found |= {name: CatalogFunction(result, call) for name, (result, call) in _of_catalog(image, facts).items()}
    return found


def register(
    connection: sqlite3.Connection, found: Mapping[str, CatalogFunction], failures: list[PenstockError]
) -> None:
    """Give a connection its functions, under names of their own: SQLite's keep what they mean. failures: gets the error
    of a function that fails; SQLite reports only that one has."""
    for name, one in found.items():
        if one.call is not None:
            call = _noting(name, one.call, failures)
            connection.create_function(f"pg_fn_{name}", -1, call, deterministic=one.fixed)
    for name, aggregate in {**COLLECTING, "pg_rows": RowsAggregate, "pg_in_order": OrderedAggregate}.items():
        connection.create_aggregate(f"pg_fn_{name}", -1, _noting_aggregate(name, aggregate, failures))
    for name, aggregate in _WINDOWED.items():
        connection.create_window_function(f"pg_fn_{name}", 1, _noting_aggregate(name, aggregate, failures))
    connection.create_collation("pg_numeric", compared)
    connection.create_collation("pg_interval", compared_intervals)


_WINDOWED: dict[str, type[Any]] = {
    "pg_sum": RealSum,
    "pg_avg": RealAverage,
    "pg_decimal_sum": DecimalSum,
    "pg_decimal_avg": DecimalAverage,
    "pg_interval_sum": IntervalSum,
    "pg_interval_avg": IntervalAverage,
}


def _noting(name: str, call: Callable[..., Any], failures: list[PenstockError]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        try:
            return call(*arguments)
        except PenstockError as error:
            failures.append(error)
            raise
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            message = f"{name} cannot be called so: {error}"
            failures.append(WireError("42883", message[:300], code="P0204"))
            raise

    return called


def _noting_aggregate(name: str, aggregate: type[Any], failures: list[PenstockError]) -> type[Any]:
    """Return an aggregate that notes its errors."""

    class Noting(aggregate):
        def step(self, *values: Any) -> None:
            _noting(name, super().step, failures)(*values)

    return Noting


# -- the tables of functions -----------------------------------------------------------------------------------

_NATIVE = {
    "lower": ("text", "lower"),
    "upper": ("text", "upper"),
    "length": ("int4", "length"),
    "char_length": ("int4", "length"),
    "replace": ("text", "replace"),
    "substr": ("text", "substr"),
    "substring": ("text", "substr"),
    "btrim": ("text", "trim"),
    "ltrim": ("text", "ltrim"),
    "rtrim": ("text", "rtrim"),
    "coalesce": ("", "coalesce"),
    "nullif": ("", "nullif"),
    "strpos": ("int4", "instr"),
    "ascii": ("int4", "unicode"),
    "row_number": ("int8", "row_number"),
    "rank": ("int8", "rank"),
    "dense_rank": ("int8", "dense_rank"),
}

#: Aggregates: those in capitals are SQLite's.
_AGGREGATES = {
    "count": "int8",
    "sum": "int8",
    "avg": "float8",
    "min": "",
    "max": "",
    "bool_or": "bool",
    "bool_and": "bool",
    "every": "bool",
    "array_agg": "_text",
    "string_agg": "text",
    **JSON_AGGREGATES,
}
NATIVE_AGGREGATES = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "min": "min",
    "max": "max",
    "bool_or": "max",
    "bool_and": "min",
    "every": "min",
}

#: Functions with a constant result, whatever their arguments: this server has nothing of the kind.
_CONSTANT: dict[str, tuple[str, Any]] = {
    "pg_get_expr": ("text", None), "pg_get_partkeydef": ("text", None), "pg_get_ruledef": ("text", None),
    "pg_get_triggerdef": ("text", None), "pg_get_functiondef": ("text", None), "pg_get_function_result": ("text", None),
    "pg_get_function_arguments": ("text", None), "pg_get_function_identity_arguments": ("text", None),
    "pg_get_function_sqlbody": ("text", None), "pg_advisory_unlock_all": ("text", ""),
    "pg_blocking_pids": ("_int4", "[]"),
    "pg_get_serial_sequence": ("text", None), "pg_get_statisticsobjdef_columns": ("text", None),
    "pg_get_statisticsobjdef": ("text", None), "pg_tablespace_location": ("text", ""),
    "shobj_description": ("text", None), "pg_relation_is_publishable": ("bool", 0), "pg_is_in_recovery": ("bool", 0),
    "pg_is_wal_replay_paused": ("bool", 0),
    "pg_my_temp_schema": ("oid", 0), "pg_is_other_temp_schema": ("bool", 0), "pg_client_encoding": ("name", "UTF8"),
    "getdatabaseencoding": ("name", "UTF8"), "inet_server_addr": ("text", None), "inet_client_addr": ("text", None),
    "inet_server_port": ("int4", None), "pg_stat_get_numscans": ("int8", 0), "pg_stat_get_live_tuples": ("int8", None),
    "pg_relation_size": ("int8", 0), "pg_total_relation_size": ("int8", 0), "pg_table_size": ("int8", 0),
    "pg_indexes_size": ("int8", 0), "pg_database_size": ("int8", 0), "pg_tablespace_size": ("int8", 0),
    "acldefault": ("_text", None), "txid_current": ("int8", 0), "pg_last_wal_receive_lsn": ("text", None),
    "version": ("text", VERSION), "current_database": ("name", DATABASE), "current_catalog": ("name", DATABASE),
    "current_schema": ("name", PUBLIC), "pg_backup_start_time": ("text", None), "pg_conf_load_time": ("text", None),
    "pg_get_replica_identity_index": ("oid", 0), "pg_column_is_updatable": ("bool", 0), "pg_jit_available": ("bool", 0),
    "pg_relation_is_updatable": ("int4", 0),
    "pg_postmaster_start_time": ("timestamptz", moment_text(dt.datetime.fromtimestamp(_STARTED, dt.UTC))),
}  # fmt: skip

#: What all settings have in common.
_SETTING = {"category": "Penstock", "context": "user", "vartype": "string", "source": "session", "pending_restart": 0}
_SETTING_FIELDS = {
    **dict.fromkeys(("name", "setting", "unit", "category", "short_desc", "extra_desc", "context", "vartype", "source",
                     "min_val", "max_val"), "text"),
    "enumvals": "_text", "boot_val": "text", "reset_val": "text", "sourcefile": "text", "sourceline": "int4",
    "pending_restart": "bool",
}  # fmt: skip

_PRIVILEGES = ("has_table_privilege", "has_column_privilege", "has_any_column_privilege", "has_sequence_privilege")


def _of_session(facts: SessionFacts, began: Callable[[], str]) -> dict[str, tuple[str, Callable[..., Any]]]:
    def setting(name: Any, missing_ok: Any = 0) -> Any:
        value = facts.setting(str(name))
        if value is None and not missing_ok:
            raise WireError("42704", f"there is no setting {name}", code="P0104")
        return value

    def may(*arguments: Any) -> int:
        words = str(arguments[-1]).lower()
        return int(facts.can_write or all(word.strip() in ("select", "usage") for word in words.split(",")))

    def schemas(implicit: Any = 1) -> str:
        return array_text(["pg_catalog", PUBLIC] if implicit else [PUBLIC])

    def now(*_: Any) -> str:
        return began()

    def clock(*_: Any) -> str:
        return moment_text(dt.datetime.now(dt.UTC))

    users = dict.fromkeys(("current_user", "session_user", "user", "current_role"), ("name", lambda: facts.user))
    allowed = dict.fromkeys(_PRIVILEGES, ("bool", may))
    granted = dict.fromkeys(
        (
            "has_schema_privilege",
            "has_database_privilege",
            "pg_has_role",
            "has_function_privilege",
            "has_type_privilege",
            "has_tablespace_privilege",
            "has_language_privilege",
        ),
        ("bool", constantly(1)),
    )
    found: dict[str, tuple[str, Callable[..., Any]]] = {
        **users,
        **allowed,
        **granted,
        "current_setting": ("text", setting),
        "set_config": ("text", lambda name, value, _=0: facts.set(str(name), shown(value))),
        "pg_backend_pid": ("int4", lambda: facts.backend),
        "current_schemas": ("_name", schemas),
        "pg_get_userbyid": ("name", lambda oid: facts.user if oid == OWNER_OID else f"unknown (OID={oid})"),
        "now": ("timestamptz", now),
        "current_timestamp": ("timestamptz", now),
        "clock_timestamp": ("timestamptz", clock),
        "current_date": ("date", lambda: now()[:10]),
        "localtimestamp": ("timestamp", lambda: now()[:26]),
        "statement_timestamp": ("timestamptz", now),
        "transaction_timestamp": ("timestamptz", now),
    }
    return found


def _of_catalog(image: CatalogImage, facts: SessionFacts) -> dict[str, tuple[str, Callable[..., Any]]]:
    by_system = {oid: key for key, oid in system_oids().items()}

    def to_class(name: Any) -> Any:
        if name is None or isinstance(name, int) or str(name).isdigit():
            return None if name is None else int(name)
        *schema, table = json.loads(parse_ident(name))
        found = image.named(table, schema[-1] if schema else None)
        if found is not None:
            return found.oid
        for owner in schema[-1:] or ("pg_catalog",):
            if (owner, table) in system_oids():
                return system_oids()[owner, table]
        return None

    def regclass(name: Any) -> Any:
        found = to_class(name)
        if found is None and name is not None:
            raise WireError("42P01", f"there is no relation {name}", code="P0201")
        return found

    def class_name(oid: Any) -> Any:
        if oid is None:
            return None
        known = image.relations.get(int(oid))
        if known is not None:
            # As PostgreSQL: with its schema where the search path has it not.
            return ("" if known.schema == PUBLIC else f"{quote_ident(known.schema)}.") + quote_ident(known.name)
        return "-" if not oid else by_system[int(oid)][1] if int(oid) in by_system else str(oid)

    def to_type(name: Any) -> Any:
        if name is None or isinstance(name, int) or str(name).isdigit():
            return None if name is None else int(name)
        found = type_named(str(name))
        return None if found is None else found.oid

    def type_text(oid: Any, modifier: Any = -1) -> Any:
        if oid is None:
            return None
        found = type_of_oid(int(oid))
        return "-" if not oid else "???" if found is None else shown_type(found, -1 if modifier is None else modifier)

    schema_oids = {name: oid for oid, name in image.schemas.items()}

    def to_schema(name: Any) -> Any:
        if name is None or isinstance(name, int) or str(name).isdigit():
            return None if name is None else int(name)
        return schema_oids.get(json.loads(parse_ident(name))[-1])

    def schema_name(oid: Any) -> Any:
        return None if oid is None else image.schemas.get(int(oid), str(oid))

    def definition(oid: Any, *_: Any) -> Any:
        one = image.relations.get(int(to_class(oid) or 0))
        return None if one is None or one.kind not in "vm" else one.definition

    def visible(oid: Any) -> Any:
        if oid is None:
            return None
        one = image.relations.get(int(oid))
        schema = by_system.get(int(oid), (PUBLIC, ""))[0] if one is None else one.schema
        return int(schema in ("pg_catalog", PUBLIC))

    def description(oid: Any, number: Any = 0) -> Any:
        one = None if oid is None else image.relations.get(int(oid))
        return None if one is None or (isinstance(number, int) and number) else one.comment or None

    def key_of(oid: Any) -> list[str]:
        """Return the columns of the primary key that a constraint or an index is; none for another oid."""
        one = None if oid is None else image.keyed.get(int(oid))
        return [] if one is None else [quote_ident(one.columns[number - 1].name) for number in one.key]

    def constraint(oid: Any, *_: Any) -> Any:
        columns = key_of(oid)
        return f"PRIMARY KEY ({', '.join(columns)})" if columns else None

    def index(oid: Any, number: Any = 0, *_: Any) -> Any:
        columns = key_of(oid)
        if not columns or number:
            return columns[int(number) - 1] if 0 < int(number or 0) <= len(columns) else None
        one = image.keyed[int(oid)]
        name, table = quote_ident(f"{one.name}_pkey"), quote_ident(one.name)
        return f"CREATE UNIQUE INDEX {name} ON {one.schema}.{table} USING btree ({', '.join(columns)})"

    def vector_types(vector: Any) -> Any:
        if vector is None:
            return None
        oids = elements(vector) if str(vector).startswith("[") else str(vector).split()
        return ", ".join(str(type_text(oid)) for oid in oids or [])

    visibles = {
        f"pg_{kind}_is_visible": ("bool", visible if kind == "table" else constantly(1))
        for kind in (
            "table",
            "type",
            "function",
            "operator",
            "opclass",
            "opfamily",
            "conversion",
            "collation",
            "statistics_obj",
            "ts_dict",
            "ts_config",
            "ts_parser",
            "ts_template",
        )
    }
    found: dict[str, tuple[str, Callable[..., Any]]] = {
        **visibles,
        "to_regclass": ("regclass", to_class),
        "to_regtype": ("regtype", to_type),
        "to_regnamespace": ("regnamespace", to_schema),
        "pg_regclass": ("regclass", regclass),
        "pg_regtype": ("regtype", to_type),
        "pg_regnamespace": ("regnamespace", to_schema),
        "pg_regclass_name": ("text", class_name),
        "pg_regtype_name": ("text", type_text),
        "pg_regnamespace_name": ("text", schema_name),
        "format_type": ("text", type_text),
        "oidvectortypes": ("text", vector_types),
        "pg_get_viewdef": ("text", definition),
        "obj_description": ("text", lambda oid, _=None: description(oid)),
        "col_description": ("text", constantly(None)),
        "pg_get_constraintdef": ("text", constraint),
        "pg_get_indexdef": ("text", index),
        "pg_current_database_oid": ("oid", constantly(DATABASE_OID)),
    }
    return found
