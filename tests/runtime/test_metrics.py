"""The metrics of a run: their table, their three forms, and how the time of a batch is shared out."""

from __future__ import annotations

import json
import math
import re
import urllib.request
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from penstock.algebra.properties.statistics import Statistics
from penstock.errors import PenstockError
from penstock.figures import FIGURES, SERIES
from penstock.figures.figure import FigureKind
from penstock.language.scripts import bind_script
from penstock.physical.execution.meter import StateGauge, SynopsisSize
from penstock.physical.execution.progress import timed_sources
from penstock.physical.planning.planner import plan_queries, planned
from penstock.physical.planning.state_size.summary import job_state
from penstock.runtime.local.runtime import run_local
from penstock.runtime.monitoring.figures import BATCHES, RATE_SECONDS, BatchFigures, RunFigures
from penstock.runtime.monitoring.metrics import (
    ApproximationMetrics,
    FrequentMetrics,
    OperatorMetrics,
    PeriodMetrics,
    PreferenceMetrics,
    QueryMetrics,
    RunMetrics,
    SheddingMetrics,
    SourceMetrics,
    samples,
)
from penstock.runtime.monitoring.page import metrics_page
from penstock.runtime.monitoring.prometheus import Endpoint
from penstock.runtime.monitoring.recorder import AT_REST, Recorder, Totals
from penstock.runtime.monitoring.reports import IngestReport, ShardReport
from penstock.runtime.monitoring.stopwatch import PHASES, Stopwatch, share_out
from penstock.runtime.reporting import Reporter, ReportOptions

DOCS = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"

SCRIPT = """CREATE STREAM S (t TIMESTAMP, k INT, v INT) FROM MEMORY () TIMESTAMP BY t;
CREATE QUERY sums AS SELECT k, SUM(v) AS total FROM S [RANGE 10 SECONDS] GROUP BY k;
CREATE QUERY all_rows AS SELECT v FROM S [NOW] WHERE v > 2;"""


def table(rows: int) -> pa.Table:
    ticks = pa.array([i * 1_000_000 for i in range(rows)], pa.timestamp("us", "UTC"))
    values = pa.array(range(rows), pa.int32())
    return pa.table({"t": ticks, "k": pa.array([i % 3 for i in range(rows)], pa.int32()), "v": values})


def test_queries_of_metrics_get_other_names() -> None:
    """Those without a name are left out: an operator that works for one of them alone works for none that is known."""
    work = [OperatorMetrics(f"{n} Join", 1, queries) for n, queries in enumerate((("q1",), ("q1", "q2"), ("q2",)))]
    run = RunMetrics(7, queries={"q1": QueryMetrics(rows=3), "q2": QueryMetrics()}, operators=tuple(work))
    found = run.renamed({"q1": "sums", "q9": "other"})
    assert found.batches == 7 and found.queries == {"sums": run.queries["q1"]}
    assert [(each.queries, each.query) for each in found.operators] == [
        (("sums",), "sums"),
        (("sums",), "sums"),
        ((), ""),
    ]


def watched(rows: int = 40, batch_rows: int = 10, shards: int = 2) -> list[RunMetrics]:
    queries = bind_script(SCRIPT).queries
    found: list[RunMetrics] = []
    timestamp = timed_sources(queries[0].root)["S"].columns[0].type
    given = table(rows)
    given = given.set_column(0, "t", given.column(0).cast(timestamp))
    run_local(queries, {"S": given}, shards, batch_rows=batch_rows, watcher=found.append)
    return found


