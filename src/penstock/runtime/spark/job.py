"""A job on Spark: puts the streaming query together, delivers its answers, knows when it has ended.

source -> ingest -> stage 1 -> ... -> deliver. One streaming query answers all queries of a script: each source is read
once, answers travel as tagged packets and are split at the sinks.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.algebra.scans import Source
from penstock.connectors.contract import Sink
from penstock.connectors.deadletters import DeadLetters
from penstock.errors import CODES, PenstockError
from penstock.events import tell
from penstock.physical.answers import answer_table
from penstock.physical.elements import Elements
from penstock.physical.operators import Rejection
from penstock.physical.progress import NOTHING
from penstock.runtime.metrics import RunMetrics
from penstock.runtime.progress import QueryCounts, RunProgress, SourceCounts
from penstock.runtime.recorder import Recorder, Totals
from penstock.runtime.reporting import LOG, Reporter, Wanted
from penstock.runtime.spark.epochs import forget_older, spark_place
from penstock.runtime.spark.feed import Offset
from penstock.runtime.spark.folder import Folder, Job, load_job
from penstock.runtime.spark.handing import hand_over
from penstock.runtime.spark.packets import REJECTED, SPARK_SCHEMA, TIMINGS, read_elements, read_rejected
from penstock.runtime.spark.parcels import forget, forget_all, unpacked
from penstock.runtime.spark.processor import KeyedStage
from penstock.runtime.spark.rejections import write_rejections
from penstock.runtime.spark.rounds import Rounds
from penstock.runtime.spark.session import first_line, job_session
from penstock.runtime.spark.source import PenstockSource
from penstock.runtime.spark.state_files import sweep
from penstock.runtime.spark.tasks import batch_number, ingest_frame, ingest_pieces, keyed_stage, task_number
from penstock.types import END

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
        pieces = session.readStream.format("binaryFile").schema(_FILE_SCHEMA).load(f"{rounds}/*")
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
            parts: list[Elements] = []
            for kind, blob in zip(batch.column("kind").to_pylist(), batch.column("blob"), strict=True):
                if kind == REJECTED:
                    rejected += read_rejected(blob.as_py())
                if kind == f"answer:{query}":
                    parts += read_elements(blob.as_py())
            if parts:
                yield from answer_table(found, parts).to_batches()
        letters = DeadLetters(Folder(root).dead_letters)
        write_rejections(rejected, job.plan.sources, letters, batch_number(), task_number())

    return packets.mapInArrow(unpack, schema)


class SparkRun:
    """A started job. Sinks are opened by the caller. offset: where the epoch of the job begins."""

    def __init__(
        self, spark: SparkSession, checkpoint: Path, job: Job, digest: str, offset: Offset | None,
        sinks: Mapping[str, Sink], frames: Mapping[str, DataFrame], ephemeral: bool, wanted: Wanted,
        notices: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._folder = Folder(checkpoint / "penstock")
        self._checkpoint = checkpoint
        self._job = job
        self._sinks = sinks
        self._ephemeral = ephemeral
        #: What the user must know of a script that is another one than the checkpoint's.
        self.notices = notices
        self._epochs_behind = job.epoch > 0
        self._lock = threading.Lock()
        self._totals: dict[str, Any] = self._folder.read_mark("totals") or {
            "rounds": [],
            "batch": -1,
            "sources": {},
            "queries": {},
        }
        self._rows_before = sum(s["rows"] for s in self._totals["sources"].values())
        self._heartbeats: dict[str, int] = {}
        self._source_heartbeats: dict[str, int] = {}
        self._rounds: Rounds | None = None
        self._ended_in: int | None = None
        self._failure: PenstockError | None = None
        self._began = time.monotonic()
        self._seconds = 0.0
        self._closed = False
        self._letters = self._folder.dead_letters
        recorder = Recorder(job.plan, _all_sources(job))
        recorder.resumed(self._counted())
        self._done = time.monotonic()
        self._reporter = Reporter(recorder, wanted, self.metrics)
        resumed = self._totals["batch"] >= 0
        self._tell("resume" if resumed else "start", "the run goes on" if resumed else "the run starts")
        if (self._folder.read_mark("finished") or {}).get("epoch") == job.epoch:
            self._query: StreamingQuery | None = None
            return
        sweep(self._folder.root)
        forget_all(str(self._folder.root))
        self._rounds = Rounds(self._folder, job.intake, epoch=job.epoch, carried=offset)
        packets = assemble(spark, self._folder, job, digest, frames, self._rounds.place)
        writer = packets.writeStream.foreachBatch(self._deliver).outputMode("append")
        writer = writer.option("checkpointLocation", str(spark_place(checkpoint, job.epoch))).queryName(
            f"penstock-{checkpoint.name}"
        )
        self._query = writer.start()

    # -- delivering --------------------------------------------------------------------------------------------

    def _deliver(self, packets: DataFrame, number: int) -> None:
        batch = self._job.base + number
        try:
            began = time.monotonic()
            table = packets.toArrow()
            computed = time.monotonic()
            ended, round_ = self._write(table, batch)
            forget(str(self._folder.root), batch)
            done = time.monotonic()
            self._account(batch)
            if round_ is not None and self._rounds is not None:
                began = max(self._rounds.began(round_) or began, self._done)
            self._done = done
            self._reporter.batch(batch, done - began, done - computed, self._job.intake.parallelism, self._counted())
            if round_ is not None and self._rounds is not None:
                self._rounds.delivered(round_, done - began, batch)
            if number > 0 and self._epochs_behind:
                self._epochs_behind = False
                forget_older(self._folder, self._checkpoint, self._job, _all_sources(self._job))
            if ended:
                self._folder.write_mark("finished", {"batch": batch, "epoch": self._job.epoch})
                self._ended_in = number
        except PenstockError as error:
            self._failure = error
            raise

    def _write(self, table: pa.Table, batch: int) -> tuple[bool, int | None]:
        """Hand every query's rows to its sink; returns whether all sources have ended, and the round it was."""
        answers: dict[str, list[tuple[int, list[Elements]]]] = {}
        rejected: list[Rejection] = []
        ended, round_ = False, None
        shards, kinds = table.column("shard").to_pylist(), table.column("kind").to_pylist()
        for shard, kind, blob in zip(shards, kinds, table.column("blob"), strict=True):
            if kind == "heartbeats":
                told = json.loads(blob.as_py())
                ended = told["ended"]
                with self._lock:
                    self._heartbeats, self._source_heartbeats = told["heartbeats"], told["sources"]
            elif kind == REJECTED:
                rejected += read_rejected(blob.as_py())
            elif kind == TIMINGS:
                self._reporter.recorder.report(json.loads(blob.as_py()))
            elif kind == "round":
                round_ = int(blob.as_py())
            else:
                answers.setdefault(kind.removeprefix("answer:"), []).append((shard, unpacked(blob.as_buffer())))
        counts = write_rejections(rejected, self._job.plan.sources, DeadLetters(self._letters), batch)
        # A start that broke off may have written the first batch of an epoch with other rows, or with any.
        told = self._job.plan.queries if batch == self._job.base and batch else answers
        rows = hand_over(self._job, self._sinks, told, answers, batch)
        with self._lock:
            if batch > self._totals["batch"]:
                self._totals["batch"] = batch
                for name, count in rows.items():
                    self._totals["queries"][name] = self._totals["queries"].get(name, 0) + count
                for source, reasons in counts.items():
                    self._add_malformed(source, reasons)
        return ended, round_

    def _account(self, batch: int) -> None:
        """Add up what the ingest tasks saw, once per round, and forget rounds that nobody needs any more."""
        with self._lock:
            fresh = [r for r in self._folder.rounds() if r not in self._totals["rounds"]]
            for name in fresh:
                for source, seen in self._folder.read_seen(name).items():
                    total = self._add_malformed(source, seen.malformed)
                    total["rows"] += seen.rows
                    total["late"] += seen.late
                    total["passed"] = total.get("passed", 0) + seen.passed
                    total["lag"] = max(total["lag"], seen.lag)
            kept = sorted(set(self._totals["rounds"]) | set(fresh))
            for prefix in ("b", "0123456789"):
                mine = [r for r in kept if r[0] in prefix]
                for old in mine[:-4]:
                    shutil.rmtree(self._folder.root / "seen" / old, ignore_errors=True)
                    kept.remove(old)
            self._totals["rounds"] = kept
            self._seconds = time.monotonic() - self._began
            self._folder.write_mark("totals", self._totals)

    def _add_malformed(self, source: str, reasons: Mapping[str, int]) -> dict[str, Any]:
        """The totals of `source`, with so many malformed records more."""
        nothing = {"rows": 0, "late": 0, "lag": 0, "malformed": {}}
        total: dict[str, Any] = self._totals["sources"].setdefault(source, nothing)
        for reason, count in reasons.items():
            total["malformed"][reason] = total["malformed"].get(reason, 0) + count
        return total

    # -- what the caller sees ----------------------------------------------------------------------------------

    @property
    def error(self) -> PenstockError | None:
        """Why the run failed, None while it has not."""
        if self._failure is None and self._rounds is not None:
            self._failure = self._rounds.failure
        if self._failure is None and self._query is not None:
            failure = self._query.exception()
            if failure is not None:
                self._failure = translate(failure)
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
            error = self.error or translate(failure)
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
        if self._ephemeral:
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
        backlog = self._rounds.backlog() if self._rounds is not None else {}
        waiting = self._rounds.waiting if self._rounds is not None else {}
        with self._lock:
            counts = self._totals["sources"].items()
            sources = {n: (c["rows"], c["late"], sum(c["malformed"].values())) for n, c in counts}
            limit = self._rounds.limit if self._rounds is not None else self._job.intake.max_batch_bytes
            return Totals(
                self._totals["batch"] + 1, sources, dict(self._totals["queries"]), dict(self._source_heartbeats),
                dict(self._heartbeats), backlog, limit, waiting, {n: c.get("passed", 0) for n, c in counts},
            )  # fmt: skip

    def _tell(self, event: str, message: str) -> None:
        failed = self._failure is not None
        fields: dict[str, Any] = {"queries": sorted(self._job.plan.queries), "checkpoint": str(self._checkpoint)}
        if self._failure is not None:
            fields["error"] = self._failure.code
        tell(
            LOG, logging.ERROR if failed else logging.INFO, event, message, batches=self._totals["batch"] + 1, **fields
        )

    def progress(self) -> RunProgress:
        backlog = self._rounds.backlog() if self._rounds is not None else {}
        with self._lock:
            totals, heartbeats = self._totals, dict(self._heartbeats)
            found = RunProgress(batches=totals["batch"] + 1)
            waiting = self._rounds.waiting if self._rounds is not None else {}
            for name, source in _all_sources(self._job).items():
                counts = totals["sources"].get(name, {"rows": 0, "late": 0, "lag": 0, "malformed": {}})
                needed = source.domain.show_length(counts["lag"]) if counts["late"] and source.domain else None
                malformed = sum(counts["malformed"].values())
                found.sources[name] = SourceCounts(
                    counts["rows"], counts["late"], malformed, needed, dict(counts["malformed"]),
                    _known_to(source, self._source_heartbeats.get(name)), backlog.get(name, (0, 0))[1],
                    waiting.get(name),
                )  # fmt: skip
            for name, query in self._job.plan.queries.items():
                reached = heartbeats.get(name)
                shown = query.domain.show(reached) if reached is not None and NOTHING < reached < END else ""
                found.queries[name] = QueryCounts(totals["queries"].get(name, 0), shown, self._sinks[name].place)
        found.rows_in = sum(s.rows for s in found.sources.values())
        found.rows_out = sum(q.rows for q in found.queries.values())
        known = [(h, n) for n, h in heartbeats.items() if NOTHING < h < END]
        found.heartbeat = found.queries[min(known)[1]].heartbeat if known else ""
        found.batch_seconds = self._batch_seconds()
        seconds = self._seconds or time.monotonic() - self._began
        found.rows_per_second = (found.rows_in - self._rows_before) / seconds if seconds > 0 else 0.0
        return found


