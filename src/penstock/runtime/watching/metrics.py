"""The metrics of a run: the objects that `metrics()` returns, and the table of all of them.

One row of `METRICS` is one metric everywhere: a field of the objects here, the same field in a JSON line, and a series
of the Prometheus endpoint (`prometheus.py`). docs/metrics.md is the same table; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.physical.plan.rowwise import WIDEST
from penstock.physical.plan.temporal.figures import ENDED_ON_ARRIVAL, OPEN_PERIODS, WITHOUT_PERIOD
from penstock.runtime.watching.preference_metrics import PREFERENCE_FIGURES, PreferenceMetrics
from penstock.runtime.watching.stopwatch import PHASES


@dataclass(frozen=True)
class SourceMetrics:
    """Metrics of one source.

    Args:
        rows, late, malformed, passed: since the beginning of the run, restarts included; passed counts rows that
            readers skipped because no query reads them.
        rows_per_second: of the last batch.
        heartbeat: in seconds (since 1970 for a TIMESTAMP).
        lag: seconds by which the heartbeat is behind the wall clock, for a TIMESTAMP only.
        backlog_splits, backlog_bytes, backlog_records: input discovered but not read yet; records for a topic only.
    """

    rows: int = 0
    rows_per_second: float = 0.0
    late: int = 0
    malformed: int = 0
    heartbeat: float | None = None
    lag: float | None = None
    backlog_splits: int = 0
    backlog_bytes: int = 0
    backlog_records: int = 0
    passed: int = 0


@dataclass(frozen=True)
class SheddingMetrics:
    """Metrics of a query that sheds: sums over its budgets, of shares the least.

    Args:
        held, budget: in tuples, or bytes; a budget of 0 where memory is not limited.
        arrived, shed: tuples since the beginning; shed_by_cpu: those of them that were shed to save CPU.
        shed_live: tuples shed whose life may not be over; shed_weight: what they would count in the budget;
            lost_ticks_live: what was lost with them.
        extraneous_total, vanished_total: stretches that drops have cut off others, and that have gone whole.
        exact: whether nothing that was shed is missing now.
        coverage_at_least: a certain bound; accuracy, accuracy_low, accuracy_high: an estimate with its interval of
            95 %, None where it is not known; accuracy_values: the values that it is of.
    """

    held: float = 0
    budget: float = 0
    arrived: float = 0
    shed: float = 0
    shed_by_cpu: float = 0
    shed_live: float = 0
    shed_weight: float = 0
    lost_ticks_live: float = 0
    extraneous_total: float = 0
    vanished_total: float = 0
    without_period: float = 0
    exact: float = 1
    coverage_at_least: float = 1.0
    accuracy: float | None = None
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    accuracy_values: float | None = None

    @staticmethod
    def of(figures: Sequence[Mapping[str, float]]) -> SheddingMetrics | None:
        """Return the metrics of a query from the figures of its budgets; None where it has none."""
        found: dict[str, float] = {}
        for one in (one for one in figures if "budget" in one):
            for key, value in one.items():
                name = key.replace(" ", "_")
                if name in _SHARES:
                    found[name] = min(value, found.get(name, value))
                elif key not in (ENDED_ON_ARRIVAL, OPEN_PERIODS):
                    found[name] = found.get(name, 0) + value
        return SheddingMetrics(**found) if found else None


#: The metrics of shedding of which the least counts where a query has several budgets.
_SHARES = ("exact", "coverage_at_least", "accuracy", "accuracy_low", "accuracy_high")


@dataclass(frozen=True)
class FrequentMetrics:
    """Metrics of the FREQUENT items of a query.

    Args:
        pairs_held: items of live lists, each with its count.
        missed_share: δ/N at present: what an item in no list can have at most, as a share of all counts in the window;
            the greatest over shards and values of the PER columns.
    """

    pairs_held: float = 0
    missed_share: float = 0.0

    @staticmethod
    def of(figures: Sequence[Mapping[str, float]]) -> FrequentMetrics | None:
        """Return the metrics of a query from the figures of its steps; None where none has lists."""
        lists = [one for one in figures if "pairs held" in one]
        if not lists:
            return None
        return FrequentMetrics(sum(one["pairs held"] for one in lists), max(one["missed share"] for one in lists))


@dataclass(frozen=True)
class ApproximationMetrics:
    """What approximate aggregates of a query counted otherwise than by the values of rows, since the start of the
    process, and how wide their bounds are. A width is half of what lies between two bounds, as a share of their middle.

    Args:
        negative_values: values below 0 of the SUM by which items are FREQUENT; each counts 0.
        values_out_of_range: values outside of the range that a bound of an ESTIMATE gives for them; it is NULL then.
            Those of SAMPLE(n ROWS) count whenever they are taken up, as when their chance changes.
        rows_never_drawn: rows that no draw puts into a sample, since their weight is NULL, NaN or not above 0.
        estimate_width: of the bounds of an ESTIMATE of the query, at their confidence, the widest of the rows emitted
            last by each shard; bounds around 0 and those that are NULL have no part in it. None where it has none.
        sketch_width: the widest of the sketches whose width is the same for all values, at a confidence of 0.95; None
            where there are none.
    """

    negative_values: float = 0
    values_out_of_range: float = 0
    rows_never_drawn: float = 0
    estimate_width: float | None = None
    sketch_width: float | None = None

    @staticmethod
    def of(figures: Sequence[Mapping[str, float]], sketch_width: float | None) -> ApproximationMetrics | None:
        """Return the metrics of a query from the figures of its steps; None where none counts these, and it has no
        sketches with a width."""
        names = ("negative values", "values out of range", "rows never drawn")
        widths = [one[WIDEST] for one in figures if WIDEST in one]
        if sketch_width is None and not widths and not any(name in one for one in figures for name in names):
            return None
        negative, outside, never = (sum(one.get(name, 0) for one in figures) for name in names)
        return ApproximationMetrics(negative, outside, never, max(widths, default=None), sketch_width)


@dataclass(frozen=True)
class PeriodMetrics:
    """Metrics of a query over periods: sums over its operators.

    Args:
        without_period: rows left out since they have no period, or no gap behind them.
        ended_on_arrival: rows that `[VALID]` has left out, whose period was over when they came.
        open_periods: sessions, and stretches that CLOSED waits for, which have not ended.
    """

    without_period: float = 0
    ended_on_arrival: float = 0
    open_periods: float = 0

    @staticmethod
    def of(figures: Sequence[Mapping[str, float]]) -> PeriodMetrics | None:
        """Return the metrics of a query from the figures of its operators; None where it reads no periods."""
        names = (WITHOUT_PERIOD, ENDED_ON_ARRIVAL, OPEN_PERIODS)
        if not any(name in one for one in figures for name in names):
            return None
        return PeriodMetrics(*(sum(one.get(name, 0) for one in figures) for name in names))


@dataclass(frozen=True)
class QueryMetrics:
    """Metrics of one query. rows: of its results; heartbeat: the time up to which the answer is final; state: of all
    its operators, shared ones included.
    """

    rows: int = 0
    rows_per_second: float = 0.0
    heartbeat: float | None = None
    lag: float | None = None
    state_rows: int = 0
    state_bytes: int = 0
    shedding: SheddingMetrics | None = None
    frequent: FrequentMetrics | None = None
    preference: PreferenceMetrics | None = None
    periods: PeriodMetrics | None = None
    approximations: ApproximationMetrics | None = None


@dataclass(frozen=True)
class OperatorMetrics:
    """One operator of the plan over all shards. queries: those that use it; seconds: sum of its work."""

    name: str
    stage: int
    queries: tuple[str, ...]
    seconds: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0

    @property
    def query(self) -> str:
        """Return the query that uses it; empty where several share it."""
        return self.queries[0] if len(self.queries) == 1 else ""


@dataclass(frozen=True)
class RunMetrics:
    """Metrics of a run.

    Args:
        batches: since the beginning.
        seconds, phases: of all batches of this process.
        last_seconds, last_phases: of the last batch.
        state_rows, state_bytes: of all operators, each counted once.
        batch_bytes: maximum input of the next batch.
    """

    batches: int = 0
    seconds: float = 0.0
    last_seconds: float = 0.0
    state_rows: int = 0
    state_bytes: int = 0
    batch_bytes: int = 0
    phases: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    last_phases: Mapping[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    sources: Mapping[str, SourceMetrics] = field(default_factory=dict)
    queries: Mapping[str, QueryMetrics] = field(default_factory=dict)
    operators: tuple[OperatorMetrics, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return plain values, for a line of JSON."""
        return asdict(self)

    def renamed(self, names: Mapping[str, str]) -> RunMetrics:
        """Return the metrics with queries by other names; those without one are left out."""
        return replace(
            self,
            queries={names[name]: query for name, query in self.queries.items() if name in names},
            operators=tuple(
                replace(each, queries=tuple(sorted({names[name] for name in each.queries if name in names})))
                for each in self.operators
            ),
        )


