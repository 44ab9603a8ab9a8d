"""Limits of scripts, statements and queries (P0105), and that what lies below them takes no time that explodes."""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock.algebra.nodes.base import operators
from penstock.algebra.optimizer.optimizer import optimize
from penstock.cli.checking import check_for_run
from penstock.errors import PenstockError, ScriptErrors, counted
from penstock.expressions.evaluation.evaluate import evaluate
from penstock.expressions.nodes import MAX_HEIGHT, Call, Column, Expression, Literal, conjunction, conjuncts
from penstock.language import limits
from penstock.language.scripts import bind_script, parse, parse_script
from penstock.language.scripts.parse import parse_statements
from penstock.language.text import SourceText
from penstock.session import Session
from penstock.settings import Settings
from penstock.tree import walk

STREAM = "CREATE STREAM s (a INT, b STRING, at TIMESTAMP) FROM MEMORY () TIMESTAMP BY at;\n"


def refused(text: str) -> PenstockError:
    with pytest.raises(ScriptErrors) as caught:
        bind_script(text)
    return caught.value.errors[0]


def joined(count: int) -> Session:
    joins = " ".join(f"LEFT JOIN s [RANGE 1 MINUTE] s{i} ON s{i}.a = s{i - 1}.a" for i in range(1, count))
    session = Session()
    session.declare(f"{STREAM}CREATE QUERY q AS SELECT s0.a FROM s [RANGE 1 MINUTE] s0 {joins};")
    return session


@pytest.mark.parametrize("format_", ["text", "json", "mermaid", "drawn"])
def test_a_shared_plan_is_drawn_once(format_: str) -> None:
    six, twelve = (len(joined(n).explain("q", format_)) for n in (6, 12))
    assert twelve < 5 * six
    assert joined(24).state("q").bounded


def test_a_step_of_a_shared_plan_stands_once_in_json() -> None:
    for plan in json.loads(joined(8).explain("q", "json")).values():
        if isinstance(plan, dict) and "nodes" in plan:
            assert len({node["id"] for node in plan["nodes"]}) == len(plan["nodes"])


def cost(text: str) -> float:
    began = time.process_time()
    with pytest.raises(ScriptErrors):
        bind_script(text)
    return time.process_time() - began


@pytest.mark.parametrize(
    "begin", ["INSERT INTO s VALUES (1 2),\n", "INSERT INTO s VALUES ('1, 2),\n", "INSERT INTO s VALUES (x, ‘y’),\n"]
)
def test_a_mistake_at_the_start_of_a_long_statement(begin: str) -> None:
    rows = ",\n".join(f"({i}, 'x{i}')" for i in range(20_000))
    assert cost(f"{STREAM}{begin}{rows};") < 5


def test_a_mistake_in_every_row() -> None:
    rows = ",\n".join("(1, 2, 3, 4)" for _ in range(5_000))
    assert cost(f"{STREAM}INSERT INTO s VALUES {rows};") < 10


def test_a_mistake_in_every_line() -> None:
    assert cost("\n".join(f"CREATE STREAM s{i} (a INTT" for i in range(3_000))) < 10


def test_brackets_that_may_hold_queries() -> None:
    value, source = "1", "s"
    for i in range(14):
        value = f"((SELECT {value} FROM s) + 1)"
        source = f"((SELECT a FROM {source}) AS x{i} JOIN s ON x{i}.a = s.a)"
    began = time.process_time()
    for text in (f"SELECT {value} FROM s", f"SELECT 1 FROM {source}"):
        try:
            parse_script(text)
        except PenstockError as error:
            assert error.code == "P0105"
    assert time.process_time() - began < 5


def test_views_upon_views() -> None:
    views = "CREATE VIEW v0 AS SELECT a, b FROM s [RANGE 1 MINUTE];\n" + "".join(
        f"CREATE VIEW v{i} AS SELECT x.a, y.b FROM v{i - 1} x JOIN v{i - 1} y ON x.a = y.a;\n" for i in range(1, 30)
    )
    error = refused(STREAM + views)
    assert error.code == "P0105"
    assert f"this query reads 256 streams and relations, {limits.MAX_SOURCES} are the limit" in error.message


