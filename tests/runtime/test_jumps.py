"""A jump of time over many boundaries is told once, with the clause that would have kept the record out."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest
from inline_run import InlineRun

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.runtime.monitoring.time_jumps import MOST_BOUNDARIES
from penstock.runtime.spark.output.totals import RunTotals

STREAM = "CREATE STREAM S (ts BIGINT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND{};"


def told(records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if getattr(record, "event", "") == "jump"]


@pytest.mark.parametrize(
    ("query", "slide"),
    [
        ("SELECT v FROM S [RANGE 1 MINUTE SLIDE 2 SECONDS]", 2),
        (
            "SELECT v FROM S [RANGE 1 MINUTE SLIDE 9 s] UNION ALL SELECT v FROM S [RANGE 1 HOUR SLIDE 3 s]",
            3,
        ),
        ("SELECT COUNT(*) AS n FROM S [RANGE 1 MINUTE, FREQUENCY 4 SECONDS]", 4),
        ("SELECT v FROM S [FREQUENCY 5 SECONDS]", 5),
        ("SELECT v FROM (ISTREAM(SELECT v FROM S [RANGE 1 SECOND])) [PARTITION BY v ROWS 2 SLIDE 6 SECONDS] AS d", 6),
        ("SELECT v FROM S [RANGE 1 SECOND]", None),
    ],
)
def test_a_jump_over_many_boundaries_is_told_once(
    query: str, slide: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock.runtime")
    bound = bind_script(f"{STREAM.format('')}CREATE QUERY q AS {query};")
    most = MOST_BOUNDARIES * (slide or 1)
    for jump, expected in ((most, 0), (most + 1, slide is not None)):
        caplog.clear()
        ticks = [5, 6, 6 + jump, 7, 6 + 3 * jump]
        run_local(bound.queries, {"S": pa.table({"ts": ticks[:4], "v": pa.array([1] * 4, pa.int32())})}, batch_rows=1)
        assert len(told(caplog.records)) == expected
        caplog.clear()
        run_local(bound.queries, {"S": pa.table({"ts": ticks, "v": pa.array([1] * 5, pa.int32())})})
        assert len(told(caplog.records)) == (slide is not None)
        assert all("ADVANCE AT MOST" in text for text in told(caplog.records))


def test_with_the_clause_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock.runtime")
    declared = STREAM.format(" ADVANCE AT MOST 1000000000 SECONDS")
    bound = bind_script(f"{declared}CREATE QUERY q AS SELECT v FROM S [RANGE 1 SECOND SLIDE 1 SECOND];")
    run_local(bound.queries, {"S": pa.table({"ts": [1, 999_999_999], "v": pa.array([1, 2], pa.int32())})})
    assert told(caplog.records) == []


def test_a_run_tells_it_once_also_after_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock.runtime")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("ts,v\n1,1\n2,1\n500000,2\n")
    (tmp_path / "in" / "b.csv").write_text("ts,v\n500001,1\n1500000,2\n")
    script = f"""SET max_batch_bytes = 1;
    CREATE STREAM S (ts BIGINT, v INT) FROM FILES (path '{tmp_path / "in"}', format 'csv', header 'true')
      TIMESTAMP BY ts UNIT SECOND;
    CREATE QUERY q INTO FILES (path '{tmp_path / "out"}') AS SELECT v FROM S [RANGE 4 SECONDS SLIDE 2 SECONDS];"""
    run = InlineRun(script, tmp_path / "checkpoint").run(1)
    for _ in range(2):
        accounts = RunTotals(run.folder)
        accounts.warn_of_jumps(run.job.plan)
        accounts.close_batch()
    assert len(told(caplog.records)) == 1
    run = InlineRun(script, tmp_path / "checkpoint").run()
    accounts = RunTotals(run.folder)
    accounts.warn_of_jumps(run.job.plan)
    accounts.close_batch()
    assert len(told(caplog.records)) == 1
