"""Updates that cannot be, non retroactive relations and the wall clock, on Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.session import Session

UPDATES = "at,op,k,v\n1,+,1,10\n1,+,1,11\n2,-,7,0\n3,-,1,0\n4,+,1,12\n5,+,,9\n"


def _session(spark: Any, folder: Path, on_error: str) -> Session:
    (folder / "r").mkdir(exist_ok=True)
    (folder / "r" / "a.csv").write_text(UPDATES)
    session = Session(spark)
    session.execute(f"""
        CREATE STREAM S (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts;
        INSERT INTO S VALUES (1, 1), (3, 1), (4, 1), (6, 1);
        CREATE RELATION R (at INT, op STRING, k INT, v INT, PRIMARY KEY (k))
          FROM FILES (path '{folder}/r', format 'csv', header 'true') TIMESTAMP BY at OPERATION BY op {on_error};
        CREATE NON RETROACTIVE RELATION N (at INT, op STRING, k INT, v INT, PRIMARY KEY (k))
          FROM FILES (path '{folder}/r', format 'csv', header 'true') TIMESTAMP BY at OPERATION BY op ON ERROR SKIP;
        CREATE QUERY q INTO FILES (path '{folder}/q', format 'csv') AS SELECT k, v FROM R;
        CREATE QUERY joined INTO FILES (path '{folder}/n', format 'csv') AS
          SELECT S.k, N.v FROM S [RANGE 2 SECONDS], N WHERE S.k = N.k;
    """)
    return session


def test_updates_that_cannot_be_are_dead_letters_and_counted_once(spark: Any, tmp_path: Path) -> None:
    run = _session(spark, tmp_path, "").start(checkpoint=str(tmp_path / "checkpoint"))
    assert run.wait(200)
    assert read_result(str(tmp_path / "q")).to_pydict() == {
        "ts": [1, 3, 4],
        "op": ["+", "-", "+"],
        "k": [1, 1, 1],
        "v": [10, 10, 12],
    }
    assert read_result(str(tmp_path / "n")).to_pydict() == {"ts": [1, 3], "op": ["+", "-"], "k": [1, 1], "v": [10, 10]}
    sources = run.progress().sources
    reasons = {"duplicate primary key": 1, "no such row to delete": 1, "NULL in the primary key": 1}
    assert (sources["R"].rows, sources["R"].reasons, sources["R"].heartbeat) == (6, reasons, "ended")
    assert sources["N"].reasons == reasons | {"primary key used again after its deletion": 1}
    letters = {letter.reason: letter.record for letter in DeadLetters(run.dead_letters).read("R")}
    assert set(letters) == set(reasons)
    assert '"v": 11' in letters["duplicate primary key"]
    assert DeadLetters(run.dead_letters).counts("N") == {}


def test_fail_ends_the_run_at_the_update(spark: Any, tmp_path: Path) -> None:
    run = _session(spark, tmp_path, "ON ERROR FAIL").start(checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(PenstockError, match="primary key") as caught:
        run.wait(200)
    assert caught.value.code == "P0403"


def test_system_time_goes_on_while_nothing_comes(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "a.csv").write_text("a\n1\n2\n")
    session = Session(spark)
    session.execute(f"""
        CREATE STREAM S (a INT) FROM FILES (path '{tmp_path}/s', format 'csv', header 'true', watch 'true') SYSTEM TIME;
        CREATE QUERY q INTO FILES (path '{tmp_path}/q', format 'parquet') AS SELECT a FROM S [RANGE 1 SECOND];
    """)
    before = time.time_ns() // 1000
    run = session.start(checkpoint=str(tmp_path / "checkpoint"))
    deadline = time.monotonic() + 120
    while run.progress().rows_out < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    heartbeat = run.progress().sources["S"].heartbeat
    run.stop()
    result = read_result(str(tmp_path / "q"))
    ticks = result["ts"].cast(pa.int64()).to_pylist()
    assert list(zip(result["op"].to_pylist(), result["a"].to_pylist(), strict=True)) == [
        ("+", 1),
        ("+", 2),
        ("-", 1),
        ("-", 2),
    ]
    assert before < ticks[0] == ticks[1] and ticks[2] == ticks[3] == ticks[0] + 1_000_000
    assert heartbeat.startswith("20")
