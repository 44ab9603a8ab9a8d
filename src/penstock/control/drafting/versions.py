"""From declarations to what stands in a version of the engine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Check, RejectedScan, Source, declared_sources, over_sources
from penstock.control.command_log import Transaction
from penstock.control.engine import Activity, EngineVersion, NextVersion, StandingQuery, StandingSource
from penstock.control.entities.batches import LOG_ID, LOG_NAME, log_source
from penstock.control.outcomes import CommandOutcome, CommandState
from penstock.control.phases import Phase
from penstock.control.posted_rows import ContentsRead, PostedRows
from penstock.control.registry import Registry, default_sink
from penstock.control.stored_catalog import CatalogChange, StoredCatalog, StoredComputation, StoredObject, StoredQuery
from penstock.deep_trees import deep
from penstock.errors import PenstockError
from penstock.language.binder.statements.attributes import QUERY_ATTRIBUTES
from penstock.language.catalog import Catalog
from penstock.language.plan_choices import as_choices, choices_in
from penstock.physical.execution.progress import timed_sources
from penstock.settings import Settings
from penstock.types import BEGIN, END, Interval

#: A length that no RETAIN has.
FOR_EVER = END - BEGIN
#: Attributes of queries that the engine carries out.
_POLICIES = ("result_limit", "sink_retry", "weight", "latency_target")


@dataclass
class Versions:
    """Makes versions, one after the other: what stays is not made again.

    Args:
        posted: the folders of posted rows.
        contents: up to which posts computations read relations without timestamps.
    """

    posted: PostedRows
    contents: ContentsRead
    #: By number of a source: its declaration, and the one that the engine reads.
    _sources: dict[int, tuple[Source, Source]] = field(default_factory=dict)
    #: By place: a bound query with the choices of its plan, the sources that it reads, and the query over these.
    _queries: dict[int, tuple[tuple[Query, str], Mapping[str, Source], Query]] = field(default_factory=dict)
    #: By place: a declaration, the bound query and the relations that it reads up to a post, and what these are in a
    #: version over the sources below.
    _standing: dict[int, tuple[StoredObject, Query, dict[str, Source], StandingQuery]] = field(default_factory=dict)
    #: The sources of the version before, as the engine reads them, by name.
    _by_name: Mapping[str, Source] = field(default_factory=dict)
    #: By place: a stream with a promise that is CHECKED, and what checks it.
    _checks: dict[int, tuple[Source, StandingQuery]] = field(default_factory=dict)
    #: By number of a relation and of a post, the relation up to this post.
    _contents: dict[tuple[int, int], tuple[Source, Source]] = field(default_factory=dict)

    @cached_property
    def _log(self) -> Source:
        return log_source(self.posted)

    def next(
        self, stored: StoredCatalog, bound: Catalog, command: int, settings: Settings, waiting: Collection[int] = ()
    ) -> NextVersion:
        """Return what is to stand after the command `command`. A query that cannot be bound keeps its results.

        waiting: numbers of commands before it that are not contained.
        """
        sources: dict[int, StandingSource] = {}
        by_name: dict[str, Source] = {LOG_NAME: self._log}
        checking: dict[int, StandingQuery] = {}
        held = _held(stored, bound)
        for one in stored.objects.values():
            source = bound.sources.get(one.name.lower()) if one.kind in ("STREAM", "RELATION") else None
            if source is not None:
                by_name[source.name] = self._source(source, one.id, source.name in held)
                heartbeats = self.posted.heartbeats(source, one.id)
                sources[one.id] = StandingSource(one.id, by_name[source.name], heartbeats)
                checking |= self._checking(one, by_name[source.name])
        if any(by_name.get(name) is not source for name, source in self._by_name.items()):
            # Queries may read another declaration now.
            self._standing = {}
        self._by_name = by_name
        numbers = {one.source.name: number for number, one in sources.items() if is_posted_content(one.source)}
        posts = {number: self.posted.last(number) for number in numbers.values()}
        queries: dict[int, StandingQuery] = {}
        standing: dict[int, tuple[StoredObject, Query, dict[str, Source], StandingQuery]] = {}
        for one, kept in stored.queries:
            for computation in kept.computed:
                place = computation.place
                found = bound_at(one, computation, bound)
                known = self._standing.get(place)
                reads = {} if found is None else self._reads(found, computation, kept, numbers, posts)
                is_same = known is not None and known[0] is one and known[1] is found
                if known is None or not is_same or any(known[2].get(name) is not each for name, each in reads.items()):
                    query = None if found is None else self._query(found, place, {**by_name, **reads}, computation.plan)
                    queries[place] = made = standing_query(one, kept, computation, query)
                    known = None if found is None else (one, found, reads, made)
                if known is not None:
                    queries[place], standing[place] = known[3], known
        self._standing = standing
        used = {id(source) for _, _, reads, _ in standing.values() for source in reads.values()}
        self._contents = {key: known for key, known in self._contents.items() if id(known[1]) in used}
        if any(one.query is not None and LOG_NAME in self._queries[place][1] for place, one in queries.items()):
            sources[LOG_ID] = StandingSource(LOG_ID, self._log)
        self._sources = {number: known for number, known in self._sources.items() if number in sources}
        self._queries = {place: known for place, known in self._queries.items() if place in queries}
        self._checks = {place: self._checks[place] for place in checking}
        # What is checked is there before what reads it.
        queries = checking | queries
        return NextVersion(command, sources, queries, settings, frozenset(waiting), in_step=dict(_in_step(stored)))

    def _checking(self, one: StoredObject, source: Source) -> dict[int, StandingQuery]:
        """Return what checks the promises of a stream, by place: as a query without readers, from their declaration on
        until they are dropped."""
        found: dict[int, StandingQuery] = {}
        for number, name in one.checks:
            known = self._checks.get(number)
            if known is None or known[0] is not source:
                promise = next(promise for promise in source.promises if promise.name == name)
                scan = RejectedScan(source, tuple(range(len(source.columns))), Check(name, promise, number))
                query = Query(f"constraint {name} of {source.name}", scan, default_sink())
                known = source, StandingQuery(number, number, query, Start(), Activity.SILENT)
            self._checks[number] = known
            found[number] = known[1]
        return found

    def _reads(
        self,
        query: Query,
        computation: StoredComputation,
        kept: StoredQuery,
        numbers: Mapping[str, int],
        posts: Mapping[int, int],
    ) -> dict[str, Source]:
        """Return the relations without timestamps that a computation of a query reads, by name, each up to the post up
        to which it does.

        Args:
            numbers: of such relations, by name.
            posts: the numbers of their last posts.
        """
        read = {name: numbers[name] for name in declared_sources(query.root) if name in numbers} if numbers else {}
        if not read:
            return {}
        found = self.contents.of(computation.id)
        if not found and _activity(kept.answer) is not Activity.PAUSED:
            # The same query by another plan answers as it has answered.
            is_plan = computation is not kept.answer and computation.definition is None
            as_before = self.contents.of(kept.answer.id) if is_plan else {}
            found = as_before or {number: posts[number] for number in read.values()}
            self.contents.begin(computation.id, found)
        return {name: self._until(name, number, found[number]) for name, number in read.items() if number in found}

    def _until(self, name: str, number: int, post: int) -> Source:
        source = self._by_name[name]
        known = self._contents.get((number, post))
        if known is None or known[0] is not source:
            self._contents[number, post] = known = source, self.posted.until(source, post)
        return known[1]

    def _source(self, source: Source, number: int, held: bool) -> Source:
        """Return a source as the engine reads it. held: it retains all that comes."""
        known = self._sources.get(number)
        if known is None or known[0] is not source or (known[1].retain == FOR_EVER) != held:
            read = self.posted.source(source, number)
            self._sources[number] = known = source, replace(read, retain=FOR_EVER) if held else read
        return known[1]

    def _query(self, query: Query, place: int, by_name: Mapping[str, Source], plan: str) -> Query:
        known, goes_by = self._queries.get(place), (query, plan)
        is_other = known is None or known[0][0] is not query or known[0][1] != plan
        if known is None or is_other or any(by_name.get(name) is not s for name, s in known[1].items()):
            read = {name: by_name[name] for name in declared_sources(query.root) if name in by_name}
            self._queries[place] = known = goes_by, read, with_plan(over(query, by_name), plan)
        return known[2]


def is_posted_content(source: Source) -> bool:
    """Return whether a source, as the engine reads it, is a relation without timestamps whose rows are posted."""
    return source.is_static and source.connector == "POSTED"


def _held(stored: StoredCatalog, bound: Catalog) -> frozenset[str]:
    """Return the names of the streams that keep all that comes: queries are to begin with it."""
    waiting = [bound_at(one, each, bound) for one, query in stored.queries for each in query.computations if each.keeps]
    return frozenset(
        name
        for query in waiting
        if query is not None
        for name, source in timed_sources(query.root).items()
        if source.is_stream
    )


def _in_step(stored: StoredCatalog) -> Iterator[tuple[int, int]]:
    """Yield the places where one query takes over from another one, with the place from which it comes."""
    for _, query in stored.queries:
        if query.beside is not None and query.beside.phase is Phase.ENDING:
            yield query.place, query.beside.place


def part_of_version(
    stored: StoredCatalog,
    bound: Catalog,
    command: int,
    settings: Settings,
    posted: PostedRows,
    change: CatalogChange,
    places: Collection[int],
) -> NextVersion:
    """Return what a transaction adds to a version: the queries at the `places` that it changes and the sources that it
    declares. It costs nothing for what else stands."""
    sources: dict[int, StandingSource] = {}
    queries: dict[int, StandingQuery] = {}
    for one in change.objects:
        source = bound.sources.get(one.name.lower()) if one.kind in ("STREAM", "RELATION") else None
        if source is not None:
            read = posted.source(source, one.id)
            sources[one.id] = StandingSource(one.id, read, posted.heartbeats(source, one.id))
        kept = one.query
        for each in [] if kept is None else kept.computed:
            if kept is not None and each.place in places:
                queries[each.place] = standing_query(one, kept, each, _queried(one, each, stored, bound, posted))
    return NextVersion(command, sources, queries, settings)


def queried(one: StoredObject, computation: StoredComputation, registry: Registry, posted: PostedRows) -> Query | None:
    """Return what a computation of a declared query is to compute, over the sources as the engine reads them; None
    where it cannot be bound."""
    return _queried(one, computation, registry.stored, registry.bound, posted)


def _queried(
    one: StoredObject, computation: StoredComputation, stored: StoredCatalog, bound: Catalog, posted: PostedRows
) -> Query | None:
    query = bound_at(one, computation, bound)
    if query is None:
        return None
    read = [found for name in declared_sources(query.root) if (found := stored.named(name)) is not None]
    by_name = {
        known.name: posted.source(known, found.id)
        for found in read
        if (known := bound.sources.get(found.name.lower())) is not None
    }
    return with_plan(over(query, {**by_name, LOG_NAME: log_source(posted)}), computation.plan)


def bound_at(one: StoredObject, computation: StoredComputation, bound: Catalog) -> Query | None:
    """Return what a computation of a declared query computes, None where it cannot be bound."""
    name = one.name.lower()
    if computation.definition is None:
        return bound.queries.get(name)
    return bound.beside[name].query if name in bound.beside else None


def with_plan(query: Query, plan: str) -> Query:
    """Return a query with the choices of a text."""
    return replace(query, choices=as_choices(choices_in(plan)))


def standing_query(
    one: StoredObject, kept: StoredQuery, computation: StoredComputation, query: Query | None
) -> StandingQuery:
    """Return what stands in a version for a computation of a query. query: over the sources as the engine reads them;
    None where it cannot be bound."""
    activity = Activity.PAUSED if query is None else _activity(computation)
    start = begun_start(computation.start)
    if computation is kept.answer:
        policy = _policy(one.attributes)
        return StandingQuery(computation.place, computation.id, query, start, activity, kept.reset, **policy)
    # Its answers are not read.
    hidden = None if query is None else replace(query, sink=default_sink())
    return StandingQuery(computation.place, computation.id, hidden, start, activity)


def begun_start(start: Start) -> Start:
    """Return the start of a query for the engine: WARM WAIT that has waited for rows begins AT the instant it found."""
    return Start(StartMode.AT, start.at) if start.wait and start.at is not None else start


def _policy(attributes: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a `StandingQuery` that attributes set, as far as they are set."""
    values = {name: _value(name, attributes[name]) for name in _POLICIES if name in attributes}
    target = values.get("latency_target")
    if isinstance(target, Interval):
        values["latency_target"] = float(target.amount * target.unit.value / 1_000_000)
    return values


