"""Which ways to begin a query has, and how far back its sources must be read for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.need import (
    AwaitedRows,
    Held,
    Need,
    Ticks,
    awaited_rows,
    first_full_instant,
    missing_rows,
    most_rows,
    reach,
)
from penstock.connectors.sources import open_source
from penstock.errors import PenstockError, counted
from penstock.physical.execution.progress import NOTHING, query_heartbeat, timed_sources
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.planner import part_of, plan_queries
from penstock.runtime.live.starts import ALL_OF_ANOTHER, PastRead, StartOption, never_full, starts_by
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.hydration.past_input import KnownPast, PastStart, ReadTicks
from penstock.storage import storage


@dataclass(frozen=True)
class Bound:
    """What may be left out of a source. skipped: no element up to that tick determines what is emitted; begin: time may
    begin there, if it has begun before."""

    skipped: int
    begin: int

    def and_also(self, other: Bound | None) -> Bound | None:
        """Return what may be left out for both."""
        if other is None:
            return None
        return Bound(min(self.skipped, other.skipped), min(self.begin, other.begin))


#: By source; None where nothing may be left out.
Bounds = Mapping[str, Bound | None]


def bounds_of(queries: Iterable[Query], starts: Mapping[str, Start], known: KnownPast, plan: Plan) -> Bounds:
    """Return what may be left out of the sources of several queries of a plan."""
    bounds: dict[str, Bound | None] = {}
    for query in queries:
        # As they are declared now: a query may have been bound when a stream did not retain what it does.
        sources = {name: plan.sources[name] for name in timed_sources(query.root)}
        columns = {name: plan.needed_columns(name) for name in sources}
        for source, bound in bounds_of_one(query, starts[query.name], known, columns, sources).items():
            former = bounds.get(source, bound)
            bounds[source] = None if former is None else former.and_also(bound)
    return bounds


def bounds_of_one(
    query: Query, start: Start, known: KnownPast, columns: Mapping[str, Collection[int]], sources: Mapping[str, Source]
) -> Bounds:
    """Return the same of one query.

    Args:
        columns: by source, the positions of the declared columns that are read.
        sources: those that it reads, as they are declared.
    """
    needs = query.root.needs
    tick = heartbeat_at(query, known.offset) if start.at is None else start.at
    if start.mode is StartMode.BEGINNING or tick == NOTHING or any(need.ticks is None for need in needs.values()):
        return dict.fromkeys(sources)
    back = _longest(needs.values())
    bounds: dict[str, Bound | None] = {}
    for name, source in sources.items():
        need = needs.get(name, Need())
        until = tick - (need.ticks or 0)
        skipped = _before_last_rows(source, need, until, known, columns[name]) if need.rows else until
        bounds[name] = None if skipped is None else Bound(skipped, tick - back)
    return bounds


def _longest(needs: Iterable[Need]) -> int:
    return max((need.ticks or 0 for need in needs), default=0)


def _before_last_rows(source: Source, need: Need, until: int, known: KnownPast, columns: Collection[int]) -> int | None:
    """Return a tick before the last rows that `need` names of the elements up to the tick `until`; None where all are
    there, and where these rows may be among those that are gone.
    """
    lost, count = known.lost(source, columns), most_rows(need)
    if lost is None or count is None or lost > until:
        return None
    held = known.retained_ticks(source, lost, until)
    return int(np.partition(held, -count)[-count]) - 1 if len(held) >= count else None


def warm_or_later(query: Query, known: KnownPast, columns: Mapping[str, Collection[int]]) -> Start:
    """Return the start of a query that begins WARM WAIT: WARM, or at the first instant at which nothing is missing.

    Args:
        columns: by source, the positions of the declared columns that are read.

    Raises:
        PenstockError: P0703 where it would wait for ever.
    """
    lost, begin = _lost(query, known, columns), heartbeat_at(query, known.offset)
    needs = query.root.needs
    tick = first_full_instant(needs, lost, begin, _held(query, known, lost))
    # With all of a source time begins with the first element of any, which may be among those that are gone.
    if tick is None or (lost and any(need.ticks is None for need in needs.values())):
        raise never_full(query, lost)
    return Start(StartMode.WARM, None if tick == begin else tick)


def awaited_of(query: Query, known: KnownPast, ticks: ReadTicks | None = None) -> AwaitedRows | None:
    """Return for which rows a query waits that begins WARM WAIT (`awaited_rows`). ticks: those of retained files, by
    path; those that are read are added."""
    plan, sources = plan_queries([query]), timed_sources(query.root)
    columns = {name: plan.needed_columns(name) for name in sources}
    if any(
        source.retain_columns and not set(columns[n]) <= set(source.retain_columns) for n, source in sources.items()
    ):
        return None  # what is retained from here on lacks columns, too
    lost = _lost(query, known, columns)
    return awaited_rows(query.root.needs, lost, _held(query, known, lost, ticks))


def _lost(query: Query, known: KnownPast, columns: Mapping[str, Collection[int]]) -> dict[str, int]:
    """Return the sources of a query whose elements are removed up to a tick, with that tick."""
    found = {n: known.lost(source, columns[n]) for n, source in timed_sources(query.root).items()}
    return {name: tick for name, tick in found.items() if tick is not None}


def _held(query: Query, known: KnownPast, lost: Mapping[str, int], ticks: ReadTicks | None = None) -> Held:
    """Return what is there of the sources of a query behind the ticks `lost`, and final."""
    sources = timed_sources(query.root)

    def held(name: str) -> Ticks:
        beat = known.offset.progress(name).heartbeat(sources[name].slack)
        return known.retained_ticks(sources[name], lost[name], beat, ticks)

    return held


def with_waits(
    starts: Mapping[str, Start], queries: Iterable[Query], plan: Callable[[], Plan], known: KnownPast
) -> dict[str, Start]:
    """Return `starts` with those found that WAIT.

    Args:
        queries: those that read a past, as they were bound; the others need none.
        plan: returns that of all queries.

    Raises:
        PenstockError: P0703 for one that would wait for ever.
    """
    found = {name: Start(StartMode.WARM) if start.wait else start for name, start in starts.items()}
    for query in queries:
        if query.name in starts and starts[query.name].wait:
            part = part_of(plan(), [query.name])
            columns = {source: part.needed_columns(source) for source in timed_sources(query.root)}
            found[query.name] = warm_or_later(query, known, columns)
    return found


def heartbeat_at(query: Query, offset: Offset) -> int:
    """Return the heartbeat of a query whose sources have been read up to `offset`, or an earlier one."""
    sources = timed_sources(query.root)
    return query_heartbeat(query.root, sources, {name: offset.progress(name) for name in sources}, drain=False)


def not_kept(starts: Mapping[str, Start], plan: Plan, missing: Mapping[str, Source]) -> PenstockError:
    """Return the error for queries that begin with a past of which sources keep too little."""
    queries = sorted(name for name in starts if missing.keys() & timed_sources(plan.queries[name].root).keys())
    names = ", ".join(sorted(missing))
    if all(starts[name].mode is StartMode.BEGINNING for name in queries):
        clocked = [source.name for source in missing.values() if source.system_time]
        reason = f"what has been read of {names} is not kept"
        if clocked:
            reason = f"{clocked[0]} is of SYSTEM TIME, and when its elements came is not kept"
        return PenstockError(
            "P0607",
            f"query {', '.join(queries)} cannot read its past: {reason}",
            hint="start without --backfill: the query begins from here on",
        )
    mode = ", ".join(sorted({starts[name].mode.value for name in queries}))
    helps = [what_helps(plan.queries[name], source) for name in queries for source in missing.values()]
    return PenstockError(
        "P0703",
        f"query {', '.join(queries)}: START {mode} needs elements of {names} that are no longer kept",
        hint=f"start it NOW; another time: {'; '.join(dict.fromkeys(helps))}",
    )


def is_posted(source: Source) -> bool:
    """Return whether a source is a relation whose rows are posted, and stay where they are."""
    return not source.is_stream and open_source(source).keeps_relations


def has_content(known: KnownPast, relation: Source) -> bool:
    """Return whether the content of an updated relation can be read again in a run that has read `known`."""
    if not is_posted(relation):
        return known.start(relation, None, range(len(relation.columns))) is not None
    if relation.idle is None and not relation.system_time:
        return True
    unrecorded = known.paths(relation.name).keys() - known.recorded_paths(relation.name).keys()
    # Which rows were late is not known of those. Their instants are not known either, but are in the past.
    return not unrecorded or (relation.idle is None and known.clock_before(relation.name) is not None)


def content_not_kept(query: str, relations: Iterable[str]) -> PenstockError:
    """Return the error for a query over relations whose content cannot be read."""
    names = ", ".join(sorted(relations))
    return PenstockError(
        "P0703",
        f"query {query} begins with the content of {names}, whose updates cannot be read again",
        hint=f"declare {names} again, together with the query; relations FROM FILES, DELTA, KAFKA, or HTTP and MEMORY "
        "at a server can be read again",
    )


def what_helps(query: Query, source: Source) -> str:
    """Return what would have kept the past of `source` that `query` needs."""
    needs, need = query.root.needs.values(), query.root.needs.get(source.name, Need())
    back = None if any(one.ticks is None for one in needs) else _longest(needs)
    if not source.is_stream:
        if is_posted(source):
            return f"the updates of {source.name} have to be kept one by one for longer (relation_retention)"
        return f"the updates of {source.name} have to stay readable"
    rows = most_rows(need)
    if need.rows and need.ticks is not None and rows is not None:
        return f"CREATE STREAM {source.name} ... RETAIN for as long as its last {counted(rows, 'row')} take"
    if source.is_checked and (back is None or need.rows):
        return (
            f"{source.name} has to be retained from its beginning, since which of its rows promises that are CHECKED "
            "have rejected is kept beside what is retained"
        )
    if back is None or need.rows or source.domain is None:
        reason = "the query needs all of it"
        if need.ticks is not None and not need.rows:
            reason = ALL_OF_ANOTHER
        return f"{source.name} has to stay readable from its beginning, since {reason}"
    return f"CREATE STREAM {source.name} ... RETAIN {source.domain.show_length(max(back, 1))} or longer"


def start_options(query: Query, known: KnownPast) -> list[StartOption]:
    """Return which modes of START `query` could have in a run that has read `known`."""
    return starts_by(lambda start: start_option(query, start, known))


def start_option(query: Query, start: Start, known: KnownPast) -> StartOption:
    """Return whether `query` could begin with `start` in a run that has read `known`, and what it would read."""
    if start.mode is StartMode.NOW:
        return _option_now(query, known)
    obstacles: list[str] = []
    plan, sources = plan_queries([query]), timed_sources(query.root)
    columns = {name: plan.needed_columns(name) for name in sources}
    requested, since = start, ""
    if start.wait:
        awaited = awaited_of(query, known)
        if awaited is not None and awaited.rows:
            return StartOption(requested, {}, missing=missing_rows(awaited.rows))
        try:
            start = warm_or_later(query, known, columns)
        except PenstockError as error:
            return StartOption(requested, {}, (error.message.partition(": ")[2],))
        since = "" if start.at is None else query.domain.show(start.at)
    bounds = bounds_of_one(query, start, known, columns, timed_sources(query.root))
    reads: dict[str, PastRead] = {}
    for name, source in sources.items():
        bound = bounds[name]
        skipped = None if bound is None else bound.skipped
        past = known.start(source, skipped, columns[name])
        if past is not None:
            if not past.gone:
                provider = "the source, read again"
                if past.retained is not None:
                    provider = "its retained elements"
                elif past.compacted is not None:
                    provider = "its updates, compacted and as posted"
                reads[name] = _read(provider, known, name, past, skipped)
        elif start.mode is StartMode.BEGINNING and not is_posted(source):
            obstacles.append(f"{name} cannot be read again from its beginning")
        else:
            obstacles.append(what_helps(query, source))
    return StartOption(requested, reads, tuple(obstacles), since=since)


def _option_now(query: Query, known: KnownPast) -> StartOption:
    """Return whether `query` can begin NOW: relations begin with their content."""
    reads: dict[str, PastRead] = {}
    obstacles: list[str] = []
    sources = timed_sources(query.root)
    for name, source in sources.items():
        if source.is_stream:
            continue
        if not has_content(known, source):
            obstacles.append(f"the updates of {name} cannot be read again")
        elif is_posted(source):
            size = sum(storage().size(Path(path)) for path in known.paths(name) if storage().exists(Path(path)))
            size += known.compacted(name).bytes
            reads[name] = PastRead("its content, from the posted rows", size)
        else:
            past = known.start(source, None, range(len(source.columns)))
            assert past is not None, "it has a content"
            reads[name] = _read("its content, from its updates", known, name, past, None)
    back, domain = reach(query.root.needs), query.root.domain
    fills = back is not None and back > 0 and any(source.is_stream for source in sources.values())
    filled = domain.show_length(back) if fills and back is not None and domain is not None else ""
    return StartOption(Start(), reads, tuple(obstacles), filled)


def _read(provider: str, known: KnownPast, source: str, past: PastStart, bound: int | None) -> PastRead:
    """Return what is read of a source from `past` on; of a retained stream elements after the tick `bound`."""
    if past.retained is not None:
        files = [file for file in past.retained.files() if bound is None or file.high > bound]
        return PastRead(provider, sum(map(past.retained.size, files)))
    splits = [*past.splits, *(split for task in known.tasks(source)[past.task :] for split in task.splits)]
    rows = [split.rows for split in splits]
    counts = [count for count in rows if count is not None]
    before = (0, 0) if past.compacted is None else (past.compacted.bytes, past.compacted.rows)
    size, count = sum(split.bytes for split in splits) + before[0], sum(counts) + before[1]
    return PastRead(provider, size, count if len(counts) == len(rows) else None)
