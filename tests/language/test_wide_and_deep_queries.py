"""Queries within each other and long unions: planned, printed and answered far above what people write."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.algebra import UnionAll
from penstock.algebra.nodes.base import operators
from penstock.errors import ScriptErrors
from penstock.language import limits
from penstock.language.scripts import bind_script, parse_script, print_statement
from penstock.runtime.local.runtime import run_local
from penstock.session import Session
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle

STREAM = "CREATE STREAM s (a INT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;\n"
SECOND = 1_000_000


def nested(count: int) -> str:
    return "SELECT a FROM s [RANGE 1 MINUTE] WHERE a IN (" * count + "SELECT a FROM s [RANGE 9 SECONDS]" + ")" * count


def united(count: int, word: str = "UNION ALL") -> str:
    return f" {word} ".join(f"SELECT a FROM s [RANGE {i + 1} SECONDS]" for i in range(count))


def script(query: str) -> str:
    return f"{STREAM}CREATE QUERY q AS {query};"


@pytest.mark.spread(2)
@pytest.mark.parametrize(
    "query", [nested(60), united(1_000), united(1_000, "UNION"), f"{united(300)} INTERSECT {nested(20)}"],
    ids=["in", "union all", "union", "mixed"],
)  # fmt: skip
def test_large_queries_are_planned(query: str) -> None:
    session = Session()
    session.declare(script(query))
    assert session.explain("q") and session.state("q")
    statement = parse_script(script(query)).statements[1]
    printed = print_statement(statement)
    assert print_statement(parse_script(printed).statements[0]) == printed


def test_a_union_is_one_operator() -> None:
    (query,) = bind_script(script(united(1_000))).queries
    assert [len(node.members) for node in operators(query.root) if isinstance(node, UnionAll)] == [1_000]


@pytest.mark.parametrize(
    "query", [nested(30), united(150), united(150, "UNION")], ids=["in", "union all", "union"]
)  # fmt: skip
def test_large_queries_are_answered(query: str) -> None:
    rows = pa.table(
        {
            "a": pa.array([1, 2, 1, None], pa.int32()),
            "at": pa.array([SECOND * n for n in (1, 2, 7, 40)], pa.timestamp("us")),
        }
    )
    (bound,) = bind_script(script(query)).queries
    assert_same(bound, run_local([bound], {"s": rows}).tables["q"], run_oracle(bound, {"s": rows}))


@pytest.mark.parametrize(
    "query", [nested(101), united(limits.MAX_MEMBERS + 1), united(300, "EXCEPT")], ids=["in", "union", "except"]
)  # fmt: skip
def test_larger_queries_are_refused(query: str) -> None:
    with pytest.raises(ScriptErrors) as caught:
        bind_script(script(query))
    assert caught.value.code == "P0105"
