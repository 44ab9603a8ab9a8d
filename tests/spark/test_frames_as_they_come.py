"""DataFrames and Arrow tables as people have them: times in files out of order, far times, types of every kind."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError
from penstock.session import Session

UTC = dt.UTC


def test_times_of_a_frame_in_any_order(spark: Any, tmp_path: Path) -> None:
    """Spark reads the largest file first, so the rows of a folder come in no order of time."""
    for hour in range(3):
        rows = [(f"2013-01-01 {hour:02}:{m:02}:00", m) for m in range(0, 60, 20 // (hour + 1))]
        spark.createDataFrame(rows, "at string, n int").selectExpr(
            "CAST(at AS timestamp) AS at", "n", "timestamp'9999-12-31 00:00:00' AS till"
        ).coalesce(1).write.parquet(str(tmp_path / "in" / f"hour={hour}"))
    session = Session(spark)
    session.stream("S", spark.read.parquet(str(tmp_path / "in")), timestamp="at")
    answer = session.query("SELECT n, hour, till FROM S").collect()
    assert answer["hour"].to_pylist() == [0] * 3 + [1] * 6 + [2] * 10
    assert answer["ts"].to_pylist() == sorted(answer["ts"].to_pylist())
    assert set(answer["till"].to_pylist()) == {dt.datetime(9999, 12, 31, tzinfo=UTC)}


def test_times_without_a_zone(spark: Any) -> None:
    session = Session(spark)
    frame = spark.sql("SELECT timestamp_ntz'2013-01-01 10:00:00' AS at, CAST(NULL AS void) AS nothing")
    session.stream("S", frame, timestamp="at")
    answer = session.query("SELECT nothing FROM S").collect().to_pylist()
    assert answer == [{"ts": dt.datetime(2013, 1, 1, 10, tzinfo=UTC), "nothing": None}]


def test_a_run_over_streaming_frames_fails_as_ours(spark: Any, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "in"))
    session = Session(spark)
    session.stream("S", spark.readStream.schema("id bigint").parquet(str(tmp_path / "in")), timestamp="id")

    @session.function(returns="BIGINT", parameters=["BIGINT"])
    def raising(values: Any) -> Any:
        raise ValueError("no such thing")

    with pytest.raises(PenstockError) as failed:
        session.query("SELECT raising(id) AS x FROM S").collect()
    assert failed.value.code == "P0621" and "no such thing" in failed.value.message


@pytest.mark.parametrize("column", ["interval 1 month", "interval 1 day", "array(timestamp'2013-01-01 00:00:00')"])
def test_frames_of_other_types(spark: Any, column: str) -> None:
    with pytest.raises(PenstockError) as refused:
        Session(spark).relation("R", spark.sql(f"SELECT 1 AS a, {column} AS c"))
    assert refused.value.code == "P0203" and "R.c is" in refused.value.message and refused.value.hint
