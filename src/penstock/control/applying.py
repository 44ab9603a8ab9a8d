"""Carry out transactions: accept them into the log, bring the engine to the version that contains them, and note what
became of them.

After a crash the declarations are those of the latest stored catalog and of what was applied after it. Transactions
that were accepted and not applied are applied then, with the same numbers and so with the same result.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from penstock.algebra.nodes.scans import Source
from penstock.control.command_log import CATALOG_EVERY, CommandLog, Transaction
from penstock.control.draft import Draft
from penstock.control.engine import Engine, NextVersion
from penstock.control.outcomes import SYSTEM, CommandOutcome, CommandState
from penstock.control.posted_rows import PostedRows
from penstock.control.registry import Registry, command_of, default_sink, restored, settings_of
from penstock.control.repair import accepted, pause, paused_numbers, with_paused
from penstock.control.row_changes import post_rows
from penstock.control.stored_catalog import RowStatement, StoredCatalog
from penstock.control.versions import Versions, applied, failed
from penstock.errors import PenstockError
from penstock.events import log_event, logger_of
from penstock.language.catalog import Catalog
from penstock.language.commands import DeleteRows, InsertRows, UpdateRows

LOG = logger_of("control")


class Applier:
    """The declarations of a system, its log and its engine. Used by one thread.

    Args:
        engine: runs the queries.
        log: the command log.
        stored: the latest catalog of the log.
        posted: rows that are posted.
        settings: of the whole system at the start, as written.

    Attributes:
        current: the declarations that the engine runs.
        ahead: those after everything that has been accepted.
    """

    def __init__(
        self, engine: Engine, log: CommandLog, stored: StoredCatalog, posted: PostedRows, settings: Mapping[str, str]
    ) -> None:
        self._engine = engine
        self._log = log
        self._posted = posted
        self._versions = Versions(posted)
        self._settings = dict(settings)
        self.current = self.ahead = Registry(stored)
        self._unwritten: list[CommandOutcome] = []
        #: Numbers of queries that do not run during the recovery, as they are paused at its end.
        self._held: frozenset[int] = frozenset()

    def settings_with(self, stored: StoredCatalog, session: Mapping[str, str]) -> dict[str, str]:
        """Return the settings in force in a session, as written."""
        return {**self._settings, **stored.settings, **session}

    # -- accepting ---------------------------------------------------------------------------------------------

    def check(self, draft: Draft) -> None:
        """Raise PenstockError for what the engine cannot do."""
        self._engine.check(self._next(draft.stored, draft.bound, self._log.next_number))

    def accept(
        self, draft: Draft, texts: Sequence[str], who: str, key: str | None, posted: str, settings: Mapping[str, str]
    ) -> Transaction:
        """Write a transaction to the log.

        Args:
            draft: made on the declarations after everything that has been accepted.
            texts: of its commands.
            posted: the digest of what was posted.
            settings: of the session.

        Raises:
            PenstockError: it is refused, and nothing has been written.
        """
        self.check(draft)
        self._write_outcomes([])
        transaction = self._log.accept(texts, who, key, posted, settings, draft.change)
        self.ahead = draft.registry(self.ahead.errors)
        return transaction

    # -- applying ----------------------------------------------------------------------------------------------

    def apply(self, transactions: Sequence[Transaction]) -> None:
        """Apply accepted transactions together, or one by one where that fails."""
        try:
            self._apply_all(transactions, self.ahead)
        except PenstockError as error:
            if len(transactions) == 1:
                self._let_fail(transactions[0], error)
            else:
                lost: set[int] = set()
                for transaction in transactions:
                    self._apply_one(transaction, lost)
        self._save_catalog()

    def _apply_one(self, transaction: Transaction, lost: set[int]) -> None:
        """Apply one transaction on top of the present declarations, or let it fail.

        lost: numbers of declarations that transactions change which have failed; those of this one are added then.
        """
        change = transaction.change
        own = {one.id for one in change.objects} | set(change.removed) | {row.source for row in change.rows}
        try:
            if own & lost:
                raise PenstockError("P0732", "it depends on a command that failed")
            after = restored(with_paused(self.current.stored.changed(change), self._held))
            fresh = [error for number, error in after.errors.items() if number not in self.current.errors]
            if fresh:
                raise fresh[0]
            self._apply_all([transaction], after)
        except PenstockError as error:
            lost |= own
            self._let_fail(transaction, error)

    def _let_fail(self, transaction: Transaction, error: PenstockError) -> None:
        self.ahead = self.current
        self._write_outcomes(failed(transaction, error), at_once=True)

    def _apply_all(self, transactions: Sequence[Transaction], after: Registry) -> None:
        """Go over to the declarations `after` some transactions, and note their outcomes. Raises PenstockError, and
        then nothing has changed."""
        last = transactions[-1].last
        early: list[tuple[int, str]] = []
        try:
            for transaction in transactions:
                # A relation that never changes is read by the query that begins.
                early += self._post(transaction, after, static=True)
            version = self._engine.change(self._next(after.stored, after.bound, last))
        except PenstockError:
            for source, key in early:
                self._posted.withdraw(source, key)
            raise
        self.current = self.ahead = after
        try:
            outcomes: list[CommandOutcome] = []
            for transaction in transactions:
                self._post(transaction, after, static=False)
                outcomes += applied(transaction, version)
        except PenstockError as error:
            # The engine has changed: the rest is done at the next start.
            raise RuntimeError(f"rows of a command that was applied cannot be kept: {error}") from error
        self._drop_rows(transactions)
        self._engine.wake()
        self._write_outcomes(outcomes)

    def _post(self, transaction: Transaction, registry: Registry, static: bool) -> list[tuple[int, str]]:
        """Carry out the statements of a transaction that change rows; return the posts. static: those of relations that
        never change."""
        posts = []
        for row in transaction.change.rows:
            one = registry.stored.objects.get(row.source)
            source = None if one is None else registry.bound.sources.get(one.name.lower())
            if source is not None and source.is_static == static:
                posts.append((row.source, self._post_one(transaction, row, source, registry)))
        return posts

    def _post_one(self, transaction: Transaction, row: RowStatement, source: Source, registry: Registry) -> str:
        key = f"command {row.number}"
        settings = settings_of(self.settings_with(registry.stored, transaction.settings))
        command = command_of(row.text, registry.bound, settings)
        assert isinstance(command, InsertRows | UpdateRows | DeleteRows), "it changes rows"
        post_rows(self._posted, source, row.source, command, key)
        return key

    def _drop_rows(self, transactions: Sequence[Transaction]) -> None:
        for transaction in transactions:
            for number in transaction.change.removed:
                self._posted.drop(number)

    def _write_outcomes(self, outcomes: Sequence[CommandOutcome], at_once: bool = False) -> None:
        """Note what became of commands. at_once: nothing may be applied before it is written."""
        self._unwritten += outcomes
        self._log.outcomes |= {one.number: one for one in outcomes}
        if not self._unwritten:
            return
        try:
            self._log.finish(self._unwritten)
            self._unwritten = []
        except PenstockError:
            # That a command has been applied is known from the version, so it can be written later.
            if at_once or not outcomes:
                raise

    def _save_catalog(self) -> None:
        """Store the declarations every so often."""
        last = max(self._log.outcomes, default=0)
        if last - self._log.catalog_number < CATALOG_EVERY or self._unwritten:
            return
        try:
            self._log.save(self.current.stored, last)
            self._posted.expire()
        except (PenstockError, OSError) as error:
            log_event(LOG, logging.WARNING, "control", f"the catalog cannot be stored, the log stays: {error}")

    def _next(self, stored: StoredCatalog, bound: Catalog, command: int) -> NextVersion:
        settings = settings_of({**self._settings, **stored.settings})
        return self._versions.next(stored, bound, command, settings)

    # -- recovery ----------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Bring declarations and engine together, and apply what was accepted and not applied."""
        reached = self._engine.version().command
        stored = base = self.current.stored
        self._held = paused_numbers(accepted(self._log, base))
        waiting: list[Transaction] = []
        rows: list[Transaction] = []
        for transaction in self._log.since_catalog():
            outcome = self._log.outcomes.get(transaction.last)
            if outcome is None and transaction.last > reached:
                waiting.append(transaction)
            elif outcome is None or outcome.state is not CommandState.FAILED:
                stored = stored.changed(transaction.change)
                if outcome is None:
                    rows.append(transaction)
        stored = with_paused(stored, self._held)
        self.current = self.ahead = restored(stored)
        version = self._engine.change(self._next(stored, self.current.bound, reached))
        for transaction in rows:
            self._post(transaction, self.current, static=True)
            self._post(transaction, self.current, static=False)
            self._drop_rows([transaction])
            self._write_outcomes(applied(transaction, version), at_once=True)
        lost: set[int] = set()
        for transaction in waiting:
            self._apply_one(transaction, lost)
        self._note_held(accepted(self._log, base))
        self._note_attention()

    def _note_held(self, noted: StoredCatalog) -> None:
        """Note as a command that queries are paused whose pause has failed, since it depends on a command that failed.
        noted: the declarations as the log has them."""
        runs = [pair for pair in noted.queries if pair[0].id in self._held - paused_numbers(noted)]
        if runs:
            made = pause(self._log, self.current.stored, runs)
            self._apply_all([made], self.current)
        self._held = frozenset()

    def _note_attention(self) -> None:
        """Note as a command which queries cannot be bound any more."""
        draft = Draft.on(self.current, {}, default_sink())
        names = [name for number, error in self.current.errors.items() if (name := draft.attention(number, error))]
        if not names:
            return
        text = f"NEEDS ATTENTION: {', '.join(names)}"
        made = self._log.accept([text], SYSTEM.name, None, "", {}, draft.change)
        self._apply_all([made], Registry(draft.stored, draft.bound, self.current.errors))
