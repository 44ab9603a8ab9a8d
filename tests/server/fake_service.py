"""A service behind the doors that runs nothing: a session of this process, and results that a test emits."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.control.entities.system import SessionFact
from penstock.errors import Busy, PenstockError, nearest
from penstock.language.statements import OneTimeSelect, SubscribeStatement
from penstock.results.result_source import EndOfResults, ResultPart, ResultRequest, ResultSource
from penstock.server.access import StatementAccess
from penstock.server.policy import ServerPolicy
from penstock.server.roles import ANYONE, AccessRole, Caller
from penstock.server.service import (
    CatalogView,
    CommandView,
    DeclaredView,
    EntityView,
    HealthView,
    HeartbeatPosted,
    PunctuationPosted,
    QueryView,
    RowsPosted,
    ScriptReply,
    ScriptRequest,
    ServerEvent,
    SourceView,
    StatementReply,
    StatementView,
)
from penstock.server.statements.running_statements import RunningStatements, RunningSubscription
from penstock.session import Session
from penstock.settings import Settings
from penstock.types import TIMESTAMP, Schema, type_name

RESULTS = pa.schema([("ts", TIMESTAMP), ("op", pa.string()), ("room", pa.string()), ("n", pa.int64())])


@dataclass
class Results:
    """A subscription to what `FakeService.emit` adds."""

    fake: FakeService
    query: str
    request: ResultRequest
    place: int
    closed: bool = False

    @property
    def schema(self) -> pa.Schema:
        return RESULTS

    @property
    def cursor(self) -> str | None:
        return None if self.request.snapshot else f"{self.query.lower()}.{self.place}"

    def next(self, seconds: float) -> ResultPart | None:
        with self.fake.changed:
            parts = self.fake.parts[self.query.lower()]
            if self.place >= len(parts) and self.request.until_now:
                raise EndOfResults
            self.fake.changed.wait_for(lambda: self.place < len(parts) or self.closed, seconds)
            if self.place >= len(parts):
                return None
            if self.place < self.fake.forgotten:
                raise PenstockError("P0413", "rows are gone")
            self.place += 1
            return parts[self.place - 1]

    def on_change(self, listener: Callable[[], None]) -> None:
        return None

    def close(self) -> None:
        with self.fake.changed:
            self.closed = True
            self.fake.changed.notify_all()


@dataclass
class Events:
    waiting: queue.Queue[ServerEvent] = field(default_factory=queue.Queue)
    closed: bool = False

    def next(self, seconds: float) -> ServerEvent | None:
        try:
            return self.waiting.get(timeout=seconds) if seconds else self.waiting.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        self.closed = True


class FakeService:
    """Declares and answers with a session; a query has the results that a test emits."""

    def __init__(self) -> None:
        self.session = Session()
        self.log: list[CommandView] = []
        self.parts: dict[str, list[ResultPart]] = {}
        self.changed = threading.Condition()
        self.open: list[Results] = []
        self.listeners: list[Events] = []
        self.forgotten = 0
        self.posts: dict[tuple[str, str], RowsPosted] = {}
        self.busy = 0.0
        self.problem: str | None = None
        self.reason: PenstockError | None = None
        #: A SELECT waits for this while it is set, and notes whether its caller has left.
        self.slow = 0.0
        self.cancelled = threading.Event()
        self.closed = False
        self.lock = threading.RLock()
        self.running = RunningStatements()

    # -- statements --------------------------------------------------------------------------------------------

    def execute(self, request: ScriptRequest) -> ScriptReply:
        script, statements, text = request.script, request.script.statements, request.script.source.text
        StatementAccess(ServerPolicy()).check_script(script, request.caller)
        kinds = [one.statement_kind for one in statements]
        if request.is_whole:
            trial = Session()
            trial.declare(text, one_time=True)
            texts = [script.text_of(one) for one in statements]
            told = zip(kinds, texts, strict=True)
            return ScriptReply(tuple(StatementReply(kind, "CHECKED", sql=text) for kind, text in told))
        if self.slow and any(isinstance(one, OneTimeSelect) for one in statements):
            self._wait(request)
        if statements and isinstance(statements[0], SubscribeStatement) and not request.dry:
            return self._subscribed(request, statements[0])
        with self.lock:
            for name, value in request.settings.items():
                Settings().with_value(name, value)
            if request.dry:
                trial = Session()
                trial.catalog = self.session.catalog
                trial.declare(text, one_time=True)
                return ScriptReply(tuple(StatementReply(kind, "CHECKED") for kind in kinds))
            execution = self.session.execute(text, one_time=True)
            answers = list(execution.answers)
            replies = []
            for statement, kind in zip(statements, kinds, strict=True):
                if statement.role is not AccessRole.READ:
                    number = len(self.log) + 1
                    self.log.append(
                        CommandView(number, "2024-01-01T00:00:00Z", request.caller.name, kind, "RUNNING", number)
                    )
                    replies.append(StatementReply(kind, "RUNNING", number, number))
                elif kind == "SET":
                    replies.append(StatementReply(kind, "DONE"))
                else:
                    answer = answers.pop(0)
                    if isinstance(answer, str):
                        replies.append(StatementReply(kind, "DONE", text=answer))
                    else:
                        instant = None if answer.tick is None else answer.query.domain.show(answer.tick)
                        replies.append(StatementReply(kind, "DONE", instant=instant, table=answer.table))
            for name in execution.queries:
                self.parts.setdefault(name.lower(), [])
            return ScriptReply(tuple(replies), self.session.warnings, pending=not request.wait)

    def _wait(self, request: ScriptRequest) -> None:
        with self.running.running("SELECT", request.script.source.text, request.caller, request.left):
            if request.left.wait(self.slow):
                self.cancelled.set()
                raise PenstockError("P0726", "cancelled")

    def statements(self) -> Sequence[StatementView]:
        return [StatementView(one.id, one.kind, "", one.caller.name, one.text) for one in self.running.all()]

    def cancel(self, statement: str, caller: Caller) -> StatementView:
        one = self.running.cancel(statement, caller)
        return StatementView(one.id, one.kind, "", one.caller.name, one.text)

    def _subscribed(self, request: ScriptRequest, statement: SubscribeStatement) -> ScriptReply:
        assert statement.name is not None
        wanted = ResultRequest(request.cursor, snapshot=statement.snapshot is not None)
        results = self.results(statement.name.text, wanted)
        source = RunningSubscription(self.running, request.script.source.text, request.caller, results)
        return ScriptReply((StatementReply("SUBSCRIBE", "RUNNING", results=source),))

    # -- what there is -----------------------------------------------------------------------------------------

    def queries(self) -> Sequence[QueryView]:
        return [self.query(name) for name in self.session.catalog.queries]

    def query(self, name: str) -> QueryView:
        found = self.session.catalog.queries.get(name.lower())
        if found is None:
            raise PenstockError("P0201", f"unknown query {name}", hint=nearest(name, self.session.catalog.queries))
        columns = tuple((f.name, type_name(f.type)) for f in found.output_schema)
        return QueryView(
            found.name,
            f"q{len(found.name)}",
            "RUNNING",
            found.text,
            found.root.is_stream,
            columns,
            "RESULTS",
            selected=tuple((name, type_name(type_)) for name, type_ in found.selected_columns),
        )

    def plan(self, name: str, form: str) -> str:
        self.query(name)
        return self.session.explain(name, form)

    def declaration(self, name: str) -> Source:
        found = self.session.catalog.sources.get(name.lower())
        if found is None:
            raise PenstockError("P0201", f"unknown stream {name}", hint=nearest(name, self.session.catalog.sources))
        if found.connector not in ("MEMORY", "HTTP"):
            raise PenstockError("P0208", f"{name} is declared FROM {found.connector}, which takes no rows")
        return found

    def post(self, name: str, rows: pa.Table, key: str | None, caller: Caller) -> RowsPosted:
        if self.busy:
            raise Busy("too many rows are unread", self.busy)
        if key is not None and (caller.name, key) in self.posts:
            return RowsPosted(self.posts[caller.name, key].rows, repeated=True)
        values = tuple(tuple(row.values()) for row in rows.to_pylist())
        self.session.catalog = self.session.catalog.with_rows(name, values)
        posted = RowsPosted(len(values))
        if key is not None:
            self.posts[caller.name, key] = posted
        return posted

    def advance(self, name: str, ts: int | str, key: str | None, caller: Caller) -> HeartbeatPosted:
        self.declaration(name)
        return HeartbeatPosted(str(ts))

    def punctuate(self, name: str, where: str, key: str | None, caller: Caller) -> PunctuationPosted:
        self.declaration(name)
        return PunctuationPosted(where)

    def commands(self, after: int, limit: int) -> Sequence[CommandView]:
        return [one for one in self.log if one.number > after][:limit]

    def command(self, number: int) -> CommandView:
        for one in self.log:
            if one.number == number:
                return one
        raise PenstockError("P0201", f"there is no command {number}")

    def catalog(self) -> CatalogView:
        catalog = self.session.catalog
        sources = tuple(
            SourceView(s.name, s.is_stream, s.connector, columns(s.columns), catalog.texts[key])
            for key, s in catalog.sources.items()
        )
        views = tuple(DeclaredView(view.name, view.text, columns(view.root.schema)) for view in catalog.views.values())
        return CatalogView(sources, views, tuple(self.queries()), tuple(catalog.functions), "")

    def running_plan(self, query: str | None, source: str | None = None) -> str:
        if query is not None and query != "warm":
            raise PenstockError("P0201", f"unknown query {query}")
        return '<svg xmlns="http://www.w3.org/2000/svg"/>'

    def entities(self, kind: str | None, query: str | None) -> Sequence[EntityView]:
        found = EntityView("query:1", "query", "warm", "penstock.queries", ("warm",))
        return [found] if kind in (None, "query") and query in (None, "warm") else []

    def entity(self, id_: str) -> EntityView:
        for one in self.entities(None, None):
            if one.id == id_:
                return one
        raise PenstockError("P0201", f"unknown entity {id_}")

    def tap(self, id_: str, rows: int, seconds: float) -> ResultSource:
        raise PenstockError("P0201", f"there is no queue {id_}")

    def list_sessions(self, sessions: Callable[[], Sequence[SessionFact]]) -> None:
        return None

    def catalog_version(self) -> object:
        return self.session.catalog

    def health(self) -> HealthView:
        return HealthView(True, self.problem is None, len(self.log), 7, 0.5, self.problem)

    def stop_reason(self) -> PenstockError | None:
        return self.reason

    def metrics(self) -> bytes:
        return b"# TYPE penstock_batches_total counter\npenstock_batches_total 7\n"

    def close(self) -> None:
        self.closed = True

    # -- subscriptions -----------------------------------------------------------------------------------------

    def results(
        self, query: str, request: ResultRequest, caller: Caller = ANYONE, position: str | None = None
    ) -> Results:
        self.query(query)
        parts = self.parts[query.lower()]
        place = 0 if request.beginning or request.snapshot else len(parts)
        if request.cursor is not None:
            head, _, number = request.cursor.partition(".")
            if head != query.lower() or not number.isascii() or not number.isdecimal():
                raise PenstockError("P0803", f"{request.cursor!r} is no cursor of {query}")
            place = int(number)
        subscription = Results(self, query, request, place)
        self.open.append(subscription)
        return subscription

    def emit(self, name: str, *rows: tuple[str, str, int], size: int = 1) -> None:
        """Add a part with rows (op, room, n)."""
        with self.changed:
            parts = self.parts[name.lower()]
            columns_ = [[0] * len(rows), *(list(values) for values in zip(*rows, strict=True))]
            arrays = [pa.array(v, f.type) for v, f in zip(columns_, RESULTS, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=RESULTS)
            for _ in range(size):
                parts.append(ResultPart(batch, f"{name.lower()}.{len(parts) + 1}"))
            self.changed.notify_all()

    def events(self) -> Events:
        events = Events()
        self.listeners.append(events)
        return events

    def announce(self, kind: str, **content: object) -> None:
        for events in self.listeners:
            events.waiting.put(ServerEvent(kind, content))


def columns(schema: Schema) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, type_name(field.type)) for field in schema)


def eventually(condition: object, seconds: float = 10.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.01)
