"""A transaction while it is bound: each of its commands against what those before it leave.

Nothing is written here. The result is a change of the catalog as data, the catalog as it is then, and which places of
answers the engine has to change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.algebra.nodes.query import SinkSpec, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.promises import PromiseMode
from penstock.connectors.sinks import without_bounds
from penstock.control.drafting.drafted_queries import (
    DraftedQueries,
    alike,
    begins_beside,
    columns_text,
    other_columns,
)
from penstock.control.life import changes
from penstock.control.life.changes import (
    MoveQuery,
    PauseQuery,
    RenameQuery,
    ReplaceWhenReady,
    ResumeQuery,
    SetBounds,
    SetPlan,
    SilenceQuery,
    SwapQuery,
    query_of,
)
from penstock.control.life.transitions import Event, check
from penstock.control.phases import Phase
from penstock.control.registry import EarlierPromises, Registry, with_declaration
from penstock.control.row_changes import check_insert
from penstock.control.stored_catalog import (
    CatalogChange,
    RowStatement,
    StoredComputation,
    StoredObject,
    StoredQuery,
)
from penstock.errors import PenstockError, instead_of_taken
from penstock.language.catalog import QueryBeside
from penstock.language.commands import (
    AdvanceStream,
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
    PunctuateStream,
    RenameTo,
    ReplaceQuery,
    Resume,
    SetAttributes,
    SwapWith,
    UpdateRows,
)
from penstock.language.plan_choices import NO_CHOICES, choices_text, merged_choices, without_no_choices

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
        elif isinstance(command, InsertRows | AdvanceStream | PunctuateStream | UpdateRows | DeleteRows):
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
        self._put(self._checked(one))

    def _create_query(self, number: int, command: CreateQueryCommand, text: str) -> None:
        sink = command.query.sink if command.into else self.sink
        former = self.stored.named(command.query.name)
        if former is not None:
            self._check_replaceable(former, "QUERY", command.replace)
            changed = replace(former, name=command.query.name, attributes={**command.attributes})
            changed = self._defined(changed, text)
            self._answer(number, former, changed, QueryBeside(command.query, command.reads), command.start, sink)
            return
        identity, place, id_ = self._id(), self._id(), self._id()
        attributes = dict(command.attributes)
        plan = attributes.get("plan", NO_CHOICES)
        answer = StoredComputation(id_, place, command.start, Phase.ANSWERING, plan)
        query = StoredQuery(sink, command.into, answer, columns=columns_text(command.query))
        since = self.stored.next_id
        one = StoredObject(identity, "QUERY", command.query.name, text, self.settings, attributes, query, since)
        self.bound = with_declaration(self.bound, command, one)
        self._note_places(None, query)
        self.concerns[number] = place
        self._put(one)

    def reword(self, command: CreateQueryCommand, text: str) -> None:
        """Keep other words and attributes of a query whose answer is the same; it goes on. text: the query."""
        one = self._named(command.query.name)
        changed = self._defined(replace(one, attributes={**command.attributes}), text)
        self._set(one, changed, (changed.definition, QueryBeside(command.query, command.reads)))

    def _defined(self, one: StoredObject, text: str) -> StoredObject:
        """Return a query that is defined anew, by the promises that there are now."""
        return replace(one, text=text, settings=self.settings, since=self.stored.next_id)

    def _check_replaceable(self, former: StoredObject, kind: str, replace: bool) -> None:
        """Raise PenstockError P0206 where a name is taken, by something that cannot be bound."""
        if not replace or former.kind != kind:
            hint = instead_of_taken(former.kind, former.name, kind)
            raise PenstockError("P0206", f"{former.name} is declared already", hint=hint)

    def _drop(self, kind: str, name: str) -> None:
        is_function = kind in ("FUNCTION", "AGGREGATE")
        one = self.stored.named(name, "FUNCTION" if is_function else "")
        assert one is not None, "the binder has found it"
        self._note_places(one.query, None)
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
                "P0701",
                f"{one.name} is read by {', '.join(users)}, so only RETAIN and rate_limit can change",
                hint="drop what reads it first",
            )
        self.bound = self.bound.with_source(command.source, one.text)
        if not command.promises:
            self._put(replace(one, attributes={**one.attributes, **command.values}))
            return
        self._put(self._checked(replace(one, promises=(*one.promises, (self._id(), command.promises)))))
        # Queries keep the promises that there were; views have those that there are.
        self.bound = EarlierPromises(self.stored).with_views_again(self.bound, one.name)
        for view in self.bound.views_over(one.name):
            self._put(self._named(view))

    def _checked(self, one: StoredObject) -> StoredObject:
        """Return a declaration with the numbers of what checks its promises; each keeps its number."""
        source = self.bound.sources.get(one.name.lower())
        known = {name: number for number, name in one.checks}
        checked = [] if source is None else [p.name for p in source.promises if p.mode is PromiseMode.CHECKED]
        return replace(one, checks=tuple((known.get(name) or self._id(), name) for name in checked))

    def _change_rows(
        self, number: int, command: InsertRows | AdvanceStream | PunctuateStream | UpdateRows | DeleteRows, text: str
    ) -> None:
        name = command.relation if isinstance(command, UpdateRows | DeleteRows) else command.source
        one = self._named(name)
        source = self.bound.sources[name.lower()]
        if isinstance(command, InsertRows):
            check_insert(source, command)
        self._rows.append(RowStatement(number, one.id, text))

    # -- queries -----------------------------------------------------------------------------------------------

    def _pause(self, number: int, one: StoredObject, action: Pause) -> None:
        self.apply(one, SilenceQuery() if action.with_state else PauseQuery(), number=number)

    def _resume(self, number: int, one: StoredObject, action: Resume) -> None:
        self.apply(one, ResumeQuery(self._id(), action.start or _WARM, action.reset), number=number)

    def _set_attributes(self, number: int, one: StoredObject, action: SetAttributes) -> None:
        values = dict(action.values)
        if action.bounds:
            sink = query_of(one).sink
            options = {**dict(sink.options), **action.bounds}
            one = self.apply(one, SetBounds(replace(sink, options=tuple(options.items()))))
        if "plan" not in values:
            self.apply(one, changes.ChangeAttributes({**one.attributes, **values}))
            return
        values["plan"] = merged_choices(one.wished_plan, values["plan"])
        attributes = without_no_choices({**one.attributes, **values})
        self.apply(one, SetPlan(attributes, self._id(), self._id()), number=number)

    def _rename(self, number: int, one: StoredObject, action: RenameTo) -> None:
        unbound = self.bound.unbound.get(one.name.lower())
        if unbound is not None:
            self.bound = self.bound.without(one.name).with_unbound(replace(unbound, name=action.name))
        self.apply(one, RenameQuery(action.name))

    def _move_into(self, number: int, one: StoredObject, action: MoveInto) -> None:
        self._answer(number, one, one, self._bound(one), _WARM, action.sink, is_move=True)

    def _replace_query(self, number: int, one: StoredObject, action: ReplaceQuery) -> None:
        changed = self._defined(one, action.text)
        if action.query.choices:
            plan = choices_text({(each.operator, each.attribute): each.value for each in action.query.choices})
            changed = replace(changed, attributes={**one.attributes, "plan": plan})
        binding = QueryBeside(action.query, action.reads)
        self._answer(number, one, changed, binding, action.start or _WARM, query_of(one).sink, action.reset)

    def _answer(
        self,
        number: int,
        one: StoredObject,
        changed: StoredObject,
        binding: QueryBeside,
        start: Start,
        sink: SinkSpec,
        reset: bool = False,
        is_move: bool = False,
    ) -> None:
        """Answer another query, or into another sink, under the same name. A paused query stays paused.

        Args:
            changed: what it is to be, with the query as before.
            binding: the same, bound.
        """
        query, former = query_of(one), self.bound.queries.get(one.name.lower())
        bound = (changed.definition, binding)
        if former is not None and begins_beside(query, former, binding.query, start, sink, reset):
            if not alike(former, binding.query):
                raise other_columns(one.name)
            self.apply(one, ReplaceWhenReady(changed, self._id(), self._id()), bound, number=number)
            return
        columns = query.columns if former is None else columns_text(former)
        now = columns_text(binding.query)
        # A result of unknown columns begins anew.
        is_same_place = without_bounds(sink) == without_bounds(query.sink) and bool(columns)
        if is_same_place and columns != now:
            raise other_columns(one.name)
        place, id_ = query.place if is_same_place else self._id(), self._id()
        kind = MoveQuery if is_move else changes.ReplaceAnswer
        self.apply(one, kind(changed, id_, place, sink, start, reset, now), bound, number=number)

    def _bound(self, one: StoredObject) -> QueryBeside:
        found = self.bound.registered_query(one.name)
        assert found is not None, "the binder has found it"
        return found

    def _swap(self, number: int, one: StoredObject, action: SwapWith) -> None:
        other = self._named(action.name)
        for each in (one, other):
            check(each, Event.SWAP)
        first, second = self._bound(one), self._bound(other)
        if not alike(first.query, second.query):
            raise PenstockError(
                "P0305", f"the results of {one.name} and {other.name} have other columns or units of time"
            )
        # The first one as it is before: each takes the computation of the other.
        self.apply(other, SwapQuery(one), (one.definition, first))
        self.apply(one, SwapQuery(other), (other.definition, second), number=number)


def _as_read(source: Source) -> Source:
    """Return a source without what bears only on the posting of its rows."""
    return replace(source, options=tuple(pair for pair in source.options if pair[0] != "rate_limit"))


_ACTIONS: dict[type, Callable[[Draft, int, StoredObject, Any], None]] = {
    Pause: Draft._pause,
    Resume: Draft._resume,
    SetAttributes: Draft._set_attributes,
    RenameTo: Draft._rename,
    MoveInto: Draft._move_into,
    ReplaceQuery: Draft._replace_query,
    SwapWith: Draft._swap,
}
