"""An epoch as it is planned: the records of its queries and sources, and the parts of its plan.

Every query is planned as it was when it began, by itself and those that began with it. What a change adds and removes
is planned and recorded; of all else the parts and records are those of the epoch before, as the same objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from penstock.algebra.nodes.query import Query, Start
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.statistics import Statistics
from penstock.connectors.sources.posted_files import UNTIL
from penstock.physical.plan.identity import query_fingerprint, source_fingerprint
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.plan_parts import as_declared, with_standing
from penstock.physical.planning.planner import Generation, grains_of, plan_generations
from penstock.physical.planning.shared_parts import shared_plan
from penstock.physical.planning.sharing import Merges
from penstock.runtime.spark.checkpoint.epochs import Epoch, QueryRecord, SourceRecord, statistics_as_json
from penstock.runtime.spark.checkpoint.known_version import NOTHING_KNOWN, KnownVersion
from penstock.runtime.spark.checkpoint.planning_cache import PlanningCache, PlanningChoice, QueryTexts, RecordedPart
from penstock.runtime.spark.output.emitted_content import ContentReader
from penstock.storage.documents import Document


@dataclass(frozen=True)
class StartRequest:
    """The inputs of a start.

    Args:
        queries: as in the script, before optimization.
        sources: the sources that the queries read.
        rows: by MEMORY source, a text that identifies its rows.
        statistics: what is known of the sources.
        frames: the sources that Spark reads.
        shards: the configured number, 0 for any.
        starts: by query, where its answer begins if it begins now; NOW for the others.
        standing: timed sources that are read also without a query.
        command, outcomes: of the commands that the queries come from, for the record of the epoch.
        paused: queries that are left out and whose results stay.
        reset: queries whose paused results begin again.
        silent: queries that run and whose sinks receive nothing.
        moved: queries that take over the computation of another one.
        contents: reads the contents of results, None where they are not kept.
        former: the queries that ran before, where they are known.
        live: queries may come and go while it runs.
        cache: of planning, which a start needs several times.
    """

    queries: tuple[Query, ...]
    sources: Mapping[str, Source]
    rows: Mapping[str, str]
    statistics: Statistics
    strategy: Strategy
    drain: bool
    state_store: str
    frames: frozenset[str]
    shards: int
    starts: Mapping[str, Start] = field(default_factory=dict)
    standing: tuple[Source, ...] = ()
    command: int = 0
    outcomes: Document = field(default_factory=dict)
    paused: frozenset[str] = frozenset()
    reset: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    moved: Mapping[str, str] = field(default_factory=dict)
    contents: ContentReader | None = None
    former: Mapping[str, Query] = field(default_factory=dict)
    live: bool = False
    cache: PlanningCache = field(default_factory=PlanningCache, compare=False, repr=False)

    @property
    def declared(self) -> dict[str, Source]:
        """Return the sources by name, as they are declared at present."""
        return {**self.sources, **{source.name: source for source in self.standing}}

    @cached_property
    def by_name(self) -> dict[str, Query]:
        """Return the queries by name."""
        return {query.name: query for query in self.queries}

    def texts(self, name: str) -> QueryTexts:
        """Return the texts of a query for its record."""
        return self.cache.texts(self.by_name[name])


def source_records(request: StartRequest, before: Epoch | None, number: int) -> dict[str, SourceRecord]:
    """Return the records of the sources in an epoch `number` that follows `before`."""
    records: dict[str, SourceRecord] = {}
    for name, source in request.sources.items():
        # Which posts of a static relation a query reads is part of the query.
        declared = replace(source, options=tuple(one for one in source.options if one[0] != UNTIL))
        digest = source_fingerprint(declared, request.rows.get(name, ""))
        record = before.sources.get(name) if before is not None else None
        birth = record.birth if record is not None and record.fingerprint == digest else number
        records[name] = SourceRecord(digest, birth, source.is_static)
    return records


def fingerprint(query: Query, request: StartRequest, epoch: Epoch, birth: int) -> str:
    """Return the fingerprint of what a query computes, planned by itself with the choice of its birth."""

    def planned() -> str:
        alone = request.cache.plan_of_one(query, birth, _choice(epoch, birth)) if birth == epoch.number else None
        alone = alone or plan_generations([_generation([query], request, epoch, birth)], request.strategy)
        return query_fingerprint(alone, query.name)

    return request.cache.fingerprint(query, _choice(epoch, birth), planned)


def _choice(epoch: Epoch, birth: int) -> PlanningChoice:
    """Return how the queries of `birth` are planned."""
    return PlanningChoice(epoch.statistics[str(birth)], epoch.strategy)


def _generation(queries: Sequence[Query], request: StartRequest, epoch: Epoch, birth: int) -> Generation:
    statistics = epoch.statistics_of(birth)
    planning = Strategy(epoch.strategy).planning(statistics)
    optimized = [request.cache.optimized(query, planning) for query in queries]
    return Generation(birth, optimized, statistics, epoch.grains_of(birth))


def plan_of(request: StartRequest, epoch: Epoch) -> Plan:
    """Return the plan of an epoch: every query as it was planned when it began."""
    by_birth = queries_by_birth(request.queries, {name: record.birth for name, record in epoch.queries.items()})
    return whole_plan(request, [*_parts(request, epoch, by_birth, NOTHING_KNOWN).values()], epoch.merges)


def queries_by_birth(queries: Iterable[Query], births: Mapping[str, int]) -> dict[int, tuple[Query, ...]]:
    """Return queries by their births, in order."""
    found: dict[int, list[Query]] = {}
    for query in queries:
        found.setdefault(births[query.name], []).append(query)
    return {birth: tuple(some) for birth, some in sorted(found.items())}


def _parts(
    request: StartRequest, epoch: Epoch, by_birth: Mapping[int, tuple[Query, ...]], known: KnownVersion
) -> dict[int, RecordedPart]:
    """Return the parts of the plan of an epoch, by the births of its queries. known: those of the epoch before."""
    parts = {
        birth: known.parts[birth]
        if known.by_birth.get(birth) is queries
        else request.cache.standing_part(birth, queries, epoch.statistics[str(birth)])
        or request.cache.part(
            birth, queries, _choice(epoch, birth), partial(_generation, queries, request, epoch, birth)
        )
        for birth, queries in by_birth.items()
    }
    request.cache.keep_parts(parts)
    return parts


def whole_plan(request: StartRequest, parts: Sequence[RecordedPart], merges: Merges) -> Plan:
    plan = shared_plan([part.part for part in parts], merges, request.cache.shared_parts)
    plan = with_standing(plan, request.standing)
    return as_declared(plan, request.declared)


def planned_epoch(
    request: StartRequest,
    before: Epoch | None,
    number: int,
    base: int,
    shards: int,
    by_birth: Mapping[int, tuple[Query, ...]],
    kept: AbstractSet[str] = frozenset(),
    known: KnownVersion = NOTHING_KNOWN,
) -> tuple[Epoch, dict[int, RecordedPart]]:
    """Return the epoch `number`, its offset left open, and the parts of its plan by birth.

    Args:
        by_birth: its queries.
        kept: those that go on.
        known: of `before`; nothing where births are not those that its queries had.
    """
    former, present = before.statistics if before is not None else {}, set(map(str, by_birth))
    statistics = {birth: former[birth] for birth in former if birth in present}
    planning = request.strategy.planning(request.statistics)
    standing = [one["grains"] for one in statistics.values()]
    for birth in sorted({number, *by_birth} - set(map(int, statistics))):
        new_queries = [request.cache.optimized(query, planning) for query in by_birth.get(birth, ())]
        grains = grains_of(new_queries, request.statistics, request.strategy, request.live, standing)
        statistics[str(birth)] = statistics_as_json(request.statistics, grains)
    records = {} if before is None else dict(before.queries)
    for name in (*(records.keys() - kept), *request.moved):
        records.pop(name, None)
    if len(records) < len(request.queries):
        births = {query.name: birth for birth, some in by_birth.items() if birth not in known.parts for query in some}
        if not request.by_name.keys() <= births.keys() | records.keys():
            births = {query.name: birth for birth, some in by_birth.items() for query in some}
        for query in request.queries:
            if query.name not in records:
                records[query.name] = _record(request, query, births[query.name])
    epoch = Epoch(
        number,
        base,
        records,
        source_records(request, before, number),
        0,
        shards,
        request.strategy.value,
        request.drain,
        request.state_store,
        statistics,
        frames=sorted(request.frames),
        command=request.command,
        outcomes=request.outcomes,
        merges={} if before is None else before.merges,
    )
    parts = _parts(request, epoch, by_birth, known)
    fresh = {query.name for query in known.fresh(request.queries)}
    for birth, part in parts.items():
        if known.parts.get(birth) is not part:
            operators, some = part.operators, by_birth[birth]
            # The record of the same query with the same operators stays as it is.
            for query in [q for q in some if q.name in fresh or records[q.name].operators is not operators[q.name]]:
                records[query.name] = _completed(request, epoch, query, records[query.name], operators[query.name])
    stages = max([1, *(part.plan.stages for part in parts.values())])
    version = KnownVersion(request.by_name, by_birth, parts, known.outline_of(parts))
    return replace(epoch, stages=stages, known=version), parts


def _record(request: StartRequest, query: Query, birth: int) -> QueryRecord:
    """Return the record of a query that begins, without its plan."""
    texts, domain = request.texts(query.name), query.domain
    return QueryRecord("", birth, texts.sink, texts.text, [], domain.unit.name, domain.calendar)


def _completed(
    request: StartRequest, epoch: Epoch, query: Query, record: QueryRecord, operators: list[dict[str, Any]]
) -> QueryRecord:
    """Return the record of a query as the epoch has it: an equal one where nothing of it has changed, with the
    operators of its part, by which it is recognized from then on."""
    texts = request.texts(query.name)
    has_texts = record.sink == texts.sink and record.text == texts.text
    if record.fingerprint and record.operators is operators and has_texts:
        return record
    if record.fingerprint and record.operators == operators and has_texts:
        return replace(record, operators=operators)
    planned = fingerprint(query, request, epoch, record.birth)
    return replace(record, fingerprint=planned, operators=operators, sink=texts.sink, text=texts.text)
