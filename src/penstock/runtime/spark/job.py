"""A job on Spark: starts the streaming query, delivers its answers, detects its end.

source -> ingest -> stage 1 -> ... -> deliver. One streaming query answers all queries of a script: each source is read
once, answers travel as tagged packets and are separated at the sinks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from penstock.connectors.contract import Sink
from penstock.connectors.deadletters import DeadLetters
from penstock.errors import PenstockError
from penstock.events import log_event
from penstock.runtime.monitoring.metrics import RunMetrics
from penstock.runtime.monitoring.progress import RunProgress
from penstock.runtime.monitoring.recorder import Backlog, Recorder, Totals
from penstock.runtime.rejected_rows import write_rejections
from penstock.runtime.reporting import LOG, Reporter, ReportOptions, log_of_run
from penstock.runtime.spark.assembly import Pipeline, assemble, round_files
from penstock.runtime.spark.changes.prefetch import Prefetch
from penstock.runtime.spark.checkpoint.checkpoint_lock import CheckpointLock
from penstock.runtime.spark.checkpoint.epochs import outstanding_before, remove_epoch_on_failure
from penstock.runtime.spark.checkpoint.folder import Finish, Folder, Job
from penstock.runtime.spark.checkpoint.offset import Offset
from penstock.runtime.spark.checkpoint.place import remove_checkpoint
from penstock.runtime.spark.checkpoint.query_failure import QueryFailure
from penstock.runtime.spark.checkpoint.spark_log import check_log, mend_log, spark_log_folder, sync_log, take_back
from penstock.runtime.spark.checkpoint.state_files import sweep
from penstock.runtime.spark.hydration.compaction import Compaction, compacting
from penstock.runtime.spark.hydration.kept_relations import KeptRelations
from penstock.runtime.spark.input import source_log
from penstock.runtime.spark.input.round_log import RoundChange, RoundLog
from penstock.runtime.spark.output.batch_logs import commit_logs
from penstock.runtime.spark.output.batch_output import read_output
from penstock.runtime.spark.output.checked_rows import record_rejected
from penstock.runtime.spark.output.delivery import SinkIsolation, by_weight, deliver_answers
from penstock.runtime.spark.output.failures import translate
from penstock.runtime.spark.output.result_parts import ResultParts
from penstock.runtime.spark.output.surplus import SurplusAnswers
from penstock.runtime.spark.output.totals import RunTotals
from penstock.runtime.spark.output.undelivered import UndeliveredAnswers
from penstock.runtime.spark.output.withheld import AnswerGate
from penstock.runtime.spark.output.written_batch import WrittenBatch
from penstock.runtime.spark.start import PreparedStart, closed_on_failure, withdrawn_on_failure
from penstock.runtime.spark.startup.jvm import spark_log
from penstock.runtime.spark.startup.session import is_gone, stop_at_end
from penstock.runtime.spark.version import JobChange, OlderVersions, VersionInfo, version_of
from penstock.runtime.spark.worker.job_files import job_kept_on_failure
from penstock.runtime.spark.worker.spill_files import forget, forget_all
from penstock.storage import storage

# --- Writes of a batch that need not wait for each other.
#
# Each of them ends with a sync, which waits for the disk; the file system does several syncs at once in about the time
# of one. So they are begun as soon as what they write is known, and finished before the batch counts as delivered.

#: Writes that wait for the disk at the same time.
_AT_ONCE = 2


class WritesBeside:
    """The writes of one batch that run beside it."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_AT_ONCE, "penstock-writes")
        self._begun: list[Future[None]] = []

    def begin(self, write: Callable[[], None]) -> None:
        self._begun.append(self._threads.submit(write))

    def finish(self) -> None:
        """Wait for everything that was begun. Raises the error of the first that failed."""
        begun, self._begun = self._begun, []
        errors = [error for write in begun if (error := write.exception()) is not None]
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Wait for what was begun, whether or not it fails; nothing can be begun afterwards."""
        self._threads.shutdown()


# --- What reads its past at present in a run: the queries that begin with its next change.


class Hydration:
    """The queries of one run that read their past. One change at a time is under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ahead: Prefetch | None = None

    @contextmanager
    def change(self) -> Iterator[None]:
        """Wait for other changes, and hold them back while the context lasts."""
        with self._lock:
            try:
                yield
            finally:
                self._ahead = None

    def begin(self, ahead: Prefetch) -> None:
        """Set what is read before the change that is under way."""
        self._ahead = ahead

    def shares(self) -> dict[str, float]:
        """Return, by query, the share of its past that has been read."""
        reading = self._ahead.catching_up if self._ahead is not None else None
        return {} if reading is None else dict.fromkeys(reading.starts, reading.share)


