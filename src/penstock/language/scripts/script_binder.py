"""Bind statements in order: each against the declarations of those before it (docs/language/statements.md)."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from penstock.algebra.nodes.query import Query
from penstock.deep_trees import deep
from penstock.errors import PenstockError, Position, ScriptErrors, ScriptWarning
from penstock.language.binder.context import BindingFailed, Context, QueryNames
from penstock.language.binder.scalars.unsupported import refusals
from penstock.language.binder.statements.names_read import read_by
from penstock.language.catalog import Catalog
from penstock.language.commands import (
    Action,
    ChangeSetting,
    Command,
    CreateQueryCommand,
    CreateSourceCommand,
    DropCommand,
    SelectOnce,
)
from penstock.language.queries import Name
from penstock.language.statements import CreateQuery, Creation, OneTimeSelect, kind_of
from penstock.language.statements.statement import Statement
from penstock.language.text import SourceText, TextSpan
from penstock.settings import Settings


@dataclass(frozen=True)
class BoundScript:
    """A bound script.

    Args:
        catalog, settings: after the script.
        queries: those that it created and did not drop, in order.
        actions: its EXPLAIN, SHOW and one-time SELECT statements, in order.
        warnings: probable mistakes.
        places: positions of INTO, by query.
    """

    catalog: Catalog
    settings: Settings
    queries: tuple[Query, ...] = ()
    actions: tuple[Action, ...] = ()
    warnings: tuple[ScriptWarning, ...] = ()
    places: Mapping[str, Position] = field(default_factory=dict)


@dataclass
class ScriptBinder:
    """Binds statements one after the other; `errors` collects the mistakes of all.

    one_time: whether a query that is a statement of its own is answered once. Otherwise it is continuous, and has a
    generated name. live: whether the queries of the run may change while it goes on, so that streams are retained and
    queries may begin with their past.
    query_names: what the names of queries stand for in FROM.
    """

    source: SourceText
    catalog: Catalog
    settings: Settings
    one_time: bool = True
    live: bool = False
    errors: list[PenstockError] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    queries: list[str] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    warnings: list[ScriptWarning] = field(default_factory=list)
    places: dict[str, Position] = field(default_factory=dict)
    query_names: QueryNames = QueryNames.DEFINITION

    def bind(self, statements: list[Statement]) -> None:
        creations = [(i, s) for i, s in enumerate(statements) if isinstance(s, Creation)]
        references = {s.name.key: read_by(s.defined_by) for _, s in creations if s.defined_by is not None}
        declared = [(i, s.name.key, self.source.position(s.span).line) for i, s in creations if not s.is_function]
        declared.reverse()
        later: dict[str, list[int]] = {}  # the lines of the declarations still to come, the next one last
        for _, key, line in declared:
            later.setdefault(key, []).append(line)
        for i, statement in enumerate(statements):
            while declared and declared[-1][0] <= i:
                _, key, _ = declared.pop()
                later[key].pop()
                if not later[key]:
                    del later[key]
            context = Context(
                self.source,
                self.catalog,
                self.settings,
                [],
                self.failed,
                later,
                references,
                *_view(statement),
                query_names=self.query_names,
            )
            self._bind_one(statement, context)
            self.errors += context.errors
            self.warnings += context.warnings

    def _bind_one(self, statement: Statement, context: Context) -> None:
        refused = False
        try:
            for error, span in refusals(statement):
                context.note(error, span)
            refused = bool(context.errors)
            if isinstance(statement, OneTimeSelect) and not self.one_time:
                statement = self._named(statement, context)
            self._without_server(statement, context)
            command = kind_of(statement).bind(statement, context)
            if not refused:
                self._apply(command, statement, context)
        except BindingFailed:
            if not context.silenced:
                _not_without_error(statement, context)
            refused = True
        if (refused or context.errors) and isinstance(statement, Creation):
            self.failed.add(statement.name.key)

    def _apply(self, command: Command, statement: Statement, context: Context) -> None:
        """Carry out a command on the catalog, or record its answer."""
        if isinstance(command, CreateSourceCommand | CreateQueryCommand):
            # Also with a wrong connector: then nothing runs, but what reads it is checked.
            assert isinstance(statement, Creation)
            if not self._is_free(statement.name, command.replace):
                return
        elif context.errors:
            return
        self.catalog = command.applied(self.catalog)
        if isinstance(command, CreateQueryCommand):
            self._created(command, statement)
        elif isinstance(command, DropCommand):
            dropped = {gone.name.lower() for gone in command.drops if gone.kind == "QUERY"}
            self.queries = [name for name in self.queries if name not in dropped]
        elif isinstance(command, ChangeSetting):
            self.settings = command.settings
        if (action := command.answer(self.catalog, self.settings)) is not None:
            if isinstance(action, SelectOnce):
                number = 1 + sum(isinstance(one, SelectOnce) for one in self.actions)
                action = replace(action, query=replace(action.query, name=f"select_{number}"))
            self.actions.append(action)

    def _is_free(self, name: Name, replaced: bool) -> bool:
        return name.key not in self.failed and (replaced or name.key not in self.catalog)

    def _created(self, command: CreateQueryCommand, statement: Statement) -> None:
        name = command.query.name
        if name.lower() not in self.queries:
            self.queries.append(name.lower())
        self.places.pop(name, None)
        if isinstance(statement, CreateQuery) and statement.into is not None:
            self.places[name] = self.source.position(statement.into.span)

    def _without_server(self, statement: Statement, context: Context) -> None:
        """Report what a script that runs without a server cannot do. Raises BindingFailed after P0702 for a statement
        of which nothing else can be checked.
        """
        kind = kind_of(statement)
        what = kind.of_a_server(statement)
        if what is not None:
            context.fail("P0702", f"{what} needs a server", statement.span, _SERVER)
        for clause, span in kind.clauses_of_a_server(statement, self.live, self.catalog):
            context.note(PenstockError("P0702", f"{clause} needs a server", hint=_SERVER), span)

    def _named(self, statement: OneTimeSelect, context: Context) -> CreateQuery:
        """Return the declaration of a query that has no name, as a continuous one."""
        if statement.as_of is not None:
            hint = "a continuous query is answered at every instant; penstock query and Session.select answer at one"
            context.fail("P0103", "AS OF belongs to a one-time SELECT", statement.as_of.span, hint)
        number = 1
        while f"query_{number}" in self.catalog or f"query_{number}" in self.failed:
            number += 1
        begin = TextSpan(statement.span.start, statement.span.start + len("SELECT"))
        return CreateQuery(Name(f"query_{number}", span=begin), statement.query, span=statement.span)

    def bound(self) -> BoundScript:
        created = tuple(self.catalog.queries[name] for name in self.queries)
        return BoundScript(
            self.catalog, self.settings, created, tuple(self.actions), tuple(self.warnings), dict(self.places)
        )


_SERVER = "start one with penstock serve, and send it the statement; penstock check --serve checks a script for it"


def _view(statement: Statement) -> tuple[str | None, str]:
    """Return the name, in lower case, and the kind of what a statement declares by a query; no name for another."""
    if isinstance(statement, Creation) and statement.defined_by is not None:
        return statement.name.key, statement.declares.lower()
    return None, "view"


def _not_without_error(statement: Statement, context: Context) -> None:
    """Report a statement that failed if no error has been recorded."""
    if not context.errors:
        context.note(PenstockError("P0901", "this statement is not supported yet"), statement.span)


@deep
def bind_command(
    statement: Statement, catalog: Catalog, settings: Settings, source: SourceText, failed: Set[str] = frozenset()
) -> tuple[Command, tuple[ScriptWarning, ...]]:
    """Bind one statement alone, for a live system: neither `catalog` nor anything else changes.

    Args:
        source: the text that the statement was parsed from.
        failed: names, in lower case, whose declaration has failed.

    Raises:
        ScriptErrors: all mistakes in the statement.
        BindingFailed: it has none beside that it uses a declaration that has failed.
    """
    view, kind = _view(statement)
    context = Context(
        source, catalog, settings, failed=set(failed), view=view, view_kind=kind, query_names=QueryNames.REFUSED
    )
    try:
        for error, span in refusals(statement):
            context.note(error, span)
        command = kind_of(statement).bind(statement, context)
        if not context.errors:
            return command, tuple(context.warnings)
    except BindingFailed:
        if context.silenced and not context.errors:
            raise
        _not_without_error(statement, context)
    raise ScriptErrors(context.errors)
