"""Aggregates of bits and of intervals over every kind of window, cut into rounds and over shards, as the oracle."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

DECLARED = "CREATE STREAM S (ts TIMESTAMP, k INT, v INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY ts;"
BITS = "BIT_AND(v) AS a, BIT_OR(v) AS o, BIT_XOR(v) AS x, SUM(v) AS s, BIT_XOR(DISTINCT v) AS d"
LENGTHS = "SUM(at - ts) AS s, AVG(at - ts) AS m, MIN(at - ts) AS l, MAX(at - ts) AS g, COUNT(DISTINCT at - ts) AS n"
QUERIES = (
    "SELECT k, {} FROM S [RANGE 9 SECONDS] GROUP BY k",
    "SELECT {} FROM S [ROWS 3]",
    "SELECT k, {} FROM S GROUP BY k",
    "RSTREAM(SELECT k, {} FROM S [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k)",
    "RSTREAM(SELECT k, {} FROM S [RANGE 6 SECONDS SLIDE 3 SECONDS] GROUP BY k)",
    "RSTREAM(SELECT {} FROM S [RANGE 4 SECONDS SLIDE 4 SECONDS])",
    "SELECT {} FROM S [RANGE 6 TUPLES, FREQUENCY 2 TUPLES]",
)
RUNS = (CaseRun(), CaseRun(batch_rows=7, reload=True), CaseRun(3, seed=5, batch_rows=40))


def rows(seed: int, size: int = 80) -> pa.Table:
    draw = random.Random(seed)
    ts = sorted(draw.randint(0, 40) * 1_000_000 for _ in range(size))
    moments = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "ts": pa.array(ts, moments),
            "k": pa.array([draw.choice((0, 1)) for _ in ts], pa.int32()),
            "v": pa.array([draw.choice((0, 1, 6, -1, -(2**31), 2**31 - 1, None)) for _ in ts], pa.int32()),
            "at": pa.array([draw.choice((None, t, t + 1, t - 1, t + 86_400_000_000)) for t in ts], moments),
        }
    )


@pytest.mark.spread(2)
@pytest.mark.parametrize("items", [BITS, LENGTHS], ids=["bits", "lengths"])
@pytest.mark.parametrize("seed", range(2))
def test_every_window_gives_what_its_rows_give(items: str, seed: int) -> None:
    script = DECLARED + "".join(f"CREATE QUERY q{n} AS {q.format(items)};" for n, q in enumerate(QUERIES))
    queries = bind_script(script).queries
    inputs = {"S": rows(seed)}
    answers = {q.name: run_oracle(q, inputs) for q in queries}
    for run in RUNS:
        found = run.answer(queries, inputs, False, None)
        for query in queries:
            assert_same(query, found.tables[query.name], answers[query.name])
