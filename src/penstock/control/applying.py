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

from penstock.algebra.nodes.query import Query, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.optimizer.statistics import Statistics
from penstock.control.command_log import CATALOG_EVERY, CommandLog, Transaction
from penstock.control.engine import ControlEnds, Engine, EngineVersion, NextVersion, Preparation
from penstock.control.entities.batch_log import BatchLogWriter
from penstock.control.entities.relations import control_tables
from penstock.control.internal_errors import as_known, note
from penstock.control.outcomes import SYSTEM, CommandOutcome
from penstock.control.posted_rows import PostedRows
from penstock.control.registry import Registry, command_of, default_sink, restored, settings_of
from penstock.control.repair import accepted, change_with_paused, pause, paused_numbers, with_paused
from penstock.control.row_changes import post_rows
from penstock.control.stored_catalog import CatalogChange, RowStatement, StoredCatalog, StoredObject
from penstock.control.transactions.backlog import AcceptedItem, Backlog, dependents, waiting_behind
from penstock.control.transactions.draft import Draft
from penstock.control.transactions.footprint import footprint_of
from penstock.control.transactions.late_waits import have_wait, late_waits
from penstock.control.transactions.merging import BoundChange, bound_change, with_changes
from penstock.control.transactions.past_reading import PastReading
from penstock.control.transactions.plan_edits import changes_plans
from penstock.control.versions import Versions, applied, failed, failure, queried
from penstock.errors import PenstockError
from penstock.events import log_event, logger_of
from penstock.language.catalog import QueryStatus
from penstock.language.commands import DeleteRows, InsertRows, UpdateRows
from penstock.physical.planning.planner import plan_queries
from penstock.physical.planning.strategies import Strategy
from penstock.runtime.watching.figures import BatchFigures

LOG = logger_of("control")


def nobody() -> None:
    """Do nothing."""


