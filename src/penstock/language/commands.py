"""Commands: what statements mean, bound to a catalog, for a live system to carry out; and the answers of a script.

A command changes nothing itself. Names in it are those of the declarations, in their own case of letters; instants and
lengths are ticks.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.query import Query, SinkSpec, Start
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import Heartbeat
from penstock.algebra.properties.punctuations import Punctuation
from penstock.errors import Position
from penstock.expressions.nodes import Expression
from penstock.expressions.user import UserDefined
from penstock.language.catalog import Catalog, DeclaredSummary, MemoryRow, RegisteredQuery, Row, View
from penstock.settings import Settings


class Command:
    """Base of commands, which are frozen values."""

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        """Return the catalog after this command, which is bound to it. number: the id of a query that is created."""
        return catalog

    def answer(self, catalog: Catalog, settings: Settings) -> Action | None:
        """Return what a script answers at this place; None where the command answers nothing."""
        return None


# --- answers of a script


@dataclass(frozen=True)
class Explain:
    """EXPLAIN of a query. analyze: by running it; memory, settings: the rows of MEMORY sources and the settings at this
    place of the script.
    """

    query: Query
    analyze: bool = False
    memory: Mapping[str, tuple[MemoryRow, ...]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)


@dataclass(frozen=True)
class Show:
    """SHOW kind: (name, the statement that declared it) of each, at this point of the script."""

    kind: str
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SelectOnce(Command):
    """A one-time query. memory, settings: the rows of MEMORY sources and the settings at this place of the script;
    position: where it stands.
    """

    query: OneTimeQuery
    memory: Mapping[str, tuple[MemoryRow, ...]]
    settings: Settings
    position: Position

    def answer(self, catalog: Catalog, settings: Settings) -> Action:
        return self


#: What a script answers.
Action: TypeAlias = "Explain | Show | SelectOnce | ExportCommand"

# --- declarations


@dataclass(frozen=True)
class CreateSourceCommand(Command):
    """Declare a stream or relation. replace, if_not_exists: as written; a name that is taken is replaced where it is
    still there.
    """

    source: Source
    text: str
    replace: bool = False
    if_not_exists: bool = False

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        return catalog.with_source(self.source, self.text)


@dataclass(frozen=True)
class CreateViewCommand(Command):
    """Declare a view. reads: the names that it reads, in lower case."""

    view: View
    reads: frozenset[str]
    replace: bool = False
    if_not_exists: bool = False

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        return catalog.with_view(self.view).with_reads(self.view.name, self.reads)


@dataclass(frozen=True)
class CreateQueryCommand(Command):
    """Register a continuous query.

    Args:
        query: its algebra and sink, with the text as `Query.text` has it, without secrets.
        start: where its answer begins.
        attributes: those that are written, by name, in normal form.
        text: the whole statement as written.
        reads: the names that it reads, in lower case.
        into: whether the statement names a sink; otherwise `query.sink` is the default of its surroundings.
        replace: a query of this name is changed as by ALTER QUERY AS.
    """

    query: Query
    start: Start
    attributes: Mapping[str, str]
    text: str
    reads: frozenset[str]
    into: bool = False
    replace: bool = False
    if_not_exists: bool = False

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        registered = RegisteredQuery(self.text, self.start, self.attributes, number)
        return catalog.with_query(self.query, registered).with_reads(self.query.name, self.reads)


@dataclass(frozen=True)
class CreateFunctionCommand(Command):
    """Declare a user-defined function or aggregate."""

    function: UserDefined
    text: str
    replace: bool = False
    if_not_exists: bool = False

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        return catalog.with_function(self.function)


@dataclass(frozen=True)
class CreateSummaryCommand(Command):
    """Declare a summary of a stream."""

    summary: DeclaredSummary
    replace: bool = False
    if_not_exists: bool = False

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        return catalog.with_summary(self.summary)


@dataclass(frozen=True)
class Dropped:
    """One declaration that a DROP removes. kind: STREAM, RELATION, VIEW, SUMMARY, QUERY, FUNCTION or AGGREGATE."""

    kind: str
    name: str


@dataclass(frozen=True)
class DropCommand(Command):
    """Remove declarations. drops: all that go, what reads another before it; the named one is the last."""

    kind: str
    name: str
    if_exists: bool = False
    cascade: bool = False
    drops: tuple[Dropped, ...] = ()

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        for dropped in self.drops:
            function = dropped.kind in ("FUNCTION", "AGGREGATE")
            catalog = catalog.without_function(dropped.name) if function else catalog.without(dropped.name)
        return catalog


@dataclass(frozen=True)
class Unchanged(Command):
    """A statement that changes nothing: CREATE IF NOT EXISTS of a name that is there, OR REPLACE by an equal
    declaration, DROP IF EXISTS of a name that is not. reason: for the user.
    """

    kind: str
    name: str
    reason: str


# --- changes of queries


@dataclass(frozen=True)
class Pause:
    """Emit nothing from here on. with_state: the query's state is kept up to date."""

    with_state: bool = False


