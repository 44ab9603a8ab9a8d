"""A job on Spark: assembles the streaming query, delivers its answers, detects its end.

source -> ingest -> stage 1 -> ... -> deliver. One streaming query answers all queries of a script: each source is read
once, answers travel as tagged packets and are separated at the sinks.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import Sink
from penstock.connectors.deadletters import DeadLetters
from penstock.errors import PenstockError
from penstock.events import log_event
from penstock.physical.execution.answers import answer_tables
from penstock.physical.operators import Rejection
from penstock.runtime.spark.checkpoint.checkpoint_lock import CheckpointLock
from penstock.runtime.spark.checkpoint.epochs import check_log, forget_older, mend_log, spark_place, sync_log
from penstock.runtime.spark.checkpoint.folder import Finish, Folder, Job, load_job
from penstock.runtime.spark.checkpoint.state_files import sweep
from penstock.runtime.spark.checkpoint.totals import RunTotals
from penstock.runtime.spark.input import source_log
from penstock.runtime.spark.input.data_source import PenstockSource
from penstock.runtime.spark.input.offset import Offset
from penstock.runtime.spark.input.round_log import RoundLog
from penstock.runtime.spark.output.answer_writer import PendingAnswer, read_answers
from penstock.runtime.spark.output.delivery import deliver_answers
from penstock.runtime.spark.output.failures import translate
from penstock.runtime.spark.output.rejections import write_rejections
from penstock.runtime.spark.output.result_parts import ResultParts
from penstock.runtime.spark.startup.jvm import spark_log
from penstock.runtime.spark.startup.session import is_gone, job_session, stop_at_end
from penstock.runtime.spark.worker.packets import (
    SPARK_SCHEMA,
    AnswerOf,
    Signal,
    read_heartbeats,
    read_kind,
    read_rejected,
)
from penstock.runtime.spark.worker.processor import KeyedStage
from penstock.runtime.spark.worker.spill_files import forget, forget_all
from penstock.runtime.spark.worker.tasks import batch_number, ingest_frame, ingest_pieces, keyed_stage, task_number
from penstock.runtime.watching.metrics import RunMetrics
from penstock.runtime.watching.progress import RunProgress
from penstock.runtime.watching.recorder import Backlog, Recorder, Totals
from penstock.runtime.watching.reporting import LOG, Reporter, ReportOptions
from penstock.storage import storage
from penstock.temporary import release

#: Batches between two shortenings of Spark's log of files.
_SHORTEN_EVERY = 100
#: Seconds for which closing a run waits for a delivery in progress.
_LAST_DELIVERY = 10.0
_Answer = TypeVar("_Answer")
_FILE_SCHEMA = "path string, modificationTime timestamp, length long, content binary"


def assemble(
    spark: SparkSession, folder: Folder, job: Job, digest: str, frames: Mapping[str, DataFrame],
    rounds: Path | None = None,
) -> DataFrame:  # fmt: skip
    """Return the streaming DataFrame of packets that leave the last stage.

    Args:
        frames: the DataFrame sources by name.
        rounds: the folder in which the run's rounds appear as files; None lets Penstock's data source plan them, for a
            result whose queries and checkpoint are the user's.
    """
    session = job_session(spark, job.shards)
    root = str(folder.root)
    if rounds is None:
        session.dataSource.register(PenstockSource)
        packets = session.readStream.format("penstock").option("folder", root).option("job", digest).load()
    else:
        files = session.readStream.format("binaryFile").schema(_FILE_SCHEMA).option("maxFileAge", source_log.MOST_AGE)
        pieces = files.load(f"{rounds}/*")
        packets = pieces.select("path", "content").mapInArrow(ingest_pieces(root, digest), SPARK_SCHEMA)
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
    """Return the rows of one query's answer, as a DataFrame for any Spark sink."""
    root = str(folder.root)

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job, _ = load_job(root, digest)
        answered = job.plan.queries[query]
        rejected: list[Rejection] = []
        for batch in batches:
            parts: list[PendingAnswer] = []
            for text, blob in zip(batch.column("kind").to_pylist(), batch.column("blob"), strict=True):
                kind = read_kind(text)
                if kind is Signal.REJECTED:
                    rejected += read_rejected(blob.as_py())
                elif kind == AnswerOf(query):
                    parts += read_answers(blob.as_buffer())
            for table in answer_tables(answered, parts) if parts else ():
                yield from table.to_batches()
        letters = DeadLetters(Folder(root).dead_letters)
        write_rejections(rejected, job.plan.sources, letters, batch_number(), task_number())

    return packets.mapInArrow(unpack, schema)


