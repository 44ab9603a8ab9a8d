"""Everything of a start or a change but Spark's part: reject what cannot start, open sinks, write what workers need.

The order matters for a crash at any point: what cannot start is rejected first, then results that exist; the epoch is
written last, and only a run with an epoch resumes (`changes/restart_decision.py`, `checkpoint/epochs.py`). A result
without rows, left by an earlier start, does not prevent the next start.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source, declared_sources, over_sources
from penstock.algebra.properties.statistics import known_statistics
from penstock.connectors.contract import ResultPlace, Sink
from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.results.result_log import ResultLog
from penstock.connectors.sources import open_source
from penstock.connectors.sources.memory import spool
from penstock.errors import PenstockError, log_internal
from penstock.events import log_event
from penstock.physical.execution.wall_clock import peers_in, peers_of
from penstock.physical.planning.state_size.summary import JobState
from penstock.runtime.local.statics import read_statics
from penstock.runtime.reporting import LOG
from penstock.runtime.result_limits import ResultLimits, free_bytes
from penstock.runtime.spark.changes.planned_epoch import StartRequest
from penstock.runtime.spark.changes.restart_decision import (
    Decision,
    StartKind,
    decide,
)
from penstock.runtime.spark.checkpoint.epochs import Epoch, latest_epoch, pending_failures, write_epoch
from penstock.runtime.spark.checkpoint.folder import (
    STATICS,
    Folder,
    Intake,
    Job,
    Seen,
    round_name,
    unwritable,
)
from penstock.runtime.spark.checkpoint.place import forget_all
from penstock.runtime.spark.checkpoint.planning_cache import RecordedPart
from penstock.runtime.spark.checkpoint.rate_control import RateControl
from penstock.runtime.spark.checkpoint.state_files import check_state
from penstock.runtime.spark.hydration.backfill import backfill
from penstock.runtime.spark.hydration.catch_up import check_past
from penstock.runtime.spark.input.dataframes import write_frame
from penstock.runtime.spark.output.recorded_sink import opened_sinks
from penstock.runtime.spark.output.refused_rows import keep_refused
from penstock.runtime.spark.output.result_parts import ResultParts, check_results
from penstock.runtime.spark.output.totals import forget_totals
from penstock.runtime.spark.output.undelivered import UndeliveredAnswers
from penstock.runtime.spark.output.withheld import WithheldAnswers
from penstock.runtime.spark.retention.rejected_log import judged_streams
from penstock.runtime.spark.startup.session import shard_keys
from penstock.runtime.spark.work import Work
from penstock.runtime.spark.worker.job_files import forget_jobs, write_job
from penstock.storage import storage
from penstock.storage.names import file_name
from penstock.storage.seals import checksum, damaged

#: Bytes that results may take at least, where no limit is set.
_LEAST_RESULTS = 4 * 2**30


@dataclass(frozen=True)
class PreparedStart:
    """A start whose sinks are open and whose job is written to the checkpoint. work: what was admitted of a request."""

    work: Work
    decision: Decision
    sinks: Mapping[str, Sink]
    job: Job
    digest: str


def begin(work: Work, folder: Folder, overwrite: bool, parallelism: Callable[[], int]) -> PreparedStart:
    """Carry out a start up to Spark's part. parallelism: returns the number of tasks that may run in parallel;
    called after all checks.
    """
    work = admitted(work, folder, latest_epoch(folder))
    request = start_request(work, folder)
    decision = decide(request, folder)
    check_state(folder, decision.before)
    if decision.kind is StartKind.CHANGED:
        check_past(folder, decision.epoch, decision.plan)
    check_sources(work)
    remove_interrupted_start(folder, decision, folder.root.parent)
    # Sinks recognize by its name what the run has written already, so it is recorded before anything is written.
    folder.begin_run()
    ResultLog.start(folder.results)
    ResultLog.start(folder.emitted)
    sinks = opened_sinks(work.queries, folder, work.standing)
    with closed_on_failure(sinks):
        check_results(ResultParts(folder), sinks, decision.kept_sinks, work.accept_missing)
        open_results(folder, sinks, decision, overwrite, work)
        write_seeds(folder, decision)
        tasks = parallelism()
        decision = settled(work, request, decision, folder, tasks)
        job, digest = prepare(work, request, decision, folder, tasks)
        backfill(folder, job, decision.epoch, sinks)
        UndeliveredAnswers(folder).keep_only(decision.epoch.paused)
        WithheldAnswers(folder).keep_only(decision.epoch)
    keep_results(folder, decision.epoch)
    return PreparedStart(work, decision, sinks, job, digest)


def write_seeds(folder: Folder, decision: Decision) -> None:
    """Write what is withheld of results that continue. It counts from the epoch's file on."""
    for name, seed in decision.seeds.items():
        WithheldAnswers(folder).seed(name, decision.epoch.base, seed)


