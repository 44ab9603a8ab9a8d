"""The service of a live system: commands go to its control, reads to the engine.

Roles and the text of a statement are checked before the control sees it, the bound command by the control
before it is accepted (`server/access.py`).
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.algebra.optimizer.cost import plan_cost
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.punctuations import shown_punctuation
from penstock.algebra.properties.statistics import Statistics
from penstock.connectors.sources.memory import typed_table
from penstock.control.drafting.script import placed_at
from penstock.control.engine import Engine
from penstock.control.entities.constraints import suggested_promises
from penstock.control.entities.queries import shedding_texts
from penstock.control.entities.running_plan import running_plan, running_plan_document
from penstock.control.entities.sharing import sharing_of
from penstock.control.entities.system import SessionFact, SystemView
from penstock.control.heartbeats import check_stream, heartbeat_notices, tick_of
from penstock.control.life.listed_query import ListedQuery
from penstock.control.live.control import Control
from penstock.control.outcomes import CommandOutcome, CommandState, Principal, StatementOutcome
from penstock.control.punctuations import punctuation_notices, punctuation_of
from penstock.control.registry import quoted
from penstock.control.row_changes import inserted_table, late_rows, row_notices
from penstock.errors import Notice, PenstockError, as_name, nearest
from penstock.language.commands import (
    AdvanceStream,
    AlterQuery,
    Cancel,
    Command,
    CreateQueryCommand,
    Describe,
    ExplainCommand,
    ExplainKind,
    ExportCommand,
    InsertRows,
    PunctuateStream,
    ReplaceQuery,
    SelectOnce,
    ShowCommand,
    Subscribe,
    Unchanged,
)
from penstock.language.statements import AdvanceStatement, CancelStatement, Insert, SetSetting, SubscribeStatement
from penstock.language.statements.show import SUGGESTED
from penstock.physical.planning.state_size.summary import query_state
from penstock.redaction import redacted_text
from penstock.results.cancellation import Cancellation
from penstock.results.reader import reader_schema
from penstock.results.result_source import ResultRequest, ResultSource
from penstock.runtime.live.starts import starts_text
from penstock.runtime.local.explain import explain
from penstock.runtime.local.one_time import sources_of
from penstock.runtime.monitoring.prometheus import metrics_text
from penstock.server.access import StatementAccess
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
from penstock.server.statements.door_facts import door_facts
from penstock.server.statements.entity_views import entity_view, entity_views
from penstock.server.statements.listed_views import (
    bound_query,
    command_view,
    constraints_as_lines,
    late_notice,
    plan_change_text,
    posted,
    promise_texts,
    queries_as_lines,
    query_view,
    shown_tick,
    statement_view,
    table_of_queries,
    unbound_views,
)
from penstock.server.statements.positions import await_read, position_of, position_text
from penstock.server.statements.results_to_come import ResultsToCome
from penstock.server.statements.running_statements import SUBSCRIBE, RunningStatements, RunningSubscription
from penstock.server.statements.selecting import select_scope
from penstock.server.statements.tapped_edge import tapped
from penstock.server.statements.temporary_queries import TemporaryQueries, TemporaryResults
from penstock.server.tokens import TokenFile
from penstock.server_reports import listed_table
from penstock.settings import FIXED
from penstock.storage.documents import Document
from penstock.types import type_name

# --- What a dry run returns for a query: its plan, what it will keep and process, and how it could begin now.

#: Statements of a script up to which a check compares queries with those that run.
COMPARED = 20


def query_of_command(command: Command | None) -> Query | None:
    """Return the query that a command registers; None for another command."""
    if isinstance(command, CreateQueryCommand):
        return command.query
    if isinstance(command, AlterQuery) and isinstance(command.action, ReplaceQuery):
        return command.action.query
    return None


def query_check(query: Query, starts: Sequence[Document], view: SystemView | None) -> Document:
    """Return the plan of `query`, the estimates of its state and of the rows a second that its operators process,
    `starts`, its possible starts, and what it would share with the queries that run.

    Args:
        view: what runs; None where it is not to be compared, as that takes a look at every step.
    """
    statistics = Statistics()
    root = optimize(query.root)
    return {
        "query": query.name,
        "plan": explain(query, "text"),
        "state": query_state(query, statistics, optimized=root).as_json(),
        "rows_per_second": round(plan_cost(root, statistics), 3),
        "starts": list(starts),
        "sharing": None if view is None else sharing_of(view, query, False).as_json(),
    }


# --- Events of a live system for callers who read them one after the other.

#: Events that wait for a reader at most; later ones are dropped.
_MOST_EVENTS = 10_000


class LiveEvents:
    """The events that one caller has not read yet."""

    def __init__(self, ended: Callable[[LiveEvents], None]) -> None:
        self._waiting: queue.Queue[ServerEvent] = queue.Queue(_MOST_EVENTS)
        self._ended = ended

    def put(self, event: ServerEvent) -> None:
        if not self._waiting.full():
            self._waiting.put(event)

    def next(self, seconds: float) -> ServerEvent | None:
        try:
            return self._waiting.get(timeout=seconds) if seconds else self._waiting.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        self._ended(self)


class EventListeners:
    """All callers that read events at present."""

    def __init__(self) -> None:
        self._listeners: tuple[LiveEvents, ...] = ()

    def begin(self) -> LiveEvents:
        """Return the events of a new caller, from now on."""
        events = LiveEvents(self._end)
        self._listeners = (*self._listeners, events)
        return events

    def _end(self, events: LiveEvents) -> None:
        self._listeners = tuple(one for one in self._listeners if one is not events)

    def announce(self, kind: str, content: Mapping[str, object]) -> None:
        """Give an event to all callers."""
        for events in self._listeners:
            events.put(ServerEvent(kind, content))


#: States of commands that have not taken effect yet.
_UNFINISHED = (CommandState.PENDING.value, CommandState.HYDRATING.value)


def _nothing_set(name: str) -> Notice:
    """Return the notice of a SET that is the last statement of what was sent."""
    system = "" if name.lower().startswith(FIXED) else f", ALTER SYSTEM SET {name} while it runs"
    hint = f"penstock serve --set {name}=... sets it for the server{system}"
    return Notice(
        "nothing changes: SET holds for the statements behind it in the same script, and there are none", hint
    )


#: Connectors whose rows are posted.
_POSTED = ("MEMORY", "HTTP")


class LiveService:
    """See the contract `Service`.

    Args:
        seconds: how long a reply waits for commands; those that take longer are PENDING.
        stalled: seconds without a batch after which the server is not ready; 0: never.
        tokens: of the server, None where none are required.
    """

    def __init__(
        self,
        control: Control,
        engine: Engine,
        access: StatementAccess,
        seconds: float = 60.0,
        stalled: float = 60.0,
        tokens: TokenFile | None = None,
    ) -> None:
        self._control = control
        self._engine = engine
        self._access = access
        self._seconds = seconds
        self._stalled = stalled
        self._listeners = EventListeners()
        self._running = RunningStatements()
        self._tokens = tokens
        #: By door that has sessions, what returns them.
        self._sessions: list[Callable[[], Sequence[SessionFact]]] = []
        self._temporary = TemporaryQueries(control)
        control.on_delivered = lambda batch: self._listeners.announce("batch", batch)
        engine.serve()
        self._temporary.drop_left()

    # -- statements --------------------------------------------------------------------------------------------

    def execute(self, request: ScriptRequest) -> ScriptReply:
        statements = request.script.statements
        self._access.check_script(request.script, request.caller)
        for name in request.settings:
            self._access.policy.check_setting(name)
        self._temporary.wait()
        if request.is_whole:
            return self._applied(request)
        if len(statements) > 1 and any(isinstance(one, SubscribeStatement) for one in statements):
            message = "SUBSCRIBE is answered with rows as they come, so it is a script of its own"
            raise PenstockError("P0732", message, hint="send the other statements before it")
        if request.dry:
            return self._checked(request)
        if statements and all(isinstance(one, CancelStatement) for one in statements):
            # Nothing has to be bound, so nothing waits for commands in hand.
            return self._cancelled([one for one in statements if isinstance(one, CancelStatement)], request)
        inserts = any(isinstance(one, Insert | AdvanceStatement) for one in statements)
        beats = self._control.version().sources if inserts else {}
        outcomes = self._control.submit(
            request.script,
            request.settings,
            _principal(request.caller),
            request.key,
            request.wait,
            self._seconds or None,
        )
        replies: list[StatementReply] = []
        for one in outcomes:
            with placed_at(one.position):
                replies.append(self._with_row_notices(one, self._reply(one, request), beats))
        if replies and isinstance(statements[-1], SetSetting):
            replies[-1] = replace(replies[-1], notices=(*replies[-1].notices, _nothing_set(statements[-1].name.text)))
        return self._announced(replies, outcomes)

    def _with_row_notices(
        self, one: StatementOutcome, reply: StatementReply, beats: Mapping[str, int]
    ) -> StatementReply:
        """Return the reply to an INSERT with notices of what is wrong with its rows, though they are taken, and of
        ADVANCE and PUNCTUATE where they do nothing. beats: up to which ticks the sources were complete before it."""
        command = one.command
        if isinstance(command, AdvanceStream) and reply.position is not None:
            source = self._source(command.source)
            known = heartbeat_notices(source, command.tick, beats.get(source.name.lower()))
            return replace(reply, notices=(*reply.notices, *known))
        if isinstance(command, PunctuateStream):
            return replace(reply, notices=(*reply.notices, *punctuation_notices(command.punctuation)))
        if not isinstance(command, InsertRows) or reply.position is None:
            return reply
        source = self.declaration(command.source)
        if not source.has_timestamps:
            return reply
        rows = inserted_table(source, command)
        late = late_rows(source, rows, beats.get(source.name.lower()))
        of_late = (late_notice(source.name, len(command.rows), late),) if late else ()
        return replace(reply, notices=(*reply.notices, *of_late, *row_notices(source, rows)))

    def _applied(self, request: ScriptRequest) -> ScriptReply:
        """Bring the declarations to those of the script; reply to each statement of the difference."""
        request.caller.need(AccessRole.CONTROL, "to change the catalog")
        outcomes = self._control.apply(
            request.script,
            request.settings,
            _principal(request.caller),
            request.key,
            request.wait,
            self._seconds or None,
            request.dry,
        )
        replies = [self._check_reply(one) if request.dry else self._reply(one, request) for one in outcomes]
        pairs = zip(replies, outcomes, strict=True)
        return self._announced([replace(reply, sql=redacted_text(one.text)) for reply, one in pairs], outcomes)

    def _announced(self, replies: Sequence[StatementReply], outcomes: Sequence[StatementOutcome]) -> ScriptReply:
        """Announce commands to those who follow events; return the reply to all of a script."""
        for reply in replies:
            if reply.number is not None:
                content = {"number": reply.number, "kind": reply.kind, "state": reply.state}
                self._listeners.announce("command", content)
        warnings = tuple(warning for one in outcomes for warning in one.warnings)
        return ScriptReply(tuple(replies), warnings, any(reply.state in _UNFINISHED for reply in replies))

    def _checked(self, request: ScriptRequest) -> ScriptReply:
        """Check what would be refused of a script, as far as that is known before it is executed."""
        outcomes = self._control.submit(request.script, request.settings, _principal(request.caller), dry=True)
        replies: list[StatementReply] = []
        for place, one in enumerate(outcomes):
            with placed_at(one.position):
                self._check_answer(one, request)
            replies.append(self._check_reply(one, place < COMPARED))
        return ScriptReply(tuple(replies), tuple(warning for one in outcomes for warning in one.warnings))

    def _check_answer(self, one: StatementOutcome, request: ScriptRequest) -> None:
        """Raises what a statement would be refused with that is no command."""
        command = one.command
        if isinstance(command, Cancel):
            self._running.known(command.id, request.caller)
        elif isinstance(command, Subscribe) and isinstance(command.query, str):
            self._subscribed(command, one.text, request).close()
        elif isinstance(command, Subscribe):
            self._check_temporary(request)

    def _check_reply(self, one: StatementOutcome, compare: bool = False) -> StatementReply:
        query = query_of_command(one.command)
        view = self.view() if compare else None
        check = (
            None if query is None else query_check(query, [one.as_json() for one in self._engine.starts(query)], view)
        )
        return StatementReply(one.kind, "CHECKED", check=check, schema=self._row_schema(one.command))

    def _row_schema(self, command: object) -> pa.Schema | None:
        """Return the columns of the rows that a statement answers with, None for one without."""
        if isinstance(command, SelectOnce):
            return command.query.output_schema
        if isinstance(command, Subscribe):
            query = command.query if isinstance(command.query, Query) else bound_query(self._known(command.query))
            return reader_schema(query.output_schema, query.root.is_stream)
        return None

    def _reply(self, one: StatementOutcome, request: ScriptRequest) -> StatementReply:
        kind, outcome, command = one.kind, one.outcome, one.command
        if outcome is not None:
            return StatementReply(
                kind,
                outcome.state.value,
                outcome.number,
                outcome.version,
                self._instant(outcome),
                error=outcome.error,
                changed=outcome.rows,
                position=position_of(self._control, command, outcome),
                notices=() if not isinstance(command, InsertRows) else self._kept_by_readers(command.source),
            )
        if isinstance(command, SelectOnce):
            return self._selected(kind, one.text, command, request)
        if isinstance(command, Subscribe):
            return StatementReply(kind, "RUNNING", results=self._subscribed(command, one.text, request))
        text: str | None = None
        table: pa.Table | None = None
        if isinstance(command, Cancel):
            self._running.cancel(command.id, request.caller)
        elif isinstance(command, ShowCommand):
            text, table = self._shown(command)
        elif isinstance(command, Describe):
            lines = [f"{name} {type_}" for name, type_ in command.columns]
            text = "\n".join([f"{command.kind} {command.name}", *lines, redacted_text(command.text)])
        elif isinstance(command, ExplainCommand):
            if command.kind is ExplainKind.START:
                text = starts_text(self._engine.starts(command.query))
            elif command.kind is ExplainKind.SHARING:
                text = sharing_of(self.view(), command.query, command.registered).text
            else:
                text = self._explained(command)
        elif isinstance(command, ExportCommand):
            text = running_plan_document(self.view(), command.query, command.logical)
        elif isinstance(command, Unchanged):
            text = command.reason
        return StatementReply(kind, "DONE", text=text, table=table)

    def _await(self, position: str | None, left: Cancellation) -> None:
        """Wait until what was posted up to a position can be read. Raises PenstockError P0712, P0725, P0726."""
        await_read(position, self._engine.has_read, left, self._seconds or None)

    def _explained(self, command: ExplainCommand) -> str:
        """Return the plan of a query; of a registered one with what is chosen of it, and whether it changes."""
        if not command.registered:
            return explain(command.query)
        one = self._known(command.query.name)
        return explain(bound_query(one)) + plan_change_text(one)

    def _selected(self, kind: str, text: str, command: SelectOnce, request: ScriptRequest) -> StatementReply:
        sources = {name: source.domain for name, source in sources_of(command.query).items()}
        with self._running.running(kind, text, request.caller, request.left) as statement:
            self._await(request.after, request.left)
            scope = select_scope(command.query, self._control, self.view)
            found = self._engine.select(command.query, scope, statement.id, request.left)
        tick = found.answer.tick
        instant = None if tick is None else command.query.domain.show(tick)
        since = {
            name: domain.show(found.since[name])
            for name, domain in sources.items()
            if domain is not None and name in found.since
        }
        return StatementReply(
            kind,
            "DONE",
            instant=instant,
            table=found.answer.table,
            staleness=found.staleness,
            since=since,
            notices=found.notices,
        )

    def _shown(self, command: ShowCommand) -> tuple[str, pa.Table | None]:
        """Return what SHOW lists, an entry a line; queries also as a table."""
        if command.kind != "QUERIES":
            rows = self._rows(command)
            lines = (", with the commands up to " if command.kind == "VERSIONS" else " ").join
            shown = [row[-1] for row in rows] if command.entries else map(lines, rows)
            if command.kind == "CONSTRAINTS":
                shown = constraints_as_lines(rows, self._control.unused_promises())
            return "\n".join(shown), listed_table(command.kind, rows)
        shed, written = shedding_texts(self.view()), dict(command.entries)
        remarks = {**promise_texts(self._control.unused_promises()), **shed}
        table = table_of_queries(self._control.queries(), self._control.version(), written, remarks)
        return "\n".join(queries_as_lines(table)), table

    def _rows(self, command: ShowCommand) -> list[tuple[str, ...]]:
        if command.kind in ("STATEMENTS", "SUBSCRIPTIONS"):
            running = [one for one in self.statements() if command.kind == "STATEMENTS" or one.kind == SUBSCRIBE]
            return [(one.id, one.began, one.who, _on_one_line(one.text)) for one in running]
        if command.kind == "COMMANDS":
            views = (command_view(*one) for one in self._control.commands())
            return [(str(one.number), one.state, one.who, _on_one_line(one.sql)) for one in views]
        if command.kind == "VERSIONS":
            version = self._control.version()
            return [(str(version.number), str(version.command))]
        if command.kind == SUGGESTED:
            return [*suggested_promises(self.view(), [name.lower() for name, _ in command.entries])]
        return [(name, redacted_text(declared or name)) for name, declared in command.entries]

    # -- statements that run -----------------------------------------------------------------------------------

    def statements(self) -> Sequence[StatementView]:
        return [statement_view(one) for one in self._running.all()]

    def cancel(self, statement: str, caller: Caller) -> StatementView:
        return statement_view(self._running.cancel(statement, caller))

    def _cancelled(self, statements: Sequence[CancelStatement], request: ScriptRequest) -> ScriptReply:
        for one in statements:
            self._running.cancel(one.id, request.caller)
        return ScriptReply(tuple(StatementReply("CANCEL", "DONE") for _ in statements))

    def _subscribed(self, command: Subscribe, text: str, request: ScriptRequest) -> RunningSubscription:
        """Return the rows of a SUBSCRIBE as they come."""
        self._await(request.after, request.left)
        results = ResultRequest(
            request.cursor,
            snapshot=command.snapshot,
            progress=command.progress,
            after=command.as_of,
            up_to=command.up_to,
        )
        if isinstance(command.query, str):
            source = self._source_of(command.query, results)
        else:
            source = self._of_temporary(results, request)
        subscription = RunningSubscription(self._running, text, request.caller, source)
        request.left.when_set(subscription.cancel)
        return subscription

    def _check_temporary(self, request: ScriptRequest) -> None:
        """Raises PenstockError P0802, P0712 for a SUBSCRIBE to a query of its own."""
        request.caller.need(AccessRole.CONTROL, "to subscribe to a query that is not registered")
        if request.cursor is not None:
            hint = "register it with CREATE QUERY to continue after a lost connection"
            raise PenstockError("P0712", "a query that ends with its subscription has no cursors", hint=hint)

    def _of_temporary(self, results: ResultRequest, request: ScriptRequest) -> ResultSource:
        """Register the query of a SUBSCRIBE; return its results from the first on."""
        self._check_temporary(request)
        (statement,) = (one for one in request.script.statements if isinstance(one, SubscribeStatement))
        assert statement.query is not None, "it has no name"
        name = self._temporary.begin(
            request.script, statement.query, request.settings, _principal(request.caller), self._seconds or None
        )
        try:
            source = self._source_of(name, replace(results, beginning=not results.snapshot))
        except BaseException:
            self._temporary.end(name)
            raise
        return TemporaryResults(self._temporary, name, source)

    def _instant(self, outcome: CommandOutcome) -> str | None:
        """Return τ0 of the query that a command began; None for other commands, and where the query is gone."""
        place = None if outcome.tick is None else self._control.place_of(outcome.number)
        for one in self._control.stored.values():
            if place is not None and one.query is not None and one.query.place == place and outcome.tick is not None:
                bound = self._control.catalog.queries.get(one.name.lower())
                return None if bound is None else bound.domain.show(outcome.tick)
        return None

    # -- what there is -----------------------------------------------------------------------------------------

    def queries(self) -> Sequence[QueryView]:
        listed, version = self._control.queries(), self._control.version()
        return [query_view(one, version) for one in listed]

    def query(self, name: str) -> QueryView:
        return query_view(self._known(name), self._control.version())

    def plan(self, name: str, form: str) -> str:
        if form == "sharing":
            stored = self._known(name).stored
            return json.dumps(
                sharing_of(self.view(), bound_query(self._known(name)), True, stored.name).as_json(), indent=2
            )
        return explain(bound_query(self._known(name)), form)

    def running_plan(self, query: str | None, source: str | None = None) -> str:
        return running_plan(self.view(), None if query is None else self._known(query).stored.name, source)

    def results(
        self, query: str, request: ResultRequest, caller: Caller = ANYONE, position: str | None = None
    ) -> ResultSource:
        text = f"SUBSCRIBE TO {quoted(query)}"
        self._await(position, Cancellation())
        return RunningSubscription(self._running, text, caller, self._source_of(query, request))

    def _source_of(self, name: str, request: ResultRequest) -> ResultSource:
        one = self._known(name)
        query = bound_query(one)
        if one.has_result:
            try:
                return self._engine.results(one.query.place, query, request)
            except PenstockError as error:
                # One that waits for rows has none before it begins for the first time.
                if not one.query.answer.waits or error.code != "P0711":
                    raise
        schema = reader_schema(query.output_schema, query.root.is_stream)
        return ResultsToCome(lambda: self._begun(one, request), schema, request.until_now)

    def _begun(self, one: ListedQuery, request: ResultRequest) -> ResultSource | None:
        """Return the results of a query that was still to begin, from the first on unless `request` has a cursor or a
        snapshot; None as long as it has not begun. Raises PenstockError P0201 where it never will."""
        found = next((each for each in self._control.queries() if each.stored.id == one.stored.id), None)
        if found is None:
            message = f"query {one.stored.name} has not begun: it was dropped, or its command failed"
            raise PenstockError("P0201", message, hint="GET /v1/commands has the error of a command")
        if not found.has_result or found.query.answer.waits:
            return None
        beginning = request.beginning or (request.cursor is None and not request.snapshot)
        return self._engine.results(found.query.place, bound_query(found), replace(request, beginning=beginning))

    def _known(self, name: str) -> ListedQuery:
        listed = self._control.queries()
        for one in listed:
            if one.stored.name.lower() == name.lower():
                return one
        kind = self._control.catalog.kind(name)
        if kind is not None:
            how = f"SUBSCRIBE TO (SELECT * FROM {name}) has its rows as they come; results are those of a query"
            raise PenstockError("P0201", f"{name} is a {kind.lower()}", hint=how)
        hint = nearest(name, [one.stored.name for one in listed])
        raise PenstockError("P0201", f"unknown query {name}", hint=hint)

    def declaration(self, name: str) -> Source:
        found = self._source(name)
        if found.connector not in _POSTED:
            raise PenstockError("P0208", f"{found.name} is declared FROM {found.connector}, which takes no rows")
        return found

    def _source(self, name: str) -> Source:
        """Return a stream or relation. Raises PenstockError P0201."""
        sources = self._control.catalog.sources
        found = sources.get(name.lower())
        if found is None:
            unbound = self._control.catalog.unbound.get(name.lower())
            if unbound is not None:
                raise PenstockError("P0201", f"{unbound.name} cannot be bound: {unbound.reason}", hint=unbound.hint)
            known = [one.name for one in sources.values()]
            kind = self._control.catalog.kind(name)
            if kind is not None:
                hint = "rows go into a stream or relation that it reads"
                raise PenstockError("P0201", f"{name} is a {kind.lower()}, which takes no rows", hint=hint)
            raise PenstockError("P0201", f"unknown stream or relation {name}", hint=nearest(name, known))
        return found

    def post(self, name: str, rows: pa.Table, key: str | None, caller: Caller) -> RowsPosted:
        source, beats = self.declaration(name), self._control.version().sources
        typed = typed_table(source, rows)
        of_keys = self._control.repeated_keys(name, typed)
        added = self._control.insert(name, rows, key, _principal(caller))
        position = position_text(self._control.positions(name))
        answer = posted(source, rows, beats.get(source.name.lower()), added, position)
        of_rows = (*of_keys, *row_notices(source, typed)) if added else ()
        return replace(answer, notices=(*self._kept_by_readers(source.name), *of_rows))

    def advance(self, name: str, ts: int | str, key: str | None, caller: Caller) -> HeartbeatPosted:
        source = self._source(name)
        check_stream(source)
        tick = tick_of(source, ts)
        beat = self._control.version().sources.get(source.name.lower())
        added = self._control.advance(name, tick, key, _principal(caller))
        domain = source.domain
        assert domain is not None, "it has heartbeats"
        return HeartbeatPosted(
            domain.show(tick),
            not added,
            shown_tick(domain, beat),
            position_text(self._control.positions(name)),
            heartbeat_notices(source, tick, beat) if added else (),
        )

    def punctuate(self, name: str, where: str, key: str | None, caller: Caller) -> PunctuationPosted:
        source = self._source(name)
        one = punctuation_of(source, where)
        added = self._control.punctuate(name, one, key, _principal(caller))
        position = position_text(self._control.positions(name))
        return PunctuationPosted(shown_punctuation(one, source.columns), not added, position, punctuation_notices(one))

    def _kept_by_readers(self, source: str) -> tuple[Notice, ...]:
        """Return the notice for rows of a relation without timestamps that queries have read before; none of others."""
        names = self._control.readers_before(source)
        if not names:
            return ()
        shown = ", ".join(map(as_name, names))
        one = as_name(names[0])
        keep = "keeps" if len(names) == 1 else "keep"
        message = f"{source} has no timestamps: {shown} {keep} what was read of it at the start"
        # Over such relations alone a query has one instant, which is answered once.
        has_time = self._control.catalog.queries[names[0].lower()].root.domain is not None
        again = f"ALTER QUERY {one} PAUSE and RESUME reads" if has_time else f"DROP QUERY {one} and CREATE QUERY read"
        hint = f"{again} it again; a relation with SYSTEM TIME is one whose changes queries follow"
        return (Notice(message, hint),)

    def commands(self, after: int, limit: int) -> Sequence[CommandView]:
        return [command_view(*one) for one in self._control.commands(after, limit)]

    def command(self, number: int) -> CommandView:
        found = self._control.command(number)
        if found is None:
            raise PenstockError("P0201", f"there is no command {number}", hint="finished ones are kept for some days")
        return command_view(*found)

    def catalog(self) -> CatalogView:
        bound, stored = self._control.catalog, list(self._control.stored.values())
        beats = self._control.version().sources
        sources = tuple(
            SourceView(
                one.name,
                one.is_stream,
                one.connector,
                tuple((c.name, type_name(c.type)) for c in one.columns),
                redacted_text(bound.texts.get(key, "")),
                shown_tick(one.domain, beats.get(key)),
                tuple(one.columns[index].name for index in one.primary_key),
            )
            for key, one in bound.sources.items()
        )
        views = tuple(
            DeclaredView(
                view.name,
                redacted_text(view.text),
                tuple(zip(view.names, (type_name(type_) for type_ in view.root.schema.types), strict=True)),
            )
            for view in bound.views.values()
        )
        functions = tuple(one.name for one in stored if one.kind in ("FUNCTION", "AGGREGATE"))
        text = redacted_text(self._control.catalog_text())
        return CatalogView(sources, views, tuple(self.queries()), functions, text, unbound_views(bound))

    def catalog_version(self) -> object:
        return self._control.catalog

    def health(self) -> HealthView:
        failure = self._control.failure
        engine = self._engine.health()
        problem = engine.problem if failure is None else f"the control has ended: {type(failure).__name__}"
        if problem is None and self._stalled and engine.seconds is not None and engine.seconds > self._stalled:
            problem = f"no batch for {engine.seconds:.0f} seconds"
        version = self._control.version().number
        return HealthView(failure is None, problem is None, version, engine.batch, engine.seconds, problem)

    def stop_reason(self) -> PenstockError | None:
        return self._engine.ended_by() or self._control.stop_reason

    def metrics(self) -> bytes:
        return metrics_text(lambda: self.view().metrics)

    def view(self) -> SystemView:
        """Return what control relations are read from."""
        return self._control.view(door_facts(self._running, self._tokens, self._sessions))

    def entities(self, kind: str | None, query: str | None) -> Sequence[EntityView]:
        return entity_views(self.view(), kind, query)

    def entity(self, id_: str) -> EntityView:
        return entity_view(self.view(), id_)

    def tap(self, id_: str, rows: int, seconds: float) -> ResultSource:
        return tapped(self.view(), id_, rows, seconds, self._engine.tap)

    def list_sessions(self, sessions: Callable[[], Sequence[SessionFact]]) -> None:
        self._sessions.append(sessions)

    def events(self) -> LiveEvents:
        return self._listeners.begin()

    def close(self) -> None:
        self._control.close()
        self._engine.close()


def _principal(caller: Caller) -> Principal:
    return Principal(caller.name, caller.role.word)


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
