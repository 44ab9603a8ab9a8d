"""Silence costs nothing: what is told at boundaries of a gap comes in pieces; where nothing is told none is made.

A gap of 4,000,000,000 boundaries stands between two elements; as many rows would not fit into memory, and as many
boundaries could not be looked at in the time that a test has.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.physical.elements import Elements
from penstock.physical.execution.exchange import StageResult
from penstock.physical.execution.executor import StageExecutor
from penstock.physical.kernels import boundary_pieces as spans
from penstock.physical.kernels.boundary_pieces import pieces, spread
from penstock.physical.operators.aggregates import shared_pane_sums as window_sums
from penstock.physical.operators.sequence import sequence_model as sequence
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import RUNS, CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

GAP, NEAR = 4_000_000_000, 4_000
STREAM = "CREATE STREAM S (ts BIGINT, k INT, v INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"
#: What has nothing to tell in a gap.
EMPTY_BETWEEN = (
    "RSTREAM(SELECT v FROM S [RANGE 5 SECONDS SLIDE 1 SECOND])",
    "RSTREAM(SELECT v FROM S [RANGE 5 SECONDS])",
    "RSTREAM(SELECT k, COUNT(*) AS n FROM S [RANGE 5 SECONDS SLIDE 1 SECOND] GROUP BY k)",
    "RSTREAM(SELECT k, SUM(v) AS n, MAX(v) AS m FROM S [RANGE 5 SECONDS SLIDE 2 SECONDS] GROUP BY k)",
    "RSTREAM(SELECT k, COUNT(DISTINCT v) AS n FROM S [RANGE 5 SECONDS SLIDE 5 SECONDS] GROUP BY k)",
    "SELECT COUNT(*) AS n FROM S [RANGE 5 SECONDS SLIDE 1 SECOND]",
    "SELECT DISTINCT v FROM S [RANGE 5 SECONDS, FREQUENCY 1 SECOND]",
    "SELECT k, COUNT(*) AS n FROM S [RANGE 5 SECONDS, FREQUENCY 1 SECOND] GROUP BY k",
    "SELECT a.v, b.v AS w FROM S [RANGE 5 SECONDS, FREQUENCY 1 SECOND] AS a, S [RANGE 9 SECONDS, FREQUENCY 2 SECONDS]"
    " AS b WHERE a.k = b.k",
    "SELECT a.v FROM S [RANGE 5 SECONDS, FREQUENCY 2 SECONDS] AS a, S [RANGE 2 TUPLES] AS b WHERE a.k < b.k",
    "SELECT v FROM S [FREQUENCY 3 SECONDS]",
    "ISTREAM RESTORE(SELECT v FROM S [RANGE 1 SECOND SLIDE 4 SECONDS])",
    "SELECT k, COUNT(*) AS n FROM S [PARTITION BY k ROWS 2 RANGE 4 SECONDS SLIDE 1 SECOND] GROUP BY k",
)
ROWS = [(1, 1, 10), (3, 2, 20), (3, 1, 30), (GAP, 1, 40), (GAP + 7, 2, 50)]


def table(rows: list[tuple[int, int, int]]) -> pa.Table:
    types = (pa.int64(), pa.int32(), pa.int32())
    columns = [pa.array(list(values), type_) for values, type_ in zip(zip(*rows, strict=True), types, strict=True)]
    return pa.Table.from_arrays(columns, names=["ts", "k", "v"])


@pytest.mark.spread(6)
@pytest.mark.timeout(60)
@pytest.mark.parametrize("query", EMPTY_BETWEEN)
@pytest.mark.parametrize("run", RUNS[:4])
def test_a_gap_in_which_nothing_is_told_takes_no_time(query: str, run: CaseRun) -> None:
    """The answer is that over a gap which the oracle can go through, moved behind the gap."""
    (asked,) = bind_script(f"{STREAM}CREATE QUERY q AS {query};").queries
    by = GAP - NEAR  # a multiple of all slides
    found = run.answer([asked], {"S": table(ROWS)}, True).tables["q"]
    near = table([(ts - by if ts >= GAP else ts, k, v) for ts, k, v in ROWS])
    answer = run_oracle(asked, {"S": near}, True)
    assert answer.events
    assert_same(asked, found, [(ts + by if ts > NEAR // 2 else ts, op, row) for ts, op, row in answer.events])


TOLD_THROUGHOUT = (
    "RSTREAM(SELECT COUNT(*) AS n FROM S [RANGE 5 SECONDS SLIDE 1 SECOND])",
    "RSTREAM(SELECT v FROM S [RANGE UNBOUNDED SLIDE 1 SECOND])",
    "RSTREAM(SELECT k, SUM(v) AS n FROM S [RANGE 4000000000 SECONDS SLIDE 1 SECOND] GROUP BY k)",
    "RSTREAM(SELECT k, MAX(v) AS n FROM S [RANGE 4000000000 SECONDS SLIDE 1 SECOND] GROUP BY k)",
    "SELECT COUNT(*) AS n FROM S [RANGE 5 SECONDS, FREQUENCY 1 SECOND]",
    "SELECT COUNT(*) AS n FROM S [RANGE 5 SECONDS, FREQUENCY 2 SECONDS] AS a, S [RANGE 2 TUPLES] AS b",
)


class Enough(Exception):
    pass


@pytest.mark.timeout(60)
@pytest.mark.parametrize("query", TOLD_THROUGHOUT)
@pytest.mark.parametrize("optimized", [True, False])
def test_a_gap_that_is_told_throughout_is_told_in_pieces(
    query: str, optimized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (asked,) = bind_script(f"{STREAM}CREATE QUERY q AS {query};").queries
    for module in (spans, window_sums, sequence):
        monkeypatch.setattr(module, "PIECE", 1000)
    made: list[Elements] = []
    run = StageExecutor.run

    def take(query: str, elements: Elements) -> None:
        made.append(elements)
        if len(made) == 20:
            raise Enough

    def taken(self: StageExecutor, inputs: Any, progress: Any, **_: Any) -> StageResult:
        # What is answered inside a query in the sequence model is no answer yet.
        return run(self, inputs, progress, take if type(self) is StageExecutor else None)

    monkeypatch.setattr(StageExecutor, "run", taken)
    with pytest.raises(Enough):
        run_local([asked], {"S": table(ROWS)}, optimized=optimized)
    assert max(map(len, made)) <= 2000
    ticks = np.concatenate([part.ts for part in made])
    assert (np.diff(ticks) >= 0).all() and ticks[-1] < 10**6


@pytest.mark.parametrize("seed", range(30))
def test_pieces_hold_every_pair_once_and_few_at_a_time(seed: int) -> None:
    draw = np.random.default_rng(seed)
    count = int(draw.integers(0, 30))
    first = draw.integers(-40, 40, count) + draw.choice([0, 10**6], count)
    stop = first + draw.integers(-3, 50, count)
    most = int(draw.choice([1, 2, 7, 100, 10**6]))
    found: list[tuple[int, int]] = []
    edge = None
    for low, high in pieces(first, stop, most):
        assert low < high and (edge is None or low >= edge)
        rows, boundaries = spread(first, stop, low, high)
        assert len(rows) <= most or high == low + 1
        found += zip(boundaries.tolist(), rows.tolist(), strict=True)
        edge = high
    every = [(b, k) for k in range(count) for b in range(int(first[k]), int(stop[k]))]
    assert sorted(found) == sorted(every)


def test_pieces_of_a_gap_are_made_as_they_are_taken() -> None:
    first, stop = np.array([0, 5, -(2**61)]), np.array([2**61, 2**61, 2**61])
    found = list(itertools.islice(pieces(first, stop, 1000), 100))
    assert found[0][0] == -(2**61) and all(one[1] == other[0] for one, other in itertools.pairwise(found))
    assert max(high - low for low, high in found) <= 1000
