"""Report on a run while it works: metrics as lines of JSON and for Prometheus, events for the log, and a warning or an
error when state grows beyond its limit.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from penstock.algebra.nodes.scans import Source
from penstock.errors import PenstockError, counted, malformed_rows
from penstock.events import log_event, logger_of
from penstock.physical.execution.ingest import unit_warning
from penstock.physical.plan.plan import Plan
from penstock.runtime.decisions.deciders import Deciders, DecidingOptions, QueryPolicies
from penstock.runtime.decisions.registry import REGISTRY
from penstock.runtime.monitoring.figures import BatchFigures
from penstock.runtime.monitoring.growth import GrowthDetector
from penstock.runtime.monitoring.metrics import RunMetrics
from penstock.runtime.monitoring.recorder import Recorder, Totals
from penstock.runtime.monitoring.reports import IngestReport, ShardReport
from penstock.runtime.monitoring.shedding_log import SheddingLog
from penstock.settings import Settings

if TYPE_CHECKING:
    from penstock.runtime.monitoring.prometheus import Endpoint

LOG = logger_of("runtime")

#: A batch with more than this part of its rows late counts as a burst.
_BURST = 0.01


@dataclass(frozen=True)
class ReportOptions:
    """What is reported.

    Args:
        metrics_file: file for lines of JSON, None for none.
        metrics_port: port of the endpoint, None for none.
        state_limit: bytes of state, 0 for no limit.
        fail: end the run beyond the limit, else warn.
        shed: have queries that coalesce shed beyond the limit.
        horizons: as in `GrowthDetector`.
        target_latency: seconds that a round may take, 0 for any.
    """

    metrics_file: str | None = None
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"
    state_limit: int = 0
    fail: bool = False
    horizons: Mapping[str, float] = field(default_factory=dict)
    shed: bool = False
    target_latency: float = 0.0
    max_answers: int = DecidingOptions.max_answers

    def deciding(self, policies: QueryPolicies) -> DecidingOptions:
        """Return the options of the deciders."""
        return DecidingOptions(self.shared_limit, policies, self.target_latency, self.max_answers)

    @property
    def shared_limit(self) -> int:
        """Return the bytes of state that queries which shed may hold together, 0 for no limit."""
        return self.state_limit if self.shed else 0

    @staticmethod
    def of(settings: Settings, horizons: Mapping[str, float] | None = None) -> ReportOptions:
        return ReportOptions(
            settings["metrics_file"] or None,
            settings["metrics_port"],
            settings["metrics_address"],
            settings["state_limit"],
            settings["state_limit_action"] == "fail",
            horizons or {},
            settings["state_limit_action"] == "shed",
            settings["target_latency"] or 0.0,
            settings["max_batch_answers"],
        )


class Reporter:
    """Reports on one run.

    Args:
        now: returns the present metrics, for the endpoint.
        clock: seconds since 1970.
        before: the last metrics of an earlier process.
        policies: of queries.
        on_batch: receives the figures of each batch, before its answers count as delivered: a batch that is repeated
            after a crash is received again.
    """

    def __init__(
        self,
        recorder: Recorder,
        report_options: ReportOptions,
        now: Callable[[], RunMetrics],
        clock: Callable[[], float] = time.time,
        before: RunMetrics | None = None,
        on_batch: Callable[[BatchFigures], None] | None = None,
        policies: QueryPolicies | None = None,
    ) -> None:
        self.recorder = recorder
        self.deciders = Deciders(recorder.plan, report_options.deciding(policies or QueryPolicies()), registry=REGISTRY)
        self._on_batch = on_batch
        self._options = report_options
        self._clock = clock
        self._growth = GrowthDetector(report_options.horizons)
        self._is_over_limit = False
        self._previous_metrics = before
        #: Sources whose UNIT has been looked at.
        self._units_seen: set[str] = set()
        self._shedding = SheddingLog()
        self._metrics_file: TextIO | None = None
        self._endpoint: Endpoint | None = None
        if report_options.metrics_file is not None:
            self._metrics_file = _open_for_append(report_options.metrics_file)
        if report_options.metrics_port is not None:
            # Imported here, so that a run without an endpoint starts without an HTTP server.
            from penstock.runtime.monitoring.prometheus import Endpoint

            self._endpoint = Endpoint(now, report_options.metrics_port, report_options.metrics_address)
            address = f"http://{report_options.metrics_address}:{self._endpoint.port}/metrics"
            log_event(LOG, logging.INFO, "endpoint", f"metrics at {address}", address=address)

    def report(self, report: IngestReport | ShardReport) -> None:
        """Add the report of a task of the batch in progress."""
        self.recorder.report(report)
        self.deciders.report(report)

    def changed(
        self,
        plan: Plan,
        sources: Mapping[str, Source],
        policies: QueryPolicies,
        target_latency: float,
        horizons: Mapping[str, float],
    ) -> None:
        """Continue with another plan.

        Args:
            target_latency: seconds that a round may take from now on, 0 for any.
            horizons: of operators that are new, as in `GrowthDetector`.
        """
        self._growth.forget(self.recorder.changed(plan, sources))
        self._growth.expect(horizons)
        self._shedding.keep(plan.queries)
        self._options = replace(self._options, target_latency=target_latency)
        self.deciders.changed(plan, self._options.deciding(policies))

    @property
    def port(self) -> int | None:
        """Return the port on which the endpoint listens."""
        return None if self._endpoint is None else self._endpoint.port

    def batch(
        self,
        number: int,
        duration: float,
        sink: float,
        cores: int,
        totals: Totals,
        delivered: Mapping[str, float] | None = None,
        failed: Sequence[str] = (),
    ) -> None:
        """Report batch `number`, which the sinks have received. delivered, failed: as in `Recorder.batch`. Raises
        PenstockError P0632 when its state exceeds the limit.
        """
        self.deciders.took(duration, cores)
        run = self.recorder.batch(duration, sink, cores, totals, number, delivered, failed)
        if self._on_batch is not None:
            self._on_batch(self.recorder.last_batch)
        self._write_line(number, run)
        log_event(
            LOG,
            logging.INFO,
            "batch",
            f"batch {number} took {duration:.3f} s",
            batch=number,
            seconds=round(duration, 6),
            phases={p: round(s, 6) for p, s in run.last_phases.items()},
            rows={name: source.rows for name, source in run.sources.items()},
            results={name: query.rows for name, query in run.queries.items()},
            state_bytes=run.state_bytes,
        )
        self._warn_of_excluded(run)
        self._warn_of_units(totals)
        self._look_for_growth(run)
        self._shedding.batch(run)
        self._previous_metrics = run
        self._check_limit(run)

    def close(self) -> None:
        self._shedding.end()
        if self._metrics_file is not None:
            self._metrics_file.close()
            self._metrics_file = None
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def _write_line(self, number: int, run: RunMetrics) -> None:
        if self._metrics_file is None:
            return
        stamp = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        try:
            self._metrics_file.write(
                json.dumps({"time": stamp, "batch": number, **run.as_json()}, ensure_ascii=False) + "\n"
            )
            self._metrics_file.flush()
        except OSError as error:
            # A metrics file that cannot be written does not end the run.
            log_event(LOG, logging.WARNING, "metrics", f"metrics cannot be written: {error.strerror}")
            self._metrics_file = None

    def _warn_of_excluded(self, run: RunMetrics) -> None:
        """Warn of bursts of late elements, and of dead letters."""
        for name, source in run.sources.items():
            previous = self._previous_metrics.sources.get(name) if self._previous_metrics else None
            rows, late, malformed = (
                getattr(source, field_name) - (getattr(previous, field_name) if previous else 0)
                for field_name in ("rows", "late", "malformed")
            )
            if late > _BURST * max(1, rows):
                log_event(
                    LOG,
                    logging.WARNING,
                    "late",
                    f"{late:,} of {counted(rows, 'row')} of {name} came late",
                    source=name,
                    late=late,
                    rows=rows,
                )
            if malformed:
                log_event(
                    LOG,
                    logging.WARNING,
                    "dead_letters",
                    malformed_rows(malformed, name),
                    source=name,
                    malformed=malformed,
                )

    def _warn_of_units(self, totals: Totals) -> None:
        """Warn, once a source, of timestamps that seem to have another UNIT than the declared one."""
        for name, tick in (totals.source_heartbeats or {}).items():
            if name in self._units_seen or name not in self.recorder.sources:
                continue
            self._units_seen.add(name)
            warning = unit_warning(self.recorder.sources[name], tick)
            if warning is not None:
                log_event(LOG, logging.WARNING, "unit", warning, source=name)

    def _look_for_growth(self, run: RunMetrics) -> None:
        # Of an operator that did not run, time has not advanced either.
        for operator in self.recorder.take_touched():
            heartbeats = [run.queries[q].heartbeat for q in operator.queries if q in run.queries]
            times = [time for time in heartbeats if time is not None]
            growth = self._growth.look(operator.name, min(times), operator.state_bytes) if times else None
            if growth is None:
                continue
            queries = ", ".join(operator.queries)
            log_event(
                LOG,
                logging.WARNING,
                "unbounded_state",
                f"the state of {operator.name} of {queries} grows without bound: {growth.size:,} bytes now, "
                f"{growth.slope:,.0f} more with every second of its time; a window, or PARTITION BY with few values, "
                "would bound it",
                operator=operator.name,
                queries=list(operator.queries),
                bytes=growth.size,
                bytes_per_second=growth.slope,
            )

    def _check_limit(self, run: RunMetrics) -> None:
        limit = self._options.state_limit
        if not limit or run.state_bytes <= limit:
            self._is_over_limit = False
            return
        largest = max(run.operators, key=lambda o: o.state_bytes)
        message = (
            f"the state has {run.state_bytes:,} bytes, more than state_limit allows ({limit:,}); the most is that of "
            f"{largest.name} of {', '.join(largest.queries)}: {largest.state_bytes:,}"
        )
        ended = self.recorder.ended_by_promises(largest.name)
        message += f" ({ended})" if ended else ""
        if self._options.fail:
            hint = "raise state_limit and run again with the same --checkpoint, or give the query a smaller window"
            raise PenstockError("P0632", message, hint=hint)
        if not self._is_over_limit:
            log_event(LOG, logging.WARNING, "state_limit", message, bytes=run.state_bytes, limit=limit)
        self._is_over_limit = True


def log_of_run(
    event: str, message: str, failure: PenstockError | None, queries: Iterable[str], checkpoint: Path, batches: int
) -> None:
    """Log that a run starts or ends; with a `failure` as an error."""
    fields: dict[str, Any] = {"queries": sorted(queries), "checkpoint": str(checkpoint)}
    if failure is not None:
        # The caller that waits for the run gets the whole error: the log does not repeat it.
        fields |= {"error": failure.code, "reason": failure.message}
    level = logging.INFO if failure is None else logging.ERROR
    log_event(LOG, level, event, message, batches=batches, **fields)


def _open_for_append(place: str) -> TextIO:
    """Open a file for appending. Raises PenstockError P0631."""
    try:
        return Path(place).open("a", encoding="utf-8")
    except OSError as error:
        raise PenstockError("P0631", f"metrics cannot be written to {place}: {error.strerror}", cause=error) from error
