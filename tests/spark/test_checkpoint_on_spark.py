"""What becomes of a start whose checkpoint another run has, or whose log in Spark is damaged."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.session import Session


def started(spark: Any, tmp_path: Path) -> Any:
    session = Session(spark)
    session.execute(f"""SET max_batch_rows = 1; SET shards = 2;
    CREATE STREAM s (at BIGINT) FROM FILES (path '{tmp_path}/in/*.parquet', format 'parquet', watch 'true')
      TIMESTAMP BY at;
    CREATE QUERY q INTO FILES (path '{tmp_path}/out') AS SELECT ISTREAM(*) FROM s [NOW];""")
    return session.start(str(tmp_path / "checkpoint"))


def put(tmp_path: Path, *numbers: int) -> None:
    (tmp_path / "in").mkdir(exist_ok=True)
    for number in numbers:
        pq.write_table(pa.table({"at": pa.array([number], pa.int64())}), tmp_path / "in" / f"{number}.parquet")


def come(run: Any, rows: int) -> None:
    while run.progress().queries["q"].rows < rows:
        assert not run.wait(0.05)


def refused(spark: Any, tmp_path: Path) -> PenstockError:
    with pytest.raises(PenstockError) as told:
        started(spark, tmp_path).wait(60)
    return told.value


def test_a_second_start_and_a_damaged_log(spark: Any, tmp_path: Path) -> None:
    put(tmp_path, 1, 2, 3)
    run = started(spark, tmp_path)
    assert refused(spark, tmp_path).code == "P0609"
    come(run, 3)
    run.stop()
    whole = shutil.copytree(tmp_path / "checkpoint", tmp_path / "whole")
    log = tmp_path / "checkpoint" / "spark"

    def damaged(path: Path) -> None:
        error = refused(spark, tmp_path)
        assert error.code == "P0605" and str(path) in error.message and "\n" not in error.message
        shutil.rmtree(tmp_path / "checkpoint")
        shutil.copytree(whole, tmp_path / "checkpoint")

    shutil.rmtree(log)
    damaged(log)
    for path in (log / "metadata", log / "offsets" / "2"):
        path.write_bytes(path.read_bytes()[:-5])
        damaged(path)
    put(tmp_path, 4)
    run = started(spark, tmp_path)
    come(run, 4)
    run.stop()
    assert read_result(str(tmp_path / "out"))["at"].to_pylist() == [1, 2, 3, 4]
