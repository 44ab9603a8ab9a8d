"""Sums told boundary by boundary: to the last bit what the sweep over groups tells, and in the same order."""

from __future__ import annotations

import random
from unittest import mock

import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.physical.operators.aggregates import slide_incremental as boundaries
from penstock.physical.plan.panes import IncrementalSlideSpec, PaneStoreSpec
from penstock.physical.plan.state.aggregate_layout import AggregateLayout
from penstock.physical.planning import planner
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import LocalResult, run_local

SCRIPT = """
CREATE STREAM S (ts INT, k INT, v INT, x DOUBLE) FROM MEMORY () TIMESTAMP BY ts ORDER WITHIN 3 SECONDS;
CREATE QUERY a AS SELECT RSTREAM(k, COUNT(*) AS n, SUM(v) AS s, AVG(x) AS m, SUM(x) FILTER (WHERE v > 2) AS f)
  FROM S [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k;
CREATE QUERY b AS SELECT RSTREAM(k, SUM(x) AS s, COUNT(v) AS n) FROM S [RANGE 40 SECONDS SLIDE 1 SECOND] GROUP BY k;
CREATE QUERY c AS SELECT RSTREAM(k, SUM(x) AS s) FROM S [RANGE 4 SECONDS SLIDE 6 SECONDS] GROUP BY k;
CREATE QUERY d AS SELECT RSTREAM(k, SUM(x) AS s) FROM S [RANGE UNBOUNDED SLIDE 5 SECONDS] GROUP BY k;
"""
SUMS = ("SUM(x)", "AVG(v), COUNT(*)")
OTHERS = ("STDDEV(x)", "SUM(CAST(v AS DECIMAL(9, 2)))", "MIN(v), SUM(v)", "COUNT(DISTINCT v)")


def rows(seed: int, size: int = 1500) -> pa.Table:
    """Groups come and go by the hundred, there are stretches without any, and values that no double holds together."""
    draw = random.Random(seed)
    made = []
    now = 0
    for number in range(size):
        now += draw.choice((0, 0, 0, 1)) + (70 if number % 500 == 499 else 0)
        x = draw.choice((None, 1e300, -1e300, 1e-9, 0.1, float("nan"), float("inf"), 7.0))
        made.append(
            (max(0, now - draw.randint(0, 3)), now // 50 * 20 + draw.randint(0, 150), draw.choice((None, 1, 5)), x)
        )
    names = ("ts", "k", "v", "x")
    types = (pa.int32(), pa.int32(), pa.int32(), pa.float64())
    columns = zip(*made, strict=True)
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names)


def answer(seed: int, shards: int, batch: int, reload: bool) -> LocalResult:
    """Each query with its own state: those that share panes are in `test_pane_store.py`."""
    queries = bind_script(SCRIPT).queries
    with mock.patch.object(planner, "shared_grains", lambda *args: {}):
        return run_local(queries, {"S": rows(seed)}, shards, seed=seed, batch_rows=batch, reload=reload, drain=True)


def bits(table: pa.Table) -> list[list[object]]:
    """NaN is NaN, and -0.0 is not 0.0."""
    return [[v.hex() if isinstance(v, float) else v for v in column] for column in table.to_pydict().values()]


@pytest.mark.parametrize(("seed", "shards", "batch", "reload"), [(1, 1, 2000, False), (2, 3, 170, True)])
def test_both_ways_give_the_same_bits(seed: int, shards: int, batch: int, reload: bool) -> None:
    with mock.patch.object(boundaries, "sums_at_boundaries", wraps=boundaries.sums_at_boundaries) as told:
        new = answer(seed, shards, batch, reload)
    assert told.call_count >= 4 * shards
    with mock.patch.object(AggregateLayout, "plain_sums", False):
        old = answer(seed, shards, batch, reload)
    for name, table in old.tables.items():
        assert table.num_rows > 500
        assert bits(new.tables[name]) == bits(table)


def test_what_is_no_plain_sum_goes_the_other_way() -> None:
    def plan(items: str) -> AggregateLayout:
        query = f"SELECT RSTREAM(k, {items}) FROM S [RANGE 30 SECONDS SLIDE 3 SECONDS] GROUP BY k"
        text = SCRIPT.split("CREATE QUERY")[0] + f"CREATE QUERY q AS {query};"
        steps = plan_queries(bind_script(text).queries).steps
        (spec,) = (s.spec for s in steps if isinstance(s.spec, IncrementalSlideSpec))
        return spec.plan

    assert [plan(items).plain_sums for items in (*SUMS, *OTHERS)] == [True] * 2 + [False] * 4


@pytest.mark.parametrize("windows", [1, 2])
@pytest.mark.parametrize("batch", [3, 1])
def test_a_long_silence_costs_nothing(windows: int, batch: int) -> None:
    """Ten years of seconds without a row, in one round and in more, for sums that keep their panes and for those that
    share them."""
    years = pa.table(
        {
            "ts": pa.array([0, 1, 315_360_000], pa.int32()),
            "k": pa.array([1, 2, 1], pa.int32()),
            "v": pa.array([1, 2, 3], pa.int32()),
            "x": pa.array([0.5, 1.5, 2.5]),
        }
    )
    stream = SCRIPT.split("CREATE QUERY")[0]
    queries = [
        f"CREATE QUERY q{n} AS SELECT RSTREAM(k, SUM(x) AS s)"
        f" FROM S [RANGE {length} SECONDS SLIDE {slide} SECONDS] GROUP BY k;"
        for n, (length, slide) in enumerate(((40, 1), (10, 2))[:windows])
    ]
    bound = bind_script(stream + "".join(queries)).queries
    shared = [s for s in plan_queries(bound).steps if isinstance(s.spec, PaneStoreSpec)]
    assert len(shared) == windows - 1
    found = run_local(bound, {"S": years}, drain=True, batch_rows=batch).tables
    assert found["q0"].column("s").to_pylist()[:3] == [0.5, 0.5, 1.5]
    assert [found[f"q{n}"].num_rows for n in range(windows)] == [3 * 40, 3 * 5][:windows]
