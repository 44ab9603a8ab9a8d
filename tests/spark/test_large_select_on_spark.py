"""One-time queries that do not fit into a process are jobs of Spark with the same answer, which can be ended."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.errors import PenstockError
from penstock.language.scripts import SelectOnce, bind_script
from penstock.results.cancellation import Cancellation
from penstock.results.large_select import LargeSelects
from penstock.results.select_workers import SelectWorkers
from penstock.results.source_rows import RowsInMemory, SourceRows
from penstock.runtime.local.one_time import answer_over, sources_of
from penstock.runtime.spark.one_time.select_job import POOL
from penstock.testing.one_time import assert_same_rows, rows_of

DECLARED = """CREATE STREAM S (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    CREATE RELATION R (k INT, name STRING, PRIMARY KEY (k)) FROM MEMORY ();"""
ROWS = 20_000
INPUTS = {
    "S": pa.table({"ts": pa.array(np.arange(ROWS) // 10, pa.int32()), "k": pa.array(np.arange(ROWS) % 97, pa.int32()),
                   "v": pa.array(np.arange(ROWS) * 7919 % 1009, pa.int32())}),
    "R": pa.table({"k": pa.array(np.arange(90), pa.int32()), "name": [f"n{i % 7}" for i in range(90)]}),
}  # fmt: skip


def query_of(text: str) -> OneTimeQuery:
    (action,) = bind_script(f"{DECLARED} {text};").actions
    assert isinstance(action, SelectOnce)
    return action.query


@pytest.fixture
def workers(spark: Any, tmp_path: Path) -> Any:
    found = SelectWorkers(memory=64 * 2**10, larger=LargeSelects(lambda: spark, tmp_path / "selects", 64 * 2**10, 3))
    yield found
    found.close()


def inputs_of(query: OneTimeQuery) -> dict[str, SourceRows]:
    return {name: RowsInMemory(INPUTS[name]) for name in sources_of(query)}


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, SUM(v) AS s, COUNT(*) AS n FROM S [RANGE 500 SECONDS] GROUP BY k",
        "SELECT name, MAX(a.v) AS m FROM S [ROWS 4000] AS a, S [RANGE 40 SECONDS] AS b, R "
        "WHERE a.k = b.k AND a.k = R.k AND a.v > b.v GROUP BY name HAVING COUNT(*) > 1",
        "SELECT DISTINCT v, k FROM S [RANGE UNBOUNDED] ORDER BY v DESC, k LIMIT 25",
        "SELECT COUNT(*) AS n FROM S [RANGE 100 SECONDS] WHERE v > 5000",
    ],
)
def test_the_answer_is_that_of_one_process(workers: SelectWorkers, spark: Any, tmp_path: Path, text: str) -> None:
    query = query_of(text)
    inputs = {name: rows.table() for name, rows in inputs_of(query).items()}
    expected = answer_over(query, inputs)
    as_of = OneTimeQuery(**{**vars(query), "as_of": expected.tick})
    found = workers(as_of, inputs_of(query), Cancellation())
    assert found.table.schema == expected.table.schema and found.tick == expected.tick
    assert_same_rows(query, rows_of(found.table), rows_of(expected.table))
    assert not list((tmp_path / "selects").iterdir())
    pool = spark.sparkContext._jsc.sc().taskScheduler().rootPool().getSchedulableByName(POOL)
    assert pool is not None and pool.weight() >= 1
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None


SLOW = "SELECT COUNT(*) AS n FROM S [RANGE UNBOUNDED] AS a, S [RANGE UNBOUNDED] AS b WHERE a.v < b.v AND a.k <> b.k"


def test_a_query_is_ended(spark: Any, tmp_path: Path) -> None:
    query = OneTimeQuery(**{**vars(query_of(SLOW)), "as_of": 1999})
    larger = LargeSelects(lambda: spark, tmp_path / "selects", 2**40, 1)
    cancellation = Cancellation()
    threading.Timer(3.0, cancellation.set).start()
    began = time.monotonic()
    with pytest.raises(PenstockError) as ended:
        larger(query, inputs_of(query), cancellation, 300.0)
    assert ended.value.code == "P0726" and time.monotonic() - began < 60
    # Before its tasks begin.
    with pytest.raises(PenstockError) as ended:
        larger(query, inputs_of(query), cancellation, 300.0)
    assert ended.value.code == "P0726" and time.monotonic() - began < 60
    with pytest.raises(PenstockError) as ended:
        larger(query, inputs_of(query), Cancellation(), 2.0)
    assert ended.value.code == "P0725"
    assert not list((tmp_path / "selects").iterdir())


def test_one_that_turns_out_to_need_more(workers: SelectWorkers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends for want of memory, and the query goes on on Spark."""
    query = query_of("SELECT k, COUNT(*) AS n FROM R GROUP BY k")
    big = pa.table({"k": pa.array(np.arange(300_000), pa.int32()), "name": pa.nulls(300_000, pa.string())})
    monkeypatch.setattr(LargeSelects, "is_large", lambda larger, inputs: False)
    found = workers(query, {"R": RowsInMemory(big)}, Cancellation())
    assert found.table.num_rows == 300_000 and found.tick is None
    workers.larger = None
    with pytest.raises(PenstockError) as refused:
        workers(query, {"R": RowsInMemory(big)}, Cancellation())
    assert refused.value.code == "P0724"


@pytest.mark.parametrize(
    "text", ["SELECT a.v, b.v AS w FROM S AS a, S AS b", "SELECT REPEAT(a.name, 10000) AS t FROM R AS a, R AS b"]
)
def test_a_query_on_spark_has_a_limit_of_memory(workers: SelectWorkers, spark: Any, text: str) -> None:
    query = query_of(text)
    for _ in range(2):
        with pytest.raises(PenstockError) as refused:
            assert workers.larger is not None
            workers.larger(OneTimeQuery(**{**vars(query), "as_of": 1999}), inputs_of(query), Cancellation(), 200.0)
        assert refused.value.code == "P0724", refused.value
    # The processes of the tasks go on.
    assert spark.range(10).count() == 10
