"""Answers to statements that read the catalogs, or nothing at all: `SELECT 1`.

Such a statement is read by PostgreSQL's grammar, translated (`selects.py`), and executed by SQLite over tables that are
never changed; it waits for no round of the run. It ends after a time, when it is cancelled, and before it makes a
value or an answer beyond a limit.
"""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import TokenType

from penstock.errors import PenstockError
from penstock.language.queries import CONTROL_SCHEMA
from penstock.results.cancellation import Cancellation, cancelled
from penstock.server.pgwire.catalog.control_tables import fill
from penstock.server.pgwire.catalog.declared import OWNER_OID
from penstock.server.pgwire.catalog.functions import SessionFacts, functions, register
from penstock.server.pgwire.catalog.moments import moment_text
from penstock.server.pgwire.catalog.pure_functions import elements
from penstock.server.pgwire.catalog.selects import Selects, SqlColumns
from penstock.server.pgwire.catalog.tables import SCHEMAS, CatalogImage, system_columns
from penstock.server.pgwire.protocol.errors import TOO_LARGE, WireError, unsupported
from penstock.server.pgwire.values.wire_types import WireType, type_of_oid, wire_type

#: Bytes of a value, and steps of SQLite's machine between two looks at the clock.
_MOST_BYTES, _STEPS = 16_000_000, 50_000


#: Units that may stand behind an interval.
_UNITS = frozenset({"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"})