# --- Spark's streaming query of a run, as its driver watches and stops it.

_Answer = TypeVar("_Answer")


class RoundsQuery:
    """The streaming query that reads the rounds of a run.

    Args:
        log: Spark's log of the run, which messages of failures name.
    """

    def __init__(self, query: StreamingQuery, log: Path) -> None:
        self._query = query
        self._log = log
        #: The error of a JVM that is gone, None while it answers.
        self.gone: PenstockError | None = None

    def _ask(self, call: Callable[[], _Answer], otherwise: _Answer) -> _Answer:
        """Return the result of the call to Spark; `otherwise` where its JVM is gone, which has ended the run then."""
        try:
            return call()
        except (Py4JError, OSError) as failure:
            if not is_gone(failure):
                raise
            self.gone = self.gone or translate(failure, self._log)
            return otherwise

    @property
    def active(self) -> bool:
        return self._ask(lambda: bool(self._query.isActive), False)

    @property
    def failure(self) -> PenstockError | None:
        """Return the error that ended the query, None without one."""
        failure = self._ask(self._query.exception, None)
        return self.gone if failure is None else translate(failure, self._log)

    @property
    def last_batch(self) -> int:
        """Return the last batch that Spark reports, -1 before the first."""
        last = self._ask(lambda: self._query.lastProgress, None)
        return -1 if last is None else int(last["batchId"])

    def read_all(self) -> None:
        """Wait until everything available has been read. Raises PenstockError for a query that failed."""
        try:
            self._query.processAllAvailable()
        except (StreamingQueryException, Py4JError, ConnectionError) as failure:
            raise translate(failure, self._log) from None

    def stop(self) -> None:
        """Stop after the work at hand."""
        if not self.active:
            return
        try:
            self._ask(self._query.stop, None)
        except (Py4JError, PySparkException) as failure:
            # Spark gives up on a query that it cannot interrupt in time, or that fails while it is interrupted. The run
            # ends nonetheless, and what is committed stays.
            reason = translate(failure, self._log).message
            log_event(LOG, logging.INFO, "stop_failed", f"Spark did not stop the query in order: {reason}")


#: Batches between two shortenings of Spark's log of files; seconds for which closing waits for a delivery in progress.
_SHORTEN_EVERY, _LAST_DELIVERY = 100, 10.0

#: Receives the name and the error of a query that is left out since it failed.
FailureListener = Callable[[str, PenstockError], None]
#: Begins the change of a run that leaves out some queries; None where they are left out already.
LeaveOut = Callable[[Folder, "SparkRun", Collection[str]], JobChange | None]


