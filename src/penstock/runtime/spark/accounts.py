"""The accounts of a job on Spark: rows, records kept out and batches, added up since the job began.

They are a mark of the folder, written after every batch, so a run that goes on counts on. What ingest tasks saw lies in
the folder by round and is added once a round, however often Spark does a batch again. Heartbeats are of this run alone.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.algebra.scans import Source
from penstock.connectors.contract import Sink
from penstock.physical.plan import Plan
from penstock.physical.progress import NOTHING
from penstock.runtime.progress import QueryCounts, RunProgress, SourceCounts
from penstock.runtime.recorder import Backlog, Totals
from penstock.runtime.spark.folder import Folder
from penstock.types import END

_MARK = "totals"
#: So many reasons of malformed records are counted apart, by source.
MOST_REASONS = 100
OTHER_REASONS = "other reasons"


class Accounts:
    """Kept by the thread that delivers, read by those that ask how the run is getting on."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        nothing: dict[str, Any] = {"rounds": [], "batch": -1, "sources": {}, "queries": {}}
        self._totals: dict[str, Any] = folder.read_mark(_MARK) or nothing
        self._heartbeats: dict[str, int] = {}
        self._source_heartbeats: dict[str, int] = {}
        #: Rows that earlier runs of the job have read.
        self.rows_before: int = sum(s["rows"] for s in self._totals["sources"].values())

    @property
    def batches(self) -> int:
        """How many the job has delivered."""
        batches: int = self._totals["batch"] + 1
        return batches

    def heard(self, queries: dict[str, int], sources: dict[str, int]) -> None:
        """The heartbeats of now, in ticks."""
        with self._lock:
            self._heartbeats, self._source_heartbeats = queries, sources

    def delivered(self, batch: int, rows: Mapping[str, int], malformed: Mapping[str, Mapping[str, int]]) -> None:
        """Rows by query that a batch gave its sinks, malformed records by source and reason that its stages met.
        A batch that is done again counts once."""
        with self._lock:
            if batch <= self._totals["batch"]:
                return
            self._totals["batch"] = batch
            queries = self._totals["queries"]
            for name, count in rows.items():
                queries[name] = queries.get(name, 0) + count
            for source, reasons in malformed.items():
                self._add_malformed(source, reasons)

    def close_batch(self) -> None:
        """Add up what the ingest tasks saw, once per round, forget rounds that nobody needs any more, write it down."""
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
            self._folder.write_mark(_MARK, self._totals)

    def _add_malformed(self, source: str, reasons: Mapping[str, int]) -> dict[str, Any]:
        """The totals of `source`, with so many malformed records more."""
        total: dict[str, Any] = self._totals["sources"].setdefault(source, _untouched())
        for reason, count in reasons.items():
            found = total["malformed"]
            # Reasons may hold numbers: what is told of them must not grow with the input.
            kind = reason if reason in found or len(found) < MOST_REASONS else OTHER_REASONS
            found[kind] = found.get(kind, 0) + count
        return total

    def totals(self, backlog: Mapping[str, Backlog], waiting: Mapping[str, int], batch_bytes: int) -> Totals:
        with self._lock:
            counts = self._totals["sources"].items()
            sources = {n: (c["rows"], c["late"], sum(c["malformed"].values())) for n, c in counts}
            return Totals(
                self.batches, sources, dict(self._totals["queries"]), dict(self._source_heartbeats),
                dict(self._heartbeats), backlog, batch_bytes, waiting, {n: c.get("passed", 0) for n, c in counts},
            )  # fmt: skip

    def progress(
        self, plan: Plan, sources: Mapping[str, Source], sinks: Mapping[str, Sink],
        backlog: Mapping[str, Backlog], waiting: Mapping[str, int],
    ) -> RunProgress:  # fmt: skip
        """The accounts as people read them, but for times and speeds."""
        with self._lock:
            found = RunProgress(batches=self.batches)
            for name, source in sources.items():
                counts = self._totals["sources"].get(name) or _untouched()
                needed = source.domain.show_length(counts["lag"]) if counts["late"] and source.domain else None
                found.sources[name] = SourceCounts(
                    counts["rows"], counts["late"], sum(counts["malformed"].values()), needed,
                    dict(counts["malformed"]), _known_to(source, self._source_heartbeats.get(name)),
                    backlog.get(name, (0, 0))[1], waiting.get(name),
                )  # fmt: skip
            known = {name: h for name, h in self._heartbeats.items() if NOTHING < h < END}
            for name, query in plan.queries.items():
                shown = query.domain.show(known[name]) if name in known else ""
                found.queries[name] = QueryCounts(self._totals["queries"].get(name, 0), shown, sinks[name].place)
        found.rows_in = sum(s.rows for s in found.sources.values())
        found.rows_out = sum(q.rows for q in found.queries.values())
        found.heartbeat = found.queries[min((h, n) for n, h in known.items())[1]].heartbeat if known else ""
        return found


def forget_totals(folder: Folder, queries: Iterable[str], kept: set[str]) -> None:
    """The totals of `queries`, and of sources but those `kept`, count from now on."""
    totals = folder.read_mark(_MARK)
    if totals is not None:
        for name in queries:
            totals["queries"].pop(name, None)
        totals["sources"] = {name: counts for name, counts in totals["sources"].items() if name in kept}
        folder.write_mark(_MARK, totals)


def _untouched() -> dict[str, Any]:
    return {"rows": 0, "late": 0, "lag": 0, "malformed": {}}


def _known_to(source: Source, heartbeat: int | None) -> str:
    """A source's heartbeat as people read it."""
    if heartbeat is None or heartbeat <= NOTHING or source.domain is None:
        return ""
    return "ended" if heartbeat >= END else source.domain.show(heartbeat)
