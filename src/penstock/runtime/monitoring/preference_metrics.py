"""The metrics of a query WITH PREFERENCE: how much of its work is done, and how late which results come `[pt 5]`.

They are summed over shards from the figures of the operators (`Operator.figures`), and are a function of the
input and of what was granted, whatever rounds it came in.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.algebra.properties.statistics import seconds as in_seconds
from penstock.errors import counted
from penstock.figures import (
    LOOK_UP_PAIRS,
    LOOK_UPS,
    LOOK_UPS_MISSING,
    OTHER_DELAYS,
    PAIRS_EXAMINED,
    PAIRS_MISSING,
    PREFERENCE_RESULTS,
    PREFERENCE_ROWS,
    PROMISING_DELAYS,
    RESULTS_OF_TWO,
    TICKS_APART,
    UNITS_DONE,
    UNITS_EXPIRED,
    UNITS_SHED,
    UNITS_WAITING,
)
from penstock.figures.figure import Figure, FigureValues, bucket_counts, fields_of, number
from penstock.types import TimeDomain

_PARTS = (UNITS_DONE, UNITS_WAITING, UNITS_EXPIRED, UNITS_SHED)


@dataclass(frozen=True)
class PreferenceMetrics:
    """Metrics of a query with a preference: sums over its shards since the beginning, and what waits now.

    Units that were not looked up yet count as estimated, so units_asked = units_done + units_waiting + units_expired +
    units_shed is an estimate while entries wait for their look-up.

    Args:
        share: units done of those asked; 1 where none was.
        entries_made, entries_done, entries_expired, entries_shed: made = done + waiting + expired + shed.
        rows: that could make or be looked up by entries, of all inputs; results: those emitted by the operator.
        results_per_row: the paper's N_o/p; None without rows.
        completeness: of the pairs that the query without the clause would examine, the part that was examined, as
            estimated from the summaries, and without them from the pairs of entries that were looked up.
        promising_delay, promising_delay_high, other_delay, other_delay_high: seconds from when an entry is made until
            its results are emitted, of promising entries and the others: the median, and what 95 % do not exceed; None
            without such results.
        age_difference: mean |ts1 - ts2| of results of two streams, in seconds; None without such results.
    """

    units_asked: float = 0
    units_done: float = 0
    units_waiting: float = 0
    units_expired: float = 0
    units_shed: float = 0
    share: float = 1.0
    entries_made: float = 0
    entries_done: float = 0
    entries_waiting: float = 0
    entries_expired: float = 0
    entries_shed: float = 0
    rows: float = 0
    results: float = 0
    results_per_row: float | None = None
    completeness: float = 1.0
    promising_delay: float | None = None
    promising_delay_high: float | None = None
    other_delay: float | None = None
    other_delay_high: float | None = None
    age_difference: float | None = None

    @staticmethod
    def of(figures: FigureValues, domain: TimeDomain | None) -> PreferenceMetrics | None:
        """Return the metrics of a query from the figures of its operators; None where it has no preference."""
        if UNITS_DONE not in figures:
            return None
        tick = 1.0 if domain is None else in_seconds(1, domain)

        def seconds(delays: Figure, share: float) -> float | None:
            counts = bucket_counts(figures, delays)
            if not counts:
                return None
            # Imported here, so that a run without a preference does not load the compiler.
            from penstock.physical.synopses.preferences.result_figures import quantile_of

            ticks = quantile_of(counts, share)
            return None if ticks is None else ticks * tick

        asked = sum(number(figures, part) for part in _PARTS)
        rows, pairs = number(figures, PREFERENCE_ROWS), number(figures, RESULTS_OF_TWO)
        return PreferenceMetrics(
            units_asked=asked,
            share=number(figures, UNITS_DONE) / asked if asked else 1.0,
            results_per_row=number(figures, PREFERENCE_RESULTS) / rows if rows else None,
            completeness=_completeness(figures),
            promising_delay=seconds(PROMISING_DELAYS, 0.5),
            promising_delay_high=seconds(PROMISING_DELAYS, 0.95),
            other_delay=seconds(OTHER_DELAYS, 0.5),
            other_delay_high=seconds(OTHER_DELAYS, 0.95),
            age_difference=number(figures, TICKS_APART) / pairs * tick if pairs else None,
            **fields_of(figures, UNITS_DONE.owner),
        )


def _completeness(figures: FigureValues) -> float:
    """Return the part of all pairs that was examined. An entry whose pairs nothing estimates counts as many as each of
    those that were looked up has, and one where none was."""
    examined, look_ups = number(figures, PAIRS_EXAMINED), number(figures, LOOK_UPS)
    pairs = number(figures, LOOK_UP_PAIRS) / look_ups if look_ups else 1.0
    whole = examined + number(figures, PAIRS_MISSING) + number(figures, LOOK_UPS_MISSING) * pairs
    return examined / whole if whole else 1.0


def preference_text(now: PreferenceMetrics) -> str:
    """Return on one line how much of the work is done, and how late."""
    waiting = f", {counted(now.units_waiting, 'unit')} waiting" if now.units_waiting else ""
    delays = [
        f"delay of {name} results {_seconds_text(median)} (95 %: {_seconds_text(high)})"
        for name, median, high in (
            ("promising", now.promising_delay, now.promising_delay_high),
            ("other", now.other_delay, now.other_delay_high),
        )
        if median is not None and high is not None
    ]
    done = f"{_percent(now.share)} of the work of its preference is done{waiting}"
    return "; ".join([done, f"about {_percent(now.completeness)} of all pairs are examined", *delays])


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def _seconds_text(seconds: float) -> str:
    return f"{seconds:.3g} s"
