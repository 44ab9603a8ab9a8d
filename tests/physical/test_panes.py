"""Aggregates at slide boundaries in one operator, and panes that several windows share: the same answers, less work."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import SourceStatistics, Statistics
from penstock.language.scripts import bind_script
from penstock.physical.operators.aggregates.slide_incremental import _spread
from penstock.physical.plan.aggregates import AccumulatorRowsSpec
from penstock.physical.plan.panes import IncrementalSlideSpec, PanesSpec, PaneStoreSpec, WindowSumsSpec
from penstock.physical.planning.lowering.panes import shared_grains
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

STREAM = "CREATE STREAM S (ts INT, k INT, v DOUBLE, w INT) FROM MEMORY () TIMESTAMP BY ts;\n"
ITEMS = (
    "k, SUM(v) AS a",
    "k, COUNT(*) AS n, AVG(v) AS a",
    "k, MIN(v) AS a, MAX(w) AS b",
    "k, COUNT(DISTINCT w) AS d, STDDEV(v) AS s",
    "k, MEDIAN(v) AS m, MODE(w) AS o",
    "w, SUM(v + k) AS a",
)


def _rows(random_: random.Random, size: int) -> pa.Table:
    ts, now = [], 0
    for _ in range(size):
        now += random_.choice((0, 0, 1, 1, 2, 9))
        ts.append(now)
    return pa.table(
        {
            "ts": pa.array(ts, pa.int32()),
            "k": pa.array([random_.choice((None, 1, 2, 3)) for _ in ts], pa.int32()),
            "v": pa.array([random_.choice((None, 0.5, 1.25, -3.0, 1e9)) for _ in ts], pa.float64()),
            "w": pa.array([random_.randint(0, 4) for _ in ts], pa.int32()),
        }
    )


def _window(random_: random.Random) -> str:
    unit = random_.choice((1, 2, 3))
    slide = unit * random_.randint(1, 4)
    length = random_.choice(("UNBOUNDED", f"{unit * random_.randint(1, 6)} SECOND"))
    align = random_.choice(("", "", " ALIGN TO 1"))
    return f"[RANGE {length} SLIDE {slide} SECOND{align}]"


def _script(random_: random.Random) -> str:
    """Queries of one or two kinds of aggregate over windows of their own."""
    lines = []
    for number in range(random_.randint(2, 6)):
        items = random_.choice(ITEMS[:3]) if number % 2 else ITEMS[random_.randrange(len(ITEMS))]
        key = items.split(",")[0]
        having = random_.choice(("", "", f" HAVING COUNT(*) > {random_.randint(1, 3)}"))
        where = random_.choice(("", "", " WHERE w > 1"))
        text = f"{items} FROM S {_window(random_)}{where} GROUP BY {key}{having}".replace(" FROM", "@FROM", 1)
        chosen, rest = text.split("@")
        kind = random_.choice(("RSTREAM({})", "RSTREAM({})", "{}", "ISTREAM({})"))
        lines.append(f"CREATE QUERY q{number} INTO MEMORY () AS SELECT {kind.format(chosen)} {rest};")
    return STREAM + "\n".join(lines)


@pytest.mark.spread(6)
@pytest.mark.parametrize("seed", range(24))
def test_queries_answer_together_as_alone(seed: int) -> None:
    random_ = random.Random(seed)
    text = _script(random_)
    queries = bind_script(text).queries
    rows = {"S": _rows(random_, 60)}
    drain = random_.random() < 0.5
    for shards, reload in ((1, True), (3, False)):
        together = run_local(queries, rows, shards=shards, seed=seed, reload=reload, drain=drain)
        for query in queries:
            assert_same(query, together.tables[query.name], run_oracle(query, rows, drain=drain))


def _aggregates(*windows: str, item: str = "SUM(v)") -> str:
    return STREAM + "\n".join(
        f"CREATE QUERY q{i} INTO MEMORY () AS SELECT RSTREAM(k, {item} AS a) FROM S [{w}] GROUP BY k;"
        for i, w in enumerate(windows)
    )


def test_windows_that_differ_alone_share_panes() -> None:
    text = _aggregates(
        "RANGE 60 SECOND SLIDE 4 SECOND", "RANGE 30 SECOND SLIDE 6 SECOND", "RANGE 2 SECOND SLIDE 2 SECOND"
    )
    plan = plan_queries(bind_script(text).queries)
    specs = [type(step.spec) for step in plan.steps]
    assert specs.count(AccumulatorRowsSpec) == 1
    assert specs.count(PaneStoreSpec) == 1
    assert specs.count(WindowSumsSpec) == 3
    assert sum(edge.exchange is not None for step in plan.steps for edge in step.inputs) == 1


def test_what_is_more_than_sums_shares_panes_and_keeps_its_own_state() -> None:
    windows = ("RANGE 60 SECOND SLIDE 4 SECOND", "RANGE 30 SECOND SLIDE 6 SECOND", "RANGE 10 SECOND SLIDE 2 SECOND")
    plan = plan_queries(bind_script(_aggregates(*windows, item="MAX(v)")).queries)
    specs = [type(step.spec) for step in plan.steps]
    assert specs.count(AccumulatorRowsSpec) == 1
    assert specs.count(IncrementalSlideSpec) == 3
    assert specs.count(PanesSpec) == 2  # the last window is panes of two seconds itself


def test_a_window_that_would_cost_the_others_stays_alone() -> None:
    """Panes of one second would be 632 a second, those of a minute 17."""
    seconds = ("RANGE 600 SECOND SLIDE 60 SECOND", "RANGE 1200 SECOND SLIDE 60 SECOND", "RANGE 7 SECOND SLIDE 1 SECOND")
    queries = bind_script(_aggregates(*seconds)).queries
    busy = Statistics({"s": SourceStatistics(1000.0, {"k": 1000.0})})
    roots = [optimize(q.root) for q in queries]
    assert sorted(shared_grains(roots, busy).values()) == [60, 60]
    # Where a second has few groups, its panes are few too.
    few = Statistics({"s": SourceStatistics(1000.0, {"k": 2.0})})
    assert sorted(shared_grains(roots, few).values()) == [1, 1, 1]


def test_rows_spread_over_boundaries_in_order() -> None:
    boundaries, rows = _spread(np.array([3, 1, 2]), np.array([5, 4, 3]))
    assert list(zip(boundaries.tolist(), rows.tolist(), strict=True)) == [
        (1, 1),
        (2, 1),
        (2, 2),
        (3, 0),
        (3, 1),
        (4, 0),
    ]
    boundaries, rows = _spread(np.array([900, 1, 2]), np.array([902, 4, 3]))
    assert list(zip(boundaries.tolist(), rows.tolist(), strict=True)) == [
        (1, 1),
        (2, 1),
        (2, 2),
        (3, 1),
        (900, 0),
        (901, 0),
    ]
