"""The control of a live system: commands are accepted once, by one thread, and applied in order, by another one.

A script that is posted is one transaction. It is bound alone against the declarations after all transactions before it,
refused there without a trace, or accepted by a file in the log (`command_log.py`). What has been accepted while the
engine changed makes its next version, unless it changes the same query twice. A transaction that fails when it is
applied fails alone, with those that depend on it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from penstock.algebra.properties.heartbeats import Heartbeat
from penstock.algebra.properties.punctuations import Punctuation
from penstock.control.command_log import CommandLog, digest
from penstock.control.drafting.catalog_text import catalog_text
from penstock.control.drafting.contents import DueSteps, NotedFailure, PostedScript, ScriptMode
from penstock.control.drafting.drafted import DraftContext, Policy, changes
from penstock.control.drafting.script import ScriptCommands, commands_of
from penstock.control.drafting.versions import queried
from penstock.control.engine import ControlEnds, Engine, EngineListener, EngineVersion
from penstock.control.entities.system import DoorFacts, LoggedCommand, SystemView
from penstock.control.heartbeats import check_heartbeat, check_stream, complete_to
from penstock.control.life.listed_query import ListedQuery
from penstock.control.live.recovering import RecoveringApplier
from penstock.control.outcomes import SYSTEM, CommandOutcome, CommandState, Principal, StatementOutcome
from penstock.control.phases import Phase
from penstock.control.posted_rows import POSTED, ContentsRead, PostedRows, PostLimits
from penstock.control.punctuations import check_room
from penstock.control.registry import Registry, queries_over, settings_of, unused_promises
from penstock.control.row_changes import no_rows, repeated_keys
from penstock.control.sealed_files import NumberTaken, SealedFiles, moved_away
from penstock.control.stored_catalog import StoredComputation, StoredObject, StoredQuery
from penstock.control.transactions.accepting import Acceptor
from penstock.control.transactions.listing import listed_queries
from penstock.control.transactions.past_reading import PastReading
from penstock.control.transactions.request import Request
from penstock.errors import Notice, PenstockError, as_known, as_name
from penstock.events import log_event, logger_of
from penstock.language.catalog import Catalog
from penstock.language.scripts.parse import parse_script
from penstock.language.statements.script import Script
from penstock.runtime.monitoring.figures import BatchFigures
from penstock.storage import Locked

LOG = logger_of("control")
#: The value of `on_failure` with which the failure of a query ends the server.
STOP_SERVER = "stop server"
#: Seconds after a batch at which it counts as delivered, most likely.
_LATER = 0.5


@dataclass(frozen=True)
class CheckedScript:
    """A script that could be executed. after: the declarations that would be there then, with queries as they are to be
    whose place other ones are to take."""

    outcomes: list[StatementOutcome]
    after: Registry


class Control:
    """The commands of one server.

    Args:
        folder: of the checkpoint; the control keeps its files in `control` below it.
        engine: runs the queries.
        settings: of the whole system at the start, as written.
        retention: for how many seconds finished commands and idempotency keys are kept; None: `control_retention`.
        policy: checks every command before it is accepted.

    Raises:
        PenstockError: P0609 where another control uses the checkpoint; P0601, P0605.
    """

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        settings: Mapping[str, str] | None = None,
        retention: float | None = None,
        policy: Policy | None = None,
    ) -> None:
        self._engine = engine
        self._settings = dict(settings or {})
        kept = float(settings_of(self._settings)["control_retention"]) if retention is None else retention
        self._failure: BaseException | None = None
        #: Is called with what there is to know of each batch that has been delivered, as JSON values.
        self.on_delivered: Callable[[Mapping[str, object]], None] = lambda batch: None
        self._requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        #: By place, the queries that failed since the start.
        self._failed: dict[int, PenstockError] = {}
        files = SealedFiles(folder / "control")
        self._lock: Locked | None = files.lock()
        try:
            limits = PostLimits(engine.unread, settings_of(self._settings).get_int("max_unread_bytes"))
            self._posted = PostedRows(folder / "control" / "kept", kept, limits)
            self._log, stored = CommandLog.opened(files, kept)
            self._applier = RecoveringApplier(
                engine, self._log, stored, self._posted, ContentsRead.opened(files), self._settings
            )
            # A start may find that a query failed before it.
            engine.listen(_Follower(self._on_failed, self._applier.note, lambda batch: self.on_delivered(batch)))
            self._applier.on_plans = self._on_plans
            self._applier.recover()
            self._backlog = self._applier.backlog
            context = DraftContext(
                engine,
                self._log,
                self._posted,
                lambda: self._backlog.ahead,
                lambda: not self._backlog.items,
                self._settings,
                policy,
                self.commands,
            )
            self._acceptor = Acceptor(context, self._backlog, self._applier.write_outcomes)
        except BaseException:
            self._lock.release()
            raise
        self._threads = [
            threading.Thread(target=self._guarded, args=(action,), name=name, daemon=True)
            for name, action in (("penstock-accept", self._accept), ("penstock-apply", self._applier.run))
        ]
        for thread in self._threads:
            thread.start()

    # -- what a door calls -------------------------------------------------------------------------------------

    def submit(
        self,
        script: Script | str,
        settings: Mapping[str, str] | None = None,
        who: Principal = SYSTEM,
        key: str | None = None,
        wait: bool = True,
        timeout: float | None = None,
        dry: bool = False,
    ) -> list[StatementOutcome]:
        """Execute a script as one transaction; return the outcome of each statement.

        Args:
            script: parsed; or its text, which is parsed here.
            settings: of the session, as written.
            key: idempotency key: a second script with it gets the outcomes of the first.
            wait: until it has been applied, or its queries read their past (HYDRATING); otherwise until it is accepted.
            timeout: seconds to wait; commands that have not been applied by then are PENDING and go on.
            dry: only find what would be refused.

        Raises:
            ScriptErrors, PenstockError: nothing has been changed.
        """
        return self._executed(_commands(script), ScriptMode.TOGETHER, settings, who, key, wait, timeout, dry)

    def check(self, script: Script) -> CheckedScript:
        """Bind a script as a start executes it, and change nothing: each statement is a transaction of its own, unless
        BEGIN and COMMIT make one of all. Raises ScriptErrors with all its errors."""
        commands = commands_of(script)
        mode = ScriptMode.TOGETHER if commands.marked else ScriptMode.EACH
        request = Request(PostedScript(replace(commands, rolled_back=True), mode))
        outcomes = self._outcome_of(request, True, None)
        assert request.after is not None, "it is rolled back"
        return CheckedScript(outcomes, request.after.as_wished)

    def apply(
        self,
        script: Script | str,
        settings: Mapping[str, str] | None = None,
        who: Principal = SYSTEM,
        key: str | None = None,
        wait: bool = True,
        timeout: float | None = None,
        dry: bool = False,
    ) -> list[StatementOutcome]:
        """Bring the declarations to those of a script, as one transaction; return the outcome of each statement of the
        difference.

        Args:
            dry: only find the difference.
            settings, key, wait, timeout: as for `submit`.

        Raises:
            ScriptErrors, PenstockError: nothing has been changed.
        """
        commands = _commands(script)
        if commands.marked:
            hint = "leave out BEGIN and COMMIT: all of it happens together"
            raise PenstockError("P0732", "a whole catalog is one transaction", hint=hint)
        return self._executed(commands, ScriptMode.WHOLE, settings, who, key, wait, timeout, dry)

    def _executed(
        self,
        commands: ScriptCommands,
        mode: ScriptMode,
        settings: Mapping[str, str] | None,
        who: Principal,
        key: str | None,
        wait: bool,
        timeout: float | None,
        dry: bool,
    ) -> list[StatementOutcome]:
        given = _checked(settings)
        # The same script may be posted to be executed, and as a whole catalog.
        content = commands.script.text if mode is ScriptMode.TOGETHER else f"catalog\n{commands.script.text}"
        commands = replace(commands, rolled_back=commands.rolled_back or dry)
        posted = PostedScript(commands, mode, given, who, None if dry else key, digest(content, given))
        return self._outcome_of(Request(posted), wait, timeout)

    def _outcome_of(self, request: Request, wait: bool, timeout: float | None) -> list[StatementOutcome]:
        """Hand over a script; return the outcome of each of its statements. Raises ScriptErrors and PenstockError."""
        self._send(request)
        event = request.finished if wait else request.accepted
        in_time = event.wait(timeout)
        if request.error is not None:
            raise request.error
        if not in_time and not request.accepted.is_set():
            # It is not in the log yet, so whether it will be is not known before it is.
            request.accepted.wait()
            if request.error is not None:
                raise request.error
        return self._outcomes(request)

    def insert(self, source: str, rows: pa.Table, key: str | None = None, who: Principal = SYSTEM) -> bool:
        """Append rows to a stream or relation FROM MEMORY or HTTP; they are durable then. Return False for rows that
        were accepted before with the same key of the same token.

        Raises:
            PenstockError: P0201, P0208 for another source; P0203, P0305 for other columns; P0731, P0601.
            Busy: it is beyond `rate_limit` or `max_unread_bytes`; nothing has been added.
        """
        self._check_checkpoint()
        registry = self._applier.current
        one = registry.stored.named(source)
        found = registry.bound.sources.get(source.lower())
        if one is None or found is None:
            raise PenstockError("P0201", f"unknown stream or relation {source}")
        if found.connector not in POSTED:
            raise PenstockError("P0208", f"{found.name} is declared FROM {found.connector}")
        accepted = self._posted.post(found, one.id, rows, None if key is None else f"{who.name} {key}", limited=True)
        self._engine.wake()
        return accepted

    def repeated_keys(self, source: str, rows: pa.Table) -> tuple[Notice, ...]:
        """Return the notice for rows that will be left out of a relation without timestamps, since their primary key is
        that of an earlier row (`row_changes.repeated_keys`). Raises PenstockError P0605."""
        registry = self._applier.current
        one, found = registry.stored.named(source), registry.bound.sources.get(source.lower())
        if one is None or found is None or not found.is_static or not found.primary_key:
            return ()
        return repeated_keys(found, rows, self._posted.primary_keys(found, one.id))

    def advance(self, stream: str, tick: int, key: str | None = None, who: Principal = SYSTEM) -> bool:
        """Append a heartbeat to a stream, in order with the rows that are posted to it; it is durable then. Return
        False for one that was accepted before with the same key of the same token.

        Raises:
            PenstockError: P0201 for what is no stream; P0380 for one without heartbeats, and for a heartbeat that is
                too far ahead; P0731, P0601.
            Busy: it is beyond `max_unread_bytes`; nothing has been added.
        """
        self._check_checkpoint()
        registry = self._applier.current
        one, found = registry.stored.named(stream), registry.bound.sources.get(stream.lower())
        if one is None or found is None:
            raise PenstockError("P0201", f"unknown stream {stream}")
        check_stream(found)
        own = None if key is None else f"{who.name} {key}"
        if own is None or not self._posted.has(one.id, own):
            check_heartbeat(found, tick, complete_to(self._engine, self._posted, found, one.id))
        accepted = self._posted.post(found, one.id, no_rows(found), own, limited=True, record=Heartbeat(tick))
        self._engine.wake()
        return accepted

    def punctuate(self, stream: str, one: Punctuation, key: str | None = None, who: Principal = SYSTEM) -> bool:
        """Append a punctuation to a stream, in order with the rows that are posted to it; it is durable then. Return
        False for one that was accepted before with the same key of the same token.

        Raises:
            PenstockError: P0201 for what is no stream; P0731, P0601.
            Busy: it is beyond `max_unread_bytes` or `punctuations`; nothing has been added.
        """
        self._check_checkpoint()
        registry = self._applier.current
        stored, found = registry.stored.named(stream), registry.bound.sources.get(stream.lower())
        if stored is None or found is None:
            raise PenstockError("P0201", f"unknown stream {stream}")
        own = None if key is None else f"{who.name} {key}"
        if own is None or not self._posted.has(stored.id, own):
            most = settings_of({**self._settings, **registry.stored.settings}).get_int("punctuations")
            check_room(self._engine, self._posted, found, stored.id, one, most)
        accepted = self._posted.post(found, stored.id, no_rows(found), own, limited=True, record=one)
        self._engine.wake()
        return accepted

    def positions(self, source: str) -> dict[int, int]:
        """Return the number of a stream or relation whose rows are posted, with that of its last post; nothing for what
        has been dropped."""
        one = self._applier.current.stored.named(source)
        return {} if one is None else {one.id: self._posted.last(one.id)}

    def readers_before(self, source: str) -> list[str]:
        """Return the queries that run and have read a relation without timestamps before its last post. They keep what
        they have read until they begin anew."""
        registry = self._applier.current
        one, found = registry.stored.named(source), registry.bound.sources.get(source.lower())
        if one is None or found is None or not found.is_static or found.connector not in POSTED:
            return []
        readers = {name.lower() for name in queries_over(registry.bound, found.name)}
        last = self._posted.last(one.id)
        return [
            reader.name
            for reader, query in registry.stored.queries
            if reader.name.lower() in readers and self._applier.contents.of(query.answer.id).get(one.id, last) < last
            if query.phase.runs
        ]

    @property
    def catalog(self) -> Catalog:
        """Return the declarations that the engine runs."""
        return self._applier.current.bound

    @property
    def stored(self) -> dict[int, StoredObject]:
        """Return the declarations that the engine runs, as data, by number."""
        return dict(self._applier.current.stored.objects)

    @property
    def posted_root(self) -> Path:
        """Return the folder of posted rows, with one for each source."""
        return self._posted.root

    def catalog_text(self) -> str:
        """Return the declarations that the engine runs as a script, which `apply` finds no difference to."""
        stored = self._applier.current.stored
        return catalog_text(stored.objects.values(), {**self._settings, **stored.settings})

    def unused_promises(self) -> dict[str, list[tuple[str, str]]]:
        """Return by name the queries that were registered before promises which they would use, with these."""
        return unused_promises(self._applier.current)

    def query(self, name: str) -> tuple[StoredObject, StoredQuery]:
        """Return a query by its name. Raises PenstockError P0201."""
        one = self._applier.current.stored.named(name)
        if one is None or one.query is None:
            raise PenstockError("P0201", f"unknown query {name}")
        return one, one.query

    def queries(self) -> list[ListedQuery]:
        """Return the queries that the engine runs or has paused, and those that have been accepted and begin later."""
        # In this order: what is applied meanwhile is in the declarations that the engine runs.
        items, ahead = self._backlog.items, self._backlog.ahead
        current = self._applier.current
        return [
            one if (found := one.query.waiting) is None else replace(one, missing=self._missing(one, found, current))
            for one in listed_queries(items, ahead, current)
        ]

    def _missing(self, one: ListedQuery, waiting: StoredComputation, registry: Registry) -> Mapping[str, int]:
        """Return how many rows a computation of a query waits for, by stream."""
        query = queried(one.stored, waiting, registry, self._posted)
        found = None if query is None else self._engine.awaited(query)
        return {} if found is None else found.rows

    def place_of(self, command: int) -> int | None:
        """Return the place whose answers a command is about; None for others, and where it is forgotten."""
        transaction = self._log.of(command)
        return None if transaction is None else transaction.change.concerns.get(command)

    def commands(self, after: int = 0, limit: int | None = None) -> list[LoggedCommand]:
        """Return the commands of the log behind the number `after`: each with its transaction, its text and its outcome
        so far. limit: how many at most."""
        readings = self._backlog.readings()
        return [
            (transaction, text, outcome or self._log.outcome(number) or _unfinished(number, readings))
            for transaction, text, number, outcome in self._log.commands(after, limit)
        ]

    def command(self, number: int) -> LoggedCommand | None:
        """Return a command of the log, as `commands` does; None where it is forgotten, and before there is one."""
        transaction = self._log.of(number)
        if transaction is None:
            return None
        return transaction, transaction.texts[number - transaction.first], self.outcome(number)

    def outcome(self, number: int) -> CommandOutcome:
        """Return what has become of a command so far."""
        readings = self._backlog.readings()
        return self._log.outcome(number) or _unfinished(number, readings)

    def version(self) -> EngineVersion:
        """Return the version that the engine runs."""
        return self._engine.version()

    def view(self, doors: DoorFacts | None = None) -> SystemView:
        """Return what control relations are read from. doors: what these know."""
        registry = self._applier.current
        settings = settings_of({**self._settings, **registry.stored.settings})
        return SystemView(
            registry,
            self.queries(),
            self._engine.version,
            self._engine.figures,
            self.commands,
            settings,
            self._log.begun,
            doors or DoorFacts(),
        )

    @property
    def failure(self) -> BaseException | None:
        """Return why the control has ended; None while it takes commands."""
        return self._failure

    @property
    def stop_reason(self) -> PenstockError | None:
        """Return why the server is to end: the control has ended, or a query has failed since the start that is to stop
        the server; None for no reason."""
        if isinstance(self._failure, Exception) and isinstance(ended := _ended(self._failure), PenstockError):
            return ended
        if (moved := self._moved()) is not None:
            return moved
        for one, query in self._applier.current.stored.queries if self._failed else ():
            error = self._failed.get(query.place)
            stops = query.phase is Phase.FAILED and one.attributes.get("on_failure") == STOP_SERVER
            if error is not None and stops:
                hint = f"the next start leaves the query out; ALTER QUERY {as_name(one.name)} RESUME begins it again"
                return PenstockError(error.code, f"query {one.name} failed: {error.message}", hint=hint)
        return None

    def close(self) -> None:
        """Finish the commands in hand and release the checkpoint; the engine is closed by who opened it. Queries that
        read their past begin again at the next start."""
        accepting, applying = self._threads
        self._requests.put(None)
        accepting.join()
        self._backlog.close()
        applying.join()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
        self._refuse_all()

    # -- the two threads ---------------------------------------------------------------------------------------

    def _has_ended(self) -> bool:
        return self._lock is None or self._failure is not None

    def _moved(self) -> PenstockError | None:
        """Return the error of a checkpoint that is not where it was any more, so that another server may use its place;
        None while it is there."""
        lock = self._lock
        return None if lock is None or lock.is_held() else moved_away(self._log.files.root.parent)

    def _check_checkpoint(self) -> None:
        if (moved := self._moved()) is not None:
            raise moved

    def _send(self, request: Request) -> None:
        if self._has_ended():
            raise _ended(self.failure)
        self._check_checkpoint()
        self._requests.put(request)
        if self._has_ended():
            # The thread may have ended before it saw the request.
            self._refuse_all()

    def _accept(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                self._acceptor.take(request)
            except (ControlEnds, NumberTaken):
                raise
            except Exception as error:
                known = as_known(error, "the statement cannot be taken")
                if not request.accepted.is_set():
                    request.refuse(known)

    def _guarded(self, action: Callable[[], None]) -> None:
        """Carry out the action of a thread; what it raises ends both threads."""
        try:
            action()
        except BaseException as failure:
            log_event(LOG, logging.ERROR, "control", f"the control has ended: {failure!r}")
            self._failure = self._failure or failure
            self._backlog.fail(_ended(self._failure))
            self._requests.put(None)
            self._refuse_all()

    def _refuse_all(self) -> None:
        """Refuse what waits after the threads have ended. What ends the accepting thread stays in the queue: it may not
        have seen it yet."""
        ends = False
        with suppress(queue.Empty):
            while True:
                request = self._requests.get_nowait()
                if request is None:
                    ends = True
                else:
                    request.refuse(_ended(self.failure))
        if ends:
            self._requests.put(None)

    def _on_failed(self, place: int, error: PenstockError) -> None:
        """Note that a query failed alone; called by the engine."""
        standing = {query.place for _, query in self._applier.current.stored.queries}
        self._failed = {one: why for one, why in self._failed.items() if one in standing} | {place: error}
        computations = [query.answer.id for _, query in self._applier.current.stored.queries if query.place == place]
        failure = NotedFailure(place, computations[0] if computations else None, error)
        self._requests.put(Request(failure))

    def _on_plans(self) -> None:
        """Have changes of plans looked at: now, and when the batch in hand counts as delivered."""
        if self._has_ended():
            return
        self._look()
        later = threading.Timer(_LATER, self._look)
        later.daemon = True
        later.start()

    def _look(self) -> None:
        if not self._has_ended():
            self._requests.put(Request(DueSteps()))

    # -- outcomes ----------------------------------------------------------------------------------------------

    def _outcomes(self, request: Request) -> list[StatementOutcome]:
        """Return the outcome of each statement, as far as it is known."""
        transaction, readings = request.transaction, self._backlog.readings()
        known = self._log.outcomes_of(() if transaction is None else transaction.numbers)

        def outcome_of(number: int) -> CommandOutcome:
            return known.get(number) or _unfinished(number, readings)

        if request.repeated:
            # It was posted before: its commands have been carried out.
            assert transaction is not None, "it is in the log"
            pairs = zip(transaction.numbers, transaction.texts, strict=True)
            return [StatementOutcome(_kind_of(text), text, outcome_of(number)) for number, text in pairs]
        numbers = iter(transaction.numbers if transaction is not None else ())
        found: list[StatementOutcome] = []
        for one in request.bound:
            number = next(numbers, None) if changes(one.command) else None
            outcome = None if number is None else outcome_of(number)
            found.append(StatementOutcome(one.kind, one.text, outcome, one.command, one.warnings, one.position))
        return found


@dataclass(frozen=True)
class _Follower(EngineListener):
    """Has a control follow its engine."""

    on_failed: Callable[[int, PenstockError], None]
    on_batch: Callable[[BatchFigures, Mapping[str, int]], bool]
    on_delivered: Callable[[Mapping[str, object]], None]

    def failed(self, place: int, error: PenstockError) -> None:
        self.on_failed(place, error)

    def batch(self, figures: BatchFigures, places: Mapping[str, int]) -> bool:
        return self.on_batch(figures, places)

    def delivered(self, batch: Mapping[str, object]) -> None:
        self.on_delivered(batch)


def _checked(settings: Mapping[str, str] | None) -> dict[str, str]:
    """Return settings as written, by names in lower case. Raises PenstockError P0104 for those that are not right."""
    given = {name.lower(): value for name, value in (settings or {}).items()}
    settings_of(given)
    return given


def _commands(script: Script | str) -> ScriptCommands:
    return commands_of(parse_script(script) if isinstance(script, str) else script)


def _kind_of(text: str) -> str:
    """Return the kind of a statement of the log."""
    (statement,) = parse_script(text).statements
    return statement.statement_kind


def _unfinished(number: int, readings: Mapping[int, PastReading]) -> CommandOutcome:
    """Return the outcome of a command that has been accepted and not applied."""
    reading = readings.get(number)
    if reading is None:
        return CommandOutcome(number, CommandState.PENDING)
    return CommandOutcome(number, CommandState.HYDRATING, share=reading.share)


def _ended(failure: BaseException | None) -> BaseException:
    """Return the error for a request to a control that has ended; what ends the process is passed on as it is."""
    if failure is not None and not isinstance(failure, Exception):
        return failure
    reason = failure.message if isinstance(failure, PenstockError) else failure
    hint = "start the server again: what was accepted happens then; ask for it with its idempotency key"
    return PenstockError(
        "P0601",
        "the control has ended" + (f": {reason}" if reason is not None else ""),
        cause=failure,
        hint=failure.hint if isinstance(failure, NumberTaken) else hint,
    )
