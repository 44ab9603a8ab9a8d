"""Which rows of its sources a job reads: what the readers are told, and what explain says of it."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from penstock.algebra.optimizer.optimizer import optimize
from penstock.expressions.calls.text import to_sql
from penstock.expressions.evaluation.value_ranges import ValueRange, may_pass
from penstock.expressions.nodes import Call, Column, Literal
from penstock.language.scripts import bind_script
from penstock.physical.plan.identity import query_fingerprint
from penstock.physical.plan.plan import Plan
from penstock.physical.plan.rowwise import FilterSpec
from penstock.physical.planning.planner import part_of, plan_queries
from penstock.physical.planning.source_predicate import source_predicate_of, source_predicates
from penstock.session import explain

DECLARED = """CREATE STREAM S (ts BIGINT, k INT, x BIGINT, w STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
CREATE RELATION R (k INT, w STRING) FROM MEMORY ();
CREATE RELATION P (k INT, w STRING, PRIMARY KEY (k)) FROM MEMORY ();
CREATE RELATION U (ts BIGINT, op STRING, k INT, w STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND OPERATION BY op;
CREATE RELATION G (ts BIGINT, k INT, w STRING) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;
"""


def planned(*queries: str) -> Plan:
    script = DECLARED + "".join(f"CREATE QUERY q{i} AS {query};" for i, query in enumerate(queries))
    return plan_queries([replace(q, root=optimize(q.root)) for q in bind_script(script).queries])


def shown(plan: Plan) -> dict[str, str]:
    known = {**plan.sources, **{n: s for static in plan.statics.values() for n, s in static.sources.items()}}
    conditions = {
        **plan.source_predicates,
        **{n: c for n in known if (c := source_predicate_of(plan.statics.values(), n)) is not None},
    }
    return {name: to_sql(condition, known[name].columns.names) for name, condition in conditions.items()}


@pytest.mark.parametrize(
    ("queries", "expected"),
    [
        # Over the declared columns, whichever are read.
        (["SELECT x FROM S [RANGE 5 SECONDS] WHERE k = 1 AND x > 2"], {"S": "k = 1 AND x > 2"}),
        (["SELECT k, COUNT(*) AS n FROM S [RANGE 5 SECONDS] GROUP BY k HAVING k > 1"], {"S": "k > 1"}),
        # What any of the queries reads.
        (["SELECT x FROM S [NOW] WHERE k = 1", "SELECT w FROM S [NOW] WHERE x = 2"], {"S": "k = 1 OR x = 2"}),
        (["SELECT x FROM S [NOW] WHERE k = 1", "SELECT w FROM S [RANGE 2 SECONDS] WHERE k = 1"], {"S": "k = 1"}),
        (["SELECT x FROM S [NOW] WHERE k = 1", "SELECT w FROM S [NOW]"], {}),
        (
            ["SELECT a.x FROM S [NOW] AS a, S [RANGE 9 SECONDS] AS b WHERE a.k = 1 AND a.x = b.x AND b.x > 3"],
            {"S": "k = 1 AND x > 3 OR x > 3"},
        ),
        # What counts arrivals needs them all, and so does what draws them.
        (["SELECT RSTREAM(x) FROM S [ROWS 3] WHERE k = 1"], {}),
        (["SELECT RSTREAM(x) FROM S SAMPLE(50) [RANGE 3 SECONDS] WHERE k = 1"], {}),
        # A `-` names a row by all its columns; with one of them gone a key may be had again.
        (["SELECT k FROM U WHERE w = 'a'"], {}),
        (["SELECT k FROM G WHERE w = 'a'"], {"G": "w = 'a'"}),
        (["SELECT S.x FROM S [NOW], R WHERE S.k = R.k AND R.w = 'a'"], {"R": "w = 'a'"}),
        (["SELECT S.x FROM S [NOW], P WHERE S.k = P.k AND P.w = 'a'"], {}),
        (
            ["SELECT S.x FROM S [NOW], R WHERE S.k = R.k AND R.w = 'a'", "SELECT S.x FROM S [NOW], R WHERE S.k = R.k"],
            {},
        ),
    ],
)
def test_what_readers_are_told(queries: list[str], expected: dict[str, str]) -> None:
    assert shown(planned(*queries)) == expected


def test_thousands_of_queries_want_rows_of_one_source() -> None:
    """Nothing that walks or ships the condition goes as deep as there are queries."""
    plan = planned("SELECT x FROM S [NOW] WHERE k = 1")
    scan, filter_, *_ = plan.steps
    steps = [scan]
    for number in range(1500):
        spec = FilterSpec(Call(pa.bool_(), "EQ", (Column(pa.int32(), 0), Literal(pa.int32(), number))))
        steps.append(replace(filter_, id=number + 1, spec=spec))
    condition = pickle.loads(cloudpickle.dumps(source_predicates(steps)))["S"]
    k = plan.sources["S"].columns.index("k")
    assert may_pass(condition, {k: ValueRange(1499, 6000)}.__getitem__)
    assert not may_pass(condition, {k: ValueRange(1500, 6000)}.__getitem__)


def test_a_part_of_a_plan_wants_less() -> None:
    plan = planned("SELECT x FROM S [NOW] WHERE k = 1", "SELECT w FROM S [NOW] WHERE x = 2")
    assert shown(part_of(plan, ["q1"])) == {"S": "x = 2"}


def test_another_condition_is_another_query_and_what_others_want_is_not() -> None:
    one, other = "SELECT x FROM S [NOW] WHERE k = 1", "SELECT x FROM S [NOW] WHERE k = 2"
    assert query_fingerprint(planned(one), "q0") != query_fingerprint(planned(other), "q0")
    assert query_fingerprint(planned(one), "q0") == query_fingerprint(planned(one, other), "q0")


def test_explain_tells_it_at_the_source() -> None:
    script = f"{DECLARED} CREATE QUERY q AS SELECT x FROM S [NOW] WHERE k = 1;"
    (query,) = bind_script(script).queries
    (line,) = (line for line in explain(query).splitlines() if "Scan" in line and "source predicate" in line)
    assert "source predicate: k = 1" in line
    nodes = json.loads(explain(query, "json"))["physical"]["nodes"]
    assert [n["parameters"]["source predicate"] for n in nodes if n["label"] == "Scan"] == ["k = 1"]
