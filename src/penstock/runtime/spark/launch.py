"""From bound queries to a started run: check, refuse, write down what workers need, start.

The order matters for a crash at any point: a checkpoint of another script is refused first, then results that exist;
the job file is written last, and only a run that has it resumes. A result that a start left without any rows is no
obstacle to the next start.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.algebra import Algebra
from penstock.algebra.hidden import hidden
from penstock.algebra.optimizer import optimize
from penstock.algebra.query import Query
from penstock.algebra.scans import Scan, Source
from penstock.algebra.statistics import known_statistics
from penstock.connectors.sinks import open_sink
from penstock.connectors.sources import open_source
from penstock.connectors.sources.memory import spool
from penstock.errors import PenstockError
from penstock.events import tell
from penstock.physical.answers import answer_schema
from penstock.physical.planner import planned
from penstock.physical.said_of_state import JobState, job_state
from penstock.physical.strategies import Strategy
from penstock.physical.wallclock import peers_of
from penstock.redaction import redacted
from penstock.runtime.reporting import LOG, Wanted
from penstock.runtime.spark.folder import STATICS, Folder, Intake, Job, Seen
from penstock.runtime.spark.frames import spark_schema, write_frame
from penstock.runtime.spark.job import SparkRun, answers_only, assemble
from penstock.runtime.spark.pace import Pace
from penstock.runtime.spark.session import shard_keys
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

    @property
    def sources(self) -> dict[str, Source]:
        return {n.source.name: n.source for q in self.queries for n in walk(q.root) if isinstance(n, Scan)}

    @property
    def streaming(self) -> dict[str, DataFrame]:
        """The streaming DataFrames among the sources."""
        return {n: self.frames[n] for n in self.sources if getattr(self.frames.get(n), "isStreaming", False)}

    @property
    def identity(self) -> dict[str, Any]:
        """What must be the same when a checkpoint is resumed."""
        sinks = {q.name: str(replace(q.sink, options=redacted(q.sink.options))) for q in self.queries}
        queries = {q.name: [optimize(q.root).fingerprint, sinks[q.name]] for q in self.queries}
        rows = {n: repr(self.rows.get(n.lower())) for n, s in sorted(self.sources.items()) if s.connector == "MEMORY"}
        digest = hashlib.sha256(repr(rows).encode()).hexdigest()
        return {"queries": queries, "drain": self.drain, "rows": digest, "strategy": self.strategy.value}

    @property
    def strategy(self) -> Strategy:
        return Strategy.of(self.settings)


def launch(work: Work, checkpoint: str | None, overwrite: bool) -> SparkRun:
    """Start `work` as one job. checkpoint: a folder to resume from; without one the run is ephemeral. Raises
    PenstockError for what cannot start: P0401, P0402, P0404, P0501, P0602, P0603."""
    ephemeral = checkpoint is None
    place = Path(tempfile.mkdtemp(prefix="penstock-")) if checkpoint is None else Path(checkpoint).absolute()
    try:
        return _launch(work, place, overwrite, ephemeral)
    except BaseException:
        if ephemeral:
            shutil.rmtree(place, ignore_errors=True)
        raise


def _launch(work: Work, place: Path, overwrite: bool, ephemeral: bool) -> SparkRun:
    folder = Folder(place / "penstock")
    _same_script(work, folder)
    for source in work.sources.values():
        if source.connector not in ("MEMORY", "DATAFRAME"):
            open_source(source).check()
    sinks = {query.name: open_sink(query) for query in work.queries}
    run = (folder.read_mark("run") if folder.has_job else None) or uuid.uuid4().hex
    for sink in sinks.values():
        sink.run = run
        sink.open(folder.has_job, overwrite)
    folder.write_mark("run", run)
    spark = work.spark()
    job = prepare(work, folder)
    return SparkRun(
        spark, place, job, sinks, work.streaming, ephemeral, Wanted.of(work.settings, folder.read_mark("horizons"))
    )


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
    _same_script(work, folder)
    spark = work.spark()
    packets = assemble(spark, folder, prepare(work, folder), work.streaming)
    return answers_only(packets, folder, query.name, spark_schema(answer_schema(query)))


def _same_script(work: Work, folder: Folder) -> None:
    if folder.has_job and folder.read_mark("identity") != work.identity:
        raise PenstockError(
            "P0602",
            f"the checkpoint {folder.root.parent} belongs to another script, or to another version of this one",
            hint="give a new --checkpoint, or run the script that it was made with",
        )


def prepare(work: Work, folder: Folder) -> Job:
    """Everything that workers need, written to `folder`; on a restart, what was written before."""
    parallelism = work.spark().sparkContext.defaultParallelism
    pace = Pace.of(work.settings)
    if folder.has_job:
        # How much a round reads may change between starts; what it means may not.
        job = folder.read_job()
        # Secrets are not written down: the sources have them from the script again.
        own = tuple(replace(s, options=work.sources[s.name].options) if hidden(s) else s for s in job.intake.sources)
        intake = replace(job.intake, sources=own, max_batch_bytes=pace.max_bytes, parallelism=parallelism, pace=pace)
        job = replace(job, intake=intake)
        folder.write_intake(job.intake)
        return job
    streaming = work.streaming
    to_spool = {n: s for n, s in work.sources.items() if s.connector in ("MEMORY", "DATAFRAME") and n not in streaming}
    spooled = {n: _spooled(work, s, folder.root) for n, s in to_spool.items()}
    statistics = known_statistics(work.sources, work.rows, work.frames, work.settings["statistics"])
    planning = work.strategy.planning(statistics)
    ready = [replace(q, root=optimize(_with_sources(q.root, spooled), planning=planning)) for q in work.queries]
    plan, nodes = planned(ready, statistics, work.strategy)
    _foresee(folder, job_state(plan, nodes, statistics))
    statics, read = read_statics(plan, folder.dead_letters)
    for name, (rows, malformed) in read.items():
        folder.write_seen(STATICS, name, 0, Seen(rows=rows, malformed=malformed))
    shards = work.settings.get_int("shards") or parallelism
    own = tuple(source for name, source in plan.sources.items() if name not in streaming)
    frames = {name: source for name, source in plan.sources.items() if name in streaming}
    peers = peers_of(q.root for q in ready)
    intake = Intake(own, frozenset(streaming), pace.max_bytes, parallelism, frames, peers, pace)
    job = Job(plan, shards, tuple(shard_keys(shards)), work.drain, intake, str(work.settings["state_store"]))
    folder.write_mark("identity", work.identity)
    folder.write_job(job, statics)
    return job


def _spooled(work: Work, source: Source, root: Path) -> Source:
    """The same source, its rows being in files beside the checkpoint that every worker can read."""
    given = work.frames.get(source.name)
    if isinstance(given, DataFrame):
        place = root / "spool" / source.name
        write_frame(given, str(place))
    else:
        place = root / "spool" / f"{source.name}.arrow"
        rows = given if isinstance(given, pa.Table) else list(work.rows.get(source.name.lower(), ()))
        spool(source, rows, str(place))
    return replace(source, options=(("spool", str(place)),))


def _with_sources(root: Algebra, sources: Mapping[str, Source]) -> Algebra:
    def change(node: Node) -> Node:
        if isinstance(node, Scan) and node.source.name in sources:
            return replace(node, source=sources[node.source.name])
        return node

    return transform_up(root, change)
