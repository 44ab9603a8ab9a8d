"""Carry out accepted transactions: bring the engine to the version that contains them, and note what became of them.

What has been accepted so far makes one version, except for a later change of the same query and what waits for a past
that is read (`transactions/backlog.py`). A transaction that fails takes along those that depend on it, which were
accepted against declarations that never came to be; all their outcomes are written in one file.

After a crash the declarations are those of the latest stored catalog and of what was applied after it. Transactions
that were accepted and not applied are applied then, with the same numbers and so with the same result.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from penstock.algebra.nodes.query import StartMode
from penstock.algebra.nodes.scans import Source
from penstock.control.command_log import CATALOG_EVERY, CommandLog, Transaction
from penstock.control.engine import Engine, EngineVersion, NextVersion, Preparation
from penstock.control.entities.batch_log import BatchLogWriter
from penstock.control.entities.relations import control_tables
from penstock.control.outcomes import SYSTEM, CommandOutcome, CommandState
from penstock.control.posted_rows import PostedRows
from penstock.control.registry import Registry, command_of, default_sink, first_error, restored, settings_of
from penstock.control.repair import accepted, change_with_paused, held_numbers, pause, paused_numbers, with_paused
from penstock.control.row_changes import post_rows
from penstock.control.stored_catalog import CatalogChange, RowStatement, StoredCatalog, StoredObject
from penstock.control.transactions.backlog import AcceptedItem, Backlog, dependents, waiting_behind
from penstock.control.transactions.draft import Draft
from penstock.control.transactions.footprint import footprint_of
from penstock.control.transactions.late_waits import have_wait, late_waits
from penstock.control.transactions.merging import BoundChange, bound_change, with_changes
from penstock.control.transactions.past_reading import PastReading
from penstock.control.transactions.plan_edits import changes_plans
from penstock.control.versions import Versions, applied, failed
from penstock.errors import PenstockError, ScriptErrors
from penstock.events import log_event, logger_of
from penstock.language.catalog import QueryStatus
from penstock.language.commands import DeleteRows, InsertRows, UpdateRows
from penstock.runtime.watching.figures import BatchFigures

LOG = logger_of("control")


def nobody() -> None:
    """Do nothing."""


#: Transactions that are applied together at most.
TOGETHER = 1000


class Applier:
    """The declarations that an engine runs, and their changes. Used by one thread.

    Args:
        engine: runs the queries.
        log: the command log.
        stored: the latest catalog of the log.
        posted: rows that are posted.
        settings: of the whole system at the start, as written.

    Attributes:
        current: the declarations that the engine runs.
        backlog: what has been accepted and is not applied yet.
    """

    def __init__(
        self, engine: Engine, log: CommandLog, stored: StoredCatalog, posted: PostedRows, settings: Mapping[str, str]
    ) -> None:
        self._engine = engine
        self._log = log
        self._posted = posted
        self._versions = Versions(posted)
        self._batch_log = BatchLogWriter(posted)
        #: Is called after each batch and each change, where the plan of some query is to be another one.
        self.on_plans: Callable[[], None] = nobody
        engine.follow(self._note)
        self._settings = dict(settings)
        self.current = Registry(stored)
        self.backlog = Backlog()
        #: The number of the last command that the engine's version contains.
        self._reached = 0
        #: By number of a command, the rows that it has changed, until that is in its outcome.
        self._row_counts: dict[int, int] = {}
        self._unwritten: list[CommandOutcome] = []
        #: Whether some of these could not be written.
        self._owes_outcomes = False
        self._outcomes_lock = threading.Lock()

    def _note(self, batch: BatchFigures, places: Mapping[str, int]) -> bool:
        """Note a batch, and have changes of plans looked at."""
        has_posted = self._batch_log.note(batch, places)
        self._look()
        return has_posted

    def _look(self) -> None:
        if changes_plans(self.current):
            self.on_plans()

    def run(self) -> None:
        """Apply what is accepted, until the backlog is closed."""
        while True:
            items, is_closed = self.backlog.wait()
            while group := self._next_group(items, not is_closed):
                self._apply(group)
                items = self.backlog.items
            if is_closed:
                break
        for item in items:
            item.end_reading()
            item.answer()

    # -- choosing ----------------------------------------------------------------------------------------------

    def _next_group(self, items: Sequence[AcceptedItem], may_read: bool = True) -> list[AcceptedItem]:
        """Return what is applied next, as one version. may_read: readings of a past may begin."""
        for item in items:
            if item.reading is not None and not item.waits:
                # It fits the version in which nothing else is new, and another version would take it away.
                return [item]
        group: list[AcceptedItem] = []
        held: list[AcceptedItem] = []
        touched: set[int] = set()
        for item in items:
            if item.transaction is None:
                group.append(item)
                continue
            if _waits(item, held):
                held.append(item)
                continue
            if item.reading is None and not item.is_ready:
                if self._reads_past([item]) and _waits(item, group):
                    # What of its past can be read depends on what comes before.
                    break
                if may_read:
                    self._prepare(item)
            if not item.is_ready:
                # Where it has caught up already, it is the next one.
                held.append(item)
                continue
            if item.places & touched or len(group) >= TOGETHER:
                break
            group.append(item)
            touched |= item.places
        return group or self._without_past(held)

    def _reads_past(self, items: Sequence[AcceptedItem]) -> bool:
        """Return whether queries begin with a past after some transactions together."""
        left: dict[int, StoredObject] = {}
        for item in items:
            change = item.change.change
            left |= {one.id: one for one in change.objects}
            for number in change.removed:
                left.pop(number, None)
        return any(self._begins_with_past(one) for one in left.values())

    def _begins_with_past(self, one: StoredObject) -> bool:
        query = one.query
        if query is None:
            return False
        tracks = {track for _, standing in self.current.stored.queries for track in standing.tracks}
        if query.edit is not None and not query.edit.awaits and query.edit.track not in tracks:
            return True
        if query.status is not QueryStatus.RUNNING or query.start.mode is StartMode.NOW:
            return False
        return one.id not in self.current.stored.objects or query.track not in tracks

    def _prepare(self, item: AcceptedItem) -> None:
        """Begin to read the past of a transaction's queries where they have one; it is answered then."""
        preparation: Preparation | None = None
        if self._reads_past([item]):
            preparation = self._engine.prepare(self._next([item], with_changes(self.current, [item.change])))
        if preparation is None:
            item.is_ready = True
        else:
            item.reading = PastReading(preparation, self.backlog.wake)
            item.answer()

    def _without_past(self, held: Sequence[AcceptedItem]) -> list[AcceptedItem]:
        """Return transactions that wait for a past which nothing needs after those behind them: the query that reads it
        has been dropped or paused. The reading ends."""
        for item in held:
            if not item.waits:
                continue
            chain = [item, *waiting_behind(item, held)]
            if len(chain) > 1 and not self._reads_past(chain):
                item.end_reading()
                for one in chain:
                    one.is_ready = True
                return chain
        return []

    # -- applying ----------------------------------------------------------------------------------------------

    def _apply(self, group: Sequence[AcceptedItem]) -> None:
        """Apply accepted transactions together, or one by one where that fails, and answer who waits for them."""
        items = [item for item in group if item.transaction is not None]
        self.backlog.in_hand = group
        try:
            if items:
                self._apply_all(items)
        except PenstockError as error:
            if len(items) == 1:
                self._fail(items[0], error)
            else:
                self._apply_each(items)
        self.backlog.remove(group)
        self._save_catalog()
        for item in group:
            item.answer()
        self.backlog.in_hand = ()
        if items:
            self._look()

    def _apply_each(self, items: Sequence[AcceptedItem]) -> None:
        """Apply transactions one by one, without those that fail."""
        for item in items:
            if item not in self.backlog.items:
                continue  # it depends on one that failed
            try:
                self._apply_all([item])
            except PenstockError as error:
                self._fail(item, error)

    def _fail(self, item: AcceptedItem, error: PenstockError) -> None:
        """Let an accepted transaction fail, unless its queries can wait for the rows that are missing."""
        waits = late_waits(item, self.current, self._engine, self._posted) if error.code == "P0703" else {}
        if waits:
            item.end_reading()
            try:
                with self.backlog.gate:
                    have_wait(self.backlog.items, waits, self._log)
                    self.backlog.ahead = with_changes(self.current, [each.change for each in self.backlog.items])
                self._apply_all([item])
            except PenstockError as failure:
                error = failure
            else:
                return
        self._lose(item, error)

    def _lose(self, item: AcceptedItem, error: PenstockError) -> None:
        """Let an accepted transaction fail, with those that depend on it."""
        with self.backlog.gate:
            items = self.backlog.items
            behind = dependents(item, items[items.index(item) + 1 :])
            lost = [item, *behind]
            depends = PenstockError("P0732", "it depends on a command that failed")
            outcomes = [one for each in lost for one in failed(_of(each), error if each is item else depends)]
            # Their numbers are not given again.
            number = max(each.change.change.next_id for each in lost)
            self.current = replace(self.current, stored=self.current.stored.changed(CatalogChange(next_id=number)))
            # Written together, and before anything later is applied: a restart would take them for applied.
            self._write_outcomes(outcomes, at_once=True)
            self.backlog.remove(lost)
            self.backlog.ahead = with_changes(self.current, [each.change for each in self.backlog.items])
        for each in lost:
            each.end_reading()
            each.answer()

    def _apply_all(self, items: Sequence[AcceptedItem]) -> None:
        """Apply some transactions as one version, and note their outcomes. Raises PenstockError, and then nothing has
        changed."""
        reading = items[0].reading
        if reading is not None:
            reading.check()
        after = with_changes(self.current, [item.change for item in items])
        transactions = [_of(item) for item in items]
        early: list[tuple[int, str]] = []
        try:
            for transaction in transactions:
                # A relation that never changes is read by the query that begins.
                early += self._post(transaction, after, static=True)
                self._check_content(transaction, after)
            version = self._change(self._next(items, after), None if reading is None else reading.preparation)
        except PenstockError:
            for source, key in early:
                self._posted.withdraw(source, key)
            raise
        if reading is not None:
            reading.end()
        self._reached = version.command
        self.current = after
        self.backlog.remove(items)
        try:
            outcomes: list[CommandOutcome] = []
            for transaction in transactions:
                self._post(transaction, after, static=False)
                outcomes += (
                    replace(one, rows=self._row_counts.pop(one.number, None)) for one in applied(transaction, version)
                )
        except PenstockError as error:
            # The engine has changed: the rest is done at the next start.
            raise RuntimeError(f"rows of a command that was applied cannot be kept: {error}") from error
        self._drop_rows(transactions)
        self._engine.wake()
        self._write_outcomes(outcomes)

    def _change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        """Have the engine go over to a version. Raises PenstockError, and then nothing has changed."""
        with self._batch_log.during_change(version, self._engine.version().sources):
            return self._engine.change(version, prepared)

    def _next(self, items: Sequence[AcceptedItem], after: Registry) -> NextVersion:
        """Return the version in which some transactions are new."""
        last = max([self._reached, *(_of(item).last for item in items)])
        others = [one.transaction for one in self.backlog.items if one.transaction is not None and one not in items]
        waiting = [number for one in others if one.first < last for number in one.numbers]
        settings = settings_of({**self._settings, **after.stored.settings})
        return self._versions.next(after.stored, after.bound, last, settings, waiting)

    def _check_content(self, transaction: Transaction, registry: Registry) -> None:
        """Raise PenstockError where posted rows cannot be read that a statement needs: it is carried out after the
        engine has changed."""
        for row, source in _rows_of(transaction, registry, static=False):
            if self._posted.has(row.source, _key(row)) or row.text[:6].upper() == "INSERT":
                continue
            if not isinstance(self._command(transaction, row, registry), InsertRows):
                self._engine.updates(self._posted.source(source, row.source))

    def _post(self, transaction: Transaction, registry: Registry, static: bool) -> list[tuple[int, str]]:
        """Carry out the statements of a transaction that change rows; return the posts. static: those of relations that
        never change."""
        posts = []
        for row, source in _rows_of(transaction, registry, static):
            command, key = self._command(transaction, row, registry), _key(row)
            count = post_rows(self._posted, source, row.source, command, key, self._engine.updates)
            if count is not None:
                self._row_counts[row.number] = count
            posts.append((row.source, key))
        return posts

    def _command(
        self, transaction: Transaction, row: RowStatement, registry: Registry
    ) -> InsertRows | UpdateRows | DeleteRows:  # fmt: skip
        settings = settings_of({**self._settings, **registry.stored.settings, **transaction.settings})
        command = command_of(row.text, registry.bound, settings)
        assert isinstance(command, InsertRows | UpdateRows | DeleteRows), "it changes rows"
        return command

    def _drop_rows(self, transactions: Sequence[Transaction]) -> None:
        for transaction in transactions:
            for number in transaction.change.removed:
                self._posted.drop(number)

    def write_outcomes(self) -> None:
        """Write the outcomes that could not be written before; called by any thread. Raises PenstockError P0601."""
        if self._owes_outcomes:
            self._write_outcomes([])

    def _write_outcomes(self, outcomes: Sequence[CommandOutcome], at_once: bool = False) -> None:
        """Note what became of commands. at_once: nothing may be applied before it is written."""
        with self._outcomes_lock:
            self._unwritten += outcomes
            self._log.note(outcomes)
            if not self._unwritten:
                return
            try:
                self._log.finish(self._unwritten)
                self._unwritten, self._owes_outcomes = [], False
            except PenstockError:
                self._owes_outcomes = True
                # That a command has been applied is known from the version, so it can be written later.
                if at_once or not outcomes:
                    raise

    def _save_catalog(self) -> None:
        """Store the declarations every so often."""
        last = self._reached
        if last - self._log.catalog_number < CATALOG_EVERY or self._unwritten:
            return
        try:
            self._log.save(self.current.stored, last)
            self._posted.expire()
        except (PenstockError, OSError) as error:
            log_event(LOG, logging.WARNING, "control", f"the catalog cannot be stored, the log stays: {error}")

    # -- recovery ----------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Bring declarations and engine together, and apply what was accepted and not applied."""
        version = self._engine.version()
        self._reached = version.command
        stored = base = self.current.stored
        held = held_numbers(self._log, base)
        waiting: list[Transaction] = []
        rows: list[Transaction] = []
        for transaction in self._log.since_catalog():
            outcome = self._log.outcomes.get(transaction.last)
            is_contained = transaction.last <= version.command and transaction.last not in version.waiting
            if outcome is None and not is_contained:
                waiting.append(transaction)
            elif outcome is not None and outcome.state is CommandState.FAILED:
                stored = stored.changed(CatalogChange(next_id=transaction.change.next_id))
            else:
                stored = stored.changed(transaction.change)
                if outcome is None:
                    rows.append(transaction)
        self.current = restored(with_paused(stored, held), control_tables())
        self._accept_again(waiting, held)
        version = self._change(self._next([], self.current))
        for transaction in rows:
            self._post(transaction, self.current, static=True)
            self._post(transaction, self.current, static=False)
            self._drop_rows([transaction])
            self._write_outcomes(applied(transaction, version), at_once=True)
        while group := self._next_group(self.backlog.items):
            self._apply(group)
        self._note_held(held, accepted(self._log, base))
        self._note_attention()

    def _accept_again(self, waiting: Sequence[Transaction], held: Collection[int]) -> None:
        """Put transactions of the log into the backlog. One that cannot be bound any more fails, with those that depend
        on it. held: numbers of queries that do not run."""
        self.backlog.ahead = self.current
        outcomes: list[CommandOutcome] = []
        for transaction in waiting:
            before = self.backlog.ahead
            try:
                change = bound_change(before, change_with_paused(transaction.change, held))
            except (PenstockError, ScriptErrors) as error:
                outcomes += failed(transaction, first_error(error))
                continue
            self.backlog.ahead = with_changes(before, [change])
            footprint = footprint_of(before.stored, change.change, change.bound)
            kept = [one.query for one in change.change.objects if one.query is not None]
            places = frozenset(place for query in kept for place, _ in query.plans)
            self.backlog.add(AcceptedItem(transaction, change, footprint, places))
        if outcomes:
            self._write_outcomes(outcomes, at_once=True)

    def _note_held(self, held: frozenset[int], noted: StoredCatalog) -> None:
        """Note as a command that queries are paused whose pause has failed, since it depends on a command that failed.

        Args:
            held: numbers of queries that did not run during the recovery.
            noted: the declarations as the log has them.
        """
        runs = [pair for pair in noted.queries if pair[0].id in held - paused_numbers(noted)]
        if runs:
            self._apply_noted(pause(self._log, self.current.stored, runs), self.current)

    def _apply_noted(self, made: Transaction, after: Registry) -> None:
        """Apply a command of the system itself. after: where its declarations are bound."""
        change = BoundChange(made.change, after.bound)
        footprint = footprint_of(self.current.stored, made.change, after.bound)
        self._apply([AcceptedItem(made, change, footprint)])
        self.backlog.ahead = with_changes(self.backlog.ahead, [change])

    def _note_attention(self) -> None:
        """Note as commands which queries cannot be bound any more, and which ones that were to take the place of
        another one."""
        draft, current = Draft.on(self.current, {}, default_sink()), self.current
        names = [name for number, error in current.errors.items() if (name := draft.attention(number, error))]
        texts = [f"NEEDS ATTENTION: {', '.join(names)}"] if names else []
        bound = [one for one, _ in current.stored.queries if one.id not in current.errors]
        again = [name for one in bound if (name := draft.can_go_on(one))]
        texts += [f"CAN BE BOUND AGAIN: {', '.join(again)}"] if again else []
        changing = [one for number in current.lost if (one := draft.stored.objects.get(number)) is not None]
        for one in changing:
            if one.query is not None and one.query.edit is not None:
                draft.give_up(one, current.lost[one.id])
                texts.append(f"QUERY {one.name}: CANNOT CHANGE")
        if texts:
            made = self._log.accept(texts, SYSTEM.name, None, "", {}, draft.change)
            self._apply_noted(made, Registry(draft.stored, draft.bound, current.errors))


def _of(item: AcceptedItem) -> Transaction:
    assert item.transaction is not None, "it is a transaction"
    return item.transaction


def _waits(item: AcceptedItem, others: Sequence[AcceptedItem]) -> bool:
    """Return whether a transaction must not be applied before one of some earlier ones."""
    return any(item.footprint.waits_for(one.footprint) for one in others)


def _rows_of(transaction: Transaction, registry: Registry, static: bool) -> Iterator[tuple[RowStatement, Source]]:
    """Yield the statements of a transaction that change rows, with their sources. static: those of relations that never
    change."""
    for row in transaction.change.rows:
        one = registry.stored.objects.get(row.source)
        source = None if one is None else registry.bound.sources.get(one.name.lower())
        if source is not None and source.is_static == static:
            yield row, source


def _key(row: RowStatement) -> str:
    """Return the key of the post that a statement leads to."""
    return f"command {row.number}"