class SparkRun:
    """A started job. Sinks are opened by the caller.

    Args:
        begun: the start.
        lock: the lock of the checkpoint, released at the end; None for a checkpoint that is removed with the run.
        report_options: options of the reports.
        leave_out: begins the change that leaves out queries which failed.
        on_failed: receives the name and the error of each of them, once it is left out.
    """

    def __init__(
        self,
        checkpoint: Path,
        begun: PreparedStart,
        lock: CheckpointLock | None,
        report_options: ReportOptions,
        leave_out: LeaveOut,
        on_failed: FailureListener | None = None,
    ) -> None:
        job, sinks = begun.job, begun.sinks
        self.work = begun.work
        self._leave_out = leave_out
        self._on_failed = on_failed
        self._folder = Folder(checkpoint / "penstock")
        self.checkpoint = checkpoint
        #: The version of its plan, as the checkpoint has it.
        self.epoch = begun.decision.epoch
        self._job = job
        self._sinks = dict(sinks)
        self._is_live = self.work.live and self._in_files
        self.relations = KeptRelations(self._folder, self.work.settings.get_int("snapshot_memory"))
        self._lock = lock
        #: Messages for the user about a script that differs from the checkpoint's.
        self.notices = begun.decision.notices
        self._older = OlderVersions(self._folder, job.epoch > 0)
        self._totals = RunTotals(self._folder)
        self._result_parts = ResultParts(self._folder)
        self._gate, self._surplus = AnswerGate(self._folder), SurplusAnswers(self._folder)
        self._rounds: RoundLog | None = None
        self._compaction: Compaction | None = None
        self._pipeline: Pipeline | None = None
        self._final_batch: int | None = None
        self._failure: PenstockError | None = None
        self._started_at = time.monotonic()
        self._batch_seconds, self._closed, self._log_begun = 0.0, False, False
        self._delivery_lock, self._writes_beside = threading.Lock(), WritesBeside()
        #: Held while a change is applied, and while metrics or progress are read.
        self._change_lock = threading.RLock()
        self._dead_letters = self._folder.dead_letters
        self.hydration = Hydration()
        recorder = Recorder(job.plan, job.all_sources)
        totals = self._current_totals()
        recorder.resumed(totals)
        self._last_finished_at = time.monotonic()
        last, work = recorder.metrics(totals), self.work
        self._reporter = Reporter(recorder, report_options, self.metrics, time.time, last, work.on_batch, work.policies)
        resumed = self._totals.batches > 0
        self._log_event("resume" if resumed else "start", "the run goes on" if resumed else "the run starts")
        self._query: RoundsQuery | None = None
        if lock is not None:
            lock.over = lambda: not self.active
        if (finish := self._folder.finished()) is not None and finish.epoch == job.epoch:
            return
        try:
            self._query = self._start_query(begun.digest)
            stop_at_end(self)
        except PenstockError as error:
            self._failure = error
            self.close()
            raise
        except Exception as failure:
            self._failure = translate(failure, self._log)
            self.close()
            raise self._failure from failure

    def _start_query(self, digest: str) -> RoundsQuery:
        spark = self.work.spark()
        sweep(self._folder.root)
        forget_all(str(self._folder.root))
        storage().make_folder(self._log)
        if self._in_files:
            mend_log(self._folder, self._log)
            if outstanding_before(self._folder, self._job.epoch) is not None:
                take_back(self._folder, self._log)
            check_log(self._folder, self._log)
        job = self._job
        self._rounds = RoundLog(
            self._folder,
            job.intake,
            epoch=job.epoch,
            carried=self.epoch.offset,
            history=self._is_live,
            abandoned=lambda: self._query is not None and not self._query.active,
            decide=self._reporter.deciders.decide,
        )
        if self._is_live:
            self._compaction = compacting(self._folder, self._rounds, lambda: self._job.intake, self.work.settings)
            self._pipeline = Pipeline(self._folder, self._job, digest)
            frame = round_files(spark, job.shards, self._rounds.place)
        else:
            frame = assemble(spark, self._folder, self._job, digest, self.work.streaming, self._rounds.place)
        writer = frame.writeStream.foreachBatch(self._deliver).outputMode("append")
        writer = writer.option("checkpointLocation", str(self._log)).queryName(f"penstock-{self.checkpoint.name}")
        return RoundsQuery(writer.start(), self._log)

    @property
    def _in_files(self) -> bool:
        """Return whether Spark's log only records which rounds have been read."""
        return self._job.state_store == "files" and not self._job.intake.spark_sources

    @property
    def _log(self) -> Path:
        """Spark's own log of the rounds."""
        return spark_log_folder(self.checkpoint)

    # -- delivering --------------------------------------------------------------------------------------------

    def _deliver(self, frame: DataFrame, number: int) -> None:
        with self._delivery_lock:
            if number < self._job.base:
                # Spark repeats a batch of an earlier version of the plan; every sink has its answers.
                return
            if self._pipeline is None:
                self._deliver_batch(frame, number)
            elif not self._is_delivered(number):
                self._deliver_batch(self._pipeline.packets(frame), number)

    def _is_delivered(self, number: int) -> bool:
        """Return whether every sink has the batch already, so that Spark only repeats it."""
        last = self._folder.delivered()
        if number > last.batch:
            return False
        if last.ended:
            self._end(last.batch)
        return True

    def _end(self, batch: int) -> None:
        """Record that all sources have ended with `batch`."""
        self._folder.write_finished(Finish(batch, self._job.epoch))
        self._final_batch = batch

    def _deliver_batch(self, packets: DataFrame, batch: int) -> None:
        job = self._job
        try:
            started_at = time.monotonic()
            if self._in_files:
                # Spark wrote its log of this batch before it called; it is synced while the batch is computed.
                self._writes_beside.begin(partial(sync_log, self._log, batch, not self._log_begun))
            table = packets.toArrow()
            computed_at = time.monotonic()
            written = self._write(table, batch)
            round_, failed, finished_at = written.round, written.failed, time.monotonic()
            forget(str(self._folder.root), batch)
            self._batch_seconds += finished_at - started_at
            self._totals.warn_of_jumps(job.plan)
            self._totals.close_batch()
            if round_ is not None and self._rounds is not None:
                started_at = max(self._rounds.began(round_) or started_at, self._last_finished_at)
            self._last_finished_at = finished_at
            seconds, parallelism, totals = finished_at - started_at, job.intake.parallelism, self._current_totals()
            after = written.seconds_after(started_at)
            self._reporter.batch(batch, seconds, finished_at - computed_at, parallelism, totals, after, tuple(failed))
            self._older.delivered(job, batch, job.all_sources)
            # From here on the queries may change: what follows concerns the log only.
            self._writes_beside.finish()
            self._log_begun = True
            if round_ is not None and self._rounds is not None:
                if batch % _SHORTEN_EVERY == 0:
                    source_log.shorten(self._log / "sources" / "0")
                self._rounds.delivered(round_, seconds, batch, written.bytes, written.ended, failed, written.behind)
                if failed:
                    self._go_on_without(failed, written.ended)
            if written.ended:
                self._end(batch)
        except PenstockError as error:
            self._failure = error
            raise

    def _go_on_without(self, failed: Mapping[str, QueryFailure], ended: bool) -> None:
        """Change to a plan without the queries `failed`; a run that has ended needs none."""
        try:
            if not ended:
                self.change(lambda: self._leave_out(self._folder, self, failed.keys()), after_failure=True)
        except PenstockError as error:
            # A run that is being stopped does not change; the delivery mark has its next start leave them out.
            if error.code != "P0701" or not self._closed:
                raise
        for name, failure in sorted(failed.items()):
            message = f"the query is left out: {failure.message}"
            log_event(LOG, logging.ERROR, "query_failed", message, query=name, error=failure.code)
            if self._on_failed is not None:
                self._on_failed(name, failure.error)

    def _write(self, table: pa.Table, batch: int) -> WrittenBatch:
        """Write every query's rows to its sink."""
        output = read_output(table, self._reporter.report)
        if output.round is not None and self._rounds is not None:
            self._rounds.check_due(output.round, self._log)
        counts = write_rejections(output.rejected, self._job.plan.sources, DeadLetters(self._dead_letters), batch)
        # An interrupted start may have written the first batch of an epoch with other rows, or to other sinks too.
        beats = output.query_heartbeats
        valid = {name: chunks for name, chunks in output.answers.items() if name not in output.failed}
        if output.round is not None:
            record_rejected(self._folder, self._job, valid, output.round)
        answers = self._surplus.until(self._job.plan, valid, output.behind, batch)
        shown = self._gate.shown(self.epoch, self._job, answers, beats, batch)
        due = self._job.plan.queries if batch == self._job.base and batch else shown.answers
        names = by_weight((n for n in due if n not in output.failed and n not in shown.withheld), self.work.weights)
        isolation = None
        if self._job.isolated:
            retry = self.work.settings["sink_retry"]
            isolation = SinkIsolation(UndeliveredAnswers(self._folder), retry, self.work.sink_retries)
        delivered_answers = deliver_answers(self._job, self._sinks, names, shown.answers, batch, isolation)
        failed = {name: replace(failure, batch=batch) for name, failure in output.failed.items()}
        if isolation is not None:
            failed |= isolation.failed
            delivered_answers = {n: answer for n, answer in delivered_answers.items() if n not in isolation.failed}
        commit_logs(self._sinks, batch, shown.heartbeats(beats, output.failed), delivered_answers)
        if output.heartbeats is not None:
            self._totals.set_heartbeats(beats, output.heartbeats.sources)
        rows = {name: answer.rows for name, answer in delivered_answers.items()}
        self._writes_beside.begin(partial(self._result_parts.note, batch, rows, self._sinks))
        self._totals.delivered(batch, rows, counts, self._reporter.recorder)
        return WrittenBatch(output.ended, output.round, delivered_answers, failed, bool(output.behind))

    # -- changing ----------------------------------------------------------------------------------------------

    @property
    def job(self) -> Job:
        """Return the job as it is now."""
        return self._job

    def version(self) -> VersionInfo:
        """Return the version of the plan, with the heartbeats after the last batch."""
        with self._change_lock:
            return version_of(self.epoch, *self._totals.heartbeats, self._totals.rows)

    @property
    def is_live(self) -> bool:
        """Return whether the queries may change while the run goes on."""
        return self._is_live and self._rounds is not None

    @property
    def rounds(self) -> RoundLog | None:
        """Return the rounds, None for a run that had finished before."""
        return self._rounds

    @property
    def busy(self) -> bool:
        """Return whether a round is running."""
        return self._rounds is not None and self._rounds.outstanding

    def change(self, begin: Callable[[], JobChange | None], after_failure: bool = False) -> None:
        """Change the queries of the run between two of its rounds.

        Args:
            begin: carries out the change up to this object's part, and returns it; None where nothing changes.
            after_failure: see `RoundLog.change`.

        Raises:
            PenstockError: P0701 where the run has ended or cannot change.
        """
        if self._rounds is None or not self._is_live:
            hint = "start it with live=True; Spark must not read its sources nor keep its state"
            raise PenstockError("P0701", "the queries of this run cannot be changed", hint=hint)

        def adopt_change(rounds: RoundLog) -> RoundChange | None:
            with job_kept_on_failure(self._folder):
                job_change = begin()
                if job_change is not None and job_change.offset is not None:
                    return self._adopt(job_change, job_change.offset, rounds)
                if job_change is not None:
                    self.work, self.epoch = job_change.work, job_change.epoch
                return None

        try:
            self._rounds.change(partial(adopt_change, self._rounds), after_failure)
        except PenstockError as error:
            if error.code != "P0701" or (failure := self.error) is None:
                raise
            message = f"the run has failed, so it cannot be changed: {failure.message}"
            raise PenstockError("P0701", message, hint="start it again") from failure

    def _adopt(self, job_change: JobChange, offset: Offset, rounds: RoundLog) -> RoundChange:
        """Go on with another job, once the last round is delivered. What it raises changes nothing."""
        job, before, after = job_change.job, self._sinks, job_change.sinks
        new_sinks = {name: sink for name, sink in after.items() if before.get(name) is not sink}
        with (
            closed_on_failure(new_sinks),
            remove_epoch_on_failure(self._folder, job.epoch),
            withdrawn_on_failure(job_change.begun),
        ):
            pipeline = Pipeline(self._folder, job, job_change.digest)
            totals, parts = self._totals.reread(job.plan), ResultParts(self._folder)
            following = RoundChange(job.intake, job.epoch, offset, rounds.planner_after(job.intake))
        with self._change_lock:
            self.work, self.epoch, self.notices = job_change.work, job_change.epoch, job_change.notices
            self._job, self._sinks = job, dict(after)
            self._pipeline, self._totals, self._result_parts = pipeline, totals, parts
            self._older.add()
            target = self.work.settings["target_latency"] or 0.0
            try:
                self._reporter.changed(job.plan, job.all_sources, self.work.policies, target, job_change.horizons)
                for sink in (sink for name, sink in before.items() if after.get(name) is not sink):
                    sink.close()
            except Exception as error:
                log_event(LOG, logging.ERROR, "change", f"an internal error followed a change: {error!r}", trace=error)
        return following

    # -- what the caller sees ----------------------------------------------------------------------------------

    @property
    def error(self) -> PenstockError | None:
        """Return the error that ended the run, None without one."""
        for part in (self._rounds, self._query):
            if self._failure is None and part is not None:
                self._failure = part.failure
        return self._failure

    @property
    def active(self) -> bool:
        """Return whether the run is active."""
        return not self._closed and self._query is not None and self._query.active

    @property
    def sinks(self) -> Mapping[str, Sink]:
        """Return the sink of each query."""
        return self._sinks

    @property
    def dead_letters(self) -> str:
        """Return the folder of the dead letters."""
        return self._dead_letters

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
        if self._final_batch is None or self._query is None:
            return False
        reported = not self.active or self._query.last_batch >= self._final_batch
        return reported and self._failure is None and self._query.gone is None

    def end_frames(self) -> None:
        """End the DataFrame sources once everything available has been read. Raises the error of a failed run."""
        assert self._query is not None
        try:
            self._query.read_all()
        except PenstockError as failure:
            error = self.error or failure
            self.close()
            raise error from None
        self._folder.write_mark("end", True)

    def stop(self) -> None:
        """Stop after the current batch; with a checkpoint the run can be resumed."""
        if self._query is not None:
            self._query.stop()
        self.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._query is not None:
            self._failure = self._failure or self._query.gone
        self._log_event("stop", "the run stops" if self._failure is None else f"the run failed: {self._failure.code}")
        self._reporter.close()
        for part in (self._compaction, self._rounds, self._query):
            if part is not None:
                part.stop()
        # A delivery in from a Spark that has failed ends with it: the sinks are closed next, or sinks close.
        if self._delivery_lock.acquire(timeout=_LAST_DELIVERY):
            self._delivery_lock.release()
        self._writes_beside.close()
        for sink in self._sinks.values():
            sink.close()
        if self._lock is not None:
            if self._failure is not None and (log_text := spark_log()):
                with suppress(OSError):
                    storage().write(self.checkpoint / "spark.log", log_text)
            self._lock.release()
        else:
            self._dead_letters = remove_checkpoint(self.checkpoint, self._dead_letters)

    def metrics(self) -> RunMetrics:
        """Return the present metrics of the run."""
        with self._change_lock:
            return self._reporter.recorder.metrics(self._current_totals())

    @property
    def recorder(self) -> Recorder:
        """Return what computes its metrics and figures."""
        return self._reporter.recorder

    @property
    def metrics_port(self) -> int | None:
        """Return the port of the Prometheus endpoint, None without one."""
        return self._reporter.port

    def _current_totals(self) -> Totals:
        limit = self._rounds.limit if self._rounds is not None else self._job.intake.pace.max_bytes
        return self._totals.totals(*self._unread_input(), limit)

    def _unread_input(self) -> tuple[dict[str, Backlog], dict[str, int]]:
        """Return by source the input discovered but not read yet, and by topic the number of waiting records."""
        return ({}, {}) if self._rounds is None else (self._rounds.backlog(), self._rounds.waiting)

    def _log_event(self, event: str, message: str) -> None:
        log_of_run(event, message, self._failure, self._job.plan.queries, self.checkpoint, self._totals.batches)

    def sums(self) -> RunProgress:
        """Return the progress without the counts of each source and query, and without durations."""
        with self._change_lock:
            return self._totals.sums(self._job.plan, self._job.all_sources)

    @property
    def batches(self) -> int:
        """Return the number of batches delivered, those of earlier processes included."""
        return self._totals.batches

    def progress(self) -> RunProgress:
        with self._change_lock:
            progress = self._totals.progress(self._job.plan, self._job.all_sources, self._sinks, *self._unread_input())
        self._reporter.recorder.describe(progress)
        progress.batch_seconds = self._batch_seconds
        seconds = self._last_finished_at - self._started_at
        progress.rows_per_second = (progress.rows_in - self._totals.rows_before) / seconds if seconds > 0 else 0.0
        return progress