def test_a_local_run() -> None:
    found = watched()
    assert [run.batches for run in found] == [1, 2, 3, 4]
    last = found[-1]
    assert last.sources["S"].rows == 40
    assert last.queries["all_rows"].rows == 37 + 36  # the last one stands
    assert last.queries["sums"].rows > 40
    assert found[1].sources["S"].heartbeat == pytest.approx(19, abs=1e-5)
    assert found[1].sources["S"].lag is not None and found[1].sources["S"].lag > 1e9
    assert found[0].state_bytes > 0
    assert found[0].queries["sums"].state_bytes > found[0].queries["all_rows"].state_bytes
    assert {o.query for o in last.operators} >= {"sums", "all_rows"}
    for run in found:
        assert sum(run.last_phases.values()) == pytest.approx(run.last_seconds)
        assert run.last_phases["operators"] > 0
        assert run.last_phases["ingest"] > 0
        assert run.last_phases["sink"] > 0
    assert sum(last.phases.values()) == pytest.approx(last.seconds)
    assert last.seconds == pytest.approx(sum(run.last_seconds for run in found))


def test_rows_a_second_are_those_of_the_last_batch() -> None:
    for before, run in zip(watched(), watched()[1:], strict=False):
        assert run.sources["S"].rows_per_second * run.last_seconds == pytest.approx(10)
        assert run.sources["S"].rows - before.sources["S"].rows == 10


phases = st.dictionaries(st.sampled_from(PHASES[:5]), st.floats(0, 10))


@settings(deadline=None, max_examples=200)
@given(
    st.floats(0.001, 100), st.lists(st.lists(phases, max_size=5), max_size=4), st.integers(1, 8), st.floats(0, 5)
)  # fmt: skip
def test_the_phases_add_up_to_the_duration(
    duration: float, stages: list[list[dict[str, float]]], cores: int, sink: float
) -> None:
    shares = share_out(duration, stages, cores, sink)
    assert tuple(shares) == PHASES
    assert all(share >= 0 for share in shares.values())
    assert sum(shares.values()) == pytest.approx(duration)


def test_tasks_side_by_side_take_as_long_as_the_longest() -> None:
    tasks = [{"read": 2.0}, {"read": 1.0, "ingest": 1.0}]
    assert share_out(10, [tasks], 2, 1.0) == pytest.approx(
        {"read": 1.5, "ingest": 0.5, "exchange": 0, "operators": 0, "state": 0, "sink": 1.0, "spark": 7.0}
    )
    assert share_out(10, [tasks], 1, 0.0)["read"] == pytest.approx(3.0)
    assert share_out(2, [tasks], 1, 0.0)["spark"] == pytest.approx(0.0)


def test_a_phase_within_another_is_taken_out_of_it() -> None:
    now = [0.0]
    watch = Stopwatch(lambda: now[0])

    def slowly() -> object:
        for item in range(2):
            now[0] += 2
            yield item

    with watch.phase("ingest"):
        now[0] += 1
        with watch.phase("exchange"):
            now[0] += 5
        now[0] += 1
    for _ in watch.through("read", slowly()):  # type: ignore[arg-type]
        now[0] += 100
    assert watch.seconds == {"ingest": 2.0, "exchange": 5.0, "read": 4.0}


def test_state_is_looked_at_no_more_often_than_it_costs() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 1
        return now[0]

    gauge = StateGauge(clock)
    looks = [gauge.look({}) for _ in range(120)]
    assert looks[0] == {}
    assert 2 <= sum(found is not None for found in looks) <= 4


def test_the_documented_table_is_the_table() -> None:
    assert DOCS.read_text() == metrics_page(), "python -m penstock.runtime.monitoring.page > docs/metrics.md"
    rows = re.findall(
        r"^\| `(penstock_\w+)` \| (\w+) \| (.*?) \| `([\w.]+)` \| (.*) \|$", DOCS.read_text(), re.MULTILINE
    )
    expected = [
        (
            figure.series,
            figure.kind.value,
            ", ".join(f"`{label}`" for label in figure.labels) or "-",
            figure.field.removeprefix("run."),
            figure.sentence,
        )
        for figure in SERIES
    ]
    assert rows == expected
    assert re.findall(r"^\| `([a-z]+)` \| [^|]*\|$", DOCS.read_text(), re.MULTILINE) == list(PHASES)