def chain(count: int) -> str:
    views = "CREATE VIEW v0 AS SELECT a, b FROM s [RANGE 1 MINUTE];\n" + "".join(
        f"CREATE VIEW v{i} AS SELECT b, COUNT(a) AS a FROM v{i - 1} GROUP BY b;\n" for i in range(1, count + 1)
    )
    return f"{STREAM}{views}CREATE QUERY q AS SELECT a FROM v{count};"


@pytest.mark.parametrize("part", [8, pytest.param(2, marks=pytest.mark.slow)])
def test_operators_upon_operators(part: int) -> None:
    assert refused(chain(limits.MAX_OPERATORS)).code == "P0105"
    session = Session()
    session.declare(chain(limits.MAX_OPERATORS // part - 3))
    assert session.state("q").bounded
    assert session.explain("q")


@pytest.mark.parametrize(
    ("module", "limit", "text"),
    [
        (parse, "MAX_SCRIPT", "CREATE VIEW v AS SELECT a FROM s;"),
        (parse, "MAX_STATEMENTS", "SHOW STREAMS;" * 5),
        (limits, "MAX_VALUES", "CREATE VIEW v AS SELECT a FROM s WHERE a IN (1, 2, 3, 4, 5);"),
        (limits, "MAX_VALUES", "CREATE VIEW v AS SELECT a FROM s WHERE a > ANY (1, 2, 3, 4, 5);"),
        (limits, "MAX_COLUMNS", "CREATE VIEW v AS SELECT a, a, a, a, a FROM s;"),
        (limits, "MAX_COLUMNS", "CREATE VIEW v AS SELECT 1 FROM s GROUP BY a, b, at, a + 1, a + 2;"),
        (limits, "MAX_COLUMNS", "CREATE RELATION r (a INT, b INT, c INT, d INT, e INT) FROM MEMORY ();"),
        (limits, "MAX_DEPTH", "CREATE VIEW v AS SELECT ((((((a)))))) FROM s;"),
        (limits, "MAX_OPERATORS", "CREATE VIEW v AS SELECT COUNT(*) AS n FROM (SELECT DISTINCT a FROM s) x LIMIT 3;"),
        (limits, "MAX_SOURCES", "CREATE VIEW v AS SELECT 1 FROM s s1, s s2, s s3, s s4, s s5;"),
    ],
)  # fmt: skip
def test_each_limit(monkeypatch: pytest.MonkeyPatch, module: object, limit: str, text: str) -> None:
    catalog = bind_script(STREAM).catalog
    bind_script(text, catalog)
    monkeypatch.setattr(module, limit, 4)
    with pytest.raises(ScriptErrors) as caught:
        bind_script(text, catalog)
    assert caught.value.code == "P0105"
    assert limit == "MAX_DEPTH" or "4 are the limit" in caught.value.message


def test_what_is_large_but_not_too_large() -> None:
    many = ", ".join(map(str, range(20_000)))
    columns = ", ".join(f"a + {i} AS c{i}" for i in range(1_000))
    chained = " OR ".join(f"a = {i} AND b = 'x'" for i in range(1_000))
    bound = bind_script(f"{STREAM}CREATE VIEW v AS SELECT {columns} FROM s WHERE a IN ({many}) AND ({chained});")
    assert len(bound.catalog.views["v"].names) == 1_000


def test_estimates_beyond_all_numbers() -> None:
    assert counted(float("inf"), "row") == "countless rows"


def test_a_byte_order_mark_is_no_text() -> None:
    assert bind_script("\ufeff" + STREAM).catalog.sources
    assert parse_script("\ufeff" + STREAM).statements[0].span.start == 0


@pytest.mark.slow
def test_a_thousand_queries() -> None:
    text = STREAM + "".join(
        f"CREATE QUERY q{i} INTO FILES (path 'out/q{i}') AS SELECT b, COUNT(*) AS n, MAX(a) AS m FROM s [RANGE {i + 1}"
        f" MINUTES SLIDE 1 MINUTE] WHERE a > {i} GROUP BY b HAVING COUNT(*) > 3;\n"
        for i in range(1_000)
    )
    began = time.process_time()
    assert len(list(check_for_run(text, "x.cql", Settings()))) == 1_001
    assert time.process_time() - began < 10


def deeper(calls: int, work: Callable[[], object]) -> object:
    """`work` with so many calls on the stack."""
    return work() if calls == 0 else deeper(calls - 1, work)


#: By what is nested: a value over `a` of a depth, and a depth below and one above the limit.
NESTED: dict[str, tuple[Callable[[int], str], int, int]] = {
    "brackets": (lambda n: "(" * n + "a" + ")" * n, 100, 101),
    "calls": (lambda n: "ABS(" * n + "a" + ")" * n, 100, 101),
    "signs": (lambda n: "- " * n + "a", 100, 101),
    "many signs": (lambda n: "- " * n + "a", 100, 50_000),
    "sums": (lambda n: " + ".join(["a"] * n), 90, 150),
    "sums in brackets": (lambda n: "(a + " * n + "a" + ")" * n, 45, 101),
    "case": (lambda n: "CASE a WHEN 1 THEN 2 ELSE " * n + "a" + " END" * n, 90, 101),
    "casts": (lambda n: "a" + "::BIGINT" * n, 90, 150),
    "subqueries": (lambda n: "(SELECT MAX(a + " * n + "1" + ") FROM s [NOW])" * n, 5, 101),
}


@pytest.mark.spread(4)
@pytest.mark.parametrize("form", NESTED)
@pytest.mark.parametrize("calls", [0, 500, 900])
def test_nesting_does_not_depend_on_the_stack(form: str, calls: int) -> None:
    value, below, above = NESTED[form]
    room = sys.getrecursionlimit() - len(inspect.stack()) - 30
    used = min(calls, room)

    def whole() -> str:
        session = Session()
        session.declare(f"{STREAM}CREATE QUERY q AS SELECT {value(below)} AS v FROM s;")
        return session.explain("q") + session.state("q").text()

    def beyond() -> PenstockError:
        with pytest.raises(ScriptErrors) as caught:
            bind_script(f"{STREAM}SELECT {value(above)} AS v FROM s;")
        return caught.value.errors[0]

    assert deeper(used, whole) == whole()
    error, same = deeper(used, beyond), beyond()
    assert isinstance(error, PenstockError) and error.code == "P0105"
    assert error.render() == same.render()


def test_what_is_nested_is_answered() -> None:
    value: Expression = Column(pa.int32(), 0)
    while value.height < MAX_HEIGHT:
        value = Call(pa.int32(), "ABS", (value,))
    assert evaluate(value, [pa.array([-3], pa.int32())], 1).to_pylist() == [3]
    conditions = tuple(Call(pa.bool_(), "NE", (Column(pa.int32(), 0), Literal(pa.int32(), i))) for i in range(5_000))
    found = conjunction(conditions)
    assert found is not None and found.height < 40
    assert conjuncts(found) == conditions


def test_views_that_add_to_each_other() -> None:
    views = "CREATE VIEW v0 AS SELECT a, b FROM s [NOW];\n" + "".join(
        f"CREATE VIEW v{i} AS SELECT {'ABS(' * 80}a{')' * 80} AS a, b FROM v{i - 1};\n" for i in range(1, 20)
    )
    session = Session()
    session.declare(f"{STREAM}{views}CREATE QUERY q AS SELECT a FROM v19 WHERE a > 1;")
    root = optimize(session.catalog.queries["q"].root)
    heights = [node.height for node in walk(root) if isinstance(node, Expression)]
    assert 80 < max(heights) <= MAX_HEIGHT


def sources(count: int, between: str) -> str:
    return f" {between} ".join(f"s [RANGE 1 MINUTE] s{i}" for i in range(count))


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT s0.a FROM {sources(24, ',')}",
        pytest.param(f"SELECT s0.a FROM {sources(100, ',')}", marks=pytest.mark.slow),
        "SELECT s0.a FROM s [NOW] s0" + "".join(f" JOIN s [NOW] s{i} ON s{i}.a = s{i - 1}.a" for i in range(1, 40)),
        "SELECT " + ", ".join(f"a + {i} AS c{i}" for i in range(1_000)) + " FROM s",
        "SELECT a FROM s WHERE a IN (" + ", ".join(map(str, range(10_000))) + ")",
        " UNION ALL ".join(f"SELECT a FROM s [RANGE {i} MINUTES]" for i in range(1, 60)),
    ],
    ids=lambda text: text[:40],
)
def test_large_queries_are_planned_in_seconds(query: str) -> None:
    session = Session()
    session.declare(f"{STREAM}CREATE QUERY q AS {query};")
    began = time.process_time()
    assert session.explain("q")
    assert time.process_time() - began < 10


