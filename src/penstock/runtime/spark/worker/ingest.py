"""The ingest: a worker's processing of a read task before the shuffle (stage 0).

It reads and stamps records, sets late and malformed ones apart, runs the stateless operators, partitions by shard, and
sends every shard the progress of the source.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

import pyarrow as pa

from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.heartbeats import StreamRecord
from penstock.algebra.properties.punctuations import Punctuation
from penstock.connectors.contract import ParsedRecords
from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.sources import is_rereadable, open_source, read_split
from penstock.physical.elements import Elements
from penstock.physical.execution.exchange import ExchangeRouter
from penstock.physical.execution.executor import IngestExecutor
from penstock.physical.execution.flow_counts import TappedPort, tapped_ports
from penstock.physical.execution.ingest import (
    after_record,
    read_columns,
    spoken_after,
    stamp,
)
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.physical.execution.step_failures import StepFailures
from penstock.physical.synopses.promises.punctuations import Punctuations
from penstock.runtime.monitoring.reports import IngestReport
from penstock.runtime.monitoring.stopwatch import Stopwatch
from penstock.runtime.rejected_rows import RejectedRows
from penstock.runtime.skipped_records import as_read, progress_after
from penstock.runtime.spark.checkpoint.epochs import source_file
from penstock.runtime.spark.checkpoint.folder import Folder, Job, Seen
from penstock.runtime.spark.checkpoint.kept_punctuations import kept_punctuations
from penstock.runtime.spark.input.input_planner import ReadTask
from penstock.runtime.spark.retention.retained_log import RetainedLog, retained_columns
from penstock.runtime.spark.retention.retained_writer import RetainedWriter
from penstock.runtime.spark.worker.packets import (
    Packet,
    by_shard,
    channel_packets,
    decided_packets,
    failed_packet,
    round_packet,
    timings_packet,
)
from penstock.runtime.spark.worker.tapped import published_taps
from penstock.runtime.spark.worker.user_code import limited_user_code


class Ingest:
    """Work on one read task of one source.

    Args:
        high, beat, recorded: the largest timestamp and the heartbeat of the source before it; that of records alone.
        task: the number of the task in its round.
        now: the stamp of SYSTEM TIME.
        retained: receives the elements that the stream retains; None where it retains none.
        kept: the punctuations of the source before it.
        named: positions of the columns that punctuations of the task name, beside records.
    """

    def __init__(
        self,
        job: Job,
        tables: dict[str, Elements],
        source: Source,
        high: int | None,
        task: int,
        now: int | None = None,
        beat: int | None = None,
        recorded: int | None = None,
        retained: RetainedWriter | None = None,
        kept: Punctuations | None = None,
        named: Collection[int] = (),
    ) -> None:
        self._job = job
        self.in_files = job.state_store == "files"
        self._source = source
        self._now = now
        self._failures = StepFailures(*job.limits.between_operators(job.shards)) if job.isolated else None
        self._executor = IngestExecutor(job.plan, source.name, tables, failures=self._failures, observes=True)
        self._retained = retained
        retained_positions = () if retained is None else retained.columns
        self._stamped_columns = tuple(sorted({*self._executor.columns, *retained_positions}))
        kept = kept or Punctuations(job.punctuations)
        self.columns = read_columns(source, self._stamped_columns, {*named, *kept.columns})
        beats = [NOTHING if tick is None else tick for tick in (beat, recorded)]
        self.progress = SourceProgress(None, high, False, beats[0], beats[1], kept)
        self._seen = Seen(high)
        self.rejected = RejectedRows(source)
        self.watch = Stopwatch()
        self._task = task
        self._router = ExchangeRouter(job.shards)

    @property
    def seen(self) -> Seen:
        """Return what has been observed so far."""
        recorded, rejected = self.progress.recorded, self.rejected
        return replace(
            self._seen,
            beat=None if recorded == NOTHING else recorded,
            late=rejected.late,
            lag=rejected.lag,
            malformed=dict(rejected.malformed),
        )

    def tap(self, taps: Collection[TappedPort]) -> None:
        """Keep rows of some edges for the report."""
        self._executor.counts.tapped = tapped_ports(self._job.plan, taps)

    def take(self, parsed: ParsedRecords, origin: str) -> None:
        """Stamp and process records. origin: where they come from, for dead letters."""
        with self.watch.phase("ingest"):
            self._take(parsed, origin)

    def _take(self, parsed: ParsedRecords, origin: str) -> None:
        if parsed.record is not None:
            self._take_record(parsed.record, origin)
            return
        if parsed.skipped is not None:
            with self.watch.phase("read"):
                skipped_progress = progress_after(self._source, parsed.skipped, self.progress, self._now)
            if skipped_progress is None:
                for records in self.watch.through("read", as_read(parsed, self.columns)):
                    self._take(records, origin)
                return
            rows, after = skipped_progress
            self._note_jump(after)
            self.progress = after
            self._seen.rows += rows
            self._seen.passed += rows
            self._seen.high = self.progress.high
        self.rejected.reject_unparsed(parsed)
        self._seen.rows += len(parsed.rejected) + parsed.batch.num_rows
        self._seen.positions |= parsed.positions or {}
        if not parsed.batch.num_rows:
            return
        stamped = stamp(self._source, parsed.batch, self.columns, self._stamped_columns, self.progress, self._now)
        self._seen.jump = max(self._seen.jump, stamped.jump)
        self._note_kept(stamped.punctuations)
        self.progress = self.progress.merge(stamped.progress)
        self._seen.high = self.progress.high
        self.rejected.reject_unusable(stamped, parsed, origin)
        if self._retained is not None:
            self._retained.add(self._with_columns(stamped.elements.valid(), self._retained.columns))
        with limited_user_code(self._job):
            result = self._executor.run(self._with_columns(stamped.elements, self._executor.columns))
        with self.watch.phase("exchange"):
            self._router.post(result, self._task)
        self._speak(stamped.spoken)

    def _speak(self, spoken: Elements | None) -> None:
        """Send punctuations to the operators that follow them."""
        if spoken is not None:
            self._router.post(self._executor.run(None, spoken), self._task)

    def _take_record(self, record: StreamRecord, origin: str) -> None:
        """Take a heartbeat or a punctuation that is no row."""
        after = after_record(self._source, record, self.progress)
        if isinstance(after, str):
            self.rejected.reject_record(record, after, origin)
            return
        if isinstance(record, Punctuation) and after.punctuations is not self.progress.punctuations:
            self._note_kept([record])
        self._speak(spoken_after(record, self.progress))
        self.progress = after

    def _note_kept(self, news: Iterable[Punctuation]) -> None:
        self._seen.punctuations += [single.as_text() for one in news for single in one.single()]

    def _with_columns(self, elements: Elements, columns: tuple[int, ...]) -> Elements:
        """Return stamped elements with the declared columns at `columns`."""
        if columns == self._stamped_columns:
            return elements
        return elements.with_columns([elements.columns[self._stamped_columns.index(c)] for c in columns])

    def _note_jump(self, after: SourceProgress) -> None:
        """Record the jump that skipped records may have made, to the least of their timestamps."""
        if self.progress.high is not None and after.first is not None:
            self._seen.jump = max(self._seen.jump, after.first - self.progress.high)

    def row_packets(self) -> Iterator[Packet]:
        """Yield the packets of elements for the shards."""
        for shard, channel, batches in self._router:
            yield from self.watch.through("exchange", channel_packets(shard, channel, batches, self._task))

    def reports(self) -> Iterator[Packet]:
        """Yield the packets for the driver: what failed, and the measurements."""
        if self._failures is not None and self._failures.errors:
            yield failed_packet(0, self._failures.errors)
        yield timings_packet(0, self._report())

    def _report(self) -> IngestReport:
        executor = self._executor
        figures, seen = executor.added_figures(), executor.observed()
        return IngestReport(self._task, self.watch.seconds, executor.counts, figures, seen)


def run_read_tasks(
    folder: Folder, job: Job, tables: dict[str, Elements], tasks: Sequence[ReadTask]
) -> Iterator[Packet]:
    """Yield all packets of the read tasks of one file; what they observed is written before the last of them."""
    seen: list[tuple[str, Seen]] = []
    progress: dict[str, SourceProgress] = {}
    for task in tasks:
        yield from _announced(job, task)
        if task.source is None:
            continue
        ingest = yield from _processed(folder, job, tables, task)
        seen.append((task.source, ingest.seen))
        progress[task.source] = progress.get(task.source, SourceProgress()).merge(ingest.progress)
    if seen:
        # The delivery mark of the round holds it too, unless Spark plans rounds or keeps the state.
        folder.write_seen(tasks[0].round, tasks[0].task, seen, durable=job.state_store != "files")
        yield from by_shard(job.shards, progress)


def _announced(job: Job, task: ReadTask) -> Iterator[Packet]:
    """Yield the packets that a task sends to all shards beside its rows."""
    if task.task == 0:
        yield round_packet(task.round)
    progress = {name: SourceProgress(beat=beat) for name, beat in task.beats}
    progress |= {n: progress.get(n, SourceProgress()).merge(SourceProgress(ended=True)) for n in task.ended}
    if progress or task.source is None:
        yield from by_shard(job.shards, progress)
    if task.decided:
        yield from decided_packets(job.shards, task.decided)


def _processed(
    folder: Folder, job: Job, tables: dict[str, Elements], task: ReadTask
) -> Generator[Packet, None, Ingest]:
    """Read and process the records of a task: yield the packets of its rows and the reports for the driver.

    Rejected records and retained elements are written meanwhile.
    """
    assert task.source is not None, "a task that only reports progress reads nothing"
    source = job.plan.sources[task.source]
    # Whatever the queries read, all elements are retained, and all are counted to measure promises; a punctuation is
    # read, and so is what contradicts it.
    whole = source.retain is not None or bool(source.observed) or source.punctuated is not None
    predicate = None if whole else job.plan.source_predicates.get(source.name)
    connector = open_source(source, predicate)
    with _retained_writer(folder, job, source) or nullcontext() as retained:
        file = source_file(source.name, job.intake.births)
        kept = kept_punctuations(folder, file, task.punctuations, job.punctuations)
        records = [split.record for split in task.splits]
        named = {c for one in records if isinstance(one, Punctuation) for c in one.columns}
        known = task.high, task.task, task.now, task.beat, task.recorded
        ingest = Ingest(job, tables, source, *known, retained, kept, named)
        ingest.tap(published_taps(folder.root))
        for split in task.splits:
            for parsed in ingest.watch.through("read", read_split(connector, split, ingest.columns)):
                ingest.take(parsed, split.path)
        yield from ingest.row_packets()
        if retained is not None:
            # What is left is written while the elements travel.
            with ingest.watch.phase("ingest"):
                retained.finish(int(task.round), task.task)
    _write_letters(folder, ingest, source.name, task.round, task.task)
    yield from ingest.reports()
    return ingest


def _retained_writer(folder: Folder, job: Job, source: Source) -> RetainedWriter | None:
    columns = retained_columns(source)
    if not columns:
        return None
    log = RetainedLog(folder, source_file(source.name, job.intake.births))
    return RetainedWriter(log.place, columns, source.timestamp, durable=not is_rereadable(source))


def retained_packets(
    job: Job, tables: dict[str, Elements], source: str, batches: Iterable[Elements], task: int
) -> Iterator[Packet]:
    """Yield the packets for elements of a source that were stamped before, as those of one task.

    Args:
        batches: with the columns that the job reads of the source (`needed_columns`).
    """
    progress = SourceProgress()

    def passed() -> Iterator[Elements]:
        nonlocal progress
        for elements in batches:
            progress = progress.merge(SourceProgress(int(elements.ts.min()), int(elements.ts.max())))
            yield elements

    yield from element_packets(job, tables, source, passed(), task)
    yield from by_shard(job.shards, {source: progress})


def element_packets(
    job: Job, tables: dict[str, Elements], source: str, batches: Iterable[Elements], task: int
) -> Iterator[Packet]:
    """Yield the packets for the same without the progress of the source."""
    executor = IngestExecutor(job.plan, source, tables)
    router = ExchangeRouter(job.shards)
    for elements in batches:
        router.post(executor.run(elements), task)
    for shard, channel, sent in router:
        yield from channel_packets(shard, channel, sent, task)


def run_batches(
    folder: Folder, job: Job, tables: dict[str, Elements], source: Source, batch: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[Packet]:
    """Yield the packets for rows that Spark reads: the micro-batch `batch` of a DataFrame source."""
    earlier = [r for r in folder.rounds() if r.startswith("b") and r < f"b{batch:09d}"]
    high = beat = None
    kept = Punctuations(job.punctuations)
    for name in reversed(earlier):
        seen = folder.read_seen(name).get(source.name)
        if seen is not None:
            high, beat = seen.high, seen.beat
            kept = kept.added(map(Punctuation.from_text, seen.punctuations))
            break
    ingest = Ingest(job, tables, source, high, 0, beat=beat, recorded=beat, kept=kept)
    for record_batch in batches:
        columns = [record_batch.column(source.columns[c].name) for c in ingest.columns]
        typed_columns = [_as_declared(a, source.columns[c].type) for a, c in zip(columns, ingest.columns, strict=True)]
        names = [source.columns[c].name for c in ingest.columns]
        ingest.take(ParsedRecords(pa.RecordBatch.from_arrays(typed_columns, names=names)), f"batch {batch}")
    finish(folder, ingest, source.name, f"b{batch:09d}", 0)
    yield from ingest.row_packets()
    yield from by_shard(job.shards, {source.name: ingest.progress})
    yield from ingest.reports()


def finish(folder: Folder, ingest: Ingest, source: str, round_: str, task: int) -> None:
    """Write what an ingest of DataFrame rows observed. There may be no delivery mark that holds it too."""
    _write_letters(folder, ingest, source, round_, task)
    # The next one knows no other.
    kept = [one.as_text() for one in ingest.progress.punctuations or ()]
    folder.write_seen(round_, task, [(source, replace(ingest.seen, punctuations=kept))])


def _write_letters(folder: Folder, ingest: Ingest, source: str, round_: str, task: int) -> None:
    DeadLetters(folder.dead_letters).write(source, int(round_.lstrip("b")), task, ingest.rejected.letters)


def _as_declared(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)
