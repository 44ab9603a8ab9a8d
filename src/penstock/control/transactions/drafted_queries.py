"""Queries of a transaction while it is bound: what becomes of one that changes while it runs, that fails, or that ends.

Nothing is written here. What is computed beside a query takes its place as `plan_edits.py` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.algebra.nodes.query import Query, SinkSpec, Start
from penstock.control.life.phases import Phase, phase_of
from penstock.control.life.transitions import Event, check, happens
from penstock.control.registry import DECLARATION_ORDER, declared, quoted, registered, unbound
from penstock.control.stored_catalog import (
    CatalogChange,
    OtherQuery,
    QueryEdit,
    StoredCatalog,
    StoredObject,
    StoredQuery,
)
from penstock.control.transactions.plan_edits import WARM_WAIT, EditStep, HoldStep
from penstock.errors import PenstockError, as_known, as_name
from penstock.language.catalog import Catalog, QueryBeside, QueryStatus
from penstock.language.plans.choices import without_no_choices
from penstock.physical.execution.progress import timed_sources

_RUNNING = QueryStatus.RUNNING


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

    def fail(self, place: int, code: str, message: str, track: int | None = None) -> StoredObject | None:
        """Note that the query with a place has failed; return it, None where there is no such query any more.

        track: of the computation that failed; another one may have taken its place. None: whichever is there.
        """
        for one, query in self.stored.queries:
            if query.edit is not None and query.edit.place == place and track in (None, query.edit.track):
                self.give_up(one, PenstockError(code, message))
                return one
            is_there = query.place == place and track in (None, query.track)
            if is_there and happens(one, Event.FAILED):
                if query.coming is not None:
                    message = f"before another query took its place: {message}"
                one = self._ended(one)
                self._set_query(one, status=QueryStatus.FAILED, silent=False, code=code, message=message)
                return one
        return None

    def give_up(self, one: StoredObject, error: PenstockError) -> None:
        """Let a query go on as it is that was to change, or has changed; error: of what is computed beside it."""
        query = one.query
        assert query is not None, "a query changes"
        if query.coming is not None:
            message = f"the query that was to take its place failed: {error.message}"
            query = replace(query, code=error.code, message=message)
        # The plan is that which answers.
        kept = without_no_choices({**one.attributes, "plan": query.plan})
        self._set(replace(one, attributes=kept), self._without_edit(replace(one, query=query)))

    def attention(self, number: int, error: PenstockError, again: bool = False) -> str:
        """Note that the declaration with a number cannot be bound, or that the query cannot go on; return the name of a
        query for which that, or the reason, is new, else an empty text. again: also where it is not new."""
        one = self.stored.objects[number]
        if one.query is None:
            return ""
        is_known = one.query.status is QueryStatus.NEEDS_ATTENTION and one.query.message == error.message
        if is_known and not again:
            return ""
        one = self._ended(one)
        self._set_query(one, status=QueryStatus.NEEDS_ATTENTION, silent=False, code=error.code, message=error.message)
        return one.name

    def bind_again(self) -> None:
        """Bind what could not be bound before, over what has been declared since. A query that can be bound again stays
        as it is until it is resumed."""
        known = [self.stored.objects[number] for number in self.errors if number in self.stored.objects]
        left = [one for one in known if not self.is_bound(one)]
        for one in sorted(left, key=lambda one: (DECLARATION_ORDER[one.kind], one.id)):
            try:
                self.bound = declared(one, self.bound, beside=False)
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
        self._set_query(one, code="P0701", message=message)
        return one.name

    def is_bound(self, one: StoredObject) -> bool:
        """Return whether a declaration is one that this program can bind."""
        if one.kind in ("FUNCTION", "AGGREGATE"):
            return one.name.lower() in self.bound.functions
        return one.name in self.bound

    def _answer_beside(
        self, number: int, one: StoredObject, bound: Query, text: str, reads: frozenset[str]
    ) -> None:  # fmt: skip
        """Compute another query beside one, whose place it takes when nothing is missing.

        Args:
            one: as it is to be, but for the text.
        """
        former = self.stored.objects[one.id]
        query, known = former.query, self.bound.queries[one.name.lower()]
        assert query is not None, "it is a query"
        if not alike(known, bound):
            raise other_columns(one.name)
        check(former, Event.REPLACE_WAIT)
        query = self._without_edit(former)
        edit = QueryEdit(self._id(), self._id(), one.wished_plan, other=OtherQuery(text, one.settings, one.budget))
        self._touch(edit.place)
        self._created.add(edit.place)
        self.concerns[number] = edit.place
        # What bears on the answer changes with it.
        attributes = {key: value for key, value in one.attributes.items() if key not in one.budget}
        attributes = without_no_choices({**attributes, **former.budget, "plan": former.wished_plan})
        changed = replace(former, name=one.name, attributes=attributes)
        self._set_query(changed, edit=edit, code="", message="")
        beside = QueryBeside(replace(bound, name=one.name, sink=query.sink), reads)
        self.bound = self.bound.with_beside(one.name, beside)

    def _with_plan(self, number: int, one: StoredObject) -> StoredObject:
        """Return a query that changes to the plan that it is to have. One that does not run has it when it begins."""
        query, wished = one.query, one.wished_plan
        assert query is not None, "it is a query"
        check(one, Event.SET_PLAN)
        if phase_of(query) not in (Phase.ANSWERING, Phase.SILENT):
            return replace(one, query=replace(self._without_edit(one), plan=wished))
        edit = query.edit
        if edit is not None and (edit.until is not None or edit.plan == wished):
            # The change before it ends first.
            return one
        if edit is not None and edit.place in self._created and wished != query.plan:
            return replace(one, query=replace(query, edit=replace(edit, plan=wished)))
        query = self._without_edit(one)
        if wished != query.plan:
            edit = QueryEdit(self._id(), self._id(), wished)
            self._touch(edit.place)
            self._created.add(edit.place)
            self.concerns[number] = edit.place
            query = replace(query, edit=edit)
        return replace(one, query=query)

    def _without_edit(self, one: StoredObject) -> StoredQuery:
        """Return a query beside which nothing is computed any more."""
        assert one.query is not None, "it is a query"
        if one.query.edit is not None:
            self._touch(one.query.edit.place, dropped=True)
            self.bound = self.bound.with_beside(one.name, None)
        return replace(one.query, edit=None)

    def _ended(self, one: StoredObject) -> StoredObject:
        """Return a query that is not computed any more: it is then what it was to be."""
        assert one.query is not None, "it is a query"
        coming = None if one.query.coming is None else self.bound.beside.get(one.name.lower())
        wished = one.as_wished
        query = self._without_edit(one)
        if coming is not None:
            self._register(wished, coming.query)
            self.bound = self.bound.with_reads(one.name, coming.reads)
        return replace(wished, query=replace(query, plan=wished.wished_plan))

    def take_step(self, number: int, step: EditStep) -> str:
        """Take the next step of a change of a plan; return what the log says of it, an empty text where it is not
        there any more."""
        one = self.stored.objects.get(step.id)
        query = None if one is None else one.query
        if one is None or query is None or query.edit != step.edit or not happens(one, step.event):
            return ""
        if query.edit is None:
            self._put(self._with_plan(number, one))
            return f"PLAN OF {one.name}: CHANGES"
        edit = query.edit
        subject = f"{'PLAN OF ' if edit.other is None else 'QUERY '}{one.name}"
        if edit.until is not None:
            self._set(one, self._without_edit(one))
            return f"{subject}: FORMER {'PLAN' if edit.other is None else 'QUERY'} ENDS"
        self._touch(query.place)
        self._touch(edit.place)
        self.concerns[number] = query.place
        self._take_over(one, edit, step)
        return f"{subject}: TAKES OVER"

    def hold(self, place: int) -> None:
        """Have what is to begin at a place, a query or a change of one, wait for rows before."""
        for one, query in self.stored.queries:
            if query.place == place:
                self._set_query(one, holds=True)
            elif query.edit is not None and query.edit.place == place:
                self._set_query(one, edit=replace(query.edit, holds=True))

    def take_hold_step(self, number: int, step: HoldStep) -> str:
        """Let what has waited for rows begin, or its streams go on as they are declared; return what the log says of
        it, an empty text where it is not so any more."""
        one = self.stored.objects.get(step.id)
        query = None if one is None else one.query
        if one is None or query is None:
            return ""
        edit = query.edit if query.edit is not None and query.edit.place == step.place else None
        waiting = query if query.place == step.place else edit
        if waiting is None or not waiting.holds or waiting.awaits != (step.tick is not None):
            return ""
        if waiting.awaits and not happens(one, Event.ROWS_CAME if edit is None else Event.ROWS_CAME_BESIDE):
            return ""
        subject = f"{'PLAN OF ' if edit is not None and edit.other is None else 'QUERY '}{one.name}"
        if step.tick is None:
            self._set_query(one, **({"holds": False} if edit is None else {"edit": replace(edit, holds=False)}))
            return f"{subject}: ITS STREAMS KEEP NO MORE THAN THEIR RETAIN"
        self._touch(step.place)
        self.concerns[number] = step.place
        if edit is None:
            self._set_query(one, start=replace(query.start, at=step.tick), track=self._id())
        else:
            # The engine knows nothing of the place until now.
            self._created.add(step.place)
            self._set_query(one, edit=replace(edit, at=step.tick, track=self._id()))
        return f"{subject}: ITS ROWS HAVE COME"

    def _take_over(self, one: StoredObject, edit: QueryEdit, step: EditStep) -> None:
        """Exchange what answers a query and what is computed beside it."""
        changed, former = one, None
        assert one.query is not None, "it is a query"
        # What the former one has waited for is not needed any more.
        query = replace(one.query, holds=False)
        # Relations are exchanged at one instant; of a stream the next one may have been emitted in part.
        until = step.heartbeat + int(self.bound.queries[one.name.lower()].root.is_stream)
        if edit.other is not None:
            former = OtherQuery(one.text, one.settings, one.budget)
            name, changed = one.name.lower(), replace(one.as_wished, query=query)
            beside, known = self.bound.beside[name], self.bound.queries[name]
            reads = self.bound.reads.get(name, frozenset())
            self._register(changed, beside.query)
            self.bound = self.bound.with_beside(name, QueryBeside(known, reads)).with_reads(name, beside.reads)
            query = replace(query, start=WARM_WAIT, code="", message="")
        ending = QueryEdit(edit.place, query.track, query.plan, until, former)
        self._set(changed, replace(query, track=edit.track, plan=edit.plan, edit=ending))

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

    def _touch(self, place: int, dropped: bool = False) -> None:
        """Note that a place changes in the engine: once in a version, or created and dropped."""
        if place in self.changed_once and not (dropped and place in self._created):
            name = next((one.name for one, query in self.stored.queries if query.place == place), "a query")
            raise PenstockError(
                "P0732", f"{name} changes twice in one transaction", hint="post the changes one after the other"
            )
        self.touched.add(place)
        self.changed_once.add(place)

    def begin_transaction(self) -> None:
        """Let the commands that follow change again what those before them have changed."""
        self.changed_once.clear()

    def _set(self, one: StoredObject, query: StoredQuery) -> None:
        changed = replace(one, query=query)
        self._put(changed)
        known = self.bound.queries.get(one.name.lower())
        if known is not None:
            self._register(changed, known)

    def _set_query(self, one: StoredObject, **values: Any) -> None:
        """Change fields of a query."""
        assert one.query is not None, "it is a query"
        self._set(one, replace(one.query, **values))

    def _register(self, one: StoredObject, query: Query) -> None:
        self.bound = self.bound.with_query(query, registered(one))

    def _put(self, one: StoredObject) -> None:
        self._objects[one.id] = one
        self.stored = self.stored.changed(CatalogChange(objects=(one,)))


def begins_beside(
    query: StoredQuery, former: Query, bound: Query, start: Start, sink: SinkSpec, reset: bool
) -> bool:  # fmt: skip
    """Return whether a query is computed beside the one whose place it is to take, until nothing is missing. It is not
    where that one does not run, where its result is another one or begins again, and where either has no time."""
    waits = phase_of(query) is Phase.ANSWERING and start == WARM_WAIT
    return waits and sink == query.sink and not reset and all(timed_sources(each.root) for each in (former, bound))


def other_columns(name: str) -> PenstockError:
    return PenstockError(
        "P0305", f"the result of {name} has other columns or another unit of time",
        hint="write it INTO another place, or DROP the query and create it again",
    )  # fmt: skip


def alike(one: Query, other: Query) -> bool:
    """Return whether one result can hold the answers of both: of the same columns, in the same unit of time."""
    return columns_text(one) == columns_text(other)


def columns_text(query: Query) -> str:
    """Return the columns of a query's result and the unit of its time, as text."""
    unit = f"{'TIMESTAMP' if query.domain.calendar else 'INTEGER'} {query.domain.unit.name}"
    return ", ".join([unit, *(f"{quoted(field.name)} {field.type}" for field in query.output_schema)])
