"""Joins and groups of whose values the query leaves finitely many [golab 2.2.1]: by value counts, flags or extremes."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.scans import declared_sources
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.properties.boundedness import Grade
from penstock.algebra.properties.domains import Domain
from penstock.algebra.properties.statistics import Statistics
from penstock.language.scripts import bind_script
from penstock.physical.planning.planner import plan_queries
from penstock.physical.planning.state_size.summary import query_state
from penstock.runtime.local.runtime import LocalJob, run_local
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.testing.thresholds import lowered, small

DECLARED = """
CREATE STREAM S (t BIGINT, A INT, B INT, C DOUBLE, f BOOLEAN, w STRING, day DATE) FROM MEMORY () TIMESTAMP BY t {slack};
CREATE STREAM T (t BIGINT, D INT, E DOUBLE, f BOOLEAN, w STRING, n TINYINT) FROM MEMORY () TIMESTAMP BY t {slack};
"""
COUNTS = "counts by value / counts by value"
FLAGS = "flags by value / flags by value"
LEAST, GREATEST = "least by value / greatest by value", "greatest by value / least by value"
#: Query, what its join stores.
KEPT = [
    ("SELECT A FROM S, T WHERE A = D AND A > 1 AND D < 5", COUNTS),
    ("SELECT DISTINCT A FROM S, T WHERE A = D AND A > 1 AND D < 5", FLAGS),
    ("SELECT DISTINCT A FROM S, T WHERE B < D AND A > 1 AND A < 5", LEAST),
    ("SELECT DISTINCT A, S.f FROM S, T WHERE B >= D AND A IN (1, 2, 3)", GREATEST),
    ("SELECT DISTINCT A FROM S, T WHERE A = D AND A > 1 AND D < 5 AND C > E", GREATEST),
    (
        "SELECT DISTINCT A + 1 AS n FROM S, T WHERE T.E < S.C AND A BETWEEN 0 AND 3",
        GREATEST,
    ),
    ("SELECT S.w, T.n FROM S, T WHERE S.w = T.w AND S.w IN ('a', 'b')", COUNTS),
    ("SELECT S.f AS a, T.f AS b FROM S, T", COUNTS),
    ("SELECT DISTINCT S.f FROM S JOIN T ON S.f <> T.f", FLAGS),
    (
        "SELECT A, D FROM S, T WHERE A < D AND A > 0 AND A < 3 AND D BETWEEN 1 AND 4",
        COUNTS,
    ),
    ("SELECT x.A FROM S AS x, S AS y WHERE x.A = y.A AND x.A > 1 AND x.A < 4", COUNTS),
    (
        "SELECT A, COUNT(*) AS n, SUM(D) AS s FROM S, T WHERE A = D AND (A = 1 OR A = 3) GROUP BY A",
        COUNTS,
    ),
    (
        "SELECT day FROM S, T WHERE A = D AND A BETWEEN 0 AND 2 AND day >= DATE '2024-01-01'"
        " AND day <= DATE '2024-01-03'",
        COUNTS,
    ),
]
#: Where it ends.
NOT_KEPT = [
    "SELECT A FROM S, T WHERE A = D",
    "SELECT A FROM S, T WHERE A = D AND A > 1",
    "SELECT A FROM S, T WHERE B < D AND A > 1 AND A < 5",
    "SELECT DISTINCT A, B FROM S, T WHERE B < D AND A > 1 AND A < 5",
    "SELECT DISTINCT A FROM S, T WHERE B < D AND B > D - 3 AND A > 1 AND A < 5",
    "SELECT DISTINCT A FROM S, T WHERE B = D AND A > 1 AND A < 5",
    "SELECT A FROM S [RANGE 5 SECONDS], T WHERE A = D AND A > 1 AND D < 5",
    "SELECT A FROM S, T WHERE C = E AND C IN (0.0, 1.0) AND A IN (1, 2)",
]


def _query(text: str, slack: str = "") -> Query:
    (query,) = bind_script(f"{DECLARED.format(slack=slack)} CREATE QUERY q AS {text};").queries
    return query


def _stored(query: Query) -> list[str]:
    steps = plan_queries([replace(query, root=optimize(query.root, check=True))]).steps
    return [str(step.spec.describe()["state"]) for step in steps if step.spec.title == "ValueJoin"]


def _rows(random: Random, schema: pa.Schema, count: int, slack: int) -> pa.Table:
    times = sorted(random.randrange(12) for _ in range(count))
    drawn: dict[str, Any] = {
        "DOUBLE": lambda: random.choice([None, float("nan"), -0.0, 0.0, 1.0, 2.0]),
        "BOOLEAN": lambda: random.choice([None, True, False]),
        "STRING": lambda: random.choice([None, "a", "b", "c"]),
        "DATE": lambda: random.choice([None, 19722, 19723, 19725, 19726]),
        "INT": lambda: random.choice([None, 0, 1, 2, 3, 4, 5]),
    }
    kinds = {"double": "DOUBLE", "bool": "BOOLEAN", "string": "STRING", "date32[day]": "DATE"}
    columns = []
    for field in schema:
        kind = kinds.get(str(field.type), "INT")
        values = [drawn[kind]() for _ in range(count)]
        columns.append(
            pa.array(values, pa.int32()).cast(field.type) if kind == "DATE" else pa.array(values, field.type)
        )
    order = sorted(range(count), key=lambda i: times[i] + random.random() * slack)
    columns[0] = pa.array([times[i] for i in order], schema[0].type)
    return pa.Table.from_arrays(columns, schema=schema)


def _inputs(query: Query, random: Random, count: int, slack: int) -> dict[str, pa.Table]:
    return {
        name: _rows(random, pa.schema([pa.field(f.name, f.type) for f in source.columns]), count, slack)
        for name, source in declared_sources(query.root).items()
    }


@pytest.mark.parametrize(("text", "stored"), KEPT)
def test_what_is_stored(text: str, stored: str) -> None:
    query = _query(text)
    assert _stored(query) == [stored]
    grades = {step.bound.grade for step in query_state(query, Statistics()).steps if "Join" in step.name}
    assert grades == {Grade.BOUNDED}


@pytest.mark.parametrize("text", NOT_KEPT)
def test_where_it_ends(text: str) -> None:
    assert _stored(_query(text)) == []


@pytest.mark.parametrize("text", [text for text, _ in KEPT])
@pytest.mark.parametrize("slack", ["", "ORDER WITHIN 3 SECONDS"])
def test_answers_are_those_of_rows(text: str, slack: str) -> None:
    query = _query(text, slack)
    for seed in range(12):
        random = Random(seed)
        inputs = _inputs(query, random, random.choice([0, 1, 7, 25]), 3 if slack else 0)
        with lowered(small(seed)):
            found = run_local([query], inputs, shards=random.randint(1, 3), seed=seed, reload=random.random() < 0.5)
        assert_same(query, found.tables["q"], run_oracle(query, inputs))


@pytest.mark.parametrize(("text", "values"), [(KEPT[0][0], 3), (KEPT[1][0], 3), (KEPT[2][0], 3), (KEPT[7][0], 3)])
def test_the_state_stays_as_large_as_the_values(text: str, values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    query = _query(text)
    most, round_ = [0], LocalJob.round

    def measured(job: LocalJob, *given: Any, **named: Any) -> Any:
        done = round_(job, *given, **named)
        for row in job.stages:
            for executor in row:
                rows = [s.rows for name, s in executor.synopses().items() if name.endswith(("left", "right"))]
                most[0] = max([most[0], *rows])
        return done

    monkeypatch.setattr(LocalJob, "round", measured)
    distinct = "DISTINCT" in text
    inputs = _inputs(query, Random(1), 3_000 if distinct else 300, 0)
    inputs = {name: _spread(table) for name, table in inputs.items()}
    run_local([query], inputs, shards=1, batch_rows=20)
    assert 0 < most[0] <= 16 + 2 * values


def _spread(table: pa.Table) -> pa.Table:
    """Return the rows with timestamps 0, 1, ..."""
    return table.set_column(0, table.schema.field(0), pa.array(range(table.num_rows), table.schema.field(0).type))


def test_a_group_of_finitely_many_values_is_bounded() -> None:
    bounded = query_state(_query("SELECT A, COUNT(*) AS n FROM S WHERE A BETWEEN 1 AND 5 GROUP BY A"), Statistics())
    assert bounded.bound.grade is Grade.BOUNDED and "at most 5 groups (A)" in bounded.verdict
    unbounded = query_state(_query("SELECT DISTINCT A FROM S WHERE A > 10"), Statistics())
    assert unbounded.bound.grade is Grade.KEYS


@pytest.mark.parametrize(
    ("condition", "column", "domain"),
    [
        ("A > 1 AND A < 5", "A", Domain(None, 2, 4, False)),
        ("NOT (A <= 1 OR A >= 5)", "A", Domain(None, 2, 4, False)),
        ("1 < A AND 5 > A AND A <> 3", "A", Domain(None, 2, 4, False)),
        ("A IN (1, 2, NULL)", "A", Domain(frozenset({1, 2}), nulls=False)),
        ("A = 1 OR A IS NULL", "A", Domain(frozenset({1}))),
        ("A = 1 OR B = 2", "A", Domain(None, -(2**31), 2**31 - 1)),
        ("A = 1 AND A = 2", "A", Domain(frozenset(), nulls=False)),
        ("f", "f", Domain(frozenset({1}), nulls=False)),
        ("NOT f", "f", Domain(frozenset({0}), nulls=False)),
        ("w = 'a' OR w = 'b'", "w", Domain(frozenset({"a", "b"}), nulls=False)),
        ("w LIKE 'a%'", "w", Domain()),
        ("w > 'a'", "w", Domain(nulls=False)),
        ("CAST(A AS BIGINT) < 3 AND A >= 0", "A", Domain(None, 0, 2, False)),
        ("A + 1 < 3", "A", Domain(None, -(2**31), 2**31 - 1)),
        ("C = 1.0", "C", Domain()),
    ],
)
def test_the_domain_of_a_column(condition: str, column: str, domain: Domain) -> None:
    root = optimize(_query(f"SELECT A, B, C, f, w FROM S WHERE {condition}").root)
    found = dict(zip(root.inputs[0].schema.names, root.inputs[0].domains, strict=True))
    assert found[column] == domain
