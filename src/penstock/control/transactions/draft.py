"""A transaction while it is bound: each of its commands against what those before it leave.

Nothing is written here. The result is a change of the catalog as data, the catalog as it is then, and which places of
answers the engine has to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.algebra.nodes.query import Query, SinkSpec, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.control.life.transitions import Event, check
from penstock.control.registry import Registry, queries_over, read_once, with_declaration
from penstock.control.row_changes import check_insert
from penstock.control.stored_catalog import (
    CatalogChange,
    RowStatement,
    StoredObject,
    StoredQuery,
)
from penstock.control.transactions.drafted_queries import (
    DraftedQueries,
    alike,
    begins_beside,
    columns_text,
    other_columns,
)
from penstock.errors import PenstockError, instead_of_taken
from penstock.language.catalog import QueryStatus
from penstock.language.commands import (
    AlterQuery,
    AlterSource,
    AlterSystem,
    Command,
    CreateFunctionCommand,
    CreateQueryCommand,
    CreateSourceCommand,
    CreateSummaryCommand,
    CreateViewCommand,
    DeleteRows,
    DropCommand,
    InsertRows,
    MoveInto,
    Pause,
    RenameTo,
    ReplaceQuery,
    Resume,
    SetAttributes,
    SwapWith,
    UpdateRows,
)
from penstock.language.plans.choices import NO_CHOICES, choices_text, merged_choices, without_no_choices

_RUNNING = QueryStatus.RUNNING
_WARM = Start(StartMode.WARM)


@dataclass
class Draft(DraftedQueries):
    """A transaction that grows."""

    _system: dict[str, str] = field(default_factory=dict)
    _rows: list[RowStatement] = field(default_factory=list)

    @staticmethod
    def on(registry: Registry, settings: Mapping[str, str], sink: SinkSpec) -> Draft:
        """Return a draft without commands."""
        return Draft(registry.stored, registry.bound, settings, sink, dict(registry.errors))

    @property
    def change(self) -> CatalogChange:
        """Return what the commands change."""
        objects = tuple(self._objects.values())
        concerns = dict(self.concerns)
        return CatalogChange(
            objects, tuple(self._removed), dict(self._system), tuple(self._rows), self.stored.next_id, concerns
        )

    def add(self, number: int, command: Command, text: str, query_text: str = "") -> None:
        """Add a command.

        Args:
            number: of the command.
            text: the statement as written.
            query_text: the query of a CREATE QUERY as written.

        Raises:
            PenstockError: P0701 for what does not fit the state of a query, P0732 for a second change of one.
        """
        if isinstance(command, CreateQueryCommand):
            self._create_query(number, command, query_text)
        elif isinstance(command, DropCommand):
            for dropped in command.drops:
                self._drop(dropped.kind, dropped.name)
        elif isinstance(command, AlterQuery):
            action = _ACTIONS[type(command.action)]
            action(self, number, self._named(command.name), command.action)
        elif isinstance(command, AlterSource):
            self._alter_source(command)
        elif isinstance(command, AlterSystem):
            self._system[command.key] = command.value
            self.stored = replace(self.stored, settings={**self.stored.settings, command.key: command.value})
        elif isinstance(command, InsertRows | UpdateRows | DeleteRows):
            self._change_rows(number, command, text)
        else:
            self._create(command, text)
            self.bind_again()

    @property
    def registry(self) -> Registry:
        """Return the declarations after the commands."""
        left = {
            n: error
            for n, error in self.errors.items()
            if n in self.stored.objects and not self.is_bound(self.stored.objects[n])
        }
        return Registry(self.stored, self.bound, left)

    # -- declarations ------------------------------------------------------------------------------------------

    def _create(self, command: Command, text: str) -> None:
        if isinstance(command, CreateSourceCommand):
            kind, name = "STREAM" if command.source.is_stream else "RELATION", command.source.name
        elif isinstance(command, CreateViewCommand):
            kind, name = "VIEW", command.view.name
        elif isinstance(command, CreateSummaryCommand):
            kind, name = "SUMMARY", command.summary.name
        else:
            assert isinstance(command, CreateFunctionCommand), "it declares something"
            kind, name = command.function.kind, command.function.name
        former = self.stored.named(name, "FUNCTION" if kind in ("FUNCTION", "AGGREGATE") else "")
        if former is not None:
            self._check_replaceable(former, kind, command.replace)
            self._drop(former.kind, former.name)
        one = StoredObject(self._id(), kind, name, text, self.settings)
        self.bound = with_declaration(self.bound, command, one)
        self._put(one)

    def _create_query(self, number: int, command: CreateQueryCommand, text: str) -> None:
        sink = command.query.sink if command.into else self.sink
        former = self.stored.named(command.query.name)
        if former is not None:
            self._check_replaceable(former, "QUERY", command.replace)
            attributes = {**command.attributes}
            one = replace(former, name=command.query.name, attributes=attributes, settings=self.settings)
            self._answer(number, one, command.query, text, command.reads, command.start, sink)
            return
        identity, place, track = self._id(), self._id(), self._id()
        attributes = dict(command.attributes)
        plan = attributes.get("plan", NO_CHOICES)
        query = StoredQuery(
            sink, command.into, command.start, _RUNNING, place, track, plan=plan, columns=columns_text(command.query)
        )
        one = StoredObject(identity, "QUERY", command.query.name, text, self.settings, attributes, query)
        self.bound = with_declaration(self.bound, command, one)
        self._touch(place)
        self._created.add(place)
        self.concerns[number] = place
        self._put(one)

    def reword(self, command: CreateQueryCommand, text: str) -> None:
        """Keep other words and attributes of a query whose answer is the same; it goes on. text: the query."""
        one = self._named(command.query.name)
        changed = replace(one, text=text, settings=self.settings, attributes={**command.attributes})
        self._put(changed)
        self._register(changed, replace(command.query, name=one.name))
        self.bound = self.bound.with_reads(one.name, command.reads)

    def _check_replaceable(self, former: StoredObject, kind: str, replace: bool) -> None:
        """Raise PenstockError P0206 where a name is taken, by something that cannot be bound."""
        if not replace or former.kind != kind:
            hint = instead_of_taken(former.kind, former.name, kind)
            raise PenstockError("P0206", f"{former.name} is declared already", hint=hint)

    def _drop(self, kind: str, name: str) -> None:
        is_function = kind in ("FUNCTION", "AGGREGATE")
        one = self.stored.named(name, "FUNCTION" if is_function else "")
        assert one is not None, "the binder has found it"
        if one.query is not None:
            self._touch(one.query.place, dropped=True)
            self._without_edit(one)
        self.bound = self.bound.without_function(name) if is_function else self.bound.without(name)
        self._objects.pop(one.id, None)
        self._removed.append(one.id)
        self.stored = self.stored.changed(CatalogChange(removed=(one.id,)))

    def _alter_source(self, command: AlterSource) -> None:
        one = self._named(command.name)
        former = self.bound.sources[one.name.lower()]
        users = self.bound.users_of(one.name)
        if _as_read(former) != _as_read(command.source) and users:
            raise PenstockError(
                "P0701", f"{one.name} is read by {', '.join(users)}, so only RETAIN and rate_limit can change",
                hint="drop what reads it first",
            )  # fmt: skip
        self.bound = self.bound.with_source(command.source, one.text)
        self._put(replace(one, attributes={**one.attributes, **command.values}))

    def _change_rows(self, number: int, command: InsertRows | UpdateRows | DeleteRows, text: str) -> None:
        name = command.source if isinstance(command, InsertRows) else command.relation
        one = self._named(name)
        source = self.bound.sources[name.lower()]
        if isinstance(command, InsertRows):
            check_insert(source, command)
        if source.is_static:
            readers = (self._named(query) for query in queries_over(self.bound, name))
            if any(reader.id not in self._objects for reader in readers):
                raise read_once(name)
        self._rows.append(RowStatement(number, one.id, text))

    # -- queries -----------------------------------------------------------------------------------------------

    def _pause(self, number: int, one: StoredObject, action: Pause) -> None:
        check(one, Event.PAUSE_WITH_STATE if action.with_state else Event.PAUSE)
        query = _query_of(one)
        self._touch(query.place)
        self.concerns[number] = query.place
        if not action.with_state:
            one = self._ended(one)
        self._set_query(one, status=QueryStatus.PAUSED, silent=action.with_state)

    def _resume(self, number: int, one: StoredObject, action: Resume) -> None:
        check(one, Event.RESUME)
        query = _query_of(one)
        self._touch(query.place)
        self.concerns[number] = query.place
        if not query.silent:
            one = self._ended(one)
            self._set_query(one, track=self._id(), start=action.start or _WARM, reset=action.reset, holds=False)
            one = self.stored.objects[one.id]
        self._set_query(one, status=_RUNNING, silent=False, code="", message="")

    def _set_attributes(self, number: int, one: StoredObject, action: SetAttributes) -> None:
        values = dict(action.values)
        if "plan" in values:
            values["plan"] = merged_choices(one.wished_plan, values["plan"])
        changed = replace(one, attributes=without_no_choices({**one.attributes, **values}))
        if "plan" in values:
            changed = self._with_plan(number, changed)
        self._put(changed)
        self._register(changed, self.bound.queries[one.name.lower()])

    def _rename(self, number: int, one: StoredObject, action: RenameTo) -> None:
        unbound = self.bound.unbound.get(one.name.lower())
        if unbound is not None:
            self.bound = self.bound.without(one.name).with_unbound(replace(unbound, name=action.name))
            self._put(replace(one, name=action.name))
            return
        bound, read = self.bound.queries[one.name.lower()], self.bound.reads.get(one.name.lower(), frozenset())
        changed, beside = replace(one, name=action.name), self.bound.beside.get(one.name.lower())
        self.bound = self.bound.without(one.name).with_reads(action.name, read)
        self._put(changed)
        self._register(changed, replace(bound, name=action.name))
        if beside is not None:
            beside = replace(beside, query=replace(beside.query, name=action.name))
            self.bound = self.bound.with_beside(action.name, beside)

    def _move_into(self, number: int, one: StoredObject, action: MoveInto) -> None:
        check(one, Event.MOVE)
        bound, read = self.bound.queries[one.name.lower()], self.bound.reads.get(one.name.lower(), frozenset())
        self._answer(number, one, bound, one.text, read, _WARM, action.sink)

    def _replace_query(self, number: int, one: StoredObject, action: ReplaceQuery) -> None:
        assert one.query is not None, "it is a query"
        changed = replace(one, settings=self.settings)
        if action.query.choices:
            plan = choices_text({(each.operator, each.attribute): each.value for each in action.query.choices})
            changed = replace(changed, attributes={**one.attributes, "plan": plan})
        self._answer(
            number,
            changed,
            action.query,
            action.text,
            action.reads,
            action.start or _WARM,
            one.query.sink,
            action.reset,
        )

    def _answer(
        self, number: int, one: StoredObject, bound: Query, text: str, reads: frozenset[str], start: Start,
        sink: SinkSpec, reset: bool = False,
    ) -> None:  # fmt: skip
        """Answer another query, or into another sink, under the same name. A paused query stays paused."""
        query, former = one.query, self.bound.queries.get(one.name.lower())
        assert query is not None, "it is a query"
        if former is not None and begins_beside(query, former, bound, start, sink, reset):
            self._answer_beside(number, one, bound, text, reads)
            return
        self._touch(query.place)
        columns = query.columns if former is None else columns_text(former)
        # A result of unknown columns begins anew.
        place = query.place if sink == query.sink and columns else self._id()
        if place == query.place and columns != columns_text(bound):
            raise other_columns(one.name)
        if place != query.place:
            self._touch(place)
        self.concerns[number] = place
        paused = query.status is QueryStatus.PAUSED
        query = replace(self._without_edit(one), plan=one.wished_plan)
        query = replace(
            query, sink=sink, into=True if sink != query.sink else query.into, place=place, start=start, reset=reset,
            holds=False, columns=columns_text(bound),
        )  # fmt: skip
        if not paused:
            query = replace(query, track=self._id(), status=_RUNNING, code="", message="")
        elif query.silent:
            query = replace(query, silent=False)
        changed = replace(one, text=text, query=query)
        self._put(changed)
        self._register(changed, replace(bound, name=one.name, sink=sink))
        self.bound = self.bound.with_reads(one.name, reads)

    def _swap(self, number: int, one: StoredObject, action: SwapWith) -> None:
        other = self._named(action.name)
        for each in (one, other):
            check(each, Event.SWAP)
        first, second = _query_of(one), _query_of(other)
        plans = [self.bound.queries[each.name.lower()] for each in (one, other)]
        reads = [self.bound.reads.get(each.name.lower(), frozenset()) for each in (one, other)]
        if not alike(*plans):
            raise PenstockError(
                "P0305", f"the results of {one.name} and {other.name} have other columns or units of time"
            )
        self._touch(first.place)
        self._touch(second.place)
        self.concerns[number] = first.place
        exchanged = (
            (one, first, other, second, plans[1], reads[1]),
            (other, second, one, first, plans[0], reads[0]),
        )
        for to, query, source, from_query, plan, read in exchanged:
            edit = query.edit if query.edit is not None and query.edit.until is not None else None
            moved = replace(query if edit is not None else self._without_edit(to), plan=from_query.plan)
            moved = replace(moved, track=from_query.track, start=from_query.start, holds=from_query.holds)
            # Its plan belongs to what it computes.
            attributes = without_no_choices({**to.attributes, "plan": source.wished_plan})
            changed = replace(to, text=source.text, settings=source.settings, attributes=attributes, query=moved)
            self._put(changed)
            self._register(changed, replace(plan, name=to.name, sink=query.sink))
            self.bound = self.bound.with_reads(to.name, read)


def _as_read(source: Source) -> Source:
    """Return a source without what bears only on the posting of its rows."""
    return replace(source, options=tuple(pair for pair in source.options if pair[0] != "rate_limit"))


def _query_of(one: StoredObject) -> StoredQuery:
    assert one.query is not None, "the binder has found a query"
    return one.query


_ACTIONS: dict[type, Callable[[Draft, int, StoredObject, Any], None]] = {
    Pause: Draft._pause,
    Resume: Draft._resume,
    SetAttributes: Draft._set_attributes,
    RenameTo: Draft._rename,
    MoveInto: Draft._move_into,
    ReplaceQuery: Draft._replace_query,
    SwapWith: Draft._swap,
}
