"""The figures of a run: each is declared here, once.

From a declaration follow the key in the reports of tasks, the line in EXPLAIN ANALYZE, the field of the objects that
`metrics()` returns and of their JSON, the series of Prometheus, the column of a control relation, and the row in
docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.figures.figure import Figure, FigureKind, FigureUnit, OverShards, declared_figures

_SUM, _GREATEST, _LEAST, _LAST = OverShards
_COUNTER, _GAUGE, _HISTOGRAM = FigureKind


def _measured(name: str, kind: FigureKind, unit: FigureUnit, help_: str, over: OverShards = _SUM) -> Figure:
    """Declare a figure that operators report and that stands in no object."""
    return Figure(name, kind, unit, over, help_)


def _of_run(
    field: str, series: str, kind: FigureKind, unit: FigureUnit, help_: str, by: tuple[str, ...] = ()
) -> Figure:
    return Figure("", kind, unit, _LAST, help_, f"run.{field}", f"penstock_{series}", by)


def _of_source(field: str, series: str, kind: FigureKind, unit: FigureUnit, help_: str) -> Figure:
    return Figure("", kind, unit, _LAST, help_, f"sources.{field}", f"penstock_source_{series}", ("source",))


def _of_query(
    field: str,
    series: str,
    kind: FigureKind,
    unit: FigureUnit,
    help_: str,
    name: str = "",
    over: OverShards = _SUM,
) -> Figure:
    """Declare a figure of queries. name: as operators report it; without one the driver computes it."""
    path, metric = f"queries.{field}", f"penstock_query_{series}" if series else ""
    return Figure(name, kind, unit, over if name else _LAST, help_, path, metric, ("query",))


def _of_operator(field: str, series: str, kind: FigureKind, unit: FigureUnit, help_: str) -> Figure:
    labels = "query", "operator", "stage"
    return Figure("", kind, unit, _SUM, help_, f"operators.{field}", f"penstock_operator_{series}", labels)


_NONE, _RATIO, _SECONDS, _BYTES, _ROWS = (
    FigureUnit.NONE,
    FigureUnit.RATIO,
    FigureUnit.SECONDS,
    FigureUnit.BYTES,
    FigureUnit.ROWS,
)
_TUPLES, _HELD, _WORK, _ENTRIES = (
    FigureUnit.TUPLES,
    FigureUnit.TUPLES_OR_BYTES,
    FigureUnit.WORK,
    FigureUnit.ENTRIES,
)

# --- the run
_of_run("batches", "batches_total", _COUNTER, _NONE, "batches delivered since the beginning of the run")
_of_run("seconds", "batch_seconds_total", _COUNTER, _SECONDS, "duration of all batches of this process")
_of_run("phases", "batch_phase_seconds_total", _COUNTER, _SECONDS, "the same by phase", ("phase",))
_of_run("last_seconds", "last_batch_seconds", _GAUGE, _SECONDS, "duration of the last batch")
_of_run("last_phases", "last_batch_phase_seconds", _GAUGE, _SECONDS, "the same by phase", ("phase",))
_of_run("batch_bytes", "batch_limit_bytes", _GAUGE, _BYTES, "input that the next batch takes at the most")
_of_run("state_rows", "state_rows", _GAUGE, _ROWS, "rows of state, of all operators")
_of_run("state_bytes", "state_bytes", _GAUGE, _BYTES, "bytes of state, of all operators")

# --- sources
SOURCE_ROWS = _of_source("rows", "rows_total", _COUNTER, _ROWS, "records read, whether or not they became elements")
_of_source(
    "rows_per_second", "rows_per_second", _GAUGE, FigureUnit.ROWS_PER_SECOND, "records per second, of the last batch"
)
SOURCE_LATE = _of_source("late", "late_rows_total", _COUNTER, _ROWS, "elements kept out because they came late")
SOURCE_MALFORMED = _of_source("malformed", "malformed_rows_total", _COUNTER, _ROWS, "records that could not be read")
SOURCE_PASSED = _of_source(
    "passed", "passed_rows_total", _COUNTER, _ROWS, "rows that readers skipped because no query reads them"
)
_of_source(
    "heartbeat", "heartbeat_seconds", _GAUGE, _SECONDS, "up to which its elements are complete, in seconds since 1970"
)
SOURCE_LAG = _of_source("lag", "lag_seconds", _GAUGE, _SECONDS, "by how much the heartbeat is behind the wall clock")
BACKLOG_SPLITS = _of_source(
    "backlog_splits", "backlog_splits", _GAUGE, FigureUnit.SPLITS, "splits that were found and not read yet"
)
BACKLOG_BYTES = _of_source("backlog_bytes", "backlog_bytes", _GAUGE, _BYTES, "their bytes, as stored")
BACKLOG_RECORDS = _of_source("backlog_records", "backlog_records", _GAUGE, _ROWS, "unread records of a topic")

# --- queries
QUERY_ROWS = _of_query("rows", "rows_total", _COUNTER, _ROWS, "rows that its sink has received")
_of_query(
    "rows_per_second", "rows_per_second", _GAUGE, FigureUnit.ROWS_PER_SECOND, "the same per second, of the last batch"
)
_of_query("heartbeat", "heartbeat_seconds", _GAUGE, _SECONDS, "up to which its answer is final, in seconds since 1970")
QUERY_LAG = _of_query("lag", "lag_seconds", _GAUGE, _SECONDS, "by how much the heartbeat is behind the wall clock")
QUERY_STATE_ROWS = _of_query(
    "state_rows", "state_rows", _GAUGE, _ROWS, "rows of state of all its operators, shared ones whole"
)
QUERY_STATE_BYTES = _of_query(
    "state_bytes", "state_bytes", _GAUGE, _BYTES, "bytes of state of all its operators, shared ones whole"
)


# --- queries WITH PREFERENCE
def _preference(field: str, series: str, kind: FigureKind, unit: FigureUnit, help_: str, name: str = "") -> Figure:
    reported = f"preference {name}" if name else ""
    return _of_query(f"preference.{field}", f"preference_{series}", kind, unit, help_, reported)


UNITS_ASKED = _preference(
    "units_asked", "asked_units", _GAUGE, _WORK, "units of work so far; estimated where entries wait"
)
UNITS_DONE = _preference(
    "units_done", "done_units_total", _COUNTER, _WORK, "of them those that were done", "units done"
)
UNITS_WAITING = _preference("units_waiting", "waiting_units", _GAUGE, _WORK, "of them those that wait", "units waiting")
UNITS_EXPIRED = _preference(
    "units_expired",
    "expired_units_total",
    _COUNTER,
    _WORK,
    "of them those that expired before they were done",
    "units expired",
)
UNITS_SHED = _preference(
    "units_shed",
    "shed_units_total",
    _COUNTER,
    _WORK,
    "of them those dropped beyond `preference_queue`",
    "units shed",
)
DONE_SHARE = _preference("share", "share_ratio", _GAUGE, _RATIO, "units done divided by all units")
ENTRIES_MADE = _preference(
    "entries_made", "made_entries_total", _COUNTER, _ENTRIES, "entries that its rows have made", "entries made"
)
ENTRIES_DONE = _preference(
    "entries_done", "done_entries_total", _COUNTER, _ENTRIES, "of them those that are done", "entries done"
)
ENTRIES_WAITING = _preference(
    "entries_waiting", "waiting_entries", _GAUGE, _ENTRIES, "entries that wait", "entries waiting"
)
ENTRIES_EXPIRED = _preference(
    "entries_expired", "expired_entries_total", _COUNTER, _ENTRIES, "of them those that expired", "entries expired"
)
ENTRIES_SHED = _preference(
    "entries_shed",
    "shed_entries_total",
    _COUNTER,
    _ENTRIES,
    "of them those dropped beyond `preference_queue`",
    "entries shed",
)
PREFERENCE_ROWS = _preference("rows", "rows_total", _COUNTER, _ROWS, "rows that its inputs have received", "rows")
PREFERENCE_RESULTS = _preference("results", "results_total", _COUNTER, _ROWS, "its results so far", "results")
RESULTS_PER_ROW = _preference(
    "results_per_row", "results_per_row_ratio", _GAUGE, _RATIO, "results for each row of its inputs"
)
COMPLETENESS = _preference(
    "completeness", "completeness_ratio", _GAUGE, _RATIO, "part of all pairs that was examined, as estimated"
)
PROMISING_DELAY = _preference(
    "promising_delay", "promising_delay_seconds", _GAUGE, _SECONDS, "delay of promising results, the median"
)
PROMISING_DELAY_HIGH = _preference(
    "promising_delay_high",
    "promising_delay_high_seconds",
    _GAUGE,
    _SECONDS,
    "delay that 95 % of them do not exceed",
)
OTHER_DELAY = _preference(
    "other_delay", "other_delay_seconds", _GAUGE, _SECONDS, "delay of the other results, the median"
)
OTHER_DELAY_HIGH = _preference(
    "other_delay_high", "other_delay_high_seconds", _GAUGE, _SECONDS, "delay that 95 % of them do not exceed"
)
AGE_DIFFERENCE = _preference(
    "age_difference",
    "age_difference_seconds",
    _GAUGE,
    _SECONDS,
    "mean distance in time of the two rows of a result",
)
#: What the figures above are computed of.
TICKS_APART = _measured(
    "preference ticks apart", _COUNTER, FigureUnit.TICKS, "distances in time of the two rows of a result, added up"
)
RESULTS_OF_TWO = _measured("preference results of two", _COUNTER, _ROWS, "results that are made of two rows")
PAIRS_EXAMINED = _measured("preference pairs examined", _COUNTER, _NONE, "pairs of rows that were examined")
PAIRS_MISSING = _measured(
    "preference pairs missing", _COUNTER, _NONE, "pairs that were not examined, as summaries estimate them"
)
LOOK_UPS_MISSING = _measured(
    "preference look-ups missing", _COUNTER, _NONE, "entries not looked up whose pairs nothing estimates"
)
LOOK_UPS = _measured("preference look-ups", _COUNTER, _NONE, "entries that were looked up")
LOOK_UP_PAIRS = _measured("preference pairs of look-ups", _COUNTER, _NONE, "pairs that these have")
PROMISING_DELAYS = _measured(
    "preference delay promising", _HISTOGRAM, FigureUnit.TICKS, "delays of promising results, by bucket"
)
OTHER_DELAYS = _measured(
    "preference delay other", _HISTOGRAM, FigureUnit.TICKS, "delays of the other results, by bucket"
)
UNITS_CHARGED = _measured(
    "units charged",
    _COUNTER,
    _WORK,
    "under BUDGET AUTO, units done as grants count them: of those done at once a part",
)


# --- queries that shed
def _shedding(
    field: str,
    series: str,
    kind: FigureKind,
    unit: FigureUnit,
    help_: str,
    over: OverShards = _SUM,
    name: str | None = None,
) -> Figure:
    reported = field.replace("_", " ") if name is None else name
    return _of_query(f"shedding.{field}", series, kind, unit, help_, reported, over)


SHED_HELD = _shedding("held", "held", _GAUGE, _HELD, "what is held under its budget")
SHED_BUDGET = _shedding("budget", "budget", _GAUGE, _HELD, "the budget; 0: no limit")
SHED_ARRIVED = _shedding("arrived", "", _COUNTER, _TUPLES, "tuples that have arrived")
SHED_TUPLES = _shedding("shed", "shed_total", _COUNTER, _TUPLES, "tuples shed")
SHED_BY_CPU = _shedding("shed_by_cpu", "shed_by_cpu_total", _COUNTER, _TUPLES, "of them those shed to save CPU")
SHED_LIVE = _shedding("shed_live", "shed_live", _GAUGE, _TUPLES, "of them those that may be missing now")
SHED_WEIGHT = _shedding("shed_weight", "shed_budget", _GAUGE, _HELD, "what these would take of the budget")
LOST_TICKS_LIVE = _shedding("lost_ticks_live", "lost_ticks_live", _GAUGE, FigureUnit.TICKS, "ticks lost with them")
EXTRANEOUS = _shedding("extraneous_total", "extraneous_total", _COUNTER, FigureUnit.PERIODS, "stretches cut in two")
VANISHED = _shedding("vanished_total", "vanished_total", _COUNTER, FigureUnit.PERIODS, "stretches shed whole")
_shedding(
    "without_period", "without_period", _GAUGE, _ROWS, "rows without a period, of operators with a budget", name=""
)
EXACT = _shedding("exact", "exact", _GAUGE, _NONE, "1 where the answer lacks nothing, else 0", _LEAST)
COVERAGE_AT_LEAST = _shedding(
    "coverage_at_least", "coverage_at_least_ratio", _GAUGE, _RATIO, "a certain bound of the coverage", _LEAST
)
ACCURACY = _shedding("accuracy", "accuracy_ratio", _GAUGE, _RATIO, "estimated accuracy of the answer", _LEAST)
ACCURACY_LOW = _shedding("accuracy_low", "accuracy_low_ratio", _GAUGE, _RATIO, "where its interval begins", _LEAST)
ACCURACY_HIGH = _shedding("accuracy_high", "accuracy_high_ratio", _GAUGE, _RATIO, "where its interval ends", _LEAST)
ACCURACY_VALUES = _shedding("accuracy_values", "accuracy_values", _GAUGE, _NONE, "values that it is of")

# --- queries with approximate aggregates
PAIRS_HELD = _of_query("frequent.pairs_held", "frequent_pairs_held", _GAUGE, _NONE, "items of live lists", "pairs held")
MISSED_SHARE = _of_query(
    "frequent.missed_share",
    "frequent_missed_share_ratio",
    _GAUGE,
    _RATIO,
    "greatest share of the counts that an item in no list can have",
    "missed share",
    _GREATEST,
)
NEGATIVE_VALUES = _of_query(
    "approximations.negative_values",
    "negative_values_total",
    _COUNTER,
    _ROWS,
    "values below 0 of the SUM by which items are FREQUENT",
    "negative values",
)
VALUES_OUT_OF_RANGE = _of_query(
    "approximations.values_out_of_range",
    "values_out_of_range_total",
    _COUNTER,
    _ROWS,
    "values outside of the range that a bound of an ESTIMATE gives",
    "values out of range",
)
ROWS_NEVER_DRAWN = _of_query(
    "approximations.rows_never_drawn",
    "rows_never_drawn_total",
    _COUNTER,
    _ROWS,
    "rows that a sample with WEIGHT never draws",
    "rows never drawn",
)
ESTIMATE_WIDTH = _of_query(
    "approximations.estimate_width",
    "estimate_width_ratio",
    _GAUGE,
    _RATIO,
    "half the distance of the bounds of an ESTIMATE emitted last, by their middle: the widest",
    "widest bound share",
    _GREATEST,
)
_of_query(
    "approximations.sketch_width",
    "sketch_width_ratio",
    _GAUGE,
    _RATIO,
    "the same of sketches where it is constant, at a confidence of 0.95",
)

# --- queries over periods
WITHOUT_PERIOD = _of_query(
    "periods.without_period",
    "rows_without_period_total",
    _COUNTER,
    _ROWS,
    "rows that its operators over periods left out, since they have none",
    "without period",
)
ENDED_ON_ARRIVAL = _of_query(
    "periods.ended_on_arrival",
    "rows_ended_on_arrival_total",
    _COUNTER,
    _ROWS,
    "rows that `[VALID]` left out, whose period was over when they came",
    "ended on arrival",
)
OPEN_PERIODS = _of_query(
    "periods.open_periods",
    "open_periods",
    _GAUGE,
    FigureUnit.PERIODS,
    "sessions, and stretches that CLOSED waits for, which have not ended",
    "open periods",
)

# --- operators
_of_operator("seconds", "seconds_total", _COUNTER, _SECONDS, "work of an operator, in all shards")
_of_operator("state_rows", "state_rows", _GAUGE, _ROWS, "rows of its state")
_of_operator("state_bytes", "state_bytes", _GAUGE, _BYTES, "bytes of its state")

# --- operators, in EXPLAIN ANALYZE alone
ROWS_IN = _measured("rows in", _COUNTER, _ROWS, "rows received")
ROWS_OUT = _measured("rows out", _COUNTER, _ROWS, "rows emitted")
LATE_ROWS = _measured("late", _COUNTER, _ROWS, "elements kept out because they came late")
REJECTED_ROWS = _measured("rejected", _COUNTER, _ROWS, "records that could not be read or applied")
SKIPPED_ROWS = _measured("passed over", _COUNTER, _ROWS, "rows that readers skipped because no query reads them")
ROWS_CLOSED = _measured(
    "closed",
    _COUNTER,
    _ROWS,
    "rows and groups of its state that promises have closed; also by promise, as `closed by UNIQUE id of O`",
)
OPEN_ROWS = _measured("open", _GAUGE, _ROWS, "rows and groups of the state that ends by promises which are still held")
VALUES_CLOSED = _measured("values closed", _COUNTER, _NONE, "closings of values by CLUSTERED BY")
VALUES_OPEN = _measured("values open", _GAUGE, _NONE, "values of CLUSTERED BY that are open")
STATE_ROWS = _measured("state rows", _GAUGE, _ROWS, "rows of state at the end")
STATE_BYTES = _measured("state bytes", _GAUGE, _BYTES, "bytes of state at the end")
PEAK_STATE_ROWS = _measured("peak state rows", _GAUGE, _ROWS, "rows of state at its greatest")
PEAK_STATE_BYTES = _measured("peak state bytes", _GAUGE, _BYTES, "bytes of state at its greatest")
CPU_MILLISECONDS = _measured("cpu ms", _COUNTER, FigureUnit.MILLISECONDS, "its work, in all shards")
SHARDS = _measured("shards", _GAUGE, _NONE, "shards in which it works")

FIGURES = declared_figures()
#: The figures that Prometheus has.
SERIES: tuple[Figure, ...] = tuple(figure for figure in FIGURES if figure.series)
#: The figures that tasks report and EXPLAIN ANALYZE shows, by their names.
MEASURED: Mapping[str, Figure] = {figure.name: figure for figure in FIGURES if figure.name}
