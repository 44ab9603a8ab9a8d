"""Bind statements in order: each against the declarations of those before it (docs/language.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from penstock.algebra.nodes.query import Query, StartMode
from penstock.deep import deep
from penstock.errors import PenstockError, Position, ScriptErrors, ScriptWarning
from penstock.language.binder.context import BindingFailed, Context, QueryNames
from penstock.language.binder.statements import changes, commands, drops
from penstock.language.binder.statements.attributes import QUERY_ATTRIBUTES
from penstock.language.binder.statements.names_read import read_by
from penstock.language.catalog import Catalog
from penstock.language.commands import (
    ChangeSetting,
    Command,
    CreateQueryCommand,
    CreateSourceCommand,
    Describe,
    DropCommand,
    Explain,
    ExplainCommand,
    ExplainKind,
    ExportCommand,
    SelectOnce,
    Show,
    ShowCommand,
    applied,
)
from penstock.language.queries import Name
from penstock.language.statement_kinds import BY_TREE, KINDS
from penstock.language.statements import (
    AlterQueryStatement,
    AlterSourceStatement,
    AlterSystemStatement,
    CreateFunction,
    CreateQuery,
    CreateSource,
    CreateSummary,
    CreateView,
    DeleteStatement,
    DropStatement,
    ExplainStatement,
    Insert,
    OneTimeSelect,
    SetSetting,
    Statement,
    SubscribeStatement,
    UpdateStatement,
)
from penstock.language.text import SourceText, TextSpan
from penstock.language.unsupported import refusals
from penstock.settings import Settings

#: Kind of statement -> the function that binds it.
_BINDERS: Mapping[type[Statement], Callable[[Any, Context], Command]] = {
    **{kind.tree: kind.bind for kind in KINDS},
    CreateSource: commands.bind_create_source,
    CreateView: commands.bind_create_view,
    CreateQuery: commands.bind_create_query,
    CreateFunction: commands.bind_create_function,
    CreateSummary: commands.bind_create_summary,
    DropStatement: drops.bind_drop,
    Insert: commands.bind_insert,
    SetSetting: commands.bind_setting,
    OneTimeSelect: commands.bind_select,
    ExplainStatement: commands.bind_explain,
    SubscribeStatement: commands.bind_subscribe,
    AlterQueryStatement: changes.bind_alter_query,
    AlterSourceStatement: changes.bind_alter_source,
    AlterSystemStatement: changes.bind_alter_system,
    UpdateStatement: changes.bind_update,
    DeleteStatement: changes.bind_delete,
}
#: Statements that a server carries out, and what they are called in messages.
_OF_A_SERVER: Mapping[type[Statement], str] = {
    AlterQueryStatement: "ALTER QUERY",
    AlterSourceStatement: "ALTER of a stream or relation",
    AlterSystemStatement: "ALTER SYSTEM",
    UpdateStatement: "UPDATE",
    DeleteStatement: "DELETE",
    SubscribeStatement: "SUBSCRIBE",
}
#: Attributes of queries that mean something without a server.
_OF_A_SCRIPT = ("comment", "plan")

Action: TypeAlias = Explain | Show | SelectOnce | ExportCommand


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
        references = {s.name.key: read_by(s.query) for s in statements if isinstance(s, CreateView | CreateQuery)}
        declared = [
            (i, s.name.key, self.source.position(s.span).line)
            for i, s in enumerate(statements)
            if isinstance(s, CreateSource | CreateView | CreateQuery | CreateSummary)
        ]
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
            view = statement.name.key if isinstance(statement, CreateView | CreateQuery) else None
            kind = "query" if isinstance(statement, CreateQuery) else "view"
            context = Context(
                self.source, self.catalog, self.settings, [], self.failed, later, references, view, kind,
                query_names=self.query_names,
            )  # fmt: skip
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
            command = _BINDERS[type(statement)](statement, context)
            if not refused:
                self._apply(command, statement, context)
        except BindingFailed:
            if not context.silenced:
                _not_without_error(statement, context)
            refused = True
        if (refused or context.errors) and isinstance(
            statement, CreateSource | CreateView | CreateQuery | CreateSummary | CreateFunction
        ):
            self.failed.add(statement.name.key)

    def _apply(self, command: Command, statement: Statement, context: Context) -> None:
        """Carry out a command on the catalog, or record its answer."""
        if isinstance(command, CreateSourceCommand | CreateQueryCommand):
            # Also with a wrong connector: then nothing runs, but what reads it is checked.
            assert isinstance(statement, CreateSource | CreateQuery)
            if not self._is_free(statement.name, command.replace):
                return
        elif context.errors:
            return
        self.catalog = applied(command, self.catalog)
        if isinstance(command, CreateQueryCommand):
            self._created(command, statement)
        elif isinstance(command, DropCommand):
            dropped = {gone.name.lower() for gone in command.drops if gone.kind == "QUERY"}
            self.queries = [name for name in self.queries if name not in dropped]
        elif isinstance(command, ChangeSetting):
            self.settings = command.settings
        elif isinstance(command, SelectOnce):
            number = 1 + sum(isinstance(action, SelectOnce) for action in self.actions)
            self.actions.append(replace(command, query=replace(command.query, name=f"select_{number}")))
        elif isinstance(command, ExplainCommand):
            analyze = command.kind is ExplainKind.ANALYZE
            self.actions.append(Explain(command.query, analyze, self.catalog.memory, self.settings))
        elif isinstance(command, ExportCommand):
            self.actions.append(command)
        elif isinstance(command, ShowCommand):
            self.actions.append(Show(command.kind, command.entries))
        elif isinstance(command, Describe):
            self.actions.append(Show("DESCRIBE", _described(command)))

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
        kind = BY_TREE.get(type(statement))
        what = _OF_A_SERVER.get(type(statement)) if kind is None else kind.of_a_server(statement)
        if what is None and isinstance(statement, ExplainStatement) and statement.start is not None:
            what = "EXPLAIN START"
        if what is None and isinstance(statement, ExplainStatement) and statement.sharing is not None:
            what = "EXPLAIN SHARING"
        if what is not None:
            context.fail("P0702", f"{what} needs a server", statement.span, _SERVER)
        if isinstance(statement, CreateSource):
            if statement.connector.name.key == "http":
                context.note(_needs_server("FROM HTTP ()"), statement.connector.span)
            if statement.retain is not None and not self.live:
                context.note(_needs_server("RETAIN"), statement.retain.span)
        elif isinstance(statement, CreateQuery):
            start = statement.start
            if start is not None and start.mode in (StartMode.WARM, StartMode.AT) and not self.live:
                context.note(_needs_server(f"START {start.mode.value}"), start.span)
            for attribute in statement.attributes:
                if attribute.key.key in QUERY_ATTRIBUTES.names and attribute.key.key not in _OF_A_SCRIPT:
                    context.note(_needs_server(f"attribute {attribute.key.key}"), attribute.key.span)

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


def _needs_server(what: str) -> PenstockError:
    return PenstockError("P0702", f"{what} needs a server", hint=_SERVER)


def _not_without_error(statement: Statement, context: Context) -> None:
    """Report a statement that failed if no error has been recorded."""
    if not context.errors:
        context.note(PenstockError("P0901", "this statement is not supported yet"), statement.span)


def _described(command: Describe) -> tuple[tuple[str, str], ...]:
    """Return a declaration as lines: its kind and name, then its columns."""
    width = max((len(name) for name, _ in command.columns), default=0)
    columns = ((name, f"  {name.ljust(width)}  {type_}") for name, type_ in command.columns)
    head = command.text if not command.columns else f"{command.kind} {command.name}"
    return ((command.name, head), *columns)


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
    name = statement.name.key if isinstance(statement, CreateView | CreateQuery) else None
    kind = "query" if isinstance(statement, CreateQuery) else "view"
    context = Context(
        source, catalog, settings, failed=set(failed), view=name, view_kind=kind, query_names=QueryNames.REFUSED
    )
    try:
        for error, span in refusals(statement):
            context.note(error, span)
        command = _BINDERS[type(statement)](statement, context)
        if not context.errors:
            return command, tuple(context.warnings)
    except BindingFailed:
        if context.silenced and not context.errors:
            raise
        _not_without_error(statement, context)
    raise ScriptErrors(context.errors)
