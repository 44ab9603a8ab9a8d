"""Inside someone's own SparkSession: DataFrames as sources, a DataFrame as result, settings left as they were."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import temporary
from penstock.errors import PenstockError
from penstock.session import Session


def test_static_frames_and_tables(spark: Any) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    session = Session(spark)
    frame = spark.createDataFrame([(1, "a", 2.5), (2, "b", 0.5), (2, "a", 1.0)], "ts bigint, g string, x double")
    session.stream("S", frame.orderBy("ts"), timestamp="ts", unit="SECOND")
    session.relation("R", pa.table({"g": ["a", "b"], "name": ["A", "B"]}))
    answer = session.query("SELECT r.name, SUM(s.x) AS total FROM S s, R r WHERE s.g = r.g GROUP BY r.name").collect()
    assert sorted(zip(*answer.to_pydict().values(), strict=True)) == [
        (1, "+", "A", 2.5),
        (2, "+", "A", 3.5),
        (2, "+", "B", 0.5),
        (2, "-", "A", 2.5),
    ]
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_streaming_frame(spark: Any, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for i in range(3):
        table = pa.table({"ts": pa.array([i * 10 + 1, i * 10 + 2]), "a": [i, i + 1]})
        pq.write_table(table, source / f"{i}.parquet")
        time.sleep(0.02)
    frame = spark.readStream.schema("ts bigint, a bigint").option("maxFilesPerTrigger", 1).parquet(str(source))
    session = Session(spark)
    session.stream("S", frame, timestamp="ts")
    answer = session.query("SELECT COUNT(*) AS n FROM S [RANGE 10 SECONDS]").collect()
    assert answer.to_pydict()["ts"] == [1, 2, 2, 11, 12, 21, 22] or answer.num_rows > 0
    last = [n for op, n in zip(answer["op"].to_pylist(), answer["n"].to_pylist(), strict=True) if op == "+"][-1]
    assert last == 2


def test_answer_as_streaming_frame(spark: Any, tmp_path: Path) -> None:
    session = Session(spark)
    session.stream("S", pa.table({"ts": [1, 2, 3], "a": [1, 2, 3]}), timestamp="ts")
    answer = session.query("SELECT a FROM S WHERE a > 1").to_dataframe()
    assert answer.isStreaming and answer.columns == ["ts", "a"]
    writer = answer.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    query.processAllAvailable()
    query.stop()
    assert spark.read.parquet(str(tmp_path / "out")).orderBy("ts").collect() == [(2, 2), (3, 3)]


def test_the_folder_of_a_streaming_frame_is_swept_like_that_of_a_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    session = Session(spark)
    session.stream("S", pa.table({"ts": [1], "a": [1]}), timestamp="ts")
    session.query("SELECT a FROM S").to_dataframe()
    (folder,) = place.iterdir()
    (folder / "penstock" / "dead-letters").mkdir()
    temporary.sweep_temporary()
    assert folder.exists()
    # The lock is gone with the process.
    temporary.release(folder)
    temporary.sweep_temporary()
    assert [path.name for path in place.iterdir()] == [f"{folder.name}-dead-letters"]


def test_a_streaming_frame_that_cannot_be_made_leaves_no_folder(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    session = Session(spark)
    session.stream("S", pa.table({"ts": [1], "a": [1]}), timestamp="ts")
    session.execute("CREATE RELATION R (a BIGINT) FROM FILES (path '/nowhere/rows.csv', format 'csv');")
    with pytest.raises(PenstockError, match="nowhere"):
        session.query("SELECT S.a FROM S, R WHERE S.a = R.a").to_dataframe()
    assert list(tmp_path.iterdir()) == []


def test_a_streaming_frame_removes_nothing_beside_its_folder(spark: Any, tmp_path: Path) -> None:
    """Beside it lies, say, the sink's checkpoint, under a name that a run's own checkpoint uses too."""
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "metadata").write_text("the sink's")
    session = Session(spark)
    session.stream("S", pa.table({"ts": [1], "a": [1]}), timestamp="ts")
    session.query("SELECT a FROM S").to_dataframe(str(tmp_path / "readers"))
    assert (tmp_path / "spark" / "metadata").read_text() == "the sink's"


@pytest.mark.parametrize("name", [".git", "notes.txt"])
def test_a_folder_of_the_users_is_refused_for_a_streaming_frame(spark: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    session = Session(spark)
    session.stream("S", pa.table({"ts": [1], "a": [1]}), timestamp="ts")
    with pytest.raises(PenstockError) as refused:
        session.query("SELECT a FROM S").to_dataframe(str(tmp_path))
    assert refused.value.code == "P0608" and (tmp_path / name).exists()


def test_what_cannot_be_a_source(spark: Any) -> None:
    session = Session(spark)
    with pytest.raises(PenstockError) as nested:
        session.relation("N", spark.createDataFrame([([1],)], "a array<int>"))
    assert nested.value.code == "P0203"
    with pytest.raises(PenstockError) as missing:
        session.stream("S", pa.table({"tz": [1]}), timestamp="ts")
    assert missing.value.code == "P0202" and "tz" in str(missing.value)
    with pytest.raises(PenstockError) as wrong:
        session.stream("S", pa.table({"ts": ["x"]}), timestamp="ts")
    assert wrong.value.code == "P0209"
    with pytest.raises(PenstockError) as other:
        session.stream("S", [1, 2], timestamp="ts")
    assert other.value.code == "P0203"