def admitted(work: Work, folder: Folder, before: Epoch | None) -> Work:
    """Return `work` without the queries that have failed in the round delivered last, or earlier, unless a start is
    given for them. before: the latest epoch.
    """
    failed = set(pending_failures(folder, before))
    if before is not None and work.pause_failed:
        failed |= {name for name, record in before.paused.items() if record.failure is not None}
    lost = sorted(failed & work.moved.keys())
    if lost:
        message = f"query {lost[0]} has failed, and cannot be exchanged"
        raise PenstockError("P0701", message, hint="RESUME it first")
    out = [q.name for q in work.queries if q.name in failed and q.name not in work.starts] if failed else []
    return work.without(out) if out else work


def open_results(folder: Folder, sinks: Mapping[str, Sink], decision: Decision, overwrite: bool, work: Work) -> None:
    """Open sinks for the run in `folder`: those that `decision` keeps continue their results, after what they did not
    take before they were paused. Raises PenstockError P0501, P0502.

    Args:
        overwrite: results that exist may be replaced, as those of the queries that `work` resets.
    """
    limit = work.settings.get_int("results_max_bytes") or _results_share(folder)
    for name, sink in sinks.items():
        sink.run = folder.run
        record = decision.epoch.queries[name]
        sink.own_place = ResultPlace(folder.results, record.id, limit, record.whole)
        keep_refused(sink, DeadLetters(folder.dead_letters))
        sink.open(name in decision.kept_sinks, overwrite or name in work.reset)
    UndeliveredAnswers(folder).deliver(sinks, decision.resumed)


