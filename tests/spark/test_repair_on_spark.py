"""A query that `penstock repair` has paused is left out by the next start of a server on Spark, and can be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.sinks.files import read_result
from penstock.control.control import Control
from penstock.control.repair import pause_queries
from penstock.control.spark import SparkEngine


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.spark
def test_the_next_start_leaves_a_paused_query_out(spark: Any, tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"

    def opened() -> tuple[SparkEngine, Control]:
        engine = SparkEngine(checkpoint, lambda: spark)
        return engine, Control(checkpoint, engine, {"shards": "2"})

    def answers(name: str) -> list[int]:
        path = out / name
        return [row["v"] for row in read_result(str(path)).to_pylist()] if path.exists() else []

    def insert(*ticks: int) -> None:
        control.insert("S", pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(ticks, pa.int32())}))

    engine, control = opened()
    control.submit(
        "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
        f"CREATE QUERY bad INTO FILES (path '{out / 'bad'}', format 'json') AS SELECT v FROM S;"
        f"CREATE QUERY good INTO FILES (path '{out / 'good'}', format 'json') AS SELECT v FROM S WHERE v > 0;"
    )
    insert(1, 2, 3)
    until(lambda: len(answers("bad")) >= 2 and len(answers("good")) >= 2)
    control.close()
    engine.close()
    assert pause_queries(checkpoint, ["bad"]) == [("bad", "RUNNING")]
    before = answers("bad")

    engine, control = opened()
    assert [one.name for one in engine.run.work.queries] == [f"q{control.query('good')[1].place}"]  # type: ignore[union-attr]
    insert(4, 5)
    until(lambda: 4 in answers("good"))
    assert answers("bad") == before and control.query("bad")[1].status.value == "PAUSED"
    control.submit("ALTER QUERY bad RESUME START NOW;")
    insert(6, 7, 8)
    until(lambda: 7 in answers("bad") and 7 in answers("good"))
    assert 4 not in answers("bad") and answers("good") == [*range(1, len(answers("good")) + 1)]
    control.close()
    engine.close()
