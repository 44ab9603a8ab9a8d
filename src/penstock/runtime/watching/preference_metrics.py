"""The metrics of a query WITH PREFERENCE: how much of its work is done, and how late which results come `[pt 5]`.

They are summed over shards from the figures of the operators (`Operator.figures`), and are a function of the
input and of what was granted, whatever rounds it came in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.algebra.properties.statistics import seconds as in_seconds
from penstock.errors import counted
from penstock.physical.plan.preferences.queries import PREFERENCE
from penstock.types import TimeDomain

_PARTS = ("units_done", "units_waiting", "units_expired", "units_shed")
_DELAY = "delay_"


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
    def of(figures: Sequence[Mapping[str, float]], domain: TimeDomain | None) -> PreferenceMetrics | None:
        """Return the metrics of a query from the figures of its operators; None where it has no preference."""
        found: dict[str, float] = {}
        for one in figures:
            for key, value in one.items():
                if key.startswith(PREFERENCE):
                    name = key.removeprefix(PREFERENCE).replace(" ", "_").replace("-", "_")
                    found[name] = found.get(name, 0) + value
        if not found:
            return None
        delays: dict[str, dict[int, float]] = {"promising": {}, "other": {}}
        for key in [key for key in found if key.startswith(_DELAY)]:
            kind, code = key.removeprefix(_DELAY).split("_#")
            delays[kind][int(code)] = found.pop(key)
        tick = 1.0 if domain is None else in_seconds(1, domain)

        def seconds(kind: str, share: float) -> float | None:
            if not delays[kind]:
                return None
            # Imported here, so that a run without a preference does not load the compiler.
            from penstock.physical.synopses.preferences.result_figures import quantile_of

            ticks = quantile_of(delays[kind], share)
            return None if ticks is None else ticks * tick

        apart, pairs = found.pop("ticks_apart"), found.pop("results_of_two")
        completeness = _completeness(*(found.pop(name) for name in _OF_COMPLETENESS))
        asked, rows = sum(found[name] for name in _PARTS), found["rows"]
        return PreferenceMetrics(
            units_asked=asked,
            share=found["units_done"] / asked if asked else 1.0,
            results_per_row=found["results"] / rows if rows else None,
            completeness=completeness,
            promising_delay=seconds("promising", 0.5),
            promising_delay_high=seconds("promising", 0.95),
            other_delay=seconds("other", 0.5),
            other_delay_high=seconds("other", 0.95),
            age_difference=apart / pairs * tick if pairs else None,
            **found,
        )


_OF_COMPLETENESS = ("pairs_examined", "pairs_missing", "look_ups_missing", "look_ups", "pairs_of_look_ups")


def _completeness(examined: float, missing: float, unknown: float, look_ups: float, found: float) -> float:
    """Return the part of all pairs that was examined. unknown: entries whose pairs nothing estimates; each counts as
    many as one of those that were looked up found, and one where none was."""
    whole = examined + missing + unknown * (found / look_ups if look_ups else 1.0)
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


#: By metric: its name behind `penstock_query_preference_`, whether it is a counter, its field and help.
PREFERENCE_FIGURES: tuple[tuple[str, bool, str, str], ...] = (
    ("asked_units", False, "units_asked", "Units of work of its preference so far; estimated where entries wait."),
    ("done_units_total", True, "units_done", "Of them those that were done."),
    ("waiting_units", False, "units_waiting", "Of them those that wait."),
    ("expired_units_total", True, "units_expired", "Of them those that expired before they were done."),
    ("shed_units_total", True, "units_shed", "Of them those dropped beyond `preference_queue`."),
    ("share_ratio", False, "share", "Units done of those asked."),
    ("made_entries_total", True, "entries_made", "Entries that its rows have made."),
    ("done_entries_total", True, "entries_done", "Of them those that are done."),
    ("waiting_entries", False, "entries_waiting", "Of them those that wait."),
    ("expired_entries_total", True, "entries_expired", "Of them those that expired."),
    ("shed_entries_total", True, "entries_shed", "Of them those dropped beyond `preference_queue`."),
    ("rows_total", True, "rows", "Rows of its inputs that its preference has got."),
    ("results_total", True, "results", "Results of its preference."),
    ("results_per_row_ratio", False, "results_per_row", "Results of its preference for each of these rows."),
    ("completeness_ratio", False, "completeness", "Part of all pairs that was examined, as estimated."),
    ("promising_delay_seconds", False, "promising_delay", "Delay of promising results, the median."),
    ("promising_delay_high_seconds", False, "promising_delay_high", "Delay that 95 % of them do not exceed."),
    ("other_delay_seconds", False, "other_delay", "Delay of the other results, the median."),
    ("other_delay_high_seconds", False, "other_delay_high", "Delay that 95 % of them do not exceed."),
    ("age_difference_seconds", False, "age_difference", "Mean distance in time of the two rows of a result."),
)