def test_every_figure_is_in_the_table() -> None:
    declared = {figure.field for figure in FIGURES if figure.field}
    names = {
        "sources": SourceMetrics, "queries": QueryMetrics, "queries.shedding": SheddingMetrics,
        "queries.preference": PreferenceMetrics,
        "queries.frequent": FrequentMetrics,
        "queries.periods": PeriodMetrics,
        "queries.approximations": ApproximationMetrics,
        "operators": OperatorMetrics, "run": RunMetrics,
    }  # fmt: skip
    keys = {"operators.name", "operators.stage", "operators.queries", "run.sources", "run.queries", "run.operators"}
    keys |= {
        "queries.shedding",
        "queries.preference",
        "queries.frequent",
        "queries.periods",
        "queries.approximations",
    }
    assert {f"{where}.{f.name}" for where, kind in names.items() for f in fields(kind)} - keys == declared


def test_names_follow_the_conventions() -> None:
    for figure in SERIES:
        assert figure.kind in (FigureKind.COUNTER, FigureKind.GAUGE)
        assert figure.series.endswith("_total") == (figure.kind is FigureKind.COUNTER)
        units = (
            "total|seconds|bytes|rows|splits|records|second|held|budget|live|periods?|exact|values|ratio|units|entries"
        )
        assert re.fullmatch(rf"penstock_[a-z_]+_({units})", figure.series)