class _PlainParser(PostgresParser):
    # A function is what the statement calls it: the parser's own have other names and arguments.
    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
    #: Those with a grammar of their own.
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {
        name: read
        for name, read in PostgresParser.FUNCTION_PARSERS.items()
        if name in ("CAST", "EXTRACT", "OVERLAY", "POSITION", "STRING_AGG", "SUBSTRING", "TRIM")
    }

    def _parse_interval(
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Add | exp.Interval | None:
        """Read an interval: what stands in its quotes, with a unit behind it or none. The parser's own takes the first
        part of what is in the quotes alone, and a sum behind it for further parts."""
        index = self._index
        if not self._match(TokenType.INTERVAL):
            return None
        if not self._match(TokenType.STRING, advance=False):
            self._retreat(index)
            return None
        value = self._parse_primary()
        unit: exp.Var | exp.IntervalSpan | None = None
        if self._curr is not None and self._curr.text.upper() in _UNITS:
            unit = exp.Var(this=self._curr.text.upper())
            self._advance()
            if self._match_text_seq("TO"):
                unit = exp.IntervalSpan(this=unit, expression=self._parse_var())
        return self.expression(exp.Interval(this=value, unit=unit))


class _Plain(Postgres):
    Parser = _PlainParser


@dataclass(frozen=True)
class CatalogAnswer:
    """An answer. names, types: of its columns."""

    names: tuple[str, ...]
    types: tuple[WireType, ...]
    rows: pa.Table


def parsed(text: str) -> exp.Expr | None:
    """Return the tree of a statement by PostgreSQL's grammar; None for what it does not know, or is no query."""
    try:
        trees = sqlglot.parse(text, read=_Plain)
    except (SqlglotError, RecursionError):
        return None
    (tree,) = trees if len(trees) == 1 else (None,)
    return tree if isinstance(tree, exp.Query | exp.Values) else None


def tables_of(tree: exp.Expr) -> set[tuple[str, str]]:
    """Return the tables that a query names, (schema, name) in lower case; the schema is empty where none is given."""
    named = {one.alias.lower() for one in tree.find_all(exp.CTE)}
    found = {
        (str(one.db).lower(), str(one.name).lower())
        for one in tree.find_all(exp.Table)
        if isinstance(one.this, exp.Identifier)
    }
    return {(schema, name) for schema, name in found if schema or name not in named}


def is_system_table(schema: str, name: str) -> bool:
    """Return whether a table is one of the catalogs'."""
    return schema in SCHEMAS or (not schema and ("pg_catalog", name) in system_columns())


class CatalogEngine:
    """The catalogs as one connection of a client sees them. One thread at a time."""

    def __init__(self, facts: SessionFacts, most_rows: int, seconds: float) -> None:
        self._facts = facts
        self._most_rows = most_rows
        self._seconds = seconds
        self._image: CatalogImage | None = None
        self._opened: tuple[sqlite3.Connection, Selects] | None = None
        #: Errors of functions, in the statement that is carried out.
        self._failures: list[PenstockError] = []
        #: When the statement that is carried out began, as the functions of the time write it.
        self._began = ""
        self._lock = threading.Lock()

    def columns(self, tree: exp.Expr, image: CatalogImage | None) -> tuple[tuple[str, ...], tuple[WireType, ...]]:
        """Return names and types of the columns of a query. Raises WireError."""
        with self._lock:
            return _described(self._translated(tree, image)[2])

    def answer(
        self,
        tree: exp.Expr,
        image: CatalogImage | None,
        cancellation: Cancellation,
        control: Mapping[str, pa.Table] | None = None,
    ) -> CatalogAnswer:
        """Carry out a query.

        Args:
            image: the tables; None for a query that reads none.
            control: the rows of the control relations that it reads, by name.

        Raises:
            PenstockError: 0A000 and others for what is not known, P0725, P0726, P0804.
        """
        with self._lock:
            connection, text, columns = self._translated(tree, image)
            names, types = _described(columns)
            self._began = moment_text(dt.datetime.now(dt.UTC))
            if "[pg_settings]" in text:
                self._fill_settings(connection)
            fill(connection, control or {})
            rows = self._rows(connection, text, cancellation)
        arrays = [_array([row[n] for row in rows], type_) for n, type_ in enumerate(types)]
        schema = pa.schema([pa.field(f"c{n}", array.type) for n, array in enumerate(arrays)])
        shown = tuple(wire_type("text") if one.name.startswith("reg") else one for one in types)
        return CatalogAnswer(names, shown, pa.table(arrays, schema=schema) if arrays else pa.table({}))

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened[0].close()
                self._opened = None

    def _translated(self, tree: exp.Expr, image: CatalogImage | None) -> tuple[sqlite3.Connection, str, SqlColumns]:
        connection, selects = self._open(image)
        try:
            text, columns = selects.query(tree)
        except RecursionError:
            raise WireError("54001", "the statement is nested too deeply", code="P0105") from None
        shown = []
        registers = {"regclass", "regtype", "regnamespace"}
        for number, (_, column) in enumerate(columns, 1):
            is_register = column.type is not None and column.type.name in registers and image is not None
            name = "" if column.type is None else column.type.name
            shown.append(f"pg_fn_pg_{name}_name(c{number})" if is_register else f"c{number}")
        if any(one.startswith("pg_fn") for one in shown):
            text = f"SELECT {', '.join(shown)} FROM ({text})"
        return connection, text, columns

    def _open(self, image: CatalogImage | None) -> tuple[sqlite3.Connection, Selects]:
        """Return the database of the present image, and the translation for it."""
        if self._opened is not None and (image is None or image is self._image):
            return self._opened
        if self._opened is not None:
            self._opened[0].close()
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
        connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 1_000)
        if image is not None:
            for schema, content in image.databases.items():
                connection.execute(f"ATTACH ':memory:' AS {schema}")
                connection.deserialize(content, name=schema)
            connection.execute(f"ATTACH ':memory:' AS {CONTROL_SCHEMA}")
            self._fill(connection)
        found = functions(self._facts, image, lambda: self._began)
        register(connection, found, self._failures)
        self._image, self._opened = image, (connection, Selects(found))
        return self._opened

    def _fill(self, connection: sqlite3.Connection) -> None:
        """Add what is of this connection alone: its user."""
        user = self._facts.user
        connection.execute(
            "INSERT INTO pg_catalog.pg_roles (oid, rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb,"
            " rolcanlogin, rolreplication, rolconnlimit, rolbypassrls) VALUES (?, ?, 0, 1, 0, 0, 1, 0, -1, 0)",
            (OWNER_OID, user),
        )
        connection.execute(
            "INSERT INTO pg_catalog.pg_user (usename, usesysid, usecreatedb, usesuper, userepl, usebypassrls)"
            " VALUES (?, ?, 0, 0, 0, 0)",
            (user, OWNER_OID),
        )
        connection.execute("INSERT INTO information_schema.enabled_roles VALUES (?)", (user,))

    def _fill_settings(self, connection: sqlite3.Connection) -> None:
        """Write the settings as they are now."""
        connection.execute("DELETE FROM pg_catalog.pg_settings")
        connection.executemany(
            "INSERT INTO pg_catalog.pg_settings (name, setting, category, context, vartype, source, pending_restart)"
            " VALUES (?, ?, 'Penstock', 'user', 'string', 'session', 0)",
            list(self._facts.settings().items()),
        )

    def _rows(self, connection: sqlite3.Connection, text: str, cancellation: Cancellation) -> list[tuple[object, ...]]:
        deadline = time.monotonic() + self._seconds if self._seconds else None
        late = False

        def look() -> int:
            nonlocal late
            late = deadline is not None and time.monotonic() > deadline
            return int(late or cancellation.is_set())

        connection.set_progress_handler(look, _STEPS)
        self._failures.clear()
        try:
            rows = connection.execute(text).fetchmany(self._most_rows + 1)
        except sqlite3.Error as error:
            if cancellation.is_set():
                raise cancelled() from None
            if late:
                hint = "raise statement_timeout where the server is started"
                raise PenstockError(
                    "P0725", f"the statement took longer than {self._seconds:g} seconds", hint=hint
                ) from None
            raise (self._failures[0] if self._failures else _of_sqlite(error)) from None
        finally:
            connection.set_progress_handler(None, 0)
        if len(rows) > self._most_rows:
            message = f"the answer has more than {self._most_rows:,} rows, the server's max_result_rows"
            raise PenstockError("P0804", message, hint="add a LIMIT")
        return rows


