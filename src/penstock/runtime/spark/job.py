"""A job on Spark: puts the streaming query together, delivers its answers, knows when it has ended.

source -> ingest -> stage 1 -> ... -> deliver. One streaming query answers all queries of a script: each source is read
once, answers travel as tagged packets and are split at the sinks.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.algebra.scans import Source
from penstock.connectors.contract import Sink
from penstock.connectors.deadletters import DeadLetters
from penstock.errors import PenstockError
from penstock.events import tell
from penstock.physical.answers import answer_tables
from penstock.physical.operators import Rejection
from penstock.runtime.metrics import RunMetrics
from penstock.runtime.progress import RunProgress
from penstock.runtime.recorder import Backlog, Recorder, Totals
from penstock.runtime.reporting import LOG, Reporter, Wanted
from penstock.runtime.spark import source_log
from penstock.runtime.spark.accounts import Accounts
from penstock.runtime.spark.claim import Claim
from penstock.runtime.spark.epochs import check_log, forget_older, spark_place
from penstock.runtime.spark.failures import translate
from penstock.runtime.spark.feed import Offset
from penstock.runtime.spark.folder import Folder, Job, load_job
from penstock.runtime.spark.handing import hand_over
from penstock.runtime.spark.packets import REJECTED, SPARK_SCHEMA, TIMINGS, read_rejected
from penstock.runtime.spark.parcels import forget, forget_all
from penstock.runtime.spark.processor import KeyedStage
from penstock.runtime.spark.rejections import write_rejections
from penstock.runtime.spark.rounds import Rounds
from penstock.runtime.spark.session import job_session
from penstock.runtime.spark.source import PenstockSource
from penstock.runtime.spark.state_files import sweep
from penstock.runtime.spark.tasks import batch_number, ingest_frame, ingest_pieces, keyed_stage, task_number
from penstock.runtime.spark.telling import Told, told

#: Batches from one shortening of Spark's log of files to the next.
_SHORTEN_EVERY = 100
_FILE_SCHEMA = "path string, modificationTime timestamp, length long, content binary"


def assemble(
    spark: SparkSession, folder: Folder, job: Job, digest: str, frames: Mapping[str, DataFrame],
    rounds: Path | None = None,
) -> DataFrame:  # fmt: skip
    """The streaming DataFrame of packets that leave the last stage. frames: the DataFrame sources by name; rounds:
    where the run's rounds appear as files; without it a reader of our own plans them, for a result whose queries and
    checkpoint are the user's."""
    session = job_session(spark, job.shards)
    root = str(folder.root)
    if rounds is None:
        session.dataSource.register(PenstockSource)
        packets = session.readStream.format("penstock").option("folder", root).option("job", digest).load()
    else:
        files = session.readStream.format("binaryFile").schema(_FILE_SCHEMA).option("maxFileAge", source_log.MOST_AGE)
        pieces = files.load(f"{rounds}/*")
        packets = pieces.select("content").mapInArrow(ingest_pieces(root, digest), SPARK_SCHEMA)
    for name in sorted(job.intake.spark_sources):
        # One task reads a DataFrame source, so that its rows have one order of arrival.
        packets = packets.unionByName(
            frames[name].coalesce(1).mapInArrow(ingest_frame(root, digest, name), SPARK_SCHEMA)
        )
    in_files = rounds is not None and job.state_store == "files"
    for stage in range(1, job.plan.stages + 1):
        if in_files:
            shards = packets.repartition(job.shards, "shard")
            packets = shards.mapInArrow(keyed_stage(root, digest, stage), SPARK_SCHEMA)
        else:
            processor = KeyedStage(root, digest, stage)
            packets = packets.groupBy("shard").transformWithState(processor, SPARK_SCHEMA, "append", "none")
    return packets


def answers_only(packets: DataFrame, folder: Folder, digest: str, query: str, schema: Any) -> DataFrame:
    """The rows of one query's answer, as a DataFrame that any Spark sink can take."""
    root = str(folder.root)

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job, _ = load_job(root, digest)
        found = job.plan.queries[query]
        rejected: list[Rejection] = []
        for batch in batches:
            parts: list[Told] = []
            for kind, blob in zip(batch.column("kind").to_pylist(), batch.column("blob"), strict=True):
                if kind == REJECTED:
                    rejected += read_rejected(blob.as_py())
                if kind == f"answer:{query}":
                    parts += told(blob.as_buffer())
            for table in answer_tables(found, parts) if parts else ():
                yield from table.to_batches()
        letters = DeadLetters(Folder(root).dead_letters)
        write_rejections(rejected, job.plan.sources, letters, batch_number(), task_number())

    return packets.mapInArrow(unpack, schema)


