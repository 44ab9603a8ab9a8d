"""EXPLAIN ANALYZE: run queries over bounded inputs in this process and measure them.

It uses the plan, executor and readers of a Spark run, without Spark. Of several sources, the one whose time is furthest
behind is read next, so that state has the size that a run over live inputs would keep.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import OnError, Source, declared_sources, over_sources
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.heartbeats import Heartbeat, StreamRecord
from penstock.algebra.properties.statistics import Statistics
from penstock.connectors.contract import ParsedRecords, Rejected
from penstock.connectors.deadletters import as_error
from penstock.connectors.sources import open_source, read_split
from penstock.errors import PenstockError
from penstock.expressions.values.shown import shown_row
from penstock.figures import LATE_ROWS, REJECTED_ROWS, SKIPPED_ROWS
from penstock.figures.figure import Figure
from penstock.physical.elements import Elements
from penstock.physical.execution.ingest import after_record, read_columns, shown_record, spoken_after, stamp
from penstock.physical.execution.meter import Meter
from penstock.physical.execution.progress import NOTHING, SourceProgress
from penstock.physical.execution.wall_clock import wall_clock
from penstock.physical.operators import Rejection
from penstock.physical.plan.plan import Plan, scans_of
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.inputs import check_bounded, spooled
from penstock.runtime.local.runtime import LocalJob
from penstock.runtime.local.statics import Counts, read_statics
from penstock.runtime.skipped_records import as_read, progress_after
from penstock.temporary import removed_after

#: Rows read in one round.
_BATCH = 16_384


@dataclass(frozen=True)
class Analysis:
    """A plan with measurements of its steps.

    Args:
        seconds: duration of the whole run.
        statics: by table, measurements of the steps that compute its static relation.
    """

    plan: Plan
    meter: Meter
    seconds: float
    statics: Mapping[str, Meter]


def analyze(
    queries: Sequence[Query],
    rows: Mapping[str, Sequence[tuple[object, ...]]],
    frames: Mapping[str, object],
    shards: int = 1,
    statistics: Statistics | None = None,
    strategy: Strategy = Strategy.PATTERN,
) -> Analysis:
    """Run `queries` and measure their steps.

    Args:
        rows: rows of MEMORY sources, by source name in lower case.
        frames: tables passed from Python, by source name.
        statistics: what is known of the sources.
        strategy: how operators keep state.

    Raises:
        PenstockError: P0622 for an input without an end, P0401 to P0404 for one that cannot be read.
    """
    sources = declared_sources(*(query.root for query in queries))
    for source in sources.values():
        _check(source, frames.get(source.name))
    start = time.perf_counter()
    with removed_after() as folder:
        readable = {name: spooled(s, rows, frames, folder) for name, s in sources.items()}
        planning = strategy.planning(statistics)
        optimized = [replace(q, root=optimize(over_sources(q.root, readable), planning=planning)) for q in queries]
        plan = plan_queries(optimized, statistics, strategy)
        meters = {table: Meter() for table in plan.statics}
        statics, counts = read_statics(plan, str(folder / "dead-letters"), meters)
        _record_rejected(plan, meters, counts)
        meter = Meter()
        job = LocalJob(plan, statics, shards, meter=meter)
        readers = {name: _Reader(job, source, meter) for name, source in plan.sources.items()}
        _drive(job, readers, meter)
    return Analysis(plan, meter, time.perf_counter() - start, meters)


def _record_rejected(plan: Plan, meters: Mapping[str, Meter], counts_by_source: Counts) -> None:
    """Record at the scans of static relations the rows that were rejected or skipped."""
    for table, meter in meters.items():
        for step in plan.statics[table].steps:
            if (source := step.spec.scanned) is not None:
                counts = counts_by_source[source.name]
                scan = meter.of(step.id)
                scan.rows_in = counts.rows
                counted = {REJECTED_ROWS: sum(counts.malformed.values()), SKIPPED_ROWS: counts.passed}
                scan.counted |= {figure: count for figure, count in counted.items() if count}


def _check(source: Source, frame: object) -> None:
    if source.system_time:
        hint = "EXPLAIN it without ANALYZE, or declare it over a copy that ends"
        raise PenstockError("P0622", f"{source.name} has no end, so there is no run of it to measure", hint=hint)
    check_bounded(source, frame, "there is no run of it to measure\nEXPLAIN the query without ANALYZE")


class _Reader:
    """Reader of one timed source: its records in order, stamped, and the progress of its time."""

    def __init__(self, job: LocalJob, source: Source, meter: Meter) -> None:
        self._source = source
        self._needed = job.ingests[source.name].columns
        # Of a script PUNCTUATE may name any column of the rows that it INSERTs.
        named = range(len(source.columns)) if source.connector == "MEMORY" else ()
        self._columns = read_columns(source, self._needed, named)
        self._source_predicate = job.plan.source_predicates.get(source.name)
        self._scans = [meter.of(scan.id) for scan in scans_of(job.plan.steps, source.name)]
        self._batches = self._read()
        self.progress = SourceProgress()
        self._said: list[Elements | None] = []

    def _read(self) -> Iterator[ParsedRecords]:
        connector = open_source(self._source, self._source_predicate)
        for path in connector.discover(frozenset()):
            for split in connector.splits(path):
                for parsed in self._unskipped(read_split(connector, split, self._columns)):
                    yield replace(parsed, batch=parsed.batch.slice(0, _BATCH))
                    for start in range(_BATCH, parsed.batch.num_rows, _BATCH):
                        yield ParsedRecords(parsed.batch.slice(start, _BATCH))

    def _unskipped(self, batches: Iterator[ParsedRecords]) -> Iterator[ParsedRecords]:
        """Yield the records to be processed, and count those that the connector skipped."""
        for parsed in batches:
            if parsed.skipped is None:
                yield parsed
                continue
            skipped_progress = progress_after(self._source, parsed.skipped, self.progress, wall_clock())
            if skipped_progress is None:
                yield from as_read(parsed, self._columns)
                continue
            rows, self.progress = skipped_progress
            for scan in self._scans:
                scan.rows_in += rows
            self._count(SKIPPED_ROWS, rows)

    def next(self) -> list[Elements]:
        """Return the next elements; at the end of the source return none and mark its progress as ended."""
        start = time.process_time_ns()
        parsed = next(self._batches, None)
        if parsed is None:
            self.progress = replace(self.progress, ended=True)
            return []
        if parsed.rejected and self._source.on_error is OnError.FAIL:
            raise as_error(parsed.rejected[0], self._source.name)
        if parsed.record is not None:
            self._take_record(parsed.record)
        now = max(wall_clock(), self.progress.high or 0)
        stamped = stamp(self._source, parsed.batch, self._columns, self._needed, self.progress, now)
        if stamped.reasons and self._source.on_error is OnError.FAIL:
            record = shown_row(parsed.batch, int(stamped.unusable[0]))
            raise as_error(Rejected(self._source.name, None, record, stamped.reasons[0]), self._source.name)
        self.progress = self.progress.merge(stamped.progress)
        self._said.append(stamped.spoken)
        for scan in self._scans:
            scan.rows_in += parsed.batch.num_rows + len(parsed.rejected)
            scan.rows_out += len(stamped.elements.valid())
            scan.nanoseconds += time.process_time_ns() - start
        self._count(LATE_ROWS, len(stamped.late))
        self._count(REJECTED_ROWS, len(parsed.rejected) + len(stamped.unusable))
        return [stamped.elements]

    def _take_record(self, record: StreamRecord) -> None:
        """Take a heartbeat or a punctuation that is no row."""
        after = after_record(self._source, record, self.progress)
        if isinstance(after, str):
            tick = record.tick if isinstance(record, Heartbeat) else self.progress.high or 0
            self.reject(Rejection(self._source.name, tick, shown_record(self._source, record), after))
            return
        self._said.append(spoken_after(record, self.progress))
        self.progress = after

    def punctuations(self) -> list[Elements]:
        """Return what operators get of the punctuations that have been read since the last call."""
        found, self._said = [one for one in self._said if one is not None], []
        return found

    def reject(self, rejection: Rejection) -> None:
        """Count an update that its relation could not apply, or raise its error for ON ERROR FAIL."""
        if self._source.on_error is OnError.FAIL:
            raise as_error(Rejected(rejection.source, None, rejection.record, rejection.reason), self._source.name)
        self._count(REJECTED_ROWS, 1)

    def _count(self, figure: Figure, count: int) -> None:
        for scan in self._scans if count else ():
            scan.counted[figure] = scan.counted.get(figure, 0) + count


def _drive(job: LocalJob, readers: Mapping[str, _Reader], meter: Meter) -> None:
    """Run rounds until every source has ended."""
    while True:
        unfinished = {name: r for name, r in readers.items() if not r.progress.ended}
        stamped: dict[str, list[Elements]] = {}
        if unfinished:
            name, reader = min(unfinished.items(), key=lambda item: _high(item[1]))
            stamped[name] = reader.next()
        spoken = {name: reader.punctuations() for name, reader in unfinished.items()}
        job.round(stamped, {name: r.progress for name, r in readers.items()}, spoken=spoken)
        meter.sample()
        for rejection in job.rejected:
            readers[rejection.source].reject(rejection)
        job.rejected.clear()
        if all(r.progress.ended for r in readers.values()):
            return


def _high(reader: _Reader) -> int:
    high = reader.progress.high
    return NOTHING if high is None else high
