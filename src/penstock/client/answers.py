"""What a server answers, as values."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CODES, Notice, PenstockError, Position, ScriptErrors, ScriptWarning
from penstock.notebook.result_view import text_of
from penstock.notebook.tables import SHOWN_ROWS, arrow_table_of, table_of
from penstock.server_reports import CatalogView, CommandView, DeclaredView, QueryView, SourceView, UnboundView

#: Whole numbers up to here are exact as doubles.
_MOST_EXACT = 2**53


def _is_beyond_doubles(column: pa.ChunkedArray) -> bool:
    bounds = pc.min_max(column)
    return any((bound.as_py() or 0) * sign > _MOST_EXACT for bound, sign in ((bounds["min"], -1), (bounds["max"], 1)))


@dataclass(frozen=True)
class RemoteRows:
    """The rows of a one-time query.

    Args:
        instant: of the answer, as text; None where no source has a time.
        staleness: seconds since the batch of which the answer is was delivered; None where there was none.
        since: by stream that was read without a window, the instant after which its elements are in the answer.
        notices: what is to be known of the answer: rows that are no longer kept, or are not final yet.
    """

    table: pa.Table
    instant: str | None = None
    staleness: float | None = None
    since: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    def to_arrow(self) -> pa.Table:
        return self.table

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame. Whole numbers beyond 2^53 beside NULLs have the type `Int64`, as
        pandas' doubles would lose digits of them."""
        frame = self.table.to_pandas()
        for place, column in enumerate(self.table.columns):
            if pa.types.is_int64(column.type) and column.null_count and _is_beyond_doubles(column):
                nullable = importlib.import_module("pandas").Int64Dtype()
                frame.isetitem(place, column.to_pandas(types_mapper=lambda _type, found=nullable: found))
        return frame

    def to_polars(self) -> Any:
        """Return the rows as a Polars DataFrame. Raises PenstockError P0809 without Polars."""
        try:
            polars: Any = importlib.import_module("polars")
        except ImportError as error:
            raise PenstockError("P0809", "to_polars() needs the package polars", cause=error) from None
        return polars.from_arrow(self.table)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def _repr_html_(self) -> str:
        return arrow_table_of(self.table, "" if self.instant is None else f"as of {self.instant}")


@dataclass(frozen=True)
class RemoteStatement:
    """What a statement led to.

    Args:
        kind: the statement.
        state: of a command such as RUNNING or PENDING; DONE for one that only reads.
        number: of the command, with which `commands()` finds it again.
        version: of the plan, from which on the command takes effect.
        text: the answer of SHOW, DESCRIBE and EXPLAIN.
        columns: (name, type) of a SELECT.
        rows: those of a SELECT, as JSON values; `select` returns typed ones.
        check: of a CREATE QUERY that was only checked, JSON values: its `plan`, the `state` that it will keep, its
            `rows_per_second`, `starts`, how it could begin, and `sharing`, with which queries it would share operators.
        sql: of a change that `apply` made or found, the statement itself.
        notices: as of `RemoteRows`.
        position: of an INSERT, UPDATE or DELETE that has been carried out; what this client reads waits for it.
    """

    kind: str
    state: str
    number: int | None = None
    version: int | None = None
    instant: str | None = None
    text: str | None = None
    columns: tuple[tuple[str, str], ...] | None = None
    rows: Sequence[Mapping[str, object]] | None = None
    error: PenstockError | None = None
    check: Mapping[str, object] | None = None
    sql: str | None = None
    notices: tuple[str, ...] = ()
    position: str | None = None

    @property
    def outcome(self) -> str:
        """Return its answer or error in a line, as far as it has one."""
        if self.error is not None:
            return self.error.render().partition("\n")[0]
        if self.rows is not None:
            return f"{len(self.rows):,} row{'s' * (len(self.rows) != 1)}"
        return (self.text or "").partition("\n")[0]

    def _repr_html_(self) -> str:
        if self.rows is not None and self.columns is not None:
            names = [name for name, _ in self.columns]
            shown = [[row.get(name) for name in names] for row in self.rows[:SHOWN_ROWS]]
            return table_of(names, shown, len(self.rows), "" if self.instant is None else f"as of {self.instant}")
        if self.text is not None:
            return f"<pre>{text_of(self.text)}</pre>"
        return _statements_html([self])


