"""The declarations of a session: sources, views, queries, and the rows of MEMORY sources. Immutable: each change
returns a new catalog, so that a script that fails leaves the old one unchanged.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from penstock.algebra import Algebra, Source, SummaryDefinition
from penstock.algebra.nodes.promised import promises_used
from penstock.algebra.nodes.query import Query, Start
from penstock.algebra.properties.heartbeats import StreamRecord
from penstock.algebra.properties.promises import ForeignKey, Unique
from penstock.errors import as_name
from penstock.expressions.calls.user_functions import REGISTERED
from penstock.expressions.user import UserAggregateCall, UserCall, UserDefined
from penstock.tree import walk_once

V = TypeVar("V")
Row = tuple[Any, ...]
#: What scripts write into a MEMORY source.
MemoryRow: TypeAlias = "Row | StreamRecord"


@dataclass(frozen=True)
class View:
    """A named query. root: its algebra, a stream or a relation; names: its columns; text: its CREATE statement;
    uncoalesced: as that of a query."""

    name: str
    root: Algebra
    names: tuple[str, ...]
    text: str
    uncoalesced: tuple[str, ...] = ()


class QueryStatus(enum.Enum):
    """What a registered query does."""

    PENDING = "PENDING"
    HYDRATING = "HYDRATING"
    WAITING = "WAITING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    NEEDS_ATTENTION = "NEEDS ATTENTION"
    COMPLETED = "COMPLETED"


@dataclass(frozen=True)
class RegisteredQuery:
    """What a live system keeps of a query beside its algebra.

    Args:
        text: the statement that registered it, as written.
        start: where its answer begins.
        attributes: those that were set, by name, in normal form.
        id: a number that is never used again, given by who registers the query; 0 before.
        status: what it does.
    """

    text: str
    start: Start = field(default_factory=Start)
    attributes: Mapping[str, str] = field(default_factory=dict)
    id: int = 0
    status: QueryStatus = QueryStatus.PENDING


@dataclass(frozen=True)
class QueryBeside:
    """A bound query, such as one that is computed beside one of the same name, while one of them takes the place of the
    other.

    Args:
        reads: the names that it reads.
    """

    query: Query
    reads: frozenset[str]


@dataclass(frozen=True)
class ControlTable:
    """A control relation of a server: what the system reports of itself.

    Args:
        source: its columns; a stream is read by continuous queries too.
        settable: the columns that UPDATE may set.
    """

    source: Source
    settable: frozenset[str] = frozenset()


@dataclass(frozen=True)
class DeclaredSummary:
    """A summary of a stream. text: its CREATE statement."""

    definition: SummaryDefinition
    text: str

    @property
    def name(self) -> str:
        return self.definition.name


@dataclass(frozen=True)
class UnboundDeclaration:
    """What is declared, and this program cannot bind.

    Args:
        kind: STREAM, RELATION, VIEW, SUMMARY, QUERY, FUNCTION or AGGREGATE.
        text: the statement that declares it; of a query the query alone.
        code, reason: of the error.
        attributes: of a query, those that were set.
    """

    kind: str
    name: str
    text: str
    code: str
    reason: str
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def hint(self) -> str:
        """Return what a user can do."""
        name = as_name(self.name)
        if self.kind == "QUERY":
            again = f"ALTER QUERY {name} AS SELECT ... or CREATE OR REPLACE QUERY {name} mends it and keeps its results"
            return f"{again}; RENAME TO works, and DROP QUERY {name}"
        drop = f"DROP {self.kind} {name} and declare it again"
        return f"CREATE OR REPLACE {self.kind} {name} mends it; or {drop}, or start the server with what it lacks"


@dataclass(frozen=True)
class Catalog:
    """Declarations by name in lower case: two names may not differ in case alone.

    Args:
        memory: rows INSERTed into MEMORY sources, with heartbeats and punctuations between them; values are
            Python values as Arrow has them for the type of the column.
        texts: the CREATE statements of sources and queries, for SHOW.
        functions: the user-defined functions and aggregates, which have a namespace of their own.
        reads: view, query or summary -> the names it reads.
        registered: what a live system keeps of queries.
        control: the control relations, by name with their schema; none without a server.
        summaries: of streams.
        beside: by name of a query, the one that is computed beside it.
        unbound: what is declared and cannot be bound by this program, functions aside.
        unbound_functions: functions and aggregates of which that is so.
    """

    sources: Mapping[str, Source] = field(default_factory=dict)
    views: Mapping[str, View] = field(default_factory=dict)
    queries: Mapping[str, Query] = field(default_factory=dict)
    memory: Mapping[str, tuple[MemoryRow, ...]] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    functions: Mapping[str, UserDefined] = field(default_factory=dict)
    reads: Mapping[str, frozenset[str]] = field(default_factory=dict)
    registered: Mapping[str, RegisteredQuery] = field(default_factory=dict)
    control: Mapping[str, ControlTable] = field(default_factory=dict)
    summaries: Mapping[str, DeclaredSummary] = field(default_factory=dict)
    beside: Mapping[str, QueryBeside] = field(default_factory=dict)
    unbound: Mapping[str, UnboundDeclaration] = field(default_factory=dict)
    unbound_functions: Mapping[str, UnboundDeclaration] = field(default_factory=dict)

    def with_unbound(self, one: UnboundDeclaration) -> Catalog:
        """Return this catalog with a declaration that cannot be bound."""
        key = one.name.lower()
        if one.kind in ("FUNCTION", "AGGREGATE"):
            return replace(self, unbound_functions={**self.unbound_functions, key: one})
        return replace(self, unbound={**self.unbound, key: one})

    def with_source(self, source: Source, text: str = "") -> Catalog:
        """Return this catalog with a stream or relation added or redeclared."""
        key = source.name.lower()
        sources, texts = {**self.sources, key: source}, {**self.texts, key: text}
        return replace(self, sources=sources, texts=texts, unbound=_less(self.unbound, key))

    def with_view(self, view: View) -> Catalog:
        key = view.name.lower()
        return replace(self, views={**self.views, key: view}, unbound=_less(self.unbound, key))

    def with_summary(self, summary: DeclaredSummary) -> Catalog:
        """Return this catalog with a summary, which reads its stream."""
        key = summary.name.lower()
        added = replace(self, summaries={**self.summaries, key: summary}, unbound=_less(self.unbound, key))
        return added.with_reads(summary.name, frozenset({summary.definition.stream.lower()}))

    def with_query(self, query: Query, registered: RegisteredQuery | None = None) -> Catalog:
        """Return this catalog with a query added or changed. registered: what is kept of it; None leaves that as it
        is.
        """
        key = query.name.lower()
        kept = self.registered if registered is None else {**self.registered, key: registered}
        queries = {**self.queries, key: query}
        return replace(self, queries=queries, registered=kept, unbound=_less(self.unbound, key))

    def with_beside(self, name: str, beside: QueryBeside | None) -> Catalog:
        """Return this catalog with what is computed beside the query `name`, None for nothing."""
        key = name.lower()
        return replace(self, beside=_less(self.beside, key) if beside is None else {**self.beside, key: beside})

    def with_rows(self, name: str, rows: tuple[MemoryRow, ...]) -> Catalog:
        key = name.lower()
        return replace(self, memory={**self.memory, key: self.memory.get(key, ()) + rows})

    def with_function(self, user: UserDefined) -> Catalog:
        left = _less(self.unbound_functions, user.key)
        return replace(self, functions={**self.functions, user.key: user}, unbound_functions=left)

    def without_function(self, name: str) -> Catalog:
        key = name.lower()
        left = _less(self.unbound_functions, key)
        return replace(self, functions=_less(self.functions, key), unbound_functions=left)

    def function(self, name: str) -> UserDefined | None:
        """Return the user-defined function `name`, declared here or registered by a decorator, or None."""
        return self.functions.get(name.lower()) or REGISTERED.get(name.lower())

    def with_reads(self, name: str, read: frozenset[str]) -> Catalog:
        """Return this catalog with `name`, a view or query, reading `read`."""
        return replace(self, reads={**self.reads, name.lower(): read})

    def registered_query(self, name: str) -> QueryBeside | None:
        """Return a query with the names that it reads; None where it is not bound."""
        key = name.lower()
        return QueryBeside(self.queries[key], self.reads.get(key, frozenset())) if key in self.queries else None

    def users_of(self, name: str) -> list[str]:
        """Return the views, summaries and queries that read `name`, by their declared names."""
        key = name.lower()
        named = {key: one.name for table in (self.views, self.summaries, self.queries) for key, one in table.items()}
        return [
            named[user]
            for user, read in self.reads.items()
            if user in named and (key in read or (user in self.beside and key in self.beside[user].reads))
        ]

    def views_over(self, *names: str) -> list[str]:
        """Return the views that read one of some names, through views too, what a view reads before it."""
        over = {name.lower() for name in names}
        # A view reads only what was declared before it.
        for key in self.views:
            if self.reads.get(key, frozenset()) & over:
                over.add(key)
        return [view.name for key, view in self.views.items() if key in over]

    def resting_on_promise(self, stream: str, constraint: str) -> list[str]:
        """Return the queries that use a constraint of a stream, by name, and the streams that refer to its columns."""
        source = self.sources[stream.lower()]
        (promise,) = (one for one in source.promises if one.name.lower() == constraint.lower())
        roots = [(query.name, query.root) for query in self.queries.values()]
        roots += [(one.query.name, one.query.root) for one in self.beside.values()]
        used = {name: None for name, root in roots if (source.name, promise.name) in promises_used(root)}
        return [*used, *(_referring(self.sources.values(), source, promise) if isinstance(promise, Unique) else ())]

    def resting_on(self, name: str) -> list[str]:
        """Return what cannot be without `name`: what reads it, and the streams whose promises refer to it."""
        key = name.lower()
        referring = [s.name for child, s in self.sources.items() if child != key and key in _parents(s)]
        return [*referring, *self.users_of(name)]

    def users_of_function(self, name: str) -> list[str]:
        """Return the views and queries that call the user-defined `name`, by their declared names."""
        roots = {**{v.name: v.root for v in self.views.values()}, **{q.name: q.root for q in self.queries.values()}}
        beside = {self.queries[key].name: one.query.root for key, one in self.beside.items() if key in self.queries}
        return [
            user
            for user, root in roots.items()
            if name.lower() in called_functions(root)
            or (user in beside and name.lower() in called_functions(beside[user]))
        ]

    def without(self, name: str) -> Catalog:
        """Return this catalog without the declaration `name`."""
        key = name.lower()
        return replace(
            self,
            sources=_less(self.sources, key),
            views=_less(self.views, key),
            queries=_less(self.queries, key),
            memory=_less(self.memory, key),
            texts=_less(self.texts, key),
            reads=_less(self.reads, key),
            registered=_less(self.registered, key),
            summaries=_less(self.summaries, key),
            beside=_less(self.beside, key),
            unbound=_less(self.unbound, key),
        )

    def __contains__(self, name: str) -> bool:
        key = name.lower()
        return any(key in table for table in (self.sources, self.views, self.queries, self.summaries))

    def kind(self, name: str) -> str | None:
        """Return STREAM, RELATION, VIEW, SUMMARY or QUERY; None for an unknown name."""
        key = name.lower()
        if key in self.sources:
            return "STREAM" if self.sources[key].is_stream else "RELATION"
        if key in self.views:
            return "VIEW"
        if key in self.summaries:
            return "SUMMARY"
        return "QUERY" if key in self.queries else None


def _less(table: Mapping[str, V], key: str) -> Mapping[str, V]:
    return {k: v for k, v in table.items() if k != key} if key in table else table


def _referring(sources: Iterable[Source], parent: Source, unique: Unique) -> list[str]:
    """Return the streams that refer to the columns of a UNIQUE of `parent`, where no other one has the same."""
    columns = set(unique.columns)
    others = (one for one in parent.promises if isinstance(one, Unique) and one.name != unique.name)
    if any(set(one.columns) == columns for one in others):
        return []
    return [
        source.name
        for source in sources
        for one in source.promises
        if isinstance(one, ForeignKey)
        and one.parent.lower() == parent.name.lower()
        and set(one.parent_columns) == columns
    ]


def _parents(source: Source) -> set[str]:
    """Return the streams that the references of a stream name, in lower case."""
    return {promise.parent.lower() for promise in source.promises if isinstance(promise, ForeignKey)}


def called_functions(root: Algebra) -> set[str]:
    """Return the user-defined functions and aggregates in a plan."""
    nodes = list(walk_once(root))
    functions = {n.function.key for n in nodes if isinstance(n, UserCall)}
    return functions | {n.definition.key for n in nodes if isinstance(n, UserAggregateCall)}