#: Queries whose equal parts would be a tree of thousands of reads, by their number of levels.
def _laterals(levels: int) -> str:
    beside = "".join(
        f", LATERAL (SELECT MAX(x{i}.a) FROM r x{i} WHERE x{i}.b <= {f'd{i - 1}.c' if i else 'r.b'}) AS d{i}(c)"
        for i in range(levels)
    )
    return f"CREATE QUERY q AS SELECT r.a FROM r{beside};"


def _subqueries(levels: int) -> str:
    asked = "(SELECT a FROM r)"
    for i in range(levels):
        outer = f"x{i + 1}.b" if i < levels - 1 else "r.b"
        asked = f"(SELECT MAX(x{i}.a) FROM r x{i} WHERE x{i}.b > {outer} AND x{i}.a NOT IN {asked} LIMIT 1)"
    return f"CREATE QUERY q AS SELECT r.a FROM r WHERE r.a NOT IN {asked};"


def _groups(levels: int) -> str:
    views = "".join(
        f"CREATE VIEW g{i} AS SELECT x.a, COUNT(*) AS b FROM {below} x JOIN {below} y ON x.a = y.b GROUP BY x.a;\n"
        for i, below in enumerate(["r", *(f"g{n}" for n in range(levels - 1))])
    )
    return f"{views}CREATE QUERY q AS SELECT a FROM g{levels - 1};"