class SparkRun:
    """A started job. Sinks are opened by the caller. offset: where the epoch of the job begins; claimed: the
    checkpoint, let go of at the end; None for one that goes with the run."""

    def __init__(
        self, spark: SparkSession, checkpoint: Path, job: Job, digest: str, offset: Offset | None,
        sinks: Mapping[str, Sink], frames: Mapping[str, DataFrame], claimed: Claim | None, wanted: Wanted,
        notices: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._folder = Folder(checkpoint / "penstock")
        self._checkpoint = checkpoint
        self._job = job
        self._sinks = sinks
        self._claimed = claimed
        #: What the user must know of a script that is another one than the checkpoint's.
        self.notices = notices
        self._epochs_behind = job.epoch > 0
        self._accounts = Accounts(self._folder)
        self._rounds: Rounds | None = None
        self._ended_in: int | None = None
        self._failure: PenstockError | None = None
        self._began = time.monotonic()
        self._seconds = 0.0
        self._closed = False
        self._letters = self._folder.dead_letters
        recorder = Recorder(job.plan, _all_sources(job))
        counted = self._counted()
        recorder.resumed(counted)
        self._done = time.monotonic()
        self._reporter = Reporter(recorder, wanted, self.metrics, before=recorder.metrics(counted))
        resumed = self._accounts.batches > 0
        self._tell("resume" if resumed else "start", "the run goes on" if resumed else "the run starts")
        self._query: StreamingQuery | None = None
        if claimed is not None:
            claimed.over = lambda: self._query is None or not self._query.isActive
        if (self._folder.read_mark("finished") or {}).get("epoch") == job.epoch:
            return
        try:
            self._query = self._started(spark, digest, offset, frames)
        except PenstockError as error:
            self._failure = error
            self.close()
            raise
        except Exception as failure:
            self._failure = translate(failure, self._log)
            self.close()
            raise self._failure from failure

    def _started(
        self, spark: SparkSession, digest: str, offset: Offset | None, frames: Mapping[str, DataFrame]
    ) -> StreamingQuery:
        sweep(self._folder.root)
        forget_all(str(self._folder.root))
        if self._job.state_store == "files" and not frames:
            check_log(self._folder, self._log, self._job.base)
        self._rounds = Rounds(self._folder, self._job.intake, epoch=self._job.epoch, carried=offset)
        packets = assemble(spark, self._folder, self._job, digest, frames, self._rounds.place)
        writer = packets.writeStream.foreachBatch(self._deliver).outputMode("append")
        writer = writer.option("checkpointLocation", str(self._log)).queryName(f"penstock-{self._checkpoint.name}")
        return writer.start()

    @property
    def _log(self) -> Path:
        """Spark's own."""
        return spark_place(self._checkpoint, self._job.epoch)

    # -- delivering --------------------------------------------------------------------------------------------

    def _deliver(self, packets: DataFrame, number: int) -> None:
        batch = self._job.base + number
        try:
            began = time.monotonic()
            table = packets.toArrow()
            computed = time.monotonic()
            ended, round_, answers = self._write(table, batch)
            forget(str(self._folder.root), batch)
            done = time.monotonic()
            self._accounts.close_batch()
            self._seconds = time.monotonic() - self._began
            if round_ is not None and self._rounds is not None:
                began = max(self._rounds.began(round_) or began, self._done)
            self._done = done
            self._reporter.batch(batch, done - began, done - computed, self._job.intake.parallelism, self._counted())
            if round_ is not None and self._rounds is not None:
                if number % _SHORTEN_EVERY == 0:
                    source_log.shorten(self._log / "sources" / "0")
                self._rounds.delivered(round_, done - began, batch, answers)
            if number > 0 and self._epochs_behind:
                self._epochs_behind = False
                forget_older(self._folder, self._checkpoint, self._job, _all_sources(self._job))
            if ended:
                self._folder.write_mark("finished", {"batch": batch, "epoch": self._job.epoch})
                self._ended_in = number
        except PenstockError as error:
            self._failure = error
            raise

    def _write(self, table: pa.Table, batch: int) -> tuple[bool, int | None, int]:
        """Hand every query's rows to its sink; returns whether all sources have ended, the round it was, and the bytes
        of all answers."""
        answers: dict[str, list[tuple[int, list[Told]]]] = {}
        rejected: list[Rejection] = []
        ended, round_ = False, None
        shards, kinds = table.column("shard").to_pylist(), table.column("kind").to_pylist()
        for shard, kind, blob in zip(shards, kinds, table.column("blob"), strict=True):
            if kind == "heartbeats":
                known = json.loads(blob.as_py())
                ended = known["ended"]
                self._accounts.heard(known["heartbeats"], known["sources"])
            elif kind == REJECTED:
                rejected += read_rejected(blob.as_py())
            elif kind == TIMINGS:
                self._reporter.recorder.report(json.loads(blob.as_py()))
            elif kind == "round":
                round_ = int(blob.as_py())
            else:
                answers.setdefault(kind.removeprefix("answer:"), []).append((shard, told(blob.as_buffer())))
        counts = write_rejections(rejected, self._job.plan.sources, DeadLetters(self._letters), batch)
        # A start that broke off may have written the first batch of an epoch with other rows, or with any.
        names = self._job.plan.queries if batch == self._job.base and batch else answers
        handed = hand_over(self._job, self._sinks, names, answers, batch)
        self._accounts.delivered(batch, {name: one.rows for name, one in handed.items()}, counts)
        return ended, round_, sum(one.bytes for one in handed.values())

    # -- what the caller sees ----------------------------------------------------------------------------------

    @property
    def error(self) -> PenstockError | None:
        """Why the run failed, None while it has not."""
        if self._failure is None and self._rounds is not None:
            self._failure = self._rounds.failure
        if self._failure is None and self._query is not None:
            failure = self._query.exception()
            if failure is not None:
                self._failure = translate(failure, self._log)
        return self._failure

    @property
    def checkpoint(self) -> Path:
        return self._checkpoint

    @property
    def dead_letters(self) -> str:
        """Where records kept out lie."""
        return self._letters

    def wait(self, timeout: float | None = None) -> bool:
        """Whether the run has ended, after at most `timeout` seconds. Raises what it failed of."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._query is None or self._committed():
                self.close()
                return True
            if self._rounds is not None and self._rounds.failure is not None:
                self._failure = self._failure or self._rounds.failure
                self.stop()
                raise self._failure
            if not self._query.isActive:
                error = self.error
                self.close()
                if error is not None:
                    raise error
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.02)

    def _committed(self) -> bool:
        """Whether the batch with which the sources ended is committed and reported by Spark too."""
        if self._ended_in is None or self._query is None:
            return False
        last = self._query.lastProgress
        return not self._query.isActive or (last is not None and last["batchId"] >= self._ended_in)

    def end_frames(self) -> None:
        """Say that DataFrame sources have given all they will, once everything available has been read. Raises what the
        run failed of."""
        assert self._query is not None
        try:
            self._query.processAllAvailable()
        except StreamingQueryException as failure:
            error = self.error or translate(failure, self._log)
            self.close()
            raise error from None
        self._folder.write_mark("end", True)

    def stop(self) -> None:
        """Stop after the work at hand; with a checkpoint the run can be resumed."""
        if self._query is not None and self._query.isActive:
            self._query.stop()
        self.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._tell("stop", "the run stops" if self._failure is None else f"the run failed: {self._failure.message}")
        self._reporter.close()
        if self._rounds is not None:
            self._rounds.stop()
        if self._query is not None and self._query.isActive:
            self._query.stop()
        for sink in self._sinks.values():
            sink.close()
        if self._claimed is not None:
            self._claimed.release()
        else:
            # The checkpoint of a run that cannot be resumed goes; its dead letters are the user's.
            letters = Path(self._letters)
            if letters.exists():
                kept = self._checkpoint.with_name(self._checkpoint.name + "-dead-letters")
                self._letters = str(letters.rename(kept))
            shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _batch_seconds(self) -> float:
        if self._query is None:
            return 0.0
        spent = (p["durationMs"].get("addBatch", 0) for p in self._query.recentProgress)
        return float(sum(spent)) / 1000.0

    def metrics(self) -> RunMetrics:
        """What the run has done and holds, as of now."""
        return self._reporter.recorder.metrics(self._counted())

    @property
    def metrics_port(self) -> int | None:
        """Where the Prometheus endpoint listens, None where there is none."""
        return self._reporter.port

    def _counted(self) -> Totals:
        limit = self._rounds.limit if self._rounds is not None else self._job.intake.pace.max_bytes
        return self._accounts.totals(*self._ahead(), limit)

    def _ahead(self) -> tuple[dict[str, Backlog], dict[str, int]]:
        """What has been found and not read yet by source, and how many records wait in each topic."""
        return ({}, {}) if self._rounds is None else (self._rounds.backlog(), self._rounds.waiting)

    def _tell(self, event: str, message: str) -> None:
        failed = self._failure is not None
        fields: dict[str, Any] = {"queries": sorted(self._job.plan.queries), "checkpoint": str(self._checkpoint)}
        if self._failure is not None:
            fields["error"] = self._failure.code
        level = logging.ERROR if failed else logging.INFO
        tell(LOG, level, event, message, batches=self._accounts.batches, **fields)

    def progress(self) -> RunProgress:
        found = self._accounts.progress(self._job.plan, _all_sources(self._job), self._sinks, *self._ahead())
        found.batch_seconds = self._batch_seconds()
        seconds = self._seconds or time.monotonic() - self._began
        found.rows_per_second = (found.rows_in - self._accounts.rows_before) / seconds if seconds > 0 else 0.0
        return found


def _all_sources(job: Job) -> dict[str, Source]:
    """The timed sources and the static relations of a job."""
    statics = {name: source for plan in job.plan.statics.values() for name, source in plan.sources.items()}
    return {**job.plan.sources, **statics}
