"""`penstock.preferences` and `penstock.summaries`: what a server tells of the work of preferences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from control_kit import Server, server

from penstock.control.entities.preferences import PREFERENCES, SUMMARIES
from penstock.control.entities.queries import QUERIES
from penstock.control.entities.system import SystemView
from penstock.figures import SERIES
from penstock.physical.execution.progress import NOTHING
from penstock.runtime.monitoring.metrics import RunMetrics, samples
from penstock.runtime.monitoring.preference_metrics import preference_text

SCRIPT = """
CREATE STREAM A (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;
CREATE STREAM B (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND RETAIN 1000 SECONDS;
CREATE SUMMARY of_a ON A (k) WITH GRANULARITY 5 SECONDS USING EXACT;
CREATE SUMMARY of_b ON B (k);
CREATE QUERY q AS SELECT A.k FROM A [RANGE 100 SECONDS], B [RANGE 100 SECONDS] WHERE A.k = B.k
  WITH PREFERENCE DESC SUMMARY.Estimate.Count(A.k) FADE FACTOR 0.5 BUDGET 1 PER SECOND;
CREATE QUERY plain AS SELECT k FROM A [RANGE 100 SECONDS] WITH PREFERENCE k BUDGET UNLIMITED;
"""


def view(system: Server) -> SystemView:
    return system.control.view()


def listed(system: Server) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rows of both relations."""
    found = view(system)
    preferences, summaries = (
        [{one.name: one.read(row) for one in relation.attributes} for row in relation.rows(found)]
        for relation in (PREFERENCES, SUMMARIES)
    )
    return preferences, summaries


def test_the_work_of_a_preference_and_its_summary_are_listed(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(SCRIPT)
        (before,), (of_a, of_b) = listed(system)
        assert (before["query"], before["direction"], before["fade"]) == ("q", "DESC", 0.5)
        assert before["budget"] == "1 PER 1 ticks" and before["share"] is None, "one without a budget is no row"
        assert (of_a["readers"], of_a["queries"], of_a["method"]) == (1, "q", "EXACT") and of_a["bytes"] > 0
        assert (of_b["readers"], of_b["stream"], of_b["columns"], of_b["bytes"]) == (0, "B", "k", None)
        system.done("INSERT INTO A VALUES (1, 7), (1, 7), (1, 8); INSERT INTO B VALUES (2, 7), (2, 8);")
        system.done("INSERT INTO A VALUES (4, 9); INSERT INTO B VALUES (5, 9);")
        system.engine.round()
        (row,), (of_a, _) = listed(system)
        assert 0 < row["share"] < 1 and row["units_waiting"] > 0
        assert row["units_asked"] == row["units_done"] + row["units_waiting"] + row["units_expired"]
        assert row["results_per_row"] == row["results"] / 5, "the last row of each stream is beyond the heartbeat"
        assert 0 <= row["completeness"] < 1
        assert of_a["rows"] == 3 and of_a["bytes"] > 0


def test_metrics_and_the_summary_of_a_run_tell_the_same(tmp_path: Path) -> None:
    with server(tmp_path) as system:
        system.done(SCRIPT)
        system.done("INSERT INTO A VALUES (1, 7), (20, 1); INSERT INTO B VALUES (2, 7), (9, 7), (20, 1);")
        system.engine.round()
        ((row,), _), run = listed(system), view(system).figures.metrics
        name, told = next((name, one.preference) for name, one in run.queries.items() if one.preference is not None)
        series = {f.series: dict(samples(f, run)) for f in SERIES if "_preference_" in f.series}
        for metric, column in (
            ("share_ratio", "share"),
            ("completeness_ratio", "completeness"),
            ("other_delay_seconds", "other_delay"),
            ("age_difference_seconds", "age_difference"),
        ):
            assert series[f"penstock_query_preference_{metric}"][name,] == row[column]
        assert row["age_difference"] == pytest.approx(4.5)
        assert told is not None
        assert preference_text(told).startswith("100.0 % of the work of its preference is done; about 100.0 % of all")


def test_a_run_without_preferences_has_no_series() -> None:
    assert not [f.series for f in SERIES if "_preference_" in f.series and list(samples(f, RunMetrics()))]


def test_a_query_whose_time_has_not_begun_has_no_heartbeat(tmp_path: Path) -> None:
    """A run on Spark calls it a tick before all others."""
    with server(tmp_path) as system:
        system.done(SCRIPT)
        found = view(system)
        places = [one.query.place for one in found.listed]
        version = replace(found.version, heartbeats=dict(zip(places, (NOTHING, 5), strict=True)))
        found = replace(found, find_version=lambda: version)
        ticks = {row.name: row.heartbeat_tick for row in QUERIES.rows(found)}
        assert ticks == {"q": None, "plain": 5}