class RemoteScript(tuple[RemoteStatement, ...]):
    """The outcomes of the statements of a script, in their order. warnings: probable mistakes in it."""

    warnings: tuple[ScriptWarning, ...] = ()

    def _repr_html_(self) -> str:
        if len(self) == 1 and not self.warnings:
            return self[0]._repr_html_()
        warnings = "".join(f"<pre>{text_of(one.render())}</pre>" for one in self.warnings)
        return _statements_html(self) + warnings


@dataclass(frozen=True)
class RemoteRunning:
    """A one-time query or a subscription that runs. began: ISO-8601; who: the name of its token."""

    id: str
    kind: str
    began: str
    who: str
    sql: str


@dataclass(frozen=True)
class RemotePosted:
    """Rows that are durable now.

    Args:
        repeated: they were posted before with the same idempotency key.
        malformed: number of records that are not among them.
        rejected: the first of these: line from 1 or None, record, reason.
        late: number of rows that are late for sure, and become dead letters.
        complete_to: the instant up to which the source was complete, by which that is known; None where it is not.
        position: of the rows; what this client reads waits for it.
        notices: what is to be known of them.
    """

    rows: int
    repeated: bool = False
    malformed: int = 0
    rejected: tuple[tuple[int | None, str, str], ...] = ()
    late: int = 0
    complete_to: str | None = None
    position: str | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class RemoteHeartbeat:
    """A heartbeat that is durable now.

    Args:
        ts: its timestamp as the server shows it.
        repeated: it was posted before with the same idempotency key.
        complete_to: the instant up to which the stream was complete before it; None where that is not known.
        position: of the heartbeat; what this client reads waits for it.
        notices: what is to be known of it, such as that it does nothing.
    """

    ts: str
    repeated: bool = False
    complete_to: str | None = None
    position: str | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class RemotePunctuation:
    """A punctuation that is durable now. where: as the server understands it; the others as of `RemoteHeartbeat`."""

    where: str
    repeated: bool = False
    position: str | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class RemoteEvent:
    """A batch, a command or a change of state. kind: `batch`, `command` or `state`; content: JSON values."""

    kind: str
    content: Mapping[str, object]


@dataclass(frozen=True)
class RemoteHealth:
    """Whether a server is ready. problem: why it is not; version: of the plan; batch: number of the last one."""

    ready: bool
    problem: str | None = None
    version: int | None = None
    batch: int | None = None


def _statements_html(statements: Sequence[RemoteStatement]) -> str:
    rows = [(one.kind, one.state, one.number, one.version, one.outcome) for one in statements[:SHOWN_ROWS]]
    return table_of(("statement", "state", "command", "version", "answer"), rows, len(statements))


def known_error(document: object) -> PenstockError:
    """Return the error that a document of a server describes; a code that this version does not know becomes P0808."""
    if not isinstance(document, Mapping) or "code" not in document:
        return PenstockError("P0808", "the answer is none of a Penstock server")
    position = _position(document.get("position"))
    code, message, hint = str(document["code"]), str(document.get("message", "")), document.get("hint")
    if code not in CODES:
        code, message = "P0808", f"{code}: {message}"
    return PenstockError(code, message, position, None if hint is None else str(hint))


def error_of(document: object) -> PenstockError:
    """Return the error of a problem document: ScriptErrors where it has several."""
    errors = document.get("errors") if isinstance(document, Mapping) else None
    if isinstance(errors, list) and len(errors) > 1:
        return ScriptErrors([known_error(one) for one in errors])
    return known_error(document)


def _position(place: object) -> Position | None:
    if not isinstance(place, Mapping):
        return None
    return Position(int(place["line"]), int(place["column"]), str(place["text"]), int(place["length"]))


def optional_error(document: object) -> PenstockError | None:
    return None if document is None else known_error(document)


