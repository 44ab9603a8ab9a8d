"""Punctuations on Spark: of posted streams, of files and of records, over a stop and a start, and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from control_on_spark_kit import opened, result, rows, until

from penstock.algebra.properties.punctuations import Punctuation, ValueBounds
from penstock.control.live.control import Control
from penstock.errors import PenstockError
from penstock.runtime.spark.job import SparkRun


def told(path: Path) -> list[Any]:
    return [tuple(row) for row in result(path)]


def at_least(path: Path, count: int, control: Control) -> list[Any]:
    until(lambda: len(told(path)) >= count, control, lambda: told(path))
    return told(path)


def counted(out: Path, name: str, source: str, start: str = "") -> str:
    into = f"INTO FILES (path '{out / name}', format 'json')"
    return f"CREATE QUERY {name} {into} {start} AS SELECT COUNT(*) AS n FROM {source} [RANGE 10 SECONDS];"


def set_apart(run: SparkRun | None, source: str) -> int:
    assert run is not None
    return int(run.metrics().sources[source].malformed)


@pytest.mark.spark
def test_they_are_kept_over_a_stop_and_a_start(spark: Any, tmp_path: Path) -> None:
    checkpoint, out, folder = tmp_path / "checkpoint", tmp_path / "out", tmp_path / "files"
    folder.mkdir()
    pq.write_table(pa.table({"ts": pa.array([1, 30], pa.int64()), "v": [1, 2]}), folder / "0.parquet")
    engine, control = opened(checkpoint, spark)
    control.submit(
        "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts RETAIN 1000 SECONDS;"
        f"CREATE STREAM F (ts BIGINT, v BIGINT) FROM FILES (path '{folder}', format 'parquet', watch 'true')"
        " TIMESTAMP BY ts;"
        "CREATE STREAM P (ts INT, v INT, p STRING) FROM HTTP () TIMESTAMP BY ts PUNCTUATED BY p;"
        f"{counted(out, 'n', 'S')} {counted(out, 'files', 'F')} {counted(out, 'records', 'P')}"
    )
    control.insert("S", rows(1, 2))
    assert control.punctuate("S", Punctuation(((0, ValueBounds(high=3)),)), "a")
    control.insert("S", rows(3, 5))
    assert not control.punctuate("S", Punctuation(((0, ValueBounds(high=3)),)), "a")
    control.submit("PUNCTUATE S WHERE ts = 6")
    control.insert("S", rows(6, 7))
    control.submit("ADVANCE S TO 60")
    expected = [(1, "+", 1), (2, "-", 1), (2, "+", 2), (5, "-", 2), (5, "+", 3), (7, "-", 3), (7, "+", 4)]
    assert at_least(out / "n", 7, control)[:7] == expected
    # Of files: at the head of the next round.
    control.submit("PUNCTUATE F WHERE v IN (5, 6)")
    until(lambda: all(engine.has_read(*pair) for pair in control.positions("F").items()), control)
    pq.write_table(pa.table({"ts": pa.array([31, 32], pa.int64()), "v": [5, 7]}), folder / "1.parquet")
    # A heartbeat of files stands at the head of a round, too: rows that are read with it are late.
    until(lambda: set_apart(engine.run, "F") == 1, control)
    control.submit("ADVANCE F TO 32")
    until(lambda: control.version().sources.get("f") == 32, control, control.version)
    texts = pa.array([None, "v = 2 AND ts <= 3", None, "nonsense", None], pa.string())
    control.insert("P", rows(1, 1, 2, 2, 3).append_column("p", texts))
    control.submit("ADVANCE P TO 60")
    at_least(out / "records", 3, control)
    assert control.version().punctuations == {"s": 2, "f": 2, "p": 1}
    # A query that begins WARM reads what the stream retains, which is what was accepted.
    control.submit(counted(out, "w", "S", "START AT 6"))
    # What was punctuated of the past is not known of files that are read again.
    with pytest.raises(PenstockError, match="P0703"):
        control.submit(counted(out, "again", "P", "START BEGINNING"))
    with pytest.raises(PenstockError, match="P0703"):
        control.submit(
            f"CREATE QUERY shut INTO FILES (path '{out / 'shut'}', format 'json') START WARM AS"
            " SELECT v, COUNT(*) AS n FROM P GROUP BY v HAVING CLOSED(v)"
        )
    until(lambda: set_apart(engine.run, "S") == 2, control)
    control.insert("S", rows(61))
    control.close()
    engine.close()

    engine, control = opened(checkpoint, spark)
    until(lambda: control.version().punctuations == {"s": 2, "f": 2, "p": 1}, control, control.version)
    pq.write_table(pa.table({"ts": pa.array([33, 34], pa.int64()), "v": [6, 8]}), folder / "2.parquet")
    until(lambda: set_apart(engine.run, "F") == 2, control)
    control.submit("PUNCTUATE S WHERE ts = 62")
    control.insert("S", rows(62, 63))
    control.submit("ADVANCE S TO 70; ADVANCE F TO 70; ADVANCE P TO 70")
    until(lambda: set_apart(engine.run, "S") == 3, control)
    assert at_least(out / "w", 1, control)[0][:2] == (6, "+")
    control.close()
    engine.close()
