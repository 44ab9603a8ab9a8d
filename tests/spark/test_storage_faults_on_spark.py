"""Calls of the driver that fail under a run on Spark: a code, results intact, and the next start comes to the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.session import Session
from penstock.storage import replaced_storage
from penstock.storage.local import LocalStorage
from penstock.testing.faults import FailingCalls


def started(spark: Any, tmp_path: Path, out: str) -> Any:
    session = Session(spark)
    session.execute(f"""SET max_batch_bytes = 1; SET shards = 2;
    CREATE STREAM `a/../b` (ts BIGINT, x BIGINT) FROM FILES (path '{tmp_path}/in', format 'parquet')
      TIMESTAMP BY ts UNIT SECOND;
    CREATE QUERY q INTO FILES (path '{tmp_path}/{out}') AS SELECT x, COUNT(*) AS n FROM `a/../b` [RANGE 3 SECONDS]
      GROUP BY x;""")
    return session.start(str(tmp_path / f"{out}-checkpoint"))


def rows(tmp_path: Path, out: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_result(str(tmp_path / out)).to_pylist()
    return found


def test_calls_of_the_driver_that_fail(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        table = pa.table({"ts": [2 * number, 2 * number + 1], "x": [number % 2, 1]})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
    started(spark, tmp_path, "calm").wait()
    calm = rows(tmp_path, "calm")
    codes = []
    # The last starts fail early: how much is left to them depends on how far rounds were planned ahead.
    for kind, number in (("fsync", 18), ("rename", 5), ("write", 4)):
        calls = FailingCalls(kind, number)
        with replaced_storage(LocalStorage(calls)), pytest.raises(PenstockError) as told:
            started(spark, tmp_path, "out").wait(120)
        assert calls.failed
        codes.append(told.value.code)
        if (tmp_path / "out" / "_penstock.json").exists():
            so_far = rows(tmp_path, "out")
            assert so_far == calm[: len(so_far)]
    assert set(codes) <= {"P0601", "P0502"}
    started(spark, tmp_path, "out").wait()
    assert rows(tmp_path, "out") == calm
    # What Spark logged of the runs that failed is kept where it is private, where its process is ours.
    log = tmp_path / "out-checkpoint" / "spark.log"
    assert not log.exists() or log.stat().st_mode & 0o077 == 0
