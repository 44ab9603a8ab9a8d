"""Explain of whole queries, fingerprints of plans, and the optimizer's own guards."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.algebra import Algebra, Project, Select, Window
from penstock.algebra.optimizer import optimizer
from penstock.algebra.optimizer.optimizer import TraceStep, UnsoundRule, optimize
from penstock.algebra.optimizer.rules import RULES, Rule
from penstock.algebra.optimizer.rules.support import is_volatile
from penstock.algebra.render import render
from penstock.explain import WIDTH, to_json, to_mermaid, to_text
from penstock.expressions.calls import functions
from penstock.expressions.evaluation.fold import fold
from penstock.expressions.evaluation.value_ranges import UNKNOWN, may_pass
from penstock.expressions.library import TABLE
from penstock.expressions.library.registry import Function, takes
from penstock.expressions.nodes import Call, Column, Literal
from penstock.tree import walk
from penstock.types import Field

Bind = Callable[[str], Algebra]
SNAPSHOTS = Path(__file__).parent / "snapshots"

#: One query with every operator: a self join, a relation, grouping, a union, DISTINCT and relation to stream.
QUERY = """
ISTREAM(SELECT DISTINCT zone, total FROM (
    SELECT h.zone, SUM(a.bytes) AS total
    FROM conn [RANGE 1 MINUTE SLIDE 10 SECOND] AS a, conn [RANGE 1 MINUTE SLIDE 10 SECOND] AS b, hosts AS h
    WHERE a.src = b.dst AND b.src = h.id AND a.proto = 'tcp' AND a.bytes < b.bytes
    GROUP BY h.zone
    UNION ALL
    SELECT zone, 0 FROM hosts) AS u)