def script_of(document: Mapping[str, Any]) -> RemoteScript:
    script = RemoteScript(_statement(one) for one in document["statements"])
    script.warnings = tuple(
        ScriptWarning(one["message"], _position(one.get("position")) or Position(1, 1), one.get("hint"))
        for one in document["warnings"]
    )
    return script


def _statement(document: Mapping[str, Any]) -> RemoteStatement:
    columns = document.get("columns")
    return RemoteStatement(
        document["kind"],
        document["state"],
        document.get("number"),
        document.get("version"),
        document.get("instant"),
        document.get("text"),
        None if columns is None else _columns(columns),
        document.get("rows"),
        optional_error(document.get("error")),
        document.get("check"),
        document.get("sql"),
        _notices_of(document),
        document.get("position"),
    )


def _notices_of(document: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(Notice(one["message"], one.get("hint"))) for one in document.get("notices", ()))


def _columns(columns: Sequence[Mapping[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((column["name"], column["type"]) for column in columns)


def query_of(document: Mapping[str, Any]) -> QueryView:
    return QueryView(
        document["name"],
        document["id"],
        document["state"],
        document["sql"],
        document["kind"] == "stream",
        _columns(document["columns"]),
        document["sink"],
        document["instant"],
        document["rows"],
        document["attributes"],
        optional_error(document["error"]),
        document.get("share"),
        document.get("first"),
        document.get("change"),
        _columns(document.get("selected", ())),
    )


def command_of(document: Mapping[str, Any]) -> CommandView:
    return CommandView(
        document["number"],
        document["at"],
        document["who"],
        document["sql"],
        document["state"],
        document["version"],
        optional_error(document["error"]),
        document.get("share"),
    )


def catalog_of(document: Mapping[str, Any]) -> CatalogView:
    sources = tuple(
        SourceView(
            one["name"],
            one["kind"] == "stream",
            one["connector"],
            _columns(one["columns"]),
            one["sql"],
            one["heartbeat"],
        )
        for one in document["sources"]
    )
    views = tuple(DeclaredView(one["name"], one["sql"], _columns(one.get("columns", ()))) for one in document["views"])
    queries = tuple(query_of(one) for one in document["queries"])
    unbound = tuple(
        UnboundView(one["kind"], one["name"], one["sql"], error_of(one["error"])) for one in document.get("unbound", ())
    )
    return CatalogView(sources, views, queries, tuple(document["functions"]), document["sql"], unbound)


def posted_of(document: Mapping[str, Any]) -> RemotePosted:
    rejected = tuple((one["line"], one["record"], one["reason"]) for one in document["rejected"])
    late, complete_to = document.get("late", 0), document.get("complete_to")
    return RemotePosted(
        document["rows"],
        document["repeated"],
        document["malformed"],
        rejected,
        late,
        complete_to,
        document.get("position"),
        _notices_of(document),
    )


def heartbeat_of(document: Mapping[str, Any]) -> RemoteHeartbeat:
    complete_to, position = document.get("complete_to"), document.get("position")
    return RemoteHeartbeat(document["ts"], document["repeated"], complete_to, position, _notices_of(document))


def punctuation_of(document: Mapping[str, object]) -> RemotePunctuation:
    position = document.get("position")
    shown = None if position is None else str(position)
    return RemotePunctuation(str(document["where"]), document["repeated"] is True, shown, _notices_of(document))


def running_of(document: Mapping[str, Any]) -> RemoteRunning:
    return RemoteRunning(document["id"], document["kind"], document["began"], document["who"], document["sql"])


def rows_of(table: pa.Table, headers: Mapping[str, str]) -> RemoteRows:
    """Return rows with the attributes in the headers of their answer."""
    staleness = headers.get("penstock-staleness")
    pairs = (pair.partition("=") for pair in headers.get("penstock-since", "").split(", ") if pair)
    since = {unquote(name): instant for name, _, instant in pairs}
    notices = tuple(unquote(one) for one in headers.get("penstock-notice", "").split("; ") if one)
    seconds = None if staleness is None else float(staleness)
    return RemoteRows(table, headers.get("penstock-instant"), seconds, since, notices)
