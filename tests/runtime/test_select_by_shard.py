"""A one-time query that is divided by shard comes to the answer that one process computes."""

from __future__ import annotations

import random
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from test_one_time import CASES

from penstock.algebra.nodes.one_time import OneTimeQuery
from penstock.algebra.nodes.scans import declared_sources
from penstock.errors import PenstockError
from penstock.language.scripts import SelectOnce, bind_script
from penstock.physical.operators.joins.growth import limited_joins
from penstock.results.source_rows import RowsInMemory
from penstock.runtime.local.one_time import OneTimeAnswer, answer_over
from penstock.runtime.memory_limit import limited
from penstock.runtime.spark.one_time.select_plan import run_here, select_plan
from penstock.testing.cases import case_inputs, parse_case
from penstock.testing.one_time import as_of, assert_same_rows, rows_of

#: Under a budget the answer of a preference depends on the number of shards (docs/preferences.md).
OF_ANY_SHARDS = [path for path in CASES if path.parent.name != "preferences"]


def divided(query: OneTimeQuery, inputs: dict[str, pa.Table], shards: int, parts: int = 1) -> pa.Table | None:
    cut = {
        name: [
            RowsInMemory(
                table.slice(
                    n * table.num_rows // parts, (n + 1) * table.num_rows // parts - n * table.num_rows // parts
                )
            )
            for n in range(parts)
        ]
        for name, table in inputs.items()
    }
    found = select_plan(query, cut, shards)
    return None if found is None else run_here(*found)


def check(query: OneTimeQuery, inputs: dict[str, pa.Table], shards: int = 3, parts: int = 1) -> int:
    """Compare both ways; return how many rows there are."""
    try:
        expected: OneTimeAnswer = answer_over(query, inputs)
    except PenstockError as error:
        with pytest.raises(PenstockError) as same:
            divided(query, inputs, shards, parts)
        assert same.value.code == error.code
        return 0
    table = divided(query, inputs, shards, parts)
    if table is None:
        return 0
    assert table.schema == expected.table.schema
    assert_same_rows(query, rows_of(table), rows_of(expected.table))
    return table.num_rows


def check_case(path: Path) -> None:
    case = parse_case(path.read_text(encoding="utf-8"), path.name)
    if case.arrivals:
        pytest.skip("a one-time query reads its inputs at once, without a clock")
    bound, draw = bind_script(case.script), random.Random(path.name)
    inputs = case_inputs(case, bound)
    for query in bound.queries:
        tick = None
        try:
            tick = answer_over(as_of(query, None), {n: inputs[n] for n in declared_sources(query.root)}).tick
        except PenstockError:
            continue
        instant = None if tick is None else tick - draw.choice((0, 0, 1, 3))
        check(as_of(query, instant), inputs)


