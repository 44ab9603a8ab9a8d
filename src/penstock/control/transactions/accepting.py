"""Accept transactions: bind each against everything accepted before it, check it, and write it to the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.algebra.properties.need import AwaitedRows
from penstock.connectors.targets import ResultPlaces
from penstock.control.command_log import CommandLog
from penstock.control.engine import Activity, ControlEnds, Engine, NextVersion, StandingQuery
from penstock.control.entities.system import LoggedCommand, SystemView
from penstock.control.entities.updates import statements_of
from penstock.control.outcomes import Principal
from penstock.control.posted_rows import PostedRows, key_used
from penstock.control.registry import Registry, bind_one, command_of, default_sink, settings_of
from penstock.control.row_changes import check_changeable
from penstock.control.stored_catalog import StoredCatalog
from penstock.control.transactions.backlog import AcceptedItem, Backlog
from penstock.control.transactions.draft import Draft
from penstock.control.transactions.footprint import footprint_of
from penstock.control.transactions.known_choices import known_choices
from penstock.control.transactions.listing import declared_queries
from penstock.control.transactions.merging import BoundChange
from penstock.control.transactions.plan_edits import due_holds, due_steps
from penstock.control.transactions.request import BoundStatement, PostedScript
from penstock.control.transactions.script import placed_at
from penstock.control.transactions.whole_catalog import catalog_steps
from penstock.control.versions import part_of_version, queried
from penstock.errors import PenstockError, Position, ScriptErrors, ScriptWarning, as_known, first_error, log_internal
from penstock.language.binder.context import BindingFailed
from penstock.language.commands import (
    Cancel,
    ChangeSetting,
    Command,
    CreateQueryCommand,
    DeleteRows,
    Describe,
    ExplainCommand,
    ExportCommand,
    InsertRows,
    SelectOnce,
    ShowCommand,
    Subscribe,
    Unchanged,
    UpdateControl,
    UpdateRows,
)
from penstock.language.queries import NOWHERE
from penstock.language.statements import CreateFunction, CreateQuery, CreateSource, CreateSummary, CreateView

#: Is called with a command and who posts it before it is accepted; raises PenstockError for what is not allowed.
Policy = Callable[[Command, Principal], None]
#: Commands that leave everything as it is; they have no number and do not enter the log.
_READS = (Cancel, ChangeSetting, Describe, ExplainCommand, ExportCommand, SelectOnce, ShowCommand, Subscribe, Unchanged)


class Acceptor:
    """Accepts transactions, by one thread.

    Args:
        backlog: receives what has been accepted, and has the declarations after it.
        settings: of the whole system at the start, as written.
        write_outcomes: writes the outcomes that could not be written before; raises PenstockError P0601.
        commands: returns those of the log, for control relations.
    """

    def __init__(
        self, engine: Engine, log: CommandLog, posted: PostedRows, backlog: Backlog, settings: Mapping[str, str],
        policy: Policy | None, write_outcomes: Callable[[], None], commands: Callable[[], Sequence[LoggedCommand]],
    ) -> None:  # fmt: skip
        self._engine = engine
        self._log = log
        self._posted = posted
        self._backlog = backlog
        self._settings = dict(settings)
        self._policy = policy
        self._write_outcomes = write_outcomes
        self._commands = commands
        self._results = ResultPlaces()
        #: Failures of queries that could not be written to the log yet.
        self._unnoted: list[PostedScript] = []
        #: Queries with the choices of a plan to which they cannot change.
        self._impossible: set[tuple[int, str]] = set()
        #: By place of what is computed beside a query, the command with which it was to take over last.
        self._take_overs: dict[int, int] = {}
        #: By place of a query that has waited for rows, the command with which it was to begin.
        self._begun: dict[int, int] = {}
        #: The error that nobody has foreseen with which changes of plans were looked at last.
        self._last_look = ""
        #: By number of a query, such an error with which it was found out last what it waits for.
        self._unknown: dict[int, str] = {}

    def take(self, request: PostedScript) -> None:
        """Accept a transaction or refuse it."""
        unnoted, self._unnoted = self._unnoted, []
        for one in [*unnoted, request]:
            try:
                with self._backlog.gate:
                    self._accept(one)
                one.accepted.set()
            except Exception as error:
                if one.accepted.is_set():
                    log_internal(error, "a command has been accepted, and what follows that has failed")
                    continue
                if one.transaction is not None and not one.repeated:
                    # It happens, but nobody here knows of it.
                    known = as_known(error, "the command has been accepted, and happens at the next start")
                    one.refuse(known)
                    raise ControlEnds(known.message) from error
                if one.begins is not None:
                    self._impossible.add(one.begins)
                if one.failure is not None:
                    # A failure has happened, whether or not it can be noted now.
                    self._unnoted.append(one)
                one.refuse(error if isinstance(error, PenstockError) else self._internal(one, error))
            except BaseException as failure:
                one.refuse(failure)
                raise

    def _internal(self, request: PostedScript, error: Exception) -> PenstockError:
        """Return what answers a request that was not accepted for an error that nobody has foreseen: nothing has
        changed by then."""
        if request.looks and self._last_look == (looked := repr(error)):
            # Changes are looked at after each batch.
            return PenstockError("P0601", looked)
        if request.looks:
            self._last_look = looked
        what = "a step of a query cannot be taken" if request.looks else "the statement cannot be bound"
        known = as_known(error, what)
        known.hint = f"nothing has changed; {known.hint}"
        return known

    def _accept(self, request: PostedScript) -> None:
        """Accept a transaction. Raises ScriptErrors and PenstockError, and then nothing has been written."""
        if self._was_posted(request):
            self._backlog.add(AcceptedItem(None, request=request))
            return
        before = self._backlog.ahead
        commands = request.commands
        draft = self._drafted(request)
        changing = [one for one in request.bound if changes(one.command)]
        texts = [one.text for one in changing]
        texts += request.steps
        if texts or draft.touched:
            if request.bound and not request.separate:
                self._check_results(draft, before, request, changing[0].position if changing else None)
            # Of several, none is known to be the wrong one.
            with placed_at(changing[0].position if len(changing) == 1 else None):
                self._check(draft, before)
        if commands.rolled_back:
            request.after, texts = draft.registry, []
        elif request.failure is not None and draft.change.objects:
            texts = [request.failure.text]
        if request.looks and not texts:
            return
        if not texts:
            self._backlog.add(AcceptedItem(None, request=request))
            return
        self._write_outcomes()
        change, after = draft.change, draft.registry
        footprint = footprint_of(before.stored, change, draft.bound)
        item = AcceptedItem(None, BoundChange(change, draft.bound), footprint, frozenset(draft.touched), request)
        number = self._log.next_number
        try:
            item.transaction = self._log.accept(
                texts, request.who.name, request.key, request.digest, request.settings, change
            )
        except Exception:
            self._log.withdraw(number)
            raise
        request.transaction = item.transaction
        # From here on it happens: nothing may fail.
        self._backlog.ahead = after
        for number, one in zip(item.transaction.numbers, changing, strict=False):
            if one.script is not None and isinstance(one.command, InsertRows | UpdateRows | DeleteRows):
                self._backlog.parsed[number] = one.script
        self._backlog.add(item)
        request.accepted.set()

    def _was_posted(self, request: PostedScript) -> bool:
        """Return whether a transaction was accepted before with the same key. Raises PenstockError P0731."""
        known = None if request.key is None else self._log.with_key(request.who.name, request.key)
        if known is None:
            return False
        if known.digest != request.digest:
            raise key_used(request.key or "")
        request.transaction, request.repeated = known, True
        return True

    def _drafted(self, request: PostedScript) -> Draft:
        """Bind a transaction against everything that has been accepted. Raises ScriptErrors and PenstockError."""
        ahead = self._backlog.ahead
        draft = Draft.on(ahead, self._settings_with(ahead.stored, request.settings), default_sink())
        if request.failure is not None:
            failure = request.failure
            draft.fail(failure.place, failure.error.code, failure.error.message, failure.track)
            return draft
        if request.looks:
            self._take_steps(draft, request)
            return draft
        if request.is_whole:
            self._draft_difference(draft, request)
            return draft
        commands, number, script = request.commands, self._log.next_number, request.commands.script
        errors: list[PenstockError] = []
        failed: set[str] = set()
        for statement in commands.statements:
            text, position = script.text_of(statement), script.position_of(statement)
            query_text = script.source.slice(statement.query.span) if isinstance(statement, CreateQuery) else ""
            try:
                with placed_at(position):
                    command, warnings = bind_one(
                        statement, draft.stored, draft.bound, settings_of(draft.settings), script.source, failed
                    )
                    command = self._draft_one(draft, number, command, (text, query_text), request.who)
                number += changes(command)
                alone, kind = script.with_only(statement), statement.statement_kind
                request.bound.append(BoundStatement(kind, text, command, warnings, position, alone))
                if request.separate and changes(command):
                    self._check_results(draft, ahead, request, position)
                    ahead = draft.registry
                    draft.begin_transaction()
            except (PenstockError, BindingFailed) as error:
                # The statements behind it are read for mistakes of their own.
                if isinstance(error, PenstockError):
                    errors += error.errors if isinstance(error, ScriptErrors) else [error]
                if isinstance(statement, CreateFunction | CreateQuery | CreateSource | CreateSummary | CreateView):
                    failed.add(statement.name.key)
        if errors:
            raise ScriptErrors(errors)
        return draft

    def _draft_one(
        self, draft: Draft, number: int, command: Command, texts: tuple[str, str], who: Principal
    ) -> Command:
        """Add a bound statement to the draft; return it, or `Unchanged` where it changes nothing. texts: of the
        statement and of its query. Raises ScriptErrors and PenstockError."""
        if self._policy is not None:
            self._policy(command, who)
        if isinstance(command, UpdateControl):
            if not self._draft_update(draft, number, command, who):
                return Unchanged("RELATION", command.relation, "no value changes")
            return command
        if isinstance(command, ChangeSetting):
            draft.settings = {**draft.settings, command.key.lower(): command.value}
        elif isinstance(command, UpdateRows | DeleteRows):
            check_changeable(draft.bound.sources[command.relation.lower()])
        if changes(command):
            draft.add(number, known_choices(command, draft, self._engine), *texts)
        return command

    def _take_steps(self, draft: Draft, request: PostedScript) -> None:
        """Add the steps of changes of plans that are due, between two transactions. One that begins is alone, since it
        may be impossible; that is not tried again."""
        if self._backlog.items:
            return
        number = self._log.next_number
        for step in due_steps(self._backlog.ahead, self._engine.version()):
            one = draft.stored.objects[step.id]
            if step.edit is None:
                request.begins = one.id, one.wished_plan
                if request.begins in self._impossible or request.steps:
                    continue
            error = None if step.edit is None else self._failed_step(step.edit.place)
            if error is not None:
                draft.give_up(one, error)
                text = f"QUERY {one.name}: CANNOT CHANGE"
            else:
                text = draft.take_step(number, step)
                if text and step.edit is not None:
                    places = {place for _, query in draft.stored.queries for place, _ in query.plans}
                    self._take_overs = {place: n for place, n in self._take_overs.items() if place in places}
                    self._take_overs[step.edit.place] = number
            if text:
                request.steps.append(text)
                number += 1
            if step.edit is None:
                return
        self._take_holds(draft, request)
        request.begins = None

    def _take_holds(self, draft: Draft, request: PostedScript) -> None:
        """Add the steps of what waits for rows which are due. A query that cannot begin fails, and a change of one is
        given up."""
        registry, number = self._backlog.ahead, self._log.next_number + len(request.steps)

        def awaited(id_: int, place: int) -> AwaitedRows | None:
            one = registry.stored.objects[id_]
            assert one.query is not None, "a query waits"
            try:
                query = queried(one, one.query, place, registry, self._posted)
                return None if query is None else self._engine.awaited(query)
            except Exception as error:
                # It goes on waiting, and keeps no other one from its step.
                if self._unknown.get(id_) != (unknown := repr(error)):
                    self._unknown[id_] = unknown
                    as_known(error, f"what query {one.name} waits for cannot be found out")
                return None

        for step in due_holds(registry, awaited):
            one, place = draft.stored.objects[step.id], step.place
            assert one.query is not None, "a query waits"
            failed = self._log.outcomes.get(self._begun.pop(place, 0))
            error = None if failed is None or not failed.code else PenstockError(failed.code, failed.message or "")
            text = "" if error is not None else draft.take_hold_step(number, step)
            if text and step.tick is not None:
                self._begun[place] = number
                error = self._refused(draft)
            if error is not None:
                draft.fail(place, error.code, error.message)
                text = f"QUERY {one.name}: CANNOT {'BEGIN' if place == one.query.place else 'CHANGE'}"
            if text:
                request.steps.append(text)
                number += 1

    def _refused(self, draft: Draft) -> PenstockError | None:
        """Return why the engine cannot do what has been drafted, None where it can."""
        try:
            self._engine.check(self._part(draft))
        except Exception as error:
            return as_known(error, "the query cannot begin")
        return None

    def _failed_step(self, place: int) -> PenstockError | None:
        """Return why what is computed at a place beside a query cannot take over, where that is for good."""
        outcome = self._log.outcome(self._take_overs.get(place, 0))
        if outcome is None or outcome.code != "P0703":
            return None
        return PenstockError(outcome.code, outcome.message or "")

    def _draft_update(self, draft: Draft, number: int, command: UpdateControl, who: Principal) -> bool:
        """Add the statements that carry out an UPDATE of a control relation, as one command; return whether there are
        any. Raises PenstockError at the place of the UPDATE."""
        registry = draft.registry
        settings = settings_of(self._settings_with(registry.stored, {}))
        view = SystemView(
            registry,
            declared_queries(registry),
            self._engine.version,
            self._engine.figures,
            self._commands,
            settings,
            self._log.begun,
        )
        texts = statements_of(command, view)
        for text in texts:
            try:
                one = command_of(text, draft.bound, settings_of(draft.settings))
                if self._policy is not None:
                    self._policy(one, who)
                draft.add(number, known_choices(one, draft, self._engine), text)
            except (ScriptErrors, PenstockError) as error:
                first = first_error(error)
                raise PenstockError(first.code, first.message, command.position, first.hint, first.cause) from None
        return bool(texts)

    def _draft_difference(self, draft: Draft, request: PostedScript) -> None:
        """Add what brings the declarations to those of a script. Raises ScriptErrors."""
        script, settings = request.commands.script, draft.settings
        steps = catalog_steps(script, self._backlog.ahead, settings)
        errors: list[PenstockError] = []
        for number, step in enumerate(steps, self._log.next_number):
            draft.settings = step.settings or settings
            position = None if step.span is None else script.source.position(step.span)
            request.bound.append(BoundStatement(step.kind, step.text, step.command, step.warnings, position))
            try:
                if self._policy is not None:
                    self._policy(step.command, request.who)
                command = known_choices(step.command, draft, self._engine)
                if step.rewords:
                    assert isinstance(command, CreateQueryCommand), "only queries are"
                    draft.reword(command, step.query_text)
                else:
                    draft.add(number, command, step.text, step.query_text)
            except PenstockError as error:
                errors.append(error.at(position))
        if errors:
            raise ScriptErrors(errors)

    def _settings_with(self, stored: StoredCatalog, session: Mapping[str, str]) -> dict[str, str]:
        """Return the settings in force in a session, as written."""
        return {**self._settings, **stored.settings, **session}

    def _check(self, draft: Draft, before: Registry) -> None:
        """Raise PenstockError for what the engine cannot do. A query, or a change of one, that begins with last rows
        which are still to come waits for them.

        before: the declarations before the transaction.
        """
        part = self._part(draft)
        tracks = {track for _, query in before.stored.queries for track in query.tracks}
        waiting = [one.place for one in part.queries.values() if one.track not in tracks and self._missing(one)]
        for place in waiting:
            draft.hold(place)
        self._engine.check(self._part(draft) if waiting else part)

    def _check_results(self, draft: Draft, before: Registry, request: PostedScript, elsewhere: Position | None) -> None:
        """Raise ScriptErrors P0502 and P0504 for results in wrong places; add the warnings to those of the last
        statement.

        elsewhere: the place of what has no INTO in the script.
        """
        at, former, now = request.commands.source.position, before.bound, draft.bound
        places = {name: at(span) for name, span in request.commands.into_spans.items()}
        found = list(
            self._results.new_collisions(
                former.queries, now.queries, former.sources, now.sources, places, elsewhere or at(NOWHERE)
            )
        )
        errors = [one for one in found if isinstance(one, PenstockError)]
        if errors:
            raise ScriptErrors(errors)
        if found:
            request.bound[-1].warnings += tuple(one for one in found if isinstance(one, ScriptWarning))

    def _part(self, draft: Draft) -> NextVersion:
        settings = settings_of(self._settings_with(draft.stored, {}))
        return part_of_version(
            draft.stored, draft.bound, self._log.next_number, settings, self._posted, draft.change, draft.touched
        )

    def _missing(self, one: StandingQuery) -> Mapping[str, int]:
        """Return the rows for which a query that begins has to wait, by source."""
        if one.query is None or one.activity is not Activity.RUNNING or not one.start.wait:
            return {}
        found = self._engine.awaited(one.query)
        return {} if found is None else found.rows


def changes(command: Command) -> bool:
    """Return whether a command changes something of the system."""
    return not isinstance(command, _READS)
