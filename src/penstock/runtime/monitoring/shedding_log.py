"""Log queries that shed: when shedding begins and ends, each minute of their time what was shed, and sums at the end of
a run.

Contract: a line a minute of event time, for each query that sheds; rounds that are longer have one line each. Shedding
begins with the first tuple shed while the answer lacks nothing, and ends when all that was shed has left its window.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass

from penstock.errors import counted
from penstock.events import log_event, logger_of
from penstock.runtime.monitoring.metrics import QueryMetrics, RunMetrics, SheddingMetrics

LOG = logger_of("shedding")

#: Seconds of event time between two lines of a query.
_EVERY = 60.0


@dataclass
class _Logged:
    """The last line on a query. arrived, shed: tuples up to then; minute: of its heartbeat, None where unknown."""

    arrived: float = 0
    shed: float = 0
    minute: float | None = None
    sheds: bool = False


class SheddingLog:
    """Logs the queries of one run that shed. A process that continues a run logs again that a query sheds."""

    def __init__(self) -> None:
        self._logged: dict[str, _Logged] = {}
        self._last: dict[str, SheddingMetrics] = {}

    def batch(self, run: RunMetrics) -> None:
        """Log what a batch has changed."""
        for name, query in run.queries.items():
            if query.shedding is not None:
                self._look(name, query, query.shedding)

    def keep(self, queries: Collection[str]) -> None:
        """Continue with these queries alone: log the sums of those that are gone."""
        gone = self._logged.keys() - queries
        self._log_sums(gone)
        for name in gone:
            del self._logged[name], self._last[name]

    def end(self) -> None:
        """Log the sums of every query that has shed."""
        self._log_sums(self._last)

    def _log_sums(self, names: Iterable[str]) -> None:
        for name in names:
            now = self._last[name]
            if now.shed:
                exact = "its answer lacks nothing now" if now.exact else quality(now)
                message = (
                    f"{name}: {counted(int(now.shed), 'tuple')} of {int(now.arrived):,} shed in all"
                    f" ({_percent(now.shed, now.arrived)}), {exact}"
                )
                _log("shedding_sum", message, name, now)

    def _look(self, name: str, query: QueryMetrics, now: SheddingMetrics) -> None:
        logged = self._logged.setdefault(name, _Logged())
        self._last[name] = now
        if now.shed > logged.shed and not logged.sheds:
            logged.sheds = True
            budget = f": its budget is {int(now.budget):,}" if now.budget else " to save CPU"
            _log("shedding_begins", f"{name} begins to shed{budget}", name, now)
        minute = None if query.heartbeat is None else query.heartbeat // _EVERY
        if logged.sheds and minute is not None and logged.minute is not None and minute > logged.minute:
            share = _percent(now.shed - logged.shed, now.arrived - logged.arrived)
            _log("shedding", f"{name}: {share} of tuples shed, {quality(now)}", name, now)
            logged.arrived, logged.shed = now.arrived, now.shed
        if logged.minute is None or (minute is not None and minute > logged.minute):
            logged.minute = minute
        if logged.sheds and now.exact:
            logged.sheds, logged.arrived, logged.shed = False, now.arrived, now.shed
            _log("shedding_ends", f"{name} no longer sheds: its answer lacks nothing now", name, now)


def quality(now: SheddingMetrics) -> str:
    """Return what is known of the accuracy of an answer, for people."""
    coverage = f"coverage at least {now.coverage_at_least:.2f}"
    if now.accuracy is None or now.accuracy_low is None or now.accuracy_high is None:
        return coverage
    return f"accuracy {now.accuracy:.2f} ({now.accuracy_low:.2f} to {now.accuracy_high:.2f}), {coverage}"


def shedding_text(now: SheddingMetrics) -> str:
    """Return on one line what a query holds and has shed."""
    budget = f" of {int(now.budget):,}" if now.budget else ""
    known = "exact" if now.exact else quality(now)
    return f"holds {int(now.held):,}{budget}, shed {int(now.shed):,} of {int(now.arrived):,}, {known}"


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}".replace("%", " %") if whole else "0 %"


def _log(event: str, message: str, query: str, now: SheddingMetrics) -> None:
    log_event(LOG, logging.INFO, event, message, query=query, **asdict(now))
