"""Views upon views: they are planned with work in proportion to the plan, and expressions do not double in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.algebra import Algebra
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.optimizer.rules import RULES, Rule, RuleKind
from penstock.algebra.optimizer.sweep import operators
from penstock.expressions.nodes import MAX_SIZE, conjuncts
from penstock.language import bind_script
from penstock.runtime.local.runtime import run_local
from penstock.session import Session
from penstock.testing.compare import assert_same
from penstock.testing.oracle import run_oracle
from penstock.tree import Node

STREAMS = "".join(
    f"CREATE STREAM {name} (a INT, b STRING, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;\n" for name in "st"
)
SUM = "SELECT a + 1 AS a, b FROM {0} WHERE a > {1}"
#: By what each view does with the column `a` of the one below it.
FORMS = {
    "sum": SUM,
    "doubled": "SELECT a + a AS a, b FROM {0} WHERE a > {1}",
    "case": "SELECT CASE WHEN a > 3 THEN a - 1 ELSE a + 1 END AS a, b FROM {0} WHERE a + a > {1}",
    "distinct": "SELECT DISTINCT a + a AS a, b FROM {0} WHERE a > {1}",
    "join": "SELECT x.a + x.a AS a, x.b FROM {0} x JOIN t [RANGE 1 MINUTE] ON x.b = t.b WHERE x.a > {1}",
    "join over it": "SELECT x.a + x.a AS a, x.b FROM {0} x JOIN t [RANGE 1 MINUTE] ON x.a > t.a",
    "outer join": "SELECT x.a + x.a AS a, x.b FROM {0} x LEFT JOIN t [RANGE 1 MINUTE] ON x.b = t.b WHERE x.a > {1}",
    "union": "SELECT a + a AS a, b FROM {0} WHERE a > {1} UNION ALL SELECT a, b FROM t [RANGE 1 MINUTE]",
    "exists": "SELECT a + a AS a, b FROM {0} WHERE a > {1} AND EXISTS (SELECT 1 FROM t [RANGE 1 MINUTE] WHERE t.a = a)",
}


def chain(form: str, count: int) -> str:
    sources = ["s [RANGE 1 MINUTE]", *(f"v{i}" for i in range(count))]
    views = "".join(f"CREATE VIEW v{i} AS {form.format(sources[i], i)};\n" for i in range(count))
    return f"{STREAMS}{views}CREATE QUERY q AS SELECT a, b FROM v{count - 1};"


def bound(form: str, count: int) -> Query:
    (query,) = bind_script(chain(form, count)).queries
    return query


def tried(root: Algebra) -> tuple[Algebra, int]:
    """The optimised plan, and how many nodes were handed to rules."""
    count = 0

    def counting(rule: Rule) -> Rule:
        function: Callable[[Algebra], object] = rule.function

        def counted(node: Algebra) -> object:
            nonlocal count
            count += 1
            return function(node)

        return replace(rule, function=counted)  # type: ignore[arg-type]

    return optimize(root, rules=tuple(map(counting, RULES))), count


def test_work_in_proportion_to_the_chain() -> None:
    counts = [tried(bound(SUM, n).root)[1] for n in (25, 50, 100)]
    assert counts[1] < 2.2 * counts[0] and counts[2] < 2.2 * counts[1], counts


def test_a_chain_becomes_one_selection() -> None:
    plan, _ = tried(bound(SUM, 100).root)
    kinds = [type(node).__name__ for node in operators(plan)]
    assert kinds == ["Project", "Window", "Select", "StreamScan"]


def test_two_hundred_views() -> None:
    session = Session()
    session.declare(chain(SUM, 200))
    assert session.explain("q").count(" + 1 > ") > 100


@pytest.mark.parametrize("form", FORMS)
def test_expressions_do_not_double(form: str) -> None:
    plan, _ = tried(bound(FORMS[form], 40).root)
    for node in operators(plan):
        if isinstance(node, Project):
            assert all(e.size <= MAX_SIZE for e in node.expressions)
        if isinstance(node, Select) and form != "sum":
            assert all(part.size <= MAX_SIZE for part in conjuncts(node.predicate))


@pytest.mark.parametrize(("form", "count"), [("sum", 200), ("doubled", 25), ("distinct", 25), ("union", 25)])
def test_a_chain_is_answered(form: str, count: int) -> None:
    second = 1_000_000
    rows = {"a": [count, 1, 3, 500, None], "b": list("xyxzx"), "at": [second * n for n in (1, 2, 2, 70, 71)]}
    table = pa.table(
        {"a": pa.array(rows["a"], pa.int32()), "b": rows["b"], "at": pa.array(rows["at"], pa.timestamp("us"))}
    )
    query = bound(FORMS[form], count)
    inputs = dict.fromkeys("st", table)
    assert_same(query, run_local([query], inputs).tables["q"], run_oracle(query, inputs))


def test_rules_that_undo_each_other_end() -> None:
    def swapped(node: Algebra) -> Algebra:
        if isinstance(node, Select) and isinstance(node.input, Select):
            return Select(Select(node.input.input, node.predicate), node.input.predicate)
        return node

    rule = Rule("swap", swapped, RuleKind.LOCAL)
    (query,) = bind_script(f"{STREAMS}CREATE QUERY q AS SELECT a FROM s [NOW];").queries
    below = query.root.inputs[0]
    parts = [Select(below, node) for node in _conditions()]
    root = Select(parts[0], parts[1].predicate)
    assert optimize(root, rules=(rule,)).schema == root.schema


def _conditions() -> list[Node]:
    (query,) = bind_script(f"{STREAMS}CREATE QUERY q AS SELECT a FROM s [NOW] WHERE a > 1 AND a < 5;").queries
    (found,) = [node for node in operators(query.root) if isinstance(node, Select)]
    return list(conjuncts(found.predicate))
