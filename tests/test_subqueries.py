"""Subqueries beside their answers: two rows where one is needed, and which plans they get."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.algebra import OuterJoin
from penstock.algebra.optimizer.optimizer import optimize
from penstock.errors import PenstockError
from penstock.language.scripts import bind_script
from penstock.physical.plan.plan import Plan
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.testing.oracle import run_oracle
from penstock.tree import walk

DECLARE = """
CREATE STREAM S (ts INT, k INT, a INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE STREAM T (ts INT, k INT, b INT) FROM MEMORY () TIMESTAMP BY ts;
CREATE RELATION R (k INT, b INT) FROM MEMORY ();
"""


def table(*rows: tuple[int, ...]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(c, pa.int32()) for c in columns], names=[f"c{i}" for i in range(len(columns))])


INPUTS = {"S": table((1, 1, 10), (5, 1, 20)), "T": table((2, 1, 5), (3, 1, 6), (3, 2, 7)), "R": table((1, 5), (1, 6))}


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT a FROM S [RANGE 4 SECOND] WHERE a > (SELECT b FROM T [RANGE 2 SECOND] WHERE T.k = S.k)",
            "(SELECT b FROM T [RANGE 2 SECOND] WHERE T.k = S.k) has 2 rows at 3 where one is needed",
        ),
        (
            "SELECT a, (SELECT b FROM R) AS one FROM S [NOW]",
            "(SELECT b FROM R) has 2 rows at 1 where one is needed",
        ),
        (
            "SELECT a FROM S [RANGE 1 SECOND] WHERE k = (SELECT COUNT(*) FROM T GROUP BY k)",
            "(SELECT COUNT(*) FROM T GROUP BY k) has 2 rows at 5 where one is needed",
        ),
    ],
)
def test_two_rows_fail_the_run(query: str, message: str) -> None:
    bound = bind_script(f"{DECLARE} CREATE QUERY q AS {query};")
    with pytest.raises(PenstockError) as told:
        run_oracle(bound.queries[0], INPUTS)
    assert (told.value.code, told.value.message) == ("P0612", message)
    for shards, rows in ((1, None), (3, 1)):
        with pytest.raises(PenstockError) as told:
            run_local(bound.queries, INPUTS, shards, batch_rows=rows)
        assert (told.value.code, told.value.message) == ("P0612", f"query q: {message}")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a, (SELECT b FROM T [RANGE 1 SECOND] WHERE T.k = S.k) AS one FROM S [RANGE 4 SECOND]",
        "SELECT a, (SELECT COUNT(*) FROM R WHERE R.k = S.k GROUP BY R.k) AS n FROM S [NOW]",
        "SELECT a, (SELECT DISTINCT R.k FROM R WHERE R.k = S.k) AS n FROM S [NOW]",
    ],
)
def test_one_row_at_a_time_is_enough(query: str) -> None:
    bound = bind_script(f"{DECLARE} CREATE QUERY q AS {query};")
    assert run_oracle(bound.queries[0], INPUTS).events


def planned(query: str) -> Plan:
    bound = bind_script(f"{DECLARE} CREATE QUERY q AS {query};")
    return plan_queries([replace(q, root=optimize(q.root, check=True)) for q in bound.queries])


def test_a_value_of_the_whole_goes_to_every_shard_and_the_stream_stays_cut() -> None:
    plan = planned("SELECT a FROM S [NOW] WHERE a > (SELECT AVG(b) FROM T [NOW]) OR NOT EXISTS (SELECT 1 FROM T [NOW])")
    exchanges = [edge.exchange for step in plan.steps for edge in step.inputs if edge.exchange is not None]
    assert sum(exchange.everywhere for exchange in exchanges) == 2  # the mean, and whether T has a row
    # AVG and the row that stands for all of T are made in one shard; S is never gathered in one.
    gathered = [
        plan.steps[edge.step]
        for step in plan.steps
        for edge in step.inputs
        if edge.exchange is not None and edge.exchange.key == () and not edge.exchange.everywhere
    ]
    assert {name for step in gathered for name in step.sources} == {"T"}


@pytest.mark.parametrize(
    ("query", "titles"),
    [
        ("SELECT a FROM S [NOW] WHERE k IN (SELECT k FROM T [NOW])", {"Distinct", "Join"}),
        ("SELECT a FROM S [NOW] WHERE EXISTS (SELECT 1 FROM T [NOW] WHERE b < a)", {"Distinct", "Join", "Partnered"}),
        ("SELECT a FROM S [NOW] WHERE NOT EXISTS (SELECT 1 FROM T [NOW] WHERE b < a)", {"Partnered", "PartnerCounts"}),
        ("SELECT a FROM S [NOW] WHERE k NOT IN (SELECT k FROM R)", {"StaticPartnerCounts"}),
        ("SELECT a FROM S [NOW] LEFT JOIN R ON S.k = R.k", {"StaticPartnerCounts"}),
        ("SELECT a FROM S [NOW] LEFT JOIN T [NOW] ON S.k = T.k WHERE b > 1", {"Join"}),
    ],
)
def test_partners_are_counted_only_where_lone_tuples_matter(query: str, titles: set[str]) -> None:
    found = {step.spec.title for step in planned(query).steps}
    assert found & {"Distinct", "Join", "Lookup", "Partnered", "PartnerCounts", "StaticPartnerCounts"} == titles


@pytest.mark.parametrize("row", ["k, b", "k + 1, b + S.a", "MIN(k), MAX(b)"])
def test_a_row_of_values_is_joined_once(row: str) -> None:
    query = f"SELECT a FROM S [NOW] WHERE (k, a) = (SELECT {row} FROM R WHERE R.k = S.k)"
    (bound,) = bind_script(f"{DECLARE} CREATE QUERY q AS {query};").queries
    assert sum(isinstance(node, OuterJoin) for node in walk(bound.root)) == 1
