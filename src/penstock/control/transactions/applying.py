"""Carry out accepted transactions: bring the engine to the version that contains them, and note what became of them.

What has been accepted so far makes one version, except for a later change of the same query and what waits for a past
that is read (`transactions/backlog.py`). A transaction that fails takes along those that depend on it, which were
accepted against declarations that never came to be; all their outcomes are written in one file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from penstock.algebra.nodes.query import StartMode
from penstock.algebra.nodes.scans import Source
from penstock.control.command_log import CATALOG_EVERY, CommandLog, Transaction
from penstock.control.drafting.versions import Versions, applied, failed, failure, queried
from penstock.control.engine import ControlEnds, Engine, EngineVersion, NextVersion, Preparation
from penstock.control.entities.batches import BatchLogWriter
from penstock.control.life.changes import with_waiting
from penstock.control.life.due_steps import changes_plans
from penstock.control.outcomes import CommandOutcome
from penstock.control.posted_rows import ContentsRead, PostedRows
from penstock.control.registry import Registry, command_of, settings_of
from penstock.control.row_changes import check_update, key_of_row, post_rows, rows_of
from penstock.control.stored_catalog import CatalogChange, RowStatement, StoredCatalog, StoredObject
from penstock.control.transactions.backlog import AcceptedItem, Backlog, dependents, waiting_behind
from penstock.control.transactions.merging import with_changes
from penstock.control.transactions.past_reading import PastReading
from penstock.errors import PenstockError, as_known, log_internal
from penstock.events import log_event, logger_of
from penstock.language.catalog import QueryStatus
from penstock.language.commands import AdvanceStream, DeleteRows, InsertRows, PunctuateStream, UpdateRows
from penstock.runtime.monitoring.figures import BatchFigures

# --- Queries and changes of queries that begin WARM WAIT, for which nothing was missing when they were accepted, and
# is when their past is to be read: what came meanwhile was not kept. From then on they wait for rows, as those do for
# which it is missing at once.


def late_waits(item: AcceptedItem, current: Registry, engine: Engine, posted: PostedRows) -> frozenset[int]:
    """Return the computations of a transaction that have to wait for rows.

    current: the declarations that the engine runs.
    """
    after = with_changes(current, [item.change])
    found: set[int] = set()
    for one in item.change.change.objects:
        before = current.stored.objects.get(one.id)
        # These run, or wait.
        known = set() if before is None or before.query is None else {each.id for each in before.query.computations}
        for each in [] if one.query is None else one.query.computations:
            query = queried(one, each, after, posted) if each.may_wait and each.id not in known else None
            missing = None if query is None else engine.awaited(query)
            if missing is not None and missing.rows:
                found.add(each.id)
    return frozenset(found)


def have_wait(items: Sequence[AcceptedItem], waits: Collection[int], log: CommandLog) -> None:
    """Have computations wait for rows in what was accepted, of the log too.

    Args:
        items: what was accepted. Other transactions may declare the queries as they begin, by another name.
        waits: the computations.

    Raises:
        PenstockError: P0601 where the log cannot be written.
    """
    for item in items:
        objects = tuple(_waiting(one, waits) for one in item.change.change.objects)
        if item.transaction is None or objects == item.change.change.objects:
            continue
        change = replace(item.change.change, objects=objects)
        item.transaction = log.amend(item.transaction, change)
        item.change = replace(item.change, change=change)


def _waiting(one: StoredObject, waits: Collection[int]) -> StoredObject:
    if one.query is None or not any(each.id in waits and each.may_wait for each in one.query.computations):
        return one
    return with_waiting(one, waits)


LOG = logger_of("control")


def do_nothing() -> None:
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
        contents: up to which posts computations read relations without timestamps.
        settings: of the whole system at the start, as written.

    Attributes:
        current: the declarations that the engine runs.
        backlog: what has been accepted and is not applied yet.
    """

    def __init__(
        self,
        engine: Engine,
        log: CommandLog,
        stored: StoredCatalog,
        posted: PostedRows,
        contents: ContentsRead,
        settings: Mapping[str, str],
    ) -> None:
        self._engine = engine
        self._log = log
        self._posted = posted
        self.contents = contents
        self._versions = Versions(posted, contents)
        self._batch_log = BatchLogWriter(posted)
        #: Is called after each batch and each change, where the plan of some query is to be another one.
        self.on_plans: Callable[[], None] = do_nothing
        self._settings = dict(settings)
        self.current = Registry(stored)
        self.backlog = Backlog()
        #: The number of the last command that the engine's version contains.
        self._reached = 0
        #: What follows versions that the engine has reached, in order, until it is done.
        self._following: list[Callable[[], None]] = []
        #: By number of a command, the rows that it has changed, until that is in its outcome.
        self._row_counts: dict[int, int] = {}
        self._unwritten: list[CommandOutcome] = []
        #: Whether some of these could not be written.
        self._owes_outcomes = False
        self._outcomes_lock = threading.Lock()

    def note(self, batch: BatchFigures, places: Mapping[str, int]) -> bool:
        """Note a batch, and have changes of plans looked at."""
        has_posted = self._batch_log.note(batch, places)
        _try(self._look)
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
                log_internal(error, "commands cannot be applied for now")
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
        known = {each.id for _, standing in self.current.stored.queries for each in standing.computations}
        if query.beside is not None and not query.beside.waits and query.beside.id not in known:
            return True
        if query.status is not QueryStatus.RUNNING or query.answer.start.mode is StartMode.NOW:
            return False
        return query.answer.id not in known

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
                log_internal(error, "whether a past is still needed cannot be found out")
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
        # It may be left of this group or of one before, where an error has come between.
        _try(self._follow)
        _try(self._save_catalog)
        for item in group:
            item.answer()
        self.backlog.in_hand = ()
        if items:
            _try(self._look)

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
        been applied stays so: what is left of it is done later."""
        if item.is_applied:
            log_internal(error, "a command has been applied, and what follows it failed")
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
                for row, source in rows_of(transaction, after, static=True):
                    early.append((row.source, key_of_row(row)))
                    self._change_row(transaction, after, row, source)
                self._check_content(transaction, after)
            version = self._change(self._next(items, after), None if reading is None else reading.preparation)
        except Exception:
            for number, key in early:
                self._posted.withdraw(number, key)
            raise
        self._reached, self.current = version.command, after
        for item in items:
            item.is_applied = True
        self._following.append(lambda: self._follow_version(transactions, after, version))
        self.backlog.remove(items)
        if reading is not None:
            _try(reading.end)
        self._follow()

    def _follow(self) -> None:
        """Do what follows the versions that the engine has reached; an error leaves the rest for the next call."""
        while self._following:
            self._following[0]()
            del self._following[0]

    def _follow_version(self, transactions: Sequence[Transaction], after: Registry, version: EngineVersion) -> None:
        """Carry out what follows a version with some transactions, and note their outcomes. It may be repeated."""
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
        rows = [*(rows_of(transaction, after, static=True) if static else ())]
        rows += rows_of(transaction, after, static=False)
        lost: dict[int, PenstockError] = {}
        for row, source in rows:
            error = self._change_row_or_withdraw(transaction, after, row, source)
            if error is not None and error.code == "P0601":
                # It was not foreseen. The other statements of the transaction stand, so it is tried once more.
                error = self._change_row_or_withdraw(transaction, after, row, source)
            if error is not None:
                lost[row.number] = error
        counts = {number: self._row_counts.get(number) for number in transaction.numbers}
        return [
            replace(one, rows=counts[one.number]) if one.number not in lost else failure(one.number, lost[one.number])
            for one in applied(transaction, version)
        ]

    def _change_row_or_withdraw(
        self, transaction: Transaction, after: Registry, row: RowStatement, source: Source
    ) -> PenstockError | None:
        """Carry out a statement that changes rows; return why it has failed. Raises PenstockError P0601 where rows
        cannot be kept."""
        try:
            self._change_row(transaction, after, row, source)
        except Exception as error:
            if isinstance(error, PenstockError) and error.code == "P0601":
                raise
            self._withdraw(row)
            return as_known(error, "its rows cannot be changed")
        return None

    def _withdraw(self, row: RowStatement) -> None:
        """Take back the rows of a statement that has failed, as far as they are there."""
        try:
            self._posted.withdraw(row.source, key_of_row(row))
        except Exception as error:
            log_internal(error, "rows of a statement that has failed are left behind")

    def _change(self, version: NextVersion, prepared: Preparation | None = None) -> EngineVersion:
        """Have the engine go over to a version. What it raises changes nothing."""
        before = self._engine.version()
        new = self.contents.keep(version.computations)
        try:
            with self._batch_log.during_change(version, before.sources):
                return self._engine.change(version, prepared)
        except ControlEnds:
            raise
        except Exception as error:
            now = self._engine.version()
            commands = now.command, now.waiting
            if commands == (before.command, before.waiting) or commands != (version.command, version.waiting):
                self.contents.give_up(new)
                raise
            log_internal(error, f"the engine has changed to version {now.number}, and this failed behind the change")
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
        for row, source in rows_of(transaction, registry, static=False):
            if self._posted.has(row.source, key_of_row(row)) or row.text[:6].upper() == "INSERT":
                continue
            command = self._command(transaction, row, registry)
            if isinstance(command, UpdateRows | DeleteRows):
                check_update(self._posted, source, row.source, command, self._engine.updates)

    def _change_row(self, transaction: Transaction, registry: Registry, row: RowStatement, source: Source) -> None:
        """Carry out a statement that changes rows, unless it has been carried out."""
        command = self._command(transaction, row, registry)
        count = post_rows(self._posted, source, row.source, command, key_of_row(row), self._engine.updates)
        if count is not None:
            self._row_counts[row.number] = count

    def _command(
        self, transaction: Transaction, row: RowStatement, registry: Registry
    ) -> InsertRows | AdvanceStream | PunctuateStream | UpdateRows | DeleteRows:
        settings = settings_of({**self._settings, **registry.stored.settings, **transaction.settings})
        command = command_of(self.backlog.parsed.get(row.number, row.text), registry.bound, settings)
        assert isinstance(command, InsertRows | AdvanceStream | PunctuateStream | UpdateRows | DeleteRows), (
            "it adds or changes rows"
        )
        return command

    def _drop_rows(self, transactions: Sequence[Transaction]) -> None:
        for number in [number for one in transactions for number in one.change.removed]:
            try:
                self._posted.drop(number)
            except Exception as error:
                log_internal(error, "rows of a source that was dropped are left behind")

    def write_outcomes(self) -> None:
        """Write the outcomes that could not be written before; called by any thread. Raises PenstockError P0601."""
        if self._owes_outcomes:
            self._write_outcomes([])

    def _write_outcomes(self, outcomes: Sequence[CommandOutcome], at_once: bool = False) -> None:
        """Note what became of commands; a second time after an error that was not foreseen, as those who wait for it
        would else wait for the next command. at_once: nothing may be applied before it is written."""
        with self._outcomes_lock:
            self._unwritten += outcomes
            for outcome in outcomes:
                self._row_counts.pop(outcome.number, None)
                self.backlog.parsed.pop(outcome.number, None)
            for is_again in (False, True):
                try:
                    if self._unwritten:
                        self._log.finish(self._unwritten)
                    self._unwritten, self._owes_outcomes = [], False
                    return
                except Exception as error:
                    self._owes_outcomes = True
                    is_foreseen = isinstance(error, PenstockError)
                    if not is_foreseen:
                        log_internal(error, "outcomes cannot be written")
                    # That a command has been applied is known from the version, so it can be written later.
                    if (is_foreseen or is_again) and (at_once or not outcomes):
                        raise
                    if is_foreseen:
                        return

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


def _try(action: Callable[[], None]) -> None:
    """Do what no command depends on; an error is logged."""
    try:
        action()
    except Exception as error:
        log_internal(error, "what follows commands has failed")


def _of(item: AcceptedItem) -> Transaction:
    assert item.transaction is not None, "it is a transaction"
    return item.transaction


def _waits(item: AcceptedItem, others: Sequence[AcceptedItem]) -> bool:
    """Return whether a transaction must not be applied before one of some earlier ones."""
    return any(item.footprint.waits_for(one.footprint) for one in others)
