"""Queries of a transaction while it is bound: what becomes of one that changes while it runs, that fails, or that ends.

Nothing is written here. What is computed beside a query takes its place by the rules of `life/due_steps.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from penstock.algebra.nodes.query import Query, SinkSpec, Start
from penstock.control.life.changes import (
    WARM_WAIT,
    BesideFailed,
    CanGoOn,
    CannotGoOn,
    FormerEnded,
    KeepsNoMore,
    PlanBegins,
    QueryChange,
    QueryFailed,
    RowsCame,
    RowsCameBeside,
    TakesOver,
    reduce,
    with_waiting,
)
from penstock.control.life.due_steps import EditStep, HoldStep
from penstock.control.life.transitions import ANEW, STATEMENTS, Event, happens
from penstock.control.phases import Phase
from penstock.control.registry import DECLARATION_ORDER, Binding, EarlierPromises, declared, quoted, rebound, unbound
from penstock.control.stored_catalog import CatalogChange, StoredCatalog, StoredObject, StoredQuery
from penstock.errors import PenstockError, as_known, as_name
from penstock.language.catalog import Catalog
from penstock.physical.execution.progress import timed_sources


@dataclass
class DraftedQueries:
    """Declarations while the commands of a transaction change them.

    Args:
        stored, bound: the declarations after the commands so far.
        settings: those of the session that differ from their defaults, as written.
        sink: where queries without INTO write.
        touched: places of answers that change in the engine.
        changed_once: those of them that change in this transaction, so not once more.
        errors: by number, why declarations cannot be bound.
        concerns: by number of a command, the place whose answers it is about.
    """

    stored: StoredCatalog
    bound: Catalog
    settings: Mapping[str, str]
    sink: SinkSpec
    errors: dict[int, PenstockError] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    changed_once: set[int] = field(default_factory=set)
    concerns: dict[int, int] = field(default_factory=dict)
    _created: set[int] = field(default_factory=set)
    _objects: dict[int, StoredObject] = field(default_factory=dict)
    _removed: list[int] = field(default_factory=list)

    def fail(self, place: int, error: PenstockError, id_: int | None = None) -> StoredObject | None:
        """Note that the query with a place has failed; return it, None where there is no such query any more.

        id_: of the computation that failed; another one may have taken its place. None: whichever is there.
        """
        for one, query in self.stored.queries:
            found = query.at(place)
            if found is None or id_ not in (None, found.id):
                continue
            if found is not query.answer:
                self.give_up(one, error)
            elif not happens(one, Event.FAILED):
                continue
            else:
                self.apply(one, QueryFailed(error.code, error.message))
            return one
        self._check_again(place)
        return None

    def _check_again(self, place: int) -> None:
        """Begin a check of a promise anew where it has failed, and the queries that read its stream with it: what it
        remembered is lost."""
        for one in self.stored.objects.values():
            if any(number == place for number, _ in one.checks):
                known = tuple((self._id() if number == place else number, name) for number, name in one.checks)
                self._put(replace(one, checks=known))
                return

    def give_up(self, one: StoredObject, error: PenstockError) -> None:
        """Let a query go on as it is that was to change, or has changed; error: of what is computed beside it."""
        self.apply(one, BesideFailed(error.code, error.message))

    def attention(self, number: int, error: PenstockError, again: bool = False) -> str:
        """Note that the declaration with a number cannot be bound, or that the query cannot go on; return the name of a
        query for which that, or the reason, is new, else an empty text. again: also where it is not new."""
        one = self.stored.objects[number]
        if one.query is None:
            return ""
        is_known = one.query.phase is Phase.NEEDS_ATTENTION and one.query.message == error.message
        if is_known and not again:
            return ""
        self.apply(one, CannotGoOn(error.code, error.message))
        return one.name

    def bind_again(self) -> None:
        """Bind what could not be bound before, over what has been declared since. A query that can be bound again stays
        as it is until it is resumed."""
        known = [self.stored.objects[number] for number in self.errors if number in self.stored.objects]
        left = [one for one in known if not self.is_bound(one)]
        for one in sorted(left, key=lambda one: (DECLARATION_ORDER[one.kind], one.id)):
            try:
                self.bound = declared(one, self.bound, EarlierPromises(self.stored), beside=False)
            except Exception as error:
                self.errors[one.id] = as_known(error, f"internal error at {one.name}")
                self.bound = self.bound.with_unbound(unbound(one, self.errors[one.id]))
                continue
            if one.query is not None:
                self.can_go_on(one)
                continue
            self._put(one)
            if one.kind in ("VIEW", "SUMMARY"):
                # It may read what is declared later, and is bound behind it.
                self._removed.append(one.id)
                self.stored = self.stored.changed(CatalogChange((one,), (one.id,)))

    def can_go_on(self, one: StoredObject) -> str:
        """Note that a query which could not be bound can be bound again; return its name, an empty text where that is
        noted already."""
        message = f"it can be bound again: ALTER QUERY {as_name(one.name)} RESUME continues it"
        if one.query is None or not happens(one, Event.CAN_GO_ON) or one.query.message == message:
            return ""
        self.apply(one, CanGoOn(message))
        return one.name

    def is_bound(self, one: StoredObject) -> bool:
        """Return whether a declaration is one that this program can bind."""
        if one.kind in ("FUNCTION", "AGGREGATE"):
            return one.name.lower() in self.bound.functions
        return one.name in self.bound

    def take_step(self, number: int, step: EditStep) -> str:
        """Take the next step of a change of a plan; return its text for the log, an empty one where it is not
        there any more."""
        one = self.stored.objects.get(step.id)
        if one is None or one.query is None or one.query.beside != step.beside or not happens(one, step.event):
            return ""
        beside = one.query.beside
        if beside is None:
            self.apply(one, PlanBegins(one.attributes, self._id(), self._id()), number=number)
            return f"PLAN OF {one.name}: CHANGES"
        what, subject = ("PLAN", f"PLAN OF {one.name}") if beside.definition is None else ("QUERY", f"QUERY {one.name}")
        if beside.phase is Phase.ENDING:
            self.apply(one, FormerEnded())
            return f"{subject}: FORMER {what} ENDS"
        # Relations are exchanged at one instant; of a stream the next one may have been emitted in part.
        until = step.heartbeat + int(self.bound.queries[one.name.lower()].root.is_stream)
        self.apply(one, TakesOver(until), number=number)
        return f"{subject}: TAKES OVER"

    def have_wait(self, place: int) -> None:
        """Have what is to begin at a place, a query or a change of one, wait for rows before."""
        for one, query in self.stored.queries:
            found = query.at(place)
            if found is not None:
                self._set(one, with_waiting(one, [found.id]))

    def take_hold_step(self, number: int, step: HoldStep) -> str:
        """Let what has waited for rows begin, or its streams go on as they are declared; return its text for the log,
        an empty one where it is not so any more."""
        one = self.stored.objects.get(step.id)
        found = None if one is None or one.query is None else one.query.at(step.place)
        if one is None or one.query is None or found is None:
            return ""
        if not found.keeps or found.waits != (step.tick is not None):
            return ""
        is_plan = found is one.query.beside and found.definition is None
        subject = f"{'PLAN OF ' if is_plan else 'QUERY '}{one.name}"
        if step.tick is None:
            self.apply(one, KeepsNoMore())
            return f"{subject}: ITS STREAMS KEEP NO MORE THAN THEIR RETAIN"
        came = RowsCame if found is one.query.answer else RowsCameBeside
        if self.apply(one, came(step.place, step.tick, self._id()), number=number) is one:
            return ""
        return f"{subject}: ITS ROWS HAVE COME"

    # -- bookkeeping -------------------------------------------------------------------------------------------

    def _named(self, name: str) -> StoredObject:
        found = self.stored.named(name)
        assert found is not None, "the binder has found it"
        return found

    def _id(self) -> int:
        """Return a number that is never used again."""
        number = self.stored.next_id
        self.stored = replace(self.stored, next_id=number + 1)
        return number

    def apply(self, one: StoredObject, change: QueryChange, *bindings: Binding, number: int = 0) -> StoredObject:
        """Change a declared query; return it then, the same object where nothing happens.

        Args:
            bindings: what is new of what it computes.
            number: of the command that changes it.

        Raises:
            PenstockError: P0701 where a statement is refused, P0732 for a second change in one transaction.
        """
        after = reduce(one, change)
        if after is one:
            return one
        assert one.query is not None and after.query is not None, "it is a query"
        self._note_places(one.query, after.query, change.event in STATEMENTS, change.event in ANEW)
        place = change.concerns(after.query)
        if number and place is not None:
            self.concerns[number] = place
        self._set(one, after, *bindings)
        return after

    def _note_places(
        self, before: StoredQuery | None, after: StoredQuery | None, is_statement: bool = True, is_anew: bool = False
    ) -> None:
        """Note which places change in the engine. Those that a statement changes do once in a transaction, or are
        created and dropped.

        is_anew: what answers does, also where its computation is the same.
        """
        was = {} if before is None else {each.place: each for each in before.computations}
        now = {} if after is None else {each.place: each for each in after.computations}
        for place in [*was, *(place for place in now if place not in was)]:
            known, found = was.get(place), now.get(place)
            is_same = known is not None and found is not None and (known.id, known.phase) == (found.id, found.phase)
            if is_same and not (is_anew and before is not None and known is before.answer):
                continue
            if is_statement:
                if place in self.changed_once and not (found is None and place in self._created):
                    self._refuse_second(place)
                self.changed_once.add(place)
            if known is None:
                self._created.add(place)
            self.touched.add(place)

    def _refuse_second(self, place: int) -> NoReturn:
        name = next((one.name for one, query in self.stored.queries if query.place == place), "a query")
        raise PenstockError(
            "P0732", f"{name} changes twice in one transaction", hint="post the changes one after the other"
        )

    def begin_transaction(self) -> None:
        """Let the commands that follow change again what those before them have changed."""
        self.changed_once.clear()

    def _set(self, one: StoredObject, after: StoredObject, *bindings: Binding) -> None:
        """Put a query in the place of what it was, and what it computes into the bound catalog. bindings: what is new
        of that."""
        self.bound = rebound(self.bound, one, after, bindings)
        self._put(after)

    def _put(self, one: StoredObject) -> None:
        self._objects[one.id] = one
        self.stored = self.stored.changed(CatalogChange(objects=(one,)))


def begins_beside(query: StoredQuery, former: Query, bound: Query, start: Start, sink: SinkSpec, reset: bool) -> bool:
    """Return whether a query is computed beside the one whose place it is to take, until nothing is missing. It is not
    where that one does not run, where its result is another one or begins again, and where either has no time."""
    waits = query.phase is Phase.ANSWERING and start == WARM_WAIT
    return waits and sink == query.sink and not reset and all(timed_sources(each.root) for each in (former, bound))


def other_columns(name: str) -> PenstockError:
    return PenstockError(
        "P0305",
        f"the result of {name} has other columns or another unit of time",
        hint="write it INTO another place, or DROP the query and create it again",
    )


def alike(one: Query, other: Query) -> bool:
    """Return whether one result can hold the answers of both: of the same columns, in the same unit of time."""
    return columns_text(one) == columns_text(other)


def columns_text(query: Query) -> str:
    """Return the columns of a query's result and the unit of its time, as text."""
    unit = f"{'TIMESTAMP' if query.domain.calendar else 'INTEGER'} {query.domain.unit.name}"
    return ", ".join([unit, *(f"{quoted(field.name)} {field.type}" for field in query.output_schema)])
