"""Bad records, late ones, and results that exist: counted, written down, or refused, and never a traceback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.deadletters import DeadLetters
from penstock.connectors.sinks.files import read_result
from penstock.errors import PenstockError
from penstock.session import Session

CSV = "ts,a\n1,10\n2,x\n,30\n4,40,50\n9,90\n3,30\n10,100\n"


def _script(folder: Path, more: str = "", into: str = "") -> str:
    into = into or f"INTO FILES (path '{folder}/out', format 'csv')"
    return f"""CREATE STREAM S (ts INT, a INT) FROM FILES (path '{folder}/in', format 'csv', header 'true')
        TIMESTAMP BY ts UNIT SECOND {more};
        CREATE QUERY q {into} AS SELECT a FROM S;"""


def _start(spark: Any, script: str, **options: Any) -> Any:
    session = Session(spark)
    session.execute(script)
    return session.start(**options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(CSV)
    return tmp_path


def test_dead_letters_and_counts(spark: Any, folder: Path) -> None:
    run = _start(spark, _script(folder), checkpoint=str(folder / "checkpoint"))
    assert run.wait(200)
    assert read_result(str(folder / "out")).to_pydict() == {"ts": [1, 9, 10], "a": [10, 90, 100]}
    counts = run.progress().sources["S"]
    assert (counts.rows, counts.late, counts.malformed) == (7, 1, 3)
    assert counts.needed_slack == "6 SECOND"
    letters = list(DeadLetters(run.dead_letters).read("S"))
    assert len(letters) == 4
    assert {letter.line for letter in letters if letter.line} == {3, 5}


def test_slack_takes_what_was_late(spark: Any, folder: Path) -> None:
    run = _start(spark, _script(folder, "ORDER WITHIN 6 SECONDS"), checkpoint=str(folder / "checkpoint"))
    assert run.wait(200)
    assert read_result(str(folder / "out"))["ts"].to_pylist() == [1, 3, 9, 10]
    assert run.progress().sources["S"].late == 0


def test_skip_counts_and_keeps_no_letters(spark: Any, folder: Path) -> None:
    run = _start(spark, _script(folder, "ORDER WITHIN 6 SECONDS ON ERROR SKIP"), checkpoint=str(folder / "checkpoint"))
    assert run.wait(200)
    assert run.progress().sources["S"].malformed == 3
    assert list(DeadLetters(run.dead_letters).read("S")) == []


def test_fail_names_file_and_line(spark: Any, folder: Path) -> None:
    run = _start(spark, _script(folder, "ON ERROR FAIL"))
    with pytest.raises(PenstockError) as failure:
        run.wait(200)
    assert failure.value.code == "P0403"
    assert "a.csv:3" in str(failure.value)
    assert "Traceback" not in str(failure.value)
    assert not list((folder / "out").glob("part-*"))


def test_truncated_parquet_costs_only_itself(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(3):
        pq.write_table(
            pa.table({"ts": pa.array([i], pa.int32()), "a": pa.array([i], pa.int32())}), tmp_path / f"in/{i}.parquet"
        )
    broken = tmp_path / "in" / "1.parquet"
    broken.write_bytes(broken.read_bytes()[:100])
    script = _script(tmp_path).replace("format 'csv', header 'true'", "format 'parquet'")
    run = _start(spark, script, checkpoint=str(tmp_path / "checkpoint"))
    assert run.wait(200)
    assert read_result(str(tmp_path / "out"))["a"].to_pylist() == [0, 2]
    assert run.progress().sources["S"].malformed == 1


def test_refuses_a_result_that_exists(spark: Any, folder: Path) -> None:
    script = _script(folder)
    assert _start(spark, script).wait(200)
    with pytest.raises(PenstockError) as refused:
        _start(spark, script)
    assert refused.value.code == "P0501"
    assert _start(spark, script, overwrite=True).wait(200)
    assert read_result(str(folder / "out")).num_rows == 3


def test_refuses_before_the_start(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PenstockError) as nothing:
        _start(spark, _script(tmp_path))
    assert nothing.value.code in ("P0401", "P0404")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("ts,b\n1,2\n")
    with pytest.raises(PenstockError) as other:
        _start(spark, _script(tmp_path))
    assert other.value.code == "P0402"


def test_refuses_another_script_where_spark_keeps_the_state(spark: Any, folder: Path) -> None:
    script = "SET state_store = 'spark';" + _script(folder)
    assert _start(spark, script, checkpoint=str(folder / "checkpoint")).wait(200)
    changed = script.replace("SELECT a FROM S", "SELECT a + 1 AS a FROM S")
    with pytest.raises(PenstockError) as refused:
        _start(spark, changed, checkpoint=str(folder / "checkpoint"))
    assert refused.value.code == "P0602"


def test_a_sink_that_fails_commits_nothing(spark: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.connectors.sinks.files import FilesSink

    def full(self: Any, batch: int, pieces: Any) -> None:
        raise PenstockError("P0502", "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(FilesSink, "write_pieces", full)
        run = _start(spark, _script(folder), checkpoint=str(folder / "checkpoint"))
        with pytest.raises(PenstockError) as failure:
            run.wait(200)
    assert failure.value.code == "P0502"
    assert not list((folder / "out").glob("part-*"))
    run = _start(spark, _script(folder), checkpoint=str(folder / "checkpoint"))
    assert run.wait(200)
    assert read_result(str(folder / "out"))["a"].to_pylist() == [10, 90, 100]


def test_nothing_to_run(spark: Any) -> None:
    with pytest.raises(PenstockError) as nothing:
        Session(spark).start()
    assert nothing.value.code == "P0201"


def test_what_is_too_far_ahead_moves_no_time_in_any_batch(spark: Any, tmp_path: Path) -> None:
    """A streaming DataFrame, a file a batch: each is held against what the ones before it have shown."""
    (tmp_path / "in").mkdir()
    for number, ticks in enumerate([[1, 4_000_000_000, 2], [3, 4_000_000_001, 14], [4, 13]]):
        place = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(pa.table({"ts": ticks}), place)
        os.utime(place, (1_700_000_000 + number, 1_700_000_000 + number))
    frame = spark.readStream.schema("ts bigint").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    session = Session(spark)
    session.stream("S", frame, timestamp="ts", order_within="1 SECOND", advance_at_most="10 SECONDS")
    assert session.query("SELECT ts AS at FROM S").collect()["at"].to_pylist() == [1, 2, 3, 4, 13]


def test_a_declared_period_that_is_empty(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("ts,a\n1,10\n2,2\n,30\n4,\n9,90\n")
    (tmp_path / "prices.csv").write_text("a,b\n1,10\n7,6\n")
    prices = f"FROM FILES (path '{tmp_path}/prices.csv', format 'csv', header 'true') VALID FROM a TO b"
    static = f"CREATE RELATION p (a INT, b INT) {prices}; CREATE QUERY r AS SELECT a FROM p;"
    run = _start(spark, static + _script(tmp_path, "VALID FROM ts TO a"), checkpoint=str(tmp_path / "checkpoint"))
    assert run.wait(200)
    assert read_result(str(tmp_path / "out"))["ts"].to_pylist() == [1, 4, 9]
    letters = DeadLetters(run.dead_letters)
    told = [(Path(one.path).name, one.reason) for one in letters.read("S")]
    assert told == [("a.csv", "the period is empty"), ("a.csv", "no timestamp")]
    assert run.progress().sources["S"].malformed == 2
    assert [one.reason for one in letters.read("p")] == ["the period is empty"]
    script = _script(tmp_path, "ON ERROR FAIL VALID FROM ts TO a").replace(f"{tmp_path}/out", f"{tmp_path}/failed")
    with pytest.raises(PenstockError, match=r"a\.csv: the period is empty"):
        _start(spark, script, checkpoint=str(tmp_path / "other")).wait(200)
