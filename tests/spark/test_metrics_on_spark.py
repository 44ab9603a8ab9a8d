"""Metrics, log events and pace of a run on Spark."""

from __future__ import annotations

import json
import logging
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.connectors.sinks.files import read_result
from penstock.session import Session

SCRIPT = """
SET metrics_file = '{folder}/metrics.jsonl';
SET metrics_port = 0;
SET max_batch_bytes = 1;
SET target_latency = '10 seconds';
CREATE STREAM S (ts BIGINT, k INT) FROM FILES (path '{folder}/in', format 'csv') TIMESTAMP BY ts;
CREATE QUERY sums INTO FILES (path '{folder}/out', format 'csv') AS
    SELECT k, COUNT(*) AS n FROM S [RANGE 5 SECONDS] GROUP BY k;
"""


def test_a_run_tells_what_it_does(spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "in").mkdir()
    for file in range(3):
        rows = "".join(f"{10 * file + i},{i % 2}\n" for i in range(10)) + "x,1\n" * (file == 1)
        (tmp_path / "in" / f"{file}.csv").write_text("ts,k\n" + rows)
    session = Session(spark)
    session.execute(SCRIPT.format(folder=tmp_path))
    caplog.set_level(logging.INFO, "penstock")
    run = session.start(checkpoint=str(tmp_path / "checkpoint"))
    with urllib.request.urlopen(f"http://127.0.0.1:{run.metrics_port}/metrics") as answer:
        families = {f.name for f in text_string_to_metric_families(answer.read().decode())}
    assert {"penstock_source_rows", "penstock_state_bytes", "penstock_batch_phase_seconds"} <= families
    run.wait()
    last = run.metrics()
    assert last.sources["S"].rows == 31
    assert last.sources["S"].malformed == 1
    assert last.queries["sums"].rows == read_result(str(tmp_path / "out")).num_rows == run.progress().rows_out

    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["batch"] for line in lines] == [0, 1, 2]
    assert [line["sources"]["S"]["backlog_splits"] for line in lines] == [2, 1, 0]
    assert lines[0]["sources"]["S"]["heartbeat"] == 8
    assert lines[0]["state_bytes"] > 0
    for line in lines:
        assert sum(line["last_phases"].values()) == pytest.approx(line["last_seconds"])
        assert all(
            line["last_phases"][p] > 0 for p in ("read", "ingest", "exchange", "operators", "state", "sink", "spark")
        )
    operators = {o["name"].split()[1]: o for o in lines[0]["operators"]}
    assert operators["Aggregate"]["queries"] == ["sums"]
    assert operators["Aggregate"]["state_bytes"] > 0
    assert operators["Aggregate"]["seconds"] > 0

    events = [r.event for r in caplog.records if r.name == "penstock.runtime"]  # type: ignore[attr-defined]
    assert events == ["endpoint", "start", "batch", "batch", "dead_letters", "batch", "stop"]