def test_the_endpoint() -> None:
    run = watched()[0]
    endpoint = Endpoint(lambda: run, 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics") as answer:
            text = answer.read().decode()
        with pytest.raises(PenstockError) as caught:
            Endpoint(lambda: run, endpoint.port)
        assert caught.value.code == "P0631"
    finally:
        endpoint.close()
    families = {f.name: f for f in text_string_to_metric_families(text)}
    for figure in SERIES:
        family = families[figure.series.removesuffix("_total")]
        assert family.type == figure.kind.value
        assert family.documentation == figure.sentence
        found = {tuple(s.labels[label] for label in figure.labels): s.value for s in family.samples}
        assert found == pytest.approx(dict(samples(figure, run)))
    assert families["penstock_source_rows"].samples[0].labels == {"source": "S"}


def reporter(wanted: ReportOptions) -> Reporter:
    queries = bind_script(SCRIPT).queries
    plan = plan_queries(queries)
    recorder = Recorder(plan, plan.sources, lambda: 100.0)
    return Reporter(recorder, wanted, RunMetrics, lambda: 100.0)


def held(reporter: Reporter, nbytes: int) -> None:
    step = max(s.id for s in reporter.recorder._plan.steps if s.spec.title == "Aggregate")
    reporter.recorder.report(ShardReport(1, 0, {}, {}, {step: {"groups": SynopsisSize("KeyedTable", 1, nbytes)}}))


def test_lines_of_json(tmp_path: Path) -> None:
    place = tmp_path / "metrics.jsonl"
    place.write_text("{}\n")
    told = reporter(ReportOptions(str(place)))
    told.recorder.report(IngestReport(0, {"read": 0.25}))
    told.batch(7, 1.0, 0.5, 2, Totals(8, {"S": (10, 1, 0)}, {"sums": 4}, {"S": 50_000_000}, {"sums": 40_000_000}))
    told.close()
    line = json.loads(place.read_text().splitlines()[1])
    assert (line["time"], line["batch"], line["batches"]) == ("1970-01-01T00:01:40.000Z", 7, 8)
    assert line["last_phases"]["read"] == 0.25
    assert line["last_phases"]["spark"] == 0.25
    assert line["sources"]["S"] | {"x": 0} == {
        "rows": 10,
        "rows_per_second": 10.0,
        "late": 1,
        "malformed": 0,
        "heartbeat": 50.0,
        "lag": 50.0,
        "backlog_splits": 0,
        "backlog_bytes": 0,
        "backlog_records": 0,
        "passed": 0,
        "x": 0,
    }
    assert line["queries"]["sums"]["lag"] == 60.0
    assert line["queries"]["all_rows"]["heartbeat"] is None


def test_rates_are_0_when_nothing_comes() -> None:
    plan, now = plan_queries(bind_script(SCRIPT).queries), [100.0]
    recorder = Recorder(plan, plan.sources, lambda: now[0])
    totals = Totals(1, {"S": (10, 0, 0)}, {"sums": 4})
    for seconds, rest in ((1.0, AT_REST), (20.0, 40.0)):
        recorder.batch(seconds, 0.0, 1, totals)
        known = recorder.metrics(totals)
        now[0] += rest
        found = recorder.metrics(totals)
        assert found.sources["S"].rows_per_second == known.sources["S"].rows_per_second, "a batch may be in progress"
        now[0] += 0.1
        found = recorder.metrics(totals)
        assert found.sources["S"].rows_per_second == found.queries["sums"].rows_per_second == 0
        assert (found.sources["S"].rows, found.queries["sums"].rows) == (totals.sources["S"][0], totals.queries["sums"])
        totals = Totals(2, {"S": (30, 0, 0)}, {"sums": 9})
    assert known.sources["S"].rows_per_second == 1 and known.queries["sums"].rows_per_second == 0.25


def test_a_rate_is_that_of_the_last_seconds() -> None:
    def batches(*ends: float) -> tuple[BatchFigures, ...]:
        return tuple(BatchFigures(n, at, 0.01, {}, {"S": 5}, {}) for n, at in enumerate(ends))

    def rate(figures: RunFigures, now: float) -> float:
        return figures.rate(lambda batch: batch.rows_in["S"], now)

    once = RunFigures(batches=batches(80.0, 95.0, 96.0, 100.0), since=10.0)
    assert rate(once, 100.0) == pytest.approx(15 / RATE_SECONDS), "whatever the batches took"
    assert rate(once, 109.9) == pytest.approx(5 / RATE_SECONDS) and rate(once, 110.0) == 0
    assert rate(RunFigures(), 5.0) == 0
    # A young process, and more batches in these seconds than are known.
    assert rate(RunFigures(batches=batches(11.0), since=10.0), 12.0) == pytest.approx(5 / 2)
    many = batches(*(90 + n / 200 for n in range(BATCHES)))
    assert rate(RunFigures(batches=many, since=10.0), 95.0) == pytest.approx(1_000, rel=0.01)


def test_a_place_that_takes_no_lines(tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as caught:
        reporter(ReportOptions(str(tmp_path / "none" / "metrics.jsonl")))
    assert caught.value.code == "P0631"


def test_state_beyond_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    warns = reporter(ReportOptions(state_limit=1000))
    for nbytes in (900, 1100, 1200, 900, 1300):
        held(warns, nbytes)
        warns.batch(0, 1.0, 0.0, 1, Totals())
    assert [r.event for r in caplog.records] == ["state_limit", "state_limit"]  # type: ignore[attr-defined]
    assert "Aggregate of sums: 1,100" in caplog.messages[0]
    fails = reporter(ReportOptions(state_limit=1000, fail=True))
    held(fails, 1001)
    with pytest.raises(PenstockError) as caught:
        fails.batch(0, 1.0, 0.0, 1, Totals())
    assert caught.value.code == "P0632"


def test_state_that_promises_end_beyond_its_limit(caplog: pytest.LogCaptureFixture) -> None:
    """The message has what is open, and what each promise has closed."""
    warns = reporter(ReportOptions(state_limit=1000))
    step = max(s.id for s in warns.recorder._plan.steps if s.spec.title == "Aggregate")
    for shard in (0, 1):
        groups = SynopsisSize("KeyedTable", 1_500, 900, closed={"CLUSTERED BY a WITHIN 2 ROWS of S": 4_000})
        values = SynopsisSize("ClusteredIndex", 7, 90, closed={"CLUSTERED BY a WITHIN 2 ROWS of S": 5})
        sizes = {step: {"groups": groups, "closings0_0": values}}
        warns.recorder.report(ShardReport(1, shard, {}, {}, sizes))
    warns.batch(0, 1.0, 0.0, 1, Totals())
    expected = "Aggregate of sums: 1,980 (3,000 rows open, 8,000 closed by CLUSTERED BY a WITHIN 2 ROWS of S)"
    assert caplog.messages[0].endswith(expected)


def test_bursts_and_dead_letters_are_told(caplog: pytest.LogCaptureFixture) -> None:
    told = reporter(ReportOptions())
    for rows, late, malformed in ((1000, 5, 0), (2000, 5, 3), (3000, 105, 3)):
        told.batch(0, 1.0, 0.0, 1, Totals(1, {"S": (rows, late, malformed)}))
    assert [(r.event, r.fields) for r in caplog.records] == [  # type: ignore[attr-defined]
        ("dead_letters", {"source": "S", "malformed": 3}),
        ("late", {"source": "S", "late": 100, "rows": 1000}),
    ]


def test_what_an_earlier_process_has_told_is_not_told_again(caplog: pytest.LogCaptureFixture) -> None:
    recorder = reporter(ReportOptions()).recorder
    earlier = Totals(2, {"S": (1000, 100, 3)})
    told = Reporter(recorder, ReportOptions(), RunMetrics, lambda: 100.0, before=recorder.metrics(earlier))
    told.batch(2, 1.0, 0.0, 1, Totals(3, {"S": (2000, 100, 3)}))
    assert caplog.records == []


def test_growth_without_bound_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    told = reporter(ReportOptions())
    for batch in range(60):
        held(told, 20_000_000 + 5_000_000 * batch)
        told.batch(batch, 1.0, 0.0, 1, Totals(batch, {}, {}, {}, {"sums": 1_000_000 * batch}))
    (record,) = caplog.records
    assert record.event == "unbounded_state"  # type: ignore[attr-defined]
    assert record.fields["queries"] == ["sums"]  # type: ignore[attr-defined]
    assert record.fields["bytes_per_second"] == pytest.approx(5_000_000)  # type: ignore[attr-defined]
    assert "Aggregate of sums grows without bound" in caplog.messages[0]


def test_a_window_has_time_to_fill() -> None:
    queries = bind_script(SCRIPT).queries
    found = job_state(*planned(queries), Statistics()).horizons
    (seconds,) = (length for name, length in found.items() if "Aggregate" in name)
    assert seconds == 10


SHEDS = (
    "CREATE STREAM m (at BIGINT, k BIGINT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;"
    "CREATE QUERY q WITH (memory '100 TUPLES') AS SELECT k, VALID(s) FROM m (k) VALID FOR 3 SECONDS"
    " [RANGE 1000 SECONDS] AS s;"
    "CREATE QUERY other AS SELECT k FROM m [NOW];"
)


def test_a_query_that_sheds_has_figures_of_it() -> None:
    found: list[RunMetrics] = []
    table = pa.table({"at": pa.array(range(400), pa.int64()), "k": pa.array([t % 7 for t in range(400)], pa.int64())})
    run_local(bind_script(SHEDS).queries, {"m": table}, watcher=found.append, batch_rows=200, shards=2)
    last = found[-1].queries
    assert last["other"].shedding is None
    shed = last["q"].shedding
    assert shed is not None
    assert (shed.held, shed.budget, shed.arrived, shed.shed, shed.exact) == (100, 100, 400, 300, 0)
    assert shed.shed_live == 300
    assert 0 < shed.coverage_at_least < 1
    assert found[-1].as_json()["queries"]["q"]["shedding"]["held"] == 100
    series = {figure.series: list(samples(figure, found[-1])) for figure in SERIES}
    assert series["penstock_query_shed_total"] == [(("q",), 300.0)]
    assert series["penstock_query_accuracy_ratio"] == []


PERIODS = """CREATE STREAM m (at BIGINT, k STRING, n INT, b BIGINT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;
CREATE QUERY lasting AS SELECT k, VALID(s) FROM m (k) VALID FOR n SECONDS [RANGE 5 SECONDS] AS s;
CREATE QUERY told AS SELECT k, VALID(s) FROM m (k) VALID FOR n SECONDS AS s WHERE CLOSED(VALID(s));
CREATE QUERY given AS SELECT k, VALID(s) FROM m (k) VALID FROM at TO b [RANGE 5 SECONDS] AS s;
CREATE QUERY now AS SELECT k FROM m VALID FROM at TO b [VALID] AS s;
CREATE QUERY late AS SELECT k FROM m VALID FROM n TO b [VALID] AS s;
CREATE QUERY sessions AS SELECT k FROM m [PARTITION BY k SESSION n SECONDS];
CREATE QUERY sums AS SELECT k, VALID(c), COUNT(*) AS c FROM m [PARTITION BY k SESSION n SECONDS] AS c
  GROUP BY k, VALID(c);
CREATE QUERY other AS SELECT k FROM m [NOW];"""


@pytest.mark.parametrize(("batch_rows", "shards"), [(100, 1), (3, 2), (1, 3)])
def test_rows_without_a_period_and_what_goes_on_are_counted(batch_rows: int, shards: int) -> None:
    # Two equal rows without a length or an end that is behind the begin; n as a begin is before b and b before at.
    rows = [
        (1, "a", 3, 9), (2, "a", None, 9), (2, "a", None, 9), (3, "b", 0, 3), (4, "b", -1, 2), (5, "b", 2, None),
        (6, "a", 1, 6), (20, "c", 5, 30), (21, None, 5, 30), (21, "d", 5, 21),
    ]  # fmt: skip
    columns = dict(zip(("at", "k", "n", "b"), map(pa.array, zip(*rows, strict=True)), strict=True))
    found: list[RunMetrics] = []
    queries = bind_script(PERIODS).queries
    run_local(queries, {"m": pa.table(columns)}, watcher=found.append, batch_rows=batch_rows, shards=shards)
    last = {name: query.periods for name, query in found[-1].queries.items()}
    assert last.pop("other") is None
    counted = {
        name: (m.without_period, m.ended_on_arrival, m.open_periods) for name, m in last.items() if m is not None
    }
    assert counted == {
        "lasting": (4, 0, 0),
        "told": (4, 0, 3),
        "given": (4, 0, 0),
        "now": (4, 0, 0),
        "late": (2, 4, 0),
        "sessions": (4, 0, 3),
        "sums": (4, 0, 3),
    }
    series = {figure.series: list(samples(figure, found[-1])) for figure in SERIES}
    assert (("late",), 4.0) in series["penstock_query_rows_ended_on_arrival_total"]
    assert len(series["penstock_query_rows_without_period_total"]) == len(last)


def test_a_query_with_frequent_items_has_the_share_that_it_may_miss() -> None:
    script = """CREATE STREAM m (at BIGINT, k BIGINT, x STRING) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;
        CREATE QUERY q AS SELECT x, COUNT(*) AS n FROM m [RANGE 20 SECONDS SLIDE 10 SECONDS] GROUP BY x FREQUENT 1;
        CREATE QUERY per AS SELECT k, x, COUNT(*) AS n FROM m [RANGE 20 SECONDS SLIDE 10 SECONDS]
          GROUP BY k, x FREQUENT 1 PER (k);
        CREATE QUERY other AS SELECT k FROM m [NOW];"""
    # Two panes: of the second item there are 3 of 10 in each; of k = 2 it is 1 of 2.
    rows = [(1, 1, "a")] * 5 + [(2, 1, "b")] * 3 + [(3, 2, "c"), (3, 2, "d")]
    rows += [(at + 10, k, x) for at, k, x in rows] + [(21, 3, "a")]
    columns = (pa.array(column) for column in zip(*rows, strict=True))
    found: list[RunMetrics] = []
    given = pa.table(dict(zip(("at", "k", "x"), columns, strict=True)))
    run_local(bind_script(script).queries, {"m": given}, watcher=found.append, drain=False, shards=2)
    last = found[-1].queries
    assert last["other"].frequent is None and last["other"].shedding is None
    whole, per = last["q"].frequent, last["per"].frequent
    assert whole is not None and (whole.pairs_held, whole.missed_share) == (2, pytest.approx(0.3))
    assert per is not None and (per.pairs_held, per.missed_share) == (4, pytest.approx(0.5))
    series = {figure.series: list(samples(figure, found[-1])) for figure in SERIES}
    assert series["penstock_query_frequent_pairs_held"] == [(("q",), 2.0), (("per",), 4.0)]


@pytest.mark.parametrize(("batch_rows", "shards"), [(100, 1), (3, 2)])
def test_what_approximations_count_otherwise(batch_rows: int, shards: int) -> None:
    """Values that count 0, are out of a range or are never drawn are counted once each, and FREQUENT over windows that
    count rows has its figures too."""
    rows = [
        (1, 1, 5.0),
        (2, 2, -1.0),
        (3, 1, None),
        (4, 1, 9.0),
        (5, 2, math.nan),
        (6, 1, -3.0),
        (6, 1, -3.0),
        (7, 3, 0.0),
    ]
    items = "SELECT k, SUM(n) AS n FROM m {} GROUP BY k FREQUENT 1 BY SUM(n)"
    bound = "SELECT {}LOWER_BOUND(ESTIMATE(AVG(x)), 0.9, 0, 6) AS l, UPPER_BOUND(ESTIMATE(AVG(x)), 0.9, 0, 6) AS u"
    texts = {
        "frequent": items.format("[RANGE 4 SECONDS SLIDE 2 SECONDS]"),
        "rows": items.format("[ROWS 4 SLIDE 2 ROWS]"),
        "blocks": "SELECT k, COUNT(*) AS n FROM m [ROWS 4 SLIDE 2 ROWS] GROUP BY k FREQUENT 1",
        "only": items.format("[RANGE 4 SECONDS SLIDE 2 SECONDS]").replace("SUM(n)", "SUM(n) FILTER (WHERE k = 1)"),
        "weight": "SELECT k FROM m [RANGE 3 SECONDS] SAMPLE(2 ROWS WEIGHT x)",
        "rows_weight": "SELECT k FROM m [ROWS 3] SAMPLE(2 ROWS WEIGHT x)",
        "range": bound.format("") + " FROM m [RANGE 3 SECONDS] SAMPLE(4 ROWS)",
        "groups": "RSTREAM("
        + bound.format("k, ")
        + " FROM m SAMPLE(100) [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
        "other": "SELECT k, ESTIMATE(SUM(x)) AS e FROM m [RANGE 3 SECONDS] SAMPLE(4 ROWS) GROUP BY k",
    }
    script = "CREATE STREAM m (at BIGINT, k BIGINT, x DOUBLE, n BIGINT) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;"
    script += "".join(f"CREATE QUERY {name} AS {text};" for name, text in texts.items())
    at, k, x = (pa.array(column) for column in zip(*rows, strict=True))
    n = pa.array([None if v is None or math.isnan(v) else int(v) for v in x.to_pylist()], pa.int64())
    found: list[RunMetrics] = []
    given = pa.table({"at": at, "k": k, "x": x, "n": n})
    run_local(bind_script(script).queries, {"m": given}, watcher=found.append, batch_rows=batch_rows, shards=shards)
    last = {name: query.approximations for name, query in found[-1].queries.items()}
    assert last.pop("other") is None and last.pop("blocks") is None
    # A row of a window's sample is taken up again when its chance changes.
    again = last.pop("range")
    assert again is not None and again.values_out_of_range >= 5
    counted = {
        name: (m.negative_values, m.values_out_of_range, m.rows_never_drawn)
        for name, m in last.items()
        if m is not None
    }
    assert counted == {
        "frequent": (3, 0, 0),
        "rows": (3, 0, 0),
        "only": (2, 0, 0),
        "weight": (0, 0, 6),
        "rows_weight": (0, 0, 6),
        "groups": (0, 5, 0),
    }
    frequent = found[-1].queries["blocks"].frequent
    assert frequent is not None and frequent.pairs_held == 2
    series = {figure.series: list(samples(figure, found[-1])) for figure in SERIES}
    assert (("weight",), 6.0) in series["penstock_query_rows_never_drawn_total"]
    assert (("rows",), 3.0) in series["penstock_query_negative_values_total"]


def test_how_wide_bounds_are() -> None:
    """Widths of ESTIMATE are those of the rows told last, of all shards; those of sketches follow from constants."""
    bounds = "LOWER_BOUND(ESTIMATE({0}), {1}) AS l{2}, UPPER_BOUND(ESTIMATE({0}), {1}) AS u{2}"
    both = f"{bounds.format('SUM(x)', 0.9, 0)}, {bounds.format('AVG(x)', 0.95, 1)}"
    texts = {
        "relation": f"SELECT k, {both} FROM m SAMPLE(60) [RANGE 9 SECONDS] GROUP BY k",
        "slide": f"RSTREAM(SELECT k, {both} FROM m SAMPLE(60) [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k)",
        "blocks": f"RSTREAM(SELECT k, {both} FROM m [ROWS 20 SLIDE 5 ROWS] SAMPLE(12 ROWS) GROUP BY k)",
        "half": "SELECT ERROR_BOUND(ESTIMATE(SUM(x))) AS e FROM m SAMPLE(60) [RANGE 9 SECONDS]",
        "one_side": "SELECT LOWER_BOUND(ESTIMATE(SUM(x))) AS l FROM m SAMPLE(60) [RANGE 9 SECONDS]",
        "sketches": "SELECT APPROX_COUNT_DISTINCT(x, 0.1) AS a, APPROX_QUANTILE(x, 0.5, 0.1) AS b FROM m [NOW]",
        "exact": "SELECT COUNT(DISTINCT x) AS a FROM m [RANGE 9 SECONDS]",
        "zero": f"SELECT {bounds.format('SUM(0 * x)', 0.95, 0)} FROM m SAMPLE(60) [RANGE 9 SECONDS]",
    }
    script = "CREATE STREAM m (at BIGINT, k BIGINT, x DOUBLE) FROM MEMORY () TIMESTAMP BY at UNIT SECOND;"
    script += "".join(f"CREATE QUERY {name} AS {text};" for name, text in texts.items())
    found: list[RunMetrics] = []
    rows = np.arange(60)
    given = pa.table({"at": rows // 4, "k": rows % 3, "x": np.random.default_rng(3).random(60) + 1})
    told = run_local(bind_script(script).queries, {"m": given}, watcher=found.append, drain=False, shards=2).tables
    last = {name: query.approximations for name, query in found[-1].queries.items()}
    for name in ("relation", "slide", "blocks"):
        answer = told[name].to_pandas()
        if name == "relation":
            answer = answer[answer.op == "+"]
        figures = last[name]
        assert figures is not None and figures.sketch_width is None and figures.estimate_width is not None
        widths = [
            (row[f"u{n}"] - row[f"l{n}"]) / abs(row[f"u{n}"] + row[f"l{n}"])
            for _, row in answer.iterrows()
            for n in (0, 1)
            if row[f"u{n}"] is not None and not math.isnan(row[f"u{n}"])
        ]
        assert figures.estimate_width == pytest.approx(max(widths)) and figures.estimate_width > 0.01
    assert last["half"] is not None and last["half"].estimate_width
    assert last["one_side"] is None and last["exact"] is None
    assert last["zero"] is not None and last["zero"].estimate_width == 0
    sketches = last["sketches"]
    # 128 registers: 1.96 times 1.04 by the root of their number.
    assert sketches is not None and sketches.estimate_width is None
    assert sketches.sketch_width == pytest.approx(1.959964 * 1.04 / math.sqrt(128))
    series = {figure.series: list(samples(figure, found[-1])) for figure in SERIES}
    assert series["penstock_query_sketch_width_ratio"] == [(("sketches",), sketches.sketch_width)]
    assert {labels for labels, _ in series["penstock_query_estimate_width_ratio"]} == {
        ("relation",),
        ("slide",),
        ("blocks",),
        ("half",),
        ("zero",),
    }
