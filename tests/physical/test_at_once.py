"""Aggregates computed anew at each boundary: what the oracle says by any cut, and what those carried on tell."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from penstock.language.scripts import bind_script
from penstock.physical.operators.aggregates import accumulators as lanes
from penstock.physical.operators.aggregates import slide_recompute as at_once
from penstock.physical.plan.aggregates import AccumulatorRowsSpec
from penstock.physical.plan.panes import IncrementalSlideSpec, RecomputedSlideSpec
from penstock.physical.planning.lowering import aggregates, streams
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

STREAM = """CREATE STREAM S (ts INT, k INT, v INT, x DOUBLE, w STRING, d DECIMAL(9, 2)) FROM MEMORY ()
TIMESTAMP BY ts ORDER WITHIN 3 SECONDS;
"""
#: Tumbling, overlapping, with gaps, and no whole number of slides.
WINDOWS = ((6, 6), (9, 3), (4, 6), (7, 3), (12, 3))
ITEMS = (
    "COUNT(DISTINCT v) AS a",
    "COUNT(DISTINCT w) AS a, COUNT(DISTINCT x) AS b, SUM(DISTINCT v) AS c, COUNT(*) AS n",
    "SUM(DISTINCT d) AS a, AVG(DISTINCT v) AS b, SUM(v) AS c, COUNT(DISTINCT v) FILTER (WHERE x > 0) AS e",
    "SUM(DISTINCT x) AS a, STDDEV(DISTINCT v) AS b, MIN(w) AS c, MAX(x) AS d, COUNT(DISTINCT v, w) AS e",
    "MAX(v) AS a, MIN(d) AS b, SUM(x) AS c",
)


def script(windows: Sequence[tuple[int, int]] = WINDOWS, items: Sequence[str] = ITEMS) -> str:
    texts = [
        f"CREATE QUERY q{length}_{slide}_{i} AS SELECT RSTREAM(k, {item}) FROM S\n"
        f"[RANGE {length} SECONDS SLIDE {slide} SECONDS] GROUP BY k;\n"
        for length, slide in windows
        for i, item in enumerate(items)
    ]
    return STREAM + "".join(texts)


def rows(seed: int, size: int = 400) -> pa.Table:
    """Values that are equal and look different, NULLs, and stretches without any row."""
    draw = random.Random(seed)
    made = []
    now = 0
    for number in range(size):
        now += draw.choice((0, 0, 0, 1)) + (40 if number % 150 == 149 else 0)
        x = draw.choice((None, 0.0, -0.0, float("nan"), 1.5, -2.0, 7.0))
        v, w, d = draw.choice((None, 1, 2, 5)), draw.choice((None, "", "a", "b")), draw.choice((None, "0.10", "-3.25"))
        made.append((max(0, now - draw.randint(0, 3)), draw.choice((None, 1, 2, 3)), v, x, w, d))
    ts, k, v, x, w, d = zip(*made, strict=True)
    columns = [*(pa.array(c, pa.int32()) for c in (ts, k, v)), pa.array(x, pa.float64()), pa.array(w, pa.string())]
    return pa.table([*columns, pa.array(d).cast(pa.decimal128(9, 2))], names=["ts", "k", "v", "x", "w", "d"])


def specs(text: str) -> list[type]:
    return [type(step.spec) for step in plan_queries(bind_script(text).queries).steps]


@pytest.mark.parametrize(("seed", "shards", "batch", "reload"), [(1, 1, 400, False), (2, 3, 37, True)])
def test_every_cut_gives_what_the_oracle_says(
    seed: int, shards: int, batch: int, reload: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (at_once, "_WAVE", 8),
        (at_once, "_STRETCH", 2),
        (lanes, "_SAMPLED", 1),
        (lanes, "_SAMPLE", np.uint64(1)),
    ):
        monkeypatch.setattr(module, name, value)
    queries = bind_script(script()).queries
    inputs = {"S": rows(seed)}
    found = run_local(queries, inputs, shards, seed=seed, batch_rows=batch, reload=reload, drain=True)
    for query in queries:
        assert found.tables[query.name].num_rows > 30
        assert_same(query, found.tables[query.name], run_oracle(query, inputs, True))


def test_they_tell_what_those_tell_that_are_carried_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same order of rows."""
    text = script(items=ITEMS[:3])
    new = run_local(bind_script(text).queries, {"S": rows(3)}, 2, drain=True)
    for module in (aggregates, streams):
        monkeypatch.setattr(module, "hardly_overlaps", lambda node: False, raising=False)
    assert RecomputedSlideSpec not in specs(text)
    old = run_local(bind_script(text).queries, {"S": rows(3)}, 2, drain=True)
    for name, table in old.tables.items():
        assert new.tables[name].equals(table)


def test_what_is_computed_anew() -> None:
    def one(window: tuple[int, int], item: str) -> type:
        (spec,) = {IncrementalSlideSpec, RecomputedSlideSpec} & set(specs(script([window], [item])))
        return spec

    assert {one(window, item) for window in WINDOWS for item in ITEMS[:4]} == {RecomputedSlideSpec}
    assert one((6, 6), ITEMS[4]) is one((4, 6), ITEMS[4]) is RecomputedSlideSpec
    assert one((9, 3), ITEMS[4]) is IncrementalSlideSpec
    assert one((15, 3), "COUNT(DISTINCT v) AS a") is IncrementalSlideSpec  # each row would be looked at five times
    assert one((6, 6), "MODE(v) AS a, COUNT(DISTINCT v) AS b") is IncrementalSlideSpec
    assert one((6, 6), "SUM(x) AS a") is IncrementalSlideSpec


def test_rows_that_share_no_pane_go_as_they_are() -> None:
    """And those that do are added up: a sample tells."""
    size = 1 << 15
    ticks = np.arange(size) // 1000 * 6

    def left(distinct: int) -> int:
        query = script([(6, 6)], ["COUNT(DISTINCT v) AS a"])
        (spec,) = (
            s.spec for s in plan_queries(bind_script(query).queries).steps if isinstance(s.spec, AccumulatorRowsSpec)
        )
        values = pa.array(np.arange(size) % distinct, pa.int32())
        made = lanes.Elements(
            (pa.array(np.ones(size, np.int32)), pa.array(np.ones(size, np.int64)), values), ticks, ticks + 6
        )
        return len(lanes.pre_aggregate_where_it_pays(spec.plan, made))

    assert left(100_000) == size
    assert left(10) == 10 * 33
