"""Decide what a start means for a checkpoint: the first start of a run, its continuation, or a change of its script.

A query with the same name, fingerprint and sources is the same: it continues with its state, whatever else has changed.
Any other begins with this epoch and sees only what its sources supply from here on. Contract: this module writes
nothing; `start.py` carries a decision out.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source, declared_sources
from penstock.algebra.optimizer.statistics import Statistics
from penstock.errors import PenstockError
from penstock.physical.plan.identity import query_fingerprint, source_fingerprint
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.plan_parts import joined, outlined, retained_as_declared, with_standing
from penstock.physical.planning.planner import Generation, grains_of, plan_generations
from penstock.physical.planning.shared_parts import shared_plan
from penstock.physical.planning.sharing import Merges
from penstock.physical.planning.strategies import Strategy
from penstock.runtime.spark.catching_up.past_input import KnownPast, delivered_part, offset_at_start
from penstock.runtime.spark.catching_up.start_options import with_waits
from penstock.runtime.spark.checkpoint.epochs import (
    Epoch,
    PausedRecord,
    QueryRecord,
    SourceRecord,
    epoch_numbers,
    is_committed,
    last_offset,
    latest_epoch,
    pending_failures,
    read_epoch,
    read_offset,
    statistics_as_json,
)
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.planning_cache import PlannedPart, PlanningCache, PlanningChoice, QueryTexts
from penstock.runtime.spark.checkpoint.start_provider import (
    PastProvider,
    ReadAhead,
    check_settings,
    new_births,
    notices_of_change,
    past_providers,
)
from penstock.runtime.spark.input.offset import Offset
from penstock.runtime.spark.output.continuation import continuations, paused_records, with_silences
from penstock.runtime.spark.output.emitted_content import ContentReader
from penstock.runtime.spark.output.result_parts import new_result_id
from penstock.runtime.spark.output.withheld import Withheld
from penstock.runtime.spark.shared_steps import beginnings_of, merges_of, progress_at_start
from penstock.storage.documents import Document
from penstock.storage.seals import damaged


class StartKind(enum.Enum):
    """The relation of a start to its checkpoint."""

    FIRST = "first"
    SAME = "same"
    CHANGED = "changed"


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
    def texts(self) -> dict[str, QueryTexts]:
        """Return what records say of these queries, by name."""
        return self.cache.all_texts(self.queries)


@dataclass(frozen=True)
class Decision:
    """The decision about a start.

    Args:
        before: the epoch whose state continues, None for none.
        plan: of all queries.
        fresh: queries that begin now.
        gone: queries that ended.
        kept_sinks: queries whose result continues.
        resumed: those of them that begin again, after they were paused.
        seeds: by query, what is withheld when its result continues.
        notices: messages for the user.
        parts: of the plan, each with all its steps.
        delivered: the part of the epoch's offset with which it was decided; None where it begins with the sources.
    """

    kind: StartKind
    before: Epoch | None
    epoch: Epoch
    plan: Plan
    fresh: tuple[str, ...]
    gone: tuple[str, ...]
    kept_sinks: frozenset[str]
    notices: tuple[str, ...]
    resumed: frozenset[str] = frozenset()
    seeds: Mapping[str, Withheld] = field(default_factory=dict)
    parts: Sequence[PlannedPart] = ()
    delivered: Offset | None = None


def decide(request: StartRequest, folder: Folder) -> Decision:
    """Return what this start is. Raises PenstockError P0602, P0605, P0606, P0607."""
    latest = latest_epoch(folder)
    if latest is not None and _is_same_script(request, latest):
        _check_settings(request, latest)
        names = frozenset(latest.queries)
        epoch = _with_commands(latest, request)
        return Decision(StartKind.SAME, latest, epoch, plan_of(request, latest), (), (), names, ())
    newest_first = (read_epoch(folder, n) for n in reversed(epoch_numbers(folder)))
    before = next((epoch for epoch in newest_first if is_committed(folder, epoch)), None)
    if before is None:
        _check_delivery_mark(folder, latest)
        return _first_start(request)
    return _in_log_of(before, request, folder, _changed_start(request, folder, before, 1 + epoch_numbers(folder)[-1]))


def _check_delivery_mark(folder: Folder, latest: Epoch | None) -> None:
    """Check that no delivery mark is lost: a second round is planned only after the first is delivered. Raises
    PenstockError P0605."""
    offset = read_offset(folder, latest.log) if latest is not None else None
    if offset is not None and offset.round > 1:
        raise damaged(folder.root / "delivered.json", FileNotFoundError("it is gone"))


def _is_same_script(request: StartRequest, epoch: Epoch) -> bool:
    """Return whether the script is equal to that with which `epoch` began."""
    records = epoch.queries
    return (
        not request.moved
        and {q.name for q in request.queries} == set(records)
        and request.paused & (records.keys() | epoch.paused.keys()) == epoch.paused.keys()
        and request.silent & records.keys() == epoch.silent.keys()
        and (sources := source_records(request, epoch, epoch.number + 1)) == epoch.sources
        and _kept_queries(request, epoch, sources).issuperset(q.name for q in request.queries)
        and all(records[name].sink == texts.sink for name, texts in request.texts.items())
    )


def _kept_queries(request: StartRequest, before: Epoch, sources: Mapping[str, SourceRecord]) -> set[str]:
    """Return the queries of the request that are in `before` and compute the same, or take over the computation of one
    there. sources: the records of the sources after it."""
    if request.strategy.value != before.strategy:
        return set()
    renewed = {name for name, source in sources.items() if source.birth > before.number}
    kept: set[str] = set()
    if not renewed and not request.moved:
        kept = request.cache.agreeing(request.queries, before.queries)
    for query in [query for query in request.queries if query.name not in kept] if kept else request.queries:
        record = before.queries.get(request.moved.get(query.name, query.name))
        if record is None or (renewed and not renewed.isdisjoint(declared_sources(query.root))):
            continue
        agrees = partial(_computes, query, request, before, record)
        if request.cache.agrees(query, record, before.statistics[str(record.birth)], agrees):
            kept.add(query.name)
    return kept


def _computes(query: Query, request: StartRequest, epoch: Epoch, record: QueryRecord) -> bool:
    """Return whether a query computes what its record in `epoch` says."""
    return fingerprint(query, request, epoch, record.birth) == record.fingerprint


def fingerprint(query: Query, request: StartRequest, epoch: Epoch, birth: int) -> str:
    """Return the fingerprint of what a query computes, planned by itself as its birth says."""

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


def source_records(request: StartRequest, before: Epoch | None, number: int) -> dict[str, SourceRecord]:
    """Return the records of the sources in an epoch `number` that follows `before`."""
    records: dict[str, SourceRecord] = {}
    for name, source in request.sources.items():
        digest = source_fingerprint(source, request.rows.get(name, ""))
        record = before.sources.get(name) if before is not None else None
        birth = record.birth if record is not None and record.fingerprint == digest else number
        records[name] = SourceRecord(digest, birth, source.is_static)
    return records


def plan_of(request: StartRequest, epoch: Epoch) -> Plan:
    """Return the plan of an epoch: every query as it was planned when it began."""
    return _joined(request, _parts(request, epoch), epoch.merges)


def _parts(request: StartRequest, epoch: Epoch) -> list[PlannedPart]:
    """Return the parts of the plan of an epoch, by the births of its queries."""
    by_birth: dict[int, list[Query]] = {}
    for query in request.queries:
        by_birth.setdefault(epoch.queries[query.name].birth, []).append(query)
    parts = [
        request.cache.standing_part(birth, queries, epoch.statistics[str(birth)])
        or request.cache.part(
            birth, queries, _choice(epoch, birth), partial(_generation, queries, request, epoch, birth)
        )
        for birth, queries in sorted(by_birth.items())
    ]
    request.cache.keep_parts(by_birth)
    return parts


def _joined(request: StartRequest, parts: Sequence[PlannedPart], merges: Merges) -> Plan:
    plan = shared_plan([part.plan for part in parts], merges, request.cache.shared_parts)
    plan = with_standing(plan, request.standing)
    return retained_as_declared(plan, request.declared)


def _first_start(request: StartRequest) -> Decision:
    births = dict.fromkeys((q.name for q in request.queries), 0)
    epoch, parts = _epoch(request, None, 0, 0, request.shards, births)
    plan = _joined(request, parts, epoch.merges)
    names = tuple(q.name for q in request.queries)
    past_providers(request.queries, request.starts, ())
    epoch = _with_results(epoch, None, frozenset(), names)
    epoch = replace(epoch, silent=dict.fromkeys(sorted(request.silent & set(names)), 0))
    return Decision(StartKind.FIRST, None, epoch, plan, names, (), frozenset(), ())


def decide_change(
    request: StartRequest, folder: Folder, before: Epoch, renewed: bool = False, ahead: ReadAhead | None = None
) -> Decision:
    """Return what `request` changes in a run that goes on with `before`, between two of its rounds.

    Args:
        renewed: the same sources are declared otherwise.
        ahead: with what its new queries have read their past; used where they are the same.

    Raises:
        PenstockError: P0602, P0605, P0606, P0607.
    """
    if not renewed and _is_same_script(request, before):
        _check_settings(request, before)
        epoch, names = _with_commands(before, request), frozenset(before.queries)
        return Decision(StartKind.SAME, before, epoch, plan_of(request, before), (), (), names, ())
    last = epoch_numbers(folder)[-1]
    # Numbers under which others read their past belong to these.
    number = ahead.number if ahead is not None and ahead.number > last else 1 + max(last, request.cache.reserved)
    return _in_log_of(before, request, folder, _changed_start(request, folder, before, number, ahead))


def _in_log_of(before: Epoch, request: StartRequest, folder: Folder, decision: Decision) -> Decision:
    """Return `decision` with an epoch that continues the log of `before`, and shares the steps that can be shared."""
    left = last_offset(folder, before)
    epoch = replace(decision.epoch, log=before.log, log_base=before.log_base, left=left)
    parts = decision.parts
    progress, shared = progress_at_start(folder, epoch, decision.plan), request.cache.shared_parts
    merges = merges_of([part.plan for part in parts], epoch, progress, decision.plan, shared)
    plan = _joined(request, parts, merges)
    return replace(decision, epoch=replace(epoch, merges=merges).after(before), plan=plan)


def _changed_start(
    request: StartRequest, folder: Folder, before: Epoch, number: int, ahead: ReadAhead | None = None
) -> Decision:
    _check_can_change(request, folder, before)
    _check_settings(request, before)
    failed = pending_failures(folder, before)
    sources = source_records(request, before, before.number + 1)
    kept_queries = _kept_queries(request, before, sources).difference(failed)
    new_queries = tuple(q.name for q in request.queries if q.name not in kept_queries)
    read = {name for name, source in sources.items() if source.birth <= before.number}
    providers = past_providers([q for q in request.queries if q.name not in kept_queries], request.starts, read)
    new = new_births(request.queries, providers, number)
    former_statistics, past_number = before.statistics, 0
    if ahead is not None and ahead.fits(new):
        new, past_number = dict(ahead.births), ahead.number
        former_statistics = {**former_statistics, **ahead.statistics}
    former = {name: request.moved.get(name, name) for name in kept_queries}
    births = {name: before.queries[former[name]].birth for name in kept_queries} | new
    number = max([number, *new.values()])
    ended_queries = tuple(name for name in before.queries if name not in births and name not in request.paused)
    base = folder.delivered().batch + 1
    epoch, parts = _epoch(
        request, replace(before, statistics=former_statistics), number, base, before.shards, births, kept_queries
    )
    plans = [part.plan for part in parts]
    plan = with_standing(outlined(plans), request.standing)
    backfill = [name for name in new_queries if providers[name] is not PastProvider.NONE]
    past = [name for name in backfill if providers[name] is PastProvider.SOURCES]
    offset = offset_at_start(folder, before, epoch, plan)
    delivered = delivered_part(folder, offset)
    known, starting = KnownPast(folder, epoch.births, delivered), [q for q in request.queries if q.name in past]
    request = replace(request, starts=with_waits(request.starts, starting, lambda: joined(plans), known))
    paused = paused_records(request, folder, before, failed, delivered)
    epoch = _with_commands(replace(epoch, command=before.command, outcomes=before.outcomes, paused=paused), request)
    kept_sinks, resumed = _kept_results(request, before, kept_queries, new_queries, failed)
    how = continuations(request, folder, before, kept_queries, resumed, past, delivered, failed)
    starts = {name: how.starts.get(name, request.starts.get(name, Start())) for name in backfill}
    beginning = {n: [s.mode.value, s.at] for n, s in starts.items() if s.mode is not StartMode.BEGINNING}
    epoch = replace(
        epoch, offset=offset, backfill=backfill, starts=beginning, answered=dict(how.answered), past=past_number
    )
    epoch = replace(epoch, beginnings=beginnings_of(epoch, before, new, progress_at_start(folder, epoch, plan), plan))
    epoch = with_silences(epoch, request, folder, before, kept_sinks, how, delivered)
    epoch = _with_results(epoch, before, kept_sinks | resumed, new_queries)
    notices = notices_of_change(before, new_queries, ended_queries, past, request.starts.keys())
    return Decision(
        StartKind.CHANGED, before, epoch, plan, new_queries, ended_queries, kept_sinks | resumed, notices, resumed,
        how.seeds, parts, delivered,
    )  # fmt: skip


def _kept_results(
    request: StartRequest, before: Epoch, kept: Collection[str], new: Collection[str], failed: Collection[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the queries whose results go on with the same answer, and those whose results another answer continues.

    Args:
        kept: queries that compute the same; new: the others.
        failed: queries of `before` that failed in its last round.
    """
    sinks = {name: texts.sink for name, texts in request.texts.items()}
    kept_sinks = frozenset(name for name in kept if before.queries[name].sink == sinks[name])
    paused_sinks = {name: record.sink for name, record in before.paused.items()}
    # One that begins at the beginning answers every instant again, so its result begins again too, unless it is known
    # what that has received.
    known = request.contents is not None
    begun = {name for name, start in request.starts.items() if start.mode is not StartMode.BEGINNING or known}
    replaced = begun & before.queries.keys()
    paused_sinks |= {name: before.queries[name].sink for name in (*failed, *replaced) if name in before.queries}
    candidates = set(new) - request.reset
    return kept_sinks, frozenset(name for name in candidates if paused_sinks.get(name) == sinks[name])


