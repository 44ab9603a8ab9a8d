"""What a live engine measures of its rounds. Counts are since the start of the process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.algebra.nodes.scans import Source
from penstock.physical.decisions import NO_DECISIONS, Decisions
from penstock.physical.execution.portions import with_portions
from penstock.physical.plan.plan import Plan
from penstock.runtime.decisions.deciders import NO_OPTIONS, Deciders, DecidingOptions
from penstock.runtime.decisions.registry import REGISTRY
from penstock.runtime.local.runtime import LocalJob
from penstock.runtime.monitoring.figures import RunFigures
from penstock.runtime.monitoring.metrics import RunMetrics
from penstock.runtime.monitoring.recorder import CountsAtIngest, Recorder, Totals
from penstock.runtime.monitoring.taps import Taps

#: Bytes of answers that a round emits at most, whatever the settings allow.
MOST_ANSWERS = 64 * 2**20


@dataclass(frozen=True)
class LiveFigures:
    """The figures after a round. places: by name of a query in the plan, that of its result."""

    metrics: RunMetrics
    run: RunFigures
    places: Mapping[str, str] = field(default_factory=dict)


class LiveMeasures:
    """Adds up what the rounds of an engine report."""

    def __init__(
        self,
        plan: Plan,
        rounds: int = 0,
        decided: Decisions = NO_DECISIONS,
        at_ingest: CountsAtIngest | None = None,
        beats: tuple[Mapping[str, int], Mapping[str, int]] = ({}, {}),
    ) -> None:
        """
        Args:
            rounds: those of earlier processes.
            decided: what they decided last.
            at_ingest: what they counted there.
            beats: the heartbeats of sources and of queries after them.
        """
        self._plan, self.options = plan, NO_OPTIONS
        self._recorder = Recorder(plan, {})
        self._recorder.at_ingest = at_ingest or {}
        self._deciders = Deciders(plan, registry=REGISTRY)
        #: What was decided before the round.
        self.decided = decided
        self._batches = rounds
        self._began = 0.0
        self._rows: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        self._totals = Totals(rounds, None, None, *beats)

    def changed(self, plan: Plan, sources: Mapping[str, Source]) -> None:
        """Go on with another version of the plan."""
        self._recorder.changed(plan, sources)
        self._plan = plan
        # Their names are never used again.
        self._answered = Counter({name: rows for name, rows in self._answered.items() if name in plan.queries})
        self._rows = Counter({name: rows for name, rows in self._rows.items() if name in sources})
        self._deciders.changed(plan, self.options)

    def decide_by(self, options: DecidingOptions) -> None:
        """Decide by other options from the next round on."""
        if options != self.options:
            self.options = options
            self._deciders.changed(self._plan, options)

    def begin(self) -> None:
        """Begin a round."""
        self.decided = self._deciders.decide(self.decided)
        self.decided = self.portions(len(self._plan.queries))
        self._began = time.perf_counter()

    def portions(self, queries: int) -> Decisions:
        """Return what was decided, with the part that each of so many queries has of the answers of a round. These are
        in memory as a whole."""
        return with_portions(self.decided, queries, min(self.options.max_answers, MOST_ANSWERS))

    def end(
        self,
        job: LocalJob,
        read: Mapping[str, int],
        set_apart: Mapping[str, Counter[str]],
        answered: Mapping[str, int],
        beats: tuple[Mapping[str, int], Mapping[str, int]],
    ) -> None:
        """End a round.

        Args:
            read: by source, the rows read in it.
            set_apart: by source and reason, the rows of all rounds that did not become elements.
            answered: by name of a query in the plan, the rows answered in it.
            beats: the heartbeats of sources and of queries.
        """
        seconds = time.perf_counter() - self._began
        self._deciders.took(seconds)
        self._batches += 1
        self._rows.update(read)
        self._answered.update(answered)
        for report in job.reports():
            self._recorder.report(report)
            self._deciders.report(report)
        sources = {
            name: (self._rows[name], reasons["late"], sum(reasons.values()) - reasons["late"])
            for name, reasons in set_apart.items()
        }
        self._totals = Totals(self._batches, sources, dict(self._answered), *beats)
        delivered = {name: seconds for name, rows in answered.items() if rows}
        self._recorder.batch(seconds, 0.0, 1, self._totals, self._batches - 1, delivered)

    @property
    def taps(self) -> Taps:
        """Return the taps of edges."""
        return self._recorder.taps

    @taps.setter
    def taps(self, taps: Taps) -> None:
        self._recorder.taps = taps

    @property
    def rounds(self) -> int:
        """Return the number of rounds since the beginning."""
        return self._batches

    @property
    def at_ingest(self) -> CountsAtIngest:
        """Return by name of a query in the plan what its operators of stage 0 have counted since the beginning."""
        return self._recorder.at_ingest

    def figures(self, job: LocalJob, places: Mapping[str, str]) -> LiveFigures:
        """Return the present figures. places: as in `LiveFigures`."""
        for report in job.late_sizes():
            self._recorder.report(report)
        return LiveFigures(self._recorder.metrics(self._totals), self._recorder.figures(), places)
