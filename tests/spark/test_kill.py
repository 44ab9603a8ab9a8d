"""A run whose driver, JVM and workers are killed at a random moment, and one whose worker is: the same result.

`test_soak.py` does the same beside a broker in less time than these take.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.kills import survive
from benchmarks.soak.watch import workers
from penstock.connectors.sinks.files import read_result
from penstock.session import Session

SCRIPT = """
CREATE STREAM S (ts BIGINT, k INT, x DOUBLE) FROM FILES (path '{data}', format 'parquet') TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY sliding INTO FILES (path 'demo-results/sliding', format 'csv') AS
  SELECT RSTREAM(k, COUNT(*) AS n, SUM(x) AS total) FROM S [RANGE 60 SECONDS SLIDE 10 SECONDS] GROUP BY k;
CREATE QUERY joined INTO FILES (path 'demo-results/joined', format 'csv') AS
  SELECT ISTREAM(a.k, a.x, b.x AS y) FROM S [NOW] AS a, S [RANGE 20 SECONDS] AS b WHERE a.k = b.k;
CREATE QUERY shedding INTO FILES (path 'demo-results/shedding', format 'csv') WITH (memory '30 TUPLES') AS
  SELECT s.k, VALID(s) FROM S (k) VALID FOR 6 SECONDS [RANGE 60 SECONDS] AS s;
CREATE QUERY stretches INTO FILES (path 'demo-results/stretches', format 'csv') AS
  SELECT s.k, VALID(s) FROM S (k) VALID FOR 6 SECONDS [RANGE 60 SECONDS] AS s;
CREATE QUERY runs INTO FILES (path 'demo-results/runs', format 'csv') WITH (memory '30 TUPLES') AS
  SELECT s.k, VALID(s) FROM S (k) [RANGE 60 SECONDS SLIDE 2 SECONDS] AS s WHERE LENGTH(VALID(s)) >= 2;
CREATE QUERY whole INTO FILES (path 'demo-results/whole', format 'csv') WITH (memory '2 TUPLES') AS
  SELECT s.k, VALID(s) FROM S (k) VALID FOR 3 SECONDS AS s WHERE CLOSED(VALID(s));
CREATE QUERY visits INTO FILES (path 'demo-results/visits', format 'csv') AS
  SELECT k, VALID(c), COUNT(*) AS n FROM S [PARTITION BY k SESSION 5 SECONDS AT MOST 30 SECONDS] AS c
  GROUP BY k, VALID(c);
CREATE QUERY states INTO FILES (path 'demo-results/states', format 'csv') AS
  SELECT s.k, x, VALID(s) FROM S VALID UNTIL NEXT BY k AT MOST 4 SECONDS [RANGE 20 SECONDS] AS s;
"""


def write_stream(folder: Path, files: int) -> None:
    folder.mkdir()
    for i in range(files):
        ts = list(range(i * 40, i * 40 + 40))
        table = pa.table(
            {"ts": pa.array(ts, pa.int64()), "k": pa.array([t % 5 for t in ts], pa.int32()), "x": [t / 7 for t in ts]}
        )
        pq.write_table(table, folder / f"part-{i:03d}.parquet")


@pytest.mark.slow
def test_driver_killed(tmp_path: Path) -> None:
    write_stream(tmp_path / "data", 12)
    assert survive(SCRIPT.format(data=tmp_path / "data"), tmp_path, kills=1, seed=int(time.time()), batch="1")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_driver_killed_often(tmp_path: Path) -> None:
    write_stream(tmp_path / "data", 40)
    assert survive(SCRIPT.format(data=tmp_path / "data"), tmp_path, kills=10, seed=int(time.time()), batch="1")


@pytest.mark.slow
def test_worker_killed(spark: Any, tmp_path: Path) -> None:
    write_stream(tmp_path / "data", 20)
    text = "SET max_batch_bytes = 1;" + SCRIPT.format(data=tmp_path / "data").replace(
        "demo-results", str(tmp_path / "out")
    )
    session = Session(spark)
    session.execute(text)
    run = session.start(checkpoint=str(tmp_path / "checkpoint"))
    killed = 0
    while not run.wait(0.1):
        if killed < 2 and run.progress().batches > 1 + 2 * killed:
            killed += _kill_a_worker()
    assert killed == 2
    calm = Session(spark)
    calm.execute(text.replace(str(tmp_path / "out"), str(tmp_path / "calm")))
    assert calm.start().wait(300)
    for name in ("sliding", "joined", "shedding", "stretches", "runs", "whole", "visits", "states"):
        assert read_result(str(tmp_path / "out" / name)).equals(read_result(str(tmp_path / "calm" / name)))


def _kill_a_worker() -> int:
    """Kill one of the Python workers of this process's Spark; how many were killed."""
    found = workers(os.getpid())
    for pid in found[:1]:
        os.kill(pid, signal.SIGKILL)
    return len(found[:1])


