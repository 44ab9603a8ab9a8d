"""Start a run from bound queries: decide what the start means for its checkpoint, reject what cannot start, write what
workers need, start.

The order matters for a crash at any point: what cannot start is rejected first, then results that exist; the epoch is
written last, and only a run with an epoch resumes (`restart_decision.py`, `epochs.py`). A result without rows, left by
an earlier start, does not prevent the next start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.algebra.nodes.scans import Source, over_sources
from penstock.algebra.optimizer.statistics import known_statistics
from penstock.connectors.contract import Sink
from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.sinks import open_sink
from penstock.connectors.sources import open_source
from penstock.connectors.sources.memory import spool
from penstock.errors import PenstockError
from penstock.events import log_event
from penstock.physical.execution.progress import timed_sources
from penstock.physical.execution.wall_clock import peers_of
from penstock.physical.planning.planner import planned
from penstock.physical.planning.state_size.summary import JobState, job_state
from penstock.runtime.local.statics import read_statics
from penstock.runtime.spark.assembly import answers_only, assemble
from penstock.runtime.spark.catching_up.catch_up import check_past
from penstock.runtime.spark.checkpoint.backfill import backfill
from penstock.runtime.spark.checkpoint.checkpoint_lock import CheckpointLock, claim
from penstock.runtime.spark.checkpoint.epochs import forget_all, latest_epoch, write_epoch
from penstock.runtime.spark.checkpoint.folder import (
    RUN,
    STATICS,
    Folder,
    Intake,
    Job,
    Seen,
    round_name,
    unwritable,
)
from penstock.runtime.spark.checkpoint.place import check_place
from penstock.runtime.spark.checkpoint.restart_decision import (
    Decision,
    StartKind,
    StartRequest,
    decide,
    other_script,
)
from penstock.runtime.spark.checkpoint.state_files import check_state
from penstock.runtime.spark.checkpoint.totals import forget_totals
from penstock.runtime.spark.input.dataframes import spark_schema, write_frame
from penstock.runtime.spark.input.rate_control import RateControl
from penstock.runtime.spark.job import SparkRun
from penstock.runtime.spark.output.rejections import keep_refused
from penstock.runtime.spark.output.result_parts import ResultParts, check_results
from penstock.runtime.spark.startup.session import shard_keys
from penstock.runtime.spark.work import Work
from penstock.runtime.watching.reporting import LOG, ReportOptions
from penstock.storage import storage
from penstock.storage.local import TEMPORARY
from penstock.storage.names import file_name
from penstock.storage.seals import checksum, damaged
from penstock.temporary import discard, temporary_folder

#: Every folder of a run has one of these, including those of earlier versions.
_RUN_FILES = frozenset({RUN, "epochs", "identity.json"})


def launch(work: Work, checkpoint: str | None, overwrite: bool) -> SparkRun:
    """Start `work` as one job.

    Args:
        checkpoint: a folder to resume from; without one the run is ephemeral.

    Raises:
        PenstockError: P0401, P0402, P0404, P0501, P0503, P0602, P0603, P0605 to P0609 for what cannot start.
    """
    if checkpoint is None:
        folder = temporary_folder()
        try:
            return _launch(work, folder, overwrite, None)
        except BaseException:
            discard(folder)
            raise
    folder = Path(checkpoint).absolute()
    _check_is_checkpoint(folder)
    lock = claim(folder)
    try:
        return _launch(work, folder, overwrite, lock)
    except BaseException:
        lock.release()
        raise


#: Files ignored in a folder that becomes a checkpoint: left by an interrupted start, or by the system.
_IGNORED = frozenset({".in-use", "lost+found", "spark.log"})


def _check_is_checkpoint(folder: Path) -> None:
    """Raises PenstockError P0608 for what is no folder, and for a folder that holds something else: a start removes
    what it takes for its own."""
    check_place(folder)
    names = set(storage().list(folder)) - _IGNORED
    if names and not ("penstock" in names and _is_run_folder(storage().list(folder / "penstock"))):
        raise _no_checkpoint(folder, names)


def _is_run_folder(names: Collection[str]) -> bool:
    """Return whether a folder with these names is that of a run, or may become one."""
    return any(name in _RUN_FILES for name in names) or all(
        name.startswith(TEMPORARY[0]) and name.endswith(TEMPORARY[1]) for name in names
    )


def _no_checkpoint(folder: Path, names: Collection[str]) -> PenstockError:
    return PenstockError(
        "P0608",
        f"{folder} is not empty and no checkpoint: it holds {min(names)}",
        hint="give a folder of its own as --checkpoint, which need not exist",
    )


@dataclass(frozen=True)
class PreparedStart:
    """A start whose sinks are open and whose job is written to the checkpoint."""

    decision: Decision
    sinks: Mapping[str, Sink]
    job: Job
    digest: str


def begin(work: Work, folder: Folder, overwrite: bool, parallelism: Callable[[], int]) -> PreparedStart:
    """Carry out a start up to Spark's part. parallelism: returns the number of tasks that may run in parallel;
    called after all checks.
    """
    request = start_request(work, folder)
    decision = decide(request, folder)
    check_state(folder, decision.before)
    if decision.kind is StartKind.CHANGED:
        check_past(folder, decision.epoch, decision.plan)
    check_sources(work)
    _remove_interrupted_start(folder, decision, folder.root.parent)
    # Sinks recognize by its name what the run has written already, so it is recorded before anything is written.
    folder.begin_run()
    sinks = {query.name: open_sink(query) for query in work.queries}
    with closed_on_failure(sinks):
        check_results(ResultParts(folder), sinks, decision.kept_sinks, work.accept_missing)
        open_results(folder, sinks, decision, overwrite)
        job, digest = prepare(work, request, decision, folder, parallelism())
        backfill(folder, job, decision.epoch, sinks)
    return PreparedStart(decision, sinks, job, digest)


def open_results(folder: Folder, sinks: Mapping[str, Sink], decision: Decision, overwrite: bool) -> None:
    """Open sinks for the run in `folder`: those that `decision` keeps continue their results. Raises PenstockError
    P0501, P0502.
    """
    for name, sink in sinks.items():
        sink.run = folder.run
        keep_refused(sink, DeadLetters(folder.dead_letters))
        sink.open(name in decision.kept_sinks, overwrite)


@contextmanager
def closed_on_failure(sinks: Mapping[str, Sink]) -> Iterator[None]:
    """Close all sinks if the start fails."""
    try:
        yield
    except BaseException:
        for sink in sinks.values():
            sink.close()
        raise


def _launch(work: Work, checkpoint: Path, overwrite: bool, lock: CheckpointLock | None) -> SparkRun:
    folder = Folder(checkpoint / "penstock")
    start = begin(work, folder, overwrite, lambda: work.spark().sparkContext.defaultParallelism)
    with closed_on_failure(start.sinks):
        report_options = ReportOptions.of(work.settings, folder.read_mark("horizons"))
        return SparkRun(
            work.spark(), checkpoint, start.decision.epoch, start.job, start.digest, start.sinks, work.streaming,
            lock, report_options, start.decision.notices, work.live,
        )  # fmt: skip


def check_sources(work: Work) -> None:
    """Raises PenstockError P0401, P0402, P0404 for a source that is missing or differs from its declaration."""
    for source in work.sources.values():
        if source.connector not in ("MEMORY", "DATAFRAME"):
            open_source(source).check()


def _remove_interrupted_start(folder: Folder, decision: Decision, checkpoint: Path | None) -> None:
    """At the first start of a run, remove what an interrupted start left: no batch has reached the sinks. checkpoint:
    the folder with Spark's logs; None where it belongs to the user.
    """
    if decision.kind is StartKind.FIRST:
        forget_all(folder, checkpoint)


def _report_state_bounds(folder: Folder, state: JobState) -> None:
    """Warn of every query with unbounded state, and record how long the others take to fill."""
    for query, bound in state.unbounded.items():
        hint = f"; {bound.hint}" if bound.hint else ""
        message = f"the state of {query} is unbounded: it keeps {bound.by}{hint}"
        log_event(LOG, logging.WARNING, "unbounded", message, query=query, by=bound.by)
    folder.write_mark("horizons", dict(state.horizons))


def answer_frame(work: Work, path: Path) -> DataFrame:
    """Return the answer of the one query of `work` as a streaming DataFrame. path: the folder that its
    workers share.
    """
    (query,) = work.queries
    folder = Folder(path.absolute())
    if not _is_run_folder(names := storage().list(path)):
        raise _no_checkpoint(path, names)
    spark = work.spark()
    request = replace(start_request(work, folder), state_store="spark")
    decision = decide(request, folder)
    if decision.kind is not StartKind.SAME and latest_epoch(folder) is not None:
        raise other_script(folder, "the checkpoint is the sink's, and fits one plan only")
    check_sources(work)
    _remove_interrupted_start(folder, decision, None)
    folder.begin_run()
    job, digest = prepare(work, request, decision, folder, spark.sparkContext.defaultParallelism)
    packets = assemble(spark, folder, job, digest, work.streaming)
    return answers_only(packets, folder, digest, query.name, spark_schema(query.output_schema))


def start_request(work: Work, folder: Folder) -> StartRequest:
    """Return the start request of `work` for a checkpoint in `folder`."""
    spool_paths = {
        name: (source, str(_spool_path(work, source, folder.root))) for name, source in sources_to_spool(work)
    }
    spooled_sources = {
        name: replace(source, options=(("spool", path),)) for name, (source, path) in spool_paths.items()
    }
    queries = tuple(replace(q, root=over_sources(q.root, spooled_sources)) for q in work.queries)
    return StartRequest(
        queries, work.sources, work.digests,
        known_statistics(work.sources, work.rows, work.frames, work.settings["statistics"]), work.strategy, work.drain,
        str(work.settings["state_store"]), frozenset(work.streaming), work.settings.get_int("shards"), work.all_starts,
        tuple(spooled_sources.get(name, s) for name, s in work.sources.items() if name in work.declared), work.command,
        work.outcomes,
    )  # fmt: skip


def prepare(work: Work, request: StartRequest, decision: Decision, folder: Folder, parallelism: int) -> tuple[Job, str]:
    """Write everything that workers need to `folder`; return the job and the digest by which they verify it. How much a
    round reads may change between starts; its meaning may not.

    Args:
        parallelism: number of tasks that may run in parallel.
    """
    epoch, plan = decision.epoch, decision.plan
    if decision.kind is StartKind.FIRST:
        epoch = replace(epoch, shards=request.shards or parallelism)
    if decision.kind is not StartKind.SAME:
        planning = request.strategy.planning(request.statistics)
        optimized = [request.optimized(query, planning) for query in request.queries]
        _report_state_bounds(
            folder, job_state(*planned(optimized, request.statistics, request.strategy), request.statistics)
        )
    for _, source in sources_to_spool(work):
        write_spool(work, source, folder)
    missing_statics = {name: static for name, static in plan.statics.items() if name not in folder.tables()}
    statics, counts_by_source = read_statics(replace(plan, statics=missing_statics), folder.dead_letters)
    for name, counts in counts_by_source.items():
        seen = Seen(rows=counts.rows, malformed=counts.malformed, passed=counts.passed)
        folder.write_seen(STATICS, name, 0, seen)
    folder.write_tables(statics)
    streaming = work.streaming
    read_by_penstock = tuple(source for name, source in plan.sources.items() if name not in streaming)
    frames = {name: source for name, source in plan.sources.items() if name in streaming}
    peers = peers_of(q.root for q in plan.queries.values())
    rate_control = RateControl.of(work.settings, len(work.queries))
    scanned = {name for query in plan.queries.values() for name in timed_sources(query.root)}
    unread = frozenset(source.name for source in read_by_penstock if source.name not in scanned)
    intake = Intake(
        read_by_penstock, frozenset(streaming), parallelism, frames, peers, epoch.births, rate_control, unread
    )
    keys = tuple(shard_keys(epoch.shards))
    cache = work.settings.get_int("state_cache_bytes")
    job = Job(
        plan, epoch.shards, keys, work.drain, intake, epoch.state_store, cache, epoch.number, epoch.base, epoch.log,
        epoch.log_base, work.standing,
    )  # fmt: skip
    # Written before the epoch, from which on the change has happened.
    digest = folder.write_job(job)
    if decision.kind is StartKind.CHANGED:
        forget_counts(folder, decision)
    if decision.kind is not StartKind.SAME or epoch != decision.before:
        write_epoch(folder, epoch)
    return job, digest


def forget_counts(folder: Folder, decision: Decision) -> None:
    """Reset the totals of queries and sources that begin now; a round in progress is repeated."""
    kept_sources = {name for name, source in decision.epoch.sources.items() if source.birth < decision.epoch.number}
    forget_totals(folder, {*decision.fresh, *decision.gone}, kept_sources)
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
