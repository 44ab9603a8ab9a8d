"""The metrics of a run: the objects that `metrics()` returns. Each of their fields is a figure of `figures/`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.figures import ESTIMATE_WIDTH, OPEN_PERIODS, PAIRS_HELD, SHED_BUDGET, WITHOUT_PERIOD
from penstock.figures.figure import Figure, FigureValues, fields_of, number, put_together
from penstock.runtime.monitoring.preference_metrics import PreferenceMetrics
from penstock.runtime.monitoring.stopwatch import PHASES


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
    def of(figures: Sequence[FigureValues]) -> SheddingMetrics | None:
        """Return the metrics of a query from the figures of its operators in each shard; None where none has a
        budget."""
        found = put_together(one for one in figures if SHED_BUDGET in one)
        if not found:
            return None
        return SheddingMetrics(**fields_of(found, SHED_BUDGET.owner), without_period=number(found, WITHOUT_PERIOD))


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
    def of(figures: FigureValues) -> FrequentMetrics | None:
        """Return the metrics of a query from the figures of its operators; None where none has lists."""
        return FrequentMetrics(**fields_of(figures, PAIRS_HELD.owner)) if PAIRS_HELD in figures else None


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
    def of(figures: FigureValues, sketch_width: float | None) -> ApproximationMetrics | None:
        """Return the metrics of a query from the figures of its operators; None where none counts these, and it has no
        sketches with a width."""
        found = fields_of(figures, ESTIMATE_WIDTH.owner)
        return None if sketch_width is None and not found else ApproximationMetrics(**found, sketch_width=sketch_width)


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
    def of(figures: FigureValues) -> PeriodMetrics | None:
        """Return the metrics of a query from the figures of its operators; None where it reads no periods."""
        found = fields_of(figures, OPEN_PERIODS.owner)
        return PeriodMetrics(**found) if found else None


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

    def as_json(self) -> dict[str, object]:
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


def samples(figure: Figure, run: RunMetrics) -> Iterator[Sample]:
    """Yield the values of a figure with those of its labels. What is not known has none."""
    owner, _, name = figure.field.partition(".")
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