@dataclass(frozen=True)
class Resume:
    """Continue a paused or failed query. start: None where the statement has no START; reset: its content may begin
    again where what was emitted last is no longer known.
    """

    start: Start | None = None
    reset: bool = False


@dataclass(frozen=True)
class SetAttributes:
    """Set attributes of a query.

    Args:
        values: by name, in normal form.
        bounds: options of its sink that limit how much of its result is kept.
    """

    values: Mapping[str, str]
    bounds: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RenameTo:
    name: str


@dataclass(frozen=True)
class MoveInto:
    """Write the answer to another sink."""

    sink: SinkSpec


@dataclass(frozen=True)
class ReplaceQuery:
    """Answer another query under the same name, into the same sink. start, reset: as in `Resume`; text: the query as
    written; reads: the names that it reads, in lower case.
    """

    query: Query
    text: str
    reads: frozenset[str]
    start: Start | None = None
    reset: bool = False


@dataclass(frozen=True)
class SwapWith:
    """Exchange the names and sinks of two queries."""

    name: str


QueryChange: TypeAlias = Pause | Resume | SetAttributes | RenameTo | MoveInto | ReplaceQuery | SwapWith


@dataclass(frozen=True)
class AlterQuery(Command):
    name: str
    action: QueryChange

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        return _altered(self, catalog)


# --- changes of sources, settings and rows


@dataclass(frozen=True)
class AlterSource(Command):
    """Change a stream or relation.

    Args:
        values: attributes that are set, by name, in normal form.
        source: the declaration with them.
        promises: the statement that adds or drops a constraint, in normal form; empty where none changes. The views
            over the stream are to be bound again then.
    """

    name: str
    values: Mapping[str, str]
    source: Source
    promises: str = ""

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        return catalog.with_source(self.source, catalog.texts.get(self.name.lower(), ""))


@dataclass(frozen=True)
class AlterSystem(Command):
    """Set a setting of the whole system. value: as written; it is accepted."""

    key: str
    value: str


@dataclass(frozen=True)
class ChangeSetting(Command):
    """Set a setting of the session. settings: those of the session with it."""

    key: str
    value: str
    settings: Settings


@dataclass(frozen=True)
class InsertRows(Command):
    """Insert rows into a source. rows: a value of Arrow's for every declared column, in order."""

    source: str
    rows: tuple[Row, ...]

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        return catalog.with_rows(self.source, self.rows)


@dataclass(frozen=True)
class AdvanceStream(Command):
    """Add a heartbeat to a stream: no element up to `tick` follows."""

    source: str
    tick: int

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        return catalog.with_rows(self.source, (Heartbeat(self.tick),))


@dataclass(frozen=True)
class PunctuateStream(Command):
    """Add a punctuation to a stream: no element that fulfils it follows."""

    source: str
    punctuation: Punctuation

    def applied(self, catalog: Catalog, number: int = 0) -> Catalog:
        return catalog.with_rows(self.source, (self.punctuation,))


@dataclass(frozen=True)
class UpdateRows(Command):
    """Update rows of a relation with a primary key.

    Args:
        relation: its name.
        assignments: (position of a declared column, its new value, an expression over the declared columns).
        condition: of the rows, over the declared columns; None for all.
    """

    relation: str
    assignments: tuple[tuple[int, Expression], ...]
    condition: Expression | None = None


@dataclass(frozen=True)
class DeleteRows(Command):
    """Delete rows of a relation. condition: as in `UpdateRows`."""

    relation: str
    condition: Expression | None = None


@dataclass(frozen=True)
class UpdateControl(Command):
    """Set attributes of what a control relation lists.

    Args:
        relation: its name, with the schema.
        assignments: (name of a column, its new value, an expression over the columns of the relation).
        condition: of the rows, over the same; None for all.
        confirmed: how many rows are expected to change; None where the statement does not have it.
        position: where it stands.
    """

    relation: str
    assignments: tuple[tuple[str, Expression], ...]
    condition: Expression | None
    confirmed: int | None
    position: Position


# --- reading


