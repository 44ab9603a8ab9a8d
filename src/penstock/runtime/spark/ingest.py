"""The ingest: what a worker does with a piece of input before the shuffle (stage 0).

Reads, stamps, sets late and malformed records apart, runs the stateless operators, cuts by shard, and tells every shard
what it has seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.algebra.scans import OnError, Source
from penstock.connectors.contract import Parsed, Rejected
from penstock.connectors.deadletters import DeadLetter, DeadLetters, as_error, reason_kind
from penstock.connectors.sources import open_source
from penstock.physical.elements import Elements
from penstock.physical.executor import IngestExecutor, Port, Result, cut
from penstock.physical.ingest import Stamped, read_columns, stamp
from penstock.physical.progress import NOTHING, SourceProgress
from penstock.runtime.passed_over import as_read, passed_over
from penstock.runtime.spark.feed import Piece
from penstock.runtime.spark.folder import Folder, Job, Seen
from penstock.runtime.spark.packets import Packet, by_shard, port_packets, round_packet, timings_packet
from penstock.runtime.stopwatch import Stopwatch

_MOST_LETTERS = 100_000


class Ingest:
    """Work on one piece of one source. task: the number of the piece in its round; high, beat: what was known of the
    source before it; now: the stamp of SYSTEM TIME."""

    def __init__(
        self, job: Job, tables: dict[str, Elements], source: Source, high: int | None, task: int,
        now: int | None = None, beat: int | None = None,
    ) -> None:  # fmt: skip
        self._job = job
        self._source = source
        self._now = now
        self._executor = IngestExecutor(job.plan, source.name, tables)
        self.columns = read_columns(source, self._executor.columns)
        self.progress = SourceProgress(None, high, beat=NOTHING if beat is None else beat)
        self.seen = Seen(high)
        self.letters: list[DeadLetter] = []
        self.watch = Stopwatch()
        self._task = task
        self._outbox: dict[tuple[int, Port], list[Elements]] = {}

    def take(self, parsed: Parsed, place: str) -> None:
        """Stamp and process some records; `place` names where they came from, for dead letters."""
        with self.watch.phase("ingest"):
            self._take(parsed, place)

    def _take(self, parsed: Parsed, place: str) -> None:
        if parsed.passed is not None:
            with self.watch.phase("read"):
                passed = passed_over(self._source, parsed.passed, self.progress, self._now)
            if passed is None:
                for part in self.watch.through("read", as_read(parsed, self.columns)):
                    self._take(part, place)
                return
            rows, self.progress = passed
            self.seen.rows += rows
            self.seen.passed += rows
            self.seen.high = self.progress.high
        for rejected in parsed.rejected:
            self._reject(DeadLetter.of(rejected), rejected)
        self.seen.rows += len(parsed.rejected) + parsed.batch.num_rows
        self.seen.positions |= parsed.positions or {}
        if not parsed.batch.num_rows:
            return
        stamped = stamp(self._source, parsed.batch, self.columns, self._executor.columns, self.progress, self._now)
        self.progress = self.progress.merge(stamped.progress)
        self.seen.high = self.progress.high
        self._set_apart(stamped, parsed, place)
        self._post(self._executor.run(stamped.elements))

    def packets(self) -> Iterator[Packet]:
        """Everything for the shards: elements, then what has been seen; and for the driver what it took."""
        for (shard, port), batches in self._outbox.items():
            yield from self.watch.through("exchange", port_packets(shard, port, batches, self._task))
        yield from by_shard(self._job.shards, {self._source.name: self.progress})
        yield timings_packet(0, {"stage": 0, "task": self._task, "phases": self.watch.seconds})

    def _post(self, result: Result) -> None:
        with self.watch.phase("exchange"):
            for port, batches in result.onward.items():
                for elements in batches:
                    for shard, part in cut(elements, result.edges[port], self._job.shards, self._task):
                        self._outbox.setdefault((shard, port), []).append(part)

    def _set_apart(self, stamped: Stamped, parsed: Parsed, split: str) -> None:
        batch = parsed.batch
        for position, reason in zip(stamped.unusable.tolist(), stamped.reasons, strict=True):
            place, line = parsed.where(position) if parsed.where else (split, None)
            record = str(batch.slice(position, 1).to_pylist()[0])[:1000]
            self._reject(DeadLetter(place, line, record, reason), Rejected(place, line, record, reason))
        if len(stamped.late):
            self.seen.late += len(stamped.late)
            self.seen.lag = max(self.seen.lag, int(stamped.lag.max()))
            late = stamped.late[: _MOST_LETTERS - len(self.letters)]
            rows = batch.take(pa.array(late)).to_pylist()
            for position, row, lag in zip(late.tolist(), rows, stamped.lag.tolist(), strict=False):
                place, line = parsed.where(position) if parsed.where else (split, None)
                self.letters.append(DeadLetter(place, line, str(row)[:1000], f"late by {lag} ticks"))

    def _reject(self, letter: DeadLetter, rejected: Rejected) -> None:
        if self._source.on_error is OnError.FAIL:
            raise as_error(rejected, self._source.name)
        kind = reason_kind(letter.reason)
        self.seen.malformed[kind] = self.seen.malformed.get(kind, 0) + 1
        if self._source.on_error is OnError.DEAD_LETTER:
            self.letters.append(letter)


def run_piece(folder: Folder, job: Job, tables: dict[str, Elements], piece: Piece) -> Iterator[Packet]:
    """All packets of one task; what was seen is written down before they leave."""
    if piece.task == 0:
        yield round_packet(piece.round)
    told = {name: SourceProgress(beat=beat) for name, beat in piece.beats}
    told |= {n: told.get(n, SourceProgress()).merge(SourceProgress(ended=True)) for n in piece.ended}
    yield from by_shard(job.shards, told)
    if piece.source is None:
        return
    source = job.plan.sources[piece.source]
    ingest = Ingest(job, tables, source, piece.high, piece.task, piece.now, piece.beat)
    connector = open_source(source, job.plan.wanted.get(source.name))
    for split in piece.splits:
        for parsed in ingest.watch.through("read", connector.read(split, ingest.columns)):
            ingest.take(parsed, split.path)
    finish(folder, ingest, source.name, piece.round, piece.task)
    yield from ingest.packets()


def run_batches(
    folder: Folder, job: Job, tables: dict[str, Elements], source: Source, batch: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[Packet]:
    """The same for rows that Spark hands over: the micro-batch `batch` of a DataFrame source."""
    earlier = [r for r in folder.rounds() if r.startswith("b") and r < f"b{batch:09d}"]
    high = None
    for name in reversed(earlier):
        found = folder.read_seen(name).get(source.name)
        if found is not None:
            high = found.high
            break
    ingest = Ingest(job, tables, source, high, 0)
    for given in batches:
        chosen = [given.column(source.columns[c].name) for c in ingest.columns]
        typed = [_as_declared(a, source.columns[c].type) for a, c in zip(chosen, ingest.columns, strict=True)]
        names = [source.columns[c].name for c in ingest.columns]
        ingest.take(Parsed(pa.RecordBatch.from_arrays(typed, names=names)), f"batch {batch}")
    finish(folder, ingest, source.name, f"b{batch:09d}", 0)
    yield from ingest.packets()


def finish(folder: Folder, ingest: Ingest, source: str, round_: str, task: int) -> None:
    number = int(round_.lstrip("b"))
    DeadLetters(folder.dead_letters).write(source, number, task, ingest.letters)
    folder.write_seen(round_, source, task, ingest.seen)


def _as_declared(column: pa.Array, type_: pa.DataType) -> pa.Array:
    return column if column.type == type_ else column.cast(type_)
