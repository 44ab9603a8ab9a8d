"""Compute the metrics of a run from the reports of its tasks (`reports.py`), batch by batch, and from its totals."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.algebra.nodes.aggregate import constant_width
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import Source
from penstock.algebra.properties.statistics import seconds as in_seconds
from penstock.errors import counted
from penstock.figures.figure import FigureValues, put_together
from penstock.physical.execution.meter import StepFigures, closed_by_promises
from penstock.physical.execution.progress import NOTHING
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.plan_parts import changed_steps, observed_references
from penstock.runtime.monitoring.constraints import ConstraintMonitor
from penstock.runtime.monitoring.figures import BatchFigures, FigureKeeper, RunFigures
from penstock.runtime.monitoring.metrics import (
    ApproximationMetrics,
    FrequentMetrics,
    OperatorMetrics,
    PeriodMetrics,
    QueryMetrics,
    RunMetrics,
    SheddingMetrics,
    SourceMetrics,
)
from penstock.runtime.monitoring.operator_sums import OperatorSums
from penstock.runtime.monitoring.preference_metrics import PreferenceMetrics, preference_text
from penstock.runtime.monitoring.progress import RunProgress
from penstock.runtime.monitoring.reports import IngestReport, ShardReport, as_names, from_names
from penstock.runtime.monitoring.stopwatch import PHASES, Phases, share_out
from penstock.runtime.monitoring.taps import Taps
from penstock.storage.documents import Document
from penstock.types import END, TimeDomain

#: Number of splits discovered but not read yet, and their bytes.
Backlog = tuple[int, int]


#: Seconds after the end of a batch from which on rates are 0 where no other one has ended.
AT_REST = 10.0
#: Positions among the counts of a source.
_LATE, _MALFORMED = 1, 2

#: By query, figures by name, as totals keep them.
CountsAtIngest = Mapping[str, Document]


@dataclass(frozen=True)
class Totals:
    """Totals since the beginning.

    Args:
        sources: name -> (rows, late, malformed).
        queries: name -> rows.
        source_heartbeats, query_heartbeats: in ticks.
        backlog: by source.
        waiting: unread records of topics.
        passed: rows that readers skipped, by source.
        at_ingest: by query, what operators of stage 0 have counted.
    """

    batches: int = 0
    sources: Mapping[str, tuple[int, int, int]] | None = None
    queries: Mapping[str, int] | None = None
    source_heartbeats: Mapping[str, int] | None = None
    query_heartbeats: Mapping[str, int] | None = None
    backlog: Mapping[str, Backlog] | None = None
    batch_bytes: int = 0
    waiting: Mapping[str, int] | None = None
    passed: Mapping[str, int] | None = None
    at_ingest: CountsAtIngest | None = None


class Recorder:
    """Computes the metrics of one run of `plan`. sources: all sources read, static ones included; clock: seconds since
    1970.
    """

    def __init__(self, plan: Plan, sources: Mapping[str, Source], clock: Callable[[], float] = time.time) -> None:
        self._plan = plan
        self._sources = sources
        self._clock = clock
        self._tasks: dict[int, list[Phases]] = {}
        self._sums = OperatorSums(plan)
        #: By query, what its metrics were made of, and these.
        self._known: dict[str, tuple[object, QueryMetrics]] = {}
        #: By query, the width of the bounds of its sketches.
        self._widths: dict[str, tuple[Query, float | None]] = {}
        #: By stage and shard, the figures of its operators.
        self._shard_figures: dict[tuple[int, int], StepFigures] = {}
        #: By query, the sums of the figures of operators of stage 0 since the beginning.
        self._at_ingest: dict[str, FigureValues] = {}
        self._readers = {step.id: step.queries for step in plan.steps if step.stage == 0}
        self._run = RunMetrics()
        self._previous_totals = Totals()
        self._rates: tuple[dict[str, float], dict[str, float]] = ({}, {})
        #: When the last batch ended; rates are 0 some time after it.
        self._ended = 0.0
        self._figures = FigureKeeper()
        self._constraints = ConstraintMonitor(clock)
        self._keep_constraints()

    @property
    def plan(self) -> Plan:
        """Return the plan that runs."""
        return self._plan

    @property
    def sources(self) -> Mapping[str, Source]:
        """Return all sources that are read, by name."""
        return self._sources

    def report(self, report: IngestReport | ShardReport) -> None:
        """Add the report of a task of the batch in progress."""
        self._tasks.setdefault(report.stage, []).append(report.phases)
        self._figures.add(report, self._plan)
        if isinstance(report, IngestReport):
            if report.observed is not None:
                self._constraints.add(report.observed)
            for step, figures in report.figures.items():
                for query in self._readers.get(step, ()):
                    self._at_ingest[query] = put_together((self._at_ingest.get(query, {}), figures))
        if isinstance(report, ShardReport):
            self._sums.add(report)
            if report.figures:
                self._shard_figures[report.stage, report.shard] = report.figures

    def batch(
        self,
        duration: float,
        sink: float,
        cores: int,
        totals: Totals,
        number: int = 0,
        delivered: Mapping[str, float] | None = None,
        failed: Sequence[str] = (),
    ) -> RunMetrics:
        """Record the end of the batch in progress and return the metrics.

        Args:
            delivered: as in `FigureKeeper.batch`.
            failed: the queries that failed in it.
        """
        last = share_out(duration, self._tasks.values(), cores, sink)
        self._tasks = {}
        phases = {p: self._run.phases[p] + last[p] for p in PHASES}
        self._run = replace(
            self._run, seconds=self._run.seconds + duration, last_seconds=duration, phases=phases, last_phases=last
        )
        self._ended = self._clock()
        self._rates = (
            _rates({n: c[0] for n, c in (totals.sources or {}).items()}, self._previous_rows, duration),
            _rates(totals.queries or {}, self._previous_totals.queries or {}, duration),
        )
        rows_in = _added({n: c[0] for n, c in (totals.sources or {}).items()}, self._previous_rows)
        rows_out = _added(totals.queries or {}, self._previous_totals.queries or {})
        run = self.metrics(totals)
        lags = [query.lag for query in run.queries.values() if query.lag is not None]
        late, malformed = (
            sum(_added(_counts(totals, i), _counts(self._previous_totals, i)).values()) for i in (_LATE, _MALFORMED)
        )
        batch = BatchFigures(
            number,
            self._clock(),
            duration,
            last,
            rows_in,
            rows_out,
            late,
            malformed,
            tuple(failed),
            max(lags, default=None),
            sum(source.backlog_bytes for source in run.sources.values()),
            sum(source.backlog_records for source in run.sources.values()),
            run.state_rows,
            run.state_bytes,
        )
        self._figures.batch(batch, delivered or {})
        self._constraints.advance(totals.source_heartbeats or {})
        self._previous_totals = totals
        return run

    def figures(self) -> RunFigures:
        """Return the present figures of steps, edges, synopses and batches."""
        return replace(self._figures.figures(self._plan), constraints=self._constraints.measures())

    def ended_by_promises(self, operator: str) -> str:
        """Return how much of the state of an operator is open, and what each promise has closed of it; empty where none
        ends it.

        Args:
            operator: as `OperatorMetrics.name`.
        """
        figures = self._figures.figures(self._plan)
        number = int(operator.partition(" ")[0])
        sizes = [size for (key, *_), size in figures.synopses.items() if key == figures.keys.get(number)]
        closed = closed_by_promises(sizes)
        rows = sum(size.rows for size in sizes if size.ends_by_promises)
        parts = [f"{counted(rows, 'row')} open", *(f"{number:,} closed by {text}" for text, number in closed.items())]
        return ", ".join(parts) if closed else ""

    @property
    def taps(self) -> Taps:
        """Return the taps of edges."""
        return self._figures.taps

    @taps.setter
    def taps(self, taps: Taps) -> None:
        self._figures.taps = taps

    @property
    def last_batch(self) -> BatchFigures:
        """Return the batch that was recorded last."""
        return self._figures.last_batch

    def metrics(self, totals: Totals) -> RunMetrics:
        """Return the present metrics; lags are computed now."""
        operators, (rows, nbytes) = self._sums.operators(), self._sums.state
        now, figures = self._clock(), self._figures_by_query()
        if now - self._ended > max(AT_REST, 2 * self._run.last_seconds):
            # Nothing comes that would take the place of the last batch.
            self._rates = ({}, {})
        return replace(
            self._run,
            batches=totals.batches,
            batch_bytes=totals.batch_bytes,
            operators=operators,
            state_rows=rows,
            state_bytes=nbytes,
            sources={name: self._source(name, source, totals, now) for name, source in self._sources.items()},
            queries={name: self._query(name, totals, figures.get(name, ()), now) for name in self._plan.queries},
        )

    def take_touched(self) -> list[OperatorMetrics]:
        """Return the operators that ran, or whose state was measured, since the last call."""
        return self._sums.take_touched()

    def resumed(self, totals: Totals) -> None:
        """Set the totals of an earlier process, so that the first rates are those of this one."""
        self._previous_totals = totals
        self.at_ingest = totals.at_ingest or {}

    @property
    def at_ingest(self) -> CountsAtIngest:
        """Return by query what operators of stage 0 have counted since the beginning."""
        return {query: as_names(figures) for query, figures in self._at_ingest.items()}

    @at_ingest.setter
    def at_ingest(self, counts: CountsAtIngest) -> None:
        self._at_ingest = {query: from_names(figures) for query, figures in counts.items()}

    def changed(self, plan: Plan, sources: Mapping[str, Source]) -> list[str]:
        """Continue with another plan. Steps that it has too keep their numbers and their figures. Return the names of
        the operators that it does not have."""
        before, steps = self._plan, changed_steps(self._plan, plan)
        self._plan, self._sources = plan, sources
        known = before.queries
        goes_on = {name for name, query in plan.queries.items() if name in known and known[name].text == query.text}
        self._at_ingest = {name: sums for name, sums in self._at_ingest.items() if name in goes_on}
        self._readers = {step.id: step.queries for step in plan.steps if step.stage == 0}
        gone = self._sums.changed(plan, steps)
        self._tasks, self._shard_figures = {}, {}
        stay = {name for name, query in plan.queries.items() if known.get(name) is query}
        self._known = {name: made for name, made in self._known.items() if name in stay}
        self._widths = {name: width for name, width in self._widths.items() if name in stay}
        self._figures.changed(before, plan, steps)
        self._keep_constraints()
        return gone

    def _keep_constraints(self) -> None:
        """Measure the promises that the plan says, and forget others."""
        measured = {name: source.observed for name, source in self._plan.sources.items()}
        self._constraints.keep(measured, observed_references(self._plan) if any(measured.values()) else ())

    @property
    def _previous_rows(self) -> dict[str, int]:
        return {name: counts[0] for name, counts in (self._previous_totals.sources or {}).items()}

    def _source(self, name: str, source: Source, totals: Totals, now: float) -> SourceMetrics:
        rows, late, malformed = (totals.sources or {}).get(name, (0, 0, 0))
        tick = (totals.source_heartbeats or {}).get(name)
        heartbeat, lag = _heartbeat_and_lag(tick, source.domain, now)
        splits, nbytes = (totals.backlog or {}).get(name, (0, 0))
        rate, waiting = self._rates[0].get(name, 0.0), (totals.waiting or {}).get(name, 0)
        passed = (totals.passed or {}).get(name, 0)
        return SourceMetrics(rows, rate, late, malformed, heartbeat, lag, splits, nbytes, waiting, passed)

    def _query(self, name: str, totals: Totals, figures: Sequence[FigureValues], now: float) -> QueryMetrics:
        """Return the metrics of a query. Of a query at rest they are those of the last batch: making them takes most of
        the time of a batch that concerns few queries."""
        # A query over static relations alone has no time that could be behind.
        domain, tick = self._plan.queries[name].root.domain, (totals.query_heartbeats or {}).get(name)
        rows, rate, state = (
            (totals.queries or {}).get(name, 0),
            self._rates[1].get(name, 0.0),
            self._sums.state_of(name),
        )
        made_of = rows, rate, tick, state, now if domain is not None and domain.calendar else None
        known = self._known.get(name)
        if not figures and known is not None and known[0] == made_of:
            return known[1]
        heartbeat, lag = _heartbeat_and_lag(tick, domain, now)
        together = put_together(figures)
        metrics = QueryMetrics(
            rows,
            rate,
            heartbeat,
            lag,
            *state,
            SheddingMetrics.of(figures),
            FrequentMetrics.of(together),
            PreferenceMetrics.of(together, domain),
            PeriodMetrics.of(together),
            ApproximationMetrics.of(together, self._width(name)),
        )
        if not figures:
            self._known[name] = made_of, metrics
        return metrics

    def _width(self, name: str) -> float | None:
        """Return the width of the bounds of a query's sketches, which is looked for once."""
        query = self._plan.queries[name]
        known = self._widths.get(name)
        if known is None or known[0] is not query:
            known = self._widths[name] = query, constant_width(query.root)
        return known[1]

    def describe(self, progress: RunProgress) -> None:
        """Write into the progress of a run the metrics of queries with a preference, and how many sessions, or
        stretches that CLOSED waits for, have not ended."""
        for name, figures in self._figures_by_query().items():
            if name in progress.queries and name in self._plan.queries:
                together = put_together(figures)
                found = PreferenceMetrics.of(together, self._plan.queries[name].domain)
                progress.queries[name].preference = "" if found is None else preference_text(found)
                periods = PeriodMetrics.of(together)
                progress.queries[name].open_periods = 0 if periods is None else int(periods.open_periods)

    def _figures_by_query(self) -> dict[str, list[FigureValues]]:
        """Return by query the figures of its operators in each shard. Most operators have none."""
        of_steps: dict[int, list[FigureValues]] = {}
        for one in list(self._shard_figures.values()):
            for step, figures in one.items():
                of_steps.setdefault(step, []).append(figures)
        of_queries = {name: [figures] for name, figures in list(self._at_ingest.items()) if name in self._plan.queries}
        for plan_step in self._plan.steps if of_steps else ():
            for query in plan_step.queries:
                of_queries.setdefault(query, []).extend(of_steps.get(plan_step.id, ()))
        return of_queries


def _counts(totals: Totals, position: int) -> dict[str, int]:
    """Return by source one of its three counts."""
    return {name: counts[position] for name, counts in (totals.sources or {}).items()}


def _added(counts: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return by name what was added, where something was."""
    return {name: count - before.get(name, 0) for name, count in counts.items() if count > before.get(name, 0)}


def _rates(counts: Mapping[str, int], before: Mapping[str, int], duration: float) -> dict[str, float]:
    return {n: (count - before.get(n, 0)) / duration if duration > 0 else 0.0 for n, count in counts.items()}


def _heartbeat_and_lag(tick: int | None, domain: TimeDomain | None, now: float) -> tuple[float | None, float | None]:
    """Return a heartbeat in seconds and its distance behind `now`; None for one unknown or at the end of time."""
    if tick is None or domain is None or not NOTHING < tick < END:
        return None, None
    heartbeat = in_seconds(tick, domain)
    return heartbeat, max(0.0, now - heartbeat) if domain.calendar else None
