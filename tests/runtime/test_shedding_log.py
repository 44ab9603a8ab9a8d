"""What the log tells of queries that shed."""

from __future__ import annotations

import pytest

from penstock.runtime.monitoring.metrics import QueryMetrics, RunMetrics, SheddingMetrics
from penstock.runtime.monitoring.shedding_log import SheddingLog


def run_of(heartbeat: float | None, shedding: SheddingMetrics | None) -> RunMetrics:
    return RunMetrics(queries={"q": QueryMetrics(heartbeat=heartbeat, shedding=shedding), "other": QueryMetrics()})


def figures(arrived: int, shed: int, *, exact: int = 0, accuracy: float | None = None) -> SheddingMetrics:
    low, high = (None, None) if accuracy is None else (accuracy - 0.03, accuracy + 0.03)
    return SheddingMetrics(
        held=10,
        budget=10,
        arrived=arrived,
        shed=shed,
        exact=exact,
        coverage_at_least=1.0 if exact else 0.74,
        accuracy=accuracy,
        accuracy_low=low,
        accuracy_high=high,
    )


def told(caplog: pytest.LogCaptureFixture, *runs: RunMetrics) -> list[tuple[str, str]]:
    log = SheddingLog()
    with caplog.at_level("INFO", "penstock.shedding"):
        for run in runs:
            log.batch(run)
        log.end()
    return [(record.event, record.getMessage()) for record in caplog.records]  # type: ignore[attr-defined]


def test_the_log_tells_when_shedding_begins_each_minute_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    assert told(
        caplog,
        run_of(5.0, figures(100, 0, exact=1)),
        run_of(70.0, figures(200, 0, exact=1)),
        run_of(80.0, figures(300, 12)),
        run_of(119.0, figures(300, 12)),
        run_of(121.0, figures(300, 12, accuracy=0.81)),
        run_of(130.0, figures(350, 30)),
        run_of(185.0, figures(400, 37)),
        run_of(400.0, figures(450, 37, exact=1)),
        run_of(500.0, figures(500, 37, exact=1)),
    ) == [
        ("shedding_begins", "q begins to shed: its budget is 10"),
        ("shedding", "q: 4 % of tuples shed, accuracy 0.81 (0.78 to 0.84), coverage at least 0.74"),
        ("shedding", "q: 25 % of tuples shed, coverage at least 0.74"),
        ("shedding", "q: 0 % of tuples shed, coverage at least 1.00"),
        ("shedding_ends", "q no longer sheds: its answer lacks nothing now"),
        ("shedding_sum", "q: 37 tuples of 500 shed in all (7 %), its answer lacks nothing now"),
    ]


def test_a_run_that_never_sheds_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert not told(caplog, run_of(5.0, figures(100, 0, exact=1)), run_of(500.0, figures(100, 0, exact=1)))


def test_a_query_whose_time_is_not_known_has_no_lines_of_minutes(caplog: pytest.LogCaptureFixture) -> None:
    events = told(caplog, run_of(None, figures(10, 5)), run_of(None, figures(20, 9)))
    assert [event for event, _ in events] == ["shedding_begins", "shedding_sum"]


def test_queries_that_are_gone_are_summed_up_once_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    log = SheddingLog()
    with caplog.at_level("INFO", "penstock.shedding"):
        log.batch(run_of(5.0, figures(100, 12)))
        log.keep(["q"])
        assert [record.event for record in caplog.records] == ["shedding_begins"]  # type: ignore[attr-defined]
        log.keep(["other"])
        log.end()
    told = [(record.event, record.getMessage()) for record in caplog.records]  # type: ignore[attr-defined]
    assert told[1:] == [("shedding_sum", "q: 12 tuples of 100 shed in all (12 %), coverage at least 0.74")]
    assert not log._logged and not log._last
