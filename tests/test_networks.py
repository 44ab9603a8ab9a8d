"""Scripts of dozens of named queries that feed one another run as one job, and each answers as it would alone."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from penstock.language.scripts import BoundScript, bind_script
from penstock.physical.plan.inputs import ScanSpec
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

LAYERS = 10


def network() -> str:
    """Ten layers of two views and two queries; each reads the layer before it, queries too."""
    lines = ["CREATE STREAM base (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts;"]
    below = "base"
    for n in range(LAYERS):
        lines += [
            f"CREATE VIEW kept{n} AS SELECT k, a + 1 AS a FROM {below} WHERE a % 7 <> {n % 7};",
            f"CREATE QUERY rows{n} AS SELECT k, a FROM kept{n};",
            f"CREATE VIEW summed{n} AS SELECT k, SUM(a) AS s FROM rows{n} [RANGE 5 SECOND] GROUP BY k;",
            f"CREATE QUERY large{n} AS SELECT s.k, s.s, r.a FROM summed{n} AS s, rows{n} [RANGE 2 SECOND] AS r "
            f"WHERE s.k = r.k AND s.s > {n};",
        ]
        below = f"rows{n}"
    return "\n".join(lines)


@pytest.fixture(scope="module")
def bound() -> BoundScript:
    return bind_script(network())


@pytest.fixture(scope="module")
def rows() -> dict[str, pa.Table]:
    columns = {"ts": [t // 2 for t in range(40)], "k": [t % 3 for t in range(40)], "a": [t * 5 % 11 for t in range(40)]}
    return {"base": pa.table({name: pa.array(values, pa.int32()) for name, values in columns.items()})}


def test_it_is_one_job(bound: BoundScript) -> None:
    assert len(bound.queries) + len(bound.catalog.views) == 4 * LAYERS
    began = time.perf_counter()
    plan = plan_queries(bound.queries)
    assert time.perf_counter() - began < 10
    assert sum(isinstance(step.spec, ScanSpec) for step in plan.steps) == 1
    # What several queries need is there once: each layer adds a few steps, not all those below it again.
    assert len(plan.steps) < 25 * LAYERS


def test_every_query_answers_as_alone(bound: BoundScript, rows: dict[str, pa.Table]) -> None:
    together = run_local(bound.queries, rows, shards=2, seed=3)
    for query in bound.queries:
        assert_same(query, together.tables[query.name], run_oracle(query, rows))
    assert any(table.num_rows for name, table in together.tables.items() if name.startswith("large"))
