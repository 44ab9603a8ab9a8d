"""The database in which statements over the catalogs are carried out: DuckDB in memory, in a process of its own.

It reads requests from its standard input and answers on its standard output (`processes.py` starts it). It can reach no
file, its configuration is locked, and its address space is limited: what DuckDB allocates outside of its own memory
limit, such as a text that is repeated, fails there and nowhere else.
"""

from __future__ import annotations

import os
import pickle
import queue
import re
import resource
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from duckdb import sqltypes

from penstock.errors import PenstockError
from penstock.pgwire.catalog.database.lookups import Lookups
from penstock.pgwire.catalog.database.python_functions import FUNCTIONS
from penstock.pgwire.catalog.database.requests import DatabaseAnswer, DatabaseRequest
from penstock.pgwire.catalog.declarations.declared import CatalogImage, DeclaredRelation
from penstock.pgwire.catalog.declarations.tables import SCHEMAS, system_columns, system_oids
from penstock.pgwire.protocol.errors import TOO_LARGE, WireError, unsupported
from penstock.pgwire.values.duck_types import duck_type
from penstock.pgwire.values.wire_types import WireType, all_types
from penstock.results.worker_process import read_message, write_message

#: Megabytes that DuckDB's operators may take, and that the process may take beside what it has at its start.
_OPERATORS, _PROCESS = 256, 1024
#: Megabytes of an answer.
_ANSWER = 64
_CONFIGURATION = {
    "threads": 1,
    "memory_limit": f"{_OPERATORS}MB",
    "temp_directory": "",
    "python_enable_replacements": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "default_null_order": "nulls_last_on_asc_first_on_desc",
}
_DEFINITIONS = dict(
    re.findall(
        r"^-- (\w+\.\w+)\n(.*?)(?=^-- |\Z)",
        (Path(__file__).parents[1] / "catalog.sql").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)
#: Tables that depend on the connection.
_OF_SESSION = frozenset({"pg_roles", "pg_user", "pg_settings", "enabled_roles"})
_FACTS = """CREATE SCHEMA facts; CREATE SCHEMA "pg pg_catalog"; CREATE SCHEMA "pg information_schema";
CREATE SCHEMA "pg penstock"; CREATE TABLE facts.users (name VARCHAR);
CREATE TABLE facts.settings (name VARCHAR, setting VARCHAR); CREATE TABLE facts.schemas (oid BIGINT, name VARCHAR);
CREATE TABLE facts.types (oid BIGINT, name VARCHAR, size INTEGER, by_value BOOLEAN, kind VARCHAR, category VARCHAR,
  is_preferred BOOLEAN, delimiter VARCHAR, element BIGINT, array_oid BIGINT, alignment VARCHAR, storage VARCHAR,
  shown VARCHAR);
CREATE TABLE facts.relations (oid BIGINT, name VARCHAR, schema VARCHAR, namespace BIGINT, kind VARCHAR,
  columns INTEGER, definition VARCHAR, comment VARCHAR, connector VARCHAR, index_oid BIGINT, constraint_oid BIGINT,
  server_oid BIGINT, has_key BOOLEAN, keys INTEGER, key SMALLINT[], is_declared BOOLEAN);
CREATE TABLE facts.columns (relation BIGINT, number INTEGER, name VARCHAR, type BIGINT, modifier INTEGER,
  is_key BOOLEAN, key_place INTEGER)"""


class Database:
    """The database, and what is declared."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(":memory:", config=_CONFIGURATION)
        self.lookups = Lookups()
        #: Errors of functions, in the statement that is carried out.
        self._failures: list[PenstockError] = []
        self._filled: set[tuple[str, str]] = set()
        self._connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
        self._connection.execute("SET enable_external_access = false")
        for name, (type_, call, with_null) in {**FUNCTIONS, **self.lookups.functions()}.items():
            self._connection.create_function(
                name,
                self._noting(name, call, with_null),
                None,
                sqltypes.DuckDBPyType(type_),
                null_handling="special",
                side_effects=name in self.lookups.of_session,
            )
        self._connection.execute(_FACTS)
        self._insert_rows("facts.types", [_type_row(one) for one in all_types()])
        self._connection.execute("SET lock_configuration = true")

    def interrupt(self) -> None:
        """End the statement that is carried out, from another thread."""
        self._connection.interrupt()

    def answer(self, request: DatabaseRequest) -> DatabaseAnswer:
        """Return the answer of a statement."""
        self._failures.clear()
        self.lookups.begin(request.session)
        try:
            if request.image is not None:
                self._declare(request.image)
            for schema, table in request.tables:
                self._fill(schema, table, request)
            given = {"user": request.session.user, "backend": request.session.backend, "now": request.now}
            used = {name: value for name, value in given.items() if f"${name}" in request.text}
            found = self._connection.execute(request.text, used) if used else self._connection.execute(request.text)
            return DatabaseAnswer(found.fetchmany(request.most + 1), settings=self.lookups.changed)
        except duckdb.Error as error:
            return DatabaseAnswer(error=self._error(error))
        except (MemoryError, OverflowError, ValueError) as error:
            return DatabaseAnswer(error=WireError("22003", f"a value is out of range: {error}"[:300], code="P0203"))

    def _noting(self, name: str, call: Callable[..., Any], with_null: bool) -> Callable[..., Any]:
        """Return a function that notes its errors: DuckDB has their texts alone. with_null: whether it is called with
        NULL; others give NULL then."""

        def called(*arguments: Any) -> Any:
            if not with_null and any(one is None for one in arguments):
                return None
            try:
                return call(*arguments)
            except PenstockError as error:
                self._failures.append(error)
                raise
            except (AttributeError, TypeError, ValueError, KeyError, OverflowError) as error:
                message = f"{name.removeprefix('px_')} cannot be called so: {error}"
                self._failures.append(WireError("42883", message[:300], code="P0204"))
                raise

        return called

    def _error(self, error: duckdb.Error) -> PenstockError:
        if "Python exception" in str(error) and self._failures:
            return self._failures[-1]
        return error_of(str(error).partition("\n\nLINE ")[0])

    # -- tables ------------------------------------------------------------------------------------------------

    def _declare(self, image: CatalogImage) -> None:
        self.lookups.image = image
        names = {name: oid for oid, name in image.schemas.items()}
        relations: list[tuple[object, ...]] = []
        columns: list[tuple[object, ...]] = []
        for key, system in system_columns().items():
            oid, kind = system_oids()[key], "v" if key[0] == "information_schema" else "r"
            relations.append(
                (oid, key[1], key[0], names[key[0]], kind, len(system), "", "", "", 0, 0, 0, False, 0, None, False)
            )
            columns += [(oid, n, name, one.oid, -1, False, None) for n, (name, one) in enumerate(system.items(), 1)]
        for one in image.relations.values():
            relations.append(_relation_row(one, names[one.schema]))
            columns += [
                (
                    one.oid,
                    n,
                    column.name,
                    column.type.oid,
                    column.modifier,
                    column.is_key,
                    one.key.index(n) + 1 if column.is_key else None,
                )
                for n, column in enumerate(one.columns, 1)
            ]
        for schema, table in self._filled:
            self._connection.execute(f'DROP TABLE "pg {schema}"."{table}"')
        self._filled.clear()
        self._insert_rows("facts.schemas", list(image.schemas.items()))
        self._insert_rows("facts.relations", relations)
        self._insert_rows("facts.columns", columns)

    def _fill(self, schema: str, table: str, request: DatabaseRequest) -> None:
        """Make a table, unless it is there."""
        if schema not in SCHEMAS:
            types, values = request.control[table]
            self._create(schema, table, types)
            self._insert(f'"pg {schema}"."{table}"', list(values.values()), list(values))
            return
        if (schema, table) in self._filled and table not in _OF_SESSION:
            return
        if table in _OF_SESSION:
            self._insert_rows("facts.users", [(request.session.user,)])
            self._insert_rows("facts.settings", list(request.session.settings.items()))
        self._create(schema, table, system_columns()[schema, table])
        if (definition := _DEFINITIONS.get(f"{schema}.{table}")) is not None:
            self._connection.execute(f'INSERT INTO "pg {schema}"."{table}" BY NAME {definition}')
        self._filled.add((schema, table))

    def _create(self, schema: str, table: str, types: Mapping[str, WireType]) -> None:
        columns = ", ".join(f'"{name}" {duck_type(type_)}' for name, type_ in types.items())
        self._connection.execute(f'CREATE OR REPLACE TABLE "pg {schema}"."{table}" ({columns})')

    def _insert_rows(self, table: str, rows: Sequence[Sequence[object]]) -> None:
        """Put rows in place of those of a table."""
        self._insert(table, [list(column) for column in zip(*rows, strict=True)])

    def _insert(self, table: str, columns: Sequence[list[object]], names: Sequence[str] = ()) -> None:
        """Put rows, given by column, in place of those of a table."""
        self._connection.execute(f"DELETE FROM {table}")
        if not columns or not columns[0]:
            return
        given = ", ".join(f'"{name}"' for name in names)
        described = self._connection.execute(f"SELECT {given or '*'} FROM {table} LIMIT 0").description or ()
        values = ", ".join(f"unnest(${n}::{one[1]}[])" for n, one in enumerate(described, 1))
        self._connection.execute(f"INSERT INTO {table} {f'({given}) ' if given else ''}SELECT {values}", columns)


def _type_row(one: WireType) -> tuple[object, ...]:
    row = one.row
    return (
        one.oid,
        one.name,
        one.size,
        row[3] == "1",
        row[4],
        row[5],
        row[6] == "1",
        row[7],
        int(row[8]),
        one.array,
        row[10],
        row[11],
        one.shown,
    )


def _relation_row(one: DeclaredRelation, namespace: int) -> tuple[object, ...]:
    return (
        one.oid,
        one.name,
        one.schema,
        namespace,
        one.kind,
        len(one.columns),
        one.definition,
        one.comment,
        one.connector,
        one.index,
        one.constraint,
        one.server,
        bool(one.key),
        len(one.key),
        list(one.key),
        True,
    )


#: By what an error of DuckDB's has in it: the SQLSTATE, and the code.
_ERRORS: tuple[tuple[str, str, str], ...] = (
    (r"^Out of Memory|maximum supported string size|Lists larger than", TOO_LARGE, "P0804"),
    (r"Division by zero", "22012", "P0203"),
    (r"Unknown TimeZone", "22023", "P0203"),
    (r"(?i)(timestamp|date|interval|epoch).*range|range.*(timestamp|date|interval)", "22008", "P0203"),
    (r"^Out of Range|out of range|Overflow", "22003", "P0203"),
    (r"^Conversion", "22P02", "P0203"),
    (r"More than one row returned by a subquery", "21000", "P0612"),
    (r"GROUP BY clause|cannot contain aggregates|cannot be nested|cannot contain window", "42803", "P0304"),
    (r"^Binder Error: No function matches|^Invalid Input", "42883", "P0204"),
    (r"[Mm]ax expression depth", "54001", "P0105"),
)


def error_of(text: str) -> PenstockError:
    """Return the error for what DuckDB refuses."""
    for pattern, state, code in _ERRORS:
        if re.search(pattern, text):
            kind, _, message = text.partition(": ")
            message = (message if kind.endswith("Error") else text).strip().partition("\n")[0]
            if state == TOO_LARGE:
                return WireError(state, "the statement takes more memory than a statement may", code=code)
            return WireError(state, message[:300], code=code)
    return unsupported(f"the statement cannot be carried out over the catalogs: {text.partition(chr(10))[0][:300]}")


def main() -> None:
    """Answer requests until standard input ends. An empty message interrupts the statement that runs."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    database = Database()
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = taken + (_PROCESS << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                message = read_message(sys.stdin.buffer)
                if message:
                    requests.put(message)
                else:
                    database.interrupt()
        except EOFError:
            # The calling process has ended, and with it what it waited for. What DuckDB's module leaves behind at an
            # orderly end is reported by it.
            os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        content = pickle.dumps(database.answer(pickle.loads(requests.get())))
        if len(content) > _ANSWER << 20:
            message = f"the answer has more than {_ANSWER} megabytes"
            content = pickle.dumps(DatabaseAnswer(error=WireError(TOO_LARGE, message, "add a LIMIT", code="P0804")))
        write_message(answers, content)


if __name__ == "__main__":
    main()