def _results_share(folder: Folder) -> int:
    """Return the bytes that results may take where no limit is set."""
    there = next(place for place in folder.root.absolute().parents if place.exists())
    return max(_LEAST_RESULTS, shutil.disk_usage(there).free // 10)


def keep_results(folder: Folder, epoch: Epoch) -> None:
    """Let the records of results go that belong to no query of `epoch`, once their rows are gone."""
    ids = frozenset(map(attrgetter("id"), chain(epoch.queries.values(), epoch.paused.values())))
    for place in (folder.results, folder.emitted):
        ResultLog.keep(place, ids)


@contextmanager
def closed_on_failure(sinks: Mapping[str, Sink]) -> Iterator[None]:
    """Close all sinks if a start or a change fails."""
    try:
        yield
    except BaseException:
        for sink in sinks.values():
            sink.close()
        raise


@contextmanager
def withdrawn_on_failure(sinks: Iterable[Sink]) -> Iterator[None]:
    """Withdraw what new queries have answered of the past if the change fails with which they begin, so that the
    command can be tried again. sinks: opened as new ones; until then what lies there is not theirs."""
    try:
        yield
    except BaseException:
        for sink in sinks:
            try:
                sink.withdraw()
            except Exception as failure:
                # What made the change fail may be that nothing can be written; it is what the command is answered with.
                log_internal(failure, f"what query {sink.query.name} has answered of the past stays in {sink.place}")
        raise


def check_sources(work: Work) -> None:
    """Raises PenstockError P0401, P0402, P0404 for a source that is missing or differs from its declaration."""
    for source in work.sources.values():
        if source.connector not in ("MEMORY", "DATAFRAME"):
            open_source(source).check()


def remove_interrupted_start(folder: Folder, decision: Decision, checkpoint: Path | None) -> None:
    """At the first start of a run, remove what an interrupted start left: no batch has reached the sinks. checkpoint:
    the folder with Spark's logs; None where it belongs to the user.
    """
    if decision.kind is StartKind.FIRST:
        forget_all(folder, checkpoint)


def settled(work: Work, request: StartRequest, decision: Decision, folder: Folder, parallelism: int) -> Decision:
    """Return `decision` with the number of shards that it leaves open, and report which state the queries will keep.

    Args:
        parallelism: number of tasks that may run in parallel.
    """
    forget_jobs(folder)
    epoch = decision.epoch
    if decision.kind is not StartKind.SAME or work.live:
        state = state_of_parts(request.cache.parts_of({record.birth for record in epoch.queries.values()}))
        # How long operators take to fill, by the numbers that they have in this process.
        folder.write_mark("horizons", dict(state.horizons))
        warn_of_unbounded(state, epoch.queries if decision.kind is not StartKind.SAME else ())
    if decision.kind is not StartKind.FIRST:
        return decision
    return replace(decision, epoch=replace(epoch, shards=request.shards or parallelism))


def state_of_parts(parts: Iterable[RecordedPart]) -> JobState:
    """Return the state that some parts of a plan will keep."""
    states = [part.state for part in parts]
    horizons = {name: seconds for state in states for name, seconds in state.horizons.items()}
    return JobState(horizons, {query: bound for state in states for query, bound in state.unbounded.items()})


def warn_of_unbounded(state: JobState, queries: Collection[str]) -> None:
    """Warn of every query among `queries` with unbounded state."""
    for query, bound in state.unbounded.items():
        if query not in queries:
            continue
        hint = f"; {bound.hint}" if bound.hint else ""
        message = f"the state of {query} is unbounded: it keeps {bound.by}{hint}"
        log_event(LOG, logging.WARNING, "unbounded", message, query=query, by=bound.by)


def start_request(work: Work, folder: Folder) -> StartRequest:
    """Return the start request of `work` for a checkpoint in `folder`."""
    spool_paths = {
        name: (source, str(_spool_path(work, source, folder.root))) for name, source in sources_to_spool(work)
    }
    spooled_sources = {
        name: replace(source, options=(("spool", path),)) for name, (source, path) in spool_paths.items()
    }
    queries = work.queries
    if spooled_sources:
        queries = tuple(_over_spooled(query, spooled_sources) for query in queries)
    # A static relation is read once, before the rounds.
    standing = [name for name, source in work.sources.items() if name in work.declared and not source.is_static]
    return StartRequest(
        queries,
        work.sources,
        work.digests,
        known_statistics(work.sources, work.rows, work.frames, work.settings["statistics"]),
        work.strategy,
        work.drain,
        str(work.settings["state_store"]),
        frozenset(work.streaming),
        work.settings.get_int("shards"),
        work.all_starts,
        tuple(spooled_sources.get(name, work.sources[name]) for name in standing),
        work.command,
        work.outcomes,
        work.paused,
        work.reset,
        work.silent,
        work.moved,
        work.contents,
        live=work.live,
        cache=work.cache,
    )


def _over_spooled(query: Query, spooled_sources: Mapping[str, Source]) -> Query:
    """Return `query` over the sources whose rows lie beside the checkpoint; itself where it reads none of them."""
    if declared_sources(query.root).keys().isdisjoint(spooled_sources):
        return query
    return replace(query, root=over_sources(query.root, spooled_sources))


def prepare(work: Work, request: StartRequest, decision: Decision, folder: Folder, parallelism: int) -> tuple[Job, str]:
    """Write everything that workers need to `folder`; return the job and the digest by which they verify it. How much a
    round reads may change between starts; its meaning may not.

    Args:
        parallelism: number of tasks that may run in parallel.
    """
    epoch, plan = decision.epoch, decision.plan
    for _, source in sources_to_spool(work):
        write_spool(work, source, folder)
    missing_statics = {name: static for name, static in plan.statics.items() if name not in folder.tables()}
    statics, counts_by_source = read_statics(replace(plan, statics=missing_statics), folder.dead_letters)
    for name, counts in counts_by_source.items():
        seen = Seen(rows=counts.rows, malformed=counts.malformed, passed=counts.passed)
        folder.write_seen(STATICS, 0, [(name, seen)])
    folder.write_tables(statics)
    streaming = work.streaming
    read_by_penstock = tuple(source for name, source in plan.sources.items() if name not in streaming)
    frames = {name: source for name, source in plan.sources.items() if name in streaming}
    if decision.parts:
        peers = peers_in(frozenset().union(*(part.read_together for part in decision.parts)))
    else:
        peers = peers_of(q.root for q in plan.queries.values())
    rate_control = RateControl.of(work.settings, len(work.queries), work.latency_target)
    unread = frozenset(source.name for source in read_by_penstock if source.name not in peers)
    intake = Intake(
        read_by_penstock,
        frozenset(streaming),
        parallelism,
        frames,
        peers,
        epoch.births,
        rate_control,
        unread,
        {source.name: work.heartbeats[source.name] for source in read_by_penstock if source.name in work.heartbeats},
        judged_streams(read_by_penstock, plan.queries.values()),
    )
    keys = tuple(shard_keys(epoch.shards))
    cache = work.settings.get_int("state_cache_bytes")
    job = Job(
        plan,
        epoch.shards,
        keys,
        work.drain,
        intake,
        epoch.state_store,
        cache,
        epoch.number,
        epoch.base,
        work.standing,
        work.pause_failed and work.live and epoch.state_store == "files",
        (epoch.past or epoch.number) if epoch.backfill else 0,
        ResultLimits.of(work.settings["result_limit"], free_bytes(folder.root), work.result_limits),
        float(work.settings["function_timeout"]) or None,
        work.settings.get_int("punctuations"),
    )
    # Written before the epoch, from which on the change has happened.
    digest = write_job(folder, job)
    if decision.kind is StartKind.CHANGED:
        forget_counts(folder, decision)
    if decision.kind is not StartKind.SAME or epoch != decision.before:
        write_epoch(folder, epoch)
    return job, digest


def forget_counts(folder: Folder, decision: Decision) -> None:
    """Reset the totals of queries and sources that begin now; a round in progress is repeated."""
    kept_sources = {name for name, source in decision.epoch.sources.items() if source.birth < decision.epoch.number}
    forget_totals(folder, {*decision.fresh, *decision.gone} - decision.resumed, kept_sources)
    offset = decision.epoch.offset
    if offset is not None and offset.before is not None:
        folder.forget_seen(round_name(offset.round))


def sources_to_spool(work: Work) -> list[tuple[str, Source]]:
    streaming = work.streaming
    return [(n, s) for n, s in work.sources.items() if s.connector in ("MEMORY", "DATAFRAME") and n not in streaming]


def _spool_path(work: Work, source: Source, root: Path) -> Path:
    """Return where the rows of a source are kept beside the checkpoint; different rows have different names."""
    if isinstance(work.frames.get(source.name), DataFrame):
        return root / "spool" / file_name(source.name)
    digest = work.digests.get(source.name)
    name = file_name(source.name)
    return root / "spool" / (f"{name}-{digest}.arrow" if digest else f"{name}.arrow")


def write_spool(work: Work, source: Source, folder: Folder) -> None:
    """Write the rows of a source to files beside the checkpoint that every worker can read."""
    path = _spool_path(work, source, folder.root)
    if storage().exists(path) and _is_spooled(folder, path):
        return
    frame = work.frames.get(source.name)
    try:
        storage().make_folder(path.parent)
        if isinstance(frame, DataFrame):
            timestamp = None if source.timestamp is None else source.columns[source.timestamp].name
            write_frame(frame, str(path), timestamp)
        else:
            rows = frame if isinstance(frame, pa.Table) else list(work.rows.get(source.name.lower(), ()))
            spool(source, rows, str(path))
        folder.write_sealed(_spool_mark(path), str(checksum(path)))
    except OSError as error:
        raise unwritable(path, error) from error


def _spool_mark(path: Path) -> Path:
    """Return the file with the checksum of the spooled rows; it is written last."""
    return path.with_name(f".{path.name}.crc")


def _is_spooled(folder: Folder, path: Path) -> bool:
    """Return whether spooled rows are complete; an interrupted start leaves them without a mark. Raises PenstockError
    P0605 for those that have changed.
    """
    mark = _spool_mark(path)
    if not storage().exists(mark):
        return False
    try:
        if int(folder.read_sealed(mark)) != checksum(path):
            raise ValueError("its content does not match its checksum")
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error
    return True
