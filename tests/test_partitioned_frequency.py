"""PARTITIONED BY columns that are groups: an evaluation answers for its substream alone (`[csql 9]`, algorithm 3).

And what is emitted at one instant has the order in which a frequency picks of it.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

STREAMS = """
CREATE STREAM s (ts INT, k INT, g STRING, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION names (k INT, name STRING) FROM MEMORY ();
CREATE RELATION homes (ts INT, op STRING, k INT, place STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND
  OPERATION BY op;
"""
WINDOWS = ("RANGE 3 TUPLES", "RANGE 7 SECONDS", "RANGE UNBOUNDED", "NOW", "ROWS 2", "PARTITION BY {by} ROWS 2")
QUERIES = [
    ("k", "SELECT k, SUM(v) AS s, MAX(v) AS m FROM s [{w}] GROUP BY k"),
    ("k", "SELECT COUNT(*) AS n FROM s [{w}] WHERE v > 1 GROUP BY k, g HAVING COUNT(*) > 1"),
    ("k, g", "SELECT g, COUNT(DISTINCT v) AS n FROM s [{w}] GROUP BY g, k"),
    ("g", "SELECT s.g, name, COUNT(*) AS n FROM s [{w}], names WHERE s.k = names.k GROUP BY s.g, name"),
    ("k", "SELECT s.k, place, SUM(v) AS t FROM s [{w}], homes WHERE s.k = homes.k GROUP BY s.k, place"),
    ("k", "SELECT k, AVG(v) AS a [FREQUENCY 2 TUPLES] FROM s [{w}] GROUP BY k"),
]


def inputs(draw: random.Random, rows: int, keys: int) -> dict[str, pa.Table]:
    ticks = sorted(draw.randrange(rows // 2) for _ in range(rows))
    key = [draw.choice([None, *range(keys)]) for _ in ticks]
    stream = {"k": pa.array(key, pa.int32()), "g": [draw.choice(["a", "b", None]) for _ in ticks]}
    value = pa.array([draw.randrange(5) for _ in ticks], pa.int32())
    at = sorted(draw.randrange(rows // 2) for _ in range(keys))
    homes = {"op": ["+"] * keys, "k": pa.array(range(keys), pa.int32()), "place": [draw.choice("xy") for _ in at]}
    return {
        "s": pa.table({"ts": pa.array(ticks, pa.int32()), **stream, "v": value}),
        "names": pa.table({"k": pa.array([0, 1, 1], pa.int32()), "name": ["o", "p", "q"]}),
        "homes": pa.table({"ts": pa.array(at, pa.int32()), **homes}),
    }


@pytest.mark.spread(2)
@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_an_evaluation_answers_for_its_substream(number: int, case_count: int | None) -> None:
    by, text = QUERIES[number]
    for seed in range(case_count or 10):
        draw = random.Random(10 * seed + number)
        frequency = f"FREQUENCY {draw.choice((1, 2, 3))} TUPLES PARTITIONED BY {by}"
        window = draw.choice(WINDOWS).format(by=by)
        both = draw.choice(
            (f"{window}, {frequency}", f"{frequency}, {window}" if window != "NOW" else f"NOW, {frequency}")
        )
        (query,) = bind_script(f"{STREAMS}CREATE QUERY q AS {text.format(w=both)};").queries
        given = inputs(draw, 40, 3)
        wanted = run_oracle(query, given)
        for shards, cut in ((1, None), (3, seed + 1)):
            found = run_local([query], given, shards, seed=cut, reload=cut is not None).tables["q"]
            assert_same(query, found, wanted)


#: With {f} where FREQUENCY may pick of the answer.
ANSWERS = [
    "SELECT v, g {f} FROM s [RANGE 3 TUPLES, FREQUENCY 3 TUPLES]",
    "SELECT g, COUNT(*) AS n {f} FROM s [RANGE 7 SECONDS, FREQUENCY 4 TUPLES] GROUP BY g",
    "SELECT k, g, SUM(v) AS t {f} FROM s [FREQUENCY 2 TUPLES PARTITIONED BY k, RANGE 9 SECONDS] GROUP BY k, g",
    "SELECT s.v, name {f} FROM s [RANGE 4 TUPLES, FREQUENCY 2 TUPLES], names WHERE s.k = names.k",
    "SELECT a.v, b.v AS w {f} FROM s [RANGE 3 TUPLES, FREQUENCY 5 TUPLES] a, s [RANGE 2 SECONDS] b WHERE a.k = b.k",
    "SELECT v {f} FROM s [RANGE 5 SECONDS, FREQUENCY 3 SECONDS]",
    "SELECT k, COUNT(*) AS n {f} FROM s [RANGE 5 SECONDS, FREQUENCY 3 SECONDS] GROUP BY k",
]


@pytest.mark.spread(2)
@pytest.mark.parametrize("number", range(len(ANSWERS)))
def test_a_frequency_picks_of_the_order_in_which_answers_are_emitted(number: int, case_count: int | None) -> None:
    for seed in range(case_count or 10):
        draw = random.Random(10 * seed + number)
        given, step = inputs(draw, 40, 3), draw.choice((2, 3))
        whole, picked = bind_script(
            f"{STREAMS}CREATE QUERY whole AS {ANSWERS[number].format(f='')};"
            f"CREATE QUERY picked AS {ANSWERS[number].format(f=f'[FREQUENCY {step} TUPLES]')};"
        ).queries
        for shards, cut in ((1, None), (3, None), (1, seed + 1), (3, seed + 1)):
            found = run_local([whole, picked], given, shards, seed=cut, reload=cut is not None).tables
            rows = found["whole"].to_pylist()
            assert found["picked"].to_pylist() == rows[step - 1 :: step], f"seed {seed}, {shards} shards, cut {cut}"
            assert len(rows) > 4


def test_it_costs_the_groups_that_were_evaluated() -> None:
    """Of 200 groups of 20 elements 400 evaluations of every tenth: a row each, where all groups would be 60,100."""
    rows, groups = 4000, 200
    order = list(range(rows))
    random.Random(3).shuffle(order)
    table = pa.table({
        "ts": pa.array(range(rows), pa.int32()), "k": pa.array([i % groups for i in order], pa.int32()),
        "g": ["a"] * rows, "v": pa.array([i % 7 for i in order], pa.int32()),
    })  # fmt: skip
    text = "SELECT {} FROM s [RANGE 10 TUPLES, FREQUENCY 10 TUPLES PARTITIONED BY k] GROUP BY k"
    one, every = bind_script(
        f"{STREAMS}CREATE QUERY one AS {text.format('k, AVG(v) AS a')};"
        f"CREATE QUERY every AS {text.format('RSTREAM(k, AVG(v) AS a)')};"
    ).queries
    found = run_local([one, every], {"s": table}).tables
    assert found["one"].num_rows == 400
    assert found["every"].num_rows > 40_000
    rows_of_one = set(map(tuple, (row.values() for row in found["one"].to_pylist())))
    assert rows_of_one <= set(map(tuple, (row.values() for row in found["every"].to_pylist())))