@dataclass(frozen=True)
class Subscribe(Command):
    """Follow the answer of a query. query: the name of a registered one, or one that is registered for as long as it
    is read; as_of, up_to: instants in ticks of its domain.
    """

    query: str | Query
    snapshot: bool = False
    progress: bool = False
    as_of: int | None = None
    up_to: int | None = None


@dataclass(frozen=True)
class Cancel(Command):
    """End a statement that runs."""

    id: str


@dataclass(frozen=True)
class ShowCommand(Command):
    """List declarations, settings, or what a server keeps. kind: such as QUERIES; entries: (name, the statement that
    declared it), where the catalog has them.
    """

    kind: str
    entries: tuple[tuple[str, str], ...] = ()

    def answer(self, catalog: Catalog, settings: Settings) -> Action:
        return Show(self.kind, self.entries)


@dataclass(frozen=True)
class Describe(Command):
    """Show one declaration. kind: as in `Dropped`; columns: (name, type) of those that it has; text: the statement that
    declared it, without secrets.
    """

    name: str
    kind: str
    columns: tuple[tuple[str, str], ...] = ()
    text: str = ""

    def answer(self, catalog: Catalog, settings: Settings) -> Action:
        """Return the declaration as lines: its kind and name, then its columns."""
        width = max((len(name) for name, _ in self.columns), default=0)
        columns = ((name, f"  {name.ljust(width)}  {type_}") for name, type_ in self.columns)
        head = self.text if not self.columns else f"{self.kind} {self.name}"
        return Show("DESCRIBE", ((self.name, head), *columns))


class ExplainKind(enum.Enum):
    """What EXPLAIN shows: the plan, also with measurements, where an answer can begin, or which steps are shared."""

    PLAN = "plan"
    ANALYZE = "analyze"
    START = "start"
    SHARING = "sharing"


@dataclass(frozen=True)
class ExplainCommand(Command):
    """Explain a query. registered: whether it is a registered one, named in the statement."""

    kind: ExplainKind
    query: Query
    registered: bool = False

    def answer(self, catalog: Catalog, settings: Settings) -> Action:
        return Explain(self.query, self.kind is ExplainKind.ANALYZE, catalog.memory, settings)


@dataclass(frozen=True)
class ExportCommand(Command):
    """Return the plan of a registered query as data. logical: its logical plan; settings: those at this place of the
    script."""

    query: Query
    logical: Mapping[str, object]
    settings: Settings = field(default_factory=Settings)

    def answer(self, catalog: Catalog, settings: Settings) -> Action:
        return self


# --- transactions


@dataclass(frozen=True)
class BeginTransaction(Command):
    """The commands up to COMMIT happen together or not at all."""


@dataclass(frozen=True)
class CommitTransaction(Command):
    """End of a transaction, whose commands happen."""


@dataclass(frozen=True)
class RollbackTransaction(Command):
    """End a transaction; none of its commands is executed."""


def applied(command: Command, catalog: Catalog, number: int = 0) -> Catalog:
    """Return the catalog after a command that has been bound to it. number: the id of a query that is created."""
    return command.applied(catalog, number)


def _altered(command: AlterQuery, catalog: Catalog) -> Catalog:
    key, action = command.name.lower(), command.action
    query, registered = catalog.queries[key], catalog.registered.get(key, RegisteredQuery(""))
    if isinstance(action, SetAttributes):
        return catalog.with_query(query, replace(registered, attributes={**registered.attributes, **action.values}))
    if isinstance(action, MoveInto):
        return catalog.with_query(replace(query, sink=action.sink))
    if isinstance(action, RenameTo):
        moved = catalog.without(key).with_query(replace(query, name=action.name), registered)
        return moved.with_reads(action.name, catalog.reads.get(key, frozenset()))
    if isinstance(action, ReplaceQuery):
        return catalog.with_query(replace(query, root=action.query.root, text=action.text)).with_reads(
            key, action.reads
        )
    if isinstance(action, SwapWith):
        return _swapped(key, action.name.lower(), catalog)
    return catalog


def _swapped(one: str, two: str, catalog: Catalog) -> Catalog:
    """Return the catalog after two queries have exchanged their names and sinks."""
    first, second = catalog.queries[one], catalog.queries[two]
    after = catalog
    for key, place, query in ((one, first, second), (two, second, first)):
        registered = catalog.registered.get(query.name.lower())
        after = after.with_query(replace(query, name=place.name, sink=place.sink), registered)
        after = after.with_reads(key, catalog.reads.get(query.name.lower(), frozenset()))
    return after
