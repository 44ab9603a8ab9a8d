"""What a start does: bring declarations and engine together, and apply what was accepted and not applied.

The declarations are those of the latest stored catalog and of what was applied after it. Transactions that were
accepted and not applied are applied then, with the same numbers and so with the same result. What cannot be bound,
planned or applied by this program is left out and needs attention.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from penstock.algebra.nodes.query import Query
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.control.command_log import Transaction
from penstock.control.drafting.draft import Draft
from penstock.control.drafting.versions import failed, queried
from penstock.control.engine import ControlEnds, EngineVersion
from penstock.control.entities.relations import control_tables
from penstock.control.live.repair import accepted, change_with_paused, held_numbers, pause, paused_numbers, with_paused
from penstock.control.outcomes import SYSTEM, CommandOutcome
from penstock.control.registry import Registry, default_sink, restored
from penstock.control.stored_catalog import CatalogChange, StoredCatalog
from penstock.control.transactions.applying import Applier
from penstock.control.transactions.backlog import AcceptedItem
from penstock.control.transactions.footprint import footprint_of
from penstock.control.transactions.merging import BoundChange, bound_change, with_changes
from penstock.errors import PenstockError, as_known
from penstock.language.catalog import QueryStatus
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import plan_queries


class RecoveringApplier(Applier):
    """Applies what a server had accepted before it ended, once, and then what is accepted."""

    #: By number, the queries without which this start goes on.
    _left_out: Mapping[int, PenstockError] = {}

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
                for each in query.computed:
                    known = queried(one, each, self.current, self._posted)
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
            places = frozenset(each.place for query in kept for each in query.computed)
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
            if one.query is not None and one.query.beside is not None:
                draft.give_up(one, current.lost[one.id])
                texts.append(f"QUERY {one.name}: CANNOT CHANGE")
        if texts:
            made = self._log.accept(texts, SYSTEM.name, None, "", {}, draft.change)
            self._apply_noted(made, Registry(draft.stored, draft.bound, current.errors))


def _plan_alone(query: Query) -> None:
    """Plan a query by itself. Raises whatever its planning raises."""
    strategy, statistics = Strategy.PATTERN, Statistics()
    root = optimize(query.root, planning=strategy.planning(statistics))
    plan_queries([replace(query, root=root)], statistics, strategy)
