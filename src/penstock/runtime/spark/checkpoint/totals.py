"""Totals of a job on Spark: rows, rejected records and batches since the job began.

They are a mark of the folder, written after every batch, so that a restarted run continues counting. What ingest tasks
observed is stored in the folder by round and added once per round, however often Spark repeats a batch. Heartbeats are
of this run alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.algebra.nodes.scans import Source
from penstock.connectors.contract import Sink
from penstock.physical.execution.progress import NOTHING
from penstock.physical.plan.plan import Plan
from penstock.runtime.spark.checkpoint.folder import Folder
from penstock.runtime.watching.progress import QueryCounts, RunProgress, SourceCounts
from penstock.runtime.watching.recorder import Backlog, Totals
from penstock.runtime.watching.time_jumps import warn_of_jumps
from penstock.storage.seals import damaged
from penstock.types import END

_MARK = "totals"
#: In the totals: by query, the rows among its own that a backfill wrote.
_BACKFILLED = "backfilled"
#: Maximum number of reasons of malformed records counted separately, by source.
MOST_REASONS = 100
OTHER_REASONS = "other reasons"


class RunTotals:
    """Totals of a job; updated by the thread that delivers, read by others that report progress."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        nothing: dict[str, Any] = {"rounds": [], "batch": -1, "sources": {}, "queries": {}}
        self._totals: dict[str, Any] = folder.read_mark(_MARK) or nothing
        if self._totals["batch"] < folder.delivered().batch:
            raise damaged(folder.root / f"{_MARK}.json", ValueError("it is older than delivered.json, or gone"))
        self._heartbeats: dict[str, int] = {}
        self._source_heartbeats: dict[str, int] = {}
        #: Rows read by earlier runs of the job.
        self.rows_before: int = sum(s["rows"] for s in self._totals["sources"].values())

    @property
    def batches(self) -> int:
        """Number of batches that the job has delivered."""
        batches: int = self._totals["batch"] + 1
        return batches

    def heard(self, queries: dict[str, int], sources: dict[str, int]) -> None:
        """Set the present heartbeats, in ticks."""
        with self._lock:
            self._heartbeats, self._source_heartbeats = queries, sources

    def delivered(self, batch: int, rows: Mapping[str, int], malformed: Mapping[str, Mapping[str, int]]) -> None:
        """Add a delivered batch; one that is repeated counts once.

        Args:
            rows: by query, rows written to its sink.
            malformed: by source and reason, malformed records that its stages met.
        """
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
        """Add what the ingest tasks observed, once per round, remove rounds that are no longer needed, and write the
        totals.
        """
        with self._lock:
            fresh = [r for r in self._folder.rounds() if r not in self._totals["rounds"]]
            for name in fresh:
                for source, seen in self._folder.read_seen(name).items():
                    total = self._add_malformed(source, seen.malformed)
                    total["rows"] += seen.rows
                    total["late"] += seen.late
                    total["passed"] = total.get("passed", 0) + seen.passed
                    total["lag"] = max(total["lag"], seen.lag)
                    total["jump"] = max(total.get("jump", 0), seen.jump)
            kept = sorted(set(self._totals["rounds"]) | set(fresh))
            for prefix in ("b", "0123456789"):
                rounds = [r for r in kept if r[0] in prefix]
                for old in rounds[:-4]:
                    self._folder.forget_seen(old)
                    kept.remove(old)
            self._totals["rounds"] = kept
            self._folder.write_mark(_MARK, self._totals)

    def backfilled(self, epoch: int, rows: Mapping[str, int], malformed: Mapping[str, Mapping[str, int]]) -> None:
        """Add the rows that the backfill of `epoch` wrote before its first batch. Adding the same epoch again changes
        nothing: an interrupted backfill is repeated with the same result.
        """
        with self._lock:
            if self._totals.get("backfilled_epoch") == epoch:
                return
            self._totals["backfilled_epoch"] = epoch
            for name, count in rows.items():
                self._totals["queries"][name] = count
                self._totals.setdefault(_BACKFILLED, {})[name] = count
            for source, reasons in malformed.items():
                self._add_malformed(source, reasons)
            self._folder.write_mark(_MARK, self._totals)

    def warn_of_jumps(self, plan: Plan) -> None:
        """Warn once of every source whose time jumped, including what is being read at this moment."""
        with self._lock:
            jumps = {name: counts.get("jump", 0) for name, counts in self._totals["sources"].items()}
            for name in (r for r in self._folder.rounds() if r not in self._totals["rounds"]):
                for source, seen in self._folder.read_seen(name).items():
                    jumps[source] = max(seen.jump, jumps.get(source, 0))
            warned = set(self._totals.get("jumped", ()))
            warn_of_jumps(plan.sources, jumps, [query.root for query in plan.queries.values()], warned)
            if len(warned) > len(self._totals.get("jumped", ())):
                self._totals["jumped"] = sorted(warned)

    def _add_malformed(self, source: str, reasons: Mapping[str, int]) -> dict[str, Any]:
        """Add counts of malformed records to the totals of `source`, and return these."""
        total: dict[str, Any] = self._totals["sources"].setdefault(source, _untouched())
        for reason, count in reasons.items():
            by_reason = total["malformed"]
            # Reasons may contain numbers, so their count is bounded, lest the totals grow with the input.
            kind = reason if reason in by_reason or len(by_reason) < MOST_REASONS else OTHER_REASONS
            by_reason[kind] = by_reason.get(kind, 0) + count
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
        """Return the totals formatted for people, without durations and rates."""
        self.warn_of_jumps(plan)
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
                found.queries[name] = QueryCounts(
                    self._totals["queries"].get(name, 0),
                    shown,
                    sinks[name].place,
                    self._totals.get(_BACKFILLED, {}).get(name, 0),
                )
        found.rows_in = sum(s.rows for s in found.sources.values())
        found.rows_out = sum(q.rows for q in found.queries.values())
        found.heartbeat = found.queries[min((h, n) for n, h in known.items())[1]].heartbeat if known else ""
        return found


def forget_totals(folder: Folder, queries: Iterable[str], kept: set[str]) -> None:
    """Reset the totals of `queries`, and of all sources except `kept`."""
    totals = folder.read_mark(_MARK)
    if totals is not None:
        totals.pop("backfilled_epoch", None)
        for name in queries:
            totals["queries"].pop(name, None)
            totals.get(_BACKFILLED, {}).pop(name, None)
        totals["sources"] = {name: counts for name, counts in totals["sources"].items() if name in kept}
        folder.write_mark(_MARK, totals)


def _untouched() -> dict[str, Any]:
    return {"rows": 0, "late": 0, "lag": 0, "malformed": {}}


def _known_to(source: Source, heartbeat: int | None) -> str:
    """Return a source's heartbeat as text."""
    if heartbeat is None or heartbeat <= NOTHING or source.domain is None:
        return ""
    return "ended" if heartbeat >= END else source.domain.show(heartbeat)
