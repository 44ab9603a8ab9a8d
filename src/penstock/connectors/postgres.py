"""PostgreSQL as used by both its source and its sink: connecting to a server, its types, and its errors.

Contract: the server's address and the user are taken from the options, and what they leave out from libpq's own sources
(the variables PG..., ~/.pgpass). Work runs in one transaction and is retried, as a whole, when the server cannot be
reached or the connection is lost, until `timeout` has passed; so it must be idempotent. No error and no other output of
this module contains a password.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from penstock.algebra.properties.secret_text import SecretText, reveal
from penstock.connectors.options import DURATION, TEXT, Option, Options, ValueType, whole
from penstock.connectors.secrets import secret, secret_options
from penstock.errors import PenstockError
from penstock.redaction import BLOT, redacted_text
from penstock.types import TIMESTAMP

try:
    import psycopg
    from psycopg import sql

    _INSTALLED = True
except ImportError:  # the extra `postgres` is not installed: `Server` raises the error
    _INSTALLED = False

__all__ = ["ARROW", "SERVER_OPTIONS", "Gone", "Server", "psycopg", "sql"]

T = TypeVar("T")


def _address(text: str) -> str:
    """Return the address of a server; a password in it is not written down."""
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("an address such as 'postgresql://user@host:5432/database'")
    redacted_address = redacted_text(text)
    return text if redacted_address == text else SecretText(redacted_address, text)


_URL = Option("url", ValueType("address, as `postgresql://user@host:5432/database`", _address, str), "the server")
#: Options that libpq has under the same names.
_LIBPQ = (
    Option("host", TEXT, "host of the server; what is left out comes from libpq's own places"),
    Option("port", whole(), "port of the server"),
    Option("dbname", TEXT, "name of the database"),
    Option("user", TEXT, "name of the user"),
    Option("sslmode", TEXT, "libpq's `sslmode`"),
    Option("sslrootcert", TEXT, "libpq's `sslrootcert`"),
)
_PASSWORD = ValueType("text", lambda text: SecretText(BLOT, TEXT.normal(text)), str)
_TIMEOUT = Option("timeout", DURATION, "time for which a server that cannot be reached is tried again", "30 seconds")
SERVER_OPTIONS: tuple[Option[Any], ...] = (
    _URL,
    *_LIBPQ,
    *secret_options("password", "password of the user", _PASSWORD),
    _TIMEOUT,
)
_SETTINGS = "-c TimeZone=UTC -c DateStyle=ISO,YMD -c extra_float_digits=1"
#: Classes of transient SQL states: connection, resources, an operator's intervention, a lost race.
_PASSING = ("08", "53", "57P", "40")
#: Answers of a server that is starting or stopping; any other refusal of a connection is final.
_COMING = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots", "terminating")
_BEFORE_AGAIN, _AT_MOST = 0.1, 2.0

#: PostgreSQL's types by number. Others are read as text, in their output form.
ARROW = {
    16: pa.bool_(), 21: pa.int16(), 23: pa.int32(), 20: pa.int64(), 700: pa.float32(), 701: pa.float64(),
    1082: pa.date32(), 1114: TIMESTAMP, 1184: TIMESTAMP, 17: pa.binary(),
}  # fmt: skip
NUMERIC, TIMESTAMPTZ, BYTEA = 1700, 1184, 17


class Gone(Exception):
    """The server cannot be reached now; `error` is to be raised if that continues."""

    def __init__(self, error: PenstockError) -> None:
        super().__init__(error.message)
        self.error = error


class Server:
    """The server and database that some options name. `owner`: for messages; `code`: of its errors."""

    def __init__(self, options: Options, owner: str, code: str) -> None:
        if not _INSTALLED:
            hint = "pip install 'penstock[postgres]'"
            raise PenstockError("P0208", f"{options.owner} needs the package psycopg", hint=hint)
        self._options = options
        self._owner = owner
        self._code = code
        self.timeout = options.value(_TIMEOUT)

    def do(self, work: Callable[[psycopg.Cursor], T], patient: bool = True, read_only: bool = False) -> T:
        """Return the result of `work` with a cursor, in one transaction.

        Args:
            work: is called with the cursor; it may be repeated.
            patient: retry until `timeout` has passed.
            read_only: open the transaction read-only.

        Raises:
            PenstockError: the work failed.
            Gone: the server cannot be reached, and `patient` is false.
        """
        deadline = time.monotonic() + self.timeout
        pause = _BEFORE_AGAIN
        while True:
            try:
                return self._once(work, read_only)
            except Gone as gone:
                if not patient:
                    raise
                if time.monotonic() + pause > deadline:
                    raise gone.error from None
            time.sleep(pause)
            pause = min(2 * pause, _AT_MOST)

    def _once(self, work: Callable[[psycopg.Cursor], T], read_only: bool) -> T:
        try:
            connection = psycopg.connect(self._conninfo(), connect_timeout=5)
        except psycopg.Error as error:
            raise self._unreachable(error) from None
        try:
            connection.read_only = read_only
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ if read_only else None
            with connection, connection.cursor() as cursor:
                return work(cursor)
        except psycopg.Error as error:
            raise self._server_error(error) from None
        finally:
            connection.close()

    def _conninfo(self) -> str:
        options = self._options
        parameters: dict[str, str | None] = {key.name: options.text(key) for key in _LIBPQ if options.has(key)}
        password = secret(options, "password")
        address = reveal(options.text(_URL))
        if password is not None:
            parameters["password"] = reveal(password)
        if address is None or parameters.get("password", "") is None:
            hint = "set password_env or password_file"
            raise PenstockError("P0409", f"{options.owner}: its password is not known in this process", hint=hint)
        parameters |= {"application_name": "penstock", "options": _SETTINGS, "client_encoding": "utf8"}
        try:
            return psycopg.conninfo.make_conninfo(address, **parameters)
        except psycopg.Error:
            redacted_address = redacted_text(address)
            raise PenstockError("P0208", f"{options.owner}: option url cannot be '{redacted_address}'") from None

    def _unreachable(self, error: psycopg.Error) -> Exception:
        server_message = self._server_message(error)
        message = f"{self._owner}: PostgreSQL refuses the connection: {server_message}"
        if "FATAL" in server_message and not any(word in server_message for word in _COMING):
            hint = "correct url, user or dbname; set a password by password_env, password_file or ~/.pgpass"
            return PenstockError(self._code, message, hint=hint)
        message = f"{self._owner}: PostgreSQL cannot be reached: {server_message}"
        return Gone(PenstockError(self._code, message, hint=f"tried for {self.timeout:g} s (option timeout)"))

    def _server_error(self, error: psycopg.Error) -> Exception:
        state = error.sqlstate or ""
        server_message = self._server_message(error)
        if (isinstance(error, psycopg.OperationalError) and not state) or state.startswith(_PASSING):
            message = f"{self._owner}: the connection to PostgreSQL was lost: {server_message}"
            return Gone(PenstockError(self._code, message, hint=f"tried for {self.timeout:g} s (option timeout)"))
        hint = {"42501": "grant it to the user of the connection", "42P01": "correct table or query"}.get(state)
        code = "P0402" if state == "42703" and self._code == "P0401" else self._code
        return PenstockError(code, f"{self._owner}: PostgreSQL reports: {server_message}", hint=hint)

    def _server_message(self, error: psycopg.Error) -> str:
        """Return the message of the server or libpq, on one line and without secrets."""
        text = error.diag.message_primary or str(error)
        if error.diag.message_detail:
            text += f" ({error.diag.message_detail})"
        text = redacted_text(" ".join(text.split()))
        for password in (reveal(self._options.text("password")), secret(self._options, "password")):
            text = text.replace(password, "***") if password else text
        return text[:400]


def database_of(options: Options) -> tuple[str, ...]:
    """Return the server and the database that some options name, as far as they and libpq's variables determine them.

    Nothing is connected to, and no secret looked up.
    """
    parameters = {"host": os.environ.get("PGHOST", ""), "port": os.environ.get("PGPORT", "")}
    parameters["dbname"] = os.environ.get("PGDATABASE", "")
    address = reveal(options.text(_URL))
    if address and _INSTALLED:
        try:
            parameters.update({k: str(v) for k, v in psycopg.conninfo.conninfo_to_dict(address).items()})
        except psycopg.Error:
            return ("", address)  # opening it will say what is wrong
    parameters.update({key.name: options.text(key) for key in _LIBPQ if options.has(key)})
    host = "localhost" if parameters["host"] in ("", "127.0.0.1", "::1") else parameters["host"].lower()
    return (f"{host}:{parameters['port'] or 5432}", parameters["dbname"] or parameters.get("user", ""))


def only_row(cursor: psycopg.Cursor) -> psycopg.rows.TupleRow:
    """Return the row of a statement that has exactly one."""
    row = cursor.fetchone()
    assert row is not None
    return row


def identifier(table: str) -> sql.Composable:
    """Return `schema.table` or `table` as an SQL identifier."""
    return sql.Identifier(*table.split("."))