"""


def test_explain_snapshots(bind: Bind) -> None:
    before = bind(QUERY)
    tree = render(optimize(before, check=True))
    texts = {"bound.txt": to_text(render(before)), "optimized.txt": to_text(tree)}
    texts |= {"optimized.json": to_json(tree), "optimized.mmd": to_mermaid([("optimized", tree)])}
    for name, text in texts.items():
        if "PENSTOCK_REWRITE" in os.environ:
            (SNAPSHOTS / name).write_text(text)
        assert text == (SNAPSHOTS / name).read_text(), name
    assert max(len(line) for name in ("bound.txt", "optimized.txt") for line in texts[name].splitlines()) <= WIDTH


def test_json_edges_lead_to_nodes(bind: Bind) -> None:
    plan = json.loads(to_json(render(bind(QUERY))))
    ids = [node["id"] for node in plan["nodes"]]
    assert len(ids) == len(set(ids))
    assert {entry["node"] for node in plan["nodes"] for entry in node["inputs"]} | {plan["root"]} == set(ids)
    assert all(set(e["edge"]) == {"pattern", "kind", "key", "time"} for n in plan["nodes"] for e in n["inputs"])


SAME = [
    ("SELECT src FROM conn [RANGE 60 SECOND]", "select SRC from CONN [range 1 minute preceding]"),
    (
        "SELECT src FROM conn [RANGE 1 MINUTE] WHERE src = 5 AND bytes > 1",
        "SELECT src FROM (SELECT * FROM conn [RANGE 1 MINUTE] WHERE src = 5) AS t WHERE bytes > 1",
    ),
    (
        "SELECT c.src FROM conn [RANGE 1 MINUTE] AS c, hosts AS h WHERE c.src = h.id",
        "SELECT x.src FROM conn [RANGE 1 MINUTE] AS x JOIN hosts AS y ON y.id = x.src",
    ),
    (
        "SELECT src, COUNT(*) AS n FROM conn [RANGE 1 MINUTE] GROUP BY src HAVING src > 5",
        "SELECT src, COUNT(*) AS n FROM conn [RANGE 1 MINUTE] WHERE src > 5 GROUP BY src",
    ),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_equal_queries_have_one_fingerprint(bind: Bind, one: str, other: str) -> None:
    assert optimize(bind(one)).fingerprint == optimize(bind(other)).fingerprint


DIFFERENT = [
    "SELECT src FROM conn [RANGE 1 MINUTE]",
    "SELECT src FROM conn [RANGE 2 MINUTE]",
    "SELECT src FROM conn [RANGE 1 MINUTE SLIDE 1 MINUTE]",
    "SELECT src FROM conn [NOW]",
    "SELECT dst FROM conn [RANGE 1 MINUTE]",
    "SELECT src AS s FROM conn [RANGE 1 MINUTE]",
    "SELECT src FROM conn [RANGE 1 MINUTE] WHERE src = 1",
    "SELECT src FROM conn [RANGE 1 MINUTE] WHERE src = 2",
    "SELECT DISTINCT src FROM conn [RANGE 1 MINUTE]",
    "ISTREAM(SELECT src FROM conn [RANGE 1 MINUTE])",
    "DSTREAM(SELECT src FROM conn [RANGE 1 MINUTE])",
    "RSTREAM(SELECT src FROM conn [RANGE 1 MINUTE])",
]


def test_different_queries_have_different_fingerprints(bind: Bind) -> None:
    assert len({optimize(bind(text)).fingerprint for text in DIFFERENT}) == len(DIFFERENT)


def test_the_trace_names_each_step(bind: Bind) -> None:
    trace: list[TraceStep] = []
    plan = bind("SELECT src FROM conn [RANGE 1 MINUTE] WHERE bytes > 10")
    after = optimize(plan, trace)
    assert [step.rule for step in trace] == ["fold_constants", "push_selection_below_window", "prune_columns"]
    assert trace[0].before == plan.fingerprint
    assert trace[-1].after == to_text(render(after))


def test_an_unsound_rule_is_caught(bind: Bind) -> None:
    def drop_a_column(node: Algebra) -> Algebra:
        if isinstance(node, Project) and len(node.fields) > 1:
            return Project(node.input, node.expressions[:1], node.fields[:1])
        return node

    plan = bind("SELECT src, dst FROM conn [RANGE 1 MINUTE]")
    with pytest.raises(UnsoundRule, match="drop_a_column changed the column names"):
        optimize(plan, check=True, rules=(Rule("drop_a_column", drop_a_column),))


def test_rules_that_undo_each_other_do_not_hang(bind: Bind, monkeypatch: pytest.MonkeyPatch) -> None:
    # That there is a bound is tested here, not how large it is.
    monkeypatch.setattr(optimizer, "CHANGES_PER_OPERATOR", 10)
    monkeypatch.setattr(optimizer, "MORE_CHANGES", 100)

    def flip(node: Algebra) -> Algebra:
        if isinstance(node, Select) and isinstance(node.predicate, Call):
            return Select(node.input, Call(pa.bool_(), node.predicate.function, node.predicate.arguments[::-1]))
        return node

    plan = bind("SELECT src FROM conn [RANGE 1 MINUTE] WHERE src = dst")
    with pytest.raises(UnsoundRule, match="no fixpoint"):
        optimize(plan, check=True, rules=(Rule("flip", flip),))
    assert optimize(plan, rules=(Rule("flip", flip),)).schema == plan.schema


@pytest.fixture
def with_rand(monkeypatch: pytest.MonkeyPatch) -> None:
    """No volatile function is in the table; this one makes sure that rules are ready for the first."""
    drawn = Function("RAND", "", takes(pa.float64()), lambda a, t: pa.array([0.5]), "a number at random", volatile=True)
    monkeypatch.setattr(functions, "TABLE", {**TABLE, "RAND": drawn})


@pytest.mark.usefixtures("with_rand")
def test_a_volatile_function_is_not_folded() -> None:
    draw = Call(pa.float64(), "RAND", ())
    assert fold(Call(pa.float64(), "ADD", (draw, draw))) == Call(pa.float64(), "ADD", (draw, draw))
    assert may_pass(Call(pa.bool_(), "GT", (draw, Literal(pa.float64(), 2.0))), lambda index: UNKNOWN)


@pytest.mark.usefixtures("with_rand")
def test_volatile_expressions_neither_move_nor_multiply(bind: Bind) -> None:
    draw = Call(pa.float64(), "RAND", ())
    drawn = Call(pa.bool_(), "LT", (draw, Literal(pa.float64(), 0.5)))
    window = bind("SELECT src FROM conn [RANGE 1 MINUTE]").inputs[0]
    x = Column(pa.float64(), 0, "x")
    twice = Call(pa.float64(), "ADD", (x, x))
    fields = (Field("x", pa.float64()),)
    for plan in (
        Select(window, drawn),
        Select(Project(window, (draw,), fields), Call(pa.bool_(), "LT", (x, Literal(pa.float64(), 0.5)))),
        Project(Project(window, (draw,), fields), (twice,), fields),
        Select(bind("SELECT c.src FROM conn [NOW] AS c, hosts AS h WHERE c.src = h.id").inputs[0], drawn),
        Select(bind("SELECT src, COUNT(*) FROM conn [NOW] GROUP BY src"), drawn),
        Select(bind("SELECT DISTINCT src FROM conn [NOW]"), drawn),
    ):
        moves = tuple(
            r for r in RULES if r.name not in ("prune_columns", "fold_constants", "remove_identity_projection")
        )
        assert optimize(plan, check=True, rules=moves) == plan
        assert _draws(optimize(plan, check=True, rules=moves)) == 1


def _draws(plan: Algebra) -> int:
    return sum(isinstance(node, Call) and node.function == "RAND" for node in walk(plan))


def test_functions_are_deterministic_unless_their_row_says_otherwise() -> None:
    drawing = {name for name in TABLE if name.startswith(("RAND", "UUID", "CURRENT_", "NOW", "SHUFFLE"))}
    assert all(TABLE[name].volatile for name in drawing)


def test_selections_on_unix_timestamp_move_like_others(bind: Bind) -> None:
    """It was on a list of volatile functions once."""
    at = Call(pa.int64(), "UNIX_TIMESTAMP", (Column(pa.string(), 0, "at"),))
    assert not is_volatile(at)
    plan = bind("SELECT src FROM conn [RANGE 1 MINUTE] WHERE UNIX_TIMESTAMP(proto) > 5")
    assert isinstance(plan.inputs[0], Select)
    moved = next(node for node in walk(optimize(plan, check=True)) if isinstance(node, Select))
    assert not any(isinstance(node, Window) for node in walk(moved))


def test_functions_that_are_never_null_and_comparisons_say_so() -> None:
    assert {n for n, row in TABLE.items() if row.never_null and n == row.name} == {
        "IS_NULL",
        "IS_NOT_NULL",
        "IS_NAN",
        "EQ_NULL_SAFE",
        "HASH",
        "XXHASH64",
    }
    assert {n for n, row in TABLE.items() if row.compares and n == row.name} == {
        "EQ",
        "NE",
        "LT",
        "LE",
        "GT",
        "GE",
        "EQ_NULL_SAFE",
        "HASH",
        "XXHASH64",
        "IN",
        "IS_NULL",
        "IS_NOT_NULL",
        "IS_NAN",
    }