def _known_to(source: Source, heartbeat: int | None) -> str:
    """A source's heartbeat as people read it."""
    if heartbeat is None or heartbeat <= NOTHING or source.domain is None:
        return ""
    return "ended" if heartbeat >= END else source.domain.show(heartbeat)


def _all_sources(job: Job) -> dict[str, Source]:
    """The timed sources and the static relations of a job."""
    statics = {name: source for plan in job.plan.statics.values() for name, source in plan.sources.items()}
    return {**job.plan.sources, **statics}


_OWN_ERROR = re.compile(r"error (P\d{4}): (.*)")
_HINT = re.compile(r"^\s*hint: (.*)$", re.MULTILINE)
#: What every worker of ours imports.
_OURS = re.compile(r"'(?:penstock|pyarrow|numpy|numba)[.\w]*'")
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception)): (.*)$", re.MULTILINE)


def _message(first: str, rest: str) -> str:
    """A message of several lines: the further ones are set in."""
    further = takewhile(lambda line: line.startswith("  ") and not _HINT.match(line), rest.split("\n")[1:])
    return "\n".join([first.strip(), *(line.rstrip() for line in further)])


def translate(failure: Any) -> PenstockError:
    """A failure as Spark tells it, as one of ours: an error of Penstock that a worker raised keeps its code."""
    text = str(failure)
    own = _OWN_ERROR.search(text)
    if own and own[1] in CODES:
        hint = _HINT.search(text, own.end())
        return PenstockError(own[1], _message(own[2], text[own.end() :]), hint=hint[1].strip() if hint else None)
    if "No space left on device" in text:
        return PenstockError("P0601", "the disk is full", hint="free space and start again with the same --checkpoint")
    python = _PYTHON_ERROR.findall(text)
    shown = f"{python[-1][0]}: {python[-1][1]}" if python else first_line(text)
    advice = "`penstock --debug run ...` tells the whole story"
    if python and python[-1][0] == "ModuleNotFoundError" and _OURS.search(python[-1][1]):
        advice = (
            "Spark's workers run another Python: set PYSPARK_PYTHON to the one that has Penstock, before Spark starts"
        )
    return PenstockError("P0601", f"the run failed: {shown}", hint=advice, cause=failure)
