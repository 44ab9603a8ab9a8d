"""A user-defined function that ends its process, on Spark: its query fails alone, and the others go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from control_on_spark_kit import opened, result, until


@pytest.mark.spark
def test_a_function_that_ends_its_process(spark: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    engine, control = opened(tmp_path / "checkpoint", spark)
    control.submit(
        "CREATE FUNCTION dying (BIGINT) RETURNS BIGINT AS 'benchmarks.bad_queries.faults:dying';"
        "CREATE STREAM s (t TIMESTAMP, v BIGINT) FROM HTTP () TIMESTAMP BY t;"
        f"CREATE QUERY good INTO FILES (path '{out / 'good'}', format 'json') AS SELECT v FROM s;"
        f"CREATE QUERY bad INTO FILES (path '{out / 'bad'}', format 'json') AS SELECT dying(v) AS x FROM s;"
    )
    control.submit("INSERT INTO s VALUES ('2024-01-01 00:00:00', 1), ('2024-01-01 00:00:01', 2);")
    until(lambda: control.query("bad")[1].status.value == "FAILED", control)
    query = control.query("bad")[1]
    assert query.code == "P0621"
    assert "query bad: the user-defined function dying failed: the process in which it ran" in (query.message or "")
    control.submit("INSERT INTO s VALUES ('2024-01-01 00:00:02', 3), ('2024-01-01 00:00:03', 4);")
    until(lambda: len(result(out / "good")) >= 3, control)
    control.submit("DROP QUERY bad;")
    control.close()
    engine.close()
