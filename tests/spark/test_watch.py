"""Unbounded input: files that appear while the job runs, and a stop that can be resumed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.sinks.files import read_result
from penstock.session import Session


def _add(folder: Path, name: str, text: str) -> None:
    hidden = folder / f".{name}"
    hidden.write_text(text)
    hidden.rename(folder / name)


def _until(condition: Any, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.1)


def test_files_that_appear_later(spark: Any, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    script = f"""CREATE STREAM S (ts INT, a INT) FROM FILES (path '{source}', format 'csv', watch 'true')
        TIMESTAMP BY ts UNIT SECOND;
        CREATE QUERY q INTO FILES (path '{out}', format 'csv') AS
        SELECT a, COUNT(*) AS n FROM S [RANGE 5 SECONDS] GROUP BY a;"""

    def start() -> Any:
        session = Session(spark)
        session.execute(script)
        return session.start(checkpoint=str(tmp_path / "checkpoint"))

    _add(source, "a.csv", "ts,a\n1,7\n2,7\n")
    run = start()
    _until(lambda: run.progress().rows_out >= 1)
    assert read_result(str(out)).to_pydict() == {"ts": [1], "op": ["+"], "a": [7], "n": [1]}
    assert not run.wait(0.2)
    _add(source, "b.csv", "ts,a\n3,8\n")
    _until(lambda: run.progress().rows_out >= 3)
    run.stop()
    _add(source, "c.csv", "ts,a\n9,9\n")
    run = start()
    _until(lambda: run.progress().rows_in >= 4 and run.progress().rows_out >= 7)
    run.stop()
    result = read_result(str(out))
    assert result["ts"].to_pylist() == [1, 2, 2, 3, 6, 6, 7, 8]
    assert result["op"].to_pylist() == ["+", "-", "+", "+", "-", "+", "-", "-"]


def test_the_newest_row_comes_with_the_batch_that_reads_it(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    session = Session(spark)
    session.execute(f"""
        CREATE STREAM ev (ts INT, id INT, v INT) FROM FILES (path '{source}', format 'csv', watch 'true')
          TIMESTAMP BY ts UNIT SECOND;
        CREATE RELATION names (id INT, name STRING) FROM MEMORY ();
        INSERT INTO names VALUES (1, 'one'), (2, 'two'), (3, 'three');
        CREATE QUERY alerts INTO FILES (path '{tmp_path}/alerts', format 'csv') AS SELECT id, v FROM ev WHERE v > 1;
        CREATE QUERY pairs INTO FILES (path '{tmp_path}/pairs', format 'csv') AS
          SELECT a.id, b.id AS other FROM ev AS a, ev AS b WHERE a.v = b.v AND a.id < b.id;
        CREATE QUERY named INTO FILES (path '{tmp_path}/named', format 'csv') AS
          SELECT name FROM ev, names WHERE ev.id = names.id;
        CREATE QUERY counts INTO FILES (path '{tmp_path}/counts', format 'csv') AS
          SELECT v, COUNT(*) AS n FROM ev GROUP BY v;""")

    def results(query: str) -> list[tuple[Any, ...]]:
        rows = read_result(str(tmp_path / query)).to_pylist()
        return [tuple(row.values()) for row in rows]

    _add(source, "a.csv", "ts,id,v\n10,1,7\n")
    run = session.start(checkpoint=str(tmp_path / "checkpoint"))
    _until(lambda: run.progress().rows_out >= 2)
    assert (results("alerts"), results("named"), results("counts")) == ([(10, 1, 7)], [(10, "one")], [])
    # At the same instant: what is emitted stays, what comes now is emitted behind it.
    _add(source, "b.csv", "ts,id,v\n10,2,7\n")
    _until(lambda: run.progress().rows_out >= 5)
    assert (results("alerts"), results("pairs")) == ([(10, 1, 7), (10, 2, 7)], [(10, 1, 2)])
    run.stop()
    run = session.start(checkpoint=str(tmp_path / "checkpoint"))
    _add(source, "c.csv", "ts,id,v\n10,3,1\n12,3,7\n")
    # Not by reading: a batch that is done again writes its file again.
    _until(lambda: run.progress().rows_out >= 12)
    run.stop()
    assert results("alerts") == [(10, 1, 7), (10, 2, 7), (12, 3, 7)]
    assert [results("pairs")[0], *sorted(results("pairs")[1:])] == [(10, 1, 2), (12, 1, 3), (12, 2, 3)]
    assert results("named") == [(10, "one"), (10, "two"), (10, "three"), (12, "three")]
    # A count waits until its instant is complete.
    assert sorted(results("counts")) == [(10, "+", 1, 1), (10, "+", 7, 2)]


def test_a_stream_that_falls_silent_lets_go_until_it_speaks_again(spark: Any, tmp_path: Path) -> None:
    for name in "st":
        (tmp_path / name).mkdir()
    declared = "".join(
        f"CREATE STREAM {name} (ts INT, {column} INT) FROM FILES (path '{tmp_path}/{name.lower()}', format 'csv', "
        f"watch 'true') TIMESTAMP BY ts UNIT SECOND {idle};\n"
        for name, column, idle in (("S", "a", "IDLE TIMEOUT 1 SECOND"), ("T", "b", ""))
    )
    session = Session(spark)
    session.execute(f"""{declared}
        CREATE QUERY q INTO FILES (path '{tmp_path}/q', format 'csv') AS
        ISTREAM(SELECT a, b FROM S [RANGE 20 SECONDS], T [RANGE 5 SECONDS]);""")
    _add(tmp_path / "s", "a.csv", "ts,a\n1,1\n")
    _add(tmp_path / "t", "a.csv", "ts,b\n1,10\n8,11\n20,12\n")
    run = session.start(checkpoint=str(tmp_path / "checkpoint"))
    _until(lambda: run.progress().rows_out >= 3)
    # S has said nothing since 1, and T has come to 20.
    assert read_result(str(tmp_path / "q")).to_pydict() == {"ts": [1, 8, 20], "a": [1, 1, 1], "b": [10, 11, 12]}
    _add(tmp_path / "s", "b.csv", "ts,a\n9,2\n20,3\n")
    _until(lambda: run.progress().sources["S"].rows >= 3)
    _add(tmp_path / "t", "b.csv", "ts,b\n30,13\n40,14\n")
    _until(lambda: run.progress().rows_out >= 5)
    counts = run.progress().sources["S"]
    run.stop()
    assert read_result(str(tmp_path / "q")).to_pydict() == {
        "ts": [1, 8, 20, 20, 30],
        "a": [1, 1, 1, 3, 3],
        "b": [10, 11, 12, 12, 13],
    }
    assert (counts.rows, counts.late) == (3, 1)
    (letter,) = DeadLetters(run.dead_letters).read("S")
    assert "9" in letter.record and "late" in letter.reason


def test_what_spark_remembers_of_rounds_stays_small(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.runtime.spark.job._SHORTEN_EVERY", 10)
    for name, value in (("_KEPT", 5), ("_LEAST", 8), ("MOST_AGE", "10s")):
        monkeypatch.setattr(f"penstock.runtime.spark.input.source_log.{name}", value)
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for number in range(23):
        _add(source, f"{number:03d}.csv", f"ts,a\n{number},7\n")
    script = f"""SET max_batch_bytes = 1;
        CREATE STREAM S (ts INT, a INT) FROM FILES (path '{source}', format 'csv') TIMESTAMP BY ts UNIT SECOND;
        CREATE QUERY q INTO FILES (path '{out}', format 'csv') AS SELECT ISTREAM(ts AS t) FROM S [NOW];"""

    def start() -> Any:
        session = Session(spark)
        session.execute(script)
        return session.start(checkpoint=str(tmp_path / "checkpoint"))

    run = start()
    _until(lambda: run.progress().batches >= 13)
    run.stop()
    start().wait()
    assert read_result(str(out))["t"].to_pylist() == list(range(23))
    logs = [path.read_text().splitlines() for path in (tmp_path / "checkpoint").glob("spark/sources/0/19.compact")]
    assert [len(log) for log in logs] == [1 + 5]
