"""Totals of a job on Spark: rows, rejected records and batches since the job began.

They are a mark of the folder, written after every batch, so that a restarted run continues counting. What ingest tasks
observed is stored in the folder by round and added once per round, however often Spark repeats a batch. Heartbeats are
of this run alone.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import Sink
from penstock.connectors.deadletters import DeadLetters
from penstock.physical.execution.progress import NOTHING
from penstock.physical.plan.plan import Plan
from penstock.runtime.monitoring.progress import QueryCounts, RunProgress, SourceCounts
from penstock.runtime.monitoring.recorder import Backlog, Recorder, Totals
from penstock.runtime.monitoring.time_jumps import warn_of_jumps
from penstock.runtime.rejected_rows import add_counts
from penstock.runtime.spark.checkpoint.folder import Folder, Seen
from penstock.runtime.spark.output.refused_rows import refused_in
from penstock.storage.documents import Document
from penstock.storage.names import file_name
from penstock.storage.seals import damaged
from penstock.types import END, TimeDomain

_MARK = "totals"


@dataclass
class SourceTotals:
    """Totals of one source.

    Args:
        lag: the slack that would have kept its late elements, in ticks.
        malformed: malformed records by reason.
        passed: rows that readers skipped because no query reads them.
        jump: the most ticks by which one element advanced the largest timestamp.
    """

    rows: int = 0
    late: int = 0
    lag: int = 0
    malformed: dict[str, int] = field(default_factory=dict)
    passed: int = 0
    jump: int = 0

    def add(self, seen: Seen) -> None:
        """Add what the tasks of a round observed, malformed records aside."""
        self.rows += seen.rows
        self.late += seen.late
        self.passed += seen.passed
        self.lag = max(self.lag, seen.lag)
        self.jump = max(self.jump, seen.jump)

    def add_malformed(self, reasons: Mapping[str, int]) -> None:
        """Add counts of malformed records by reason."""
        add_counts(reasons, self.malformed)


@dataclass
class TotalsMark:
    """The totals as the checkpoint keeps them.

    Args:
        rounds: rounds that are counted and whose observations are still in the folder.
        batch: the last batch that is counted, -1 for none.
        queries: by query, the rows written to its sink.
        backfilled: by query, the rows among these that a backfill wrote.
        refused: by query and reason, the rows that its sink could not hold.
        backfilled_epoch: the epoch of that backfill.
        jumped: sources of whose jumps in time a warning was given.
        at_ingest: by query, what its operators at the ingest have counted.
        heartbeats, source_heartbeats: by query and by source, in ticks, those after the last batch.
    """

    rounds: list[str] = field(default_factory=list)
    batch: int = -1
    sources: dict[str, SourceTotals] = field(default_factory=dict)
    queries: dict[str, int] = field(default_factory=dict)
    backfilled: dict[str, int] = field(default_factory=dict)
    refused: dict[str, dict[str, int]] = field(default_factory=dict)
    backfilled_epoch: int | None = None
    jumped: list[str] = field(default_factory=list)
    at_ingest: dict[str, Document] = field(default_factory=dict)
    heartbeats: dict[str, int] = field(default_factory=dict)
    source_heartbeats: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def read(folder: Folder) -> TotalsMark | None:
        """Return the mark of a checkpoint, None before the first batch."""
        fields = folder.read_mark(_MARK)
        if fields is None:
            return None
        sources = {name: SourceTotals(**counts) for name, counts in fields.pop("sources").items()}
        return TotalsMark(sources=sources, **fields)

    def write(self, folder: Folder) -> None:
        # Not `asdict`, which copies every number: a run may have thousands of queries.
        folder.write_mark(_MARK, vars(self) | {"sources": {name: vars(one) for name, one in self.sources.items()}})

    def of(self, source: str) -> SourceTotals:
        """Return the totals of a source, to add to."""
        return self.sources.setdefault(source, SourceTotals())


class RunTotals:
    """Totals of a job; updated by the thread that delivers, read by others that report progress."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._dead_letters = DeadLetters(folder.dead_letters)
        self._lock = threading.Lock()
        self._totals = TotalsMark.read(folder) or TotalsMark()
        if self._totals.batch < folder.delivered().batch:
            raise damaged(folder.root / f"{_MARK}.json", ValueError("it is older than delivered.json, or gone"))
        # Nothing may come for a long time, so those of an earlier process count.
        self._heartbeats, self._source_heartbeats = self._totals.heartbeats, self._totals.source_heartbeats
        #: The largest jumps of which it was last decided whether to warn, of the same queries.
        self._looked_at: dict[str, int] = {}
        #: Rows read by earlier runs of the job.
        self.rows_before: int = sum(s.rows for s in self._totals.sources.values())

    @property
    def batches(self) -> int:
        """Number of batches that the job has delivered."""
        return self._totals.batch + 1

    @property
    def heartbeats(self) -> tuple[dict[str, int], dict[str, int]]:
        """Return the present heartbeats of the queries and of the sources, in ticks."""
        with self._lock:
            return dict(self._heartbeats), dict(self._source_heartbeats)

    @property
    def rows(self) -> dict[str, int]:
        """Return by query the rows that its sink has received."""
        with self._lock:
            return {name: self._totals.queries.get(name, 0) for name in self._heartbeats}

    def set_heartbeats(self, queries: dict[str, int], sources: dict[str, int]) -> None:
        """Set the present heartbeats, in ticks."""
        with self._lock:
            self._heartbeats, self._source_heartbeats = queries, sources

    def reread(self, plan: Plan) -> RunTotals:
        """Return the totals as the checkpoint holds them after a change of the queries, which are those of `plan`."""
        totals = RunTotals(self._folder)
        totals._heartbeats = {name: tick for name, tick in self._heartbeats.items() if name in plan.queries}
        totals._source_heartbeats = {n: tick for n, tick in self._source_heartbeats.items() if n in plan.sources}
        totals.rows_before = self.rows_before
        return totals

    def delivered(
        self,
        batch: int,
        rows: Mapping[str, int],
        malformed: Mapping[str, Mapping[str, int]],
        recorder: Recorder | None = None,
    ) -> None:
        """Add a delivered batch; one that is repeated counts once.

        Args:
            rows: by query, rows written to its sink.
            malformed: by source and reason, malformed records that its stages met.
            recorder: has what its tasks at the ingest counted.
        """
        with self._lock:
            if batch <= self._totals.batch:
                if recorder is not None:
                    recorder.at_ingest = self._totals.at_ingest
                return
            self._totals.batch = batch
            if recorder is not None:
                self._totals.at_ingest = dict(recorder.at_ingest)
            queries = self._totals.queries
            letters = self._dead_letters.folders()
            for name, count in rows.items():
                queries[name] = queries.get(name, 0) + count
                if letters and file_name(name) in letters:
                    self._add_refused(name, refused_in(self._dead_letters, name, batch))
            for source, reasons in malformed.items():
                self._totals.of(source).add_malformed(reasons)

    def close_batch(self) -> None:
        """Add what the ingest tasks observed, once per round, remove rounds that are no longer needed, and write the
        totals.
        """
        with self._lock:
            new_rounds = [r for r in self._folder.rounds() if r not in self._totals.rounds]
            for name in new_rounds:
                for source, seen in self._folder.read_seen(name).items():
                    total = self._totals.of(source)
                    total.add_malformed(seen.malformed)
                    total.add(seen)
            kept_rounds = sorted(set(self._totals.rounds) | set(new_rounds))
            for prefix in ("b", "0123456789"):
                rounds = [r for r in kept_rounds if r[0] in prefix]
                for round_ in rounds[:-4]:
                    self._folder.forget_seen(round_)
                    kept_rounds.remove(round_)
            self._totals.rounds = kept_rounds
            self._totals.heartbeats, self._totals.source_heartbeats = self._heartbeats, self._source_heartbeats
            self._totals.write(self._folder)

    def backfilled(
        self, epoch: int, rows: Mapping[str, int], malformed: Mapping[str, Mapping[str, int]], batches: int = 0
    ) -> None:
        """Add the rows that the backfill of `epoch` wrote before its first batch. Adding the same epoch again changes
        nothing: an interrupted backfill is repeated with the same result.

        Args:
            batches: how many batches it wrote.
        """
        with self._lock:
            if self._totals.backfilled_epoch == epoch:
                return
            self._totals.backfilled_epoch = epoch
            for name, count in rows.items():
                self._totals.queries[name] = self._totals.backfilled[name] = count
                self._totals.refused.pop(name, None)
                for batch in range(batches):
                    self._add_refused(name, refused_in(self._dead_letters, name, batch))
            for source, reasons in malformed.items():
                self._totals.of(source).add_malformed(reasons)
            self._totals.write(self._folder)

    def warn_of_jumps(self, plan: Plan) -> None:
        """Warn once of every source whose time jumped, including what is being read at this moment."""
        with self._lock:
            jumps = {name: counts.jump for name, counts in self._totals.sources.items()}
            for name in (r for r in self._folder.rounds() if r not in self._totals.rounds):
                for source, seen in self._folder.read_seen(name).items():
                    jumps[source] = max(seen.jump, jumps.get(source, 0))
            if jumps == self._looked_at:
                return
            self._looked_at = jumps
            warned_sources = set(self._totals.jumped)
            warn_of_jumps(plan.sources, jumps, [query.root for query in plan.queries.values()], warned_sources)
            if len(warned_sources) > len(self._totals.jumped):
                self._totals.jumped = sorted(warned_sources)

    def _add_refused(self, query: str, reasons: Mapping[str, int]) -> None:
        if reasons:
            add_counts(reasons, self._totals.refused.setdefault(query, {}))

    def totals(self, backlog: Mapping[str, Backlog], waiting: Mapping[str, int], batch_bytes: int) -> Totals:
        with self._lock:
            counts = self._totals.sources.items()
            sources = {n: (c.rows, c.late, sum(c.malformed.values())) for n, c in counts}
            return Totals(
                self.batches,
                sources,
                dict(self._totals.queries),
                dict(self._source_heartbeats),
                dict(self._heartbeats),
                backlog,
                batch_bytes,
                waiting,
                {n: c.passed for n, c in counts},
                self._totals.at_ingest,
            )

    def progress(
        self,
        plan: Plan,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        backlog: Mapping[str, Backlog],
        waiting: Mapping[str, int],
    ) -> RunProgress:
        """Return the totals formatted for people, without durations and rates."""
        self.warn_of_jumps(plan)
        with self._lock:
            progress = self._sums(plan, sources)
            for name, source in sources.items():
                counts = self._totals.sources.get(name, SourceTotals())
                needed_slack = source.domain.show_length(counts.lag) if counts.late and source.domain else None
                progress.sources[name] = SourceCounts(
                    counts.rows,
                    counts.late,
                    sum(counts.malformed.values()),
                    needed_slack,
                    dict(counts.malformed),
                    _heartbeat_text(source, self._source_heartbeats.get(name)),
                    backlog.get(name, (0, 0))[1],
                    waiting.get(name),
                )
            heartbeats = {name: h for name, h in self._heartbeats.items() if NOTHING < h < END}
            for name, query in plan.queries.items():
                heartbeat_text = _instant_text(query.domain, heartbeats[name]) if name in heartbeats else ""
                progress.queries[name] = QueryCounts(
                    self._totals.queries.get(name, 0),
                    heartbeat_text,
                    sinks[name].place,
                    self._totals.backfilled.get(name, 0),
                    dict(self._totals.refused.get(name, {})),
                )
        return progress

    def sums(self, plan: Plan, sources: Collection[str]) -> RunProgress:
        """Return the sums over all sources and queries, without the counts of each."""
        with self._lock:
            return self._sums(plan, sources)

    def _sums(self, plan: Plan, sources: Collection[str]) -> RunProgress:
        rows_in = sum(self._totals.sources[name].rows for name in sources if name in self._totals.sources)
        rows_out = sum(self._totals.queries.get(name, 0) for name in plan.queries)
        heartbeats = self._heartbeats.items()
        known = ((tick, name) for name, tick in heartbeats if NOTHING < tick < END and name in plan.queries)
        least = min(known, default=None)
        heartbeat = "" if least is None else _instant_text(plan.queries[least[1]].domain, least[0])
        return RunProgress(rows_in, rows_out, heartbeat, batches=self.batches)


