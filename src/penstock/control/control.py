"""The control of a live system: one thread that takes commands, accepts each once, and applies them in order.

A script that is posted is one transaction. It is bound alone against the declarations after all transactions before it,
refused there without a trace, or accepted by a file in the log (`command_log.py`). Transactions that wait together make
one version of the engine, unless they change the same query. One that fails when it is applied fails alone, with those
that depend on it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from penstock.control.applying import Applier
from penstock.control.command_log import CommandLog, Transaction, digest
from penstock.control.draft import Draft
from penstock.control.engine import Engine, EngineVersion
from penstock.control.outcomes import SYSTEM, CommandOutcome, CommandState, Principal, StatementOutcome
from penstock.control.posted_rows import POSTED, PostedRows, key_used
from penstock.control.registry import bind_one, check_supported, default_sink, queries_over, read_once, settings_of
from penstock.control.row_changes import check_changeable
from penstock.control.script import ParsedCommands, parse_commands
from penstock.control.sealed_files import SealedFiles
from penstock.control.stored_catalog import StoredObject, StoredQuery
from penstock.errors import PenstockError, ScriptErrors, ScriptWarning
from penstock.events import log_event, logger_of
from penstock.language.catalog import Catalog, QueryStatus
from penstock.language.commands import (
    Cancel,
    ChangeSetting,
    Command,
    DeleteRows,
    Describe,
    ExplainCommand,
    SelectOnce,
    ShowCommand,
    Subscribe,
    Unchanged,
    UpdateRows,
)
from penstock.storage import Locked

LOG = logger_of("control")

#: Is called with a command and who posts it before it is accepted; raises PenstockError for what is not allowed.
Policy = Callable[[Command, Principal], None]
#: The value of `on_failure` with which the failure of a query ends the server.
STOP_SERVER = "stop server"
#: Transactions that are applied together at most.
_TOGETHER = 1000
#: Commands that leave everything as it is; they have no number and do not enter the log.
_READS = (Cancel, ChangeSetting, Describe, ExplainCommand, SelectOnce, ShowCommand, Subscribe, Unchanged)


@dataclass
class _Request:
    """A transaction on its way.

    Args:
        repeated: it was posted before with the same key.
        failure: of the query with a place, noted by the system itself.
        accepted: it is in the log, or refused.
        finished: it has been applied, or failed.
    """

    commands: ParsedCommands
    settings: dict[str, str]
    who: Principal
    key: str | None
    digest: str
    transaction: Transaction | None = None
    draft: Draft | None = None
    bound: list[Command] = field(default_factory=list)
    warnings: list[tuple[ScriptWarning, ...]] = field(default_factory=list)
    error: BaseException | None = None
    repeated: bool = False
    failure: tuple[int, PenstockError] | None = None
    accepted: threading.Event = field(default_factory=threading.Event)
    finished: threading.Event = field(default_factory=threading.Event)

    @property
    def failure_text(self) -> str:
        """Return what the log says of a query that failed."""
        assert self.failure is not None, "a query failed"
        return f"FAILED: {self.failure[1].code} {self.failure[1].message}"

    def refuse(self, error: BaseException) -> None:
        self.error = error
        self.done()

    def done(self) -> None:
        self.accepted.set()
        self.finished.set()


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
        self, folder: Path, engine: Engine, settings: Mapping[str, str] | None = None, retention: float | None = None,
        policy: Policy | None = None,
    ) -> None:  # fmt: skip
        self._engine = engine
        self._settings = dict(settings or {})
        kept = float(settings_of(self._settings)["control_retention"]) if retention is None else retention
        self._policy = policy
        self._failure: BaseException | None = None
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        #: Failures of queries that could not be written to the log yet.
        self._unnoted: list[_Request] = []
        #: By place, the queries that failed since the start.
        self._failed: dict[int, PenstockError] = {}
        files = SealedFiles(folder / "control")
        self._lock: Locked | None = files.lock()
        try:
            self._posted = PostedRows(folder / "control" / "kept", kept)
            self._log, stored = CommandLog.opened(files, kept)
            self._applier = Applier(engine, self._log, stored, self._posted, self._settings)
            # A start may find that a query failed before it.
            engine.listen(self._on_failed)
            self._applier.recover()
        except BaseException:
            self._lock.release()
            raise
        self._thread = threading.Thread(target=self._serve, name="penstock-control", daemon=True)
        self._thread.start()

    # -- what a door calls -------------------------------------------------------------------------------------

    def submit(
        self, script: str, settings: Mapping[str, str] | None = None, who: Principal = SYSTEM, key: str | None = None,
        wait: bool = True, timeout: float | None = None,
    ) -> list[StatementOutcome]:  # fmt: skip
        """Execute a script as one transaction; return the outcome of each statement.

        Args:
            settings: of the session, as written.
            key: idempotency key: a second script with it gets the outcomes of the first.
            wait: until it has been applied; otherwise until it is accepted.
            timeout: seconds to wait; commands that have not been applied by then are PENDING and go on.

        Raises:
            ScriptErrors, PenstockError: nothing has been changed.
        """
        given = {name.lower(): value for name, value in (settings or {}).items()}
        settings_of(given)
        commands = parse_commands(script)
        request = _Request(commands, given, who, key, digest(script, given))
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
        """
        registry = self._applier.current
        one = registry.stored.named(source)
        found = registry.bound.sources.get(source.lower())
        if one is None or found is None:
            raise PenstockError("P0201", f"unknown stream or relation {source}")
        if found.connector not in POSTED:
            raise PenstockError("P0208", f"{found.name} is declared FROM {found.connector}")
        if found.is_static and queries_over(registry.bound, found.name):
            raise read_once(found.name)
        accepted = self._posted.post(found, one.id, rows, None if key is None else f"{who.name} {key}")
        self._engine.wake()
        return accepted

    @property
    def catalog(self) -> Catalog:
        """Return the declarations that the engine runs."""
        return self._applier.current.bound

    @property
    def stored(self) -> dict[int, StoredObject]:
        """Return the declarations that the engine runs, as data, by number."""
        return dict(self._applier.current.stored.objects)

    def query(self, name: str) -> tuple[StoredObject, StoredQuery]:
        """Return a query by its name. Raises PenstockError P0201."""
        one = self._applier.current.stored.named(name)
        if one is None or one.query is None:
            raise PenstockError("P0201", f"unknown query {name}")
        return one, one.query

    def commands(self) -> list[tuple[Transaction, str, CommandOutcome]]:
        """Return the commands of the log: each with its transaction, its text and its outcome so far."""
        log = self._log
        return [
            (transaction, text, log.outcomes.get(number, CommandOutcome(number, CommandState.PENDING)))
            for transaction in sorted(log.transactions.values(), key=lambda one: one.first)
            for number, text in zip(transaction.numbers, transaction.texts, strict=True)
        ]

    def version(self) -> EngineVersion:
        """Return the version that the engine runs."""
        return self._engine.version()

    @property
    def failure(self) -> BaseException | None:
        """Return why the control has ended; None while it takes commands."""
        return self._failure

    @property
    def stop_reason(self) -> PenstockError | None:
        """Return the error of a query that has failed since the start and is to stop the server; None for none."""
        for one, query in self._applier.current.stored.queries if self._failed else ():
            error = self._failed.get(query.place)
            stops = query.status is QueryStatus.FAILED and one.attributes.get("on_failure") == STOP_SERVER
            if error is not None and stops:
                hint = f"the next start leaves the query out; ALTER QUERY {one.name} RESUME begins it again"
                return PenstockError(error.code, f"query {one.name} failed: {error.message}", hint=hint)
        return None

    def close(self) -> None:
        """Finish the commands in hand and release the checkpoint; the engine is closed by who opened it."""
        if self._thread.is_alive():
            self._requests.put(None)
            self._thread.join()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
        self._refuse_all(self.failure)

    # -- the control thread ------------------------------------------------------------------------------------

    def _has_ended(self) -> bool:
        return self._lock is None or self._failure is not None

    def _send(self, request: _Request) -> None:
        if self._has_ended():
            raise _ended(self.failure)
        self._requests.put(request)
        if self._has_ended():
            # The thread may have ended before it saw the request.
            self._refuse_all(self.failure)

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                self._take([request, *self._waiting()])
            except BaseException as failure:
                log_event(LOG, logging.ERROR, "control", f"the control has ended: {failure!r}")
                self._refuse_all(failure)
                return

    def _waiting(self) -> list[_Request]:
        """Return the requests that wait."""
        found: list[_Request] = []
        while len(found) < _TOGETHER and not self._requests.empty():
            request = self._requests.get()
            if request is None:
                self._requests.put(None)
                break
            found.append(request)
        return found

    def _refuse_all(self, failure: BaseException | None) -> None:
        """Refuse what waits after the thread has ended."""
        while not self._requests.empty():
            request = self._requests.get()
            if request is not None:
                request.refuse(_ended(failure))

    def _take(self, requests: Sequence[_Request]) -> None:
        """Accept and apply some transactions, in order."""
        group: list[_Request] = []
        requests, self._unnoted = [*self._unnoted, *requests], []
        try:
            for request in requests:
                try:
                    if self._was_posted(request):
                        group.append(request)
                        continue
                    draft = self._drafted(request)
                    if any(one.draft is not None and one.draft.touched & draft.touched for one in group):
                        # One version cannot contain two changes of a query.
                        self._apply(group)
                        group = []
                        draft = self._drafted(request)
                    self._accept(request, draft)
                    group.append(request)
                except (PenstockError, ScriptErrors) as error:
                    if request.failure is not None:
                        # A failure has happened, whether or not it can be noted now.
                        self._unnoted.append(request)
                    request.refuse(error)
            self._apply(group)
        except BaseException as failure:
            self._failure = failure
            for request in requests:
                if not request.finished.is_set():
                    request.refuse(_ended(failure))
            raise

    def _apply(self, group: Sequence[_Request]) -> None:
        """Apply what was accepted; the others of the group have waited for that."""
        fresh = [one.transaction for one in group if one.transaction is not None and not one.repeated]
        if fresh:
            self._applier.apply(fresh)
        for request in group:
            request.done()

    def _was_posted(self, request: _Request) -> bool:
        """Return whether a transaction was accepted before with the same key. Raises PenstockError P0731."""
        known = None if request.key is None else self._log.with_key(request.who.name, request.key)
        if known is None:
            return False
        if known.digest != request.digest:
            raise key_used(request.key or "")
        request.transaction, request.repeated = known, True
        request.accepted.set()
        return True

    def _accept(self, request: _Request, draft: Draft) -> None:
        """Write a transaction to the log, if it changes anything. Raises PenstockError, and then it is refused."""
        request.draft = draft
        texts = [text for text, command in zip(request.commands.texts, request.bound, strict=True) if _changes(command)]
        if texts and request.commands.rolled_back:
            self._applier.check(draft)
            texts = []
        if not (texts or request.failure):
            request.accepted.set()
            return
        texts = texts or [request.failure_text]
        request.transaction = self._applier.accept(
            draft, texts, request.who.name, request.key, request.digest, request.settings
        )
        request.accepted.set()

    def _drafted(self, request: _Request) -> Draft:
        """Bind a transaction against everything that has been accepted. Raises ScriptErrors and PenstockError."""
        ahead = self._applier.ahead
        draft = Draft.on(ahead, self._applier.settings_with(ahead.stored, request.settings), default_sink())
        request.bound, request.warnings = [], []
        if request.failure is not None:
            place, error = request.failure
            draft.fail(place, error.code, error.message)
            return draft
        commands, number = request.commands, self._log.next_number
        for statement, text, query_text in zip(commands.statements, commands.texts, commands.query_texts, strict=True):
            command, warnings = bind_one(
                statement, draft.stored, draft.bound, settings_of(draft.settings), commands.source
            )
            check_supported(command)
            if self._policy is not None:
                self._policy(command, request.who)
            if isinstance(command, ChangeSetting):
                draft.settings = {**draft.settings, command.key.lower(): command.value}
            elif isinstance(command, UpdateRows | DeleteRows):
                check_changeable(draft.bound.sources[command.relation.lower()])
            if _changes(command):
                draft.add(number, command, text, query_text)
                number += 1
            request.bound.append(command)
            request.warnings.append(warnings)
        return draft

    def _on_failed(self, place: int, error: PenstockError) -> None:
        """Note that a query failed alone; called by the engine."""
        self._failed[place] = error
        commands = parse_commands("")
        self._requests.put(_Request(commands, {}, SYSTEM, None, "", failure=(place, error)))

    # -- outcomes ----------------------------------------------------------------------------------------------

    def _outcomes(self, request: _Request) -> list[StatementOutcome]:
        """Return the outcome of each statement, as far as it is known."""
        transaction = request.transaction
        if request.draft is None:
            # It was posted before: its commands have been carried out.
            assert transaction is not None, "it is in the log"
            pairs = zip(transaction.numbers, transaction.texts, strict=True)
            return [StatementOutcome(text, self._outcome(number)) for number, text in pairs]
        numbers = iter(transaction.numbers if transaction is not None else ())
        found: list[StatementOutcome] = []
        for text, command, warnings in zip(request.commands.texts, request.bound, request.warnings, strict=True):
            number = next(numbers, None) if _changes(command) else None
            outcome = None if number is None else self._outcome(number)
            found.append(StatementOutcome(text, outcome, command, warnings))
        return found

    def _outcome(self, number: int) -> CommandOutcome:
        return self._log.outcomes.get(number, CommandOutcome(number, CommandState.PENDING))


def _changes(command: Command) -> bool:
    """Return whether a command changes something of the system."""
    return not isinstance(command, _READS)


def _ended(failure: BaseException | None) -> BaseException:
    """Return the error for a request to a control that has ended; what ends the process is passed on as it is."""
    if failure is not None and not isinstance(failure, Exception):
        return failure
    return PenstockError(
        "P0601", "the control has ended" + (f": {failure}" if failure is not None else ""), cause=failure,
        hint="start the server again: what was accepted happens then; ask for it with its idempotency key",
    )  # fmt: skip
