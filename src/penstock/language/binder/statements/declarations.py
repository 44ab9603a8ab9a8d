"""Bind statements in order: each against the declarations of those before it (docs/language.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TypeAlias

from sqlglot import exp

from penstock.algebra.nodes.one_time import OneTimeQuery, ordered
from penstock.algebra.nodes.query import Query, SinkSpec
from penstock.errors import PenstockError, Position, ScriptWarning, counted, nearest
from penstock.expressions.user import REGISTERED, signature
from penstock.language.binder.context import BindingFailed, Context, QueryNames
from penstock.language.binder.from_.nonretroactive import refuse_unjoined
from penstock.language.binder.from_.windows import moment
from penstock.language.binder.select.queries import QueryBinder
from penstock.language.binder.statements.connectors import bind_connector
from penstock.language.binder.statements.created import bind_rows, bind_source, distinct_names
from penstock.language.binder.statements.functions import bind_function, check_volatile
from penstock.language.catalog import Catalog, Row, View
from penstock.language.queries import EmbeddedQuery, Name, NamedSource, QueryTree
from penstock.language.statements import (
    AsOf,
    CreateFunction,
    CreateQuery,
    CreateSource,
    CreateView,
    DropStatement,
    ExplainStatement,
    Insert,
    OneTimeSelect,
    SetSetting,
    ShowStatement,
    Statement,
)
from penstock.language.text import SourceText, TextSpan
from penstock.language.unsupported import refusals
from penstock.redaction import redacted_text
from penstock.settings import Settings
from penstock.types import CALENDAR, TimeDomain


@dataclass(frozen=True)
class Explain:
    """EXPLAIN of a query. analyze: by running it; memory, settings: the rows of MEMORY sources and the settings at this
    place of the script.
    """

    query: Query
    analyze: bool = False
    memory: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class Show:
    """SHOW kind: (name, the statement that declared it) of each, at this point of the script."""

    kind: str
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SelectOnce:
    """A one-time query. memory, settings: the rows of MEMORY sources and the settings at this place of the script;
    position: where it stands.
    """

    query: OneTimeQuery
    memory: Mapping[str, tuple[Row, ...]]
    settings: Settings
    position: Position


Action: TypeAlias = Explain | Show | SelectOnce


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
    generated name.
    query_names: what the names of queries stand for in FROM.
    """

    source: SourceText
    catalog: Catalog
    settings: Settings
    one_time: bool = True
    errors: list[PenstockError] = field(default_factory=list)
    failed: set[str] = field(default_factory=set)
    queries: list[str] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    warnings: list[ScriptWarning] = field(default_factory=list)
    places: dict[str, Position] = field(default_factory=dict)
    query_names: QueryNames = QueryNames.DEFINITION

    def bind(self, statements: list[Statement]) -> None:
        references = {
            s.name.key: frozenset(n.key for n in _names_read(s.query))
            for s in statements
            if isinstance(s, CreateView | CreateQuery)
        }
        declared = [
            (i, s.name.key, self.source.position(s.span).line)
            for i, s in enumerate(statements)
            if isinstance(s, CreateSource | CreateView | CreateQuery)
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
            self._dispatch(statement, context, declare=not refused)
        except BindingFailed:
            if not context.errors and not context.silenced:
                context.note(PenstockError("P0901", "this statement is not supported yet"), statement.span)
            refused = True
        if (refused or context.errors) and isinstance(
            statement, CreateSource | CreateView | CreateQuery | CreateFunction
        ):
            self.failed.add(statement.name.key)

    def _dispatch(self, statement: Statement, context: Context, declare: bool) -> None:
        """Bind one statement. declare: False to report its errors only."""
        if isinstance(statement, CreateSource):
            free = self._free(statement.name, context)
            source = bind_source(statement, context)
            if declare and free:  # also with a wrong connector: then nothing runs, but what reads it is checked
                self.catalog = self.catalog.with_source(source, self.source.slice(statement.span))
        elif isinstance(statement, CreateView):
            self._view(statement, context, declare)
        elif isinstance(statement, CreateQuery):
            self._query(statement, context, declare)
        elif isinstance(statement, OneTimeSelect) and self.one_time:
            self._select_once(statement, context, declare)
        elif isinstance(statement, OneTimeSelect):
            self._query(self._named(statement, context), context, declare)
        elif isinstance(statement, CreateFunction):
            user = bind_function(statement, context)
            if declare and not context.errors:
                self.catalog = self.catalog.with_function(user)
        elif isinstance(statement, Insert):
            rows = bind_rows(statement, context)
            if declare:
                self.catalog = self.catalog.with_rows(statement.name.text, rows)
        elif isinstance(statement, SetSetting):
            set_span = statement.value_span
            name, value = statement.name.text, statement.value
            known = {key for key, _ in Settings()}
            span = set_span if name.lower() in known else statement.name.span
            self.settings = context.guard(span, lambda: self.settings.with_value(name, value))
        elif isinstance(statement, ExplainStatement):
            root = QueryBinder(context).root(statement.query)
            refuse_unjoined(root, statement.query.span, context)
            check_volatile(root, statement.query.span, context)
            if declare and not context.errors:
                text = self.source.slice(statement.query.span)
                query = Query("query", root, SinkSpec("CONSOLE"), text)
                analyze = statement.analyze is not None
                self.actions.append(Explain(query, analyze, self.catalog.memory, self.settings))
        elif isinstance(statement, ShowStatement):
            self.actions.append(Show(statement.kind, self._shown(statement.kind)))
        elif isinstance(statement, DropStatement):
            self._drop(statement, context)

    def _free(self, name: Name, context: Context) -> bool:
        """Return whether the name is free; one that is taken is reported, and the statement bound further, for its
        other errors.
        """
        kind = self.catalog.kind(name.key)
        if kind is None and name.key not in self.failed:
            return True
        hint = "choose another name" if kind is None else f"DROP {kind} {name.text} first, or choose another name"
        context.note(PenstockError("P0206", f"{name.text} is declared already", hint=hint), name.span)
        return False

    def _view(self, statement: CreateView, context: Context, declare: bool) -> None:
        self._free(statement.name, context)
        root = QueryBinder(context).root(statement.query)
        names = root.schema.names
        if statement.columns:
            distinct_names(statement.columns, context)
            if len(statement.columns) != len(names):
                span = statement.columns[0].span.to(statement.columns[-1].span)
                context.fail(
                    "P0305", f"{counted(len(statement.columns), 'name')} for {counted(len(names), 'column')}", span
                )
            names = tuple(c.text for c in statement.columns)
        check_volatile(root, statement.query.span, context)
        if declare and not context.errors:
            view = View(statement.name.text, root, names, self.source.slice(statement.span))
            self.catalog = self.catalog.with_view(view).with_reads(view.name, _read(statement.query))

    def _named(self, statement: OneTimeSelect, context: Context) -> CreateQuery:
        """Return the declaration of a query that has no name, as a continuous one."""
        if statement.as_of is not None:
            hint = "a continuous query is answered at every instant; penstock query and Session.select answer at one"
            context.fail("P0103", "AS OF belongs to a one-time SELECT", statement.as_of.span, hint)
        number = 1
        while f"query_{number}" in self.catalog:
            number += 1
        begin = TextSpan(statement.span.start, statement.span.start + len("SELECT"))
        return CreateQuery(Name(f"query_{number}", span=begin), statement.query, span=statement.span)

    def _select_once(self, statement: OneTimeSelect, context: Context, declare: bool) -> None:
        root = context.attempt(lambda: QueryBinder(context).relation(statement.query))
        domain = CALENDAR if root is None else root.domain or CALENDAR
        as_of = None if statement.as_of is None else _instant(statement.as_of, domain, context)
        if root is None:
            raise BindingFailed
        refuse_unjoined(root, statement.query.span, context)
        check_volatile(root, statement.query.span, context)
        if declare and not context.errors:
            number = 1 + sum(isinstance(action, SelectOnce) for action in self.actions)
            text = redacted_text(self.source.slice(statement.span))
            query = ordered(f"select_{number}", root, as_of, text)
            position = self.source.position(statement.span)
            self.actions.append(SelectOnce(query, self.catalog.memory, self.settings, position))

    def _query(self, statement: CreateQuery, context: Context, declare: bool) -> None:
        sink: tuple[str, tuple[tuple[str, str], ...]] | None = ("CONSOLE", ())
        name = statement.name.text
        free = self._free(statement.name, context)
        into = statement.into
        if into is not None:
            sink = context.attempt(lambda: bind_connector(into, False, context))
        root = QueryBinder(context).root(statement.query)
        refuse_unjoined(root, statement.query.span, context)
        check_volatile(root, statement.query.span, context)
        if declare and free:  # also with a wrong sink: then nothing runs, but what reads it is checked
            text = redacted_text(self.source.slice(statement.span))
            query = Query(name, root, SinkSpec(*(sink or ("CONSOLE", ()))), text)
            self.catalog = self.catalog.with_query(query).with_reads(name, _read(statement.query))
            _warn_of_names(query, statement, context)
            self.queries.append(name.lower())
            if statement.into is not None:
                self.places[name] = self.source.position(statement.into.span)

    def _shown(self, kind: str) -> tuple[tuple[str, str], ...]:
        catalog = self.catalog
        if kind == "VIEWS":
            return tuple((v.name, v.text) for v in catalog.views.values())
        if kind == "QUERIES":
            return tuple((q.name, q.text) for q in catalog.queries.values())
        if kind in ("FUNCTIONS", "AGGREGATES"):
            users = [u for u in {**REGISTERED, **catalog.functions}.values() if f"{u.kind}S" == kind]
            return tuple((u.name, signature(u)) for u in users)
        streams = kind == "STREAMS"
        sources = [(key, s) for key, s in catalog.sources.items() if s.is_stream == streams]
        return tuple((s.name, catalog.texts.get(key, "")) for key, s in sources)

    def _drop(self, statement: DropStatement, context: Context) -> None:
        name = statement.name
        if statement.kind in ("FUNCTION", "AGGREGATE"):
            self._drop_function(statement, context)
            return
        kind = self.catalog.kind(name.key)
        if kind is None:
            if name.key in self.failed:
                self.failed.discard(name.key)  # a later statement may declare it again
                context.fail_silently()
            every = (*self.catalog.sources, *self.catalog.views, *self.catalog.queries)
            known = [key for key in every if self.catalog.kind(key) == statement.kind]
            context.fail("P0201", f"unknown {statement.kind.lower()} {name.text}", name.span, nearest(name.key, known))
        if kind != statement.kind:
            context.fail("P0201", f"{name.text} is {_a(kind)}", name.span, f"DROP {kind} {name.text}")
        self._unused(name, self.catalog.users_of(name.key), context)
        self.catalog = self.catalog.without(name.key)
        self.queries = [q for q in self.queries if q != name.key]

    def _drop_function(self, statement: DropStatement, context: Context) -> None:
        name, user = statement.name, self.catalog.functions.get(statement.name.key)
        if user is None:
            if name.key in self.failed:
                context.fail_silently()
            known = [u.name for u in self.catalog.functions.values()]
            context.fail("P0204", f"unknown {statement.kind.lower()} {name.text}", name.span, nearest(name.key, known))
        if user.kind != statement.kind:
            hint = f"DROP {user.kind} {name.text}"
            context.fail("P0204", f"{name.text} is {_a(user.kind)}", name.span, hint)
        self._unused(name, self.catalog.users_of_function(name.key), context)
        self.catalog = self.catalog.without_function(name.key)

    def _unused(self, name: Name, users: list[str], context: Context) -> None:
        if users:
            hint = "drop what uses it first"
            context.fail("P0222", f"{name.text} is used by {', '.join(users)}", name.span, hint)

    def bound(self) -> BoundScript:
        created = tuple(self.catalog.queries[name] for name in self.queries)
        return BoundScript(
            self.catalog, self.settings, created, tuple(self.actions), tuple(self.warnings), dict(self.places)
        )


def _instant(clause: AsOf, domain: TimeDomain, context: Context) -> int:
    """Return the instant of AS OF in ticks of `domain`."""
    if isinstance(clause.at, str):
        if not domain.calendar:
            context.fail("P0102", "the ticks of these streams are integers: AS OF takes one", clause.span)
        return moment(clause.at, clause.span, context)
    if domain.calendar:
        hint = "write it as AS OF '2020-01-31 12:00:00'"
        context.fail("P0102", "AS OF takes a timestamp", clause.span, hint)
    return clause.at


def _warn_of_names(query: Query, statement: CreateQuery, context: Context) -> None:
    """Warn of columns whose names differ in the result (`Query.output_names`)."""
    called = query.output_names[-len(query.root.schema) :]
    taken = [(old, new) for old, new in zip(query.root.schema.names, called, strict=True) if old != new]
    if taken:
        span = statement.name.span
        shown = ", ".join(f"{old} is called {new}" for old, new in taken)
        own = "a column ts" if query.root.is_stream else "columns ts and op"
        hint = f"choose a name with AS, as in {taken[0][0]} AS happened; this result has {own} already"
        context.warn(f"{shown} in the result of {query.name}, where the name is taken", span, hint)


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind.lower()}"


def _read(tree: QueryTree) -> frozenset[str]:
    return frozenset(name.key for name in _names_read(tree))


def _names_read(tree: QueryTree) -> Iterator[Name]:
    """Yield the names of sources anywhere in a query."""
    todo: list[object] = [tree]
    while todo:
        part = todo.pop()
        if isinstance(part, NamedSource):
            yield part.name
        elif isinstance(part, tuple):
            todo.extend(part)
        elif isinstance(part, exp.Expr):
            todo.extend(embedded.tree for embedded in part.find_all(EmbeddedQuery))
        elif is_dataclass(part):
            todo.extend(getattr(part, f.name) for f in fields(part))
