"""PostgreSQL as used by both its source and its sink: connecting to a server, its types, and its errors.

Contract: the server's address and the user are taken from the options, and what they leave out from libpq's own sources
(the variables PG..., ~/.pgpass). The url is read by libpq alone, in `connection_parameters`: what is checked is what is
connected with. A host that is named is the one that is connected to, whatever the environment has. Work runs in one
transaction and is retried, as a whole, when the server cannot be reached or the connection is lost, until `timeout` has
passed; so it must be idempotent. No error and no other output of this module contains a password.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from penstock.connectors.options import DURATION, TEXT, Option, Options, ValueType, whole
from penstock.connectors.secret_text import SecretText, reveal
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

__all__ = [
    "ARROW",
    "SECRETS",
    "SERVER_OPTIONS",
    "Gone",
    "Server",
    "addresses_of",
    "connection_parameters",
    "psycopg",
    "sql",
]

T = TypeVar("T")


def _address(text: str) -> str:
    """Return the address of a server; a password in it is not written down."""
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError("an address such as 'postgresql://user@host:5432/database'")
    if isinstance(text, SecretText):
        return text
    redacted_address = redacted_text(text)
    if _INSTALLED and SECRETS & _parsed(text).keys() and redacted_address == text:
        # It is written in a way that only libpq reads.
        redacted_address = f"postgresql://{BLOT}"
    return text if redacted_address == text else SecretText(redacted_address, text)


def _parsed(address: str) -> dict[str, str]:
    """Return the parameters of an address. Raises ValueError, without a part of it: any may belong to a password."""
    try:
        return {key: str(value) for key, value in psycopg.conninfo.conninfo_to_dict(address).items()}
    except psycopg.Error:
        hint = "special characters of its parts are written as %XX"
        raise ValueError(f"an address such as 'postgresql://user@host:5432/database', and {hint}") from None


_ADDRESS = ValueType("address, as `postgresql://user@host:5432/database`", _address, str, private=True)
_URL = Option("url", _ADDRESS, "the server")
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
_PORT = "5432"
#: Parameters of libpq that are secrets.
SECRETS = frozenset({"password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"})

#: PostgreSQL's types by number. Others are read as text, in their output form.
ARROW = {
    16: pa.bool_(),
    21: pa.int16(),
    23: pa.int32(),
    20: pa.int64(),
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1114: TIMESTAMP,
    1184: TIMESTAMP,
    17: pa.binary(),
}
NUMERIC, TIMESTAMPTZ, BYTEA = 1700, 1184, 17


class Gone(Exception):
    """The server cannot be reached now; `error` is to be raised if that continues."""

    def __init__(self, error: PenstockError) -> None:
        super().__init__(error.message)
        self.error = error


class Server:
    """The server and database that some options name. `owner`: for messages; `code`: of its errors."""

    def __init__(self, options: Options, owner: str, code: str) -> None:
        _check_installed(options.owner)
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
        parameters = connection_parameters(options)
        password = secret(options, "password")
        if password is not None:
            parameters["password"] = _revealed(options, password)
        parameters |= {"application_name": "penstock", "options": _SETTINGS, "client_encoding": "utf8"}
        try:
            return psycopg.conninfo.make_conninfo("", **parameters)
        except psycopg.Error:
            raise PenstockError("P0208", f"{options.owner}: libpq cannot read the options") from None

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
        secrets = [reveal(self._options.text("password")), secret(self._options, "password")]
        secrets += [value for key, value in connection_parameters(self._options).items() if key in SECRETS]
        for password in secrets:
            text = text.replace(password, BLOT) if password else text
        return text[:400]


def connection_parameters(options: Options) -> dict[str, str]:
    """Return libpq's parameters, those of the url and of the options beside it, as libpq reads them; the option
    `password` is not among them.

    Where a host is named, all of what leads to it is there, so that no variable of the environment does.

    Raises:
        PenstockError: P0208, the url cannot be read or psycopg is not installed; P0409, its password was dropped.
    """
    parameters: dict[str, str] = {}
    if options.has(_URL):
        _check_installed(options.owner)
        try:
            parameters = _parsed(_revealed(options, options.text(_URL)))
        except ValueError as error:
            raise PenstockError("P0208", f"{options.owner}: option url is not {error}") from None
    parameters.update({key.name: options.text(key) for key in _LIBPQ if options.has(key)})
    if parameters.get("host") or parameters.get("hostaddr"):
        named = {"host": "", "hostaddr": "", "port": ""} | parameters
        parameters |= {**named, "port": named["port"] or os.environ.get("PGPORT") or _PORT}
    return parameters


def addresses_of(parameters: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return (host, port) of all hosts, addresses and folders of sockets that may be connected to; none where the
    environment has one."""
    hosts, addresses = ([] if not (text := parameters.get(key)) else text.split(",") for key in ("host", "hostaddr"))
    ports = parameters.get("port", "").split(",")
    count = max(len(hosts), len(addresses))
    ports = [port or _PORT for port in (ports * count if len(ports) == 1 else ports)]
    if any(len(one) not in (0, count) for one in (hosts, addresses)) or len(ports) < count:
        return [("", "")]  # libpq refuses it
    return [*zip(hosts, ports, strict=False), *zip(addresses, ports, strict=False)]


def _revealed(options: Options, text: str) -> str:
    value = reveal(text)
    if value is None:
        hint = "set password_env or password_file"
        raise PenstockError("P0409", f"{options.owner}: its password is not known in this process", hint=hint)
    return value


def _check_installed(owner: str) -> None:
    if not _INSTALLED:
        raise PenstockError("P0208", f"{owner} needs the package psycopg", hint="pip install 'penstock[postgres]'")


def database_of(options: Options) -> tuple[str, ...]:
    """Return the server and the database that some options name, as far as they and libpq's variables determine them.

    Nothing is connected to, and no secret looked up.
    """
    parameters = {"host": os.environ.get("PGHOST", ""), "port": os.environ.get("PGPORT", "")}
    parameters["dbname"] = os.environ.get("PGDATABASE", "")
    try:
        parameters |= connection_parameters(options)
    except PenstockError:
        return ("", options.text(_URL))  # opening it will say what is wrong
    host = "localhost" if parameters["host"] in ("", "127.0.0.1", "::1") else parameters["host"].lower()
    return (f"{host}:{parameters['port'] or _PORT}", parameters["dbname"] or parameters.get("user", ""))


def only_row(cursor: psycopg.Cursor) -> psycopg.rows.TupleRow:
    """Return the row of a statement that has exactly one."""
    row = cursor.fetchone()
    assert row is not None
    return row


def identifier(table: str) -> sql.Composable:
    """Return `schema.table` or `table` as an SQL identifier."""
    return sql.Identifier(*table.split("."))
