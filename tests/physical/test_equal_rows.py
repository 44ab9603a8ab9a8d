"""Equal rows that are in one shard already are not sent again: which plans have how many stages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.algebra.optimizer.optimizer import optimize
from penstock.language.scripts import bind_script
from penstock.physical.planning.planner import plan_queries

DECLARED = """
CREATE STREAM A (ts BIGINT, id INT, k BIGINT, x DOUBLE, w STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE STREAM B (ts BIGINT, id INT, k BIGINT, x DOUBLE, w STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
"""
FROM = "FROM A [RANGE 5 SECONDS], B [RANGE 9 SECONDS]"


@pytest.mark.parametrize(
    ("query", "stages"),
    [
        # The key is computed of a column that the results hold.
        (f"ISTREAM(SELECT A.id, B.id AS other {FROM} WHERE A.id % 7 = B.id % 7)", 1),
        (f"DSTREAM(SELECT A.id {FROM} WHERE A.id % 7 = B.id % 7)", 1),
        (f"SELECT B.w {FROM} WHERE A.id = LENGTH(B.w)", 1),
        (f"SELECT A.id {FROM} WHERE A.id = B.k", 1),
        (f"SELECT DISTINCT A.w {FROM} WHERE UPPER(A.w) = UPPER(B.w)", 1),
        (f"SELECT A.id, B.k {FROM} WHERE A.id + A.k = B.id", 2),
        (f"SELECT A.id, A.k {FROM} WHERE A.id + A.k = B.id", 1),
        # The results hold another column than those that decide.
        (f"SELECT A.k {FROM} WHERE A.id % 7 = B.id % 7", 2),
        (f"SELECT A.id + 1 AS n {FROM} WHERE A.id % 7 = B.id % 7", 2),
        # Equal doubles may give different keys: 0.0 and -0.0.
        (f"SELECT A.x {FROM} WHERE CAST(A.x AS STRING) = B.w", 2),
    ],
)  # fmt: skip
def test_rows_are_sent_only_where_equal_ones_may_be_apart(query: str, stages: int) -> None:
    (bound,) = bind_script(f"{DECLARED}CREATE QUERY q AS {query};").queries
    assert plan_queries([replace(bound, root=optimize(bound.root))]).stages == stages
