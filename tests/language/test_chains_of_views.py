"""Views upon views: they are planned with work in proportion to the plan, and expressions do not double in each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.algebra import Algebra
from penstock.algebra.nodes.base import operators
from penstock.algebra.nodes.query import Query
from penstock.algebra.nodes.rowwise import Project, Select
from penstock.algebra.optimizer import optimizer
from penstock.algebra.optimizer.optimizer import optimize
from penstock.algebra.optimizer.rules import RULES, Rule, RuleKind
from penstock.errors import ScriptErrors
from penstock.expressions.nodes import MAX_SIZE, Expression, conjuncts
from penstock.language import limits
from penstock.language.scripts import bind_script
from penstock.language.statements import definitions
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

#: Views of which each column reads all columns of the view below, as does each condition. {0}: the view below, {1}: its
#: level, {2}: the columns, {3}: a product of the columns, {4}: their sum.
ENTANGLED = {
    "projection": "SELECT {2} FROM {0} x",
    "selection": "SELECT {2} FROM {0} x WHERE {3} > {1}",
    "distinct": "SELECT DISTINCT {2} FROM {0} x WHERE {3} > {1}",
    "groups": "SELECT {2} FROM {0} x WHERE {3} > {1} GROUP BY a, b, c, d",
    "equality join": "SELECT {2} FROM {0} x JOIN t [RANGE 1 MINUTE] ON {4} = t.e WHERE {3} > {1}",
    "range join": "SELECT {2} FROM {0} x JOIN t [RANGE 1 MINUTE] ON {4} > t.e",
    "range join below a selection": "SELECT {2} FROM {0} x JOIN t [RANGE 1 MINUTE] ON {4} > t.e WHERE {3} > {1}",
    "range join below a negation": "SELECT {2} FROM {0} x JOIN t [RANGE 1 MINUTE] ON {4} > t.e "
    "WHERE NOT EXISTS (SELECT 1 FROM u [RANGE 1 MINUTE] WHERE u.e > {4})",
    "outer range join": "SELECT {2} FROM {0} x LEFT JOIN t [RANGE 1 MINUTE] ON {4} > t.e",
    "union": "SELECT {2} FROM {0} x WHERE {3} > {1} UNION ALL SELECT e, e, e, e FROM t [RANGE 1 MINUTE]",
}


def entangled(form: str, width: int, count: int) -> str:
    """Return a chain of `count` views, of which `width` columns are each computed from all `width` columns below."""
    mixed, kept = "abcd"[:width], "abcd"[width:]
    items = [" + ".join(f"x.{c}" if n != k else f"x.{c} * {k + 2}" for n, c in enumerate(mixed)) for k in range(width)]
    columns = ", ".join([*(f"{item} AS {c}" for item, c in zip(items, mixed, strict=True)), *(f"x.{c}" for c in kept)])
    product, total = (sign.join(f"x.{c}" for c in mixed) for sign in (" * ", " + "))
    views, below = "CREATE VIEW v AS SELECT a, b, c, d FROM s [RANGE 1 MINUTE];\n", "v"
    for level in range(count):
        views += f"CREATE VIEW v{level} AS {ENTANGLED[form].format(below, level, columns, product, total)};\n"
        below = f"v{level}"
    streams = "".join(
        f"CREATE STREAM {name} ({' BIGINT, '.join(columns)} BIGINT, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;\n"
        for name, columns in (("s", "abcd"), ("t", "e"), ("u", "e"))
    )
    return f"{streams}{views}CREATE QUERY q AS SELECT a, b, c, d FROM {below};"


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


@pytest.mark.spread(4)
@pytest.mark.parametrize(
    ("width", "length"),
    [(2, 6), (4, 6), *(pytest.param(width, 10, marks=pytest.mark.slow) for width in (2, 3, 4))],
)
@pytest.mark.parametrize("form", ENTANGLED)
def test_columns_that_all_read_each_other_do_not_double(form: str, width: int, length: int) -> None:
    """Rules are called in proportion to the chain, and no operator holds an expression that doubled in each view."""
    largest = width * (MAX_SIZE + 2)  # of a condition, which reads `width` values
    calls = []
    for count in (length, 2 * length):
        (query,) = bind_script(entangled(form, width, count)).queries
        plan, tries = tried(query.root)
        calls.append(tries)
        for node in operators(plan):
            for expression in _expressions(node):
                assert all(part.size <= largest for part in conjuncts(expression)), node
    # In the shorter chain expressions have hardly reached the size at which rules stop; work that doubled in each view
    # would be 64 times as much.
    assert calls[1] < (2.5 if length >= 10 else 4) * calls[0], calls


def _expressions(node: Node) -> list[Expression]:
    return [child for child in node.children if isinstance(child, Expression)]


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


def test_rules_that_undo_each_other_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many rounds as are allowed, of which each may take as many."""
    monkeypatch.setattr(optimizer, "MAX_ROUNDS", 12)
    monkeypatch.setattr(optimizer, "MORE_CHANGES", 400)

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


def upon_each_other(form: str, count: int) -> str:
    """Return `count` views upon views, each of which groups the one below it."""
    views = [f"CREATE VIEW v0 AS {form}", *(f"CREATE VIEW v{i} AS SELECT a, COUNT(*) AS n FROM v{i - 1} GROUP BY a"
             for i in range(1, count))]  # fmt: skip
    return STREAMS + ";\n".join(views) + ";"


BELOW = {
    "stream": "SELECT a FROM s [RANGE 1 MINUTE]",
    "join": "SELECT s.a FROM s [RANGE 1 MINUTE], t [RANGE 1 MINUTE] WHERE s.a = t.a",
    "itself": "SELECT x.a FROM (SELECT a FROM s [ROWS 3]) x UNION ALL (SELECT a FROM s [ROWS 3])",
}


@pytest.mark.parametrize("form", BELOW.values(), ids=BELOW)
def test_what_a_view_has_been_checked_for_is_not_checked_again(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither its size nor that nothing in it draws: each view costs what it adds."""
    calls = {"sizes": 0, "draws": 0}

    def counted(name: str, function: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            calls[name] += 1
            return function(*arguments)

        return call

    monkeypatch.setattr(limits, "_size", counted("sizes", limits._size))
    monkeypatch.setattr(definitions, "_draws", counted("draws", definitions._draws))
    used = []
    for count in (20, 40):
        calls.update(sizes=0, draws=0)
        bind_script(upon_each_other(form, count))
        used.append(dict(calls))
    for name in calls:
        assert 0 < used[1][name] <= 2.2 * used[0][name], used


def test_the_size_of_a_query_is_the_same_where_its_views_have_been_checked() -> None:
    for form in BELOW.values():
        views = bind_script(upon_each_other(form, 5)).catalog.views
        for view in views.values():
            assert limits._whole_size(view.root) == limits._measured(view.root)


def test_a_draw_upon_a_view_is_refused_each_time() -> None:
    function = "CREATE FUNCTION draw RETURNS DOUBLE VOLATILE AS 'penstock.testing.samples:draw';"
    catalog = bind_script(upon_each_other(BELOW["join"], 3) + function).catalog
    for _ in range(2):
        with pytest.raises(ScriptErrors) as caught:
            bind_script("CREATE VIEW w AS SELECT draw(n) AS r FROM v2;", catalog)
        assert caught.value.code == "P0321"
