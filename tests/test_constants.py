"""SELECT without FROM and VALUES: what they mean in continuous and one-time queries, in plans and in random worlds.

Plain SQL over them is in `sql/constants.sqltest`.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from penstock import Session
from penstock.algebra import Algebra, Constant, Pattern
from penstock.algebra.nodes.base import is_static, operators
from penstock.algebra.optimizer.rules.prune_columns import prune_columns
from penstock.algebra.properties.boundedness import Grade
from penstock.errors import PenstockError
from penstock.language.limits import MAX_VALUES
from penstock.language.printer import print_query
from penstock.language.scripts import bind_query, bind_script
from penstock.language.scripts.parse import parse_script
from penstock.language.statements import OneTimeSelect
from penstock.runtime.local.runtime import run_local
from penstock.testing.cases import CaseRun, case_arrivals, case_inputs, parse_case
from penstock.testing.compare import assert_same, first_difference
from penstock.testing.one_time import as_of, check_once
from penstock.testing.oracle import run_oracle
from penstock.testing.random.worlds import FLAVOURS, Flavour, RandomCase, random_case, seeded_choices
from tests.language.plans import errors_of

_STATIC = re.compile(r"CREATE RELATION (\w+) \((.*?)\) FROM MEMORY \(\);$")
S = "CREATE STREAM s (ts INT, k INT) FROM MEMORY () TIMESTAMP BY ts UNIT SECOND;"


def root_of(text: str) -> Algebra:
    return bind_query(text, bind_script(S).catalog).root


def leaf_of(root: Algebra) -> Constant:
    (leaf,) = (node for node in operators(root) if isinstance(node, Constant))
    return leaf


# --- what the leaf derives


def test_a_constant_is_a_static_relation() -> None:
    for text in ("SELECT 1 AS a", "VALUES (1, 'x'), (2, 'y')"):
        root = root_of(text)
        assert is_static(root) and not root.is_stream and root.domain is None
        assert (root.pattern, root.boundedness.grade, dict(root.needs)) == (Pattern.MONOTONIC, Grade.FIXED, {})
    one, two = (
        next(n for n in operators(root_of(t)) if isinstance(n, Constant)) for t in ("SELECT 1", "VALUES (1), (2)")
    )
    assert one.keys == {frozenset()} and not two.keys
    assert "1 constant row" in str(one.boundedness)


def test_columns_that_are_not_read_are_dropped_and_one_is_left() -> None:
    root = root_of("SELECT b, c FROM (VALUES (1, 'x', 1.5), (2, 'y', 2.5)) AS t (a, b, c)")
    leaf = leaf_of(prune_columns(root))
    assert leaf.rows == (("x", leaf.rows[0][1]), ("y", leaf.rows[1][1])) and len(leaf.fields) == 2
    (leaf,) = (
        n
        for n in operators(prune_columns(root_of("SELECT 7 AS x FROM (VALUES (1, 2), (3, 4)) AS t")))
        if isinstance(n, Constant)
    )
    assert leaf.rows == ((1,), (3,))


# --- continuous queries


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("SELECT 1 AS a, 'x' AS b", [(0, "+", (1, "x"))]),
        ("SELECT COUNT(*) AS n", [(0, "+", (1,))]),
        ("SELECT 1 AS a WHERE FALSE", []),
        ("SELECT ISTREAM(1 AS a)", [(0, None, (1,))]),
        ("VALUES (1), (2)", [(0, "+", (1,)), (0, "+", (2,))]),
    ],
)
def test_a_constant_answers_at_the_first_instant(text: str, events: list[object]) -> None:
    query = bind_query(text, bind_script(S).catalog)
    expected = run_oracle(query, {})
    assert expected.events == events
    assert_same(query, run_local([query], {}).tables[query.name], expected)


def test_a_constant_beside_a_stream_leaves_its_answers_a_stream() -> None:
    query = bind_query(
        "SELECT k, n FROM s, (VALUES (1, 'one'), (2, 'two')) AS t (i, n) WHERE k = i", bind_script(S).catalog
    )
    assert query.root.is_stream
    inputs = {"s": pa.table({"ts": pa.array([1, 2, 3], pa.int32()), "k": pa.array([2, 7, 1], pa.int32())})}
    expected = run_oracle(query, inputs)
    assert expected.events == [(1, None, (2, "two")), (3, None, (1, "one"))]
    for shards in (1, 3):
        assert_same(query, run_local([query], inputs, shards, seed=1).tables[query.name], expected)


# --- random worlds: VALUES in the place of a static relation


def with_values(case: RandomCase) -> RandomCase | None:
    """The case with its static relations without a key as views over VALUES; None where it has none with rows."""
    statements, inputs = list(case.statements), dict(case.inputs)
    for i, statement in enumerate(statements):
        found = _STATIC.match(statement)
        if found is None or "PRIMARY KEY" in statement or not inputs.get(found[1]):
            continue
        columns = [column.split() for column in found[2].split(", ")]
        if any(len(column) != 2 for column in columns):
            continue
        rows = ", ".join(
            "(" + ", ".join(_literal(cell, kind) for cell, (_, kind) in zip(row, columns, strict=True)) + ")"
            for row in inputs.pop(found[1])
        )
        names = ", ".join(name for name, _ in columns)
        statements[i] = f"CREATE VIEW {found[1]} AS SELECT {names} FROM (VALUES {rows}) AS rows_ ({names});"
    return None if statements == case.statements else RandomCase(statements, inputs, case.arrivals, case.origin)


def _literal(cell: str, kind: str) -> str:
    if cell == "NULL":
        return f"CAST(NULL AS {kind})"
    text = cell if cell.startswith("'") else f"'{cell}'"
    return f"X'{cell.removeprefix('0x')}'" if kind == "BINARY" else f"CAST({text} AS {kind})"


@pytest.mark.spread(2)
@pytest.mark.parametrize("flavour", FLAVOURS, ids=lambda one: FLAVOURS.index(one))
def test_values_mean_what_a_static_relation_means(flavour: Flavour) -> None:
    checked = 0
    for seed in range(40):
        case = random_case(seeded_choices(seed), flavour)
        other = with_values(case)
        if other is None or case.origin or checked >= 2 or sum(map(len, case.inputs.values())) > 200:
            continue
        checked += 1
        answers = []
        for one in (case, other):
            parsed, bound = parse_case(one.render()), bind_script("\n".join(one.statements))
            inputs, arrivals = case_inputs(parsed, bound), case_arrivals(parsed, bound)
            answers.append(run_oracle(bound.queries[0], inputs, True, arrivals=arrivals).events)
        assert first_difference(*answers) is None, other.render()
        query = bound.queries[0]
        expected = run_oracle(query, inputs, True, arrivals=arrivals)
        for run in (CaseRun(), CaseRun(3, seed, None)):
            result = run.answer([query], inputs, True, arrivals)
            assert_same(query, result.tables[query.name], expected)
        if arrivals is None:
            check_once(as_of(query, None), inputs)


# --- texts, plans, limits


def test_the_text_of_a_query_is_read_as_the_same_query() -> None:
    texts = [
        "SELECT 1", "SELECT DISTINCT 1 AS a WHERE 1 < 2", "VALUES (1, 'x'), (NULL, 'y')",
        "SELECT a FROM (VALUES (1), (2)) AS t (a) UNION ALL VALUES (3)", "SELECT 1 UNION ALL SELECT 2",
        "WITH t (a) AS (VALUES (1)) SELECT a FROM t WHERE a IN (VALUES (1), (2))",
        "VALUES (2), (1) ORDER BY col1 LIMIT 1",
    ]  # fmt: skip
    for text in texts:
        (statement,) = parse_script(text).statements
        assert isinstance(statement, OneTimeSelect)
        assert print_query(statement.query) == text
        (again,) = parse_script(print_query(statement.query)).statements
        assert again == statement


def test_more_rows_than_the_limit_are_refused() -> None:
    rows = ", ".join(["(1)"] * (MAX_VALUES + 1))
    (error,) = errors_of(f"SELECT a FROM (VALUES {rows}) AS t (a)")
    assert error.code == "P0105" and f"{MAX_VALUES:,}" in error.message


def test_a_volatile_function_is_no_constant() -> None:
    session = Session()
    session.execute("CREATE FUNCTION draw (BIGINT) RETURNS BIGINT VOLATILE AS 'penstock.testing.samples:twice';")
    (error,) = errors_of("VALUES (draw(1))", session.catalog)
    assert error.code == "P0321"


def test_a_session_answers_without_sources() -> None:
    session = Session()
    assert session.select("SELECT 1 AS a, 'x' AS b").to_arrow().to_pylist() == [{"a": 1, "b": "x"}]
    assert session.select("VALUES (2), (1) ORDER BY col1").to_arrow().to_pylist() == [{"col1": 1}, {"col1": 2}]
    with pytest.raises(PenstockError, match="P0202"):
        session.select("SELECT a")
