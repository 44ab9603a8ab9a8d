"""The contract between the doors of the server and what is behind them.

All methods may block and are called from threads of the doors' own. A mistake of the caller is a PenstockError. What a
method returns is data that does not change any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.control.entities.system import SessionFact
from penstock.errors import Notice, PenstockError, ScriptWarning
from penstock.language.statements.script import Script
from penstock.results.cancellation import Cancellation
from penstock.results.result_source import ResultRequest, ResultSource
from penstock.server.roles import ANYONE, Caller
from penstock.server_reports import CatalogView as CatalogView
from penstock.server_reports import CommandView as CommandView
from penstock.server_reports import DeclaredView as DeclaredView
from penstock.server_reports import QueryView as QueryView
from penstock.server_reports import SourceView as SourceView
from penstock.server_reports import UnboundView as UnboundView
from penstock.storage.documents import Document


@dataclass(frozen=True)
class StatementReply:
    """What a statement of a script has led to.

    Args:
        kind: such as `CREATE QUERY` or `SELECT`.
        state: of a command that of `CommandView`; DONE for one that only reads, CHECKED for one that was not executed.
        number: of the command; None for a statement that only reads.
        version: of the plan, from which on the command takes effect.
        instant: of a SELECT, the instant of its answer; of a query, the one after which it answers.
        text: the answer of SHOW, DESCRIBE and EXPLAIN.
        table: the rows of a SELECT.
        staleness: of a SELECT that reads a run, seconds since the batch as of which the answer is.
        since: of a SELECT that reads all that is kept of streams, by stream the instant after which that begins.
        results: of a SUBSCRIBE, which stands alone, the rows as they come; who gets the reply closes it.
        sql: of a statement of a difference, its text.
        check: of a query that was not registered, its plan, its cost, and how it could begin (`live/live_service.py`).
        schema: of a SELECT or a SUBSCRIBE that was only checked, the columns of its rows.
        notices: of a SELECT, what is to be known of its answer.
        position: of an INSERT, UPDATE or DELETE that has been carried out, for `ScriptRequest.after`.
        changed: of an INSERT, UPDATE or DELETE that has been carried out, of how many rows, where that is known.
    """

    kind: str
    state: str
    number: int | None = None
    version: int | None = None
    instant: str | None = None
    text: str | None = None
    table: pa.Table | None = None
    error: PenstockError | None = None
    staleness: float | None = None
    since: Mapping[str, str] = field(default_factory=dict)
    results: ResultSource | None = None
    check: Document | None = None
    sql: str | None = None
    schema: pa.Schema | None = None
    changed: int | None = None
    notices: tuple[Notice, ...] = ()
    position: str | None = None


@dataclass(frozen=True)
class ScriptReply:
    """The replies to the statements of a script, in their order. pending: commands were accepted that have not taken
    effect yet."""

    statements: tuple[StatementReply, ...]
    warnings: tuple[ScriptWarning, ...] = ()
    pending: bool = False


@dataclass(frozen=True)
class ScriptRequest:
    """A script to execute.

    Args:
        script: parsed by the door that it came through.
        key: the idempotency key, unique for the caller; None without one.
        wait: whether the reply waits until commands have taken effect.
        dry: check only, execute nothing.
        settings: of the session, as SET writes them.
        left: is set when the caller has left; one-time queries end then, commands do not.
        cursor: where a SUBSCRIBE continues; None: from now on.
        after: a position that a SELECT or SUBSCRIBE waits for; None for none.
        is_whole: the script has all declarations; the replies are to the statements of the difference.
    """

    script: Script
    caller: Caller
    key: str | None = None
    wait: bool = True
    dry: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    left: Cancellation = field(default_factory=Cancellation)
    cursor: str | None = None
    is_whole: bool = False
    after: str | None = None


@dataclass(frozen=True)
class StatementView:
    """A one-time query or a subscription that runs. began: ISO-8601."""

    id: str
    kind: str
    began: str
    who: str
    text: str


@dataclass(frozen=True)
class AttributeView:
    """An attribute of an entity. value, default: as text, None for NULL; unit: empty for none."""

    name: str
    value: str | None
    type: str
    unit: str
    settable: bool
    default: str | None
    help: str


@dataclass(frozen=True)
class EntityView:
    """An entity. relation: the control relation that lists it; queries: the names of those that it belongs to."""

    id: str
    kind: str
    name: str
    relation: str
    queries: tuple[str, ...] = ()
    attributes: tuple[AttributeView, ...] = ()


@dataclass(frozen=True)
class HealthView:
    """Whether the server works. seconds: since its last batch, None before the first; problem: why it is not ready."""

    alive: bool
    ready: bool
    version: int = 0
    batch: int = 0
    seconds: float | None = None
    problem: str | None = None


@dataclass(frozen=True)
class ServerEvent:
    """A batch, a command or a change of state. kind: `batch`, `command`, `state`; content: JSON values."""

    kind: str
    content: Mapping[str, object]


@dataclass(frozen=True)
class RowsPosted:
    """Rows that are durable.

    Args:
        repeated: the idempotency key was known, nothing was added.
        late: how many of the rows are late for sure, and become dead letters.
        complete_to: the instant up to which the elements of the source were complete, by which that is known; None
            where none of them had been read, or the source has no time.
        position: that of the rows, for `ScriptRequest.after`.
        notices: what is to be known of them.
    """

    rows: int
    repeated: bool = False
    late: int = 0
    complete_to: str | None = None
    position: str | None = None
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True)
class HeartbeatPosted:
    """A heartbeat that is durable.

    Args:
        ts: its timestamp, as the time of the stream is shown.
        repeated: the idempotency key was known, nothing was added.
        complete_to: as of `RowsPosted`, before it.
        position: as of `RowsPosted`.
        notices: what is to be known of it.
    """

    ts: str
    repeated: bool = False
    complete_to: str | None = None
    position: str | None = None
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True)
class PunctuationPosted:
    """A punctuation that is durable. where: as it is understood; the others as of `HeartbeatPosted`."""

    where: str
    repeated: bool = False
    position: str | None = None
    notices: tuple[Notice, ...] = ()


class EventSource(Protocol):
    """A subscription to events; those beyond a limit of unread ones are dropped."""

    def next(self, seconds: float) -> ServerEvent | None:
        """Return the next event, None where there is none within so many seconds."""

    def close(self) -> None:
        """End the subscription."""


class Service(Protocol):
    """What the doors need."""

    def execute(self, request: ScriptRequest) -> ScriptReply:
        """Execute a script. Raises ScriptErrors where it has errors, and then nothing is executed; P0802 for a
        statement that the caller's role does not allow."""

    def statements(self) -> Sequence[StatementView]:
        """Return the one-time queries and subscriptions that run."""

    def cancel(self, statement: str, caller: Caller) -> StatementView:
        """End a statement that runs. Raises PenstockError P0201, P0802."""

    def queries(self) -> Sequence[QueryView]: ...

    def query(self, name: str) -> QueryView:
        """Raises PenstockError P0201."""

    def plan(self, name: str, form: str) -> str:
        """Return the plan of a query. form: `json`, `text`, `mermaid`, `drawn` (SVG) or
        `sharing`, what it shares with others, as JSON. Raises PenstockError P0201."""

    def running_plan(self, query: str | None, source: str | None = None) -> str:
        """Return the plan that runs as SVG, of one query or of all. Raises PenstockError P0201."""

    def results(
        self, query: str, request: ResultRequest, caller: Caller = ANYONE, position: str | None = None
    ) -> ResultSource:
        """Return the results of a query.

        Args:
            caller: who reads.
            position: that is waited for before they begin; None for none.

        Raises:
            PenstockError: P0201 for an unknown query, P0711 and P0712 for results that are not kept.
        """

    def declaration(self, name: str) -> Source:
        """Return a stream or relation into which rows can be posted. Raises PenstockError P0201, P0208 for one of
        another connector."""

    def post(self, name: str, rows: pa.Table, key: str | None, caller: Caller) -> RowsPosted:
        """Add rows; they are durable afterwards. Raises Busy where too many are unread."""

    def advance(self, name: str, ts: int | str, key: str | None, caller: Caller) -> HeartbeatPosted:
        """Add a heartbeat to a stream, in order with its rows; it is durable afterwards. ts: as a document has it.
        Raises PenstockError P0102 for another timestamp, P0201, P0380."""

    def punctuate(self, name: str, where: str, key: str | None, caller: Caller) -> PunctuationPosted:
        """Add a punctuation to a stream, in order with its rows; it is durable afterwards. Raises Busy where the stream
        keeps too many, PenstockError P0101, P0201, P0202, P0203, P0380, P0381."""

    def commands(self, after: int, limit: int) -> Sequence[CommandView]: ...

    def command(self, number: int) -> CommandView:
        """Raises PenstockError P0201."""

    def catalog(self) -> CatalogView: ...

    def entities(self, kind: str | None, query: str | None) -> Sequence[EntityView]:
        """Return entities without their attributes. kind: those of one kind alone; query: those of one query."""

    def entity(self, id_: str) -> EntityView:
        """Return an entity with its attributes. Raises PenstockError P0201."""

    def tap(self, id_: str, rows: int, seconds: float) -> ResultSource:
        """Return the next rows that pass over an edge of the plan, with the id of its queue. It ends after so many rows
        or seconds. Raises PenstockError P0201 for what is no queue, P0711 where nothing runs."""

    def list_sessions(self, sessions: Callable[[], Sequence[SessionFact]]) -> None:
        """List the sessions of a door among those of the server. sessions: returns them, in any thread."""

    def catalog_version(self) -> object:
        """Return an object that is the same one as long as nothing is declared, changed or dropped."""

    def health(self) -> HealthView: ...

    def stop_reason(self) -> PenstockError | None:
        """Return why the server is to stop; None while it is not."""

    def metrics(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""

    def events(self) -> EventSource: ...

    def close(self) -> None:
        """End after the round in hand."""