CPU = """
SET max_batch_bytes = 1;
CREATE STREAM S (ts BIGINT, k INT, x DOUBLE) FROM FILES (path '{data}', format 'parquet') TIMESTAMP BY ts UNIT SECOND;
CREATE QUERY kept INTO FILES (path '{out}/kept', format 'csv') WITH (cpu '0.000001') AS
  SELECT s.k, VALID(s) FROM S (k) VALID FOR 6 SECONDS [RANGE 60 SECONDS] AS s;
CREATE QUERY every INTO FILES (path '{out}/every', format 'csv') AS
  SELECT s.k, VALID(s) FROM S (k) VALID FOR 6 SECONDS [RANGE 60 SECONDS] AS s;
"""


def test_what_cpu_shedding_has_dropped_stays_dropped_over_a_kill_and_a_restart(spark: Any, tmp_path: Path) -> None:
    """Thresholds are decided by measuring, so no two runs have the same. But a value is told as without a budget up to
    one instant, at which all that is there of it is taken back, and never again: behind a restart it would come back if
    the threshold were lost, and another instant would be told if it were decided again."""
    (tmp_path / "data").mkdir()
    for i in range(24):
        ts = list(range(i * 20, i * 20 + 20))
        columns = {"ts": pa.array(ts, pa.int64()), "k": pa.array([t * 7 % 40 for t in ts], pa.int32())}
        pq.write_table(pa.table({**columns, "x": [0.0] * 20}), tmp_path / "data" / f"part-{i:03d}.parquet")
    text = CPU.format(data=tmp_path / "data", out=tmp_path / "out")
    for stop_after in (5, 14, None):
        session = Session(spark)
        session.execute(text)
        run = session.start(checkpoint=str(tmp_path / "checkpoint"))
        killed = False
        while not run.wait(0.05):
            if stop_after is not None and run.progress().batches >= stop_after:
                if not killed:
                    killed = bool(_kill_a_worker())
                    continue
                run.stop()
                break
    kept, every = (_by_value(read_result(str(tmp_path / "out" / name))) for name in ("kept", "every"))
    dropped = 0
    for k, events in every.items():
        found = kept.get(k, [])
        same = next((i for i, pair in enumerate(zip(found, events, strict=False)) if pair[0] != pair[1]), len(found))
        rest = found[same:]
        dropped += len(found) < len(events)
        assert all(op == "-" and ts == rest[0][0] for ts, op, *_ in rest), (k, found, events)
        there = [row for _, op, *row in found[:same] if op == "+"]
        for _, op, *row in found[:same]:
            there.remove(row) if op == "-" else None
        assert sorted(there) == sorted(row for _, _, *row in rest) or not rest
    # How many are dropped in the end the machine decides: on a busy one all of them.
    assert dropped and any(kept.values())


def _by_value(result: pa.Table) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = {}
    for row in result.to_pylist():
        found.setdefault(row["k"], []).append((row["ts"], row["op"], row["valid_from"], row["valid_to"]))
    return {k: sorted(rows, key=lambda row: (row[0], row[1] == "+", row[2])) for k, rows in found.items()}
