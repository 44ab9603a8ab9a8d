"""Heartbeats on Spark: silence is told of posted streams, files and idle ones, over a stop and a start, and once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from control_on_spark_kit import opened, result, rows, until

from penstock.control.live.control import Control
from penstock.errors import PenstockError
from penstock.runtime.spark.job import SparkRun
from penstock.session import Session


def told(path: Path) -> list[tuple[int, str, int]]:
    return [(ts, op, n) for ts, op, n in result(path)]


def at_least(path: Path, count: int, control: Control) -> list[tuple[int, str, int]]:
    until(lambda: len(told(path)) >= count, control, lambda: told(path))
    return told(path)


def counted(out: Path, name: str, source: str, start: str = "") -> str:
    into = f"INTO FILES (path '{out / name}', format 'json')"
    return f"CREATE QUERY {name} {into} {start} AS SELECT COUNT(*) AS n FROM {source} [RANGE 10 SECONDS];"


@pytest.mark.spark
def test_silence_is_told_over_a_stop_and_a_start(spark: Any, tmp_path: Path) -> None:
    checkpoint, out, folder = tmp_path / "checkpoint", tmp_path / "out", tmp_path / "files"
    folder.mkdir()
    pq.write_table(pa.table({"ts": pa.array([1, 30], pa.int64())}), folder / "0.parquet")
    engine, control = opened(checkpoint, spark)
    control.submit(
        "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts RETAIN 1000 SECONDS;"
        f"CREATE STREAM F (ts BIGINT) FROM FILES (path '{folder}', format 'parquet', watch 'true') TIMESTAMP BY ts;"
        "CREATE STREAM H (ts INT, v INT, h BOOLEAN) FROM HTTP () TIMESTAMP BY ts HEARTBEAT BY h;"
        f"{counted(out, 'n', 'S')} {counted(out, 'files', 'F')} {counted(out, 'records', 'H')}"
        + "".join(f"CREATE QUERY q{i} AS SELECT SUM(v) AS s FROM S [RANGE {i} SECONDS];" for i in range(1, 31))
    )
    # Without a pause, with rows between; 5 and 2 are late.
    control.insert("S", rows(1, 2))
    control.advance("S", 5, "a")
    control.insert("S", rows(2, 5, 6))
    assert not control.advance("S", 5, "a")
    control.submit("ADVANCE S TO 60")
    control.submit("ADVANCE F TO 60")
    flags = pa.array([None, False, True, None], pa.bool_())
    control.insert("H", rows(1, 2, 60, 60).append_column("h", flags))
    expected = [
        (1, "+", 1), (2, "-", 1), (2, "+", 2), (6, "-", 2), (6, "+", 3), (11, "-", 3), (11, "+", 2), (12, "-", 2),
        (12, "+", 1), (16, "-", 1), (16, "+", 0),
    ]  # fmt: skip
    assert at_least(out / "n", len(expected), control) == expected
    of_records = [(1, "+", 1), (2, "-", 1), (2, "+", 2), (11, "-", 2), (11, "+", 1), (12, "-", 1), (12, "+", 0)]
    assert at_least(out / "records", len(of_records), control) == of_records
    of_files = [(1, "+", 1), (11, "-", 1), (11, "+", 0), (30, "-", 0), (30, "+", 1), (40, "-", 1), (40, "+", 0)]
    assert at_least(out / "files", len(of_files), control) == of_files
    assert {"s": 60, "f": 60, "h": 60}.items() <= control.version().sources.items()
    until(lambda: all(engine.has_read(*pair) for pair in control.positions("F").items()), control)
    # A query that begins WARM sees time as it was: what was late is not there.
    control.submit(counted(out, "w", "S", "START AT 6"))
    # And so does one that reads the files again, by the rounds as they were.
    control.submit(counted(out, "again", "F", "START BEGINNING"))
    assert at_least(out / "again", len(of_files), control) == of_files
    control.submit("ALTER QUERY files AS SELECT COUNT(*) AS n FROM F [RANGE 5 SECONDS] START NOW;")
    # Posted, and not read before the server ends.
    control.insert("S", rows(60, 61))
    control.advance("S", 62)
    control.submit("ADVANCE F TO 70")
    control.close()
    engine.close()

    engine, control = opened(checkpoint, spark)
    expected += [(61, "-", 0), (61, "+", 1)]
    assert at_least(out / "n", len(expected), control) == expected
    warm = at_least(out / "w", 7, control)
    assert warm[:5] == [(6, "+", 3), (11, "-", 3), (11, "+", 2), (12, "-", 2), (12, "+", 1)] and warm[-1] == (
        61,
        "+",
        1,
    )
    until(lambda: control.version().sources.get("f") == 70, control, control.version)
    pq.write_table(pa.table({"ts": pa.array([70, 71, 80], pa.int64())}), folder / "1.parquet")
    control.submit("ADVANCE F TO 90")
    until(lambda: control.version().sources.get("f") == 90, control, control.version)
    assert engine.run is not None
    # Whether the file is read in the round before the heartbeat or in that behind it, its rows are late or in time.
    until(lambda: (_late(engine.run, "F")) in (1, 3), control, lambda: _late(engine.run, "F"))
    assert _late(engine.run, "S") == 3 and _late(engine.run, "H") == 1
    control.close()
    engine.close()


def _late(run: SparkRun | None, source: str) -> int:
    assert run is not None
    return run.metrics().sources[source].late


@pytest.mark.spark
def test_an_alert_on_silence_fires_while_nothing_comes(spark: Any, tmp_path: Path) -> None:
    """IDLE TIMEOUT .. ADVANCE, and no compounding over idle rounds or a restart."""
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    engine, control = opened(checkpoint, spark)
    control.submit(
        "CREATE STREAM S (ts INT, v INT) FROM HTTP () TIMESTAMP BY ts IDLE TIMEOUT 1 SECOND ADVANCE;"
        f"{counted(out, 'n', 'S')}"
    )
    began = time.time()
    control.insert("S", rows(100, 101))
    found = at_least(out / "n", 4, control)
    assert found[:3] == [(100, "+", 1), (101, "-", 1), (101, "+", 2)] or found[:1] == [(100, "+", 1)]
    at_least(out / "n", 7, control)
    assert told(out / "n")[-1] == (111, "+", 0)
    control.close()
    engine.close()

    engine, control = opened(checkpoint, spark)
    before = control.version().sources["s"]
    until(lambda: control.version().sources["s"] > before + 2, control)
    # Its last record was behind `began`: so much at most has gone by since.
    assert control.version().sources["s"] <= 100 + (time.time() - began)
    tick = control.version().sources["s"]
    control.insert("S", rows(tick - 1, tick + 30))
    until(lambda: _late(engine.run, "S") == 1, control)
    until(lambda: told(out / "n")[-1] == (tick + 40, "+", 0), control, lambda: told(out / "n"))
    assert [n for _, op, n in told(out / "n") if op == "+"].count(0) == 2
    control.close()
    engine.close()


@pytest.mark.spark
def test_records_of_streaming_frames_are_heartbeats(spark: Any, tmp_path: Path) -> None:
    """Also for the rows of later micro-batches."""
    batches = ([(1, None), (20, True)], [(15, None), (21, False)], [(40, True)])
    for number, records in enumerate(batches):
        at, h = ([record[i] for record in records] for i in (0, 1))
        table = pa.table({"at": pa.array(at, pa.int64()), "h": pa.array(h, pa.bool_())})
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
        time.sleep(0.05)
    reader = spark.readStream.schema("at bigint, h boolean").option("maxFilesPerTrigger", 1)
    session = Session(spark)
    session.stream("S", reader.parquet(str(tmp_path / "in")), timestamp="at", heartbeat="h")
    answer = session.query("SELECT COUNT(*) AS n FROM S [RANGE 10 SECONDS]").collect()
    changes = [(row["ts"], row["op"], row["n"]) for row in answer.to_pylist()]
    assert changes == [
        (1, "+", 1), (11, "-", 1), (11, "+", 0), (21, "-", 0), (21, "+", 1), (31, "-", 1), (31, "+", 0),
    ]  # fmt: skip
    with pytest.raises(PenstockError, match="P0380"):
        session.stream("T", reader.parquet(str(tmp_path / "in")), timestamp="at", heartbeat="at")


@pytest.mark.spark
def test_a_script_is_run_with_its_heartbeats(spark: Any) -> None:
    session = Session(spark)
    session.execute(
        "CREATE STREAM S (at INT) FROM MEMORY () TIMESTAMP BY at; INSERT INTO S VALUES (1), (2); ADVANCE S TO 5;"
        "INSERT INTO S VALUES (5), (6); ADVANCE S TO 30;"
    )
    answer = session.query("SELECT COUNT(*) AS n FROM S [RANGE 10 SECONDS]").collect()
    assert [row["n"] for row in answer.to_pylist() if row["op"] == "+"] == [1, 2, 3, 2, 1, 0]
