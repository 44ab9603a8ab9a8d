"""Commands and posted rows with the engine on Spark, over a stop and a start."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.sinks.files import read_result
from penstock.control.control import Control
from penstock.control.spark import SparkEngine
from penstock.errors import PenstockError


def rows(*ticks: int) -> pa.Table:
    return pa.table({"ts": pa.array(ticks, pa.int32()), "v": pa.array(ticks, pa.int32())})


def result(path: Path) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in read_result(str(path)).to_pylist()] if path.exists() else []


def until(path: Path, count: int, control: Control) -> list[tuple[Any, ...]]:
    """Wait until a result has so many rows."""
    end = time.monotonic() + 200
    while len(found := result(path)) < count:
        assert time.monotonic() < end and control.failure is None, found
        time.sleep(0.1)
    return found


@pytest.mark.spark
def test_a_server_goes_on_where_it_stopped(spark: Any, tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"

    def opened() -> tuple[SparkEngine, Control]:
        engine = SparkEngine(checkpoint, lambda: spark)
        return engine, Control(checkpoint, engine, {"shards": "2"})

    engine, control = opened()
    assert control.submit("SHOW QUERIES;")[0].outcome is None
    control.submit(
        "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
        f"CREATE QUERY sums INTO FILES (path '{out / 'sums'}', format 'json') AS "
        "SELECT ISTREAM(SUM(v) AS s) FROM S [RANGE 3 SECONDS];"
    )
    control.insert("S", rows(1, 2, 3), "a")
    assert not control.insert("S", rows(1, 2, 3), "a")
    until(out / "sums", 2, control)
    with pytest.raises(PenstockError, match="P0703"):
        control.submit("CREATE QUERY w START WARM AS SELECT SUM(v) AS s FROM S [RANGE 3 SECONDS];")
    control.submit(
        f"ALTER QUERY sums RENAME TO totals; CREATE QUERY more INTO FILES (path '{out / 'more'}', format 'json') "
        "AS SELECT v FROM S; INSERT INTO S VALUES (4, 4);",
        key="k",
    )
    (_, version) = control.version().number, control.version()
    assert version.command == 5
    until(out / "more", 1, control)
    control.close()
    engine.close()

    engine, control = opened()
    again = control.submit(
        f"ALTER QUERY sums RENAME TO totals; CREATE QUERY more INTO FILES (path '{out / 'more'}', format 'json') "
        "AS SELECT v FROM S; INSERT INTO S VALUES (4, 4);",
        key="k",
    )
    assert [one.outcome and one.outcome.number for one in again] == [3, 4, 5]
    assert not control.insert("S", rows(1, 2, 3), "a")
    control.submit("DROP QUERY more; INSERT INTO S VALUES (5, 5), (6, 6);")
    found = until(out / "sums", 5, control)
    assert [one[-1] for one in found[:5]] == [1, 3, 6, 9, 12]
    control.submit("DROP STREAM S CASCADE;")
    assert control.stored == {}
    control.submit(
        "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts UNIT SECOND;"
        f"CREATE QUERY fresh INTO FILES (path '{out / 'fresh'}', format 'json') AS SELECT v FROM S;"
        "INSERT INTO S VALUES (1, 1), (2, 2);"
    )
    # Another stream of the same name begins with its own time.
    assert [one[-1] for one in until(out / "fresh", 1, control)][:1] == [1]
    control.submit("ALTER QUERY fresh AS SELECT CAST(v + 100 AS INT) AS v FROM S START NOW;")
    control.insert("S", rows(3, 4, 5))
    assert {103, 104} <= {one[-1] for one in until(out / "fresh", 3, control)}
    control.close()
    engine.close()
