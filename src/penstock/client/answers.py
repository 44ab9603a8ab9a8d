"""What a server answers, as values."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import CODES, PenstockError, Position, ScriptErrors


@dataclass(frozen=True)
class RemoteRows:
    """The rows of a one-time query. instant: of the answer, as text; None where no source has a time."""

    table: pa.Table
    instant: str | None = None

    def to_arrow(self) -> pa.Table:
        return self.table

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """Return the rows as a Polars DataFrame. Raises PenstockError P0809 without Polars."""
        try:
            polars: Any = importlib.import_module("polars")
        except ImportError as error:
            raise PenstockError("P0809", "to_polars() needs the package polars", cause=error) from None
        return polars.from_arrow(self.table)

    def __len__(self) -> int:
        return int(self.table.num_rows)


@dataclass(frozen=True)
class RemoteStatement:
    """What a statement led to.

    Args:
        kind: the statement.
        state: of a command such as RUNNING or PENDING; DONE for one that only reads.
        number: of the command, with which `commands()` finds it again.
        version: of the plan, from which on the command takes effect.
        text: the answer of SHOW, DESCRIBE and EXPLAIN.
        rows: those of a SELECT, as JSON values; `select` returns typed ones.
    """

    kind: str
    state: str
    number: int | None = None
    version: int | None = None
    instant: str | None = None
    text: str | None = None
    rows: Sequence[Mapping[str, Any]] | None = None
    error: PenstockError | None = None


@dataclass(frozen=True)
class RemoteQuery:
    """A continuous query. columns: (name, type); instant: up to which it has answered."""

    name: str
    id: str
    state: str
    sql: str
    kind: str
    columns: tuple[tuple[str, str], ...]
    sink: str = ""
    instant: str | None = None
    rows: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)
    error: PenstockError | None = None


@dataclass(frozen=True)
class RemoteCommand:
    """A command of the server's log."""

    number: int
    at: str
    who: str
    sql: str
    state: str
    version: int | None = None
    error: PenstockError | None = None


def known_error(document: Any) -> PenstockError:
    """Return the error that a document of a server describes; a code that this version does not know becomes P0808."""
    if not isinstance(document, Mapping) or "code" not in document:
        return PenstockError("P0808", "the answer is none of a Penstock server")
    place = document.get("position")
    position = None
    if isinstance(place, Mapping):
        position = Position(int(place["line"]), int(place["column"]), str(place["text"]), int(place["length"]))
    code, message, hint = str(document["code"]), str(document.get("message", "")), document.get("hint")
    if code not in CODES:
        code, message = "P0808", f"{code}: {message}"
    return PenstockError(code, message, position, None if hint is None else str(hint))


def error_of(document: Any) -> PenstockError:
    """Return the error of a problem document: ScriptErrors where it has several."""
    errors = document.get("errors") if isinstance(document, Mapping) else None
    if isinstance(errors, list) and len(errors) > 1:
        return ScriptErrors([known_error(one) for one in errors])
    return known_error(document)


def optional_error(document: Any) -> PenstockError | None:
    return None if document is None else known_error(document)


def outcome_of(document: Mapping[str, Any]) -> RemoteStatement:
    return RemoteStatement(
        document["kind"], document["state"], document.get("number"), document.get("version"), document.get("instant"),
        document.get("text"), document.get("rows"), optional_error(document.get("error")),
    )  # fmt: skip


def query_of(document: Mapping[str, Any]) -> RemoteQuery:
    return RemoteQuery(
        document["name"], document["id"], document["state"], document["sql"], document["kind"],
        tuple((column["name"], column["type"]) for column in document["columns"]), document["sink"],
        document["instant"], document["rows"], document["attributes"], optional_error(document["error"]),
    )  # fmt: skip


def command_of(document: Mapping[str, Any]) -> RemoteCommand:
    return RemoteCommand(
        document["number"], document["at"], document["who"], document["sql"], document["state"], document["version"],
        optional_error(document["error"]),
    )  # fmt: skip