#: Transactions that are applied together at most.
TOGETHER = 1000
#: How often in a row what waits is looked at again where that fails by an error that is of no single command.
_ATTEMPTS = 3


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
        #: By number, the queries without which this start goes on.
        self._left_out: dict[int, PenstockError] = {}

    def _note(self, batch: BatchFigures, places: Mapping[str, int]) -> bool:
        """Note a batch, and have changes of plans looked at."""
        has_posted = self._batch_log.note(batch, places)
        try:
            self._look()
        except Exception as error:
            note(error, "changes of plans cannot be looked at")
        return has_posted

    def _look(self) -> None:
        if changes_plans(self.current):
            self.on_plans()

    def run(self) -> None:
        """Apply what is accepted, until the backlog is closed."""
        failed_in_row = 0
        while True:
            try:
                items, is_closed = self.backlog.wait()
                while group := self._next_group(items, not is_closed):
                    self._apply(group)
                    items = self.backlog.items
                failed_in_row = 0
            except ControlEnds:
                raise
            except Exception as error:
                # It is of no single command, as that would have failed: what waits is looked at again.
                failed_in_row += 1
                if failed_in_row > _ATTEMPTS:
                    raise
                note(error, "commands cannot be applied for now")
                self._leave_in_hand()
                continue
            if is_closed:
                break
        for item in items:
            item.end_reading()
            item.answer()

    def _leave_in_hand(self) -> None:
        """Answer those in hand that have been applied or have failed; the others wait."""
        in_hand, self.backlog.in_hand = self.backlog.in_hand, ()
        self.backlog.remove([item for item in in_hand if item.is_applied or item.transaction is None])
        waiting = self.backlog.items
        for item in in_hand:
            if item not in waiting:
                item.answer()
        self.backlog.wake()

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
            try:
                if _waits(item, held):
                    held.append(item)
                    continue
                if item.reading is None and not item.is_ready:
                    if self._reads_past([item]) and _waits(item, group):
                        # What of its past can be read depends on what comes before.
                        break
                    if may_read:
                        self._prepare(item)
            except ControlEnds:
                raise
            except Exception as error:
                self._fail(item, error)
                return self._next_group(self.backlog.items, may_read)
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
            return
        try:
            item.reading = PastReading(preparation, self.backlog.wake)
        except BaseException:
            preparation.discard()
            raise
        item.answer()

    def _without_past(self, held: Sequence[AcceptedItem]) -> list[AcceptedItem]:
        """Return transactions that wait for a past which nothing needs after those behind them: the query that reads it
        has been dropped or paused. The reading ends."""
        for item in held:
            if not item.waits:
                continue
            try:
                chain = [item, *waiting_behind(item, held)]
                is_needed = len(chain) == 1 or self._reads_past(chain)
            except Exception as error:
                note(error, "whether a past is still needed cannot be found out")
                continue
            if not is_needed:
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
        except ControlEnds:
            raise
        except Exception as error:
            if len(items) == 1 or items[0].is_applied:
                for item in items:
                    self._fail(item, error)
            else:
                self._apply_each(items)
        self.backlog.remove(group)
        try:
            self._save_catalog()
            if items:
                self._look()
        except Exception as error:
            note(error, "what follows commands has failed")
        for item in group:
            item.answer()
        self.backlog.in_hand = ()

    def _apply_each(self, items: Sequence[AcceptedItem]) -> None:
        """Apply transactions one by one, without those that fail."""
        for item in items:
            if item not in self.backlog.items:
                continue  # it depends on one that failed
            if item.is_applied:
                self.backlog.remove([item])
                continue
            try:
                self._apply_all([item])
            except ControlEnds:
                raise
            except Exception as error:
                self._fail(item, error)

    def _fail(self, item: AcceptedItem, error: Exception) -> None:
        """Let an accepted transaction fail, unless its queries can wait for the rows that are missing. One that has
        been applied stays so: what is left of it is done at the next start."""
        if item.is_applied:
            note(error, "a command has been applied, and what follows it failed")
            self.backlog.remove([item])
            return
        try:
            if isinstance(error, PenstockError) and error.code == "P0703" and self._can_wait(item):
                return
        except ControlEnds:
            raise
        except Exception as failure:
            error = failure
        self._lose(item, as_known(error, "the command cannot be applied"))

    def _can_wait(self, item: AcceptedItem) -> bool:
        """Have the queries of a transaction wait for the rows that are missing; return whether there are such. Raises
        what its application raises."""
        waits = late_waits(item, self.current, self._engine, self._posted)
        if waits:
            item.end_reading()
            with self.backlog.gate:
                have_wait(self.backlog.items, waits, self._log)
                self.backlog.ahead = with_changes(self.current, [each.change for each in self.backlog.items])
            self._apply_all([item])
        return bool(waits)

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
        """Apply some transactions as one version, and note their outcomes. What it raises has changed nothing, unless
        it is ControlEnds."""
        reading = items[0].reading
        if reading is not None:
            reading.check()
        after = with_changes(self.current, [item.change for item in items])
        transactions = [_of(item) for item in items]
        early: list[tuple[int, str]] = []
        try:
            for transaction in transactions:
                # A relation that never changes is read by the query that begins.
                for row, source in _rows_of(transaction, after, static=True):
                    early.append((row.source, _key(row)))
                    self._change_row(transaction, after, row, source)
                self._check_content(transaction, after)
            version = self._change(self._next(items, after), None if reading is None else reading.preparation)
        except Exception:
            for source, key in early:
                self._posted.withdraw(source, key)
            raise
        self._reached, self.current = version.command, after
        for item in items:
            item.is_applied = True
        self.backlog.remove(items)
        if reading is not None:
            reading.end()
        try:
            outcomes = [one for each in transactions for one in self._carried_out(each, after, version)]
        except PenstockError as error:
            # The engine has changed: the rest is done at the next start.
            raise ControlEnds(f"rows of a command that was applied cannot be kept: {error}") from error
        self._write_outcomes(outcomes)
        self._drop_rows(transactions)
        self._engine.wake()

    def _carried_out(
        self, transaction: Transaction, after: Registry, version: EngineVersion, static: bool = False
    ) -> list[CommandOutcome]:
        """Carry out the statements of a transaction that change rows, which a version contains; return the outcomes of
        all its commands. A statement whose rows cannot be evaluated then has failed alone.

        Args:
            after: the declarations with what it changes.
            static: also those of relations that never change.

        Raises:
            PenstockError: P0601, rows cannot be kept.
        """
        rows = [*(_rows_of(transaction, after, static=True) if static else ())]
        rows += _rows_of(transaction, after, static=False)
        lost: dict[int, PenstockError] = {}
        for row, source in rows:
            try:
                self._change_row(transaction, after, row, source)
            except Exception as error:
                if isinstance(error, PenstockError) and error.code == "P0601":
                    raise
                lost[row.number] = as_known(error, "its rows cannot be changed")
                self._withdraw(row)
        counts = {number: self._row_counts.pop(number, None) for number in transaction.numbers}
        return [
            replace(one, rows=counts[one.number]) if one.number not in lost else failure(one.number, lost[one.number])
            for one in applied(transaction, version)
        ]

    def _withdraw(self, row: RowStatement) -> None:
        """Take back the rows of a statement that has failed, as far as they are there."""
        try:
            self._posted.withdraw(row.source, _key(row))
        except Exception as error:
            note(error, "rows of a statement that has failed cannot be taken back")

    def _change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        """Have the engine go over to a version. What it raises changes nothing."""
        before = self._engine.version()
        try:
            with self._batch_log.during_change(version, before.sources):
                return self._engine.change(version, prepared)
        except ControlEnds:
            raise
        except Exception as error:
            now = self._engine.version()
            commands = now.command, now.waiting
            if commands == (before.command, before.waiting) or commands != (version.command, version.waiting):
                raise
            note(error, f"the engine has changed to version {now.number}, and this failed behind the change")
            return now

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

    def _change_row(self, transaction: Transaction, registry: Registry, row: RowStatement, source: Source) -> None:
        """Carry out a statement that changes rows, unless it has been carried out."""
        command = self._command(transaction, row, registry)
        count = post_rows(self._posted, source, row.source, command, _key(row), self._engine.updates)
        if count is not None:
            self._row_counts[row.number] = count

    def _command(
        self, transaction: Transaction, row: RowStatement, registry: Registry
    ) -> InsertRows | UpdateRows | DeleteRows:  # fmt: skip
        settings = settings_of({**self._settings, **registry.stored.settings, **transaction.settings})
        command = command_of(row.text, registry.bound, settings)
        assert isinstance(command, InsertRows | UpdateRows | DeleteRows), "it changes rows"
        return command

    def _drop_rows(self, transactions: Sequence[Transaction]) -> None:
        for number in [number for one in transactions for number in one.change.removed]:
            try:
                self._posted.drop(number)
            except Exception as error:
                note(error, "rows of a source that was dropped are left behind")

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
            except Exception as error:
                self._owes_outcomes = True
                # That a command has been applied is known from the version, so it can be written later.
                if at_once or not outcomes:
                    raise
                if not isinstance(error, PenstockError):
                    note(error, "outcomes are written later")

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
        # These do not run during the recovery, as they are paused at its end.
        held = paused_numbers(accepted(self._log, base))
        waiting: list[Transaction] = []
        rows: list[Transaction] = []
        for transaction in self._log.since_catalog():
            outcome = self._log.outcomes.get(transaction.last)
            is_contained = transaction.last <= version.command and transaction.last not in version.waiting
            if outcome is None and not is_contained:
                waiting.append(transaction)
            elif self._log.has_failed(transaction):
                stored = stored.changed(CatalogChange(next_id=transaction.change.next_id))
            else:
                stored = stored.changed(transaction.change)
                if outcome is None:
                    rows.append(transaction)
        self.current = restored(with_paused(stored, held), control_tables())
        self._accept_again(waiting, held)
        version = self._go_on()
        for transaction in rows:
            outcomes = self._carried_out(transaction, self.current, version, static=True)
            self._drop_rows([transaction])
            self._write_outcomes(outcomes, at_once=True)
        while group := self._next_group(self.backlog.items):
            self._apply(group)
        self._note_held(held, accepted(self._log, base))
        self._note_attention()

    def _go_on(self) -> EngineVersion:
        """Have the engine go on with the declarations. A query that keeps it from that by an internal error is left
        out, and needs attention. Raises PenstockError where the error is of no single query."""
        try:
            return self._change(self._next([], self.current))
        except (PenstockError, ControlEnds):
            raise
        except Exception as failure:
            error = as_known(failure, "the queries cannot go on")
        for left_out in self._suspects(error):
            draft = Draft.on(self.current, {}, default_sink())
            for number, reason in left_out.items():
                draft.attention(number, reason)
            without = Registry(draft.stored, draft.bound, self.current.errors, self.current.lost)
            try:
                version = self._change(self._next([], without))
            except ControlEnds:
                raise
            except Exception as failure:
                # Nothing has changed by it, and the next one is tried.
                as_known(failure, "the queries cannot go on")
                continue
            self.current, self._left_out = without, left_out
            return version
        raise error

    def _suspects(self, error: PenstockError) -> Iterator[dict[int, PenstockError]]:
        """Yield what may be left out at a start, by number of a query: all that cannot be planned, then with these any
        other one. error: why the engine cannot go on with all."""
        running = [(one, query) for one, query in self.current.stored.queries if query.status is QueryStatus.RUNNING]
        unplanned: dict[int, PenstockError] = {}
        for one, query in running:
            try:
                for place, _ in query.plans:
                    known = queried(one, query, place, self.current, self._posted)
                    if known is not None:
                        _plan_alone(known)
            except Exception as failure:
                unplanned[one.id] = as_known(failure, "the query cannot be planned")
        if unplanned:
            yield unplanned
        for one, _ in running:
            if one.id not in unplanned:
                yield {**unplanned, one.id: error}

    def _accept_again(self, waiting: Sequence[Transaction], held: Collection[int]) -> None:
        """Put transactions of the log into the backlog. One that cannot be bound any more fails, with those that depend
        on it. held: numbers of queries that do not run."""
        self.backlog.ahead = self.current
        outcomes: list[CommandOutcome] = []
        for transaction in waiting:
            before = self.backlog.ahead
            try:
                change = bound_change(before, change_with_paused(transaction.change, held))
                ahead = with_changes(before, [change])
                footprint = footprint_of(before.stored, change.change, change.bound)
            except Exception as error:
                outcomes += failed(transaction, as_known(error, "the command cannot be bound"))
                continue
            self.backlog.ahead = ahead
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
        left_out = {number: why for number, why in self._left_out.items() if number in current.stored.objects}
        names = [name for number, error in current.errors.items() if (name := draft.attention(number, error))]
        names += [name for number, error in left_out.items() if (name := draft.attention(number, error, True))]
        texts = [f"NEEDS ATTENTION: {', '.join(names)}"] if names else []
        # One that was left out by an internal error stays so until it is resumed.
        known = [one for one, query in current.stored.queries if query.code != "P0601"]
        bound = [one for one in known if one.id not in current.errors]
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


def _plan_alone(query: Query) -> None:
    """Plan a query by itself. Raises whatever its planning raises."""
    strategy, statistics = Strategy.PATTERN, Statistics()
    root = optimize(query.root, planning=strategy.planning(statistics))
    plan_queries([replace(query, root=root)], statistics, strategy)


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
