"""A query that `penstock repair` has paused is left out by the next start of a server on Spark, and can be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from control_on_spark_kit import opened, result, rows, until

from penstock.control.live.repair import pause_queries


@pytest.mark.spark
def test_the_next_start_leaves_a_paused_query_out(spark: Any, tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"

    def answers(name: str) -> list[int]:
        return [row[-1] for row in result(out / name)]

    engine, control = opened(checkpoint, spark)
    control.submit(
        "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
        f"CREATE QUERY bad INTO FILES (path '{out / 'bad'}', format 'json') AS SELECT v FROM S;"
        f"CREATE QUERY good INTO FILES (path '{out / 'good'}', format 'json') AS SELECT v FROM S WHERE v > 0;"
    )
    control.insert("S", rows(1, 2, 3))
    until(lambda: len(answers("bad")) >= 2 and len(answers("good")) >= 2, control)
    control.close()
    engine.close()
    assert pause_queries(checkpoint, ["bad"]) == [("bad", "RUNNING")]
    before = answers("bad")

    engine, control = opened(checkpoint, spark)
    assert [one.name for one in engine.run.work.queries] == [f"q{control.query('good')[1].place}"]  # type: ignore[union-attr]
    control.insert("S", rows(4, 5))
    until(lambda: 4 in answers("good"), control)
    assert answers("bad") == before and control.query("bad")[1].status.value == "PAUSED"
    control.submit("ALTER QUERY bad RESUME START NOW;")
    control.insert("S", rows(6, 7, 8))
    until(lambda: 7 in answers("bad") and 7 in answers("good"), control)
    assert 4 not in answers("bad") and answers("good") == [*range(1, len(answers("good")) + 1)]
    control.close()
    engine.close()