def forget_totals(folder: Folder, queries: Iterable[str], kept_sources: set[str]) -> None:
    """Reset the totals of `queries`, and of all sources except `kept_sources`. Writes nothing where there are none, as
    of a new query.
    """
    totals = TotalsMark.read(folder)
    if totals is None:
        return
    changes = totals.backfilled_epoch is not None
    totals.backfilled_epoch = None
    counted: list[dict[str, Any]] = [totals.queries, totals.backfilled, totals.refused, totals.at_ingest]
    counted.append(totals.heartbeats)
    for name in queries:
        for counts in counted:
            changes |= counts.pop(name, None) is not None
    kept = {name: counts for name, counts in totals.sources.items() if name in kept_sources}
    beats = {name: tick for name, tick in totals.source_heartbeats.items() if name in kept_sources}
    if changes or len(kept) < len(totals.sources) or len(beats) < len(totals.source_heartbeats):
        totals.sources, totals.source_heartbeats = kept, beats
        totals.write(folder)


def _instant_text(domain: TimeDomain, instant: int) -> str:
    """Return how far an answer is final; a drain of rows whose length depends on the row goes on to the last tick."""
    return "the end" if instant >= END - 1 else domain.show(instant)


def _heartbeat_text(source: Source, heartbeat: int | None) -> str:
    """Return a source's heartbeat as text."""
    if heartbeat is None or heartbeat <= NOTHING or source.domain is None:
        return ""
    return "ended" if heartbeat >= END else source.domain.show(heartbeat)