@pytest.mark.parametrize(("form", "levels"), [(_laterals, 4), (_subqueries, 3), (_groups, 6)])
def test_equal_parts_are_planned_once(form: Callable[[int], str], levels: int) -> None:
    """The plan grows in proportion to the levels, where a tree of it doubles or triples with each."""
    sizes = []
    for count in (levels, 2 * levels):
        (query,) = bind_script(f"CREATE RELATION r (a INT, b INT) FROM MEMORY ();\n{form(count)}").queries
        plan = optimize(query.root)
        assert len(list(operators(plan))) == len({node.fingerprint for node in operators(plan)})
        sizes.append((len(list(operators(query.root))), len(list(operators(plan)))))
    assert plan.size > 30 * sizes[1][1]
    assert all(larger < 2.5 * smaller for smaller, larger in zip(*sizes, strict=True)), sizes


def test_conditions_in_a_row_do_not_repeat_each_other() -> None:
    """Each of the subqueries reads the rows of FROM, not the rows that the subqueries before it have left."""
    sizes = []
    for count in (4, 8):
        asked = (f"r.a NOT IN (SELECT MAX(x.b + r.b) FROM r x WHERE x.a > r.a + {i})" for i in range(count))
        text = "CREATE RELATION r (a INT, b INT) FROM MEMORY ();\nCREATE QUERY q AS SELECT a FROM r WHERE {};"
        (query,) = bind_script(text.format(" AND ".join(asked))).queries
        sizes.append(query.root.size)
    assert sizes[1] < 2.5 * sizes[0], sizes


def test_parts_that_repeat_too_often_are_refused() -> None:
    text = f"CREATE RELATION r (a INT, b INT) FROM MEMORY ();\n{_groups(20)}"
    with pytest.raises(ScriptErrors) as caught:
        bind_script(text)
    assert caught.value.code == "P0105" and f"{limits.MAX_REPEATED:,} are the limit" in caught.value.message


@pytest.mark.parametrize(
    "script",
    [
        "CREATE VIEW {} AS SELECT a FROM s", "CREATE STREAM {} (a INT) FROM MEMORY () TIMESTAMP BY a",
        "CREATE RELATION z ({} INT) FROM MEMORY ()", "CREATE QUERY {} AS SELECT a FROM s",
        "CREATE VIEW z AS SELECT a AS {} FROM s", "CREATE VIEW z AS SELECT a FROM s AS {}",
        "CREATE VIEW z AS WITH {} AS (SELECT a FROM s) SELECT a FROM s",
    ],
)  # fmt: skip
def test_names_have_a_longest(script: str) -> None:
    """The same for all of them: an address of a server's query has the name in it."""
    assert not parse_statements(SourceText(script.format("n" * 1_000))).errors
    for name in ("n" * 1_001, f"`{'n ' * 501}`"):
        (error,) = parse_statements(SourceText(script.format(name))).errors
        assert error.code == "P0105" and "1,000 are the limit" in error.message and error.hint
