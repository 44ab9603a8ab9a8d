"""Decide what a start means for a checkpoint: the first start of a run, its continuation, or a change of its script.

A query with the same name, fingerprint and sources is the same: it continues with its state, whatever else has changed.
Any other begins with this epoch and sees only what its sources supply from here on. Contract: this module writes
nothing; `start.py` carries a decision out.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import declared_sources
from penstock.errors import PenstockError
from penstock.physical.execution.progress import (
    Progress,
    QueryHeartbeats,
    SourceProgress,
    query_heartbeat,
    timed_sources,
)
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.merging import merged
from penstock.physical.planning.plan_parts import joined, with_standing
from penstock.physical.planning.planned_part import PlannedPart
from penstock.physical.planning.shared_parts import SharedParts
from penstock.physical.planning.sharing import Beginning, Standing
from penstock.runtime.spark.changes.continuation import continuations, paused_records, with_silences
from penstock.runtime.spark.changes.planned_epoch import (
    StartRequest,
    fingerprint,
    plan_of,
    planned_epoch,
    queries_by_birth,
    source_records,
    whole_plan,
)
from penstock.runtime.spark.checkpoint.epochs import (
    Epoch,
    QueryRecord,
    SourceRecord,
    epoch_numbers,
    is_committed,
    last_offset,
    latest_epoch,
    pending_failures,
    read_epoch,
    read_offset,
)
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.spark.checkpoint.known_version import NOTHING_KNOWN
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.checkpoint.planning_cache import RecordedPart
from penstock.runtime.spark.checkpoint.start_provider import (
    PastProvider,
    ReadAhead,
    check_settings,
    new_births,
    notices_of_change,
    past_providers,
)
from penstock.runtime.spark.hydration.past_input import KnownPast, delivered_part, offset_at_start
from penstock.runtime.spark.hydration.start_options import with_waits
from penstock.runtime.spark.output.result_parts import new_result_id
from penstock.runtime.spark.output.withheld import Withheld
from penstock.storage.seals import damaged

# --- Which steps of a run are shared, from epoch to epoch: what `physical/planning/sharing.py` needs to know of it.
#
# A change of a live run happens between two rounds, and only then are steps merged: the states of all shards are then
# at the offset with which the epoch begins.


def progress_at_start(folder: Folder, epoch: Epoch, plan: Plan) -> dict[str, SourceProgress]:
    """Return the progress of the sources with which `epoch` begins."""
    assert epoch.offset is not None, "an epoch that follows another one begins with an offset"
    offset = delivered_part(folder, epoch.offset)
    return {name: replace(offset.progress(name), ended=name in offset.ended) for name in plan.sources}


def beginnings_of(
    epoch: Epoch, before: Epoch, progress: Progress, plan: Plan, by_birth: Mapping[int, Sequence[Query]]
) -> dict[str, dict[str, dict[str, int]]]:
    """Return the beginnings of the queries of `epoch` by their births.

    Args:
        before: the epoch before it.
        progress: of the sources when it begins.
        by_birth: the queries by their births, in order.
    """
    known, started = before.maturity, epoch.started
    found: dict[str, dict[str, dict[str, int]]] = {}
    for birth, queries in by_birth.items():
        record = before.beginnings.get(str(birth))
        if record is not None and len(record["begun"]) == len(record["ahead"]):
            found[str(birth)] = record
            continue
        if birth in known:
            # What they have seen follows from what was known before.
            found[str(birth)] = known[birth].after(progress).as_json()
            continue
        sources: set[str] = set()
        for name in (query.name for query in queries):
            read, start = timed_sources(plan.queries[name].root), started.get(name, Start())
            # One that is shown later only may have missed what has no bearing on it from then on.
            heartbeat = query_heartbeat(plan.queries[name].root, read, progress, drain=False)
            is_ahead = start.at is not None and start.at > heartbeat
            if name not in started or start.mode is StartMode.NOW or is_ahead:
                sources.update(read)
        found[str(birth)] = Beginning.cut_off(sources, progress).as_json()
    return found


def merges_of(
    parts: Sequence[PlannedPart], epoch: Epoch, progress: Progress, plan: Plan, shared: SharedParts
) -> dict[str, str]:
    """Return the merges of `epoch`: those that it has taken over, and those that can be made when it begins.

    Args:
        parts: of its plan, each with all its steps.
        plan: that has its queries.
        shared: the parts of the version before.
    """
    heartbeats = QueryHeartbeats(plan.queries, progress)
    return merged(parts, epoch.merges, epoch.maturity, Standing(progress, heartbeats), shared)


class StartKind(enum.Enum):
    """The relation of a start to its checkpoint."""

    FIRST = "first"
    SAME = "same"
    CHANGED = "changed"


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
    parts: Sequence[RecordedPart] = ()
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
    if request.live and latest is not None:
        # Its commands have been carried out, so it goes on as a whole even if none of its batches has been delivered.
        before = latest
    number, is_unfinished = 1 + epoch_numbers(folder)[-1], not is_committed(folder, before)
    decision = _changed_start(request, folder, before, number, is_unfinished=is_unfinished)
    return _behind(before, request, folder, decision)


def _check_delivery_mark(folder: Folder, latest: Epoch | None) -> None:
    """Check that no delivery mark is lost: a second round is planned only after the first is delivered. Raises
    PenstockError P0605."""
    offset = read_offset(folder) if latest is not None else None
    if offset is not None and offset.round > 1:
        raise damaged(folder.root / "delivered.json", FileNotFoundError("it is gone"))


def _is_same_script(request: StartRequest, epoch: Epoch) -> bool:
    """Return whether the script is equal to that with which `epoch` began."""
    records = epoch.queries
    return (
        not request.moved
        and request.by_name.keys() == records.keys()
        and request.paused & (records.keys() | epoch.paused.keys()) == epoch.paused.keys()
        and request.silent & records.keys() == epoch.silent.keys()
        and (sources := source_records(request, epoch, epoch.number + 1)) == epoch.sources
        and _kept_queries(request, epoch, sources).issuperset(q.name for q in request.queries)
        and all(records[name].sink == request.texts(name).sink for name in records)
    )


def _kept_queries(request: StartRequest, before: Epoch, sources: Mapping[str, SourceRecord]) -> set[str]:
    """Return the queries of the request that are in `before` and compute the same, or take over the computation of one
    there. sources: the records of the sources after it."""
    if request.strategy.value != before.strategy:
        return set()
    # One that no query has read before concerns none that stands.
    renewed = {n for n, source in sources.items() if source.birth > before.number and n in before.sources}
    kept: set[str] = set()
    unknown: Sequence[Query] = request.queries
    if not renewed and not request.moved and before.known is not None:
        # The same objects are neither compared nor looked into.
        unknown = before.known.fresh(request.queries)
        kept = (
            set(before.known.queries)
            if len(unknown) + len(before.queries) == len(request.queries)
            else {query.name for query in request.queries if before.known.queries.get(query.name) is query}
        )
    for query in unknown:
        record = before.queries.get(request.moved.get(query.name, query.name))
        if record is None or (renewed and not renewed.isdisjoint(declared_sources(query.root))):
            continue
        agrees = partial(_computes, query, request, before, record)
        if request.cache.agrees(query, record, before.statistics[str(record.birth)], agrees):
            kept.add(query.name)
    return kept


def _computes(query: Query, request: StartRequest, epoch: Epoch, record: QueryRecord) -> bool:
    """Return whether a query computes what its record in `epoch` describes."""
    return fingerprint(query, request, epoch, record.birth) == record.fingerprint


def _first_start(request: StartRequest) -> Decision:
    epoch, parts = planned_epoch(request, None, 0, 0, request.shards, {0: request.queries} if request.queries else {})
    plan = whole_plan(request, [*parts.values()], epoch.merges)
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
    return _behind(before, request, folder, _changed_start(request, folder, before, number, ahead))


def _behind(before: Epoch, request: StartRequest, folder: Folder, decision: Decision) -> Decision:
    """Return `decision` with an epoch that follows `before`, and shares the steps that can be shared."""
    epoch = replace(decision.epoch, left=last_offset(folder, before))
    parts = decision.parts
    progress, shared = progress_at_start(folder, epoch, decision.plan), request.cache.shared_parts
    merges = merges_of([part.part for part in parts], epoch, progress, decision.plan, shared)
    plan = whole_plan(request, parts, merges)
    return replace(decision, epoch=replace(epoch, merges=merges).after(before), plan=plan)


def _changed_start(
    request: StartRequest,
    folder: Folder,
    before: Epoch,
    number: int,
    ahead: ReadAhead | None = None,
    is_unfinished: bool = False,
) -> Decision:
    """Return the decision about a start or a change behind `before`.

    Args:
        number: of the new epoch.
        ahead: with what its new queries have read their past.
        is_unfinished: no batch of `before` has been delivered, so what its queries have read of their past has joined
            no state yet; they read it again, up to the same offset.
    """
    _check_can_change(request, folder, before)
    _check_settings(request, before)
    failed = pending_failures(folder, before)
    sources = source_records(request, before, before.number + 1)
    kept_queries = _kept_queries(request, before, sources).difference(failed)
    new_queries = tuple(q.name for q in request.queries if q.name not in kept_queries)
    read = {name for name, source in sources.items() if source.birth <= before.number}
    beginning = [q for q in request.queries if q.name not in kept_queries]
    providers = past_providers(beginning, request.starts, read)
    new = new_births(beginning, providers, number)
    former_statistics, past_number = before.statistics, 0
    if ahead is not None and ahead.fits(new):
        new, past_number = dict(ahead.births), ahead.number
        former_statistics = {**former_statistics, **ahead.statistics}
    known_before = NOTHING_KNOWN
    if before.known is not None and not request.moved:
        known_before = before.known
        by_birth = known_before.births_with(before.queries, kept_queries, request.queries, beginning, new)
    else:
        former = {name: request.moved.get(name, name) for name in kept_queries}
        births = {name: before.queries[former[name]].birth for name in kept_queries} | new
        by_birth = queries_by_birth(request.queries, births)
    number = max([number, *new.values()])
    gone = before.queries.keys() - request.by_name.keys()
    ended_queries = tuple(name for name in before.queries if name in gone - request.paused) if gone else ()
    base = folder.delivered().batch + 1
    epoch, parts = planned_epoch(
        request,
        replace(before, statistics=former_statistics),
        number,
        base,
        before.shards,
        by_birth,
        kept_queries,
        known_before,
    )
    assert epoch.known is not None, "it has just been planned"
    plan = with_standing(epoch.known.outline, request.standing)
    backfill = [name for name in new_queries if providers[name] is not PastProvider.NONE]
    past = [name for name in backfill if providers[name] is PastProvider.SOURCES]
    carried = {name: start for name, start in before.started.items() if name in kept_queries} if is_unfinished else {}
    offset = offset_at_start(folder, before, epoch, plan)
    delivered = delivered_part(folder, offset)
    known, starting = KnownPast(folder, epoch.births, delivered), [q for q in beginning if q.name in past]
    starts_now = with_waits(request.starts, starting, lambda: joined([part.plan for part in parts.values()]), known)
    request = request if starts_now is request.starts else replace(request, starts=starts_now)
    paused = paused_records(request, folder, before, failed, delivered)
    epoch = _with_commands(replace(epoch, command=before.command, outcomes=before.outcomes, paused=paused), request)
    kept_sinks, resumed = _kept_results(request, before, kept_queries, new_queries, failed)
    how = continuations(request, folder, before, kept_queries, resumed, past, delivered, failed)
    starts = carried | {name: how.starts.get(name, request.starts.get(name, Start())) for name in backfill}
    modes = {n: [s.mode.value, s.at] for n, s in starts.items() if s.mode is not StartMode.BEGINNING}
    answered = {name: rounds for name, rounds in before.answered.items() if name in carried} | dict(how.answered)
    epoch = replace(epoch, offset=offset, backfill=[*starts], starts=modes, answered=answered, past=past_number)
    progress = progress_at_start(folder, epoch, plan)
    epoch = replace(epoch, beginnings=beginnings_of(epoch, before, progress, plan, by_birth))
    epoch = with_silences(epoch, request, folder, before, kept_sinks, how, delivered)
    epoch = _with_results(epoch, before, kept_sinks | resumed, new_queries)
    notices = notices_of_change(before, new_queries, ended_queries, past, request.starts.keys())
    return Decision(
        StartKind.CHANGED,
        before,
        epoch,
        plan,
        new_queries,
        ended_queries,
        kept_sinks | resumed,
        notices,
        resumed,
        how.seeds,
        [*parts.values()],
        delivered,
    )


def _kept_results(
    request: StartRequest, before: Epoch, kept: AbstractSet[str], new: Collection[str], failed: Collection[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the queries whose results go on with the same answer, and those whose results another answer continues.

    Args:
        kept: queries that compute the same; new: the others.
        failed: queries of `before` that failed in its last round.
    """
    # The records of the same objects are the same.
    known = NOTHING_KNOWN if before.known is None else before.known
    unknown = {query.name for query in known.fresh(request.queries)} & kept
    kept_sinks = frozenset(kept - {n for n in unknown if before.queries[n].sink != request.texts(n).sink})
    paused_sinks = {name: record.sink for name, record in before.paused.items()}
    # One that begins at the beginning answers every instant again, so its result begins again too, unless it is known
    # what that has received.
    is_kept = request.contents is not None
    begun = {name for name, start in request.starts.items() if start.mode is not StartMode.BEGINNING or is_kept}
    replaced = begun & before.queries.keys()
    paused_sinks |= {name: before.queries[name].sink for name in (*failed, *replaced) if name in before.queries}
    candidates = set(new) - request.reset
    return kept_sinks, frozenset(n for n in candidates if paused_sinks.get(n) == request.texts(n).sink)


def _with_commands(epoch: Epoch, request: StartRequest) -> Epoch:
    """Return `epoch` with the commands of `request`, which may contain one that was left out before the last."""
    if request.command < epoch.command:
        return epoch
    return replace(epoch, command=request.command, outcomes=request.outcomes)


def _with_results(epoch: Epoch, before: Epoch | None, kept: Collection[str], new: Collection[str]) -> Epoch:
    """Return the epoch with the ids of its results. kept: queries whose results continue; new: those that begin."""
    former: Mapping[str, QueryRecord] = {} if before is None else before.queries
    queries = dict(epoch.queries)
    for name in [name for name, record in queries.items() if former.get(name) is not record or name not in kept]:
        record = queries[name]
        if name not in kept:
            queries[name] = replace(record, id=new_result_id(name), whole=name in new)
            continue
        assert before is not None, "there is a result that goes on"
        result = before.queries.get(name) or before.paused[name]
        if (record.id, record.whole) != (result.id, result.whole):
            queries[name] = replace(record, id=result.id, whole=result.whole)
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
        "P0602",
        f"the checkpoint {folder.root.parent} belongs to another script or version of it: {reason}",
        hint="give a new --checkpoint, or run the script that it was made with",
    )
