"""Rows that meet each other without a key are paired in pieces: memory does not grow with the number of pairs."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.language.scripts import BoundScript, bind_script
from penstock.physical.operators.joins import join, nonretroactive, partner_counts
from penstock.physical.plan.joins.specs import BandPartitionerSpec, PartneredSpec
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import CaseRun
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

#: The pairs that are formed at once here, and the rows of each relation, of which there are 1,000 times as many pairs.
PAIRS, ROWS = 4096, 2048
#: Pools that buffers may be in still, which must outlive these.
POOLS: list[pa.MemoryPool] = []
#: Ways in which the relation r is declared: of its declaration, and how a query reads it.
RIGHT = {
    "static": ("RELATION r (k BIGINT, t BIGINT) FROM MEMORY ()", "r"),
    "growing": ("STREAM r (k BIGINT, t BIGINT) FROM MEMORY () TIMESTAMP BY t", "r [RANGE UNBOUNDED]"),
    "expiring": ("STREAM r (k BIGINT, t BIGINT) FROM MEMORY () TIMESTAMP BY t", "r [RANGE 700 SECONDS]"),
    "updated": ("RELATION r (k BIGINT, t BIGINT, o STRING) FROM MEMORY () TIMESTAMP BY t OPERATION BY o", "r"),
}
#: Conditions without an equality: with ranges to search, and without.
CONDITIONS = (
    "NOT EXISTS (SELECT 1 FROM {r} AS r WHERE r.k < s.k AND r.k > 0)",
    "EXISTS (SELECT 1 FROM {r} AS r WHERE r.k <> s.k)",
    "k + 1 <> ALL (SELECT r.k FROM {r} AS r WHERE r.t + s.t > 100)",
    "s.k NOT IN (SELECT r.k FROM {r} AS r WHERE r.t <> s.t) OR k IS NULL",
    "NOT EXISTS (SELECT 1 FROM {r} AS r WHERE r.k BETWEEN s.k - 1 AND s.k + 1)",
)


def script(way: str, condition: str, select: str = "SELECT k FROM s [RANGE UNBOUNDED] WHERE ") -> BoundScript:
    declared, read = RIGHT[way]
    return bind_script(
        f"CREATE STREAM s (k BIGINT, t BIGINT) FROM MEMORY () TIMESTAMP BY t; CREATE {declared}; "
        f"CREATE QUERY q AS {select}{condition.format(r=read)};"
    )


def rows(way: str, count: int, missing: float = 0.0, within: int = 1_000_000, every: int = 1) -> dict[str, pa.Table]:
    draw = random.Random(f"{way} {count}")

    def table(**more: list[str]) -> pa.Table:
        keys = [None if draw.random() < missing else draw.randint(1, within) for _ in range(count)]
        times = [i // every for i in range(count)]
        return pa.table({"k": pa.array(keys, pa.int64()), "t": pa.array(times, pa.int64()), **more})

    return {"s": table(), "r": table(o=["+"] * count) if way == "updated" else table()}


def peak(bound: BoundScript, inputs: Mapping[str, pa.Table]) -> int:
    """The most bytes that arrays of numpy and of Arrow have together while `bound` runs."""
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        run_local(bound.queries, inputs)
        return tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


@pytest.fixture
def few_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (join, partner_counts, nonretroactive):
        monkeypatch.setattr(module, "PROBES_AT_ONCE", PAIRS)


@pytest.mark.parametrize("way", RIGHT)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_semi_joins_without_a_key_take_memory_for_their_rows(way: str, condition: str, few_pairs: None) -> None:
    bound = script(way, condition)
    run_local(bound.queries, rows(way, 64))  # compiles, and loads what is loaded once
    # What may be taken back is added up by instant.
    small, large = (
        peak(bound, rows(way, count, every=count // 16 if way == "updated" else 1)) for count in (ROWS // 4, ROWS)
    )
    # Four times the rows are sixteen times the pairs, of which each takes 16 bytes at least.
    assert large < 5 * small + (1 << 20), (small, large)
    assert large < ROWS * ROWS, large


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
def test_joins_by_a_condition_that_few_pairs_pass(kind: str, few_pairs: None) -> None:
    bound = script("static", "r.k * s.k < 10", f"SELECT s.k, r.t FROM s [RANGE UNBOUNDED] {kind} r ON ")
    run_local(bound.queries, rows("static", 64))
    assert peak(bound, rows("static", ROWS)) < ROWS * ROWS


def test_a_non_retroactive_relation_without_a_key(few_pairs: None) -> None:
    bound = bind_script(
        "CREATE STREAM s (k BIGINT, t BIGINT) FROM MEMORY () TIMESTAMP BY t; "
        "CREATE NON RETROACTIVE RELATION r (k BIGINT, t BIGINT, o STRING) FROM MEMORY () TIMESTAMP BY t OPERATION BY o;"
        "CREATE QUERY q AS SELECT s.k FROM s [RANGE UNBOUNDED], r WHERE r.k * s.k < 10;"
    )
    run_local(bound.queries, rows("updated", 64))
    assert peak(bound, rows("updated", ROWS)) < ROWS * ROWS


@pytest.mark.parametrize("way", RIGHT)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_what_is_put_together_answers_as_the_oracle(way: str, condition: str) -> None:
    """With NULLs, in shards, cut anywhere, restored, and with one or a few pairs at once."""
    bound = script(way, condition, "SELECT k, t FROM s [RANGE 40 SECONDS] WHERE ")
    inputs = rows(way, 30, missing=0.2, within=12)
    if way == "updated":  # some rows of r are taken back
        table = inputs["r"].slice(0, 20)
        gone = table.slice(5, 12).set_column(1, "t", pa.array(range(25, 37), pa.int64()))
        inputs["r"] = pa.concat_tables([table, gone.set_column(2, "o", pa.array(["-"] * 12))])
    answer = run_oracle(bound.queries[0], inputs, drain=True)
    ways = (CaseRun(1), CaseRun(4, 3), CaseRun(2, None, 1), CaseRun(3, 5, reload=True), CaseRun(2, 1, optimized=False))
    for n, run in enumerate(ways):
        tried = replace(run, thresholds=n if n % 2 else None)
        assert_same(bound.queries[0], tried.answer(bound.queries, inputs, drain=True).tables["q"], answer)


def test_only_joins_that_store_their_sides_are_put_together() -> None:
    def specs(way: str, condition: str) -> list[type]:
        queries = [replace(query, root=optimize(query.root)) for query in script(way, condition).queries]
        return [type(step.spec) for step in plan_queries(queries, Statistics(shards=4)).steps]

    assert PartneredSpec in specs("growing", CONDITIONS[1])
    assert PartneredSpec not in specs("static", CONDITIONS[1])
    band = "EXISTS (SELECT 1 FROM {r} AS r WHERE r.k BETWEEN s.k - 5 AND s.k + 5)"
    assert {PartneredSpec, BandPartitionerSpec} <= set(specs("growing", band))