def _described(columns: SqlColumns) -> tuple[tuple[str, ...], tuple[WireType, ...]]:
    text = wire_type("text")
    types = []
    for _, column in columns:
        one = column.type or text
        types.append(text if one.name in ("record", "unknown", "anyarray", "void") else one)
    return tuple(name for name, _ in columns), tuple(types)


def _of_sqlite(error: sqlite3.Error) -> PenstockError:
    """Return the error for what SQLite refuses."""
    text = str(error)
    if "too big" in text or isinstance(error, sqlite3.DataError):
        return WireError(TOO_LARGE, f"a value has more than {_MOST_BYTES:,} bytes", code="P0804")
    if "misuse of aggregate" in text or "wrong number of arguments" in text:
        return WireError("42883", f"the statement cannot be carried out: {text}", code="P0204")
    return unsupported(f"the statement cannot be carried out over the catalogs: {text}")


def _array(values: list[object], type_: WireType) -> pa.Array:
    """Return the values of a column of SQLite as those of a type."""
    name = type_.name
    if type_.element:
        inner = _arrow((type_of_oid(type_.element) or wire_type("text")).name)
        return pa.array([_list(value, inner) for value in values], pa.list_(inner))
    arrow = _arrow(name)
    return pa.array([_value(value, arrow) for value in values], arrow)


def _arrow(name: str) -> pa.DataType:
    if name in ("int2", "int4", "int8", "oid", "xid"):
        return pa.int64()
    if name == "bool":
        return pa.bool_()
    if name in ("timestamp", "timestamptz"):
        return pa.timestamp("us", "UTC" if name == "timestamptz" else None)
    if name == "date":
        return pa.date32()
    # A numeric is a text here, with all its digits.
    return pa.float64() if name in ("float4", "float8") else pa.string()


def _list(value: object, inner: pa.DataType) -> list[object] | None:
    values = elements(value)
    return None if values is None else [_value(one, inner) for one in values]


def _value(value: object, arrow: pa.DataType) -> object:
    if value is None:
        return None
    try:
        if arrow == pa.int64():
            return int(value)  # type: ignore[call-overload]
        if arrow == pa.bool_():
            return bool(int(value))  # type: ignore[call-overload]
        if arrow == pa.float64():
            return float(value)  # type: ignore[arg-type]
        if pa.types.is_timestamp(arrow):
            return dt.datetime.fromisoformat(str(value))
        if pa.types.is_date32(arrow):
            return dt.date.fromisoformat(str(value)[:10])
    except (TypeError, ValueError):
        raise WireError("22P02", f"{value!r} is no {arrow}", code="P0203") from None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