def _value(name: str, text: str) -> Any:
    option = QUERY_ATTRIBUTES.get(name)
    assert option is not None, "queries have this attribute"
    return option.type.read(text)


#: What an engine does for a computation in a phase; nothing in the others.
_ACTIVITIES = {
    Phase.ANSWERING: Activity.RUNNING,
    Phase.SHADOW: Activity.RUNNING,
    Phase.ENDING: Activity.RUNNING,
    Phase.SILENT: Activity.SILENT,
}


def _activity(computation: StoredComputation) -> Activity:
    return _ACTIVITIES.get(computation.phase, Activity.PAUSED)


@deep
def over(query: Query, sources: Mapping[str, Source]) -> Query:
    """Return a query over the sources as the engine reads them."""
    return replace(query, root=over_sources(query.root, sources))


def applied(transaction: Transaction, version: EngineVersion) -> list[CommandOutcome]:
    """Return the outcomes of a transaction that is in a version."""
    found = []
    for number in transaction.numbers:
        place = transaction.change.concerns.get(number)
        tick = None if place is None else version.begun.get(place)
        state = CommandState.COMPLETED if place is None else CommandState.RUNNING
        found.append(CommandOutcome(number, state, version.number, tick, batch=version.batch))
    return found


def failed(transaction: Transaction, error: PenstockError) -> list[CommandOutcome]:
    """Return the outcomes of a transaction that has no effect."""
    return [failure(number, error) for number in transaction.numbers]


def failure(number: int, error: PenstockError) -> CommandOutcome:
    """Return the outcome of a command that has no effect."""
    return CommandOutcome(number, CommandState.FAILED, None, None, error.code, error.message, hint=error.hint)