def _with_commands(epoch: Epoch, request: StartRequest) -> Epoch:
    """Return `epoch` with the commands of `request`, which may contain one that was left out before the last."""
    if request.command < epoch.command:
        return epoch
    return replace(epoch, command=request.command, outcomes=request.outcomes)


def _epoch(
    request: StartRequest, before: Epoch | None, number: int, base: int, shards: int, births: Mapping[str, int],
    kept: Collection[str] = (),
) -> tuple[Epoch, list[PlannedPart]]:  # fmt: skip
    """Return the epoch `number`, its offset left open, and the parts of its plan. kept: queries that go on."""
    former = before.statistics if before is not None else {}
    statistics = {str(birth): former[str(birth)] for birth in set(births.values()) if str(birth) in former}
    planning = request.strategy.planning(request.statistics)
    standing = [one["grains"] for one in statistics.values()]
    for birth in sorted({number, *births.values()} - set(map(int, statistics))):
        new_queries = [request.cache.optimized(q, planning) for q in request.queries if births[q.name] == birth]
        grains = grains_of(new_queries, request.statistics, request.strategy, request.live, standing)
        statistics[str(birth)] = statistics_as_json(request.statistics, grains)
    records = {
        q.name: before.queries[q.name]
        if before is not None and q.name in kept and q.name not in request.moved
        else _record(request, q, births[q.name])
        for q in request.queries
    }
    epoch = Epoch(
        number, base, records, source_records(request, before, number), 0, shards, request.strategy.value,
        request.drain, request.state_store, statistics, frames=sorted(request.frames), log=number, log_base=base,
        command=request.command, outcomes=request.outcomes, merges={} if before is None else before.merges,
    )  # fmt: skip
    parts = _parts(request, epoch)
    operators: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        operators.update(part.operators)
    texts = request.texts
    queries = {
        name: record
        if record.operators is operators[name] and record.fingerprint and _is_told(record, texts[name])
        else _completed(request, epoch, query, record, operators[name])
        for query, (name, record) in zip(request.queries, records.items(), strict=True)
    }
    return replace(epoch, queries=queries, stages=max([1, *(part.plan.stages for part in parts)])), parts