@pytest.mark.spread(2)
@pytest.mark.parametrize("path", OF_ANY_SHARDS[::8], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_queries_of_some_text_cases(path: Path) -> None:
    check_case(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", OF_ANY_SHARDS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_queries_of_the_text_cases(path: Path) -> None:
    check_case(path)


DECLARED = """CREATE STREAM S (ts INT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND{};
    CREATE RELATION R (k INT, w INT, PRIMARY KEY (k)) FROM MEMORY ();"""
INPUTS = {
    "S": pa.table(
        {"ts": pa.array([i // 3 for i in range(300)], pa.int32()),
         "k": pa.array([i % 7 for i in range(300)], pa.int32()),
         "v": pa.array([i * 31 % 11 for i in range(300)], pa.int32())}
    ),
    "R": pa.table({"k": pa.array(range(5), pa.int32()), "w": pa.array(range(5), pa.int32())}),
}  # fmt: skip


def query_of(text: str, more: str = "") -> OneTimeQuery:
    (action,) = bind_script(f"{DECLARED.format(more)} {text};").actions
    assert isinstance(action, SelectOnce)
    return action.query


@pytest.mark.parametrize("shards", [1, 5])
@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, SUM(v) AS s FROM S [RANGE 20 SECONDS] GROUP BY k",
        "SELECT COUNT(*) AS n FROM S [RANGE 20 SECONDS] WHERE v > 100",
        "SELECT S.k, v, w FROM S [PARTITION BY k ROWS 3] AS S, R WHERE S.k = R.k",
        "SELECT a.v FROM S [ROWS 40] AS a, S [ROWS 10] AS b WHERE a.k = b.k AND a.v < b.v",
        "SELECT DISTINCT v FROM S ORDER BY v DESC LIMIT 4",
        "SELECT k FROM R EXCEPT SELECT k FROM S [NOW]",
        "SELECT w, (SELECT MAX(v) FROM S [RANGE 9 SECONDS] AS S WHERE S.k = R.k) AS m FROM R",
        "SELECT (SELECT k FROM R) AS k FROM R",
    ],
)
def test_the_rows_of_a_stream_come_in_parts(text: str, shards: int) -> None:
    query = query_of(text)
    check(replace(query, as_of=99), {name: INPUTS[name] for name in declared_sources(query.root)}, shards, 4)


def test_a_source_with_the_time_of_the_clock_is_not_divided() -> None:
    query = query_of("SELECT k FROM S [RANGE 20 SECONDS]", " IDLE TIMEOUT 1 SECOND")
    assert divided(query, {"S": INPUTS["S"]}, 3) is None


PAIRS = """CREATE RELATION a (i INT) FROM MEMORY (); CREATE RELATION b (j INT) FROM MEMORY ();
    CREATE STREAM s (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND; """


def once(text: str) -> OneTimeQuery:
    (action,) = bind_script(PAIRS + text).actions
    assert isinstance(action, SelectOnce)
    return action.query


def numbers(count: int) -> pa.Table:
    return pa.table({"i": pa.array(range(count), pa.int32())})


def test_an_answer_beyond_the_memory_is_refused() -> None:
    query, rows = once("SELECT i FROM a;"), {"a": [RowsInMemory(numbers(10_000))]}
    found = select_plan(query, rows, 2, memory=20_000)
    assert found is not None
    with pytest.raises(PenstockError, match="P0724"):
        run_here(*found)
    # Of an answer with a limit no shard sends more than that.
    first = select_plan(once("SELECT i FROM a ORDER BY i DESC LIMIT 5 OFFSET 2;"), rows, 2, memory=20_000)
    assert first is not None
    assert [row[0] for row in rows_of(run_here(*first))] == [9997, 9996, 9995, 9994, 9993]


def test_joins_end_while_they_grow() -> None:
    """Static relations below a window are computed in the process that answers, which has no limit of its own."""
    query = once(
        "SELECT s.k, c.n FROM s [ROWS 5], (SELECT i, COUNT(*) AS n FROM a, b GROUP BY i) AS c WHERE s.k = c.i;"
    )
    inputs = {
        "a": [RowsInMemory(numbers(3_000))], "b": [RowsInMemory(numbers(3_000).rename_columns(["j"]))],
        "s": [RowsInMemory(pa.table({"ts": pa.array([1], pa.int32()), "k": pa.array([1], pa.int32())}))],
    }  # fmt: skip
    looks: list[int] = []
    with pytest.raises(MemoryError), limited_joins(1_000_000, lambda: looks.append(1)):
        found = select_plan(query, inputs, 2)
        if found is not None:
            run_here(*found)
    # 9,000,000 pairs would have been formed, and the first batch of them is refused.
    assert 1 <= len(looks) <= 4
    with limited_joins(2**30):
        assert select_plan(query, inputs, 2) is not None


def test_a_task_has_a_limit_of_memory() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(PenstockError, match="P0724"), limited(2**20):
        np.zeros(2**28, np.int8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    with limited(2**28):
        assert len(np.zeros(2**24, np.int8)) == 2**24