Sample = tuple[tuple[str, ...], float]


@dataclass(frozen=True)
class Metric:
    """One metric.

    Args:
        name: by Prometheus' conventions.
        labels: names of its labels.
        field: its field in the objects and in JSON, as `owner.field`.
    """

    name: str
    counter: bool
    labels: tuple[str, ...]
    field: str
    help: str

    def samples(self, run: RunMetrics) -> Iterator[Sample]:
        owner, _, name = self.field.partition(".")
        for labels, value in _OWNERS[owner](run, name):
            if value is not None:
                yield labels, float(value)


def _of_run(run: RunMetrics, name: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    figure = getattr(run, name)
    if isinstance(figure, Mapping):
        yield from (((key,), value) for key, value in figure.items())
    else:
        yield (), figure


def _of_sources(run: RunMetrics, name: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield from (((key,), getattr(source, name)) for key, source in run.sources.items())


def _of_queries(run: RunMetrics, name: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    part, _, inner = name.partition(".")
    for key, query in run.queries.items():
        figure = getattr(query, part)
        if not inner:
            yield (key,), figure
        elif figure is not None:
            yield (key,), getattr(figure, inner)


def _of_operators(run: RunMetrics, name: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield from (((o.query, o.name, str(o.stage)), getattr(o, name)) for o in run.operators)


_OWNERS: Mapping[str, Callable[[RunMetrics, str], Iterator[tuple[tuple[str, ...], Any]]]] = {
    "run": _of_run,
    "sources": _of_sources,
    "queries": _of_queries,
    "operators": _of_operators,
}

_S, _Q, _O, _P = ("source",), ("query",), ("query", "operator", "stage"), ("phase",)

METRICS: tuple[Metric, ...] = (
    Metric("penstock_batches_total", True, (), "run.batches", "Batches delivered since the beginning of the run."),
    Metric("penstock_batch_seconds_total", True, (), "run.seconds", "Time that batches took, this process's."),
    Metric("penstock_batch_phase_seconds_total", True, _P, "run.phases", "Time that batches took, by phase."),
    Metric("penstock_last_batch_seconds", False, (), "run.last_seconds", "Time that the last batch took."),
    Metric("penstock_last_batch_phase_seconds", False, _P, "run.last_phases", "Time of the last batch by phase."),
    Metric("penstock_batch_limit_bytes", False, (), "run.batch_bytes", "Input that the next batch takes at the most."),
    Metric("penstock_state_rows", False, (), "run.state_rows", "Rows of state, of all operators."),
    Metric("penstock_state_bytes", False, (), "run.state_bytes", "Bytes of state, of all operators."),
    Metric("penstock_source_rows_total", True, _S, "sources.rows", "Records read, whatever became of them."),
    Metric("penstock_source_rows_per_second", False, _S, "sources.rows_per_second", "Records a second, last batch."),
    Metric("penstock_source_late_rows_total", True, _S, "sources.late", "Elements that came late."),
    Metric("penstock_source_malformed_rows_total", True, _S, "sources.malformed", "Records that are malformed."),
    Metric("penstock_source_passed_rows_total", True, _S, "sources.passed", "Rows of them that readers skipped."),
    Metric("penstock_source_heartbeat_seconds", False, _S, "sources.heartbeat", "How far the source's time is known."),
    Metric("penstock_source_lag_seconds", False, _S, "sources.lag", "Its heartbeat behind the wall clock."),
    Metric("penstock_source_backlog_splits", False, _S, "sources.backlog_splits", "Pieces found and not read yet."),
    Metric("penstock_source_backlog_bytes", False, _S, "sources.backlog_bytes", "Their bytes, as stored."),
    Metric("penstock_source_backlog_records", False, _S, "sources.backlog_records", "Of a topic, its records."),
    Metric("penstock_query_rows_total", True, _Q, "queries.rows", "Rows of results written."),
    Metric("penstock_query_rows_per_second", False, _Q, "queries.rows_per_second", "Rows of results a second."),
    Metric("penstock_query_heartbeat_seconds", False, _Q, "queries.heartbeat", "How far the answer is final."),
    Metric("penstock_query_lag_seconds", False, _Q, "queries.lag", "Its heartbeat behind the wall clock."),
    Metric("penstock_query_state_rows", False, _Q, "queries.state_rows", "Rows of state, shared ones too."),
    Metric("penstock_query_state_bytes", False, _Q, "queries.state_bytes", "Bytes of state, shared ones too."),
    *(
        Metric(f"penstock_query_preference_{name}", counter, _Q, f"queries.preference.{field_name}", text)
        for name, counter, field_name, text in PREFERENCE_FIGURES
    ),
    Metric("penstock_query_held", False, _Q, "queries.shedding.held", "What is held under its budget."),
    Metric(
        "penstock_query_budget", False, _Q, "queries.shedding.budget", "The budget, in tuples or bytes; 0: no limit."
    ),
    Metric("penstock_query_shed_total", True, _Q, "queries.shedding.shed", "Tuples shed."),
    Metric("penstock_query_shed_by_cpu_total", True, _Q, "queries.shedding.shed_by_cpu", "Of them to save CPU."),
    Metric("penstock_query_shed_live", False, _Q, "queries.shedding.shed_live", "Of them what may be missing now."),
    Metric("penstock_query_shed_budget", False, _Q, "queries.shedding.shed_weight", "Budget these would take."),
    Metric("penstock_query_lost_ticks_live", False, _Q, "queries.shedding.lost_ticks_live", "Ticks lost with them."),
    Metric("penstock_query_extraneous_total", True, _Q, "queries.shedding.extraneous_total", "Stretches cut in two."),
    Metric("penstock_query_vanished_total", True, _Q, "queries.shedding.vanished_total", "Stretches shed whole."),
    Metric("penstock_query_without_period", False, _Q, "queries.shedding.without_period", "Rows without a period."),
    Metric("penstock_query_exact", False, _Q, "queries.shedding.exact", "1 where the answer lacks nothing, else 0."),
    Metric(
        "penstock_query_coverage_at_least_ratio",
        False,
        _Q,
        "queries.shedding.coverage_at_least",
        "A certain bound of the coverage.",
    ),
    Metric(
        "penstock_query_accuracy_ratio", False, _Q, "queries.shedding.accuracy", "Estimated accuracy of the answer."
    ),
    Metric(
        "penstock_query_accuracy_low_ratio", False, _Q, "queries.shedding.accuracy_low", "Where its interval begins."
    ),
    Metric(
        "penstock_query_accuracy_high_ratio", False, _Q, "queries.shedding.accuracy_high", "Where its interval ends."
    ),
    Metric("penstock_query_accuracy_values", False, _Q, "queries.shedding.accuracy_values", "Values that it is of."),
    Metric("penstock_query_frequent_pairs_held", False, _Q, "queries.frequent.pairs_held", "Items of live lists."),
    Metric(
        "penstock_query_frequent_missed_share_ratio",
        False,
        _Q,
        "queries.frequent.missed_share",
        "Greatest share of the counts that an item in no list can have.",
    ),
    Metric(
        "penstock_query_negative_values_total",
        True,
        _Q,
        "queries.approximations.negative_values",
        "Values below 0 of the SUM by which items are FREQUENT.",
    ),
    Metric(
        "penstock_query_values_out_of_range_total",
        True,
        _Q,
        "queries.approximations.values_out_of_range",
        "Values outside of the range that a bound of an ESTIMATE gives.",
    ),
    Metric(
        "penstock_query_rows_never_drawn_total",
        True,
        _Q,
        "queries.approximations.rows_never_drawn",
        "Rows that a sample with WEIGHT never draws.",
    ),
    Metric(
        "penstock_query_estimate_width_ratio",
        False,
        _Q,
        "queries.approximations.estimate_width",
        "Half the distance of the bounds of an ESTIMATE emitted last, by their middle: the widest.",
    ),
    Metric(
        "penstock_query_sketch_width_ratio",
        False,
        _Q,
        "queries.approximations.sketch_width",
        "The same of sketches where it is constant, at a confidence of 0.95.",
    ),
    Metric(
        "penstock_query_rows_without_period_total",
        True,
        _Q,
        "queries.periods.without_period",
        "Rows left out since they have no period.",
    ),
    Metric(
        "penstock_query_rows_ended_on_arrival_total",
        True,
        _Q,
        "queries.periods.ended_on_arrival",
        "Rows whose period was over when they came, under `[VALID]`.",
    ),
    Metric(
        "penstock_query_open_periods",
        False,
        _Q,
        "queries.periods.open_periods",
        "Sessions that have not ended, and stretches that CLOSED waits for.",
    ),
    Metric("penstock_operator_seconds_total", True, _O, "operators.seconds", "Time an operator worked, in all shards."),
    Metric("penstock_operator_state_rows", False, _O, "operators.state_rows", "Rows of an operator's state."),
    Metric("penstock_operator_state_bytes", False, _O, "operators.state_bytes", "Bytes of an operator's state."),
)