def _record(request: StartRequest, query: Query, birth: int) -> QueryRecord:
    """Return the record of a query that begins, without its plan."""
    texts, domain = request.texts[query.name], query.domain
    return QueryRecord("", birth, texts.sink, texts.text, [], domain.unit.name, domain.calendar)


def _is_told(record: QueryRecord, texts: QueryTexts) -> bool:
    """Return whether a record says of its query what is to be said beside its plan."""
    return record.sink == texts.sink and record.text == texts.text


def _completed(
    request: StartRequest, epoch: Epoch, query: Query, record: QueryRecord, operators: list[dict[str, Any]]
) -> QueryRecord:
    """Return the record of a query as the epoch has it: an equal one where nothing of it has changed, with the
    operators of its part, by which it is recognized from then on."""
    texts = request.texts[query.name]
    if record.fingerprint and record.operators == operators and _is_told(record, texts):
        return replace(record, operators=operators)
    planned = fingerprint(query, request, epoch, record.birth)
    return replace(record, fingerprint=planned, operators=operators, sink=texts.sink, text=texts.text)


def _with_results(epoch: Epoch, before: Epoch | None, kept: Collection[str], new: Collection[str]) -> Epoch:
    """Return the epoch with the ids of its results. kept: queries whose results continue; new: those that begin."""
    former: dict[str, QueryRecord | PausedRecord] = {} if before is None else before.queries | before.paused
    queries: dict[str, QueryRecord] = {}
    for name, record in epoch.queries.items():
        if name not in kept:
            record = replace(record, id=new_result_id(name), whole=name in new)
        elif (record.id, record.whole) != (former[name].id, former[name].whole):
            record = replace(record, id=former[name].id, whole=former[name].whole)
        queries[name] = record
    return replace(epoch, queries=queries)


def _check_settings(request: StartRequest, before: Epoch) -> None:
    """Check that the settings are those of the checkpoint. Raises PenstockError P0606."""
    check_settings(before, request.shards, request.strategy.value, request.state_store, request.drain)


def _check_can_change(request: StartRequest, folder: Folder, before: Epoch) -> None:
    """Check that the script may change. Raises PenstockError P0602 where Spark keeps the state or reads the input."""
    reason = ""
    if before.frames or request.frames:
        reason = (
            f"Spark reads {', '.join(sorted({*before.frames, *request.frames}))} and knows the place only for one plan"
        )
    elif "spark" in (before.state_store, request.state_store):
        reason = "its state is in Spark's own store, which fits one plan only"
    if reason:
        raise other_script(folder, reason)


def other_script(folder: Folder, reason: str) -> PenstockError:
    return PenstockError(
        "P0602", f"the checkpoint {folder.root.parent} belongs to another script or version of it: {reason}",
        hint="give a new --checkpoint, or run the script that it was made with",
    )  # fmt: skip
