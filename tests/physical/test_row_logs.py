"""Aggregates over windows of several lengths of one stream read one log of rows; answers are those of each alone.

Random histories of registrations with such aggregates are in `test_window_stores.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import Query, Start, StartMode
from penstock.algebra.nodes.scans import declared_sources
from penstock.language.scripts import bind_script
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.live import LiveEngine
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import events_of, first_difference
from penstock.testing.oracle import run_oracle
from tests.physical.test_channels import inputs, queries
from tests.physical.test_sharing import BEGINNING, NOW, WARM, shared_kinds

EXTREMES = "SELECT k, MIN(a) AS least, MAX(a) AS most FROM S [RANGE {} SECONDS] GROUP BY k"
SUMS = "SELECT k, SUM(a) AS s, COUNT(DISTINCT a) AS n FROM S [RANGE {} SECONDS] WHERE a > 0 GROUP BY k"
WHOLE = "SELECT MAX(a) AS most, COUNT(*) AS n FROM S [RANGE {} SECONDS]"
MANY = [text.format(length) for text in (EXTREMES, SUMS, WHOLE) for length in (2, 9, 30)]


@pytest.mark.parametrize("shards", [1, 3])
def test_windows_of_several_lengths_answer_as_the_oracle(shards: int) -> None:
    asked, given = queries(MANY), inputs(shards, 120)
    plan = plan_queries(asked)
    kinds = [step.spec.title for step in plan.steps]
    assert kinds.count("RowLog") == 3 and kinds.count("Aggregate") == len(MANY)
    found = run_local(asked, given, shards=shards, seed=shards, reload=True)
    for query in asked:
        expected = run_oracle(query, given).events
        assert first_difference(expected, events_of(query, found.tables[query.name])) is None, query.text


def test_aggregates_of_one_length_keep_their_own_rows() -> None:
    plan = plan_queries(queries([EXTREMES.format(5), SUMS.format(7)]))
    assert "RowLog" not in {step.spec.title for step in plan.steps}


def test_a_shorter_window_joins_the_log_that_stands_and_a_longer_one_when_it_has_its_rows() -> None:
    short, long = EXTREMES.format(5), EXTREMES.format(15)
    for texts in ((long, short), (short, long)):
        steps = shared_kinds(("one", texts[0], NOW), ("two", texts[1], WARM))
        assert (steps["RowLog"], steps["Aggregate"]) == (1, 2)
    steps = shared_kinds(("one", short, NOW), ("two", long, NOW), ("three", short, BEGINNING))
    assert (steps["RowLog"], steps["Aggregate"]) == (1, 2)
    assert shared_kinds(("one", short, NOW), ("two", long, NOW), seconds=9)["RowLog"] == 2


def standing(lengths: Sequence[int]) -> int:
    """The bytes of state of one MAX for each length, after 300 rounds of 20 rows of 3 keys."""
    script = "CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
    asked: list[Query] = [
        bind_script(f"{script} CREATE QUERY q{i} AS {EXTREMES.format(length)};").queries[0]
        for i, length in enumerate(lengths)
    ]
    engine = LiveEngine(1)
    engine.declare(declared_sources(asked[0].root)["S"])
    for query in asked:
        engine.register(query, Start(StartMode.WARM))
    for second in range(300):
        columns = [[second] * 20, [i % 3 for i in range(20)], [(7 * second + 3 * i) % 101 for i in range(20)]]
        arrays = [pa.array(column, pa.int32()) for column in columns]
        engine.insert("S", pa.RecordBatch.from_arrays(arrays, ["ts", "k", "a"]))
        engine.round()
    return sum(
        chunk.nbytes
        for row in engine._job.stages
        for executor in row
        for synopsis in executor.snapshot().synopses.values()
        for chunk in synopsis.chunks.values()
    )


def test_the_state_of_several_lengths_is_about_that_of_the_longest() -> None:
    assert standing(range(150, 201, 10)) < 1.5 * standing([200])
