"""Joins that only look groups up: which they are, and that what they keep does not grow with what they are told."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.statistics import Statistics
from penstock.language.scripts import bind_script
from penstock.physical.plan.aggregates import AggregateSpec
from penstock.physical.plan.joins.specs import AggregateLookupSpec, JoinSpec, MultiJoinSpec
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.strategies import Strategy
from penstock.physical.planning.planner import plan_queries
from penstock.runtime.local.runtime import run_local
from penstock.testing.samples import STATEMENTS

SCRIPT = """
CREATE STREAM C (ts INT, k INT, j INT, v DOUBLE) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
"""
SUMS = "(SELECT k, SUM(v) AS s, COUNT(*) AS n FROM C [RANGE 5 SECONDS] GROUP BY k{}) AS a"
LOOKED_UP = [
    f"SELECT m.v, a.s FROM C [NOW] AS m, {SUMS.format('')} WHERE m.k = a.k",
    f"SELECT m.v, a.s FROM {SUMS.format(' HAVING SUM(v) > 1')} JOIN C [RANGE 1 SECOND] AS m ON m.k = a.k AND m.v < a.s",
    f"SELECT m.v, a.s FROM (SELECT * FROM C [NOW] WHERE v > 1) AS m LEFT JOIN {SUMS.format('')} ON m.k = a.k",
    "SELECT k, (SELECT MAX(v) FROM C [RANGE 5 SECONDS] AS w WHERE w.k = m.k) AS most FROM C [NOW] AS m",
    f"SELECT m.v, a.s, b.n FROM C [NOW] AS m, {SUMS.format('')}, "
    "(SELECT k, j, COUNT(*) AS n FROM C [ROWS 3] GROUP BY k, j) AS b WHERE m.k = a.k AND m.k = b.k AND m.j = b.j",
]
JOINED = [
    f"SELECT m.v, a.s FROM C [RANGE 2 SECONDS] AS m, {SUMS.format('')} WHERE m.k = a.k",
    f"SELECT m.v, a.s FROM C [ROWS 1] AS m, {SUMS.format('')} WHERE m.k = a.k",
    f"SELECT m.v, a.s FROM C [NOW] AS m, {SUMS.format('')} WHERE m.j = a.n",
    "SELECT m.v, a.s FROM C [NOW] AS m, (SELECT k, twice(COUNT(*)) AS s FROM C [RANGE 5 SECONDS] GROUP BY k) AS a "
    "WHERE m.k = a.k",
    "SELECT m.v, b.n FROM C [NOW] AS m, (SELECT k, j, COUNT(*) AS n FROM C [RANGE 5 SECONDS] GROUP BY k, j) AS b "
    "WHERE m.k = b.k",
]


def _plan(query: str, strategy: Strategy = Strategy.PATTERN) -> Plan:
    (bound,) = bind_script(f"{SCRIPT}{'; '.join(STATEMENTS)}; CREATE QUERY q AS {query};").queries
    ready = replace(bound, root=optimize(bound.root, planning=strategy.planning(Statistics())))
    return plan_queries([ready], Statistics(), strategy)


@pytest.mark.parametrize("query", LOOKED_UP)
def test_nothing_is_told_where_groups_are_looked_up(query: str) -> None:
    kinds = [type(step.spec) for step in _plan(query).steps]
    assert AggregateLookupSpec in kinds and not {AggregateSpec, JoinSpec, MultiJoinSpec} & set(kinds)


@pytest.mark.parametrize("query", JOINED)
def test_other_joins_hear_of_every_change(query: str) -> None:
    assert AggregateLookupSpec not in [type(step.spec) for step in _plan(query).steps]


@pytest.mark.parametrize("strategy", [Strategy.DIRECT, Strategy.NEGATIVE])
def test_the_baselines_join(strategy: Strategy) -> None:
    assert AggregateLookupSpec not in [type(step.spec) for step in _plan(LOOKED_UP[0], strategy).steps]


def test_neither_negative_tuples_nor_a_second_exchange_for_an_rstream() -> None:
    steps = _plan(f"RSTREAM({LOOKED_UP[0]})").steps
    assert max(step.stage for step in steps) == 1
    assert not any(getattr(step.spec, "strict", False) for step in steps)


def test_zeros_of_either_sign_find_one_group_and_keep_their_own() -> None:
    script = """
    CREATE STREAM S (ts INT, k DOUBLE) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
    CREATE QUERY q AS RSTREAM(SELECT m.k AS mine, a.k AS theirs, n FROM S [NOW] AS m,
      (SELECT k, COUNT(*) AS n FROM S [RANGE 9 SECONDS] GROUP BY k) AS a WHERE m.k = a.k);
    """
    rows = pa.table({"ts": pa.array([1, 2], pa.int32()), "k": [0.0, -0.0]})
    told = run_local(bind_script(script).queries, {"S": rows}).tables["q"].to_pylist()
    assert [(str(row["mine"]), str(row["theirs"]), row["n"]) for row in told] == [
        ("0.0", "0.0", 1),
        ("-0.0", "0.0", 2),
    ]
