"""From bound queries to a started run: decide what the start is to its checkpoint, refuse, write down what workers
need, start.

The order matters for a crash at any point: what cannot start is refused first, then results that exist; the epoch is
written last, and only a run that has one resumes (`change.py`, `epochs.py`). A result that a start left without any
rows is no obstacle to the next start.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.algebra import Algebra
from penstock.algebra.query import Query
from penstock.algebra.scans import Scan, Source
from penstock.algebra.statistics import known_statistics
from penstock.connectors.contract import Sink
from penstock.connectors.seals import checksum, damaged, sealed, unsealed
from penstock.connectors.sinks import open_sink
from penstock.connectors.sources import open_source
from penstock.connectors.sources.memory import spool
from penstock.events import tell
from penstock.physical.planner import planned
from penstock.physical.said_of_state import JobState, job_state
from penstock.physical.strategies import Strategy
from penstock.physical.wallclock import peers_of
from penstock.runtime.reporting import LOG, Wanted
from penstock.runtime.spark.accounts import forget_totals
from penstock.runtime.spark.backfill import backfill
from penstock.runtime.spark.change import Decision, Given, Kind, decide, other_script
from penstock.runtime.spark.claim import Claim, claim
from penstock.runtime.spark.epochs import forget_all, latest_epoch, write_epoch
from penstock.runtime.spark.folder import (
    STATICS,
    Folder,
    Intake,
    Job,
    Seen,
    round_name,
    unwritable,
    write_whole,
)
from penstock.runtime.spark.frames import spark_schema, write_frame
from penstock.runtime.spark.job import SparkRun, answers_only, assemble
from penstock.runtime.spark.pace import Pace
from penstock.runtime.spark.session import shard_keys
from penstock.runtime.spark.state_files import check_state
from penstock.runtime.statics import read_statics
from penstock.settings import Settings
from penstock.tree import Node, transform_up, walk


@dataclass(frozen=True)
class Work:
    """What is to run. rows: those of MEMORY sources, by name in lower case; frames: DataFrames and Arrow tables by
    source; spark: gives the session when it is needed."""

    queries: tuple[Query, ...]
    rows: Mapping[str, Sequence[tuple[Any, ...]]]
    frames: Mapping[str, Any]
    settings: Settings
    drain: bool
    spark: Callable[[], SparkSession]
    backfill: bool = False

    @property
    def sources(self) -> dict[str, Source]:
        return {n.source.name: n.source for q in self.queries for n in walk(q.root) if isinstance(n, Scan)}

    @property
    def streaming(self) -> dict[str, DataFrame]:
        """The streaming DataFrames among the sources."""
        return {n: self.frames[n] for n in self.sources if getattr(self.frames.get(n), "isStreaming", False)}

    @property
    def digests(self) -> dict[str, str]:
        """By MEMORY source, what tells its rows apart from others."""
        memory = [name for name, source in self.sources.items() if source.connector == "MEMORY"]
        texts = {name: repr(self.rows.get(name.lower())) for name in memory}
        return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}

    @property
    def strategy(self) -> Strategy:
        return Strategy.of(self.settings)


def launch(work: Work, checkpoint: str | None, overwrite: bool) -> SparkRun:
    """Start `work` as one job. checkpoint: a folder to resume from; without one the run is ephemeral. Raises
    PenstockError for what cannot start: P0401, P0402, P0404, P0501, P0602, P0603, P0605, P0606, P0607, P0609."""
    if checkpoint is None:
        place = Path(tempfile.mkdtemp(prefix="penstock-"))
        try:
            return _launch(work, place, overwrite, None)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    place = Path(checkpoint).absolute()
    claimed = claim(place)
    try:
        return _launch(work, place, overwrite, claimed)
    except BaseException:
        claimed.release()
        raise


@dataclass(frozen=True)
class Begun:
    """A start whose sinks are open and whose job is written down."""

    decision: Decision
    sinks: Mapping[str, Sink]
    job: Job
    digest: str


def begin(work: Work, folder: Folder, overwrite: bool, parallelism: Callable[[], int]) -> Begun:
    """Everything of a start but Spark's part. parallelism: tells how many tasks may run side by side, when all that may
    be refused has been looked at."""
    brought = given(work, folder)
    decision = decide(brought, folder)
    check_state(folder, decision.before)
    for source in work.sources.values():
        if source.connector not in ("MEMORY", "DATAFRAME"):
            open_source(source).check()
    _forget_what_began(folder, decision)
    # Sinks know by its name what the run has written already: it is noted before anything is.
    run = folder.read_mark("run") or uuid.uuid4().hex
    folder.write_mark("run", run)
    sinks = {query.name: open_sink(query) for query in work.queries}
    with _closed_on_failure(sinks):
        for name, sink in sinks.items():
            sink.run = run
            sink.open(name in decision.kept_sinks, overwrite)
        job, digest = prepare(work, brought, decision, folder, parallelism())
        backfill(folder, job, decision.epoch, sinks)
    return Begun(decision, sinks, job, digest)


@contextmanager
def _closed_on_failure(sinks: Mapping[str, Sink]) -> Iterator[None]:
    """A start that fails leaves no connection open."""
    try:
        yield
    except BaseException:
        for sink in sinks.values():
            sink.close()
        raise


def _launch(work: Work, place: Path, overwrite: bool, claimed: Claim | None) -> SparkRun:
    folder = Folder(place / "penstock")
    begun = begin(work, folder, overwrite, lambda: work.spark().sparkContext.defaultParallelism)
    with _closed_on_failure(begun.sinks):
        wanted = Wanted.of(work.settings, folder.read_mark("horizons"))
        return SparkRun(
            work.spark(), place, begun.job, begun.digest, begun.decision.epoch.offset, begun.sinks, work.streaming,
            claimed, wanted, begun.decision.notices,
        )  # fmt: skip


def _forget_what_began(folder: Folder, decision: Decision) -> None:
    """Where the run begins: nothing of an earlier start has come to the sinks."""
    if decision.kind is Kind.FIRST:
        forget_all(folder, folder.root.parent)


def _foresee(folder: Folder, state: JobState) -> None:
    """Say of every query whose state has no bound that it has none; note how long the others take to fill."""
    for query, bound in state.unbounded.items():
        hint = f"; {bound.hint}" if bound.hint else ""
        message = f"the state of {query} is unbounded: it keeps {bound.by}{hint}"
        tell(LOG, logging.WARNING, "unbounded", message, query=query, by=bound.by)
    folder.write_mark("horizons", dict(state.horizons))


def answer_frame(work: Work, place: Path) -> DataFrame:
    """The answer of the one query of `work` as a streaming DataFrame; `place`: the folder that its workers share."""
    (query,) = work.queries
    folder = Folder(place.absolute())
    spark = work.spark()
    brought = replace(given(work, folder), state_store="spark")
    decision = decide(brought, folder)
    if decision.kind is not Kind.SAME and latest_epoch(folder) is not None:
        raise other_script(folder, "the checkpoint is the sink's, and fits one plan only")
    _forget_what_began(folder, decision)
    job, digest = prepare(work, brought, decision, folder, spark.sparkContext.defaultParallelism)
    packets = assemble(spark, folder, job, digest, work.streaming)
    return answers_only(packets, folder, digest, query.name, spark_schema(query.output_schema))


def given(work: Work, folder: Folder) -> Given:
    """What `work` brings to a checkpoint in `folder`."""
    places = {name: (source, str(_spool_place(work, source, folder.root))) for name, source in _to_spool(work)}
    spooled = {name: replace(source, options=(("spool", place),)) for name, (source, place) in places.items()}
    queries = tuple(replace(q, root=_with_sources(q.root, spooled)) for q in work.queries)
    return Given(
        queries, work.sources, work.digests,
        known_statistics(work.sources, work.rows, work.frames, work.settings["statistics"]), work.strategy, work.drain,
        str(work.settings["state_store"]), frozenset(work.streaming), work.settings.get_int("shards"), work.backfill,
    )  # fmt: skip


def prepare(work: Work, brought: Given, decision: Decision, folder: Folder, parallelism: int) -> tuple[Job, str]:
    """Everything that workers need, written to `folder`: the job and the digest by which they know it. How much a round
    reads may change between starts; what it means may not. parallelism: how many tasks may run side by side."""
    epoch, plan = decision.epoch, decision.plan
    if decision.kind is Kind.FIRST:
        epoch = replace(epoch, shards=brought.shards or parallelism)
    if decision.kind is not Kind.SAME:
        planning = brought.strategy.planning(brought.statistics)
        ready = [brought.optimized(query, planning) for query in brought.queries]
        _foresee(folder, job_state(*planned(ready, brought.statistics, brought.strategy), brought.statistics))
    for _, source in _to_spool(work):
        _spool(work, source, folder.root)
    missing = {name: static for name, static in plan.statics.items() if name not in folder.tables()}
    statics, read = read_statics(replace(plan, statics=missing), folder.dead_letters)
    for name, counts in read.items():
        seen = Seen(rows=counts.rows, malformed=counts.malformed, passed=counts.passed)
        folder.write_seen(STATICS, name, 0, seen)
    folder.write_tables(statics)
    streaming = work.streaming
    own = tuple(source for name, source in plan.sources.items() if name not in streaming)
    frames = {name: source for name, source in plan.sources.items() if name in streaming}
    peers = peers_of(q.root for q in plan.queries.values())
    pace = Pace.of(work.settings, len(work.queries))
    intake = Intake(own, frozenset(streaming), parallelism, frames, peers, epoch.births, pace)
    keys = tuple(shard_keys(epoch.shards))
    cache = work.settings.get_int("state_cache_bytes")
    job = Job(
        plan, epoch.shards, keys, work.drain, intake, epoch.state_store, cache, epoch.number, epoch.base
    )  # fmt: skip
    if decision.kind is Kind.CHANGED:
        forget_counts(folder, decision)
    if decision.kind is not Kind.SAME:
        write_epoch(folder, epoch)
    return job, folder.write_job(job)


def forget_counts(folder: Folder, decision: Decision) -> None:
    """The totals of queries and sources that begin now count from now on; a round that was under way is done again."""
    kept = {name for name, source in decision.epoch.sources.items() if source.birth < decision.epoch.number}
    forget_totals(folder, {*decision.fresh, *decision.gone}, kept)
    offset = decision.epoch.offset
    if offset is not None and "before" in offset:
        shutil.rmtree(folder.root / "seen" / round_name(offset["round"]), ignore_errors=True)


def _to_spool(work: Work) -> list[tuple[str, Source]]:
    streaming = work.streaming
    return [(n, s) for n, s in work.sources.items() if s.connector in ("MEMORY", "DATAFRAME") and n not in streaming]


def _spool_place(work: Work, source: Source, root: Path) -> Path:
    """Where the rows of a source lie beside the checkpoint; other rows of a script lie elsewhere."""
    if isinstance(work.frames.get(source.name), DataFrame):
        return root / "spool" / source.name
    digest = work.digests.get(source.name)
    return root / "spool" / (f"{source.name}-{digest}.arrow" if digest else f"{source.name}.arrow")


def _spool(work: Work, source: Source, root: Path) -> None:
    """Have the rows of a source in files beside the checkpoint that every worker can read."""
    place = _spool_place(work, source, root)
    if place.exists() and _is_spooled(place):
        return
    frame = work.frames.get(source.name)
    try:
        if isinstance(frame, DataFrame):
            timestamp = None if source.timestamp is None else source.columns[source.timestamp].name
            write_frame(frame, str(place), timestamp)
        else:
            rows = frame if isinstance(frame, pa.Table) else list(work.rows.get(source.name.lower(), ()))
            spool(source, rows, str(place))
        write_whole(_spool_mark(place), sealed(str(checksum(place))))
    except OSError as error:
        raise unwritable(place, error) from error


def _spool_mark(place: Path) -> Path:
    """The file that tells the checksum of what was spooled; it comes last."""
    return place.with_name(f".{place.name}.crc")


def _is_spooled(place: Path) -> bool:
    """Whether rows lie there whole; a start that broke off leaves them unmarked. Raises PenstockError P0605 for those
    that are not as they were written."""
    mark = _spool_mark(place)
    if not mark.exists():
        return False
    try:
        if int(unsealed(mark.read_bytes())) != checksum(place):
            raise ValueError("it is not what was written")
    except (OSError, ValueError) as error:
        raise damaged(place, error) from error
    return True


def _with_sources(root: Algebra, sources: Mapping[str, Source]) -> Algebra:
    def change(node: Node) -> Node:
        if isinstance(node, Scan) and node.source.name in sources:
            return replace(node, source=sources[node.source.name])
        return node

    return transform_up(root, change)