class SparkRun:
    """A started job. Sinks are opened by the caller.

    Args:
        offset: the offset at which the epoch of the job begins.
        claimed: the lock of the checkpoint, released at the end; None for a checkpoint that is removed with the run.
        report_options: options of the reports.
    """

    def __init__(
        self, spark: SparkSession, checkpoint: Path, job: Job, digest: str, offset: Offset | None,
        sinks: Mapping[str, Sink], frames: Mapping[str, DataFrame], claimed: CheckpointLock | None,
        report_options: ReportOptions,
        notices: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._folder = Folder(checkpoint / "penstock")
        self._checkpoint = checkpoint
        self._job = job
        self._sinks = sinks
        self._claimed = claimed
        #: Messages for the user about a script that differs from the checkpoint's.
        self.notices = notices
        self._epochs_behind = job.epoch > 0
        self._accounts = RunTotals(self._folder)
        self._parts = ResultParts(self._folder)
        self._rounds: RoundLog | None = None
        self._ended_in: int | None = None
        self._failure: PenstockError | None = None
        self._began = time.monotonic()
        self._seconds = 0.0
        self._closed = False
        self._delivering = threading.Lock()
        self._letters = self._folder.dead_letters
        recorder = Recorder(job.plan, _all_sources(job))
        counted = self._counted()
        recorder.resumed(counted)
        self._done = time.monotonic()
        self._reporter = Reporter(recorder, report_options, self.metrics, before=recorder.metrics(counted))
        resumed = self._accounts.batches > 0
        self._tell("resume" if resumed else "start", "the run goes on" if resumed else "the run starts")
        self._query: StreamingQuery | None = None
        if claimed is not None:
            claimed.over = lambda: not self.active
        finished = self._folder.finished()
        if finished is not None and finished.epoch == job.epoch:
            return
        try:
            self._query = self._started(spark, digest, offset, frames)
            stop_at_end(self)
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
        storage().make_folder(self._log)
        if self._in_files:
            mend_log(self._folder, self._log, self._job.base)
            check_log(self._folder, self._log, self._job.base)
        self._rounds = RoundLog(self._folder, self._job.intake, epoch=self._job.epoch, carried=offset)
        packets = assemble(spark, self._folder, self._job, digest, frames, self._rounds.place)
        writer = packets.writeStream.foreachBatch(self._deliver).outputMode("append")
        writer = writer.option("checkpointLocation", str(self._log)).queryName(f"penstock-{self._checkpoint.name}")
        return writer.start()

    @property
    def _in_files(self) -> bool:
        """Return whether Spark's log only records which rounds have been read."""
        return self._job.state_store == "files" and not self._job.intake.spark_sources

    @property
    def _log(self) -> Path:
        """Spark's own log of this epoch."""
        return spark_place(self._checkpoint, self._job.epoch)

    # -- delivering --------------------------------------------------------------------------------------------

    def _deliver(self, packets: DataFrame, number: int) -> None:
        with self._delivering:
            self._deliver_batch(packets, number)

    def _deliver_batch(self, packets: DataFrame, number: int) -> None:
        batch = self._job.base + number
        try:
            began = time.monotonic()
            table = packets.toArrow()
            computed = time.monotonic()
            ended, round_, answers = self._write(table, batch)
            forget(str(self._folder.root), batch)
            done = time.monotonic()
            self._accounts.warn_of_jumps(self._job.plan)
            self._accounts.close_batch()
            self._seconds = time.monotonic() - self._began
            if round_ is not None and self._rounds is not None:
                began = max(self._rounds.began(round_) or began, self._done)
            self._done = done
            self._reporter.batch(batch, done - began, done - computed, self._job.intake.parallelism, self._counted())
            if round_ is not None and self._rounds is not None:
                if self._in_files:
                    sync_log(self._log, number)
                if number % _SHORTEN_EVERY == 0:
                    source_log.shorten(self._log / "sources" / "0")
                self._rounds.delivered(round_, done - began, batch, answers)
            if number > 0 and self._epochs_behind:
                self._epochs_behind = False
                forget_older(self._folder, self._checkpoint, self._job, _all_sources(self._job))
            if ended:
                self._folder.write_finished(Finish(batch, self._job.epoch))
                self._ended_in = number
        except PenstockError as error:
            self._failure = error
            raise

    def _write(self, table: pa.Table, batch: int) -> tuple[bool, int | None, int]:
        """Write every query's rows to its sink; return whether all sources have ended, the number of the round, and the
        bytes of all answers.
        """
        answers: dict[str, list[tuple[int, list[PendingAnswer]]]] = {}
        rejected: list[Rejection] = []
        ended, round_ = False, None
        shards, kinds = table.column("shard").to_pylist(), table.column("kind").to_pylist()
        for shard, text, blob in zip(shards, kinds, table.column("blob"), strict=True):
            match read_kind(text):
                case Signal.HEARTBEATS:
                    heartbeats = read_heartbeats(blob.as_py())
                    ended = heartbeats.ended
                    self._accounts.heard(heartbeats.queries, heartbeats.sources)
                case Signal.REJECTED:
                    rejected += read_rejected(blob.as_py())
                case Signal.TIMINGS:
                    self._reporter.recorder.report(json.loads(blob.as_py()))
                case Signal.ROUND:
                    round_ = int(blob.as_py())
                case AnswerOf(query):
                    answers.setdefault(query, []).append((shard, read_answers(blob.as_buffer())))
        if round_ is not None and self._rounds is not None:
            self._rounds.check_due(round_, self._log)
        counts = write_rejections(rejected, self._job.plan.sources, DeadLetters(self._letters), batch)
        # An interrupted start may have written the first batch of an epoch with other rows, or to other sinks too.
        names = self._job.plan.queries if batch == self._job.base and batch else answers
        delivered_answers = deliver_answers(self._job, self._sinks, names, answers, batch)
        self._parts.note(batch, {name: answer.rows for name, answer in delivered_answers.items()}, self._sinks)
        self._accounts.delivered(batch, {name: answer.rows for name, answer in delivered_answers.items()}, counts)
        return ended, round_, sum(answer.bytes for answer in delivered_answers.values())

    # -- what the caller sees ----------------------------------------------------------------------------------

    @property
    def error(self) -> PenstockError | None:
        """Return the error that ended the run, None without one."""
        if self._failure is None and self._rounds is not None:
            self._failure = self._rounds.failure
        if self._failure is None and self._query is not None:
            failure = self._ask(self._query.exception, None)
            if failure is not None:
                self._failure = translate(failure, self._log)
        return self._failure

    @property
    def active(self) -> bool:
        """Return whether the run is active."""
        query = self._query
        return not self._closed and query is not None and self._ask(lambda: bool(query.isActive), False)

    def _ask(self, call: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
        """Return the result of the call to Spark; `otherwise` where its JVM is gone, which has ended the run then."""
        try:
            return call()
        except (Py4JError, OSError) as failure:
            if not is_gone(failure):
                raise
            self._failure = self._failure or translate(failure, self._log)
            return otherwise

    @property
    def sinks(self) -> Mapping[str, Sink]:
        """Return the sink of each query."""
        return self._sinks

    @property
    def checkpoint(self) -> Path:
        return self._checkpoint

    @property
    def dead_letters(self) -> str:
        """Return the folder of the dead letters."""
        return self._letters

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds; return whether the run has ended. Raises the error that ended it."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._query is None or self._committed():
                self.close()
                return True
            if self._rounds is not None and self._rounds.failure is not None:
                self._failure = self._failure or self._rounds.failure
                self.stop()
                raise self._failure
            if not self.active:
                error = self.error
                self.close()
                if error is not None:
                    raise error
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.02)

    def _committed(self) -> bool:
        """Return whether the batch with which the sources ended is committed and reported by Spark too."""
        if self._ended_in is None or self._query is None:
            return False
        query = self._query
        last = self._ask(lambda: query.lastProgress, None)
        return self._failure is None and (not self.active or (last is not None and last["batchId"] >= self._ended_in))

    def end_frames(self) -> None:
        """End the DataFrame sources once everything available has been read. Raises the error of a failed run."""
        assert self._query is not None
        try:
            self._query.processAllAvailable()
        except (StreamingQueryException, Py4JError, ConnectionError) as failure:
            error = self.error or translate(failure, self._log)
            self.close()
            raise error from None
        self._folder.write_mark("end", True)

    def stop(self) -> None:
        """Stop after the work at hand; with a checkpoint the run can be resumed."""
        self._stop_query()
        self.close()

    def _stop_query(self) -> None:
        query = self._query
        if query is None or not self._ask(lambda: bool(query.isActive), False):
            return
        try:
            self._ask(query.stop, None)
        except (Py4JError, PySparkException) as failure:
            # Spark gives up on a query that it cannot interrupt in time, or that fails while it is interrupted. The run
            # ends nonetheless, and what is committed stays.
            reason = translate(failure, self._log).message
            log_event(LOG, logging.INFO, "stop_failed", f"Spark did not stop the query in order: {reason}")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._tell("stop", "the run stops" if self._failure is None else f"the run failed: {self._failure.code}")
        self._reporter.close()
        if self._rounds is not None:
            self._rounds.stop()
        self._stop_query()
        # What still reads from a Spark that has failed ends with it: the process may end next, or sinks close.
        if self._delivering.acquire(timeout=_LAST_DELIVERY):
            self._delivering.release()
        for sink in self._sinks.values():
            sink.close()
        if self._claimed is not None:
            if self._failure is not None and (logged := spark_log()):
                with suppress(OSError):
                    storage().write(self._checkpoint / "spark.log", logged)
            self._claimed.release()
        else:
            # The checkpoint of a run that cannot be resumed goes; its dead letters are the user's.
            letters = Path(self._letters)
            if letters.exists():
                kept = self._checkpoint.with_name(self._checkpoint.name + "-dead-letters")
                storage().rename(letters, kept)
                self._letters = str(kept)
            release(self._checkpoint)
            storage().remove_tree(self._checkpoint)

    def _batch_seconds(self) -> float:
        if self._query is None:
            return 0.0
        query = self._query
        nothing: list[Any] = []
        spent = (p["durationMs"].get("addBatch", 0) for p in self._ask(lambda: query.recentProgress, nothing))
        return float(sum(spent)) / 1000.0

    def metrics(self) -> RunMetrics:
        """Return the present metrics of the run."""
        return self._reporter.recorder.metrics(self._counted())

    @property
    def metrics_port(self) -> int | None:
        """Return the port of the Prometheus endpoint, None without one."""
        return self._reporter.port

    def _counted(self) -> Totals:
        limit = self._rounds.limit if self._rounds is not None else self._job.intake.pace.max_bytes
        return self._accounts.totals(*self._ahead(), limit)

    def _ahead(self) -> tuple[dict[str, Backlog], dict[str, int]]:
        """Return by source the input discovered but not read yet, and by topic the number of waiting records."""
        return ({}, {}) if self._rounds is None else (self._rounds.backlog(), self._rounds.waiting)

    def _tell(self, event: str, message: str) -> None:
        failed = self._failure is not None
        fields: dict[str, Any] = {"queries": sorted(self._job.plan.queries), "checkpoint": str(self._checkpoint)}
        if self._failure is not None:
            fields["error"] = self._failure.code
            # The caller that waits for the run gets the whole error: the log does not repeat it.
            fields["reason"] = self._failure.message
        level = logging.ERROR if failed else logging.INFO
        log_event(LOG, level, event, message, batches=self._accounts.batches, **fields)

    def progress(self) -> RunProgress:
        progress = self._accounts.progress(self._job.plan, _all_sources(self._job), self._sinks, *self._ahead())
        progress.batch_seconds = self._batch_seconds()
        seconds = self._seconds or time.monotonic() - self._began
        progress.rows_per_second = (progress.rows_in - self._accounts.rows_before) / seconds if seconds > 0 else 0.0
        return progress


def _all_sources(job: Job) -> dict[str, Source]:
    """Return the timed sources and the static relations of a job."""
    statics = {name: source for plan in job.plan.statics.values() for name, source in plan.sources.items()}
    return {**job.plan.sources, **statics}
