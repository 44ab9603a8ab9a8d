"""What shedding has done to the answer of a query: figures of a fixed number, whatever the data.

`exact` and the bound of the coverage are certain; accuracy is an estimate from the values that are also held unshed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.arrays import Records, joined
from penstock.figures import (
    COVERAGE_AT_LEAST,
    EXACT,
    EXTRANEOUS,
    LOST_TICKS_LIVE,
    SHED_ARRIVED,
    SHED_BUDGET,
    SHED_BY_CPU,
    SHED_HELD,
    SHED_LIVE,
    SHED_TUPLES,
    SHED_WEIGHT,
    VANISHED,
)
from penstock.figures.figure import Figure, FigureValues
from penstock.shedding.accuracy import AccuracyEstimate, PeriodRows, coalesce, compare, coverage_at_least, estimate
from penstock.shedding.hashing import SAMPLES, all_salted
from penstock.shedding.ledger import Ledger, drop_rows
from penstock.shedding.shedder import ArrivingTuples, Shedder, SheddingOutcome

_NOTHING = AccuracyEstimate(None, None, None, 0)


@dataclass
class SheddingRecord:
    """The figures of the budgets of a query in one shard.

    Args:
        no_end: what stands for no end.
        least: the constant of LENGTH >= constant, 0 for none: accuracy is that of what passes it.
        arrived, shed: tuples since the beginning; shed_by_cpu: those that were shed to save CPU.
        clock: the largest timestamp that was looked at.
        judged: the last estimate.
    """

    no_end: int
    least: int = 0
    seed: int = 0
    arrived: int = 0
    shed: int = 0
    shed_by_cpu: int = 0
    clock: int = -(2**62)
    judged: AccuracyEstimate = _NOTHING
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.no_end)

    def note(self, arriving: ArrivingTuples, outcome: SheddingOutcome, by_cpu: int = 0) -> None:
        """Count what arrived and what was dropped or refused. by_cpu: the tuples of them that were shed to save CPU."""
        if not len(arriving):
            return
        refused = np.flatnonzero(outcome.entered == 2)
        columns = (arriving.stamps, arriving.begins, arriving.ends, arriving.expires, arriving.weights)
        drops = joined([outcome.drops, drop_rows(*(column[refused] for column in columns))])
        self.arrived += len(arriving)
        self.shed += len(drops)
        self.shed_by_cpu += by_cpu
        self.clock = max(self.clock, int(arriving.stamps[-1]))
        self.ledger.add(drops, int(arriving.clocks[-1]))

    def pass_to(self, clock: int, window_clock: int) -> None:
        """Forget what has left the window. window_clock: the time on the clock by which tuples expire."""
        self.clock = max(self.clock, clock)
        self.ledger.pass_to(window_clock)

    def judge(self, shedders: Sequence[Shedder]) -> AccuracyEstimate:
        """Estimate accuracy at the clock, and keep the estimate."""
        similar, larger = [np.empty(0)], [np.empty(0)]
        share = 1.0
        for shedder in shedders:
            if not shedder.sample_share:
                continue
            share = min(share, shedder.sample_share)
            rows, below = shedder.rows(), shedder.sample_share * 2.0**63
            inside = rows.compress(all_salted(rows["rank"], SAMPLES, self.seed) < below)
            compared = compare(self._answer(shedder.sample_rows()), self._answer(inside))
            similar.append(compared.similar)
            larger.append(compared.larger)
        if self.shed and len(similar) > 1:
            self.judged = estimate(np.concatenate(similar), np.concatenate(larger), share)
        return self.judged

    def _answer(self, entries: Records) -> PeriodRows:
        rows = PeriodRows(entries["rank"], entries["begin"], entries["end"])
        return coalesce(rows).cut(self.clock, self.no_end).at_least(self.least)

    def _covered(self, shedder: Shedder) -> float:
        """Return the ticks of all stretches, those without an end cut."""
        if shedder.last_end < self.no_end:
            return float(shedder.covered)
        entries = shedder.rows()
        rows = PeriodRows(entries["rank"], entries["begin"], entries["end"])
        cut = coalesce(rows).cut(self.clock, self.no_end)
        return float((cut.ends - cut.begins).sum())

    def figures(self, shedders: Sequence[Shedder]) -> FigureValues:
        """Return the figures. What is not known is left out."""
        lost = self.ledger.lost(self.clock) if self.ledger.live else 0
        covered = 0.0
        if lost:
            covered = sum(self._covered(shedder) for shedder in shedders)
        budgets = [shedder.budget for shedder in shedders]
        found: dict[Figure, int | float] = {
            SHED_HELD: sum(shedder.held for shedder in shedders),
            SHED_BUDGET: sum(budgets) if max(budgets) < self.no_end // len(budgets) else 0,
            SHED_ARRIVED: self.arrived,
            SHED_TUPLES: self.shed,
            SHED_BY_CPU: self.shed_by_cpu,
            SHED_LIVE: self.ledger.live,
            SHED_WEIGHT: self.ledger.weight,
            LOST_TICKS_LIVE: lost,
            EXTRANEOUS: sum(shedder.extraneous for shedder in shedders),
            VANISHED: sum(shedder.vanished for shedder in shedders),
            EXACT: int(self.ledger.live == 0),
            COVERAGE_AT_LEAST: round(coverage_at_least(covered, lost), 6) if lost else 1.0,
        }
        if self.ledger.live:
            found |= self.judged.figures()
        return found
